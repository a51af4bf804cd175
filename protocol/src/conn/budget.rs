//! Memory of one tunnel: bytes received and not consumed, taken and not consumed by the peer.
//!
//! Credit is a floor, not reserved memory: all windows together may be far more than a tunnel may
//! hold. Near the limit no window grows and fresh ones are small; over it, streams that made no progress
//! for some seconds are given up, those that hold most first, until the rest fits. A slow reader that
//! reads is never touched, whatever it holds; neither is anybody while there is no carrier.

use std::time::Duration;

use crate::time::Moment;
use crate::wire::ResetCode;

use super::store::StreamKey;
use super::stream::Stream;
use super::{Conn, Side, Wake};

/// How often the bytes held are counted: so much later than over the limit acts the rule.
const LOOK: Duration = Duration::from_secs(1);

/// Without progress for so long a stream that holds bytes may be given up for the others.
const STILL: Duration = Duration::from_secs(5);

/// Credit of a fresh stream while memory is short.
const SMALL_WINDOW: u32 = 16 * 1024;

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Budget {
    due: Moment,
    held: u64,
    tight: bool,
    starved: u64,
}

impl Budget {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            due: now + LOOK,
            held: 0,
            tight: false,
            starved: 0,
        }
    }

    /// More than half of what may be held is held.
    pub(super) fn is_tight(&self) -> bool {
        self.tight
    }
}

/// What a stream had moved, and since when it has moved nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    moved: u64,
    since: Moment,
}

impl Stream {
    fn held(&self) -> u64 {
        self.inn.held() + self.out.held()
    }

    fn note_progress(&mut self, now: Moment) {
        let moved = self.inn.taken() + self.out.consumed();
        if moved != self.progress.moved || self.held() == 0 {
            self.progress = Progress { moved, since: now };
        }
    }
}

impl Conn {
    /// When the bytes held are to be counted next; an empty tunnel holds none, and without a carrier
    /// nobody can make progress.
    pub(super) fn budget_due(&self) -> Option<Moment> {
        (self.store.len() > 0 && !self.is_suspended()).then_some(self.budget.due)
    }

    /// After a resume: everybody has time again.
    pub(super) fn restart_budget(&mut self) {
        let now = self.latest;
        for key in self.store.keys() {
            if let Some(stream) = self.store.find(key) {
                stream.progress.since = now;
            }
        }
    }

    /// Bytes held at the last look, for people.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.budget.held
    }

    /// Streams given up because they held memory without progress.
    #[must_use]
    pub const fn starved_streams(&self) -> u64 {
        self.budget.starved
    }

    /// Credit for a stream that is opened now.
    pub(super) fn fresh_window(&self) -> u32 {
        if self.budget.tight {
            self.settings.initial_window.min(SMALL_WINDOW)
        } else {
            self.settings.initial_window
        }
    }

    pub(super) fn look_at_budget(&mut self, now: Moment) {
        if now < self.budget.due || self.is_suspended() {
            return;
        }
        self.budget.due = now + LOOK;
        let mut held = 0;
        let mut still = Vec::new();
        for key in self.store.keys() {
            let Some(stream) = self.store.find(key) else {
                continue;
            };
            stream.note_progress(now);
            held += stream.held();
            if stream.held() > 0 && now.since(stream.progress.since) >= STILL {
                still.push((stream.held(), key));
            }
        }
        let limit = self.settings.held_limit;
        if held > limit {
            held -= self.starve(still, held - limit);
        }
        self.budget.held = held;
        self.budget.tight = held > limit / 2;
    }

    /// Gives up streams of `still` until `excess` bytes are free; answers how many became free.
    fn starve(&mut self, mut still: Vec<(u64, StreamKey)>, excess: u64) -> u64 {
        still.sort_unstable_by(|a, b| b.cmp(a));
        let mut freed = 0;
        for (_, key) in still {
            if freed >= excess {
                break;
            }
            let Some(stream) = self.store.find(key).filter(|s| s.ended.is_none()) else {
                continue;
            };
            let before = stream.held();
            stream.starved = true;
            match self.side {
                Side::Gateway => {
                    self.reset(key, ResetCode::Abuse);
                }
                Side::Agent => {
                    stream.inn.discard(super::flow::Taken::Evidence);
                    stream.out.abandon();
                    self.wake(key, Wake::ALL);
                }
            }
            self.budget.starved += 1;
            freed += before - self.store.get(key).map_or(0, Stream::held);
        }
        freed
    }
}

#[cfg(test)]
mod tests;
