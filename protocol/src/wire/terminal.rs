//! FINAL, type 0x19, agent → gateway, terminal, exactly once per opened stream: `u64` written ·
//! `u64` read · `u8` cause.
//!
//! DONE, type 0x09, gateway → agent: terminals received; an open list of `u32` stream ids.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::{FinalCause, Frame, StreamId};
use super::header::{Header, MAX_PAYLOAD};

/// Ids that fit into one DONE; the encoder splits longer lists.
pub(super) const MAX_DONE: usize = MAX_PAYLOAD / 4;

pub(super) fn decode_final(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Final {
        stream: header.stream,
        written: fields.u64()?,
        read: fields.u64()?,
        cause: fields.code("cause", FinalCause::from_number)?,
    })
}

pub(super) fn encode_final(written: u64, read: u64, cause: FinalCause, out: &mut BytesMut) {
    out.put_u64(written);
    out.put_u64(read);
    out.put_u8(cause.number());
}

pub(super) fn decode_done(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    fields
        .open_list(4, |fields| fields.u32().map(StreamId))
        .map(Frame::Done)
}

pub(super) fn encode_done(streams: &[StreamId], out: &mut BytesMut) {
    for stream in streams {
        out.put_u32(stream.0);
    }
}
