//! Several exchanges under one key, told together.
//!
//! A caller that repeats a request repeats its key. What is said of the key has to be true of all
//! its exchanges: `answered` if one was, `not_delivered` only if none was handed over. Pure.

use bridgehead_protocol::verdict::{Delivery, Stage};

use super::State;
use super::entry::Outcome;
use super::store::Serial;

/// Exchanges of one key that are told apart; of more only the latest.
const EXCHANGES: usize = 8;

/// The exchanges of one key.
#[derive(Debug, Default)]
pub(super) struct KeyPage {
    serials: Vec<Serial>,
    /// An exchange of this key was forgotten that was not proven undelivered.
    forgot: bool,
}

impl KeyPage {
    /// Adds an exchange; answers the oldest if there are too many.
    pub(super) fn add(&mut self, serial: Serial) -> Option<Serial> {
        self.serials.push(serial);
        (self.serials.len() > EXCHANGES).then(|| self.serials.remove(0))
    }

    /// An exchange of this key is forgotten, of which this was to be said.
    pub(super) fn forget(&mut self, serial: Serial, state: State) {
        self.serials.retain(|known| *known != serial);
        self.forgot |= state != State::NotDelivered;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.serials.is_empty()
    }

    pub(super) fn serials(&self) -> &[Serial] {
        &self.serials
    }

    /// What is said of all of them.
    pub(super) fn together(&self, outcomes: impl Iterator<Item = Outcome>) -> Option<Outcome> {
        let told = outcomes.max_by_key(|outcome| weight(outcome.state))?;
        if self.forgot && told.state == State::NotDelivered {
            return Some(Outcome {
                state: State::Unknown,
                delivery: Delivery::Unknown,
                stage: Stage::None,
                ..told
            });
        }
        Some(told)
    }
}

/// What is true of one of several is said of all of them in this order; of equals the latest.
const fn weight(state: State) -> u8 {
    match state {
        State::Answered => 3,
        State::Pending => 2,
        State::Unknown => 1,
        State::NotDelivered => 0,
    }
}
