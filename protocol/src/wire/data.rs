//! DATA, type 0x14, both ways: the payload is the stream's bytes; flag 0x01 (FIN) ends this
//! direction. The position is implied by order.

use bytes::Bytes;

use super::error::WireError;
use super::frame::Frame;
use super::header::Header;

/// Ends this direction.
const FIN: u8 = 0x01;

pub(super) fn decode(header: &Header, bytes: Bytes) -> Result<Frame, WireError> {
    header.allow_flags(FIN)?;
    Ok(Frame::Data {
        stream: header.stream,
        bytes,
        fin: header.has(FIN),
    })
}

pub(super) const fn flags(fin: bool) -> u8 {
    if fin { FIN } else { 0 }
}
