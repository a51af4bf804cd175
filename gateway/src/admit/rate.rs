//! GCRA: the generic cell rate algorithm, one number for each limiter.
//!
//! The number is the *theoretical arrival time*: when the limiter will be as good as unused. It is
//! kept in units of a microsecond divided by the rate's requests, so that no rate is rounded.

use std::time::Duration;

use bridgehead_protocol::time::Moment;

use super::denied::Denied;
use super::net::Client;
use super::recent::Recent;
use crate::config::{Admission, Rate};

/// Where a request stands with the limiter that is nearest to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The limiter's rate.
    pub rate: Rate,
    /// Whose limiter it is.
    pub of: Of,
    /// Requests that may still come at once.
    pub remaining: u32,
    /// Until the limiter is as good as unused.
    pub reset: Duration,
    /// Until it lets the next one pass; zero if that may come at once.
    pub wait: Duration,
}

impl Standing {
    /// The configuration's key of this limit.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self.of {
            Of::App => "rate",
            Of::Client => "client_rate",
        }
    }

    /// Seconds in which a limiter that was used up is as good as unused.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.rate.period * self.rate.burst / self.rate.requests
    }
}

/// Whose limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All clients of the app together.
    App,
    /// One client.
    Client,
}

/// A theoretical arrival time, with the number of requests that is its unit: a limiter whose rate
/// was changed begins anew.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: u128,
    unit: u32,
}

/// The limiters of one app.
#[derive(Debug, Default)]
pub(super) struct Rates {
    app: Option<Arrival>,
    clients: Recent<Arrival>,
}

impl Rates {
    /// Counts a request if both limits let it pass, or neither. Answers where it stands with the
    /// tighter of those that are set.
    pub(super) fn check(
        &mut self,
        now: Moment,
        limits: &Admission,
        client: Client,
    ) -> Result<Option<Standing>, Denied> {
        let app = limits.rate.map(|rate| step(Of::App, rate, self.app, now));
        let one = limits.client_rate.as_ref().map(|limit| {
            let before = self.clients.find(client).copied();
            step(Of::Client, limit.rate, before, now)
        });
        // One client's excess is not told as everybody's.
        for (_, standing) in [&one, &app].into_iter().flatten() {
            if !standing.wait.is_zero() {
                return Err(Denied::Rate(*standing));
            }
        }
        if let Some((arrival, _)) = app {
            self.app = Some(arrival);
        }
        if let Some((arrival, _)) = one {
            self.clients.put(client, arrival);
        }
        let standings = [one, app].into_iter().flatten();
        Ok(standings
            .map(|(_, standing)| standing)
            .min_by_key(|standing| standing.remaining))
    }
}

