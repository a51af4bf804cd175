//! What the corridor needs of a client's connection: one exchange's body and one answer, or its bytes.
//!
//! `accept` implements these for HTTP/1 and HTTP/2; the corridor knows no protocol. All methods are
//! poll-shaped so that the corridor can run both directions, the windows and the client's leaving
//! in one task without a hop. Nothing here decides a verdict.

use std::future::Future;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::allowance::Allowances;
use crate::h1::HeadError;

/// A client's connection on which nothing is parsed.
pub trait RawClient: AsyncRead + AsyncWrite + Unpin + Send + Sync {
    /// Ends once the connection is known to be broken; what the client says, and a half-close, stay to
    /// be read. Cancel safe.
    fn broken(&self) -> impl Future<Output = ()> + Send;

    /// Makes closing it a reset, so that no clean end can be read into it.
    fn reset_on_close(&self);
}

/// HTTP version spoken by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProtocol {
    /// HTTP/1.0: no chunked answers, closes by default.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2, over TLS or by prior knowledge.
    Http2,
}

/// Facts about the connection that every exchange on it shares.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Address of the TCP peer (or what a trusted PROXY header said).
    pub peer: SocketAddr,
    /// True if a PROXY header named it. Whoever that is, it is a client: a proxy is trusted by the
    /// address of its own connection, not by what is said of it.
    pub announced: bool,
    /// Address the client connected to.
    pub local: SocketAddr,
    /// True if the connection is TLS.
    pub tls: bool,
    /// Server name from the TLS handshake, lower case.
    pub sni: Option<String>,
    /// True if the TLS peer has proven a certificate that the agents' CA issued.
    pub certified: bool,
    /// What all streams of a connection may hold unread; `None` where there is one at a time.
    pub allowance: Option<Allowances>,
    /// Number of this connection in the process, for the log.
    pub connection: u64,
}

/// How a request says where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body and no length field (GET without `Content-Length`; END_STREAM on the h2 head).
    None,
    /// `Content-Length: n`; zero survives as an explicit zero.
    Exact(u64),
    /// `Transfer-Encoding: chunked`, or an h2 body without `content-length`.
    Streamed,
    /// After an upgrade or CONNECT: bytes until the end of the stream.
    Tunnel,
}

/// A request head that the codec accepted as strictly well formed; nothing is canonical yet.
#[derive(Clone, Debug)]
pub struct RawHead {
    /// Method as sent.
    pub method: Method,
    /// HTTP/1: the request target as sent. HTTP/2: `:path` (empty for plain CONNECT).
    pub target: String,
    /// HTTP/2 `:authority`, if present.
    pub authority: Option<String>,
    /// HTTP/2 `:scheme`, if present.
    pub scheme: Option<String>,
    /// HTTP/2 `:protocol` (RFC 8441), if present.
    pub connect_protocol: Option<String>,
    /// Field lines in order; names lower case; `content-length` and `transfer-encoding` still inside.
    pub headers: HeaderMap,
    /// How the body ends.
    pub body: BodyLength,
    /// Version spoken.
    pub protocol: ClientProtocol,
}

impl RawHead {
    /// A gRPC call: by its type, and over HTTP/2, which alone has what gRPC needs. The same type over
    /// HTTP/1 is a request like any other.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        let text = self.headers.get(CONTENT_TYPE);
        let text = text.and_then(|value| value.to_str().ok());
        self.protocol == ClientProtocol::Http2 && text.is_some_and(names_grpc)
    }
}

