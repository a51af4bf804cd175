//! Bytes between a stream and the app's socket, both directions in one task.
//!
//! Order of duties in each turn: what the gateway says (bytes, begin, fence, reset), then what the
//! app says. Rules of evidence kept here: before an exchange's first byte the app's socket is read
//! until it would block, and leftovers, an end, or a late begin mean that nothing is written;
//! after the app's end an HTTP stream writes nothing more.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bridgehead_protocol::io::{AppStream, Outgoing};
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppKind, Begin, FinalCause};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::app::connect::AppSocket;

/// Bytes read from the app at once; one turn of the tunnel's scheduler.
const READ_CHUNK: usize = 16 * 1024;
/// Reads below this are copied out, so that a short answer never keeps a whole buffer.
const COPY_BELOW: usize = 4 * 1024;
/// Turns before the task lets others run.
const TURNS: usize = 16;

/// How far this side has got with writing to the app.
enum Writing {
    Open,
    /// The gateway ended its direction and the app was told.
    Finished,
    /// The app takes nothing more; its answer may still come.
    Broken,
    /// Fenced after the whole request: read on for the late answer until the timer ends.
    Lingering(Pin<Box<Sleep>>),
}

pub(super) struct Copy<S = AppSocket> {
    stream: AppStream,
    socket: S,
    kind: AppKind,
    writing: Writing,
    app_ended: bool,
    unflushed: bool,
    buffer: BytesMut,
}

/// What `Copy` needs of a socket beyond bytes.
pub(super) trait Connection {
    /// The coming drop shall be an abrupt end.
    fn abrupt(&self);

    /// Asks the kernel, past any cached readiness, whether bytes, an end or an error wait to be read.
    fn has_news(&self) -> bool;
}

impl Connection for AppSocket {
    fn abrupt(&self) {
        self.abort_on_drop();
    }

    fn has_news(&self) -> bool {
        AppSocket::has_news(self)
    }
}

impl<S: AsyncRead + AsyncWrite + Connection + Unpin> Copy<S> {
    pub(super) fn new(stream: AppStream, socket: S, kind: AppKind) -> Self {
        Self {
            stream,
            socket,
            kind,
            writing: Writing::Open,
            app_ended: false,
            unflushed: false,
            buffer: BytesMut::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let cause = poll_fn(|cx| self.poll(cx)).await;
        self.stream.conclude(cause);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FinalCause> {
        for _ in 0..TURNS {
            let out = self.poll_out(cx);
            if let Poll::Ready(Some(cause)) = out {
                return Poll::Ready(cause);
            }
            let back = self.poll_back(cx);
            if let Poll::Ready(Some(cause)) = back {
                return Poll::Ready(cause);
            }
            if out.is_pending() && back.is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Gateway to app. `Ready(None)` is progress, `Ready(Some)` the end of the stream.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        match &mut self.writing {
            Writing::Open => {}
            Writing::Finished | Writing::Broken => {
                return self
                    .stream
                    .poll_given_up(cx)
                    .map(|()| self.give_up(FinalCause::Reset));
            }
            Writing::Lingering(timer) => {
                if timer.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Some(FinalCause::LingerOver));
                }
                return self
                    .stream
                    .poll_closed(cx)
                    .map(|()| self.give_up(FinalCause::Reset));
            }
        }
        match self.stream.poll_outgoing(cx, &mut self.socket) {
            Poll::Pending => self.poll_flush(cx),
            Poll::Ready(Err(_)) => {
                self.writing = Writing::Broken;
                Poll::Ready(None)
            }
            Poll::Ready(Ok(outgoing)) => Poll::Ready(self.obey(cx, outgoing)),
        }
    }

    fn obey(&mut self, cx: &mut Context<'_>, outgoing: Outgoing) -> Option<FinalCause> {
        match outgoing {
            Outgoing::Wrote(_) => {
                self.unflushed = true;
                None
            }
            Outgoing::Begin { begin, deadline } => self.begin(cx, begin, deadline),
            Outgoing::Fin => {
                // A shutdown that cannot finish at once goes on in the kernel or fails; both show when reading.
                let _ = Pin::new(&mut self.socket).poll_shutdown(cx);
                self.writing = Writing::Finished;
                (self.app_ended).then_some(FinalCause::AppClosed)
            }
            Outgoing::Fenced { linger: true } => {
                self.writing =
                    Writing::Lingering(Box::pin(tokio::time::sleep(self.stream.linger())));
                None
            }
            Outgoing::Fenced { linger: false } => self.give_up(FinalCause::Fenced),
            Outgoing::Closed { idle: true } => Some(FinalCause::Reset),
            Outgoing::Closed { idle: false } => self.give_up(FinalCause::Reset),
        }
    }

    /// Nobody wants the answer: the app learns it by an abrupt end, never by one that looks whole.
    fn give_up(&self, cause: FinalCause) -> Option<FinalCause> {
        self.socket.abrupt();
        Some(cause)
    }

    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        begin: Begin,
        deadline: Moment,
    ) -> Option<FinalCause> {
        if self.stream.now() >= deadline {
            return Some(FinalCause::Expired);
        }
        if self.app_ended || !self.is_fresh(cx, begin.expect_read) {
            return Some(FinalCause::Stale);
        }
        self.stream.begun();
        None
    }

