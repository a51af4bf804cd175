//! RESET, type 0x18, both ways: abrupt end of both directions. Payload: `u8` code.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::{Frame, ResetCode};
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Reset {
        stream: header.stream,
        code: fields.code("code", ResetCode::from_number)?,
    })
}

pub(super) fn encode(code: ResetCode, out: &mut BytesMut) {
    out.put_u8(code.number());
}
