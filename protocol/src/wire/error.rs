//! What can be wrong with bytes that claim to be a frame. Always the peer's fault, never retryable
//! on the same carrier: the decoder's position in the bytes is lost with the first error.

use super::header::Kind;

/// A peer's bytes are not a frame of this protocol; the tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The header announces more than the cap.
    #[error("a frame announces {length} bytes, the cap is {cap}")]
    TooLong {
        /// Announced payload length.
        length: usize,
        /// Cap in force.
        cap: usize,
    },
    /// A type below 0x80 that this version does not know.
    #[error("unknown frame type {0:#04x}")]
    UnknownType(u8),
    /// A flag that the frame does not have.
    #[error("{kind} with unknown flags {flags:#04x}")]
    UnknownFlags {
        /// Frame.
        kind: Kind,
        /// All flags of the header.
        flags: u8,
    },
    /// A tunnel frame on a stream, a stream frame on the tunnel, or an id of 2³¹ or more.
    #[error("{kind} on stream {stream}")]
    WrongStream {
        /// Frame.
        kind: Kind,
        /// Stream number of the header.
        stream: u32,
    },
    /// The payload ends inside a field.
    #[error("{0} is cut short")]
    Short(Kind),
    /// The payload goes on after the last field.
    #[error("{0} has bytes after its last field")]
    Trailing(Kind),
    /// A text is not UTF-8 or has control characters.
    #[error("{0} holds a text that is not printable UTF-8")]
    Text(Kind),
    /// A number that names nothing.
    #[error("{kind} with unknown {field} {value}")]
    UnknownValue {
        /// Frame.
        kind: Kind,
        /// Field.
        field: &'static str,
        /// Number found.
        value: u8,
    },
    /// A list longer than its cap.
    #[error("{kind} lists {count} {field}, the cap is {cap}")]
    TooMany {
        /// Frame.
        kind: Kind,
        /// Field.
        field: &'static str,
        /// Number announced.
        count: usize,
        /// Cap in force.
        cap: usize,
    },
}