    /// Reads the app's socket until it would block; true if nothing unexpected was there.
    fn is_fresh(&mut self, cx: &mut Context<'_>, expect_read: Option<u64>) -> bool {
        match expect_read {
            Some(expected) => {
                let mut probe = [0; 1];
                let mut probe = ReadBuf::new(&mut probe);
                let silent = !self.socket.has_news()
                    && Pin::new(&mut self.socket)
                        .poll_read(cx, &mut probe)
                        .is_pending();
                silent && self.stream.app_read() == expected
            }
            None => loop {
                match self.poll_back(cx) {
                    Poll::Pending => return true,
                    Poll::Ready(None) => {}
                    Poll::Ready(Some(_)) => return false,
                }
            },
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        if self.unflushed && Pin::new(&mut self.socket).poll_flush(cx).is_ready() {
            self.unflushed = false;
        }
        Poll::Pending
    }

    /// App to gateway. `Ready(None)` is progress, `Ready(Some)` the end of the stream.
    fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        if self.app_ended {
            return Poll::Pending;
        }
        let room = match self.stream.poll_room(cx) {
            Poll::Ready(room) => room.min(READ_CHUNK),
            Poll::Pending => return Poll::Pending,
        };
        match self.poll_app(cx, room) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0)) => Poll::Ready(self.app_end()),
            Poll::Ready(Ok(count)) => {
                let bytes = if count < COPY_BELOW {
                    let bytes = Bytes::copy_from_slice(&self.buffer);
                    self.buffer.clear();
                    bytes
                } else {
                    self.buffer.split().freeze()
                };
                self.stream.pass_on(bytes);
                Poll::Ready(None)
            }
            Poll::Ready(Err(_)) => Poll::Ready(Some(FinalCause::AppReset)),
        }
    }

    /// Reads at most `room` bytes into the buffer, which an idle connection does not keep.
    fn poll_app(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        debug_assert!(self.buffer.is_empty());
        self.buffer.reserve(READ_CHUNK);
        let mut limited = (&mut self.buffer).limit(room);
        let read = pin!(self.socket.read_buf(&mut limited)).poll(cx);
        if read.is_pending() {
            self.buffer = BytesMut::new();
        }
        read
    }

    fn app_end(&mut self) -> Option<FinalCause> {
        self.app_ended = true;
        let open = matches!(self.writing, Writing::Open);
        match self.kind {
            AppKind::Tcp => {
                // An orderly end is passed on as one, also when the client ended first.
                self.stream.finish();
                (!open).then_some(FinalCause::AppClosed)
            }
            AppKind::Http1 | AppKind::H2c => Some(FinalCause::AppClosed),
        }
    }
}
