//! GOAWAY, type 0x08, both ways: streams above `last` were not and will not be started.
//!
//! ```text
//! u32  last stream id accepted
//! u8   reason
//! ms   until the sender closes what is left
//! ```

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, put_millis};
use super::frame::{Frame, GoAwayReason, StreamId};
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::GoAway {
        last: StreamId(fields.u32()?),
        reason: fields.code("reason", GoAwayReason::from_number)?,
        deadline: fields.millis()?,
    })
}

pub(super) fn encode(last: StreamId, reason: GoAwayReason, deadline: Duration, out: &mut BytesMut) {
    out.put_u32(last.0);
    out.put_u8(reason.number());
    put_millis(out, deadline);
}
