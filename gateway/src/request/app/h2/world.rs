//! For tests: an exchange with an `h2` server as the app, through two tunnel cores on one runtime.
//!
//! The agent's part is a bare copier that knows bytes, BEGIN, the end, and giving up.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bridgehead_protocol::conn::{Settings, Side};
use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::io::{AppStream, FailedWrite, Outgoing, Tunnel};
use bridgehead_protocol::wire::{AppKind, FinalCause, Open, PeerLimits};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Response};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use super::Http2Exchange;
use crate::request::app::{AnswerLength, AppEvent, AppFault, AppSide, RequestHead};
use crate::request::front::{BodyLength, BodyPart};
use crate::tunnel::http2::Http2Connection;

/// A gateway's tunnel whose every stream ends at a pipe, as an agent's would at the app's socket.
pub(super) struct World {
    tunnel: Tunnel,
    sockets: tokio::sync::mpsc::Receiver<DuplexStream>,
}

fn side(side: Side, carrier: DuplexStream) -> Tunnel {
    let limits = PeerLimits {
        max_streams: 10,
        initial_credit: 256 * 1024,
        linger: Duration::from_secs(1),
    };
    let (tunnel, driver) = Tunnel::new(
        side,
        Settings::default(),
        limits,
        carrier,
        BytesMut::new(),
        Clock::start(),
    );
    tokio::spawn(driver);
    tunnel
}

impl World {
    pub(super) fn new() -> Self {
        let (near, far) = duplex(64 * 1024);
        let tunnel = side(Side::Gateway, near);
        let agent = side(Side::Agent, far);
        let (send, sockets) = tokio::sync::mpsc::channel(10);
        tokio::spawn(async move {
            while let Some(stream) = agent.accept().await {
                let (socket, app) = duplex(16 * 1024);
                stream.opened();
                if send.send(app).await.is_err() {
                    break;
                }
                let copier = Copier {
                    stream,
                    socket,
                    broken: false,
                };
                tokio::spawn(copier.run());
            }
        });
        Self { tunnel, sockets }
    }

    /// A connection with nothing said on it, and the app's end of it.
    pub(super) async fn connect(&mut self) -> (Box<Http2Connection>, DuplexStream) {
        let open = Open {
            app: "demo".to_owned(),
            kind: AppKind::H2c,
            remaining: Duration::from_secs(30),
            credit: 0,
            client: None,
        };
        let stream = self.tunnel.open(open).expect("the tunnel takes streams");
        let connection = Box::new(Http2Connection::over(stream, u32::MAX));
        let socket = self.sockets.recv().await.expect("the agent has the stream");
        (connection, socket)
    }
}

struct Copier {
    stream: AppStream,
    socket: DuplexStream,
    broken: bool,
}

impl Copier {
    async fn run(mut self) {
        let cause = poll_fn(|cx| {
            loop {
                let out = self.poll_out(cx);
                let back = self.poll_back(cx);
                match (out, back) {
                    (Poll::Ready(Some(cause)), _) | (_, Poll::Ready(Some(cause))) => {
                        return Poll::Ready(cause);
                    }
                    (Poll::Pending, Poll::Pending) => return Poll::Pending,
                    _ => {}
                }
            }
        })
        .await;
        self.stream.conclude(cause);
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        if self.broken {
            return Poll::Pending;
        }
        self.stream
            .poll_outgoing(cx, &mut self.socket, FailedWrite::TookNothing)
            .map(|out| match out {
                Ok(Outgoing::Wrote(_)) => None,
                Ok(Outgoing::Begin { .. }) => {
                    self.stream.begun();
                    None
                }
                Ok(Outgoing::Fin | Outgoing::Closed { .. }) => Some(FinalCause::Reset),
                Ok(Outgoing::Fenced { .. }) => Some(FinalCause::Fenced),
                // The app takes nothing more; what it has said is read to its end.
                Err(_) => {
                    self.broken = true;
                    None
                }
            })
    }

    fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        let Poll::Ready(room) = self.stream.poll_room(cx) else {
            return Poll::Pending;
        };
        let mut space = vec![0; room.min(8 * 1024)];
        let mut buf = ReadBuf::new(&mut space);
        Pin::new(&mut self.socket)
            .poll_read(cx, &mut buf)
            .map(|read| {
                read.expect("a pipe reads");
                if buf.filled().is_empty() {
                    return Some(FinalCause::AppClosed);
                }
                self.stream.pass_on(Bytes::copy_from_slice(buf.filled()));
                None
            })
    }
}

/// Answers `serve` for every request of a connection, all of them on one task.
pub(super) fn app<F, S>(socket: DuplexStream, serve: F) -> tokio::task::JoinHandle<()>
where
    F: Fn(http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    app_with(h2::server::Builder::new(), socket, serve)
}

pub(super) fn app_with<F, S>(
    builder: h2::server::Builder,
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    serve: F,
) -> tokio::task::JoinHandle<()>
where
    F: Fn(http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        let mut connection = builder
            .handshake::<_, Bytes>(socket)
            .await
            .expect("the preface is sound");
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(serve(request, respond));
        }
    })
}

pub(super) fn head(method: Method, body: BodyLength) -> RequestHead {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("demo.example:8080"));
    headers.insert("x-meta", HeaderValue::from_static("one"));
    RequestHead {
        method,
        target: "/pkg.Service/Call?x=%20".to_owned(),
        headers,
        body,
        upgrade: None,
        te_trailers: false,
        expect_continue: false,
    }
}

pub(super) fn begin(connection: Box<Http2Connection>, head: &RequestHead) -> Http2Exchange {
    Http2Exchange::begin(connection, head, 7, Duration::from_secs(30))
}

/// A whole answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) informational: Vec<u16>,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) length: Option<AnswerLength>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<HeaderMap>,
}

pub(super) async fn event(exchange: &mut Http2Exchange) -> Result<AppEvent, AppFault> {
    let event = poll_fn(|cx| exchange.poll_event(cx));
    tokio::time::timeout(Duration::from_secs(20), event)
        .await
        .expect("the app says something")
}

/// Reads an answer to its end.
pub(super) async fn answer(exchange: &mut Http2Exchange) -> Result<Answer, AppFault> {
    let mut answer = Answer::default();
    loop {
        match event(exchange).await? {
            AppEvent::Informational(status, _) => answer.informational.push(status.as_u16()),
            AppEvent::Head(head) => {
                answer.status = head.status.as_u16();
                answer.headers = head.headers;
                answer.length = Some(head.length);
            }
            AppEvent::Data(data) => answer.body.extend_from_slice(&data),
            AppEvent::Trailers(trailers) => {
                answer.trailers = Some(trailers);
                return Ok(answer);
            }
            AppEvent::End => return Ok(answer),
        }
    }
}

/// Hands a part of the body over once the app's side takes it.
pub(super) async fn send(exchange: &mut Http2Exchange, part: BodyPart) {
    poll_fn(|cx| {
        // The corridor polls both directions; what the app says waits for its reader.
        exchange.poll_ready(cx)
    })
    .await
    .expect("the app takes the body");
    exchange.send(part);
}

pub(super) fn ok() -> Response<()> {
    Response::new(())
}

pub(super) fn websocket() -> RequestHead {
    let mut asked = head(Method::GET, BodyLength::None);
    asked.upgrade = Some(HeaderValue::from_static("websocket"));
    let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
    asked.headers.insert("sec-websocket-key", key);
    asked
}
