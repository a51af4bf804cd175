//! The nine bytes before every payload, the type numbers, and the caps.

use std::fmt;

use super::error::WireError;
use super::frame::{Frame, StreamId};

/// Bytes of the header.
pub const HEADER_LEN: usize = 9;

/// Most payload bytes of any frame. Bounds what one unfinished frame makes a reader hold.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Highest stream number; a tunnel is replaced before it gets there.
pub const MAX_STREAM: u32 = (1 << 31) - 1;

/// Types from here on may be skipped by a peer that does not know them.
const IGNORABLE: u8 = 0x80;

/// Caps of a decoder, checked before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes of one frame; values above [`MAX_PAYLOAD`] count as [`MAX_PAYLOAD`].
    pub payload: usize,
    /// Apps in one HELLO or APPS.
    pub apps: usize,
}

impl Limits {
    /// Apps that always fit into one frame: 128 of at most 300 bytes are below [`MAX_PAYLOAD`].
    pub const MAX_APPS: usize = 128;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload: MAX_PAYLOAD,
            apps: Self::MAX_APPS,
        }
    }
}

macro_rules! kinds {
    ($($name:ident = $number:literal, $label:literal;)+) => {
        /// Type of a frame: its number on the wire and its name in logs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = concat!("`", $label, "`, type ", stringify!($number), ".")] $name = $number,)+
        }

        impl Kind {
            /// Every frame of this version.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The frame with this type number, if this version has one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Name as the protocol's description writes it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

kinds! {
    Hello = 0x01, "HELLO";
    Welcome = 0x02, "WELCOME";
    Refuse = 0x03, "REFUSE";
    Resume = 0x04, "RESUME";
    Ping = 0x05, "PING";
    Pong = 0x06, "PONG";
    Apps = 0x07, "APPS";
    GoAway = 0x08, "GOAWAY";
    Done = 0x09, "DONE";
    Report = 0x0a, "REPORT";
    Open = 0x10, "OPEN";
    Opened = 0x11, "OPENED";
    Refused = 0x12, "REFUSED";
    Begin = 0x13, "BEGIN";
    Data = 0x14, "DATA";
    Credit = 0x15, "CREDIT";
    Fence = 0x16, "FENCE";
    Count = 0x17, "COUNT";
    Reset = 0x18, "RESET";
    Final = 0x19, "FINAL";
}

impl Kind {
    /// Type number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// True if the frame belongs to a stream, false if to the tunnel (stream 0).
    #[must_use]
    pub const fn of_stream(self) -> bool {
        self.number() >= Self::Open.number()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Frame {
    /// Type of this frame.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome(_) => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Resume(_) => Kind::Resume,
            Self::Ping(_) => Kind::Ping,
            Self::Pong(_) => Kind::Pong,
            Self::Apps { .. } => Kind::Apps,
            Self::GoAway { .. } => Kind::GoAway,
            Self::Open(..) => Kind::Open,
            Self::Opened { .. } => Kind::Opened,
            Self::Refused { .. } => Kind::Refused,
            Self::Begin(..) => Kind::Begin,
            Self::Data { .. } => Kind::Data,
            Self::Credit { .. } => Kind::Credit,
            Self::Fence { .. } => Kind::Fence,
            Self::Count { .. } => Kind::Count,
            Self::Reset { .. } => Kind::Reset,
            Self::Final { .. } => Kind::Final,
            Self::Done(_) => Kind::Done,
            Self::Report(_) => Kind::Report,
        }
    }

    /// Stream this frame belongs to; [`StreamId::TUNNEL`] for frames of the tunnel.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        match self {
            Self::Open(stream, _)
            | Self::Begin(stream, _)
            | Self::Opened { stream, .. }
            | Self::Refused { stream, .. }
            | Self::Data { stream, .. }
            | Self::Credit { stream, .. }
            | Self::Fence { stream, .. }
            | Self::Count { stream, .. }
            | Self::Reset { stream, .. }
            | Self::Final { stream, .. } => *stream,
            Self::Hello(_)
            | Self::Welcome(_)
            | Self::Refuse(_)
            | Self::Resume(_)
            | Self::Ping(_)
            | Self::Pong(_)
            | Self::Apps { .. }
            | Self::GoAway { .. }
            | Self::Done(_)
            | Self::Report(_) => StreamId::TUNNEL,
        }
    }
}

/// A header as read, not yet judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHeader {
    pub(super) length: usize,
    number: u8,
    flags: u8,
    stream: u32,
}

/// A header that names a frame of this version on a stream it may stand on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) stream: StreamId,
    flags: u8,
}

impl RawHeader {
    /// Reads the first nine bytes; `None` if fewer are there.
    pub(super) fn peek(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [l2, l1, l0, number, flags, stream @ ..] = *head;
        Some(Self {
            length: u32::from_be_bytes([0, l2, l1, l0]) as usize,
            number,
            flags,
            stream: u32::from_be_bytes(stream),
        })
    }

    /// The frame it announces; `None` for one that may be skipped.
    pub(super) fn judge(self) -> Result<Option<Header>, WireError> {
        let Some(kind) = Kind::from_number(self.number) else {
            if self.number >= IGNORABLE {
                return Ok(None);
            }
            return Err(WireError::UnknownType(self.number));
        };
        if self.stream > MAX_STREAM || kind.of_stream() != (self.stream != 0) {
            return Err(WireError::WrongStream {
                kind,
                stream: self.stream,
            });
        }
        Ok(Some(Header {
            kind,
            stream: StreamId(self.stream),
            flags: self.flags,
        }))
    }
}

impl Header {
    /// Refuses every flag outside `known`.
    pub(super) const fn allow_flags(&self, known: u8) -> Result<(), WireError> {
        if self.flags & !known != 0 {
            return Err(WireError::UnknownFlags {
                kind: self.kind,
                flags: self.flags,
            });
        }
        Ok(())
    }

    /// True if `flag` is set.
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The header's bytes. `length` above [`MAX_PAYLOAD`] is a mistake of the caller.
pub(super) const fn bytes(
    length: usize,
    kind: Kind,
    flags: u8,
    stream: StreamId,
) -> [u8; HEADER_LEN] {
    debug_assert!(length <= MAX_PAYLOAD);
    debug_assert!(kind.of_stream() == (stream.0 != 0));
    #[allow(clippy::cast_possible_truncation)] // ≤ MAX_PAYLOAD
    let [_, l2, l1, l0] = (length as u32).to_be_bytes();
    let [s3, s2, s1, s0] = stream.0.to_be_bytes();
    [l2, l1, l0, kind.number(), flags, s3, s2, s1, s0]
}
