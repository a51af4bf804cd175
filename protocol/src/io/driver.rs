//! One task per tunnel: carrier bytes into the core, frames out of it, its timer.
//!
//! Reading never waits for writing: both are polled in every turn. One writer, vectored, whole
//! frames only. At most [`BULK_QUEUED`] bytes wait for the carrier, so that a small request never
//! stands behind a download. When the task ends, every stream has its end.
//!
//! The task outlives its carriers. Between two of them it only waits: for the next one, for its
//! timer, for its owner. What an old carrier had read and not handed over, and what it had not
//! written, dies with it before the core may state an offset on the next one; the core keeps what
//! the peer has not consumed.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep_until};

use crate::conn::{Conn, ConnError, Outbox};
use crate::planted::Bug;
use crate::time::Moment;

use super::carrier::{Carrier, CarrierKind};
use super::shared::{CloseReason, Next, Shared, State};

/// Frames waiting for the carrier; more would put control behind bulk (measured: 64 KiB costs 5 ms
/// less at the median than 128 KiB on a 200 Mbit/s, 20 ms path).
const BULK_QUEUED: usize = 64 * 1024;
const READ_CHUNK: usize = 64 * 1024;
/// Turns before the task lets others run.
const TURNS: usize = 32;
const SLICES: usize = 32;

