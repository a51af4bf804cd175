//! FENCE, type 0x16, gateway → agent: write nothing more of this stream. No payload; flag 0x01:
//! the whole request has been sent, keep the app's connection for its late answer.
//!
//! COUNT, type 0x17, agent → gateway, the answer: `u64` written · `u64` read.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::Frame;
use super::header::Header;

/// Keep the app's connection.
const LINGER: u8 = 0x01;

pub(super) fn decode_fence(header: &Header) -> Result<Frame, WireError> {
    header.allow_flags(LINGER)?;
    Ok(Frame::Fence {
        stream: header.stream,
        linger: header.has(LINGER),
    })
}

pub(super) const fn flags(linger: bool) -> u8 {
    if linger { LINGER } else { 0 }
}

pub(super) fn decode_count(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Count {
        stream: header.stream,
        written: fields.u64()?,
        read: fields.u64()?,
    })
}

pub(super) fn encode_count(written: u64, read: u64, out: &mut BytesMut) {
    out.put_u64(written);
    out.put_u64(read);
}
