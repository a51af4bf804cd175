//! How short memory is, as every room that can save some sees it: one level, moved by one hand.
//!
//! | Level | From | What follows |
//! |---|---|---|
//! | tight | 80 % of the budget | client connections are not kept, idle ones end soon |
//! | full | 90 % | new work is refused: `SERVICE_UNAVAILABLE`, reason `overload`, not delivered |
//! | over | 95 % | the largest streams are reset, with the verdict that their evidence gives |
//!
//! Owns the level and the thresholds. It must not measure (`wiring` does) nor act. A level is left
//! two points below the threshold that it was entered at, so that it does not flutter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// How long an idle client connection is kept while memory is short.
pub const TIGHT_IDLE: Duration = Duration::from_secs(1);

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything is served.
    #[default]
    Calm,
    /// Nothing is kept that can be had again.
    Tight,
    /// Nothing new is begun.
    Full,
    /// What holds most is given up.
    Over,
}

impl Level {
    const FULL: u64 = 90;
    const UPWARDS: [(Self, u64); 3] = [
        (Self::Tight, 80),
        (Self::Full, Self::FULL),
        (Self::Over, 95),
    ];
    /// A level is left this many points below its threshold.
    const SLACK: u64 = 2;

    /// The level after a measurement.
    #[must_use]
    pub fn after(self, used: u64, budget: u64) -> Self {
        let percent = used.saturating_mul(100) / budget.max(1);
        let holds = |(level, threshold): &(Self, u64)| {
            let slack = if *level <= self { Self::SLACK } else { 0 };
            percent >= threshold - slack
        };
        let reached = Self::UPWARDS.iter().rfind(|step| holds(step));
        reached.map_or(Self::Calm, |(level, _)| *level)
    }
}

/// The level now, shared by all workers, and what was promised of the memory that is left.
#[derive(Debug)]
pub struct Pressure {
    level: watch::Sender<Level>,
    /// Bytes below the level at which new work is refused, when it was measured last.
    left: AtomicU64,
    /// Bytes that large bodies may take of it.
    charged: AtomicU64,
}

impl Default for Pressure {
    fn default() -> Self {
        Self {
            level: watch::Sender::default(),
            left: AtomicU64::new(u64::MAX),
            charged: AtomicU64::new(0),
        }
    }
}

/// Bytes that are promised to somebody; free again by its drop.
#[derive(Debug)]
#[must_use = "the bytes are free again when this is dropped"]
pub struct Charge {
    pressure: Arc<Pressure>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        (self.pressure.charged).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pressure {
    /// The level now.
    #[must_use]
    pub fn level(&self) -> Level {
        *self.level.borrow()
    }

    /// True while nothing is kept that can be had again.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.level() >= Level::Tight
    }

    /// True while nothing new is begun.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.level() >= Level::Full
    }

    /// Waits until memory is short. Cancel safe.
    pub async fn tight(&self) {
        let mut level = self.level.subscribe();
        // The sender is `self`, so it cannot be gone.
        let _ = level.wait_for(|level| *level >= Level::Tight).await;
    }

    /// Notes a measurement for those who ask for room.
    pub fn measured(&self, used: u64, budget: u64) {
        let full = budget / 100 * Level::FULL;
        self.left
            .store(full.saturating_sub(used), Ordering::Relaxed);
    }

    /// Bytes that may still be promised. What was promised and has come counts twice, once here and
    /// once in what was measured: the error is on the safe side.
    #[must_use]
    pub fn room(&self) -> u64 {
        let charged = self.charged.load(Ordering::Relaxed);
        self.left.load(Ordering::Relaxed).saturating_sub(charged)
    }

    /// Promises bytes. Two who saw the same room at once may both be promised it.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            pressure: Arc::clone(self),
            bytes,
        }
    }

    /// Moves the level; true if it is another one than before.
    pub fn set(&self, to: Level) -> bool {
        self.level
            .send_if_modified(|level| std::mem::replace(level, to) != to)
    }
}

/// Which loads to give up so that about `excess` bytes become free: the largest first, none below
/// `least`, at most `most`. Places in `held`.
#[must_use]
pub fn largest(held: &[u64], excess: u64, least: u64, most: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..held.len()).filter(|at| held[*at] >= least).collect();
    places.sort_by_key(|at| (std::cmp::Reverse(held[*at]), *at));
    let mut freed = 0u64;
    let needed = places.iter().take(most).take_while(|at| {
        let go_on = freed < excess;
        freed = freed.saturating_add(held[**at]);
        go_on
    });
    needed.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_begins_its_level() {
        let after = |used| Level::Calm.after(used, 100);
        let levels = [79, 80, 89, 90, 94, 95, 300].map(after);
        let (calm, tight, full, over) = (Level::Calm, Level::Tight, Level::Full, Level::Over);
        assert_eq!(levels, [calm, tight, tight, full, full, over, over]);
    }

    #[test]
    fn a_level_is_left_two_points_below_its_threshold() {
        assert_eq!(Level::Full.after(88, 100), Level::Full);
        assert_eq!(Level::Full.after(87, 100), Level::Tight);
        assert_eq!(Level::Over.after(93, 100), Level::Over);
        assert_eq!(Level::Over.after(78, 100), Level::Tight);
        assert_eq!(Level::Over.after(77, 100), Level::Calm);
    }

    #[test]
    fn the_largest_are_given_up_until_enough_is_free() {
        let held = [10, 500, 300, 5, 400];
        assert_eq!(largest(&held, 450, 10, 9), [1]);
        assert_eq!(largest(&held, 501, 10, 9), [1, 4]);
        assert_eq!(largest(&held, u64::MAX, 10, 9), [1, 4, 2, 0]);
        assert_eq!(largest(&held, u64::MAX, 10, 2), [1, 4]);
        assert!(largest(&held, 0, 10, 9).is_empty());
    }

    #[test]
    fn what_is_promised_is_no_room_for_others_until_it_is_given_back() {
        let pressure = Arc::new(Pressure::default());
        assert_eq!(pressure.room(), u64::MAX, "nothing was measured");
        pressure.measured(500, 1000);
        assert_eq!(pressure.room(), 400);
        let charge = pressure.charge(300);
        assert_eq!(pressure.room(), 100);
        pressure.measured(950, 1000);
        assert_eq!(pressure.room(), 0);
        drop(charge);
        pressure.measured(0, 1000);
        assert_eq!(pressure.room(), 900);
    }

    #[tokio::test]
    async fn who_waits_for_tightness_is_told_at_any_higher_level() {
        let pressure = Pressure::default();
        assert!(!pressure.set(Level::Calm));
        let moved = async { assert!(pressure.set(Level::Over)) };
        tokio::join!(biased; pressure.tight(), moved);
        assert!(pressure.is_full());
    }
}
