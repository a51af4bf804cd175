//! Bodies coming in: by length, chunked, or until the peer closes.
//!
//! Incremental over the connection's read buffer; body bytes are split off, never copied. Owns where
//! a body ends. Invariants: any division of the same bytes into reads gives the same body; a
//! malformed chunk never leads to [`Decoded::End`]; nothing beyond the body's end is consumed.
//!
//! Chunk extensions: refused from clients (no client sends them, parsers disagree about them);
//! from apps they are skipped within a bound, as RFC 9112 §7.1.1 asks, and never forwarded.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;

use super::fields::strip_forbidden_trailers;
use super::head::{HeadError, HeadLimits, ResponseFraming, trailer_section};
use super::scan::HeadScan;
use crate::request::front::BodyLength;

/// Digits of a chunk size; 16 hold every u64.
const SIZE_DIGITS: usize = 16;

/// Longest chunk line with blanks and extensions that an app may send.
const EXTENSION_LINE: usize = 1024;

/// Bounds of a trailer section.
const TRAILERS: HeadLimits = HeadLimits {
    max_bytes: 8 * 1024,
    max_fields: 32,
    max_target: 0,
};

/// What is done with chunk extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkRules {
    /// Refuse them, and blanks after the size (clients).
    Strict,
    /// Skip them (apps).
    SkipExtensions,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Bytes of the body, never empty.
    Data(Bytes),
    /// The body has ended, with these trailers (never empty, forbidden names already dropped).
    Trailers(HeaderMap),
    /// The body has ended. Repeated on every later call.
    End,
}

/// Why bytes are not the body they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// A chunk size is missing, not hexadecimal, too long, or followed by something else than CRLF.
    #[error("a chunk size is malformed")]
    ChunkSize,
    /// A chunk extension where none is accepted, or one that is too long.
    #[error("a chunk extension is not accepted")]
    ChunkExtension,
    /// A chunk's data is not followed by CRLF.
    #[error("a chunk does not end where its size says")]
    ChunkEnd,
    /// The trailer section is malformed or too large.
    #[error("the trailer section is malformed: {0}")]
    Trailers(HeadError),
    /// The connection ended before the body did.
    #[error("the connection ended before the body did")]
    Short,
}

impl BodyError {
    /// The fault in constant words, for `ClientFault::Malformed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChunkSize => "a chunk size is malformed",
            Self::ChunkExtension => "a chunk extension is not accepted",
            Self::ChunkEnd => "a chunk does not end where its size says",
            Self::Trailers(_) => "the trailer section is malformed",
            Self::Short => "the connection ended before the body did",
        }
    }
}

/// ```text
///  Length ───────────────────────────────────────┐
///  UntilClose ── decode_eof ─────────────────────┤
///  Size ─► Data ─► DataEnd ─┐                    ├─► Done
///   ▲  └ size 0 ─► Trailers ┼────────────────────┘
///   └───────────────────────┘      any error ─► Failed
/// ```
#[derive(Clone, Debug)]
enum State {
    Length(u64),
    UntilClose,
    Size,
    Data(u64),
    DataEnd,
    Trailers(HeadScan),
    Done,
    Failed(BodyError),
}

/// Decoder of one body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    rules: ChunkRules,
}

