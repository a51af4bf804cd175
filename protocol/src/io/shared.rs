//! The core behind its lock, and who waits for it.
//!
//! Streams and the driver lock shortly and never across an `.await`; wakers are called after the
//! lock is gone. Invariant: whoever changes the core wakes the driver, so nothing queued stays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::watch;

use crate::conn::{Conn, Event, StreamKey, Wake};
use crate::time::Moment;
use crate::wire::{AppOffer, GoAwayReason, ReportEntry};

use super::carrier::Carrier;
use super::clock::Clock;

/// Tunnel-level news for the tunnel's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The agent's list of apps changed.
    Apps(Vec<AppOffer>),
    /// The peer takes nothing new.
    GoAway {
        /// Why.
        reason: GoAwayReason,
        /// When it will close what is left.
        deadline: Duration,
    },
    /// The carrier is gone; the tunnel waits for the next one.
    Suspended,
    /// It goes on over the next carrier.
    Resumed {
        /// Payload bytes that are sent a second time.
        resent: u64,
    },
    /// Terminals of tunnels that were lost, as the agent tells them.
    Report(Vec<ReportEntry>),
}

/// Why a tunnel is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer ended the carrier, or the carrier failed.
    #[error("the carrier ended: {0}")]
    Carrier(String),
    /// The peer was silent too long.
    #[error("the peer fell silent")]
    Silent,
    /// The peer broke the protocol.
    #[error("{0}")]
    Breach(String),
    /// This side closed it.
    #[error("closed by this side")]
    Closed,
    /// Both sides finished in order after a GOAWAY.
    #[error("drained")]
    Drained,
    /// The carrier was lost and no other came in time.
    #[error("no new carrier came within the resume window")]
    Lapsed,
}

#[derive(Debug, Default)]
struct Waiters {
    owner: Option<StreamKey>,
    read: Option<Waker>,
    write: Option<Waker>,
    control: Option<Waker>,
}

/// Which waiter of a stream registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Read,
    Write,
    Control,
}

/// The carrier to go on with.
pub(super) struct Next {
    pub(super) carrier: Carrier,
    /// What was read beyond its handshake.
    pub(super) leftover: BytesMut,
}

pub(super) struct State {
    pub(super) conn: Conn,
    pub(super) next: Option<Next>,
    waiters: Vec<Waiters>,
    driver: Option<Waker>,
    incoming: VecDeque<StreamKey>,
    incoming_waiter: Option<Waker>,
    notices: VecDeque<Notice>,
    notice_waiter: Option<Waker>,
    pub(super) closing: bool,
    /// When that becomes true by itself.
    pub(super) closes: Option<Moment>,
    /// Close once no stream lives.
    pub(super) drained: bool,
    pub(super) over: bool,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) clock: Clock,
    pub(super) closed: watch::Sender<Option<CloseReason>>,
}