/// The limiter after one more request, and where that stands.
fn step(of: Of, rate: Rate, before: Option<Arrival>, now: Moment) -> (Arrival, Standing) {
    let unit = u128::from(rate.requests);
    let now = u128::from(now.as_micros()) * unit;
    let each = rate.period.as_micros();
    let before = before
        .filter(|arrival| arrival.unit == rate.requests)
        .map_or(now, |arrival| arrival.at.max(now));
    let after = before + each;
    // So far ahead of the present may it be.
    let room = each * u128::from(rate.burst);
    let ahead = after - now;
    let micros = |scaled: u128| {
        Duration::from_micros(u64::try_from(scaled.div_ceil(unit)).unwrap_or(u64::MAX))
    };
    let passes = ahead <= room;
    let remaining = if passes { (room - ahead) / each } else { 0 };
    let standing = Standing {
        rate,
        of,
        remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        reset: micros(if passes { ahead } else { before - now }),
        wait: micros(ahead.saturating_sub(room)),
    };
    let arrival = Arrival {
        at: after,
        unit: rate.requests,
    };
    (arrival, standing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::ClientRate;

    const ME: Client = Client::Address(1);
    const YOU: Client = Client::Address(2);

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn rate(requests: u32, burst: u32) -> Rate {
        Rate {
            requests,
            period: Duration::from_secs(1),
            burst,
        }
    }

    fn limits(app: Option<Rate>, client: Option<Rate>) -> Admission {
        Admission {
            rate: app,
            client_rate: client.map(|rate| ClientRate { rate, by: None }),
            ..Admission::default()
        }
    }

    #[test]
    fn without_a_rate_everything_passes_and_nothing_is_told() {
        let mut rates = Rates::default();
        for _ in 0..1000 {
            assert_eq!(rates.check(at(0), &limits(None, None), ME), Ok(None));
        }
    }

    #[test]
    fn a_burst_passes_at_once_and_then_one_in_each_interval() {
        let (mut rates, limits) = (Rates::default(), limits(Some(rate(10, 3)), None));
        let mut passes = |millis| rates.check(at(millis), &limits, ME).is_ok();
        assert!(passes(0) && passes(0) && passes(0) && !passes(0));
        assert!(!passes(99) && passes(100) && !passes(100));
        assert!(passes(1000) && passes(1000) && passes(1000) && !passes(1000));
    }

    #[test]
    fn a_denial_says_exactly_when_the_next_one_passes() {
        let (mut rates, limits) = (Rates::default(), limits(Some(rate(3, 1)), None));
        rates.check(at(0), &limits, ME).unwrap().unwrap();
        let Err(Denied::Rate(standing)) = rates.check(at(100), &limits, ME) else {
            panic!("one at a time");
        };
        // A third of a second, rounded up to a microsecond.
        assert_eq!(standing.wait, Duration::from_micros(233_334));
        let then = at(100) + standing.wait;
        assert!(rates.check(then, &limits, ME).is_ok());
    }

    #[test]
    fn what_remains_falls_with_each_request_and_comes_back_with_time() {
        let (mut rates, limits) = (Rates::default(), limits(Some(rate(10, 3)), None));
        let mut left = |millis| {
            let standing = rates.check(at(millis), &limits, ME).unwrap().unwrap();
            (standing.remaining, standing.reset)
        };
        assert_eq!(left(0), (2, Duration::from_millis(100)));
        assert_eq!(left(0), (1, Duration::from_millis(200)));
        assert_eq!(left(100), (1, Duration::from_millis(200)));
        assert_eq!(left(900), (2, Duration::from_millis(100)));
    }

    #[test]
    fn clients_have_limiters_of_their_own() {
        let (mut rates, limits) = (Rates::default(), limits(None, Some(rate(1, 1))));
        assert!(rates.check(at(0), &limits, ME).is_ok());
        assert!(rates.check(at(0), &limits, ME).is_err());
        assert!(rates.check(at(0), &limits, YOU).is_ok());
    }

    #[test]
    fn a_request_that_one_limit_denies_uses_up_nothing_of_the_other() {
        let (mut rates, limits) = (Rates::default(), limits(Some(rate(1, 2)), Some(rate(1, 1))));
        assert!(rates.check(at(0), &limits, ME).is_ok());
        for _ in 0..10 {
            let Err(Denied::Rate(standing)) = rates.check(at(0), &limits, ME) else {
                panic!("used up");
            };
            assert_eq!(standing.of, Of::Client);
        }
        assert!(rates.check(at(0), &limits, YOU).is_ok());
        let Err(Denied::Rate(standing)) = rates.check(at(0), &limits, Client::Address(3)) else {
            panic!("used up");
        };
        assert_eq!(standing.of, Of::App);
    }

    #[test]
    fn a_rate_that_was_changed_begins_anew() {
        let mut rates = Rates::default();
        assert!(
            rates
                .check(at(0), &limits(Some(rate(1, 1)), None), ME)
                .is_ok()
        );
        assert!(
            rates
                .check(at(0), &limits(Some(rate(1, 1)), None), ME)
                .is_err()
        );
        assert!(
            rates
                .check(at(0), &limits(Some(rate(2, 1)), None), ME)
                .is_ok()
        );
    }

    #[test]
    fn over_any_span_no_more_pass_than_the_burst_and_the_rate_allow() {
        let (mut rates, limits) = (Rates::default(), limits(Some(rate(7, 5)), None));
        let passed = (0..10_000u64)
            .filter(|millis| rates.check(at(*millis), &limits, ME).is_ok())
            .count();
        assert_eq!(passed, 5 + 69);
    }
}
