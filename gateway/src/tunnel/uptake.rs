//! Which of an app's connections it has taken up, and which may still lie unread in its backlog. Pure.
//!
//! A connection that stands proves nothing: the kernel accepts it for an app that may never come to
//! it. Only a byte of the app does. An app that serves one connection at a time (or as many as it
//! has workers) comes to the next one when a connection that it holds ends; one that is kept idle,
//! or used again and again, locks all others out. So whoever waits without a sign has a claim on the
//! next connection that becomes free. A slow app looks the same at first; what tells them apart:
//! a backlog is served in order, so a connection that stood before another one was asked for has
//! been taken up if that other one was; and an app that held more connections at once than it holds
//! now has room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridgehead_protocol::time::Moment;

/// So long a new connection may be without a sign of the app before it has a claim.
pub const PATIENCE: Duration = Duration::from_millis(250);
/// The same where the app has held more connections at once than now; it may have changed since.
const PROVEN_PATIENCE: Duration = Duration::from_secs(2);

/// A connection in the order of asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Moment,
    /// The first connection that was asked for after this one stood.
    stood_before: Option<Ticket>,
}

/// The connections to one app through one agent.
#[derive(Debug, Default)]
pub struct Uptake {
    next: u64,
    waiting: BTreeMap<Ticket, Waiting>,
    held: BTreeSet<Ticket>,
    /// Most that were held at once, as far as the app was seen since it was last quiet.
    most: usize,
    /// Somebody waited in vain while the app held that many: from now on nobody is patient.
    full: bool,
}

impl Uptake {
    /// A connection is asked for.
    pub fn ask(&mut self, now: Moment) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let waiting = Waiting {
            since: now,
            stood_before: None,
        };
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// The agent said that it stands.
    pub fn stands(&mut self, ticket: Ticket) {
        let next = Ticket(self.next);
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.stood_before.get_or_insert(next);
        }
    }

    /// A byte of the app came on it.
    pub fn taken_up(&mut self, ticket: Ticket) {
        if self.waiting.remove(&ticket).is_none() {
            return;
        }
        self.held.insert(ticket);
        let earlier = |waiting: &Waiting| waiting.stood_before.is_some_and(|next| next <= ticket);
        let held = &mut self.held;
        self.waiting.retain(|ticket, waiting| {
            let taken = earlier(waiting);
            if taken {
                held.insert(*ticket);
            }
            !taken
        });
        if self.held.len() > self.most {
            self.most = self.held.len();
            self.full = false;
        }
    }

    /// It is over, or nobody waits for it any more.
    pub fn gone(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.held.remove(&ticket);
        if self.waiting.is_empty() && self.held.is_empty() {
            (self.most, self.full) = (0, false);
        }
    }

    /// True while the app gave no sign on it and may not have come to it.
    #[must_use]
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// Whose turn it is if a connection becomes free now; `None`: it may be kept.
    pub fn claim(&mut self, now: Moment) -> Option<Ticket> {
        let claim = self.overdue(now)?;
        self.full = true;
        self.most = self.held.len().max(1);
        Some(claim)
    }

    /// True while somebody has a claim.
    #[must_use]
    pub fn is_crowded(&self, now: Moment) -> bool {
        self.overdue(now).is_some()
    }

    /// True once the app was seen to hold several connections at once.
    #[must_use]
    pub fn holds_several(&self) -> bool {
        self.most > 1
    }

    /// The longest waiting one, if it has waited long enough.
    fn overdue(&self, now: Moment) -> Option<Ticket> {
        let (ticket, waiting) = self.waiting.first_key_value()?;
        let patience = if self.held.len() < self.most {
            PROVEN_PATIENCE
        } else if self.full {
            Duration::ZERO
        } else {
            PATIENCE
        };
        (now.since(waiting.since) >= patience).then_some(*ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    /// An app that holds one connection, and one more that stands since 0 ms.
    fn one_held_one_waiting() -> (Uptake, Ticket, Ticket) {
        let mut uptake = Uptake::default();
        let held = uptake.ask(at(0));
        uptake.stands(held);
        uptake.taken_up(held);
        let waiting = uptake.ask(at(0));
        uptake.stands(waiting);
        (uptake, held, waiting)
    }

    #[test]
    fn whoever_waits_without_a_sign_gets_a_claim_and_only_then() {
        let (mut uptake, _, waiting) = one_held_one_waiting();
        assert_eq!(uptake.claim(at(249)), None);
        assert_eq!(uptake.claim(at(250)), Some(waiting));
        uptake.taken_up(waiting);
        assert_eq!(uptake.claim(at(10_000)), None);
    }

    #[test]
    fn the_oldest_claim_comes_first() {
        let (mut uptake, _, first) = one_held_one_waiting();
        let second = uptake.ask(at(1));
        assert_eq!(uptake.claim(at(300)), Some(first));
        uptake.gone(first);
        assert_eq!(uptake.claim(at(300)), Some(second));
    }

    #[test]
    fn once_somebody_waited_in_vain_nobody_is_patient() {
        let (mut uptake, held, waiting) = one_held_one_waiting();
        assert!(uptake.claim(at(250)).is_some());
        uptake.gone(held);
        let next = uptake.ask(at(251));
        uptake.taken_up(waiting);
        assert_eq!(uptake.claim(at(251)), Some(next));
    }

    #[test]
    fn a_later_connection_that_was_taken_up_proves_that_an_earlier_one_was_too() {
        let (mut uptake, _, slow) = one_held_one_waiting();
        let later = uptake.ask(at(100));
        uptake.taken_up(later);
        assert!(!uptake.is_waiting(slow) && uptake.holds_several());
        assert_eq!(uptake.claim(at(60_000)), None);
    }

    #[test]
    fn a_connection_that_did_not_stand_yet_when_the_later_one_was_asked_for_still_waits() {
        let mut uptake = Uptake::default();
        let early = uptake.ask(at(0));
        let later = uptake.ask(at(1));
        uptake.stands(early);
        uptake.taken_up(later);
        assert_eq!(uptake.claim(at(400)), Some(early));
    }

    #[test]
    fn an_app_that_held_more_at_once_is_given_more_time_but_not_for_ever() {
        let (mut uptake, _, second) = one_held_one_waiting();
        uptake.taken_up(second);
        uptake.gone(second);
        let third = uptake.ask(at(0));
        assert_eq!(uptake.claim(at(1_999)), None);
        assert_eq!(uptake.claim(at(2_000)), Some(third));
    }

    #[test]
    fn a_quiet_app_is_judged_anew() {
        let (mut uptake, held, waiting) = one_held_one_waiting();
        assert!(uptake.claim(at(250)).is_some());
        uptake.gone(held);
        uptake.gone(waiting);
        uptake.gone(waiting);
        let next = uptake.ask(at(1000));
        assert_eq!(uptake.claim(at(1100)), None);
        assert_eq!(uptake.claim(at(1250)), Some(next));
    }
}
