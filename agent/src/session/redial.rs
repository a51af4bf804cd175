//! The way back of one tunnel whose carrier was lost: when to dial, what to say, when to give up.
//!
//! ```text
//!              Cut                Dialled           LetBack
//!   Carried ─────────► Dialling ──────────► Shaking ────────► Carried (GoOn)
//!              │ not at    ▲ │ failed          │ failed, "later"
//!              │ once      │ ▼                 ▼
//!              └────────► Waiting ◄────────────┘        gone, or a refusal that
//!                          (Timer)                      stays: GivenUp
//! ```
//! Pure: events and `now` in, actions out by [`Redial::poll_action`]. How long the tunnel waits for
//! its carrier is the tunnel's own business; here the window only keeps the pauses short enough to be
//! of use. Invariants: one dial or handshake at a time; each handshake names a higher epoch than any
//! before, so that an attempt which was overtaken is known as such.

use std::collections::VecDeque;
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{Refuse, RefuseCode};

use super::backoff::{Backoff, FLOOR};

/// A pause takes at most this part of what is left of the window.
const PART_OF_WINDOW: u32 = 4;

/// Nor longer than this: exchanges wait behind it, each with a window of its own. The resume window
/// bounds how many tries that makes, and a gateway that has too many asks for more time itself.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The carrier is gone, and the tunnel waits for another.
    Cut,
    /// The time asked for by [`Action::WaitUntil`] is over.
    Timer,
    /// A connection stands.
    Dialled,
    /// It does not.
    DialFailed,
    /// The gateway continues the tunnel.
    LetBack,
    /// The gateway does not.
    Refused(Refuse),
    /// The handshake broke or took too long.
    ShakeFailed,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Resolve and connect.
    Dial,
    /// Say HELLO with the tunnel's ticket and this epoch.
    Shake(u32),
    /// Hand the carrier to the tunnel.
    GoOn,
    /// Report [`Event::Timer`] then.
    WaitUntil(Moment),
    /// End the tunnel: nobody will continue it.
    GiveUp,
}

/// Private state; see the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Carried { since: Moment },
    Dialling,
    Shaking,
    Waiting,
    GivenUp,
}

/// The way back of one tunnel.
#[derive(Debug)]
pub struct Redial {
    state: State,
    backoff: Backoff,
    window: Duration,
    /// When the window of the present cut is over.
    until: Moment,
    epoch: u32,
    actions: VecDeque<Action>,
}

