//! A stream as its user sees it: the gateway's [`TunnelStream`], and [`StreamControl`], a second
//! view of the same stream for the evidence while somebody else (an h2 connection) moves its bytes.
//!
//! Each of the three waits (reading, writing, control) has one waiter: the last task that polled.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conn::{Counted, Ended, StreamKey, View};
use crate::wire::{Begin, ResetCode};

use super::shared::{Shared, Slot};

/// The stream is over before the peer's direction ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended: {0:?}")]
pub struct StreamEnded(pub Ended);

/// A stream of the gateway: one connection to the app. Dropping it resets it.
///
/// All polls are cancel safe: a dropped poll loses nothing.
pub struct TunnelStream {
    control: StreamControl,
}

/// Evidence and giving up, without owning the bytes. Clones see the same stream.
#[derive(Clone)]
pub struct StreamControl {
    shared: Arc<Shared>,
    key: StreamKey,
}

impl StreamControl {
    /// What is known of the stream now.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.look(|conn| conn.view(self.key)).unwrap_or(GONE)
    }

    /// The agent may send at most so many bytes unasked from now on; what it was granted before stays
    /// granted.
    pub fn cap(&self, cap: u32) {
        self.shared.act(|conn| conn.cap(self.key, cap));
    }

    /// [`TunnelStream::write`] takes no more while so many bytes that the app has not taken are here;
    /// `None`: as many as the tunnel keeps. A writer that waits is not woken by a wider bound: set it
    /// before [`TunnelStream::poll_writable`].
    pub fn keep_at_most(&self, most: Option<u64>) {
        self.shared.lock().conn.keep_at_most(self.key, most);
    }

    /// Bytes that are here unread, or that the agent may send unasked.
    #[must_use]
    pub fn exposure(&self) -> u64 {
        self.shared.look(|conn| conn.exposure(self.key))
    }

    /// The stream's number in its tunnel; nothing before its OPEN left this side.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        let id = self.shared.look(|conn| conn.stream_id(self.key));
        id.map(|id| id.0)
    }

    /// Marks where an exchange begins; answers its start offset.
    pub fn begin(&self, begin: Begin) -> u64 {
        let now = self.shared.now();
        self.shared.act(|conn| conn.begin(now, self.key, begin))
    }

    /// Forgets what was not emitted, asks the agent to write nothing more and to count.
    /// Answers the highest offset ever emitted, in the same step.
    pub fn fence(&self, linger: bool) -> u64 {
        self.shared.act(|conn| conn.fence(self.key, linger))
    }

    /// Forgets everything, ends both directions. Answers the highest offset ever emitted.
    pub fn reset(&self, code: ResetCode) -> u64 {
        self.shared.act(|conn| conn.reset(self.key, code))
    }

    /// Ready once the app's connection stands, or the stream has ended.
    pub fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamEnded>> {
        self.poll_view(cx, |view| match view.ended {
            Some(ended) => Some(Err(StreamEnded(ended))),
            None => view.opened.then_some(Ok(())),
        })
    }

    /// Ready with the offset known now once the app took more than `seen` bytes, or the stream has
    /// ended (then the offset may be `seen`): who asks for one must not sleep through the other.
    pub fn poll_took(&self, cx: &mut Context<'_>, seen: u64) -> Poll<u64> {
        self.poll_view(cx, |view| {
            (view.consumed > seen || view.ended.is_some()).then_some(view.consumed)
        })
    }

    /// Ready once the stream has its terminal.
    pub fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.poll_view(cx, |view| view.ended)
    }

    /// Ready with the counts a fence asked for, or with the terminal.
    pub fn poll_counted(&self, cx: &mut Context<'_>) -> Poll<Result<Counted, StreamEnded>> {
        self.poll_view(cx, |view| match (view.counted, view.ended) {
            (Some(counted), _) => Some(Ok(counted)),
            (None, Some(ended)) => Some(Err(StreamEnded(ended))),
            (None, None) => None,
        })
    }

    /// Ready once the tunnel takes no new exchange, or the stream has its terminal.
    pub fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_view(cx, |view| {
            (view.closing || view.ended.is_some()).then_some(())
        })
    }

    fn poll_view<T>(
        &self,
        cx: &mut Context<'_>,
        answer: impl FnOnce(View) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.shared.lock();
        let view = state.conn.view(self.key).unwrap_or(GONE);
        if let Some(value) = answer(view) {
            return Poll::Ready(value);
        }
        state.watch(self.key, Slot::Control, cx);
        Poll::Pending
    }
}

