//! The client's side of the way: sockets, TLS, HTTP/1 and HTTP/2, up to the corridor.
//!
//! Owns connections: accepting them within their bounds, reading heads, writing answers, and every
//! deadline that concerns the client alone. It must not decide what an exchange means: each head
//! goes to a [`Corridor`] with the two halves of its exchange, and a request that is no request is
//! handed to [`Corridor::refuse`], so that every answer is made in one place.

mod door;
pub mod gate;
pub mod http;
pub mod http1;
pub mod http2;
pub mod limits;
pub mod listener;
pub mod opening;
mod prefixed;
pub mod proxy_header;
mod seldom;
pub mod tcp;
#[cfg(test)]
mod testing;
mod transport;
mod upload;

pub use limits::Limits;
pub use transport::Transport;

pub use crate::request::front::{Corridor, Refusal, Spoken};
