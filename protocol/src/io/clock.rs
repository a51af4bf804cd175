//! The one clock of a process: turns tokio's time into [`Moment`]s and back.

use tokio::time::Instant;

use crate::time::Moment;

/// Counts from its making; copies agree. Follows tokio's paused time in tests.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose beginning is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Time since the beginning.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment::ZERO + self.origin.elapsed()
    }

    /// `moment` as a point in tokio's time.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.origin + moment.since(Moment::ZERO)
    }
}
