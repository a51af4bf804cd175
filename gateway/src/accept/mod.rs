//! The client's side of the way: sockets, TLS, HTTP/1 and HTTP/2, up to the corridor.
//!
//! Owns connections: accepting them within their bounds, reading heads, writing answers, and every
//! deadline that concerns the client alone. It must not decide what an exchange means: each head
//! goes to a [`Corridor`] with the two halves of its exchange, and a request that is no request is
//! handed to [`Corridor::refuse`], so that every answer is made in one place.

pub mod gate;
pub mod http;
pub mod http1;
pub mod http2;
pub mod limits;
pub mod listener;
pub mod opening;
mod prefixed;
pub mod proxy_header;
pub mod tcp;
#[cfg(test)]
mod testing;
mod transport;
mod upload;

use std::future::Future;

pub use limits::Limits;
pub use transport::Transport;

use crate::h1::HeadError;
use crate::request::front::{ClientAnswer, ClientBody, ClientInfo, RawHead};

/// What a connection hands its exchanges to.
pub trait Corridor: Clone + Send + Sync + 'static {
    /// Serve one exchange to its end. Returning without having ended the answer breaks it visibly
    /// (before a head: the connection closes without an answer); what is still queued is flushed by
    /// the connection.
    fn exchange<B: ClientBody, A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        head: RawHead,
        body: &mut B,
        answer: &mut A,
    ) -> impl Future<Output = ()> + Send;

    /// Queue the answer to something that is no acceptable request: a head with an `Exact` or
    /// `Empty` body, its data, and the end. The connection closes afterwards.
    fn refuse<A: ClientAnswer>(&self, info: &ClientInfo, refusal: Refusal, answer: &mut A);
}

/// Why there is no exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The head is malformed or breaks a limit.
    Head(HeadError),
    /// The head began to come but was not complete in time.
    HeadTimeout,
}

impl Refusal {
    /// Status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::HeadTimeout => 408,
        }
    }
}
