//! How long to wait before dialling again.
//!
//! Pure and seeded. A tunnel that was up is redialled at once, so that a cut costs as little as can be;
//! the next try comes after a random 0 to 1 s (all agents of a gateway lose it at the same moment), the
//! later ones after a random time whose bound doubles up to 15 s. There is no last try.

use std::time::Duration;

use bridgehead_protocol::time::Moment;

/// Bound of the first retry.
const FIRST_SPREAD: Duration = Duration::from_secs(1);

/// Shortest wait from the second retry on.
pub const FLOOR: Duration = Duration::from_millis(250);

/// Longest wait.
pub const CEILING: Duration = Duration::from_secs(15);

/// Bound of the second retry; doubles with each further one.
const FIRST_BOUND: Duration = Duration::from_millis(500);

/// A tunnel that was up this long starts counting anew.
const HEALTHY: Duration = Duration::from_secs(60);

/// A tunnel that was up at least this long is redialled at once even when retries are being counted:
/// bounds the rate against a gateway that lets in and drops.
const WORTH_AN_INSTANT_TRY: Duration = Duration::from_secs(5);

/// The same for a carrier of a tunnel that goes on: requests wait for it. Well below a second, so that
/// a connection that breaks every second costs each time what one break costs.
const WORTH_AN_INSTANT_RETURN: Duration = Duration::from_millis(250);

/// So many carriers of such a tunnel may break sooner in a row, and each only costs what is missing of
/// that time: chance strikes twice, and requests wait. More of them are no chance, so draws begin.
const BRIEF_BY_CHANCE: u32 = 4;

/// Waiting times of one tunnel.
#[derive(Debug)]
pub struct Backoff {
    random: u64,
    failures: u32,
    /// Carriers in a row that were not worth an instant return.
    brief: u32,
}

