//! Bytes to frames, incrementally.

use bytes::{Buf, BytesMut};

use super::error::WireError;
use super::fields::Fields;
use super::frame::Frame;
use super::header::{HEADER_LEN, Header, Kind, Limits, MAX_PAYLOAD, RawHeader};
use super::{
    apps, begin, credit, data, fence, goaway, hello, open, opened, ping, refuse, refused, report,
    reset, resume, terminal, welcome,
};

/// Takes the first whole frame off `buf`; `None` if more bytes are needed.
///
/// Frames of unknown types that may be ignored are skipped. The bytes of DATA are split off
/// `buf`, not copied; they keep the allocation they arrived in alive, so whoever holds a few of
/// them for long must count the allocation, not the bytes.
///
/// # Errors
/// Any error is final: the position in the bytes is lost.
pub fn decode(buf: &mut BytesMut, limits: &Limits) -> Result<Option<Frame>, WireError> {
    loop {
        let Some(raw) = RawHeader::peek(buf) else {
            return Ok(None);
        };
        let cap = limits.payload.min(MAX_PAYLOAD);
        if raw.length > cap {
            return Err(WireError::TooLong {
                length: raw.length,
                cap,
            });
        }
        // Judged before the payload is there: a bad header ends the tunnel at once.
        let header = raw.judge()?;
        if buf.len() < HEADER_LEN + raw.length {
            return Ok(None);
        }
        buf.advance(HEADER_LEN);
        let Some(header) = header else {
            buf.advance(raw.length);
            continue;
        };
        return payload(&header, buf.split_to(raw.length), limits).map(Some);
    }
}

/// Bytes at the beginning of `bytes` that are whole frames, whatever they hold. For carriers that
/// must not cut a frame.
///
/// # Errors
/// [`WireError::TooLong`] if a length is above the cap.
pub fn whole_frames(bytes: &[u8]) -> Result<usize, WireError> {
    let mut end = 0;
    while let Some(raw) = RawHeader::peek(&bytes[end..]) {
        if raw.length > MAX_PAYLOAD {
            return Err(WireError::TooLong {
                length: raw.length,
                cap: MAX_PAYLOAD,
            });
        }
        let next = end + HEADER_LEN + raw.length;
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    Ok(end)
}

fn payload(header: &Header, payload: BytesMut, limits: &Limits) -> Result<Frame, WireError> {
    let fields = &mut Fields::new(header.kind, &payload);
    let frame = match header.kind {
        Kind::Data => return data::decode(header, payload.freeze()),
        Kind::Hello => hello::decode(header, fields, limits),
        Kind::Welcome => welcome::decode(header, fields),
        Kind::Refuse => refuse::decode(header, fields),
        Kind::Resume => resume::decode(header, fields),
        Kind::Ping => ping::decode(header, fields).map(Frame::Ping),
        Kind::Pong => ping::decode(header, fields).map(Frame::Pong),
        Kind::Apps => apps::decode(header, fields, limits),
        Kind::GoAway => goaway::decode(header, fields),
        Kind::Open => open::decode(header, fields),
        Kind::Opened => opened::decode(header, fields),
        Kind::Refused => refused::decode(header, fields),
        Kind::Begin => begin::decode(header, fields),
        Kind::Credit => credit::decode(header, fields),
        Kind::Fence => fence::decode_fence(header),
        Kind::Count => fence::decode_count(header, fields),
        Kind::Reset => reset::decode(header, fields),
        Kind::Final => terminal::decode_final(header, fields),
        Kind::Done => terminal::decode_done(header, fields),
        Kind::Report => report::decode(header, fields),
    }?;
    fields.finish()?;
    Ok(frame)
}
