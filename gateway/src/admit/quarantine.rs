//! A pause for an app after a run of timeouts.
//!
//! If at least half of at least ten exchanges of a minute ended in `BH_APP_TIMEOUT`, the app is
//! paused. When the pause ends one exchange passes as a probe: another timeout doubles the pause, up
//! to five minutes, any other end clears it. A probe whose client left says nothing, the next one
//! is the probe then.

use std::time::Duration;

use bridgehead_protocol::time::Moment;

/// Exchanges below which nothing is concluded.
const LEAST: u32 = 10;
/// Time over which ends are counted, in seconds: one bucket each.
const SECONDS: u64 = 60;
/// Longest pause, unless the first one is longer.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Second it counts, plus one; zero is none.
    second: u64,
    ends: u32,
    timeouts: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Paused {
        until: Moment,
        length: Duration,
        probing: bool,
    },
}

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Freely,
    AsProbe,
    /// Denied for this long.
    Not(Duration),
}

#[derive(Debug)]
pub(super) struct Quarantine {
    state: State,
    buckets: Box<[Bucket; SECONDS as usize]>,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self {
            state: State::Open,
            buckets: Box::new([Bucket::default(); SECONDS as usize]),
        }
    }
}

impl Quarantine {
    pub(super) fn check(&mut self, now: Moment) -> Pass {
        match &mut self.state {
            State::Open => Pass::Freely,
            State::Paused { until, .. } if now < *until => Pass::Not(until.since(now)),
            // How long the probe takes nobody knows; it has at least begun.
            State::Paused { probing: true, .. } => Pass::Not(Duration::from_secs(1)),
            State::Paused { probing, .. } => {
                *probing = true;
                Pass::AsProbe
            }
        }
    }

    /// An exchange ended in a timeout. `first`: the length of a first pause.
    pub(super) fn timed_out(&mut self, now: Moment, probe: bool, first: Duration) {
        if probe && let State::Paused { length, .. } = self.state {
            let longer = (length * 2).min(LONGEST.max(first));
            return self.pause(now, longer);
        }
        self.count(now, 1);
        let (ends, timeouts) = self.counted(now);
        if self.state == State::Open && ends >= LEAST && timeouts * 2 >= ends {
            self.pause(now, first);
        }
    }

    /// An exchange ended otherwise, with or without an answer.
    pub(super) fn ended(&mut self, now: Moment, probe: bool) {
        if probe {
            self.state = State::Open;
            *self.buckets = [Bucket::default(); SECONDS as usize];
        }
        self.count(now, 0);
    }

    /// The probe ended without saying anything.
    pub(super) fn probe_left(&mut self) {
        if let State::Paused { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// It was switched off.
    pub(super) fn clear(&mut self) {
        self.state = State::Open;
    }

    /// The rest of a pause; zero while its end is being probed.
    pub(super) fn rest(&self, now: Moment) -> Option<Duration> {
        match self.state {
            State::Open => None,
            State::Paused { until, .. } => Some(until.since(now)),
        }
    }

    fn pause(&mut self, now: Moment, length: Duration) {
        self.state = State::Paused {
            until: now + length,
            length,
            probing: false,
        };
    }

    fn count(&mut self, now: Moment, timeouts: u32) {
        let second = now.as_micros() / 1_000_000 + 1;
        let place = usize::try_from(second % SECONDS).unwrap_or_default();
        let bucket = &mut self.buckets[place];
        if bucket.second != second {
            *bucket = Bucket {
                second,
                ..Bucket::default()
            };
        }
        bucket.ends = bucket.ends.saturating_add(1);
        bucket.timeouts = bucket.timeouts.saturating_add(timeouts);
    }

    fn counted(&self, now: Moment) -> (u32, u32) {
        let second = now.as_micros() / 1_000_000 + 1;
        let recent = |bucket: &&Bucket| bucket.second + SECONDS > second;
        let sum = |(ends, timeouts): (u32, u32), bucket: &Bucket| {
            (
                ends.saturating_add(bucket.ends),
                timeouts.saturating_add(bucket.timeouts),
            )
        };
        self.buckets.iter().filter(recent).fold((0, 0), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    /// Timeouts at `seconds`, then what a request may do.
    fn after(quarantine: &mut Quarantine, seconds: u64, timeouts: u32) -> Pass {
        for _ in 0..timeouts {
            quarantine.timed_out(at(seconds), false, FIRST);
        }
        quarantine.check(at(seconds))
    }

    #[test]
    fn nine_timeouts_say_nothing_and_the_tenth_pauses() {
        let mut quarantine = Quarantine::default();
        assert_eq!(after(&mut quarantine, 5, 9), Pass::Freely);
        assert_eq!(after(&mut quarantine, 5, 1), Pass::Not(FIRST));
        assert_eq!(
            quarantine.check(at(20)),
            Pass::Not(FIRST - Duration::from_secs(15))
        );
    }

    #[test]
    fn fewer_than_half_do_not_pause() {
        let mut quarantine = Quarantine::default();
        for _ in 0..11 {
            quarantine.ended(at(1), false);
        }
        assert_eq!(after(&mut quarantine, 2, 10), Pass::Freely);
        assert_eq!(after(&mut quarantine, 2, 1), Pass::Not(FIRST));
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut quarantine = Quarantine::default();
        assert_eq!(after(&mut quarantine, 0, 9), Pass::Freely);
        assert_eq!(after(&mut quarantine, 60, 9), Pass::Freely);
        assert_eq!(after(&mut quarantine, 61, 1), Pass::Not(FIRST));
    }

    #[test]
    fn when_the_pause_ends_one_passes_as_a_probe() {
        let mut quarantine = Quarantine::default();
        after(&mut quarantine, 0, 10);
        assert_eq!(quarantine.check(at(30)), Pass::AsProbe);
        assert_eq!(quarantine.check(at(30)), Pass::Not(Duration::from_secs(1)));
    }

    #[test]
    fn a_probe_that_times_out_doubles_the_pause_up_to_five_minutes() {
        let mut quarantine = Quarantine::default();
        after(&mut quarantine, 0, 10);
        let mut now = 30;
        for expected in [60, 120, 240, 300, 300] {
            assert_eq!(quarantine.check(at(now)), Pass::AsProbe);
            quarantine.timed_out(at(now), true, FIRST);
            assert_eq!(
                quarantine.check(at(now)),
                Pass::Not(Duration::from_secs(expected))
            );
            now += expected;
        }
    }

    #[test]
    fn a_probe_that_succeeds_clears_the_whole_memory() {
        let mut quarantine = Quarantine::default();
        after(&mut quarantine, 0, 10);
        assert_eq!(quarantine.check(at(30)), Pass::AsProbe);
        quarantine.ended(at(30), true);
        assert_eq!(after(&mut quarantine, 31, 8), Pass::Freely);
        assert_eq!(after(&mut quarantine, 31, 1), Pass::Not(FIRST));
    }

    #[test]
    fn a_probe_whose_client_left_makes_place_for_the_next() {
        let mut quarantine = Quarantine::default();
        after(&mut quarantine, 0, 10);
        assert_eq!(quarantine.check(at(30)), Pass::AsProbe);
        quarantine.probe_left();
        assert_eq!(quarantine.check(at(30)), Pass::AsProbe);
    }

    #[test]
    fn timeouts_of_exchanges_that_began_before_the_pause_do_not_lengthen_it() {
        let mut quarantine = Quarantine::default();
        after(&mut quarantine, 0, 10);
        assert_eq!(
            after(&mut quarantine, 10, 50),
            Pass::Not(Duration::from_secs(20))
        );
    }
}
