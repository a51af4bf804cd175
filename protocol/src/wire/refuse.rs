//! REFUSE, type 0x03, gateway → agent: not let in; the carrier is closed afterwards.
//!
//! ```text
//! flags  0x01 permanent
//! u8     code
//! ms     retry after
//! text   one line for a person
//! ```
//! Same in every version, see `hello`.

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, put_millis, put_text};
use super::frame::{Frame, Refuse, RefuseCode};
use super::header::Header;

/// Trying again without a change is useless.
const PERMANENT: u8 = 0x01;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(PERMANENT)?;
    Ok(Frame::Refuse(Refuse {
        code: fields.code("code", RefuseCode::from_number)?,
        permanent: header.has(PERMANENT),
        retry_after: fields.millis()?,
        text: fields.text()?,
    }))
}

pub(super) const fn flags(refuse: &Refuse) -> u8 {
    if refuse.permanent { PERMANENT } else { 0 }
}

pub(super) fn encode(refuse: &Refuse, out: &mut BytesMut) {
    out.put_u8(refuse.code.number());
    put_millis(out, refuse.retry_after);
    put_text(out, &refuse.text);
}
