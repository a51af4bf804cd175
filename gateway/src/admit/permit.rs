//! The proof of admission. It travels inside the exchange, and whatever it holds is given back by
//! its drop: a place in flight or in the line, one for a long-lived exchange, a slot for a large
//! body, the right to probe.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Code, Reason};

use super::denied::{Denied, Limit};
use super::gate::{Gate, limit, line, wake};
use super::net::Client;
use super::queue::{Joined, Turn};
use super::rate::Standing;
use super::share::Bounds;
use crate::config::Admission;

/// How an exchange ended, as far as limits learn from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The app's answer went out, with this status.
    Answered(u16),
    /// The gateway answered in the app's place, or cut the answer, after it had handed the request
    /// over or a window ran out.
    Failed(Code, Reason),
}

impl Ending {
    pub(super) fn is_timeout(self) -> bool {
        match self {
            Self::Failed(code, _) => code == Code::BhAppTimeout,
            Self::Answered(_) => false,
        }
    }
}

/// What a permit holds beside its place.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) probe: bool,
    pub(super) large_body: bool,
    /// Reserved for an upgrade that the app has not agreed to yet.
    pub(super) long_lived: bool,
}

/// Where the exchange stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Waiting(Turn),
    InFlight(Turn),
    /// It waits for its app to come back. It does not occupy the app; it counts in the line.
    Held(Turn),
    LongLived,
}

impl Place {
    fn turn(self) -> Option<Turn> {
        match self {
            Self::Waiting(turn) | Self::InFlight(turn) | Self::Held(turn) => Some(turn),
            Self::LongLived => None,
        }
    }
}

/// Proof that an exchange may go on.
#[derive(Debug)]
#[must_use = "the exchange is out again when this is dropped"]
pub struct Permit {
    gate: Arc<Gate>,
    taken: Taken,
    place: Place,
    /// Its hold goes on; never so in a long-lived place.
    held: bool,
    client: Client,
    /// The client by its address, as shares are counted.
    origin: Client,
    line: Bounds,
    long_lived_places: Bounds,
    quarantine: Option<Duration>,
    error_loop: Option<usize>,
    standing: Option<Standing>,
}

impl Permit {
    pub(super) fn new(
        gate: Arc<Gate>,
        taken: Taken,
        place: Place,
        client: Client,
        origin: Client,
        limits: &Admission,
        standing: Option<Standing>,
    ) -> Self {
        Self {
            gate,
            taken,
            place,
            held: false,
            client,
            origin,
            line: line(limits),
            long_lived_places: Bounds::new(limits.long_lived, limits.client_share),
            quarantine: limits.quarantine,
            error_loop: limits.error_loop,
            standing,
        }
    }

    /// Where the request stands with its rate limits, if any are set.
    #[must_use]
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// True if it holds a slot for a large body.
    #[must_use]
    pub fn has_large_body(&self) -> bool {
        self.taken.large_body
    }

    /// True while it has no place yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Waiting(_))
    }

    /// True while it waits although places are free: its client has all that one may have.
    #[must_use]
    pub fn waits_for_its_client(&self) -> bool {
        match self.place {
            Place::Waiting(turn) => self.gate.lock().line.waits_for_itself(turn),
            Place::InFlight(_) | Place::Held(_) | Place::LongLived => false,
        }
    }

    /// The denial of one that waited for so long.
    #[must_use]
    pub fn waited(&self, time: Duration) -> Denied {
        match self.waits_for_its_client() {
            true => Denied::ShareWait(time),
            false => Denied::QueueWait(time),
        }
    }

    /// Ready once the exchange may occupy its app. Cancel safe; the last waker counts.
    pub fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Place::Waiting(turn) = self.place else {
            return Poll::Ready(());
        };
        let polled = self.gate.lock().line.poll(turn, cx);
        if polled.is_ready() {
            self.place = Place::InFlight(turn);
        }
        polled
    }

    /// The exchange waits for its app to come back and gives its place to others. A long-lived one
    /// waits in the place that it has.
    ///
    /// # Errors
    /// The limit that is reached: those who are held count among those who wait in the line, and no
    /// more of them may. One whose hold goes on is held on in any case.
    pub fn hold(&mut self) -> Result<(), Limit> {
        let Place::InFlight(turn) = self.place else {
            return Ok(());
        };
        let held = self.gate.lock().line.hold(turn, self.line);
        wake(held.map_err(|reached| limit(self.line, reached))?);
        self.place = Place::Held(turn);
        self.held = true;
        Ok(())
    }

    /// It tries again: it has a place, or waits where it stood before. The hold goes on.
    pub fn rejoin(&mut self) {
        if let Place::Held(turn) = self.place {
            self.place = match self.gate.lock().line.rejoin(turn) {
                Joined::In => Place::InFlight(turn),
                Joined::Waits | Joined::Full(_) | Joined::ShareFull(_) => Place::Waiting(turn),
            };
        }
    }

    /// The hold is over: the app is back.
    pub fn end_hold(&mut self) {
        let held = std::mem::take(&mut self.held);
        if let Some(turn) = self.place.turn().filter(|_| held) {
            self.gate.lock().line.end_hold(turn);
        }
    }

    /// The exchange became an upgrade or a stream: it gives its place in flight for a long-lived
    /// one. If none is left it keeps the place it has, since a begun answer is not broken for this.
    pub fn become_long_lived(&mut self) -> bool {
        let Place::InFlight(turn) = self.place else {
            return self.place == Place::LongLived;
        };
        let mut inner = self.gate.lock();
        if !std::mem::take(&mut self.taken.long_lived) {
            let taken = inner.long_lived.take(self.origin, self.long_lived_places);
            if taken.is_err() {
                return false;
            }
        }
        self.place = Place::LongLived;
        let wakers = inner.line.release(turn);
        if std::mem::take(&mut self.held) {
            inner.line.end_hold(turn);
        }
        drop(inner);
        wake(wakers);
        true
    }

    /// Tells how the exchange ended. Not told, it says nothing: its client left.
    pub fn ended(&mut self, now: Moment, ending: Ending) {
        if self.quarantine.is_none() && self.error_loop.is_none() {
            return;
        }
        let probe = std::mem::take(&mut self.taken.probe);
        let limits = (self.quarantine, self.error_loop);
        self.gate
            .lock()
            .learn(now, limits, self.client, probe, ending);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inner = self.gate.lock();
        inner.give_back(&self.taken, self.origin);
        let wakers = match self.place {
            Place::Waiting(turn) => inner.line.leave(turn),
            Place::InFlight(turn) => inner.line.release(turn),
            Place::Held(_) => Vec::new(),
            Place::LongLived => {
                inner.long_lived.give_back(self.origin);
                Vec::new()
            }
        };
        if let Some(turn) = self.place.turn().filter(|_| self.held) {
            inner.line.end_hold(turn);
        }
        drop(inner);
        wake(wakers);
    }
}
