//! The gate of one app: every limit in its order, behind one short lock shared by all workers.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::time::Moment;

use super::denied::{Denied, Limit};
use super::error_loop::{ErrorLoops, Sign};
use super::large_body;
use super::net::{self, Client};
use super::permit::{Ending, Permit, Place, Taken};
use super::quarantine::{Pass, Quarantine};
use super::queue::{Joined, Line, Wakers};
use super::rate::{Rates, Standing};
use super::share::{Bounds, Reached, Tally};
use crate::config::Admission;

/// What an exchange may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A request and its answer; a streaming answer shows itself at its head.
    Exchange,
    /// Messages both ways in one request: gRPC.
    Stream,
    /// Bytes both ways, once the app agrees: an upgrade or CONNECT.
    Pipe,
}

/// Who asks for admission, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Its address, as the access lists see it.
    pub address: IpAddr,
    /// The same, or a key, as limits tell clients apart.
    pub client: Client,
    /// Bytes of body that it says it will send.
    pub declared: Option<u64>,
    /// What the exchange may become.
    pub shape: Shape,
    /// Bytes that a body of the declared length may hold at this side.
    pub holds: u64,
    /// Bytes of memory that are left for such bodies.
    pub room: u64,
}

/// What a gate holds now, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateView {
    /// Exchanges that occupy the app.
    pub in_flight: usize,
    /// Requests that wait for a place.
    pub queued: usize,
    /// Requests whose app is away: they stand aside or try again, and count against the same limit.
    pub held: usize,
    /// Upgraded, streaming and TCP exchanges, and upgrades that are asked for.
    pub long_lived: usize,
    /// Slots for large bodies that are taken.
    pub large_bodies: usize,
    /// The rest of a quarantine; zero while its end is being probed.
    pub quarantine: Option<Duration>,
    /// Clients with a run of identical failures.
    pub failing_clients: usize,
    /// Clients that have all the places in flight that one may have.
    pub at_their_share: usize,
}

/// The gate of one app.
#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) line: Line,
    pub(super) long_lived: Tally,
    large_bodies: Tally,
    pub(super) quarantine: Quarantine,
    rates: Rates,
    loops: ErrorLoops,
}

impl Gate {
    /// Decides about one exchange. The permit may have to wait for its place, see
    /// [`Permit::poll_place`]; in the meantime it keeps its turn.
    ///
    /// # Errors
    /// The first denial.
    pub fn enter(
        self: &Arc<Self>,
        now: Moment,
        limits: &Admission,
        asker: &Asker,
    ) -> Result<Permit, Denied> {
        net::check(&limits.allow, &limits.deny, asker.address)?;
        let mut inner = self.lock();
        let wakers = inner
            .line
            .resize(Bounds::new(limits.in_flight, limits.client_share));
        let entered = inner.enter(now, limits, asker);
        drop(inner);
        wake(wakers);
        let (taken, place, standing) = entered?;
        Ok(Permit::new(
            Arc::clone(self),
            taken,
            place,
            asker.client,
            Client::at(asker.address),
            limits,
            standing,
        ))
    }

    /// The same for a client of a TCP app: nothing waits, nothing is declared.
    ///
    /// # Errors
    /// The first denial.
    pub fn enter_long_lived(
        self: &Arc<Self>,
        now: Moment,
        limits: &Admission,
        address: IpAddr,
    ) -> Result<Permit, Denied> {
        net::check(&limits.allow, &limits.deny, address)?;
        let client = Client::at(address);
        let mut inner = self.lock();
        inner.rates.check(now, limits, client)?;
        inner.take_long_lived(now, limits, client)?;
        drop(inner);
        let taken = Taken::default();
        let gate = Arc::clone(self);
        Ok(Permit::new(
            gate,
            taken,
            Place::LongLived,
            client,
            client,
            limits,
            None,
        ))
    }

