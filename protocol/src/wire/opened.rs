//! OPENED, type 0x11, agent → gateway: connected (with TLS to the app: handshake done), zero
//! bytes written. Payload: `u32` initial credit.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::Frame;
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Opened {
        stream: header.stream,
        credit: fields.u32()?,
    })
}

pub(super) fn encode(credit: u32, out: &mut BytesMut) {
    out.put_u32(credit);
}
