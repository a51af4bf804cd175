//! One outgoing connection to the gateway, ready for the handshake.
//!
//! | File | Holds |
//! |---|---|
//! | [`address`] | where the gateway is, as its user writes it (pure) |
//! | [`dial`] | resolve, connect, encrypt, and the deadline of all that |
//! | [`proxy`] | the way through an HTTP proxy |
//! | [`tls`] | whom to trust |
//! | `ws` | the WebSocket carrier |
//!
//! Must not know tokens beyond handing one to the WebSocket request, nor streams.

pub mod address;
pub mod dial;
pub mod proxy;
pub mod tls;
mod ws;
