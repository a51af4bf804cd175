//! REFUSED, type 0x12, agent → gateway, terminal: zero bytes of this stream were and will be
//! written. Payload: `u8` reason · `u16` error number of the system, 0 if none.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::{Frame, RefusedReason};
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Refused {
        stream: header.stream,
        reason: fields.code("reason", RefusedReason::from_number)?,
        errno: fields.u16()?,
    })
}

pub(super) fn encode(reason: RefusedReason, errno: u16, out: &mut BytesMut) {
    out.put_u8(reason.number());
    out.put_u16(errno);
}
