//! The end of a connection that has nothing more to do, whether its client agrees or not.
//!
//! ```text
//!   Open ── drain, idle ──► Asked ── patience is over, nothing runs, nothing unsent ──► Told ──► over
//! ```
//! `h2` says GOAWAY and waits for the answer to a ping of its own before it closes. A client that never
//! answers that ping would keep its connection for good, and every drain for its whole grace. Invariant:
//! what the client has not taken yet is not thrown away; whether it takes anything is for the keep-alive
//! pings to find out.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// How long a client may take to agree, after the last of its streams: a few slow ways there and back.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long our last word may take to be written.
const LAST_WORD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Asked,
    Told,
}

/// Where a connection stands on its way to the end.
pub(super) struct Ending {
    state: State,
    until: Instant,
    unsent: Unsent,
}

/// What to do now that the patience is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The client still takes what is its own.
    Wait,
    /// Tell it that this is the end.
    Tell,
    /// Close.
    Close,
}

impl Ending {
    /// Of a connection that is written through the [`Writing`] with `unsent`.
    pub(super) fn new(unsent: Unsent) -> Self {
        Self {
            state: State::Open,
            until: Instant::now(),
            unsent,
        }
    }

    /// True until the client was asked to end.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The client was asked to end.
    pub(super) fn asked(&mut self) {
        self.state = State::Asked;
        self.until = Instant::now() + PATIENCE;
    }

    /// A stream is over.
    pub(super) fn stream_over(&mut self) {
        if self.state == State::Asked {
            self.until = Instant::now() + PATIENCE;
        }
    }

    /// Waits until the patience is over. Cancel safe.
    pub(super) async fn patience(&self) {
        sleep_until(self.until).await;
    }

    /// What follows, if nothing runs.
    pub(super) fn next(&mut self) -> Next {
        match self.state {
            State::Told => Next::Close,
            State::Open | State::Asked if self.unsent.is_any() => {
                self.until = Instant::now() + PATIENCE;
                Next::Wait
            }
            State::Open | State::Asked => {
                self.state = State::Told;
                self.until = Instant::now() + LAST_WORD;
                Next::Tell
            }
        }
    }
}

/// Whether something waits for the client to take it.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsent(Arc<AtomicBool>);

impl Unsent {
    fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn note<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.0.store(poll.is_pending(), Ordering::Relaxed);
        poll
    }
}

/// A connection that notes whether its last write went through. `h2` writes whatever it may until the
/// connection takes no more, so one that takes everything leaves nothing unsent.
pub(super) struct Writing<IO> {
    io: IO,
    unsent: Unsent,
}

impl<IO> Writing<IO> {
    pub(super) fn new(io: IO, unsent: Unsent) -> Self {
        Self { io, unsent }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Writing<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Writing<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.unsent.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.unsent.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.unsent.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
