//! The building blocks of payloads, both ways.
//!
//! | Block | Bytes |
//! |---|---|
//! | number | big endian, 1, 2, 4, 8 or 16 bytes |
//! | text | `u8` length, then UTF-8 without control characters |
//! | milliseconds | `u32`; longer spans are written as the largest, fractions are cut off |
//! | list with a count | `u8` count, then the entries |
//! | open list | entries of one size up to the end of the payload, no count |

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::header::Kind;

/// Longest text in bytes: its length stands in one byte.
pub(super) const MAX_TEXT: usize = u8::MAX as usize;

/// The unread part of one payload.
pub(super) struct Fields<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(kind: Kind, payload: &'a [u8]) -> Self {
        Self {
            kind,
            rest: payload,
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WireError::Short(self.kind))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, WireError> {
        self.array().map(u128::from_be_bytes)
    }

    pub(super) fn millis(&mut self) -> Result<Duration, WireError> {
        self.u32().map(|ms| Duration::from_millis(u64::from(ms)))
    }

    /// A text. Control characters are refused because texts of a peer reach logs and terminals.
    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let length = usize::from(self.u8()?);
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireError::Short(self.kind))?;
        self.rest = rest;
        let text = std::str::from_utf8(head).map_err(|_| WireError::Text(self.kind))?;
        if text.chars().any(char::is_control) {
            return Err(WireError::Text(self.kind));
        }
        Ok(text.to_owned())
    }

    /// A value of a closed set.
    pub(super) fn code<T>(
        &mut self,
        field: &'static str,
        parse: fn(u8) -> Option<T>,
    ) -> Result<T, WireError> {
        let value = self.u8()?;
        parse(value).ok_or(WireError::UnknownValue {
            kind: self.kind,
            field,
            value,
        })
    }

    /// A list with a count. The count is checked against `cap` and against the bytes that are
    /// there (`smallest` per entry) before room is made for the entries.
    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        cap: usize,
        smallest: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = usize::from(self.u8()?);
        if count > cap {
            return Err(WireError::TooMany {
                kind: self.kind,
                field,
                count,
                cap,
            });
        }
        if count * smallest > self.rest.len() {
            return Err(WireError::Short(self.kind));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    /// An open list: entries of `size` bytes up to the end.
    pub(super) fn open_list<T>(
        &mut self,
        size: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        if !self.rest.len().is_multiple_of(size) {
            return Err(WireError::Trailing(self.kind));
        }
        let mut entries = Vec::with_capacity(self.rest.len() / size);
        while !self.rest.is_empty() {
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    /// Refuses bytes that no field used.
    pub(super) const fn finish(&self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(WireError::Trailing(self.kind))
        }
    }
}

/// Writes a text. What does not fit is cut at a character: only texts for people may be that
/// long, names are checked by whoever makes them.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    put_text_up_to(out, text, MAX_TEXT);
}

/// Writes a text cut at `cap` bytes, at most [`MAX_TEXT`].
pub(super) fn put_text_up_to(out: &mut BytesMut, text: &str, cap: usize) {
    let cut = &text[..text.floor_char_boundary(cap.min(MAX_TEXT))];
    #[allow(clippy::cast_possible_truncation)] // ≤ MAX_TEXT
    out.put_u8(cut.len() as u8);
    out.put_slice(cut.as_bytes());
}

/// Writes a span as milliseconds.
pub(super) fn put_millis(out: &mut BytesMut, span: Duration) {
    out.put_u32(u32::try_from(span.as_millis()).unwrap_or(u32::MAX));
}

/// Writes a list with a count, cut at `cap` entries (callers check before they ask for more).
pub(super) fn put_list<T>(
    out: &mut BytesMut,
    entries: &[T],
    cap: usize,
    mut put: impl FnMut(&mut BytesMut, &T),
) {
    debug_assert!(entries.len() <= cap && cap <= usize::from(u8::MAX));
    let entries = &entries[..entries.len().min(cap)];
    #[allow(clippy::cast_possible_truncation)] // ≤ cap ≤ 255
    out.put_u8(entries.len() as u8);
    for entry in entries {
        put(out, entry);
    }
}
