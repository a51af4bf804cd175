//! A warning that many peers can cause: told once in a while, with how many there were. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Longest silence about what goes on all the time.
const EVERY: Duration = Duration::from_secs(10);

/// One warning.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    told: Option<Instant>,
    /// Untold since then.
    untold: u64,
}

impl Seldom {
    /// One more; how many to tell of, if it is time.
    pub(super) fn one(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now - told < EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let (mut seldom, begin) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.one(begin), Some(1));
        for second in 1..10 {
            assert_eq!(seldom.one(begin + Duration::from_secs(second)), None);
        }
        assert_eq!(seldom.one(begin + EVERY), Some(10));
        assert_eq!(seldom.one(begin + EVERY), None);
    }
}
