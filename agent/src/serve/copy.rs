//! Bytes between a stream and the app's socket, both directions in one task.
//!
//! Order of duties in each turn: what the gateway says (bytes, begin, fence, reset), then what the
//! app says. Rules of evidence kept here: before an exchange's first byte the app's socket is read
//! until it would block, also if that byte comes long after the begin, and leftovers, an end, or a late
//! begin mean that nothing is written;
//! after the app's end an HTTP stream writes nothing more. Of a tunnel that is lost for good nothing is
//! written either; only the answer of an app that is at work is still waited for.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bridgehead_protocol::io::{AppStream, FailedWrite, Outgoing};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppKind, Begin, FinalCause, StreamId};
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
    /// The gateway ended its direction; the app is being told.
    Ending,
    /// The app was told.
    Finished,
    /// The app takes nothing more; its answer may still come.
    Broken,
    /// Fenced after the whole request: read on for the late answer until the timer ends.
    Lingering(Pin<Box<Sleep>>),
}

pub(super) struct Copy<S: Connection = AppSocket> {
    stream: AppStream,
    socket: S,
    kind: AppKind,
    writing: Writing,
    /// An exchange began on a connection of strict turns and none of its bytes was written yet:
    /// what the app says now cannot be its answer.
    unwritten: bool,
    /// Whether anything waits to be read was looked at in this turn; by the next it may.
    looked: bool,
    /// When the time of an exchange is over of which no byte was written yet.
    due: Option<Moment>,
    app_ended: bool,
    /// A write failed by a reset. The kernel tells that once; the reader then sees a clean end.
    app_reset: bool,
    unflushed: bool,
    concluded: bool,
    /// An exchange of strict turns began and the app has said nothing since.
    unanswered: bool,
    /// The stream's number, if its tunnel was lost and the app's answer is waited for all the same.
    orphan: Option<StreamId>,
    buffer: BytesMut,
}

/// What `Copy` needs of a socket beyond bytes.
pub trait Connection {
    /// The coming drop shall be an abrupt end.
    fn abrupt(&self);

    /// Asks the kernel, past any cached readiness, whether bytes, an end or an error wait to be read.
    fn has_news(&self) -> bool;

    /// True if something waits that has to be read before it is known to be news (TLS records).
    fn has_unread(&self) -> bool;

    /// What a failed write means for the count.
    fn failed_write(&self) -> FailedWrite;
}

impl Connection for AppSocket {
    fn abrupt(&self) {
        self.abort_on_drop();
    }

    fn has_news(&self) -> bool {
        AppSocket::has_news(self)
    }

    fn has_unread(&self) -> bool {
        AppSocket::has_unread(self)
    }

    fn failed_write(&self) -> FailedWrite {
        match self {
            Self::Tls(_) => FailedWrite::MayHaveTaken,
            Self::Tcp(_) => FailedWrite::TookNothing,
            #[cfg(unix)]
            Self::Unix(_) => FailedWrite::TookNothing,
            Self::Given(_) => FailedWrite::TookNothing,
        }
    }
}

/// What the look before an exchange's first byte showed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Fresh,
    Stale,
}

impl<S: AsyncRead + AsyncWrite + Connection + Unpin> Copy<S> {
    pub(super) fn new(stream: AppStream, socket: S, kind: AppKind) -> Self {
        Self {
            stream,
            socket,
            kind,
            writing: Writing::Open,
            unwritten: false,
            looked: false,
            due: None,
            app_ended: false,
            app_reset: false,
            unflushed: false,
            concluded: false,
            unanswered: false,
            orphan: None,
            buffer: BytesMut::new(),
        }
    }

