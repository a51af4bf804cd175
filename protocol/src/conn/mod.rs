//! The tunnel's state machine: streams, order, credit, evidence, liveness. Sans-I/O.
//!
//! Bytes go in ([`Conn::handle_bytes`]), frames come out ([`Conn::poll_transmit`]), news comes out
//! ([`Conn::poll_event`]), and the next deadline ([`Conn::poll_timeout`]); `now` is passed in and
//! never goes back. No clock, no randomness, no locks, no tokio.
//!
//! What must hold:
//! * ids are given when OPEN is emitted; no frame of a stream overtakes its OPEN;
//! * giving up ([`Conn::reset`], [`Conn::fence`]) forgets queued bytes and answers, in the same
//!   step, the highest offset ever given to a carrier: that number is evidence;
//! * every opened stream gets one terminal; credit is returned once for every byte;
//! * an error is terminal for the tunnel and never touches another tunnel.

mod emit;
mod error;
mod event;
mod flow;
mod liveness;
mod receive;
mod sched;
mod settings;
mod store;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::time::Moment;
use crate::wire::{
    AppOffer, Begin, FinalCause, Frame, GoAwayReason, Limits, Open, PeerLimits, RefusedReason,
    ResetCode, StreamId, decode,
};

pub use emit::Outbox;
pub use error::{ConnError, OpenError};
pub use event::{Counted, Ended, Event, Wake};
pub use settings::{Settings, Side};
pub use store::StreamKey;

use flow::{Due, Item, RecvHalf, Taken};
use liveness::{Liveness, Pulse};
use sched::Sched;
use store::Store;
use stream::{Phase, Stream};

/// Ids from here on are left unused: the tunnel is replaced before they run out.
const ID_CEILING: u32 = (1 << 31) - (1 << 16);

/// What the gateway can see of a stream at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// OPENED arrived: the app's connection stands.
    pub opened: bool,
    /// Highest offset ever given to a carrier.
    pub emitted: u64,
    /// Offset after the last byte taken from the writer.
    pub queued_to: u64,
    /// Bytes the peer says it consumed (at the agent: accepted by the app's socket). A stage, not a proof.
    pub consumed: u64,
    /// Bytes received from the peer.
    pub received: u64,
    /// Bytes handed to the reader.
    pub taken: u64,
    /// The terminal, if there is one.
    pub ended: Option<Ended>,
    /// Counts answered to a fence.
    pub counted: Option<Counted>,
    /// No exchange may begin on this stream.
    pub closing: bool,
}

/// What stands at the front of a stream's incoming side at the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// Bytes for the app's socket (the front piece, shared not copied).
    Bytes(Bytes),
    /// An exchange begins here.
    Begin {
        /// Its frame.
        begin: Begin,
        /// When its time is over.
        deadline: Moment,
    },
    /// The gateway ended its direction.
    Fin,
    /// Nothing yet.
    Empty,
    /// A fence: write nothing more. `linger`: the request was written whole, read on for the late answer.
    Fenced {
        /// Keep the app's connection for reading.
        linger: bool,
    },
    /// A reset, or the tunnel is lost: close the app's socket.
    Closed {
        /// No exchange was under way, so an orderly close says the truth.
        idle: bool,
    },
}