impl BodyDecoder {
    /// For a request's body. [`BodyLength::Tunnel`] runs until the peer closes.
    #[must_use]
    pub const fn request(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::None | BodyLength::Exact(0) => State::Done,
            BodyLength::Exact(n) => State::Length(n),
            BodyLength::Streamed => State::Size,
            BodyLength::Tunnel => State::UntilClose,
        };
        Self {
            state,
            rules: ChunkRules::Strict,
        }
    }

    /// For an app's answer.
    #[must_use]
    pub const fn response(framing: ResponseFraming) -> Self {
        let state = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => State::Done,
            ResponseFraming::Length(n) => State::Length(n),
            ResponseFraming::Chunked => State::Size,
            ResponseFraming::UntilClose => State::UntilClose,
        };
        Self {
            state,
            rules: ChunkRules::SkipExtensions,
        }
    }

    /// Take the next piece from the front of `buf`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The framing is broken; repeated on every later call.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Decoded>, BodyError> {
        loop {
            let step = match &mut self.state {
                State::Done => return Ok(Some(Decoded::End)),
                State::Failed(error) => return Err(*error),
                State::UntilClose => return Ok(take(buf, u64::MAX).map(Decoded::Data)),
                State::Length(left) => {
                    let Some(data) = take(buf, *left) else {
                        return Ok(None);
                    };
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    return Ok(Some(Decoded::Data(data)));
                }
                State::Data(left) => {
                    let Some(data) = take(buf, *left) else {
                        return Ok(None);
                    };
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = State::DataEnd;
                    }
                    return Ok(Some(Decoded::Data(data)));
                }
                State::Size => chunk_size(buf, self.rules),
                State::DataEnd => chunk_end(buf),
                State::Trailers(scan) => match trailers(scan, buf) {
                    Ok(Some(map)) => {
                        self.state = State::Done;
                        if !map.is_empty() {
                            return Ok(Some(Decoded::Trailers(map)));
                        }
                        continue;
                    }
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                },
            };
            match step {
                Ok(Some(next)) => self.state = next,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// The peer closed its side and `buf` was decoded to its end.
    ///
    /// # Errors
    /// The body was not complete.
    pub fn decode_eof(&mut self) -> Result<Decoded, BodyError> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(Decoded::End)
            }
            State::Failed(error) => Err(error),
            State::Length(_)
            | State::Size
            | State::Data(_)
            | State::DataEnd
            | State::Trailers(_) => Err(self.fail(BodyError::Short)),
        }
    }

    /// The body has been decoded to its end.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Bytes that the body must still bring, if its length was declared.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            State::UntilClose
            | State::Size
            | State::Data(_)
            | State::DataEnd
            | State::Trailers(_)
            | State::Failed(_) => None,
        }
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.state = State::Failed(error);
        error
    }
}

/// Up to `most` bytes from the front of `buf`; `None` if it is empty.
fn take(buf: &mut BytesMut, most: u64) -> Option<Bytes> {
    let len = usize::try_from(most).map_or(buf.len(), |most| buf.len().min(most));
    match len {
        0 => None,
        len => Some(buf.split_to(len).freeze()),
    }
}

/// Read a whole chunk line; nothing is consumed before it is complete.
fn chunk_size(buf: &mut BytesMut, rules: ChunkRules) -> Result<Option<State>, BodyError> {
    let digits = buf
        .iter()
        .take(SIZE_DIGITS + 1)
        .take_while(|b| b.is_ascii_hexdigit())
        .count();
    if digits > SIZE_DIGITS {
        return Err(BodyError::ChunkSize);
    }
    let Some(&after) = buf.get(digits) else {
        return Ok(None);
    };
    if digits == 0 {
        return Err(BodyError::ChunkSize);
    }
    let line = match (after, rules) {
        (b'\r', _) => digits,
        (b';', ChunkRules::Strict) => return Err(BodyError::ChunkExtension),
        (b';' | b' ' | b'\t', ChunkRules::SkipExtensions) => match extension_end(buf, digits)? {
            Some(end) => end,
            None => return Ok(None),
        },
        _ => return Err(BodyError::ChunkSize),
    };
    match buf.get(line + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(BodyError::ChunkSize),
    }
    let size = buf[..digits].iter().fold(0u64, |sum, digit| {
        (sum << 4) | u64::from((*digit as char).to_digit(16).unwrap_or_default())
    });
    buf.advance(line + 2);
    Ok(Some(match size {
        0 => State::Trailers(HeadScan::trailers()),
        size => State::Data(size),
    }))
}

/// Where the CR after an extension stands; `None` if the line is not complete.
fn extension_end(buf: &[u8], from: usize) -> Result<Option<usize>, BodyError> {
    for (at, byte) in buf.iter().enumerate().skip(from) {
        match byte {
            b'\r' => return Ok(Some(at)),
            b'\n' | 0 => return Err(BodyError::ChunkExtension),
            _ if at >= EXTENSION_LINE => return Err(BodyError::ChunkExtension),
            _ => {}
        }
    }
    Ok(None)
}

fn chunk_end(buf: &mut BytesMut) -> Result<Option<State>, BodyError> {
    match buf[..] {
        [] | [b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => {
            buf.advance(2);
            Ok(Some(State::Size))
        }
        _ => Err(BodyError::ChunkEnd),
    }
}

fn trailers(scan: &mut HeadScan, buf: &mut BytesMut) -> Result<Option<HeaderMap>, BodyError> {
    let Some(len) = scan.scan(buf, &TRAILERS).map_err(BodyError::Trailers)? else {
        return Ok(None);
    };
    let section = buf.split_to(len).freeze();
    if len == 2 {
        return Ok(Some(HeaderMap::new()));
    }
    let mut map = trailer_section(section).map_err(BodyError::Trailers)?;
    strip_forbidden_trailers(&mut map);
    Ok(Some(map))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