    /// Until the stream is over. What is left of it if the tunnel was lost while the app was at work.
    pub(super) async fn run(mut self) -> Option<Orphan<S>> {
        let cause = poll_fn(|cx| self.poll(cx)).await;
        self.concluded = true;
        self.stream.conclude(cause);
        let stream = self.orphan?;
        Some(Orphan { stream, copy: self })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FinalCause> {
        self.looked = false;
        for _ in 0..TURNS {
            let out = self.poll_out(cx);
            if let Poll::Ready(Some(cause)) = out {
                return Poll::Ready(cause);
            }
            if out.is_pending() {
                self.flush(cx);
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

    // ---- gateway to app --------------------------------------------------------------------

    /// `Ready(None)` is progress, `Ready(Some)` the end of the stream.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        let open = matches!(self.writing, Writing::Open);
        if open && self.due.is_some_and(|due| self.is_over(due)) {
            // Its BEGIN came in time, and its first byte does not.
            return Poll::Ready(Some(FinalCause::Expired));
        }
        if open && ready!(self.poll_still_fresh(cx)) == Freshness::Stale {
            return Poll::Ready(Some(FinalCause::Stale));
        }
        match &mut self.writing {
            Writing::Open => {
                let failed = self.socket.failed_write();
                match ready!(self.stream.poll_outgoing(cx, &mut self.socket, failed)) {
                    Ok(outgoing) => self.obey(cx, outgoing),
                    Err(error) => Poll::Ready(self.write_failed(&error)),
                }
            }
            Writing::Ending => {
                if Pin::new(&mut self.socket).poll_shutdown(cx).is_ready() {
                    self.writing = Writing::Finished;
                    return Poll::Ready(self.app_ended.then_some(FinalCause::AppClosed));
                }
                self.poll_given_up(cx)
            }
            Writing::Finished | Writing::Broken => self.poll_given_up(cx),
            Writing::Lingering(timer) => {
                if timer.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Some(FinalCause::LingerOver));
                }
                self.stream.poll_closed(cx).map(|()| self.closed())
            }
        }
    }

    fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        let outgoing = ready!(self.stream.poll_given_up(cx));
        self.obey(cx, outgoing)
    }

    fn obey(&mut self, cx: &mut Context<'_>, outgoing: Outgoing) -> Poll<Option<FinalCause>> {
        Poll::Ready(match outgoing {
            Outgoing::Wrote(0) => self.write_failed(&io::ErrorKind::WriteZero.into()),
            Outgoing::Wrote(_) => {
                self.unwritten = false;
                self.due = None;
                self.unflushed = true;
                None
            }
            Outgoing::Begin { begin, deadline } => return self.begin(cx, begin, deadline),
            Outgoing::Fin => {
                self.writing = Writing::Ending;
                None
            }
            Outgoing::Fenced { linger: true } => {
                self.writing =
                    Writing::Lingering(Box::pin(tokio::time::sleep(self.stream.linger())));
                None
            }
            Outgoing::Fenced { linger: false } => self.give_up(FinalCause::Fenced),
            Outgoing::Closed { idle: true } => Some(FinalCause::Reset),
            Outgoing::Closed { idle: false } => self.closed(),
        })
    }

    fn write_failed(&mut self, error: &io::Error) -> Option<FinalCause> {
        if self.app_ended {
            return Some(FinalCause::AppReset);
        }
        if self.unwritten && self.socket.failed_write() == FailedWrite::TookNothing {
            return Some(self.before_its_first_byte(FinalCause::AppReset));
        }
        self.app_reset = error.kind() == io::ErrorKind::ConnectionReset;
        self.writing = Writing::Broken;
        None
    }

    /// The app's connection ended before the exchange's first byte: a used one was stale.
    fn before_its_first_byte(&self, fresh: FinalCause) -> FinalCause {
        if self.stream.app_read() > 0 {
            FinalCause::Stale
        } else {
            fresh
        }
    }

    /// Reset, or the tunnel is lost. In the latter case an app that took all that came and has not
    /// answered is left to its work: the tunnel's gateway may still be told that it answered.
    fn closed(&mut self) -> Option<FinalCause> {
        let at_work = self.unanswered && !self.unwritten && !self.app_ended;
        self.orphan = self.stream.orphaned().filter(|_| at_work);
        match self.orphan {
            Some(_) => Some(FinalCause::Reset),
            None => self.give_up(FinalCause::Reset),
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
    ) -> Poll<Option<FinalCause>> {
        if self.is_over(deadline) {
            return Poll::Ready(Some(FinalCause::Expired));
        }
        let look = !Bug::BeginWithoutFreshness.bites();
        if look && ready!(self.poll_fresh(cx, begin.expect_read)) == Freshness::Stale {
            return Poll::Ready(Some(FinalCause::Stale));
        }
        self.stream.begun();
        self.unwritten = begin.expect_read.is_some() && look;
        self.looked = true;
        self.due = Some(deadline);
        self.unanswered = begin.expect_read.is_some();
        Poll::Ready(None)
    }

    /// True once an exchange with this deadline must not reach the app any more.
    fn is_over(&self, deadline: Moment) -> bool {
        let heeds = !Bug::ExpiredBeginWritten.bites() && !Bug::FrozenAgentWrites.bites();
        heeds && self.stream.now() >= deadline
    }

    /// Reads the app's socket until it would block. Pending (and woken again at once) while the
    /// kernel has bytes that the runtime does not know of yet.
    fn poll_fresh(&mut self, cx: &mut Context<'_>, expect_read: Option<u64>) -> Poll<Freshness> {
        if self.app_ended {
            return Poll::Ready(Freshness::Stale);
        }
        match expect_read {
            Some(expected) => {
                let mut probe = [0; 1];
                let mut probe = ReadBuf::new(&mut probe);
                let news = self.socket.has_news()
                    || Pin::new(&mut self.socket)
                        .poll_read(cx, &mut probe)
                        .is_ready();
                let differs = self.stream.app_read() != expected && !Bug::ExpectReadIgnored.bites();
                if news || differs {
                    return Poll::Ready(Freshness::Stale);
                }
            }
            None => loop {
                match self.poll_back(cx) {
                    Poll::Pending => break,
                    Poll::Ready(None) => {}
                    Poll::Ready(Some(_)) => return Poll::Ready(Freshness::Stale),
                }
            },
        }
        let unseen = self.socket.has_unread() || (expect_read.is_none() && self.socket.has_news());
        if unseen && self.stream.poll_room(cx).is_ready() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Freshness::Fresh)
    }

