//! PING, type 0x05, and PONG, type 0x06, both ways: 8 opaque bytes, echoed.

use super::error::WireError;
use super::fields::Fields;
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<[u8; 8], WireError> {
    header.allow_flags(0)?;
    fields.array()
}
