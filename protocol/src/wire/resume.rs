//! RESUME, type 0x04, both ways: offsets stated after a resumed WELCOME.
//!
//! ```text
//! flags     0x01 more RESUME frames follow
//! u32       highest stream id seen in OPEN
//! open list u32 stream · u64 next expected offset
//! ```

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::{Frame, Resume, StreamId};
use super::header::{Header, MAX_PAYLOAD};

/// More RESUME frames follow.
pub(super) const MORE: u8 = 0x01;

const ENTRY: usize = 12;

/// Streams that fit into one frame; the encoder splits longer lists.
pub(super) const MAX_STREAMS: usize = (MAX_PAYLOAD - 4) / ENTRY;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(MORE)?;
    Ok(Frame::Resume(Resume {
        highest_open: fields.u32()?,
        streams: fields.open_list(ENTRY, |fields| Ok((StreamId(fields.u32()?), fields.u64()?)))?,
        more: header.has(MORE),
    }))
}

pub(super) fn encode(highest_open: u32, streams: &[(StreamId, u64)], out: &mut BytesMut) {
    out.put_u32(highest_open);
    for (stream, offset) in streams {
        out.put_u32(stream.0);
        out.put_u64(*offset);
    }
}
