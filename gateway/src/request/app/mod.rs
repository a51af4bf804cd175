//! The app's side of one exchange, whatever the app speaks.
//!
//! `h1` speaks HTTP/1.1 and `h2` HTTP/2 through a tunnel stream; the corridor sees only
//! [`AppSide`]. Here offsets are counted; what they mean is said in `evidence`.

pub mod h1;

use std::task::{Context, Poll};

use bridgehead_protocol::conn::Ended;
use bridgehead_protocol::io::{StreamControl, StreamEnded};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::front::{BodyLength, BodyPart};

/// A request head as the app shall see it: end-to-end fields only, `host` set.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Method.
    pub method: Method,
    /// Path and query, byte for byte what the client asked.
    pub target: String,
    /// Fields without framing and hop-by-hop ones.
    pub headers: HeaderMap,
    /// How the body is delimited.
    pub body: BodyLength,
    /// `Upgrade` value to ask for.
    pub upgrade: Option<HeaderValue>,
    /// The client takes trailers.
    pub te_trailers: bool,
    /// Ask the app before the body is sent.
    pub expect_continue: bool,
}

/// How the app delimits its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerLength {
    /// No body follows.
    None,
    /// So many bytes.
    Exact(u64),
    /// Until its end.
    Streamed,
    /// The connection has become a byte pipe (101, or 2xx to extended CONNECT).
    Pipe,
}

/// The app's final head.
#[derive(Clone, Debug)]
pub struct AppHead {
    /// Status.
    pub status: StatusCode,
    /// Reason phrase as sent.
    pub reason: Bytes,
    /// Fields as sent.
    pub headers: HeaderMap,
    /// How the body is delimited.
    pub length: AnswerLength,
    /// What a 101 switches to.
    pub upgrade: Option<HeaderValue>,
}

/// What the app said.
#[derive(Debug)]
pub enum AppEvent {
    /// A 1xx head other than 101.
    Informational(StatusCode, HeaderMap),
    /// The final head.
    Head(AppHead),
    /// Body bytes, never empty.
    Data(Bytes),
    /// Trailers; the answer has ended.
    Trailers(HeaderMap),
    /// The answer has ended.
    End,
}

/// Why there will be no more of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppFault {
    /// The stream ended first.
    Ended(Ended),
    /// The app broke HTTP; what it broke.
    BadHttp(&'static str),
}

/// Offsets of the exchange on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// First byte of the exchange.
    pub start: u64,
    /// Bytes of the head.
    pub head: u64,
    /// Bytes of head and body, once all of it was handed over.
    pub whole: Option<u64>,
    /// Bytes that came from the app since the exchange began and are its answer.
    pub answer: u64,
}

/// One exchange on one stream.
pub trait AppSide: Send {
    /// Evidence and giving up.
    fn control(&self) -> &StreamControl;

    /// Where this exchange stands on the stream.
    fn offsets(&self) -> Offsets;

    /// Ready once the head and every part so far were taken by the tunnel and it has credit for more.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamEnded>>;

    /// Hands over the next part of the body. Only after `poll_ready`.
    fn send(&mut self, part: BodyPart);

    /// The next thing the app says. Cancel safe.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>>;
}