pub(super) struct Driver {
    shared: Arc<Shared>,
    /// None while the tunnel is suspended.
    carrier: Option<Carrier>,
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

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, carrier: Carrier, inbox: BytesMut) -> Self {
        let timer_at = shared.look(Conn::poll_timeout);
        let timer = Box::pin(sleep_until(shared.clock.instant(timer_at)));
        Self {
            shared,
            carrier: Some(carrier),
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
        self.change_carrier()?;
        let read = self.poll_read(cx)?;
        self.poll_timer(cx)?;
        self.fill_outbox();
        let wrote = self.poll_write(cx)?;
        self.over(wrote)?;
        Ok(Turn {
            progress: read || wrote,
        })
    }

    // ---- carriers --------------------------------------------------------------------------

    /// Goes over to the carrier that was handed in, or drops the one that its owner gave up.
    fn change_carrier(&mut self) -> Result<(), CloseReason> {
        let next = {
            let mut state = self.shared.lock();
            let given_up = self.carrier.is_some() && state.conn.wants_carrier();
            if state.next.is_none() && !given_up {
                return Ok(());
            }
            state.next.take()
        };
        if Bug::OldCarrierRead.bites() {
            self.read_on();
        }
        self.drop_carrier();
        let Some(Next { carrier, leftover }) = next else {
            return Ok(());
        };
        self.carrier = Some(carrier);
        self.inbox.unsplit(leftover);
        let now = self.shared.now();
        self.shared.act(|conn| conn.resume(now));
        self.take_inbox()
    }

    /// What a planted bug does with the old carrier.
    fn read_on(&mut self) {
        if let Some(carrier) = &mut self.carrier {
            let mut cx = Context::from_waker(Waker::noop());
            drop(pin!(carrier.read_buf(&mut self.inbox)).poll(&mut cx));
        }
    }

    /// Drops the carrier, which the core knows to be gone, with all that it had read and not taken.
    fn drop_carrier(&mut self) {
        let left = self.let_carrier_go();
        self.shared.act(|conn| conn.never_taken(left));
    }

    /// Answers what the carrier never took. Nobody writes it after this.
    fn let_carrier_go(&mut self) -> Outbox {
        self.carrier = None;
        if !Bug::PartialFrameDecoded.bites() && !Bug::OldCarrierRead.bites() {
            self.inbox.clear();
        }
        self.unflushed = false;
        std::mem::take(&mut self.outbox)
    }

    /// The carrier is of no more use. The tunnel waits for the next one, or ends with it: if it has
    /// no resume window, or its owner wants to end anyway, or nothing is left that could go on.
    fn lose_carrier(&mut self, reason: CloseReason) -> Result<(), CloseReason> {
        let now = self.shared.now();
        let ends = {
            let state = self.shared.lock();
            match (state.closing, state.conn.is_done()) {
                (true, _) => Some(CloseReason::Closed),
                (false, true) => Some(CloseReason::Drained),
                (false, false) => None,
            }
        };
        if let Some(ends) = ends {
            return Err(ends);
        }
        let left = self.let_carrier_go();
        let is_over = self.shared.act(|conn| {
            conn.never_taken(left);
            conn.suspend(now);
            conn.failure().is_some()
        });
        if is_over { Err(reason) } else { Ok(()) }
    }

    // ---- bytes and time --------------------------------------------------------------------

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let Some(carrier) = &mut self.carrier else {
            return Ok(false);
        };
        self.inbox.reserve(READ_CHUNK);
        let read = pin!(carrier.read_buf(&mut self.inbox)).poll(cx);
        let lost = match read {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => CloseReason::Carrier("ended by the peer".into()),
            Poll::Ready(Err(error)) => CloseReason::Carrier(error.to_string()),
            Poll::Ready(Ok(_)) => return self.take_inbox().map(|()| true),
        };
        self.lose_carrier(lost).map(|()| true)
    }

    /// Gives the core what was read. A tunnel that was suspended in the meantime takes nothing more
    /// from this carrier: its offsets may have been stated already.
    fn take_inbox(&mut self) -> Result<(), CloseReason> {
        let before = self.inbox.len();
        let inbox = &mut self.inbox;
        let now = self.shared.now();
        Self::step(&self.shared, |state| {
            if state.conn.wants_carrier() {
                inbox.clear();
                return Ok(());
            }
            let result = state.conn.handle_bytes(now, inbox);
            state.bytes_in += (before - inbox.len()) as u64;
            result
        })
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<(), CloseReason> {
        let due = self.shared.lock().due();
        if due < self.timer_at {
            self.arm(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = self.shared.now();
            Self::step(&self.shared, |state| {
                state.closing |= state.closes.take_if(|closes| *closes <= now).is_some();
                state.conn.handle_timeout(now)
            })?;
            if self.carrier.is_some() && self.shared.look(Conn::wants_carrier) {
                tracing::debug!("the peer of a carrier fell silent");
                self.drop_carrier();
            }
            let next = self.shared.lock().due();
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
        let nobody = self.carrier.is_none();
        if state.closing && (sent || !wrote || nobody) {
            return Err(CloseReason::Closed);
        }
        if (sent || nobody) && state.is_drained() {
            return Err(CloseReason::Drained);
        }
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        match self.write_out(cx) {
            Ok(wrote) => Ok(wrote),
            // A turn more: the one who waits looks at the timer and at its owner's wish.
            Err(error) => self
                .lose_carrier(CloseReason::Carrier(error.to_string()))
                .map(|()| true),
        }
    }

    fn write_out(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(carrier) = &mut self.carrier else {
            return Ok(false);
        };
        let mut wrote = false;
        while !self.outbox.is_empty() {
            match write_some(carrier, &self.outbox, cx) {
                Poll::Ready(Err(error)) => {
                    let may_have = offered(carrier, &self.outbox);
                    self.outbox.advance(may_have);
                    return Err(error);
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.unflushed = true;
                    wrote = true;
                }
                Poll::Pending => break,
            }
        }
        if self.unflushed && self.outbox.is_empty() {
            match Pin::new(carrier).poll_flush(cx)? {
                Poll::Ready(()) => self.unflushed = false,
                Poll::Pending => {}
            }
        }
        Ok(wrote)
    }

    /// Says goodbye if the carrier takes it at once; never waits for a peer that does not read.
    /// Streams end first: what was not emitted until now never is, and what the carrier does not take
    /// now it never gets.
    async fn farewell(&mut self) {
        poll_fn(|cx| {
            // Whoever is gone does not take the goodbye.
            drop(self.write_out(cx));
            let stuck = !self.outbox.is_empty();
            let left = std::mem::take(&mut self.outbox);
            let outbox = &mut self.outbox;
            self.shared.act(|conn| {
                conn.never_taken(left);
                conn.lose();
                if !stuck {
                    conn.poll_transmit(outbox, BULK_QUEUED);
                }
            });
            drop(self.write_out(cx));
            if let Some(carrier) = &mut self.carrier {
                let _ = Pin::new(carrier).poll_shutdown(cx);
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// What a carrier whose write failed may yet have taken: plain TCP nothing; a TLS session or a
/// WebSocket may have sent a part of what it was offered before it failed.
fn offered(carrier: &Carrier, outbox: &Outbox) -> usize {
    match carrier.kind() {
        CarrierKind::Tcp => 0,
        CarrierKind::Tls | CarrierKind::Wss | CarrierKind::Ws => {
            outbox.segments().take(SLICES).map(Bytes::len).sum()
        }
    }
}

fn write_some(
    carrier: &mut Carrier,
    outbox: &Outbox,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut count = 0;
    for (slot, segment) in slices.iter_mut().zip(outbox.segments()) {
        *slot = IoSlice::new(segment);
        count += 1;
    }
    if carrier.is_write_vectored() {
        Pin::new(carrier).poll_write_vectored(cx, &slices[..count])
    } else {
        Pin::new(carrier).poll_write(cx, &slices[0])
    }
}

impl Drop for Driver {
    /// A driver that is dropped before its end (its task was cancelled) loses the tunnel; nobody
    /// may wait for it for ever.
    fn drop(&mut self) {
        self.shared.finish(&CloseReason::Closed);
    }
}

impl State {
    fn is_drained(&self) -> bool {
        self.drained && self.conn.is_done()
    }
}

impl Conn {
    /// One side goes away and nothing runs any more.
    fn is_done(&self) -> bool {
        self.is_going_away() && self.live_streams() == 0
    }
}

impl From<ConnError> for CloseReason {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Dead => Self::Silent,
            ConnError::Lapsed => Self::Lapsed,
            ConnError::Closed => Self::Closed,
            ConnError::Wire(_) | ConnError::Breach(_) => Self::Breach(error.to_string()),
        }
    }
}
