//! How fast something may be done over and over: so many at once, then one in each span. Pure.
//!
//! One number is kept of each that is paced, the moment from which on it is as good as never used, so
//! that whoever has been quiet long enough needs no entry at all.

use std::time::Duration;

use bridgehead_protocol::time::Moment;

/// A pace.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So many at once.
    pub burst: u32,
    /// Then one in each of these spans.
    pub every: Duration,
}

/// What is kept of somebody who is paced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used(Moment);

impl Used {
    /// True if nothing has to be remembered any more.
    #[must_use]
    pub fn is_idle(&self, now: Moment) -> bool {
        self.0 <= now
    }
}

impl Pace {
    /// How long until `turns` may be taken together; zero = now. Never zero for more than the burst.
    #[must_use]
    pub fn wait(&self, used: &Used, now: Moment, turns: u32) -> Duration {
        let after = used.0.max(now) + self.every * turns;
        after.since(now + self.every * self.burst)
    }

    /// Takes `turns`.
    ///
    /// # Errors
    /// How long until they may be taken; nothing was.
    pub fn take(&self, used: &mut Used, now: Moment, turns: u32) -> Result<(), Duration> {
        let wait = self.wait(used, now, turns);
        if !wait.is_zero() {
            return Err(wait);
        }
        used.0 = used.0.max(now) + self.every * turns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        burst: 3,
        every: Duration::from_secs(1),
    };

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_one_in_each_span() {
        let mut used = Used::default();
        let mut passed = 0;
        for millis in (0..10_000).step_by(10) {
            passed += u32::from(PACE.take(&mut used, at(millis), 1).is_ok());
        }
        assert_eq!(passed, 3 + 9);
    }

    #[test]
    fn who_waits_as_told_passes_and_a_refusal_takes_nothing() {
        let mut used = Used::default();
        for _ in 0..3 {
            assert_eq!(PACE.take(&mut used, at(5), 1), Ok(()));
        }
        for _ in 0..9 {
            assert_eq!(PACE.take(&mut used, at(5), 1), Err(Duration::from_secs(1)));
        }
        assert_eq!(PACE.take(&mut used, at(1005), 1), Ok(()));
        assert!(!used.is_idle(at(3004)) && used.is_idle(at(4005)));
    }

    #[test]
    fn turns_taken_together_cost_as_much_as_one_by_one() {
        let mut used = Used::default();
        assert_eq!(PACE.take(&mut used, at(0), 2), Ok(()));
        assert_eq!(PACE.take(&mut used, at(0), 2), Err(Duration::from_secs(1)));
        assert_eq!(PACE.take(&mut used, at(0), 1), Ok(()));
    }
}
