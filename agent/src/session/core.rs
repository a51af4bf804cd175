//! One slot for a tunnel: what happens next when something happened.
//!
//! ```text
//!            Start             Dialled          Welcomed
//!   Idle ───────────► Dialling ───────► Shaking ────────► Up
//!                      ▲  │ failed        │ failed,        │ Lost
//!                Timer │  ▼               ▼ refused        ▼
//!                      └─ Waiting ◄───────┴────────────────┤
//!                                                          │ GoAway: the old tunnel is retired (it drains
//!                      Dialling ◄──────────────────────────┤ beside) and a new one is dialled at once
//!                                                          │ Stop
//!            Ended ◄── Closed ── Draining ◄────────────────┘      Stop in any other state: Ended
//! ```
//!
//! Pure: events and `now` in, actions out by [`Session::poll_action`]. Must not dial, sleep or log.
//! Invariants: at most one dial, one handshake and one serving tunnel at a time; retired tunnels are the
//! runner's; after `Ended` there is no further action; nothing but `Stop` leads there: a gateway
//! that is away, or a token that it does not know yet, may be mended at any time without this agent.

use std::collections::VecDeque;
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{GoAwayReason, Refuse};

use super::backoff::{Backoff, CEILING};

/// Whether dialling again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The network's or the gateway's; it passes.
    Passing,
    /// A mistake in the set-up that a person must mend, such as a certificate of a stranger.
    SetUp,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Begin.
    Start,
    /// The time asked for by [`Action::WaitUntil`] is over.
    Timer,
    /// The carrier stands.
    Dialled,
    /// It does not.
    DialFailed(Fault),
    /// The gateway let the agent in.
    Welcomed,
    /// The gateway did not.
    Refused(Refuse),
    /// The handshake broke or took too long.
    ShakeFailed,
    /// The tunnel that was up is gone.
    Lost,
    /// The gateway starts nothing more on the tunnel that is up.
    GoAway(GoAwayReason),
    /// The agent shall stop in order.
    Stop,
    /// The tunnel that was draining is closed, or its time is over.
    Closed,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Resolve and connect.
    Dial,
    /// Say HELLO on the new carrier.
    Shake,
    /// Serve the streams of the new tunnel.
    Serve,
    /// Let the tunnel that is up drain beside, out of this slot; its end is no longer reported here.
    Retire,
    /// Send GOAWAY on the tunnel that is up, serve what runs, report [`Event::Closed`].
    Drain,
    /// Report [`Event::Timer`] then.
    WaitUntil(Moment),
    /// Nothing more.
    End,
}

/// Private state; see the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Dialling,
    Shaking,
    Up { since: Moment },
    Waiting,
    Draining,
    Ended,
}

/// One slot.
#[derive(Debug)]
pub struct Session {
    state: State,
    backoff: Backoff,
    actions: VecDeque<Action>,
}

impl Session {
    /// A slot whose waiting times depend on the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: State::Idle,
            backoff: Backoff::new(seed),
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// True while a tunnel is up and accepts streams.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// True once nothing more will happen.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes one event. One that does not fit the state is a late echo of an earlier one and is ignored.
    pub fn handle(&mut self, now: Moment, event: Event) {
        match (self.state, event) {
            (State::Idle, Event::Start) | (State::Waiting, Event::Timer) => self.dial(),
            (State::Dialling, Event::Dialled) => {
                self.state = State::Shaking;
                self.actions.push_back(Action::Shake);
            }
            (State::Dialling, Event::DialFailed(Fault::SetUp)) => {
                let wait = self.backoff.after_permanent_refusal(Duration::ZERO);
                self.wait(now, wait);
            }
            (State::Dialling, Event::DialFailed(Fault::Passing))
            | (State::Shaking, Event::ShakeFailed) => {
                let wait = self.backoff.after_failure();
                self.wait(now, wait);
            }
            (State::Shaking, Event::Welcomed) => {
                self.state = State::Up { since: now };
                self.actions.push_back(Action::Serve);
            }
            (State::Shaking, Event::Refused(refuse)) => self.refused(now, &refuse),
            (State::Up { since }, Event::Lost) => {
                let wait = self.backoff.after_loss(now, since);
                if wait.is_zero() {
                    self.dial()
                } else {
                    self.wait(now, wait)
                }
            }
            (State::Up { since }, Event::GoAway(reason)) => self.go_away(now, since, reason),
            (State::Up { .. }, Event::Stop) => {
                self.state = State::Draining;
                self.actions.push_back(Action::Drain);
            }
            (State::Draining, Event::Closed | Event::Lost) => self.end(),
            (State::Idle | State::Dialling | State::Shaking | State::Waiting, Event::Stop) => {
                self.end();
            }
            (_, _) => {}
        }
    }

    fn dial(&mut self) {
        self.state = State::Dialling;
        self.actions.push_back(Action::Dial);
    }

    fn wait(&mut self, now: Moment, wait: Duration) {
        self.state = State::Waiting;
        self.actions.push_back(Action::WaitUntil(now + wait));
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.actions.push_back(Action::End);
    }

    fn refused(&mut self, now: Moment, refuse: &Refuse) {
        let wait = match refuse.permanent {
            true => self.backoff.after_permanent_refusal(refuse.retry_after),
            false => self.backoff.after_refusal(refuse.retry_after),
        };
        self.wait(now, wait);
    }

    /// Replace first, then drain: the old tunnel goes on beside while the new one is dialled.
    fn go_away(&mut self, now: Moment, since: Moment, reason: GoAwayReason) {
        self.actions.push_back(Action::Retire);
        match reason {
            GoAwayReason::Draining | GoAwayReason::IdsExhausted => {
                let wait = self.backoff.after_loss(now, since);
                if wait.is_zero() {
                    self.dial()
                } else {
                    self.wait(now, wait)
                }
            }
            // A newer instance serves; this one asks now and then whether it is still there.
            GoAwayReason::Replaced => self.wait(now, CEILING),
            GoAwayReason::Revoked => {
                let wait = self.backoff.after_permanent_refusal(Duration::ZERO);
                self.wait(now, wait);
            }
            GoAwayReason::ProtocolError => {
                let wait = self.backoff.after_failure();
                self.wait(now, wait);
            }
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