impl Shared {
    pub(super) fn new(conn: Conn, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                conn,
                next: None,
                waiters: Vec::new(),
                driver: None,
                incoming: VecDeque::new(),
                incoming_waiter: None,
                notices: VecDeque::new(),
                notice_waiter: None,
                closing: false,
                closes: None,
                drained: false,
                over: false,
                bytes_in: 0,
                bytes_out: 0,
            }),
            clock,
            closed: watch::channel(None).0,
        })
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the core without changing it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Conn) -> T) -> T {
        look(&self.lock().conn)
    }

    /// Changes the core, then wakes whoever has news, and the driver.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Conn) -> T) -> T {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        let result = act(&mut state.conn);
        state.collect(&mut wakers);
        wakers.extend(state.driver.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

impl Shared {
    /// Ends everything that still waits, after the last frame. The first reason stands.
    pub(super) fn finish(&self, reason: &CloseReason) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        state.conn.lose();
        state.next = None;
        state.collect(&mut wakers);
        wakers.extend(state.incoming_waiter.take());
        wakers.extend(state.notice_waiter.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.closed.send_replace(Some(reason.clone()));
    }
}

impl State {
    /// When something is due.
    pub(super) fn due(&self) -> Moment {
        let due = self.conn.poll_timeout();
        self.closes.map_or(due, |closes| closes.min(due))
    }

    pub(super) fn watch_driver(&mut self, cx: &Context<'_>) {
        if !self
            .driver
            .as_ref()
            .is_some_and(|w| w.will_wake(cx.waker()))
        {
            self.driver = Some(cx.waker().clone());
        }
    }

    pub(super) fn watch(&mut self, key: StreamKey, slot: Slot, cx: &Context<'_>) {
        if self.waiters.len() <= key.index() {
            self.waiters.resize_with(key.index() + 1, Waiters::default);
        }
        let waiters = &mut self.waiters[key.index()];
        if waiters.owner != Some(key) {
            *waiters = Waiters {
                owner: Some(key),
                ..Waiters::default()
            };
        }
        let place = match slot {
            Slot::Read => &mut waiters.read,
            Slot::Write => &mut waiters.write,
            Slot::Control => &mut waiters.control,
        };
        if !place.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *place = Some(cx.waker().clone());
        }
    }

    /// Moves the core's news to those who wait; the caller wakes them without the lock.
    pub(super) fn collect(&mut self, wakers: &mut Vec<Waker>) {
        while let Some(event) = self.conn.poll_event() {
            match event {
                Event::Stream(key, wake) => self.collect_stream(key, wake, wakers),
                Event::Incoming(key) => {
                    self.incoming.push_back(key);
                    wakers.extend(self.incoming_waiter.take());
                }
                Event::Apps(apps) => self.notice(Notice::Apps(apps), wakers),
                Event::GoAway { reason, deadline } => {
                    self.notice(Notice::GoAway { reason, deadline }, wakers)
                }
                Event::Suspended => self.notice(Notice::Suspended, wakers),
                Event::Resumed { resent } => self.notice(Notice::Resumed { resent }, wakers),
                Event::Report(entries) => self.notice(Notice::Report(entries), wakers),
            }
        }
    }

    fn collect_stream(&mut self, key: StreamKey, wake: Wake, wakers: &mut Vec<Waker>) {
        let Some(waiters) = self
            .waiters
            .get_mut(key.index())
            .filter(|w| w.owner == Some(key))
        else {
            return;
        };
        if wake.has(Wake::READ) {
            wakers.extend(waiters.read.take());
        }
        if wake.has(Wake::WRITE) {
            wakers.extend(waiters.write.take());
        }
        if wake.has(Wake::CONTROL) {
            wakers.extend(waiters.control.take());
        }
    }

    /// Only the latest of a kind matters, apart from numbers and terminals, which add up; so the queue
    /// stays short whatever the peer sends.
    fn notice(&mut self, mut notice: Notice, wakers: &mut Vec<Waker>) {
        let same = std::mem::discriminant(&notice);
        let is_same = |n: &Notice| std::mem::discriminant(n) == same;
        if let Some(at) = self.notices.iter().position(is_same)
            && let Some(old) = self.notices.remove(at)
        {
            match (&mut notice, old) {
                (Notice::Resumed { resent }, Notice::Resumed { resent: before }) => {
                    *resent = resent.saturating_add(before);
                }
                (Notice::Report(entries), Notice::Report(mut all)) => {
                    // The core bounds what one tunnel may report in its life.
                    all.append(entries);
                    *entries = all;
                }
                (_, _) => {}
            }
        }
        self.notices.push_back(notice);
        wakers.extend(self.notice_waiter.take());
    }

    /// The driver, if what was just read or written left it something to send.
    pub(super) fn driver_after_read(&mut self) -> Option<Waker> {
        if self.conn.wants_transmit() || self.conn.wants_timer() {
            self.driver.take()
        } else {
            None
        }
    }

    pub(super) fn poll_incoming(&mut self, cx: &Context<'_>) -> Poll<Option<StreamKey>> {
        if let Some(key) = self.incoming.pop_front() {
            return Poll::Ready(Some(key));
        }
        if self.over {
            return Poll::Ready(None);
        }
        self.incoming_waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn poll_notice(&mut self, cx: &Context<'_>) -> Poll<Option<Notice>> {
        if let Some(notice) = self.notices.pop_front() {
            return Poll::Ready(Some(notice));
        }
        if self.over {
            return Poll::Ready(None);
        }
        self.notice_waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}
