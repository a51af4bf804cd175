//! The HTTP/1 codec, used on both ends: requests in and answers out at the edge, requests out and
//! answers in on the app's side.
//!
//! Pure: bytes in, values out, no I/O and no clock. It owns message syntax and framing (RFC 9112)
//! and nothing else: hosts and paths are made canonical by `request::normalize`, and what a fault
//! means for the client is said by whoever called. One parser decides where a message ends, and the
//! same decision is used for routing and for forwarding, so two readings of the same bytes cannot
//! exist inside the gateway. Refuse, never repair.

pub mod decode;
pub mod encode;
pub mod fields;
pub mod head;
mod scan;

pub use decode::{BodyDecoder, BodyError, ChunkRules, Decoded};
pub use head::{
    HeadError, HeadLimits, ResponseFraming, ResponseHead, parse_request, parse_response,
};
pub use scan::HeadScan;
