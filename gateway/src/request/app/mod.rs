//! The app's side of one exchange, whatever the app speaks.
//!
//! `h1` speaks HTTP/1.1 and `h2` HTTP/2 through a tunnel stream; the corridor sees only
//! [`AppSide`]. Here offsets are counted; what they mean is said in `evidence`.

pub mod h1;
pub mod h2;

use std::task::{Context, Poll};
use std::time::Duration;

use bridgehead_protocol::conn::Ended;
use bridgehead_protocol::io::StreamControl;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use self::h1::Http1Exchange;
use self::h2::Http2Exchange;
use super::front::{BodyLength, BodyPart};
use crate::tunnel::connection::AppConnection;
use crate::tunnel::http2::Http2Connection;

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
    /// The app gave the exchange up although its connection stands (RST_STREAM, GOAWAY); its code.
    GaveUp(&'static str),
    /// The app cannot be asked for the upgrade; nothing was sent.
    NoUpgrade(&'static str),
    /// The app's protocol cannot say what the client asked; nothing was sent.
    Unspeakable(&'static str),
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
    /// Bytes of head and body handed over so far.
    pub so_far: u64,
    /// Bytes that came from the app since the exchange began and are its answer.
    pub answer: u64,
}

impl Offsets {
    /// Nothing of the exchange was queued: whatever is on the stream is not the request.
    pub const UNBEGUN: Self = Self {
        start: u64::MAX,
        head: 0,
        whole: None,
        so_far: 0,
        answer: 0,
    };

    /// Bytes of the request among the first `consumed` of the stream. What a protocol says beside a
    /// request (an echoed ping) is none of it.
    #[must_use]
    pub fn taken(&self, consumed: u64) -> u64 {
        consumed.saturating_sub(self.start).min(self.so_far)
    }
}

/// One exchange on one stream.
pub trait AppSide: Send {
    /// Evidence and giving up.
    fn control(&self) -> &StreamControl;

    /// Where this exchange stands on the stream.
    fn offsets(&self) -> Offsets;

    /// Ready once the head and every part so far were taken by the tunnel and it has credit for more.
    /// An error says that the app takes nothing more, not that it has nothing more to say.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>>;

    /// Hands over the next part of the body. Only after `poll_ready`.
    fn send(&mut self, part: BodyPart);

    /// The next thing the app says. Cancel safe.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>>;

    /// Bytes of the answer that are here unread, or that the app may send unasked.
    fn exposure(&self) -> u64 {
        self.control().exposure()
    }

    /// The app may send at most so many bytes unasked from now on; what it was granted stays granted.
    fn cap(&mut self, cap: u32) {
        self.control().cap(cap);
    }

    /// Called while what the app says is not wanted, so that it is not taken for dead: HTTP/2 has
    /// PINGs to answer.
    fn attend(&mut self, _: &mut Context<'_>) {}
}

/// One exchange, by what the app speaks.
pub enum AppExchange {
    /// HTTP/1.1.
    Http1(Box<Http1Exchange>),
    /// HTTP/2.
    Http2(Box<Http2Exchange>),
}

impl AppExchange {
    /// Begins an exchange. `remaining`: time left for its first byte to reach the app.
    #[must_use]
    pub fn begin(
        connection: AppConnection,
        head: RequestHead,
        request: u128,
        remaining: Duration,
    ) -> Self {
        let connection = match connection {
            AppConnection::Http1(stream) => {
                let exchange = Http1Exchange::begin(stream, head, request, remaining);
                return Self::Http1(Box::new(exchange));
            }
            AppConnection::NewHttp2(stream, cap) => Box::new(Http2Connection::over(stream, cap)),
            AppConnection::Http2(connection) => connection,
        };
        let exchange = Http2Exchange::begin(connection, &head, request, remaining);
        Self::Http2(Box::new(exchange))
    }

    /// Counts what came since the last poll, without handing it on.
    pub fn look(&mut self) {
        match self {
            // The tunnel itself counts; every byte of the stream is one of the answer.
            Self::Http1(_) => {}
            Self::Http2(exchange) => exchange.look(),
        }
    }

    /// Bytes that the app had said on the stream before this exchange, where every later one is of
    /// its answer. HTTP/2 says other things as well.
    #[must_use]
    pub fn read_before(&self) -> Option<u64> {
        match self {
            Self::Http1(exchange) => Some(exchange.read_before()),
            Self::Http2(_) => None,
        }
    }

    /// The connection, if it may serve another exchange.
    #[must_use]
    pub fn into_kept(self) -> Option<AppConnection> {
        match self {
            Self::Http1(exchange) => exchange.into_kept().map(AppConnection::Http1),
            Self::Http2(exchange) => exchange.into_kept().map(AppConnection::Http2),
        }
    }
}

impl AppSide for AppExchange {
    fn control(&self) -> &StreamControl {
        match self {
            Self::Http1(exchange) => exchange.control(),
            Self::Http2(exchange) => exchange.control(),
        }
    }

    fn offsets(&self) -> Offsets {
        match self {
            Self::Http1(exchange) => exchange.offsets(),
            Self::Http2(exchange) => exchange.offsets(),
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>> {
        match self {
            Self::Http1(exchange) => exchange.poll_ready(cx),
            Self::Http2(exchange) => exchange.poll_ready(cx),
        }
    }

    fn send(&mut self, part: BodyPart) {
        match self {
            Self::Http1(exchange) => exchange.send(part),
            Self::Http2(exchange) => exchange.send(part),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        match self {
            Self::Http1(exchange) => exchange.poll_event(cx),
            Self::Http2(exchange) => exchange.poll_event(cx),
        }
    }

    fn exposure(&self) -> u64 {
        match self {
            Self::Http1(exchange) => exchange.exposure(),
            Self::Http2(exchange) => exchange.exposure(),
        }
    }

    fn cap(&mut self, cap: u32) {
        match self {
            Self::Http1(exchange) => exchange.cap(cap),
            Self::Http2(exchange) => exchange.cap(cap),
        }
    }

    fn attend(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Http1(exchange) => exchange.attend(cx),
            Self::Http2(exchange) => exchange.attend(cx),
        }
    }
}