/// What a released stream looks like; only a control clone that outlives its stream sees it.
const GONE: View = View {
    opened: false,
    emitted: u64::MAX,
    queued_to: u64::MAX,
    consumed: 0,
    received: 0,
    taken: 0,
    ended: Some(Ended::Lost),
    counted: None,
    closing: true,
    suspended: false,
    starved: false,
};

impl TunnelStream {
    pub(super) fn new(shared: Arc<Shared>, key: StreamKey) -> Self {
        Self {
            control: StreamControl { shared, key },
        }
    }

    /// A second view for evidence and giving up.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        &self.control
    }

    /// Ready when [`TunnelStream::write`] would take at least one byte; an error once it never will.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamEnded>> {
        let mut state = self.control.shared.lock();
        if state.conn.room(self.control.key) > 0 {
            return Poll::Ready(Ok(()));
        }
        if !state.conn.is_writable(self.control.key) {
            let ended = state
                .conn
                .view(self.control.key)
                .and_then(|v| v.ended)
                .unwrap_or(Ended::Lost);
            return Poll::Ready(Err(StreamEnded(ended)));
        }
        state.watch(self.control.key, Slot::Write, cx);
        Poll::Pending
    }

    /// Takes bytes from the front of `bytes`, as many as credit and queue allow; answers how many.
    pub fn write(&mut self, bytes: &mut Bytes) -> usize {
        self.control
            .shared
            .act(|conn| conn.write(self.control.key, bytes))
    }

    /// Ends this side's direction after what was written.
    pub fn finish(&mut self) {
        self.control
            .shared
            .act(|conn| conn.finish(self.control.key));
    }

    /// The next bytes, at most `max`; `None` after the peer's orderly end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, StreamEnded>> {
        let now = self.control.shared.now();
        let key = self.control.key;
        let mut state = self.control.shared.lock();
        let Some(bytes) = state.conn.read(now, key, max) else {
            if state.conn.is_read_to_fin(key) {
                return Poll::Ready(Ok(None));
            }
            if state.conn.is_read_out(key) {
                let ended = state
                    .conn
                    .view(key)
                    .and_then(|v| v.ended)
                    .unwrap_or(Ended::Lost);
                return Poll::Ready(Err(StreamEnded(ended)));
            }
            state.watch(key, Slot::Read, cx);
            return Poll::Pending;
        };
        let driver = state.driver_after_read();
        drop(state);
        driver.into_iter().for_each(std::task::Waker::wake);
        Poll::Ready(Ok(Some(bytes)))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        self.control
            .shared
            .act(|conn| conn.release(self.control.key));
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(TunnelStream::poll_read(&mut self, cx, buf.remaining())) {
            Ok(Some(bytes)) => buf.put_slice(&bytes),
            Ok(None) => {}
            Err(ended) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, ended)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Err(ended) = ready!(self.poll_writable(cx)) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, ended)));
            }
            let room = self.control.shared.look(|conn| conn.room(self.control.key));
            let mut bytes = Bytes::copy_from_slice(&buf[..buf.len().min(room)]);
            let count = self.write(&mut bytes);
            // Zero only if the stream ended in between; then the next turn says so.
            if count > 0 || buf.is_empty() {
                return Poll::Ready(Ok(count));
            }
        }
    }

    /// Returns at once: the driver emits as credit allows.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends this side's direction and waits until the app took all of it (or the stream ended), so
    /// that the drop that follows a copy cuts nothing.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        let mut state = self.control.shared.lock();
        if state.conn.is_flushed(self.control.key) {
            return Poll::Ready(Ok(()));
        }
        state.watch(self.control.key, Slot::Write, cx);
        Poll::Pending
    }
}