/// One tunnel's state machine, either side.
#[derive(Debug)]
pub struct Conn {
    side: Side,
    settings: Settings,
    peer: PeerLimits,
    store: Store,
    sched: Sched,
    liveness: Liveness,
    events: VecDeque<Event>,
    news: VecDeque<StreamKey>,
    untold: VecDeque<StreamKey>,
    untold_due: Option<Moment>,
    next_id: u32,
    highest_open: u32,
    going_away: Option<GoAwayReason>,
    peer_going_away: bool,
    apps_revision: u64,
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
            events: VecDeque::new(),
            news: VecDeque::new(),
            untold: VecDeque::new(),
            untold_due: None,
            next_id: 1,
            highest_open: 0,
            going_away: None,
            peer_going_away: false,
            apps_revision: 0,
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
        if self.untold_due.is_some_and(|due| due <= now) {
            self.tell_untold(now);
        }
        match self.liveness.tick(now) {
            Pulse::Quiet => Ok(()),
            Pulse::Ping(bytes) => {
                self.sched.ping(bytes);
                Ok(())
            }
            Pulse::Dead => Err(self.fail(ConnError::Dead)),
        }
    }

    /// When [`Conn::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Moment {
        let due = self.liveness.due();
        self.untold_due.map_or(due, |untold| untold.min(due))
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

    fn alive(&self) -> Result<(), ConnError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: ConnError) -> ConnError {
        if matches!(error, ConnError::Wire(_) | ConnError::Breach(_)) {
            self.sched.goaway(Frame::GoAway {
                last: StreamId(self.highest_open),
                reason: GoAwayReason::ProtocolError,
                deadline: Duration::ZERO,
            });
        }
        self.failed = Some(error.clone());
        for key in self.store.keys() {
            self.end_lost(key);
        }
        error
    }

    fn end_lost(&mut self, key: StreamKey) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        if stream.ended.is_none() {
            let ended = if stream.phase == Phase::Queued {
                Ended::NotOpened
            } else {
                Ended::Lost
            };
            self.end(key, ended);
        }
    }

    // ---- gateway: opening and giving up ----------------------------------------------------

    /// Queues a new stream to an app; nothing is emitted before the next `poll_transmit`.
    ///
    /// # Errors
    /// [`OpenError`] if the tunnel takes no new streams; the peer has heard nothing then.
    pub fn open(&mut self, now: Moment, mut open: Open) -> Result<StreamKey, OpenError> {
        debug_assert_eq!(self.side, Side::Gateway);
        if self.failed.is_some() {
            return Err(OpenError::Lost);
        }
        if self.takes_no_streams() {
            return Err(OpenError::GoingAway);
        }
        if self.store.len() >= self.settings.max_streams.min(self.peer.max_streams) as usize {
            return Err(OpenError::Full);
        }
        open.credit = self.settings.initial_window;
        let (window, credit) = (self.settings.initial_window, self.peer.initial_credit);
        let deadline = now + open.remaining;
        let key = self.store.insert(|key| {
            Stream::new(
                key,
                open,
                deadline,
                Phase::Queued,
                RecvHalf::new(window, now),
            )
        });
        if let Some(stream) = self.store.find(key) {
            stream.out.grant(u64::from(credit));
            stream.pending.open = true;
        }
        self.owe(key);
        Ok(key)
    }

    /// Marks where an exchange begins; answers its start offset.
    pub fn begin(&mut self, key: StreamKey, begin: Begin) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        let start = stream.out.begin(begin);
        self.offer(key);
        start
    }

    /// Asks the agent to write nothing more and to count. Forgets what was not emitted; answers
    /// the highest offset ever emitted. `linger`: the whole request was queued before this call.
    pub fn fence(&mut self, key: StreamKey, linger: bool) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        let whole = stream.out.is_drained();
        let emitted = stream.out.forget();
        if stream.phase == Phase::Queued {
            self.end(key, Ended::NotOpened);
        } else if stream.ended.is_none() && stream.fenced.is_none() && !stream.reset {
            stream.fenced = Some(linger && whole);
            stream.pending.fence = true;
            self.owe(key);
        }
        emitted
    }

    /// Ends both directions abruptly. Forgets what was not emitted and what was not read; answers
    /// the highest offset ever emitted.
    pub fn reset(&mut self, key: StreamKey, code: ResetCode) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        let emitted = stream.out.forget();
        stream.inn.discard(Taken::Counted);
        if stream.phase == Phase::Queued {
            self.end(key, Ended::NotOpened);
        } else if stream.ended.is_none() && !stream.reset {
            stream.reset = true;
            stream.pending.fence = false;
            stream.pending.reset = Some(code);
            self.owe(key);
        }
        emitted
    }

    // ---- both sides: bytes -----------------------------------------------------------------

    /// Bytes that [`Conn::write`] would take now; zero also when writing is over (see [`Conn::is_writable`]).
    #[must_use]
    pub fn room(&self, key: StreamKey) -> usize {
        self.store
            .get(key)
            .filter(|s| s.ended.is_none())
            .map_or(0, |s| {
                s.out
                    .room(self.settings.queue_limit, self.settings.retain_limit)
            })
    }

    /// False once nothing will ever be taken again.
    #[must_use]
    pub fn is_writable(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_some_and(|s| s.ended.is_none() && !s.out.is_shut() && !s.out.is_finished())
    }

    /// Takes bytes from the front of `bytes`, as many as there is room for; answers how many.
    pub fn write(&mut self, key: StreamKey, bytes: &mut Bytes) -> usize {
        let count = self.room(key).min(bytes.len());
        if count > 0
            && let Some(stream) = self.store.find(key)
        {
            stream.out.push(bytes.split_to(count));
            if std::mem::take(&mut stream.untold_begin) {
                self.tell(self.latest, key, Due::Any);
            }
            self.offer(key);
        }
        count
    }

    /// Ends this side's direction after what was written.
    pub fn finish(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && stream.ended.is_none()
            && !stream.out.is_shut()
        {
            stream.out.finish();
            self.offer(key);
        }
    }

    /// Up to `max` received bytes; they count as consumed. `None`: nothing is there.
    pub fn read(&mut self, now: Moment, key: StreamKey, max: usize) -> Option<Bytes> {
        let stream = self.store.find(key)?;
        let bytes = stream.inn.take(max)?;
        self.told_or_later(now, key);
        Some(bytes)
    }

    /// True once the peer's direction has ended and everything was read.
    #[must_use]
    pub fn is_read_out(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_none_or(|s| s.inn.is_empty() && (s.inn.fin() || s.ended.is_some()))
    }

    /// True once the peer ended its direction in order (FIN) and everything was read.
    #[must_use]
    pub fn is_read_to_fin(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_some_and(|s| s.inn.is_empty() && s.inn.fin())
    }

    // ---- agent: the app's side -------------------------------------------------------------

    /// What the gateway asked for, and when its time is over.
    #[must_use]
    pub fn asked(&self, key: StreamKey) -> Option<(&Open, Moment)> {
        self.store.get(key).map(|s| (&s.open, s.deadline))
    }

    /// The app's connection stands and nothing was written yet.
    pub fn opened(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && stream.phase == Phase::Opening
        {
            stream.phase = Phase::Open;
            stream.pending.opened = true;
            self.owe(key);
        }
    }

    /// The stream cannot be handed to the app. Only before [`Conn::opened`].
    pub fn refuse(&mut self, key: StreamKey, reason: RefusedReason, errno: u16) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        if stream.phase != Phase::Opening || stream.ended.is_some() {
            return;
        }
        debug_assert_eq!(stream.inn.taken(), 0);
        if stream.reset || stream.fenced.is_some() {
            self.conclude(key, FinalCause::Reset);
            return;
        }
        stream.inn.discard(Taken::Evidence);
        stream.out.forget();
        stream.pending.refused = Some((reason, errno));
        self.owe(key);
    }

    /// What stands at the front of the bytes for the app.
    #[must_use]
    pub fn front(&self, key: StreamKey) -> Front {
        let Some(stream) = self.store.get(key) else {
            return Front::Closed { idle: false };
        };
        if stream.reset || stream.ended.is_some() || stream.phase >= Phase::Concluding {
            return Front::Closed {
                idle: stream.was_idle,
            };
        }
        if let Some(linger) = stream.fenced {
            return Front::Fenced {
                linger: linger && stream.inn.taken() == stream.inn.received(),
            };
        }
        match stream.inn.front() {
            Some(Item::Data(bytes)) => Front::Bytes(bytes.clone()),
            Some(Item::Begin(begin, deadline)) => Front::Begin {
                begin: *begin,
                deadline: *deadline,
            },
            None if stream.inn.fin() => Front::Fin,
            None => Front::Empty,
        }
    }

    /// The app's socket accepted `count` bytes of the front piece. Must be called in the same step
    /// as the write, before any other event is handled: this number is the evidence.
    pub fn app_took(&mut self, now: Moment, key: StreamKey, count: usize) {
        if let Some(stream) = self.store.find(key) {
            let taken = stream.inn.take(count);
            debug_assert_eq!(taken.map(|b| b.len()), Some(count));
            self.told_or_later(now, key);
        }
    }

    /// The freshness check of the BEGIN at the front was passed; its bytes may be written.
    pub fn begun(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key) {
            stream.inn.pop_begin();
            stream.untold_begin = true;
            stream.out.mark_fresh();
        }
    }

    /// Bytes read from the app and taken into the stream so far.
    #[must_use]
    pub fn app_read(&self, key: StreamKey) -> u64 {
        self.store.get(key).map_or(0, |s| s.out.end())
    }

    /// The stream is over at the agent; FINAL follows what was read (at once after a reset).
    pub fn conclude(&mut self, key: StreamKey, cause: FinalCause) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        if stream.phase >= Phase::Concluding || stream.pending.refused.is_some() {
            return;
        }
        stream.phase = Phase::Concluding;
        stream.inn.discard(Taken::Evidence);
        let cause = if stream.reset {
            stream.out.forget();
            FinalCause::Reset
        } else {
            cause
        };
        stream.pending.conclude = Some(cause);
        self.owe(key);
    }

    /// Announces the apps; the last list wins if several are waiting.
    pub fn announce(&mut self, apps: Vec<AppOffer>) {
        self.apps_revision += 1;
        self.sched.apps(Frame::Apps {
            revision: self.apps_revision,
            apps,
        });
    }

    // ---- both sides: life ------------------------------------------------------------------

    /// Takes nothing new from now on and says so.
    pub fn drain(&mut self, reason: GoAwayReason, deadline: Duration) {
        if self.going_away.is_none() {
            self.going_away = Some(reason);
            self.sched.goaway(Frame::GoAway {
                last: StreamId(self.highest_open),
                reason,
                deadline,
            });
            self.wake_everyone();
        }
    }

    /// The gateway's handle is gone: a live stream is reset.
    pub fn release(&mut self, key: StreamKey) {
        self.reset(key, ResetCode::Cancelled);
        self.forget_handle(key);
    }

    /// What can be seen of a stream.
    #[must_use]
    pub fn view(&self, key: StreamKey) -> Option<View> {
        self.store.get(key).map(|s| View {
            opened: s.phase >= Phase::Open,
            emitted: s.out.emitted(),
            queued_to: s.out.end(),
            consumed: s.out.consumed(),
            received: s.inn.received(),
            taken: s.inn.taken(),
            ended: s.ended,
            counted: s.counted,
            closing: self.takes_no_streams(),
        })
    }

    /// The agent's handle is gone: an unanswered stream is refused, an open one concluded.
    pub fn let_go(&mut self, key: StreamKey) {
        if self
            .store
            .get(key)
            .is_some_and(|s| s.phase == Phase::Opening)
        {
            self.refuse(key, RefusedReason::Draining, 0);
        }
        if let Some(stream) = self.store.find(key)
            && stream.phase == Phase::Open
        {
            stream.out.forget();
            self.conclude(key, FinalCause::Stopping);
        }
        self.forget_handle(key);
    }

    fn forget_handle(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key) {
            stream.released = true;
            if stream.is_over() {
                self.store.remove(key);
            }
        }
    }

    /// True if `poll_transmit` would emit something.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.sched.is_empty()
    }

    /// True if the next deadline may have moved nearer since the last transmit.
    #[must_use]
    pub fn wants_timer(&self) -> bool {
        self.untold.len() == 1
    }

    /// Streams that have not ended.
    #[must_use]
    pub fn live_streams(&self) -> usize {
        self.store.iter().filter(|s| !s.is_over()).count()
    }

    /// True once no stream may be opened. A gateway that drains only tells its agents to dial
    /// elsewhere; its own clients are served through the old tunnel until they are gone.
    #[must_use]
    pub fn takes_no_streams(&self) -> bool {
        let own = match self.side {
            Side::Gateway => self.next_id >= ID_CEILING,
            Side::Agent => self.going_away.is_some(),
        };
        own || self.peer_going_away || self.failed.is_some()
    }

    /// True once either side has said that it goes away.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.going_away.is_some() || self.peer_going_away || self.failed.is_some()
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
        stream.out.forget();
        stream.pending = stream::Pending::default();
        let (id, released) = (stream.id, stream.released);
        if let Some(id) = id {
            self.store.unbind(id);
        }
        if released {
            self.store.remove(key);
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
        }
    }

    fn told_or_later(&mut self, now: Moment, key: StreamKey) {
        self.latest = now;
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

    fn tell(&mut self, now: Moment, key: StreamKey, due: Due) {
        let rtt = self.liveness.rtt().unwrap_or_default();
        let max = self.settings.max_window;
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

    /// Panics in debug builds if the state contradicts itself. For tests.
    pub fn check_invariants(&self) {
        for stream in self.store.iter() {
            stream.out.check();
            stream.inn.check();
            debug_assert_eq!(
                stream.phase == Phase::Ended,
                stream.ended.is_some(),
                "{stream:?}"
            );
            debug_assert!(
                stream.id.is_some()
                    || stream.phase <= Phase::Queued
                    || stream.phase == Phase::Ended
            );
        }
    }
}
