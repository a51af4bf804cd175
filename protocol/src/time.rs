//! The clock value of every pure core: a point in time that its owner passes in.
//!
//! Owns nothing but a number; it must never read a clock. `protocol::io` and the simulation
//! make these values, so that the same seed gives the same run.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Microseconds since a moment its maker chose (the start of the process, or of a simulation).
///
/// Only differences mean anything; values of two makers must not be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The maker's own beginning.
    pub const ZERO: Self = Self(0);

    /// A moment `micros` microseconds after the beginning.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the beginning.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_never_goes_below_zero() {
        let early = Moment::from_micros(5);
        let late = early + Duration::from_micros(7);
        assert_eq!(late - early, Duration::from_micros(7));
        assert_eq!(early - late, Duration::ZERO);
    }
}
