//! The agent and its app as a script: connections are refused or opened, bytes are taken one by one,
//! answers are said, connections end in every way there is.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bridgehead_protocol::io::{AppStream, FailedWrite, Outgoing, Tunnel};
use bridgehead_protocol::wire::{
    Begin, FinalCause, GoAwayReason, Open, RefusedReason, ReportEntry,
};
use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::*;

/// The agent's end of a tunnel, and the gateway's.
pub(crate) struct Agent {
    pub(crate) live: Arc<LiveTunnel>,
    tunnel: Tunnel,
    driver: AbortHandle,
    frozen: Arc<Notify>,
}

impl Agent {
    pub(super) fn new(
        tunnel: Tunnel,
        live: Arc<LiveTunnel>,
        driver: AbortHandle,
        frozen: Arc<Notify>,
    ) -> Self {
        Self {
            live,
            tunnel,
            driver,
            frozen,
        }
    }

    /// The next connection that the gateway asks for.
    pub(crate) async fn accept(&self) -> App {
        soon(self.accept_or_end()).await.expect("a stream")
    }

    /// The next connection; `None` when the tunnel is over.
    pub(crate) async fn accept_or_end(&self) -> Option<App> {
        let stream = self.tunnel.accept().await?;
        let (open, _) = stream.asked()?;
        Some(App { stream, open })
    }

    /// The next connection, opened at once.
    pub(crate) async fn app(&self) -> App {
        let app = self.accept().await;
        app.open();
        app
    }

    /// True if the gateway asks for no connection while `time` passes.
    pub(crate) async fn is_left_alone(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.tunnel.accept())
            .await
            .is_err()
    }

    /// The carrier breaks.
    pub(crate) fn lose(self) {
        self.cut();
    }

    /// The same, seen from one of the agent's connections.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }

    /// What it counted of its streams, once the tunnel was lost.
    pub(crate) fn fates(&self) -> Vec<ReportEntry> {
        let fates = self.tunnel.take_fates().into_iter();
        fates
            .map(|fate| fate.of_tunnel(tunnel_id(&self.live.agent)))
            .collect()
    }

    /// The carrier breaks, and the tunnel waits for the next.
    pub(crate) fn suspend(&self) {
        self.live.tunnel.suspend();
        self.tunnel.suspend();
    }

    /// The next one.
    pub(crate) fn resume(&self) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        self.tunnel.resume(far, bytes::BytesMut::new());
        self.live.tunnel.resume(near, bytes::BytesMut::new());
    }

    /// The machine sleeps: the carrier stands and nobody is there.
    pub(crate) fn freeze(&self) {
        self.frozen.notify_one();
    }

    /// Takes nothing new from here on.
    pub(crate) fn drain(&self) {
        self.tunnel
            .drain(GoAwayReason::Draining, Duration::from_secs(30));
    }

    /// Streams that have not ended here.
    pub(super) fn streams(&self) -> usize {
        self.tunnel.stats().streams.total()
    }
}

/// One connection to the app, with everything that the app does done by the test.
pub(crate) struct App {
    stream: AppStream,
    pub(crate) open: Open,
}

/// A request as the app got it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    /// Body bytes without framing.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
}

impl Request {
    /// The request's id.
    pub(crate) fn id(&self) -> String {
        self.field("x-request-id").expect("an id").to_owned()
    }

    /// A field by its lower-case name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// The value of the field line of this lower-case name.
pub(super) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let line = head.lines().skip(1).find(|line| {
        let (key, _) = line.split_once(':').unwrap_or_default();
        key.eq_ignore_ascii_case(name)
    })?;
    Some(line.split_once(':')?.1.trim())
}

impl App {
    pub(crate) fn open(&self) {
        self.stream.opened();
    }

    pub(crate) fn refuse(self, reason: RefusedReason) {
        self.stream.refuse(reason, 0);
    }

    /// Never says whether the app is there, until nobody wants to know.
    pub(crate) async fn refuse_when_given_up(self) {
        soon(poll_fn(|cx| self.stream.poll_given_up(cx))).await;
        self.refuse(RefusedReason::Expired);
    }

    /// What stands at the front, with a socket that accepts `room` bytes.
    async fn outgoing(&mut self, socket: &mut Taker) -> Outgoing {
        soon(poll_fn(|cx| {
            self.stream
                .poll_outgoing(cx, socket, FailedWrite::TookNothing)
        }))
        .await
        .expect("a socket never fails")
    }

    /// The next exchange begins; the freshness check is still to come.
    pub(crate) async fn begin(&mut self) -> Begin {
        let outgoing = self.outgoing(&mut Taker::of(0)).await;
        let Outgoing::Begin { begin, .. } = outgoing else {
            panic!("{outgoing:?} in place of a begin");
        };
        begin
    }