    /// What it holds now.
    #[must_use]
    pub fn view(&self, now: Moment) -> GateView {
        let inner = self.lock();
        GateView {
            in_flight: inner.line.taken(),
            queued: inner.line.waiting(),
            held: inner.line.held(),
            long_lived: inner.long_lived.taken(),
            large_bodies: inner.large_bodies.taken(),
            quarantine: inner.quarantine.rest(now),
            failing_clients: inner.loops.len(),
            at_their_share: inner.line.at_their_share(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only ever called without the lock: a waker may run what asks for it.
pub(super) fn wake(wakers: Wakers) {
    wakers.into_iter().for_each(std::task::Waker::wake);
}

impl Inner {
    fn enter(
        &mut self,
        now: Moment,
        limits: &Admission,
        asker: &Asker,
    ) -> Result<(Taken, Place, Option<Standing>), Denied> {
        let standing = self.rates.check(now, limits, asker.client)?;
        let mut taken = Taken::default();
        match self.enter_further(now, limits, asker, &mut taken) {
            Ok(place) => Ok((taken, place, standing)),
            Err(denied) => {
                self.give_back(&taken, Client::at(asker.address));
                Err(denied)
            }
        }
    }

    fn enter_further(
        &mut self,
        now: Moment,
        limits: &Admission,
        asker: &Asker,
        taken: &mut Taken,
    ) -> Result<Place, Denied> {
        if limits.quarantine.is_some() {
            match self.quarantine.check(now) {
                Pass::Freely => {}
                Pass::AsProbe => taken.probe = true,
                Pass::Not(rest) => return Err(Denied::Quarantine(rest)),
            }
        } else {
            self.quarantine.clear();
        }
        if let Some(trips_at) = limits.error_loop {
            let checked = self.loops.check(now, asker.client, trips_at);
            checked.map_err(Denied::ErrorLoop)?;
        }
        let origin = Client::at(asker.address);
        if large_body::needs_slot(limits, asker) {
            let slots = Bounds::new(limits.large_body_slots, limits.client_share);
            let slot = self.large_bodies.take(origin, slots);
            slot.map_err(|reached| Denied::LargeBody(limit(slots, reached)))?;
            taken.large_body = true;
            if asker.holds > asker.room {
                return Err(Denied::LargeBodyMemory);
            }
        }
        if asker.shape == Shape::Pipe {
            self.take_long_lived(now, limits, origin)?;
            taken.long_lived = true;
        }
        let line = line(limits);
        let (turn, joined) = self.line.join(now, origin, line, limits.queue_wait);
        match joined {
            Joined::In => Ok(Place::InFlight(turn)),
            Joined::Waits => Ok(Place::Waiting(turn)),
            Joined::Full(pause) => Err(Denied::QueueFull(limit(line, Reached::All), pause)),
            Joined::ShareFull(pause) => Err(Denied::QueueFull(limit(line, Reached::Share), pause)),
        }
    }

    fn take_long_lived(
        &mut self,
        now: Moment,
        limits: &Admission,
        origin: Client,
    ) -> Result<(), Denied> {
        let places = Bounds::new(limits.long_lived, limits.client_share);
        self.long_lived.take(origin, places).map_err(|reached| {
            let pause = self.line.time_for_one(now, limits.queue_wait);
            Denied::LongLivedFull(limit(places, reached), pause)
        })
    }

    /// Gives back all but the place in the line.
    pub(super) fn give_back(&mut self, taken: &Taken, origin: Client) {
        if taken.probe {
            self.quarantine.probe_left();
        }
        if taken.large_body {
            self.large_bodies.give_back(origin);
        }
        if taken.long_lived {
            self.long_lived.give_back(origin);
        }
    }

    /// Learns from the end of an exchange.
    pub(super) fn learn(
        &mut self,
        now: Moment,
        limits: (Option<Duration>, Option<usize>),
        client: Client,
        probe: bool,
        ending: Ending,
    ) {
        let (quarantine, error_loop) = limits;
        if let Some(first) = quarantine {
            if ending.is_timeout() {
                self.quarantine.timed_out(now, probe, first);
            } else {
                self.quarantine.ended(now, probe);
            }
        }
        let Some(trips_at) = error_loop else { return };
        match ending.sign() {
            Some(sign) => self.loops.failed(now, client, sign, trips_at),
            None => self.loops.succeeded(client),
        }
    }
}

/// How many may wait for a place in flight, held exchanges among them.
pub(super) fn line(limits: &Admission) -> Bounds {
    Bounds::new(limits.queue, limits.client_share)
}

pub(super) fn limit(bounds: Bounds, reached: Reached) -> Limit {
    match reached {
        Reached::All => Limit::All(bounds.all),
        Reached::Share => Limit::Share(bounds.each),
    }
}

impl Ending {
    fn sign(self) -> Option<Sign> {
        match self {
            // Unprocessable is how apps refuse what will not change by itself.
            Self::Answered(status) => {
                (status == 422 || status >= 500).then_some(Sign::Status(status))
            }
            Self::Failed(code, reason) => Some(Sign::Code(code, reason)),
        }
    }
}
