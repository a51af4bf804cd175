//! CREDIT, type 0x15, both ways: `u64` limit · `u64` consumed, both absolute offsets.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::Frame;
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Credit {
        stream: header.stream,
        limit: fields.u64()?,
        consumed: fields.u64()?,
    })
}

pub(super) fn encode(limit: u64, consumed: u64, out: &mut BytesMut) {
    out.put_u64(limit);
    out.put_u64(consumed);
}
