//! One task per tunnel: carrier bytes into the core, frames out of it, its timer.
//!
//! Reading never waits for writing: both are polled in every turn. One writer, vectored, whole
//! frames only. At most [`BULK_QUEUED`] bytes wait for the carrier, so that a small request never
//! stands behind a download. When the task ends, every stream has its end.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep_until};

use crate::conn::{Conn, ConnError, Outbox};
use crate::time::Moment;

use super::shared::{CloseReason, Shared, State};

/// Frames waiting for the carrier; more would put control behind bulk (measured: 64 KiB costs 5 ms
/// less at the median than 128 KiB on a 200 Mbit/s, 20 ms path).
const BULK_QUEUED: usize = 64 * 1024;
const READ_CHUNK: usize = 64 * 1024;
/// Turns before the task lets others run.
const TURNS: usize = 32;
const SLICES: usize = 32;

pub(super) struct Driver<C> {
    shared: Arc<Shared>,
    carrier: C,
    inbox: BytesMut,
    outbox: Outbox,
    timer: Pin<Box<Sleep>>,
    timer_at: Moment,
    unflushed: bool,
}

/// What one turn achieved.
struct Turn {
    progress: bool,
}

impl<C: AsyncRead + AsyncWrite + Unpin> Driver<C> {
    pub(super) fn new(shared: Arc<Shared>, carrier: C, inbox: BytesMut) -> Self {
        let timer_at = shared.look(Conn::poll_timeout);
        let timer = Box::pin(sleep_until(shared.clock.instant(timer_at)));
        Self {
            shared,
            carrier,
            inbox,
            outbox: Outbox::default(),
            timer,
            timer_at,
            unflushed: false,
        }
    }

