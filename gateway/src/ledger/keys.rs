//! Several exchanges under one key, told together.
//!
//! A caller that repeats a request repeats its key. What is said of the key has to be true of all
//! its exchanges: `answered` if one was, `not_delivered` only if none was handed over. Pure.
//!
//! That an exchange was forgotten outlives the last one of its key by [`REMEMBERED`], so that a repeat
//! which is refused does not speak for the first try. Bounded: where a page has to go before its time,
//! every page that begins until then may be the one that went, and says no more.

use std::collections::{HashMap, VecDeque};

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Delivery, Stage};

use super::State;
use super::entry::Outcome;
use super::id::KeyDigest;
use super::store::{REMEMBERED, Serial};

/// Exchanges of one key that are told apart; of more only the latest.
const EXCHANGES: usize = 8;

/// The pages of all keys that lead to an exchange, or led to one that was forgotten.
#[derive(Debug)]
pub(super) struct Keys {
    /// Looked up, never iterated.
    pages: HashMap<KeyDigest, KeyPage>,
    /// Pages that were emptied and keep their word, in the order in which that happened.
    emptied: VecDeque<(Moment, KeyDigest)>,
    /// Most of them.
    limit: usize,
    /// Until then a page that begins may have been dropped before its time.
    blurred_until: Moment,
}

impl Keys {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            pages: HashMap::new(),
            emptied: VecDeque::new(),
            limit,
            blurred_until: Moment::ZERO,
        }
    }

    pub(super) fn page(&self, key: &KeyDigest) -> Option<&KeyPage> {
        self.pages.get(key)
    }

    /// Adds an exchange; answers the oldest of its key if there are too many.
    pub(super) fn add(&mut self, now: Moment, key: KeyDigest, serial: Serial) -> Option<Serial> {
        let blurred = now < self.blurred_until;
        let page = self.pages.entry(key).or_insert_with(|| KeyPage {
            forgot: blurred,
            ..KeyPage::default()
        });
        page.emptied = None;
        page.serials.push(serial);
        (page.serials.len() > EXCHANGES).then(|| page.serials.remove(0))
    }

    /// An exchange of this key is forgotten, of which this was to be said.
    pub(super) fn forget(&mut self, now: Moment, key: KeyDigest, serial: Serial, state: State) {
        let Some(page) = self.pages.get_mut(&key) else {
            return;
        };
        page.serials.retain(|known| *known != serial);
        page.forgot |= state != State::NotDelivered;
        if !page.serials.is_empty() {
            return;
        }
        if !page.forgot {
            self.pages.remove(&key);
            return;
        }
        page.emptied = Some(now);
        self.emptied.push_back((now, key));
        if self.emptied.len() > self.limit
            && let Some(since) = self.drop_oldest()
        {
            self.blurred_until = self.blurred_until.max(since + REMEMBERED);
        }
    }

    /// Drops pages that were emptied longer ago than is remembered.
    pub(super) fn sweep(&mut self, now: Moment) {
        while (self.emptied.front()).is_some_and(|(since, _)| now.since(*since) >= REMEMBERED) {
            self.drop_oldest();
        }
    }

    /// Takes out the first of those that were emptied; answers since when it was, if it still is.
    fn drop_oldest(&mut self) -> Option<Moment> {
        let (since, key) = self.emptied.pop_front()?;
        let page = self.pages.get(&key)?;
        if page.emptied != Some(since) {
            return None;
        }
        self.pages.remove(&key);
        Some(since)
    }

    #[cfg(test)]
    pub(super) fn serials(&self) -> impl Iterator<Item = &Serial> + Clone {
        assert!(self.emptied.len() <= self.limit);
        self.pages.values().flat_map(|page| page.serials())
    }
}

/// The exchanges of one key.
#[derive(Debug, Default)]
pub(super) struct KeyPage {
    serials: Vec<Serial>,
    /// An exchange of this key was forgotten that was not proven undelivered.
    forgot: bool,
    /// Since when there is none.
    emptied: Option<Moment>,
}

impl KeyPage {
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