impl Backoff {
    /// Waiting times that depend on the seed and nothing else.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: seed,
            failures: 0,
            brief: 0,
        }
    }

    /// The wait after a tunnel that came up at `since` was lost at `now`.
    pub fn after_loss(&mut self, now: Moment, since: Moment) -> Duration {
        let lived = now.since(since);
        if lived >= HEALTHY {
            self.failures = 0;
        }
        if self.failures == 0 || lived >= WORTH_AN_INSTANT_TRY {
            self.failures = self.failures.max(1);
            return Duration::ZERO;
        }
        self.after_failure()
    }

    /// The wait after a carrier was lost, that had stood since `since`, of a tunnel that goes on.
    pub fn after_cut(&mut self, now: Moment, since: Moment) -> Duration {
        self.failures = 1;
        let missing = WORTH_AN_INSTANT_RETURN.saturating_sub(now.since(since));
        self.brief = if missing.is_zero() {
            0
        } else {
            self.brief.saturating_add(1)
        };
        if self.brief <= BRIEF_BY_CHANCE {
            return missing;
        }
        // Never longer than after one failure: the gateway answers, and requests wait.
        self.after_failure()
    }

    /// The wait after a dial or a handshake failed.
    pub fn after_failure(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        if failures <= 1 {
            // 0: the very first dial failed; 1: the instant redial did.
            self.failures = 2;
            return self.between(Duration::ZERO, FIRST_SPREAD);
        }
        let doublings = (failures - 2).min(16);
        let bound = FIRST_BOUND.saturating_mul(1 << doublings).min(CEILING);
        self.between(FLOOR, bound)
    }

    /// The wait after a refusal that asks for at least `asked`: never less, and spread by up to a
    /// quarter of it, because every refused agent was told the same.
    pub fn after_refusal(&mut self, asked: Duration) -> Duration {
        let own = self.after_failure();
        if asked.is_zero() {
            own
        } else {
            own.max(asked + self.between(Duration::ZERO, asked / 4))
        }
    }

    /// The wait after a refusal that only a change elsewhere can lift.
    pub fn after_permanent_refusal(&mut self, asked: Duration) -> Duration {
        let slow = self.between(CEILING, CEILING + CEILING / 4);
        slow.max(self.after_refusal(asked))
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_micros()).unwrap_or(u64::MAX);
        low + Duration::from_micros(self.next_random() % span.saturating_add(1))
    }

    /// SplitMix64: spreading agents needs no more, and the room stays free of outside crates.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_live_tunnel_is_redialled_at_once_then_within_a_second_then_slower() {
        for seed in 0..200 {
            let mut backoff = Backoff::new(seed);
            assert_eq!(backoff.after_loss(at(100), at(0)), Duration::ZERO);
            assert!(backoff.after_failure() <= FIRST_SPREAD);
            let mut bound = FIRST_BOUND;
            for _ in 0..20 {
                let wait = backoff.after_failure();
                assert!(
                    wait >= FLOOR && wait <= bound,
                    "{wait:?} is not within {FLOOR:?}..={bound:?}"
                );
                bound = (bound * 2).min(CEILING);
            }
        }
    }

    #[test]
    fn a_first_dial_that_fails_is_repeated_within_a_second() {
        assert!(Backoff::new(1).after_failure() <= FIRST_SPREAD);
    }

    #[test]
    fn waits_fill_their_whole_range() {
        let waits: Vec<Duration> = (0..2_000)
            .map(|seed| {
                let mut backoff = Backoff::new(seed);
                (0..20).for_each(|_| assert!(backoff.after_failure() <= CEILING));
                backoff.after_failure()
            })
            .collect();
        let mean = waits.iter().sum::<Duration>() / 2_000;
        assert!(waits.iter().any(|wait| *wait < Duration::from_secs(1)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_secs(14)));
        assert!(
            mean > Duration::from_millis(7_200) && mean < Duration::from_millis(8_050),
            "{mean:?}"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..10).map(|_| backoff.after_failure()).collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }

    #[test]
    fn a_minute_up_starts_the_count_anew() {
        let mut backoff = Backoff::new(3);
        (0..10).for_each(|_| assert!(backoff.after_failure() <= CEILING));
        assert_eq!(backoff.after_loss(at(60), at(0)), Duration::ZERO);
        assert!(backoff.after_failure() <= FIRST_SPREAD);
    }

    #[test]
    fn a_gateway_that_lets_in_and_drops_is_not_hammered() {
        let mut backoff = Backoff::new(4);
        let waits: Vec<_> = (0..50).map(|n| backoff.after_loss(at(n), at(n))).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), 1);
        assert!(waits[20..].iter().sum::<Duration>() > Duration::from_secs(60));
    }

    #[test]
    fn a_refusal_waits_no_less_than_it_was_asked_to_and_not_all_at_once() {
        let asked = Duration::from_secs(40);
        let waits: Vec<_> = (0..100)
            .map(|seed| Backoff::new(seed).after_refusal(asked))
            .collect();
        assert!(
            waits
                .iter()
                .all(|wait| *wait >= asked && *wait <= asked * 5 / 4)
        );
        assert!(
            waits
                .iter()
                .any(|wait| *wait > asked + Duration::from_secs(5))
        );
    }

    #[test]
    fn a_carrier_that_breaks_every_second_is_replaced_at_once_each_time() {
        let mut backoff = Backoff::new(6);
        // Half a second went on dialling and shaking hands.
        let stood = Moment::ZERO + Duration::from_millis(500);
        for n in 0..100 {
            let since = stood + Duration::from_secs(n);
            let cut = since + Duration::from_millis(500);
            assert_eq!(backoff.after_cut(cut, since), Duration::ZERO);
        }
    }

    #[test]
    fn a_carrier_that_breaks_soon_costs_a_quarter_second_until_it_is_no_chance() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            let mut after = |lived| backoff.after_cut(at(1) + lived, at(1));
            let tenth = Duration::from_millis(100);
            let chance: Vec<Duration> = (0..4).map(|_| after(tenth)).collect();
            assert_eq!(chance, [Duration::from_millis(150); 4]);
            let drawn = after(tenth);
            assert!(drawn <= FIRST_SPREAD, "{drawn:?}");
            assert_eq!(after(Duration::from_secs(1)), Duration::ZERO, "it stood");
            assert_eq!(after(tenth), Duration::from_millis(150), "counted anew");
            drawn
        };
        let drawn: Vec<Duration> = (0..50).map(waits).collect();
        assert!(
            drawn.iter().any(|wait| *wait > Duration::from_millis(500)),
            "let in and dropped"
        );
    }

    #[test]
    fn a_permanent_refusal_is_retried_slowly_but_for_ever() {
        let mut backoff = Backoff::new(5);
        for _ in 0..100 {
            let wait = backoff.after_permanent_refusal(Duration::ZERO);
            assert!(wait >= CEILING && wait < CEILING * 2, "{wait:?}");
        }
    }
}
