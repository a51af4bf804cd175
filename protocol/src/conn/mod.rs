//! The tunnel's state machine: streams, order, credit, evidence, liveness. Sans-I/O.
//!
//! Bytes go in ([`Conn::handle_bytes`]), frames come out ([`Conn::poll_transmit`]), news comes out
//! ([`Conn::poll_event`]), and the next deadline ([`Conn::poll_timeout`]); `now` is passed in and
//! never goes back. No clock, no randomness, no locks, no tokio.
//!
//! What must hold:
//! * ids are given when OPEN is emitted; no frame of a stream overtakes its OPEN;
//! * giving up ([`Conn::reset`], [`Conn::fence`]) forgets queued bytes and answers, in the same
//!   step, the highest offset ever given to a carrier: that number is evidence, and falls only by what
//!   a lost carrier never took ([`Conn::never_taken`]);
//! * every opened stream gets one terminal; credit is returned once for every byte;
//! * an error is terminal for the tunnel and never touches another tunnel.

mod agent;
mod budget;
mod counts;
#[cfg(test)]
mod edges;
mod emit;
mod error;
mod event;
mod fates;
mod flow;
mod gateway;
mod gather;
#[cfg(test)]
mod hostile;
mod lateness;
mod liveness;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod properties;
mod receive;
mod resume;
mod sched;
mod settings;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;

use crate::planted::Bug;
use crate::time::Moment;
use crate::wire::{AppOffer, Frame, GoAwayReason, Limits, PeerLimits, StreamId, decode};

pub use agent::Front;
pub use counts::StreamCounts;
pub use emit::Outbox;
pub use error::{ConnError, OpenError};
pub use event::{Counted, Ended, Event, Wake};
pub use fates::{Fate, MAX_REPORTED};
pub use gateway::View;
pub use settings::{Settings, Side};
pub use store::StreamKey;

use budget::Budget;
use flow::Due;
use lateness::Lateness;
use liveness::{Liveness, Pulse};
use resume::Carriage;
use sched::Sched;
use store::Store;
use stream::Phase;

/// Ids from here on are left unused: the tunnel is replaced before they run out.
const ID_CEILING: u32 = (1 << 31) - (1 << 16);

/// This side takes nothing new.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    reason: GoAwayReason,
    /// The last stream this side accepted.
    last: StreamId,
    /// When it will close what is left.
    at: Moment,
}

/// One tunnel's state machine, either side.
#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub struct Conn {
    side: Side,
    settings: Settings,
    peer: PeerLimits,
    store: Store,
    sched: Sched,
    liveness: Liveness,
    lateness: Lateness,
    budget: Budget,
    events: VecDeque<Event>,
    news: VecDeque<StreamKey>,
    untold: VecDeque<StreamKey>,
    untold_due: Option<Moment>,
    next_id: u32,
    highest_open: u32,
    going_away: Option<Leaving>,
    /// The last stream the peer accepted.
    peer_going_away: Option<StreamId>,
    apps_revision: u64,
    /// Agent: the apps announced last.
    announced: Option<Vec<AppOffer>>,
    carriage: Carriage,
    /// Gateway: the highest OPEN the peer has stated to have seen.
    peer_saw: u32,
    /// Agent, after the end: what became of streams without an acknowledged terminal.
    fates: Vec<Fate>,
    /// Reported terminals: sent (agent), received over this carrier (gateway).
    reported: usize,
    /// The probe that follows the last of them.
    reported_by: Option<u64>,
    failed: Option<ConnError>,
    /// The latest `now` heard.
    latest: Moment,
}

impl Conn {
    /// A fresh tunnel after its handshake; `peer` is what the other side asked for.
    #[must_use]
    pub fn new(side: Side, settings: Settings, peer: PeerLimits, now: Moment) -> Self {
        let mut conn = Self {
            side,
            settings,
            peer,
            store: Store::default(),
            sched: Sched::default(),
            liveness: Liveness::new(settings.ping_after, settings.dead_after, now),
            lateness: Lateness::new(now),
            budget: Budget::new(now),
            events: VecDeque::new(),
            news: VecDeque::new(),
            untold: VecDeque::new(),
            untold_due: None,
            next_id: 1,
            highest_open: 0,
            going_away: None,
            peer_going_away: None,
            apps_revision: 0,
            announced: None,
            carriage: Carriage::Up,
            peer_saw: 0,
            fates: Vec::new(),
            reported: 0,
            reported_by: None,
            failed: None,
            latest: now,
        };
        let probe = conn.liveness.probe(now);
        conn.sched.ping(probe);
        conn
    }

    // ---- bytes and time -------------------------------------------------------------------

