//! What the oracle app saw of each request, and what it answered.
//!
//! Owns one small entry for each id. Must not judge. Invariant: an entry only ever rises.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most ids of a run; what comes beyond is not entered, so that a stray number cannot take all memory.
const MOST: u64 = 50_000_000;

/// How much of a request was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not a byte.
    #[default]
    Nothing,
    /// Its head began.
    PartOfHead,
    /// Its head is whole.
    Head,
    /// Its body began.
    Body,
    /// All of it.
    All,
}

/// How much of an answer was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    /// Not a byte.
    #[default]
    Nothing,
    /// Writing began.
    Begun,
    /// All of it was written.
    All,
}

/// One request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How much of it was seen.
    pub level: Level,
    /// How often it arrived; once, if nobody repeats what must not be repeated.
    pub arrivals: u32,
    /// What was answered.
    pub given: Given,
}

/// All requests of a run.
#[derive(Debug)]
pub struct Book {
    run: u32,
    entries: Mutex<Vec<Seen>>,
    fragments: AtomicU64,
}

impl Book {
    pub(super) fn new(run: u32) -> Self {
        Self {
            run,
            entries: Mutex::default(),
            fragments: AtomicU64::new(0),
        }
    }

    /// Number of the run, which stands in every address; requests of other runs are not entered.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// What was seen of one request.
    pub fn seen(&self, id: u64) -> Seen {
        usize::try_from(id)
            .ok()
            .and_then(|id| self.lock().get(id).copied())
            .unwrap_or_default()
    }

    /// Requests that arrived more than once.
    pub fn repeated(&self) -> Vec<(u64, u32)> {
        let entries = self.lock();
        let twice = entries
            .iter()
            .enumerate()
            .filter(|(_, seen)| seen.arrivals > 1);
        twice.map(|(id, seen)| (id as u64, seen.arrivals)).collect()
    }

    /// Connections that ended in the middle of a head, before it named its request.
    pub fn fragments(&self) -> u64 {
        self.fragments.load(Ordering::Relaxed)
    }

    pub(super) fn fragment(&self) {
        self.fragments.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn arrives(&self, id: u64) {
        self.change(id, |seen| {
            seen.arrivals += 1;
            seen.level = seen.level.max(Level::PartOfHead);
        });
    }

    pub(super) fn reaches(&self, id: u64, level: Level) {
        self.change(id, |seen| seen.level = seen.level.max(level));
    }

    pub(super) fn gives(&self, id: u64, given: Given) {
        self.change(id, |seen| seen.given = seen.given.max(given));
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Seen)) {
        if id >= MOST {
            return;
        }
        let Ok(index) = usize::try_from(id) else {
            return;
        };
        let mut entries = self.lock();
        if entries.len() <= index {
            entries.resize(index + 1, Seen::default());
        }
        change(&mut entries[index]);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