    /// Takes exactly `count` bytes; begins the exchange if it stands there.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<u8> {
        let mut socket = Taker::of(count);
        while socket.left > 0 {
            match self.outgoing(&mut socket).await {
                Outgoing::Wrote(_) => {}
                Outgoing::Begin { .. } => self.stream.begun(),
                other => panic!(
                    "{other:?} after {:?}",
                    String::from_utf8_lossy(&socket.bytes)
                ),
            }
        }
        socket.bytes
    }

    /// Takes at most `count` bytes within `time`, one piece at a time, and tells of each; `false` once
    /// the gateway wants no more.
    pub(crate) async fn take_some(
        &mut self,
        count: usize,
        time: Duration,
        mut tell: impl FnMut(&[u8]),
    ) -> bool {
        let end = Instant::now() + time;
        let mut left = count;
        while left > 0 {
            let mut socket = Taker::of(left);
            match tokio::time::timeout_at(end, self.outgoing(&mut socket)).await {
                Err(_) => return true,
                Ok(Outgoing::Wrote(wrote)) => left -= wrote,
                Ok(Outgoing::Begin { .. }) => return true,
                Ok(_) => return false,
            }
            tell(&socket.bytes);
        }
        true
    }

    /// The next exchange, if one begins; `None` once the gateway is done with the connection.
    pub(crate) async fn next(&mut self) -> Option<Begin> {
        match self.outgoing(&mut Taker::of(0)).await {
            Outgoing::Begin { begin, .. } => Some(begin),
            _ => None,
        }
    }

    /// The freshness check was passed.
    pub(crate) fn begun(&self) {
        self.stream.begun();
    }

    /// Takes bytes up to and including `end`.
    pub(crate) async fn take_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.extend(self.take(1).await);
        }
        String::from_utf8(bytes).expect("text")
    }

    pub(crate) async fn take_head(&mut self) -> String {
        self.take_until("\r\n\r\n").await
    }

    /// Takes one whole request by its own framing.
    pub(crate) async fn request(&mut self) -> Request {
        let head = self.take_head().await;
        let mut request = Request {
            body: Vec::new(),
            trailers: String::new(),
            head,
        };
        if let Some(length) = request.field("content-length") {
            let length = length.parse().expect("a length");
            request.body = self.take(length).await;
        } else if request.field("transfer-encoding") == Some("chunked") {
            self.take_chunks(&mut request).await;
        }
        request
    }

    async fn take_chunks(&mut self, request: &mut Request) {
        loop {
            let line = self.take_until("\r\n").await;
            let size = usize::from_str_radix(line.trim_end(), 16).expect("a chunk size");
            if size == 0 {
                break;
            }
            request.body.extend(self.take(size).await);
            assert_eq!(self.take(2).await, b"\r\n");
        }
        loop {
            let line = self.take_until("\r\n").await;
            if line == "\r\n" {
                return;
            }
            request.trailers.push_str(&line);
        }
    }

    /// True if the gateway sends nothing while `time` passes.
    pub(crate) async fn is_left_alone(&mut self, time: Duration) -> bool {
        let mut socket = Taker::of(usize::MAX);
        tokio::time::timeout(time, self.outgoing(&mut socket))
            .await
            .is_err()
    }

    /// The app writes.
    pub(crate) async fn say(&self, bytes: impl AsRef<[u8]>) {
        let mut bytes = Bytes::copy_from_slice(bytes.as_ref());
        while !bytes.is_empty() {
            let room = soon(poll_fn(|cx| self.stream.poll_room(cx))).await;
            self.stream.pass_on(bytes.split_to(room.min(bytes.len())));
        }
    }

    /// A whole small answer.
    pub(crate) async fn answer(&self, body: &str) {
        let length = body.len();
        self.say(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    /// Waits for what the gateway says when it wants no more: a fence or a close.
    pub(crate) async fn given_up(&mut self) -> Outgoing {
        soon(poll_fn(|cx| self.stream.poll_given_up(cx))).await;
        self.outgoing(&mut Taker::of(0)).await
    }

    /// The same for an exchange whose late answer nobody waits for: the socket is closed abruptly.
    pub(crate) async fn cut(mut self) {
        let said = self.given_up().await;
        let cut = matches!(
            said,
            Outgoing::Fenced { linger: false } | Outgoing::Closed { idle: false }
        );
        assert!(cut, "{said:?}");
        self.end(FinalCause::Fenced);
    }

    /// The same for a reset alone.
    pub(crate) async fn closed(&mut self) {
        soon(poll_fn(|cx| self.stream.poll_closed(cx))).await;
    }

    /// The gateway ended its direction in order.
    pub(crate) async fn fin(&mut self) {
        assert_eq!(self.outgoing(&mut Taker::of(0)).await, Outgoing::Fin);
    }

    /// The app ends its direction in order.
    pub(crate) fn finish(&self) {
        self.stream.finish();
    }

    /// The app closed in order and everything it said was passed on.
    pub(crate) fn close(self) {
        self.stream.conclude(FinalCause::AppClosed);
    }

    /// The app's socket broke.
    pub(crate) fn reset(self) {
        self.stream.conclude(FinalCause::AppReset);
    }

    /// The connection ends for `cause`.
    pub(crate) fn end(self, cause: FinalCause) {
        self.stream.conclude(cause);
    }
}

/// A socket that accepts so many bytes and then never one more.
struct Taker {
    left: usize,
    bytes: Vec<u8>,
}

impl Taker {
    const fn of(left: usize) -> Self {
        Self {
            left,
            bytes: Vec::new(),
        }
    }
}

impl AsyncWrite for Taker {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(self.left);
        if count == 0 {
            return Poll::Pending;
        }
        self.left -= count;
        self.bytes.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
