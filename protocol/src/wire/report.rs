//! REPORT, type 0x0a, agent → gateway: terminals of tunnels that were lost.
//!
//! An open list of `u128` tunnel · `u32` stream · `u64` written · `u64` read · `u8` cause.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::{FinalCause, Frame, ReportEntry, StreamId};
use super::header::{Header, MAX_PAYLOAD};

const ENTRY: usize = 16 + 4 + 8 + 8 + 1;

/// Entries that fit into one frame; the encoder splits longer lists.
pub(super) const MAX_ENTRIES: usize = MAX_PAYLOAD / ENTRY;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    let entries = fields.open_list(ENTRY, |fields| {
        Ok(ReportEntry {
            tunnel: fields.u128()?,
            stream: StreamId(fields.u32()?),
            written: fields.u64()?,
            read: fields.u64()?,
            cause: fields.code("cause", FinalCause::from_number)?,
        })
    })?;
    Ok(Frame::Report(entries))
}

pub(super) fn encode(entries: &[ReportEntry], out: &mut BytesMut) {
    for entry in entries {
        out.put_u128(entry.tunnel);
        out.put_u32(entry.stream.0);
        out.put_u64(entry.written);
        out.put_u64(entry.read);
        out.put_u8(entry.cause.number());
    }
}
