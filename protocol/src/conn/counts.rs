//! Streams counted, for people and for tests.

use super::Conn;
use super::stream::Phase;

/// Streams of a tunnel that have not ended, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Asked for; the app's connection does not stand yet.
    pub opening: usize,
    /// The app's connection stands.
    pub open: usize,
    /// Given up or over; only the terminal is missing.
    pub closing: usize,
}

impl StreamCounts {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.opening + self.open + self.closing
    }
}

impl Conn {
    /// Streams by how far they are: asked for, open, and on their way to the end.
    #[must_use]
    pub fn stream_counts(&self) -> StreamCounts {
        let mut counts = StreamCounts::default();
        for stream in self.store.iter() {
            match stream.phase {
                Phase::Queued | Phase::Opening if !stream.released => counts.opening += 1,
                Phase::Open if !stream.released && !stream.reset => counts.open += 1,
                Phase::Queued | Phase::Opening | Phase::Open | Phase::Concluding => {
                    counts.closing += 1
                }
                Phase::Ended => {}
            }
        }
        counts
    }

    /// Streams that have not ended, and at the agent those whose terminal is not acknowledged: as
    /// long as there is one, closing the carrier may lose something.
    #[must_use]
    pub fn live_streams(&self) -> usize {
        self.store.iter().filter(|s| s.speaks()).count()
    }

    /// Slots of streams, ended ones included, that somebody still holds or that are kept. For tests.
    #[must_use]
    pub fn held_slots(&self) -> usize {
        self.store.len()
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