impl Redial {
    /// For a tunnel that came up at `since` with a carrier of this epoch.
    #[must_use]
    pub fn new(seed: u64, window: Duration, epoch: u32, since: Moment) -> Self {
        Self {
            state: State::Carried { since },
            backoff: Backoff::new(seed),
            window,
            until: since,
            epoch,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes one event. One that does not fit the state is a late echo and is ignored.
    pub fn handle(&mut self, now: Moment, event: Event) {
        match (self.state, event) {
            (State::Carried { since }, Event::Cut) => {
                self.until = now + self.window;
                let wait = self.backoff.after_cut(now, since);
                if wait.is_zero() {
                    self.dial();
                } else {
                    self.wait(now, wait);
                }
            }
            (State::Waiting, Event::Timer) => self.dial(),
            (State::Dialling, Event::Dialled) => {
                self.state = State::Shaking;
                self.epoch = self.epoch.saturating_add(1);
                self.actions.push_back(Action::Shake(self.epoch));
            }
            (State::Dialling, Event::DialFailed) | (State::Shaking, Event::ShakeFailed) => {
                let wait = self.backoff.after_failure();
                self.wait(now, wait);
            }
            (State::Shaking, Event::LetBack) => {
                self.state = State::Carried { since: now };
                self.actions.push_back(Action::GoOn);
            }
            (State::Shaking, Event::Refused(refuse)) => self.refused(now, &refuse),
            (_, _) => {}
        }
    }

    fn dial(&mut self) {
        self.state = State::Dialling;
        self.actions.push_back(Action::Dial);
    }

    /// The last tries come closer together: one that comes after the window helps nobody.
    fn wait(&mut self, now: Moment, wait: Duration) {
        let part = self.until.since(now) / PART_OF_WINDOW;
        self.state = State::Waiting;
        let until = now + wait.min(part.max(FLOOR)).min(LONGEST_PAUSE);
        self.actions.push_back(Action::WaitUntil(until));
    }

    fn refused(&mut self, now: Moment, refuse: &Refuse) {
        let is_final = refuse.permanent
            || match refuse.code {
                RefuseCode::ResumeGone | RefuseCode::StaleEpoch => true,
                RefuseCode::Unauthorized
                | RefuseCode::ScopeDenied
                | RefuseCode::VersionUnsupported
                | RefuseCode::Malformed
                | RefuseCode::Busy
                | RefuseCode::Draining => false,
            };
        if is_final {
            self.state = State::GivenUp;
            self.actions.push_back(Action::GiveUp);
            return;
        }
        // Asked to stay away for a while: no attempt before, whatever is left of the window.
        let wait = self.backoff.after_refusal(refuse.retry_after);
        self.state = State::Waiting;
        self.actions.push_back(Action::WaitUntil(now + wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(20);

    fn at(millis: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(millis)
    }

    fn feed(
        redial: &mut Redial,
        now: Moment,
        events: impl IntoIterator<Item = Event>,
    ) -> Vec<Action> {
        for event in events {
            redial.handle(now, event);
        }
        std::iter::from_fn(|| redial.poll_action()).collect()
    }

    fn refuse(code: RefuseCode) -> Refuse {
        Refuse::of(code, "no")
    }

    fn waited(now: Moment, actions: &[Action]) -> Moment {
        match actions {
            [.., Action::WaitUntil(until)] => {
                assert!(*until > now);
                *until
            }
            other => panic!("no wait: {other:?}"),
        }
    }

    #[test]
    fn a_cut_is_answered_at_once_with_the_next_epoch() {
        let mut redial = Redial::new(1, WINDOW, 1, at(0));
        for (cut, epoch) in [(60_000, 2), (120_000, 3)] {
            let done = feed(
                &mut redial,
                at(cut),
                [Event::Cut, Event::Dialled, Event::LetBack],
            );
            assert_eq!(done, [Action::Dial, Action::Shake(epoch), Action::GoOn]);
        }
    }

    #[test]
    fn a_handshake_whose_answer_was_lost_costs_an_epoch_and_nothing_else() {
        let mut redial = Redial::new(1, WINDOW, 7, at(0));
        let done = feed(
            &mut redial,
            at(9_000),
            [Event::Cut, Event::Dialled, Event::ShakeFailed],
        );
        assert_eq!(done[..2], [Action::Dial, Action::Shake(8)]);
        let again = waited(at(9_000), &done);
        let done = feed(
            &mut redial,
            again,
            [Event::Timer, Event::Dialled, Event::LetBack],
        );
        assert_eq!(done, [Action::Dial, Action::Shake(9), Action::GoOn]);
    }

    #[test]
    fn tries_come_often_enough_to_use_the_whole_window() {
        for seed in 0..200 {
            let mut redial = Redial::new(seed, WINDOW, 1, at(0));
            let mut now = at(60_000);
            let end = now + WINDOW;
            let mut actions = feed(&mut redial, now, [Event::Cut]);
            let mut tries = 0;
            while now < end {
                if actions == [Action::Dial] {
                    tries += 1;
                    actions = feed(&mut redial, now, [Event::DialFailed]);
                }
                let next = waited(now, &actions);
                let most = (end.since(now) / PART_OF_WINDOW).max(FLOOR);
                let most = most.min(LONGEST_PAUSE);
                assert!(next.since(now) <= most, "{:?}", next.since(now));
                now = next;
                actions = feed(&mut redial, now, [Event::Timer]);
            }
            assert!((8..200).contains(&tries), "{tries} tries");
        }
    }

    #[test]
    fn a_gateway_that_lets_back_and_drops_is_not_hammered() {
        let mut redial = Redial::new(3, WINDOW, 1, at(0));
        let mut now = at(60_000);
        let mut back = 0;
        while now < at(90_000) {
            let mut actions = feed(&mut redial, now, [Event::Cut]);
            if let [Action::WaitUntil(until)] = actions[..] {
                now = until;
                actions = feed(&mut redial, now, [Event::Timer]);
            }
            assert_eq!(actions, [Action::Dial]);
            feed(&mut redial, now, [Event::Dialled, Event::LetBack]);
            back += 1;
            now += Duration::from_millis(1);
        }
        assert!(back < 100, "{back} times in half a minute");
    }

    #[test]
    fn cuts_that_are_seconds_apart_are_all_answered_at_once() {
        let mut redial = Redial::new(3, WINDOW, 1, at(0));
        for cut in 1..100 {
            let done = feed(
                &mut redial,
                at(cut * 2_000),
                [Event::Cut, Event::Dialled, Event::LetBack],
            );
            assert_eq!(done[0], Action::Dial, "cut {cut}");
        }
    }

    #[test]
    fn a_tunnel_that_is_gone_or_denied_is_given_up_at_once_and_for_good() {
        for code in [
            RefuseCode::ResumeGone,
            RefuseCode::StaleEpoch,
            RefuseCode::Unauthorized,
            RefuseCode::ScopeDenied,
        ] {
            let mut redial = Redial::new(1, WINDOW, 1, at(0));
            let refused = Event::Refused(refuse(code));
            let done = feed(
                &mut redial,
                at(9_000),
                [Event::Cut, Event::Dialled, refused],
            );
            assert_eq!(done.last(), Some(&Action::GiveUp), "{code:?}");
            assert_eq!(feed(&mut redial, at(9_001), [Event::Cut, Event::Timer]), []);
        }
    }

    #[test]
    fn a_gateway_that_asks_for_time_gets_it() {
        let mut redial = Redial::new(1, WINDOW, 1, at(0));
        let busy = Event::Refused(refuse(RefuseCode::Busy));
        let done = feed(&mut redial, at(9_000), [Event::Cut, Event::Dialled, busy]);
        assert!(waited(at(9_000), &done) >= at(14_000));
    }
}
