//! Frames inside a carrier's bytes: where each ends, and what of it the oracle needs.

use std::collections::VecDeque;
use std::fmt;

use bridgehead_protocol::wire::{self, Frame, HEADER_LEN, Kind, Limits};
use bytes::BytesMut;

/// What an entry says of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// Type number; 0: no frame.
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    /// DATA: bytes. FINAL, COUNT: written. CREDIT: consumed. GOAWAY: last. BEGIN: remaining
    /// microseconds. WELCOME: low bits of the tunnel's id. RESUME: highest stream id, or with a stream
    /// its offset.
    pub(crate) value: u64,
    /// FINAL, COUNT: read. BEGIN: bytes that were expected to be read. DATA: 1 with FIN, and the first byte
    /// above that.
    pub(crate) other: u64,
}

/// Whose exchange bytes belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whose {
    #[default]
    Measured,
    /// Another client's, which only takes a place.
    Other,
}

impl Note {
    pub(crate) const NONE: Self = Self::bare(0);
    /// Bytes that met a closed end.
    pub(crate) const LOST: Self = Self::bare(0xfe);
    /// Bytes inside a frame.
    pub(crate) const PART: Self = Self::bare(0xff);

    pub(crate) const fn is_lost(self) -> bool {
        self.kind == Self::LOST.kind
    }

    const fn bare(kind: u8) -> Self {
        Self {
            kind,
            stream: 0,
            value: 0,
            other: 0,
        }
    }

    /// One stream's offset out of a RESUME; noted beside the frame itself.
    const fn resumed(stream: u32, offset: u64) -> Self {
        Self {
            kind: Kind::Resume as u8,
            stream,
            value: offset,
            other: 1,
        }
    }

    fn of(kind: u8, frame: &Frame) -> Self {
        let mut note = Self::bare(kind);
        let (stream, value, other) = match frame {
            Frame::Data { stream, bytes, fin } => {
                let other = u64::from(*fin) | Self::bytes(bytes).other;
                (stream.0, bytes.len() as u64, other)
            }
            Frame::Final {
                stream,
                written,
                read,
                ..
            }
            | Frame::Count {
                stream,
                written,
                read,
            } => (stream.0, *written, *read),
            Frame::Credit {
                stream, consumed, ..
            } => (stream.0, *consumed, 0),
            Frame::GoAway { last, .. } => (0, u64::from(last.0), 0),
            Frame::Begin(stream, begin) => {
                let remaining = u64::try_from(begin.remaining.as_micros()).unwrap_or(u64::MAX);
                (stream.0, remaining, begin.expect_read.unwrap_or(u64::MAX))
            }
            Frame::Open(stream, _) => (stream.0, 0, 0),
            Frame::Opened { stream, .. }
            | Frame::Refused { stream, .. }
            | Frame::Fence { stream, .. }
            | Frame::Reset { stream, .. } => (stream.0, 0, 0),
            Frame::Welcome(welcome) => (0, welcome.ticket.tunnel as u64, 0),
            Frame::Resume(resume) => (0, u64::from(resume.highest_open), 0),
            Frame::Hello(_)
            | Frame::Refuse(_)
            | Frame::Ping(_)
            | Frame::Pong(_)
            | Frame::Apps { .. }
            | Frame::Done(_)
            | Frame::Report(_) => (0, 0, 0),
        };
        (note.stream, note.value, note.other) = (stream, value, other);
        note
    }

    /// Bytes of a plain link that begin so.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        let first = bytes.first().map_or(0, |b| u64::from(*b));
        Self {
            other: first << 8,
            ..Self::NONE
        }
    }

    /// Whose request these bytes begin, if any: methods are written in capitals, nothing else is.
    pub(crate) fn begins(&self) -> Option<Whose> {
        match u8::try_from(self.other >> 8).unwrap_or(0) {
            b'D' => Some(Whose::Other),
            b'G' | b'P' => Some(Whose::Measured),
            _ => None,
        }
    }

    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    /// Liveness; comes with time, not with an exchange.
    pub(crate) fn is_pulse(&self) -> bool {
        self.is(Kind::Ping) || self.is(Kind::Pong)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Kind::from_number(self.kind) {
            Some(kind) => write!(
                f,
                "{} #{} {} {}",
                kind.as_str(),
                self.stream,
                self.value,
                self.other
            ),
            None if self.kind == Self::PART.kind => f.write_str("part"),
            None if self.kind == Self::LOST.kind => f.write_str("lost"),
            None => f.write_str("-"),
        }
    }
}

/// Cuts a carrier's bytes at the ends of frames.
#[derive(Default)]
pub(crate) struct Cutter {
    partial: BytesMut,
}

impl Cutter {
    /// True if the next byte begins a frame.
    pub(crate) fn is_between(&self) -> bool {
        self.partial.is_empty()
    }

    /// How many of `bytes` belong to the frame that is next or was begun.
    pub(crate) fn piece(&self, bytes: &[u8]) -> usize {
        let have = self.partial.len();
        let at = |index: usize| -> Option<usize> {
            let byte = match index.checked_sub(have) {
                None => self.partial[index],
                Some(rest) => *bytes.get(rest)?,
            };
            Some(usize::from(byte))
        };
        let (Some(high), Some(middle), Some(low)) = (at(0), at(1), at(2)) else {
            return bytes.len();
        };
        let whole = HEADER_LEN + (high << 16 | middle << 8 | low);
        (whole - have.min(whole)).clamp(1, bytes.len())
    }

    /// Takes bytes that were accepted at offset `from`; answers the frames that they complete, each
    /// with the offset behind it.
    pub(crate) fn feed(&mut self, bytes: &[u8], from: u64) -> Vec<(u64, Note)> {
        let mut done = Vec::new();
        self.partial.extend_from_slice(bytes);
        let end = from + bytes.len() as u64;
        loop {
            let kind = self.partial.get(3).copied().unwrap_or(0);
            match wire::decode(&mut self.partial, &Limits::default()) {
                Ok(Some(frame)) => {
                    let behind = end - self.partial.len() as u64;
                    done.push((behind, Note::of(kind, &frame)));
                    if let Frame::Resume(resume) = &frame {
                        let offsets = resume.streams.iter();
                        done.extend(offsets.map(|(id, at)| (behind, Note::resumed(id.0, *at))));
                    }
                }
                Ok(None) => return done,
                Err(error) => panic!("a program wrote what is no frame: {error}"),
            }
        }
    }
}

/// Frames that are on their way.
pub(crate) type OnTheWay = VecDeque<(u64, Note)>;
