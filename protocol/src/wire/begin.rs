//! BEGIN, type 0x13, gateway → agent: stands in stream order before an exchange's first byte.
//!
//! ```text
//! flags  0x01 any number of bytes may have been read from the app (h2c); then no u64 follows
//! u128   request id
//! ms     time left for the first byte
//! [u64   bytes the agent must have read from the app]
//! ```

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, put_millis};
use super::frame::{Begin, Frame};
use super::header::Header;

/// No expectation stands at the end.
const ANY_READ: u8 = 0x01;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(ANY_READ)?;
    let begin = Begin {
        request: fields.u128()?,
        remaining: fields.millis()?,
        expect_read: if header.has(ANY_READ) {
            None
        } else {
            Some(fields.u64()?)
        },
    };
    Ok(Frame::Begin(header.stream, begin))
}

pub(super) const fn flags(begin: &Begin) -> u8 {
    if begin.expect_read.is_none() {
        ANY_READ
    } else {
        0
    }
}

pub(super) fn encode(begin: &Begin, out: &mut BytesMut) {
    out.put_u128(begin.request);
    put_millis(out, begin.remaining);
    if let Some(expected) = begin.expect_read {
        out.put_u64(expected);
    }
}