    /// As [`Self::poll_fresh`], for an exchange that began in an earlier turn and may be written now: its
    /// first byte may come so much later that the app has spoken meanwhile.
    fn poll_still_fresh(&mut self, cx: &mut Context<'_>) -> Poll<Freshness> {
        if !self.unwritten || self.looked {
            return Poll::Ready(Freshness::Fresh);
        }
        let fresh = ready!(self.poll_fresh(cx, Some(self.stream.app_read())));
        self.looked = true;
        Poll::Ready(fresh)
    }

    /// Pushes out what the socket buffers above the kernel. A failure shows when reading.
    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.unflushed && Pin::new(&mut self.socket).poll_flush(cx).is_ready() {
            self.unflushed = false;
        }
    }

    // ---- app to gateway --------------------------------------------------------------------

    /// `Ready(None)` is progress, `Ready(Some)` the end of the stream.
    fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<Option<FinalCause>> {
        if self.app_ended {
            return Poll::Pending;
        }
        let room = ready!(self.stream.poll_room(cx)).min(READ_CHUNK);
        match ready!(self.poll_app(cx, room)) {
            Ok(0) => Poll::Ready(self.app_end()),
            Ok(_) if self.unwritten => Poll::Ready(Some(FinalCause::Stale)),
            Ok(count) => {
                let bytes = if count < COPY_BELOW {
                    let bytes = Bytes::copy_from_slice(&self.buffer);
                    self.buffer.clear();
                    bytes
                } else {
                    self.buffer.split().freeze()
                };
                self.unanswered = false;
                self.stream.pass_on(bytes);
                Poll::Ready(None)
            }
            Err(_) => Poll::Ready(Some(FinalCause::AppReset)),
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
        if self.app_reset {
            return Some(FinalCause::AppReset);
        }
        if self.unwritten {
            return Some(self.before_its_first_byte(FinalCause::AppClosed));
        }
        if self.kind != AppKind::Tcp {
            return Some(FinalCause::AppClosed);
        }
        self.stream.finish();
        match self.writing {
            Writing::Open | Writing::Ending => None,
            Writing::Finished | Writing::Broken | Writing::Lingering(_) => {
                Some(FinalCause::AppClosed)
            }
        }
    }
}

impl<S: Connection> Drop for Copy<S> {
    /// Cut off by its owner (the agent stops): the app must not take that for an orderly end.
    fn drop(&mut self) {
        if !self.concluded || self.orphan.is_some() {
            self.socket.abrupt();
        }
    }
}

/// What is left of a stream whose tunnel was lost while its app was at work: the app's connection, to
/// be read and never written. Dropping it closes that abruptly.
pub struct Orphan<S: Connection = AppSocket> {
    stream: StreamId,
    copy: Copy<S>,
}

impl<S: AsyncRead + AsyncWrite + Connection + Unpin> Orphan<S> {
    /// Number of the stream in its tunnel.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Reads what the app says next and throws it away; answers how much it was, nothing at its end.
    /// Cancel safe.
    pub async fn read(&mut self) -> usize {
        let copy = &mut self.copy;
        let read = poll_fn(|cx| copy.poll_app(cx, READ_CHUNK)).await;
        copy.buffer.clear();
        read.unwrap_or(0)
    }
}

impl<S: Connection> std::fmt::Debug for Orphan<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orphan")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
