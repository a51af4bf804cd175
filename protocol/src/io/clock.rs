//! The one clock of a process: turns tokio's time into [`Moment`]s and back.
//!
//! An agent's moments count the time in which its machine slept, tokio's time does not. So what became
//! due meanwhile is due at once by its moment, although its timer has not fired yet; and a loop that slept
//! sees by the next moment that it is late. Only an agent needs that, because it alone writes to apps; it
//! costs two more looks at clocks (64 ns beside 28 were measured) for each moment.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::Moment;

use super::asleep;

/// Says how long the machine has slept, from some moment on; never less than before.
type Asleep = fn() -> Duration;

/// Counts from its making; copies agree. Follows tokio's paused time in tests.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    asleep: Asleep,
    before: Duration,
}

impl Clock {
    /// A clock whose beginning is now. It stands still while the machine sleeps.
    #[must_use]
    pub fn start() -> Self {
        Self::counting(|| Duration::ZERO)
    }

    /// The same, and goes on while the machine sleeps, where the system tells (Linux).
    #[must_use]
    pub fn counting_sleep() -> Self {
        Self::counting(asleep::so_far)
    }

    /// The same on a machine that sleeps as `asleep` says.
    #[must_use]
    pub fn counting(asleep: Asleep) -> Self {
        Self {
            origin: Instant::now(),
            before: asleep(),
            asleep,
        }
    }

    /// Sleep since the beginning.
    fn slept(&self) -> Duration {
        (self.asleep)().saturating_sub(self.before)
    }

    /// Time since the beginning.
    #[must_use]
    pub fn now(&self) -> Moment {
        let awake = self.origin.elapsed();
        Moment::ZERO + (awake + self.slept())
    }

    /// `moment` as a point in tokio's time, if the machine does not sleep from now on.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.origin + moment.since(Moment::ZERO).saturating_sub(self.slept())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_count_the_sleep_of_the_machine_and_timers_are_set_by_what_is_left() {
        static SLEPT: AtomicU64 = AtomicU64::new(100);
        let clock = Clock::counting(|| Duration::from_secs(SLEPT.load(Ordering::Relaxed)));
        let due = clock.now() + Duration::from_secs(30);
        tokio::time::advance(Duration::from_secs(1)).await;
        SLEPT.fetch_add(20, Ordering::Relaxed);
        assert_eq!(due - clock.now(), Duration::from_secs(9));
        assert_eq!(clock.instant(due) - Instant::now(), Duration::from_secs(9));
        SLEPT.fetch_add(20, Ordering::Relaxed);
        assert_eq!(clock.now() - due, Duration::from_secs(11));
        assert!(clock.instant(due) < Instant::now());
    }
}