    /// Takes all whole frames out of `buf`. An error ends the tunnel.
    ///
    /// # Errors
    /// [`ConnError`] if the peer broke the protocol.
    pub fn handle_bytes(&mut self, now: Moment, buf: &mut BytesMut) -> Result<(), ConnError> {
        self.alive()?;
        self.saw(now);
        self.notice_sleep(now);
        if self.wants_carrier() {
            buf.clear();
            return Ok(());
        }
        if !buf.is_empty() {
            self.liveness.heard(now);
        }
        loop {
            let frame = match decode(buf, &Limits::default()) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.fail(ConnError::Wire(error))),
            };
            if let Err(breach) = self.receive(now, frame) {
                return Err(self.fail(ConnError::Breach(breach)));
            }
        }
    }

    /// Does what is due at `now`.
    ///
    /// # Errors
    /// [`ConnError::Dead`] if the peer has been silent too long.
    pub fn handle_timeout(&mut self, now: Moment) -> Result<(), ConnError> {
        self.alive()?;
        self.saw(now);
        self.notice_sleep(now);
        if self.untold_due.is_some_and(|due| due <= now) {
            self.tell_untold(now);
        }
        self.look_at_budget(now);
        if self.carriage.lapses().is_some_and(|at| at <= now) {
            return Err(self.fail(ConnError::Lapsed));
        }
        if self.wants_carrier() {
            return Ok(());
        }
        match self.liveness.tick(now) {
            Pulse::Quiet => {}
            Pulse::Ping(bytes) => self.sched.ping(bytes),
            Pulse::Dead if self.settings.resume_window.is_zero() => {
                return Err(self.fail(ConnError::Dead));
            }
            Pulse::Dead => self.suspend(now),
        }
        Ok(())
    }

    fn saw(&mut self, now: Moment) {
        self.latest = self.latest.max(now);
    }

    /// When [`Conn::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Moment {
        let lapses = self.carriage.lapses();
        let mut due = match lapses {
            Some(lapses) if self.wants_carrier() => lapses,
            Some(lapses) => lapses.min(self.liveness.due()),
            None => self.liveness.due(),
        };
        if self.side == Side::Agent {
            due = due.min(self.lateness.due());
        }
        if let Some(look) = self.budget_due() {
            due = due.min(look);
        }
        self.untold_due.map_or(due, |untold| untold.min(due))
    }

    /// Before anything else of a turn: an agent that slept begins nothing until it has heard what
    /// was given up meanwhile.
    fn notice_sleep(&mut self, now: Moment) {
        if self.side == Side::Agent && self.lateness.slept(now) {
            let probe = self.liveness.probe(now);
            if !Bug::FrozenAgentWrites.bites() {
                self.lateness.hold(probe);
            }
            self.sched.ping(probe);
        }
    }

    /// The next piece of news.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(key) = self.news.pop_front() {
            if let Some(stream) = self.store.find(key) {
                let wake = std::mem::take(&mut stream.news);
                return Some(Event::Stream(key, wake));
            }
        }
        None
    }

    /// The carrier is gone and will not come back: every stream ends as far as is known.
    pub fn lose(&mut self) {
        if self.failed.is_none() {
            self.fail(ConnError::Closed);
        }
    }

    /// Why the tunnel is over; `None` while it is not.
    #[must_use]
    pub fn failure(&self) -> Option<&ConnError> {
        self.failed.as_ref()
    }

    fn alive(&self) -> Result<(), ConnError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: ConnError) -> ConnError {
        if matches!(error, ConnError::Wire(_) | ConnError::Breach(_)) {
            self.sched.goaway(Frame::GoAway {
                last: self.last_accepted(),
                reason: GoAwayReason::ProtocolError,
                deadline: Duration::ZERO,
            });
        }
        if self.wants_carrier() {
            // Nobody is there to say goodbye to.
            self.sched = Sched::default();
        }
        self.carriage = Carriage::Up;
        self.failed = Some(error.clone());
        self.sched.close();
        for key in self.store.keys() {
            self.end_lost(key);
        }
        error
    }

    fn end_lost(&mut self, key: StreamKey) {
        self.note_fate(key);
        if let Some(stream) = self.store.find(key)
            && stream.ended.is_none()
        {
            let ended = if stream.phase == Phase::Queued {
                Ended::NotOpened
            } else {
                Ended::Lost
            };
            self.end(key, ended);
        }
    }

    // ---- both sides: life ------------------------------------------------------------------

    /// Takes nothing new from now on and says so.
    pub fn drain(&mut self, reason: GoAwayReason, deadline: Duration) {
        if self.going_away.is_none() {
            let last = self.last_accepted();
            let at = self.latest + deadline;
            self.going_away = Some(Leaving { reason, last, at });
            self.sched.goaway(Frame::GoAway {
                last,
                reason,
                deadline,
            });
            self.wake_everyone();
        }
    }

    fn forget_handle(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key) {
            stream.released = true;
            if stream.is_done() {
                self.remove(key);
            }
        }
    }

    /// Frees the slot; whoever still waits for the stream looks once more and finds it gone.
    fn remove(&mut self, key: StreamKey) {
        self.store.remove(key);
        self.events.push_back(Event::Stream(key, Wake::ALL));
    }

    /// True if `poll_transmit` would emit something.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        if self.wants_carrier() {
            return false;
        }
        if self.is_suspended() {
            return self.sched.has_preamble();
        }
        !self.sched.is_empty()
    }

    /// True if the next deadline may have moved nearer since the last transmit.
    #[must_use]
    pub fn wants_timer(&self) -> bool {
        self.untold.len() == 1
    }

    /// What was opened after GOAWAY was said is refused, so a later GOAWAY must not count it.
    fn last_accepted(&self) -> StreamId {
        self.going_away
            .map_or(StreamId(self.highest_open), |leaving| leaving.last)
    }

    /// True once no stream may be opened. A gateway that drains only tells its agents to dial
    /// elsewhere; its own clients are served through the old tunnel until they are gone.
    #[must_use]
    pub fn takes_no_streams(&self) -> bool {
        let own = match self.side {
            Side::Gateway => self.next_id >= ID_CEILING,
            Side::Agent => self.going_away.is_some(),
        };
        own || self.peer_going_away.is_some() || self.failed.is_some()
    }

    /// True once either side has said that it goes away.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.going_away.is_some() || self.peer_going_away.is_some() || self.failed.is_some()
    }

    /// Last measured round trip.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.liveness.rtt()
    }

    /// This core's numbers.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    // ---- shared steps ----------------------------------------------------------------------

    fn end(&mut self, key: StreamKey, ended: Ended) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        debug_assert!(stream.ended.is_none());
        stream.ended = Some(ended);
        stream.phase = Phase::Ended;
        stream.kept = self.side == Side::Agent && ended.is_told();
        if !stream.kept || self.settings.resume_window.is_zero() {
            stream.out.forget();
        }
        stream.pending = stream::Pending::default();
        let (id, done) = (stream.id.filter(|_| !stream.kept), stream.is_done());
        if let Some(id) = id {
            self.store.unbind(id);
        }
        if done {
            self.remove(key);
        } else {
            self.wake(key, Wake::ALL);
        }
    }

    fn wake(&mut self, key: StreamKey, wake: Wake) {
        if let Some(stream) = self.store.find(key) {
            if stream.news == Wake::NONE {
                self.news.push_back(key);
            }
            stream.news = stream.news.and(wake);
        }
    }

    fn wake_everyone(&mut self) {
        for key in self.store.keys() {
            self.wake(key, Wake::ALL);
        }
    }

    fn owe(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && !stream.in_control
        {
            stream.in_control = true;
            self.sched.control(key);
            self.purge();
        }
    }

    fn purge(&mut self) {
        if self.sched.is_crowded(self.store.len()) {
            self.sched.purge(|key| self.store.get(key).is_some());
        }
    }

    fn offer(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && !stream.in_data
            && stream.out.has_piece()
        {
            stream.in_data = true;
            self.sched
                .data(key, stream.out.is_fresh(sched::SLICE as u64));
            self.purge();
        }
    }

    fn told_or_later(&mut self, now: Moment, key: StreamKey) {
        self.saw(now);
        self.tell(now, key, Due::Half);
        let delay = self.settings.credit_delay;
        if let Some(stream) = self.store.find(key)
            && !stream.in_untold
            && stream.ended.is_none()
        {
            stream.in_untold = true;
            self.untold.push_back(key);
            self.untold_due.get_or_insert(now + delay);
        }
    }

    fn is_long_path(&self) -> bool {
        self.liveness
            .rtt()
            .is_some_and(|rtt| rtt >= self.settings.long_path)
    }

    /// Bytes a sender keeps that the peer has not consumed.
    fn retain_limit(&self) -> u64 {
        let long = if self.is_long_path() {
            u64::from(self.settings.long_window)
        } else {
            0
        };
        self.settings.retain_limit.max(long)
    }

    fn tell(&mut self, now: Moment, key: StreamKey, due: Due) {
        let rtt = self.liveness.rtt().unwrap_or_default();
        let max = if self.budget.is_tight() {
            0
        } else if self.is_long_path() {
            self.settings.long_window
        } else {
            self.settings.max_window
        };
        if let Some(stream) = self.store.find(key)
            && stream.ended.is_none()
            && let Some(credit) = stream.inn.credit_due(now, rtt, max, due)
        {
            stream.pending.credit = Some(credit);
            self.owe(key);
        }
    }

    fn tell_untold(&mut self, now: Moment) {
        self.untold_due = None;
        while let Some(key) = self.untold.pop_front() {
            if let Some(stream) = self.store.find(key) {
                stream.in_untold = false;
            }
            self.tell(now, key, Due::Any);
        }
    }
}