    pub(super) async fn run(mut self) -> CloseReason {
        let reason = match self.take_inbox() {
            Ok(()) => poll_fn(|cx| self.poll(cx)).await,
            Err(reason) => reason,
        };
        self.farewell().await;
        self.shared.finish(&reason);
        reason
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.shared.lock().watch_driver(cx);
        for _ in 0..TURNS {
            match self.turn(cx) {
                Err(reason) => return Poll::Ready(reason),
                Ok(Turn { progress: true }) => {}
                Ok(Turn { progress: false }) => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Turn, CloseReason> {
        let read = self.poll_read(cx)?;
        self.poll_timer(cx)?;
        self.fill_outbox();
        let wrote = self.poll_write(cx)?;
        self.over(wrote)?;
        Ok(Turn {
            progress: read || wrote,
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        self.inbox.reserve(READ_CHUNK);
        let read = pin!(self.carrier.read_buf(&mut self.inbox)).poll(cx);
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(self.ended_by_peer()),
            Poll::Ready(Err(error)) => Err(CloseReason::Carrier(error.to_string())),
            Poll::Ready(Ok(_)) => self.take_inbox().map(|()| true),
        }
    }

    fn ended_by_peer(&self) -> CloseReason {
        let going = |conn: &Conn| conn.is_going_away() && conn.live_streams() == 0;
        if self.shared.look(going) {
            return CloseReason::Drained;
        }
        CloseReason::Carrier("ended by the peer".into())
    }

    fn take_inbox(&mut self) -> Result<(), CloseReason> {
        let before = self.inbox.len();
        let inbox = &mut self.inbox;
        let now = self.shared.now();
        Self::step(&self.shared, |state| {
            let result = state.conn.handle_bytes(now, inbox);
            state.bytes_in += (before - inbox.len()) as u64;
            result
        })
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<(), CloseReason> {
        let due = self.shared.look(Conn::poll_timeout);
        if due < self.timer_at {
            self.arm(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = self.shared.now();
            Self::step(&self.shared, |state| state.conn.handle_timeout(now))?;
            let next = self.shared.look(Conn::poll_timeout);
            self.arm(next);
        }
        Ok(())
    }

    fn arm(&mut self, due: Moment) {
        self.timer_at = due;
        let at = self.shared.clock.instant(due);
        self.timer.as_mut().reset(at);
    }

    /// Changes the core and wakes those who have news, after the lock is gone.
    fn step(
        shared: &Shared,
        act: impl FnOnce(&mut State) -> Result<(), ConnError>,
    ) -> Result<(), CloseReason> {
        let mut wakers = Vec::new();
        let result = {
            let mut state = shared.lock();
            let result = act(&mut state);
            state.collect(&mut wakers);
            result
        };
        wakers.into_iter().for_each(Waker::wake);
        result.map_err(CloseReason::from)
    }

    fn fill_outbox(&mut self) {
        if self.outbox.len() >= BULK_QUEUED / 2 {
            return;
        }
        let outbox = &mut self.outbox;
        let mut wakers = Vec::new();
        let mut state = self.shared.lock();
        let before = outbox.len();
        state.conn.poll_transmit(outbox, BULK_QUEUED);
        state.bytes_out += (outbox.len() - before) as u64;
        if state.closing {
            state.conn.lose();
        }
        state.collect(&mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Closed by its owner: once the carrier takes nothing more at once. Drained: once the last
    /// frame has left this side.
    fn over(&self, wrote: bool) -> Result<(), CloseReason> {
        let state = self.shared.lock();
        let sent = self.outbox.is_empty() && !self.unflushed && !state.conn.wants_transmit();
        if state.closing && (sent || !wrote) {
            return Err(CloseReason::Closed);
        }
        if sent && state.is_drained() {
            return Err(CloseReason::Drained);
        }
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut wrote = false;
        while !self.outbox.is_empty() {
            match self.write_some(cx) {
                Poll::Ready(Ok(0)) => return Err(CloseReason::Carrier("accepts no bytes".into())),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.unflushed = true;
                    wrote = true;
                }
                Poll::Ready(Err(error)) => return Err(CloseReason::Carrier(error.to_string())),
                Poll::Pending => break,
            }
        }
        if self.unflushed && self.outbox.is_empty() {
            match Pin::new(&mut self.carrier).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(CloseReason::Carrier(error.to_string())),
                Poll::Pending => {}
            }
        }
        Ok(wrote)
    }

    fn write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.carrier.is_write_vectored() {
            let front = self.outbox.front().map_or(&[][..], |b| &b[..]);
            return Pin::new(&mut self.carrier).poll_write(cx, front);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slot, segment) in slices.iter_mut().zip(self.outbox.segments()) {
            *slot = IoSlice::new(segment);
            count += 1;
        }
        Pin::new(&mut self.carrier).poll_write_vectored(cx, &slices[..count])
    }

    /// Says goodbye if the carrier takes it at once; never waits for a peer that does not read.
    /// Streams end first: what was not emitted until now never is.
    async fn farewell(&mut self) {
        let outbox = &mut self.outbox;
        self.shared.act(|conn| {
            conn.lose();
            conn.poll_transmit(outbox, BULK_QUEUED);
        });
        poll_fn(|cx| {
            let _ = self.poll_write(cx);
            let _ = Pin::new(&mut self.carrier).poll_shutdown(cx);
            Poll::Ready(())
        })
        .await;
    }
}

impl<C> Drop for Driver<C> {
    /// A driver that is dropped before its end (its task was cancelled) loses the tunnel; nobody
    /// may wait for it for ever.
    fn drop(&mut self) {
        self.shared.finish(&CloseReason::Closed);
    }
}

impl State {
    fn is_drained(&self) -> bool {
        self.drained && self.conn.is_going_away() && self.conn.live_streams() == 0
    }
}

impl From<ConnError> for CloseReason {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Dead | ConnError::Lapsed => Self::Silent,
            ConnError::Closed => Self::Closed,
            ConnError::Wire(_) | ConnError::Breach(_) => Self::Breach(error.to_string()),
        }
    }
}