/// `application/grpc`, alone or with a suffix (`+proto`); not `application/grpc-web`, which is
/// another protocol with its trailers in the body.
#[must_use]
pub fn names_grpc(content_type: &str) -> bool {
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence
        .strip_prefix("application/grpc")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

/// A piece of a client's body.
#[derive(Debug)]
pub enum BodyPart {
    /// Body bytes, never empty.
    Data(Bytes),
    /// Trailer section; the body has ended.
    Trailers(HeaderMap),
    /// The body has ended without trailers. Repeated on every later poll.
    End,
}

/// Why a client's body could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// The connection or the stream is gone; nobody is there to be answered.
    #[error("the client left")]
    Left,
    /// The body's framing is broken (chunk syntax, length mismatch); answer 400 and close.
    #[error("the body is malformed: {0}")]
    Malformed(&'static str),
    /// Nothing came for the upload's idle limit, or it came too slowly; answer 408.
    #[error("the client sent its body too slowly")]
    TooSlow,
}

/// The client is gone, or its connection broke while the answer was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client left")]
pub struct ClientGone;

/// The reading half of one exchange.
pub trait ClientBody: Send {
    /// Next piece of the body. Cancel safe: a dropped poll loses nothing. Must not read from the
    /// socket except when polled, so that a held body stays with the client; the first poll sends
    /// `100 Continue` if the client waits for it and no final head has been sent.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, ClientFault>>;

    /// Ready once the client has left for good: a reset or an error. A clean half-close (FIN after a
    /// complete request) is not leaving unless `strict_half_close`. May be polled at any time, also
    /// while the body is not wanted; it never consumes body bytes beyond a bounded peek.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Body bytes taken from the client so far (what a hold must keep at zero or below its cap).
    fn bytes_read(&self) -> u64;
}

/// How the answer's body will be delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// No body follows (HEAD, 204, 304, or length zero); the head carries whatever length it has.
    Empty,
    /// Exactly `n` bytes follow.
    Exact(u64),
    /// Unknown length: chunked for 1.1, until close for 1.0, DATA frames for h2.
    Streamed,
    /// The exchange becomes a byte pipe in both directions (101, or 2xx to CONNECT).
    Tunnel,
}

/// Head of an answer on its way to the client. Hop-by-hop fields are already gone.
#[derive(Clone, Debug)]
pub struct AnswerHead {
    /// Status.
    pub status: StatusCode,
    /// HTTP/1 reason phrase of the app, if it was not the usual one.
    pub reason_phrase: Option<Bytes>,
    /// Fields in order, `content-length` included if the app gave one.
    pub headers: HeaderMap,
    /// How the body is delimited.
    pub body: AnswerBody,
    /// Close the client's connection after this answer (HTTP/1).
    pub close: bool,
}

/// How an answer that cannot be completed ends, visibly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// HTTP/1: closed short of the length or last chunk (RST where close is a clean end);
    /// HTTP/2: `RST_STREAM(INTERNAL_ERROR)`.
    Broken,
    /// HTTP/2 `RST_STREAM(CANCEL)`; HTTP/1 as `Broken`.
    Cancelled,
}

/// The writing half of one exchange. The order is: any number of `informational`, one `head`,
/// `data`…, then `trailers` or `end`, or `abort` at any point.
pub trait ClientAnswer: Send {
    /// Queue a 1xx head (not 101, which is a `head` with [`AnswerBody::Tunnel`]).
    fn informational(&mut self, status: StatusCode, headers: &HeaderMap);

    /// Queue the final head.
    fn head(&mut self, head: AnswerHead);

    /// Ready when `data` would take at least one byte. Drives flushing.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>>;

    /// Take bytes from the front of `chunk`, as many as fit the bounded buffer (HTTP/2: the peer's
    /// window). What stays in `chunk` must be offered again after `poll_ready`.
    fn data(&mut self, chunk: &mut Bytes);

    /// End with trailers (dropped where the client's protocol cannot carry them).
    fn trailers(&mut self, trailers: HeaderMap);

    /// End cleanly.
    fn end(&mut self);

    /// End visibly broken. Before a head was sent this closes without an answer.
    fn abort(&mut self, how: Abort);

    /// Ready when everything queued was accepted by the kernel (HTTP/1) or the h2 connection.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>>;

    /// True once a final head has been queued.
    fn head_sent(&self) -> bool;

    /// Body bytes handed to the client's connection so far.
    fn bytes_written(&self) -> u64;
}

/// What a connection hands its exchanges to.
pub trait Corridor: Clone + Send + Sync + 'static {
    /// A counted connection; given back by its drop.
    type Place: Send;

    /// A connection begins to speak `spoken`; asked again when that becomes known.
    fn connected(&self, spoken: Spoken) -> Self::Place;

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
    fn refuse<A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        protocol: ClientProtocol,
        refusal: Refusal,
        answer: &mut A,
    );
}

/// What a client's connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spoken {
    /// Not known yet: the TLS handshake or the first bytes are awaited.
    Pending,
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Why there is no exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The head is malformed or breaks a limit.
    Head(HeadError),
    /// The head began to come but was not complete in time.
    HeadTimeout,
    /// There is no place for the connection.
    Overload,
}

impl Refusal {
    /// Status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::HeadTimeout => 408,
            Self::Overload => 503,
        }
    }
}
