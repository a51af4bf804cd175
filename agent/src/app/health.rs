//! What connecting to an app showed: whether it is there, since when not, and how often it was asked.
//!
//! Pure. A connection that stood makes an app ready; a refused one makes it failing. An app that is ready
//! is never asked on its own account: extra connections hurt single-threaded apps. Only while it is not
//! known to be ready does [`Health::next_probe`] ask for one.

use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppHealth, RefusedReason};

/// Pause between probes of an app of this machine, and of any app at first: with it a fresh app is
/// announced within 250 ms.
const PROBE_FAST: Duration = Duration::from_millis(200);

/// Pause between probes of an app elsewhere that has been away for longer than [`FAST_FOR`].
const PROBE_SLOW: Duration = Duration::from_secs(2);

/// How long an app elsewhere is probed fast.
const FAST_FOR: Duration = Duration::from_secs(60);

/// An app that the agent started and whose port does not open for this long is called failing: a crash
/// at boot must not look like a start for ever.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two reports of one run of refusals.
const REMIND_EACH: Duration = Duration::from_secs(60);

/// Where the app is, which decides how often it may be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// On this machine: a refused connection costs microseconds.
    Local,
    /// Elsewhere.
    Remote,
}

/// A run of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// When it began.
    pub since: Moment,
    /// How many connections failed in it.
    pub count: u64,
    /// Why the last one failed.
    pub last: RefusedReason,
}

/// A change worth announcing and logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The app answers; the run of refusals that this ends, if there was one.
    Ready(Option<Refusals>),
    /// The app stopped answering.
    Failing(Refusals),
    /// It still does not; for the log, there is nothing new to announce.
    StillFailing(Refusals),
}

/// Health of one app as seen by this agent.
#[derive(Clone, Debug)]
pub struct Health {
    state: AppHealth,
    distance: Distance,
    refusals: Option<Refusals>,
    watched_since: Moment,
    last_look: Option<Moment>,
    last_told: Moment,
}

impl Health {
    /// An app nobody has connected to yet. `state` is `Starting` if the agent starts it, else `Unknown`.
    #[must_use]
    pub fn new(now: Moment, state: AppHealth, distance: Distance) -> Self {
        Self {
            state,
            distance,
            refusals: None,
            watched_since: now,
            last_look: None,
            last_told: now,
        }
    }

    /// State to announce.
    #[must_use]
    pub fn state(&self) -> AppHealth {
        self.state
    }

    /// The run of refusals that lasts until now, if any.
    #[must_use]
    pub fn refusals(&self) -> Option<Refusals> {
        self.refusals
    }

    /// A connection stood.
    pub fn connected(&mut self, now: Moment) -> Option<Change> {
        self.last_look = Some(now);
        let ended = self.refusals.take();
        if self.state == AppHealth::Ready {
            return None;
        }
        self.state = AppHealth::Ready;
        Some(Change::Ready(ended))
    }

    /// A connection failed. Reasons that lie with the agent or the exchange say nothing about the app.
    pub fn failed(&mut self, now: Moment, reason: RefusedReason) -> Option<Change> {
        self.last_look = Some(now);
        match reason {
            RefusedReason::ConnectRefused
            | RefusedReason::ConnectTimeout
            | RefusedReason::ConnectReset
            | RefusedReason::TlsFailed
            | RefusedReason::Unreachable => {}
            RefusedReason::NoSuchApp
            | RefusedReason::Draining
            | RefusedReason::Limit
            | RefusedReason::Expired => {
                return None;
            }
        }
        let run = self.refusals.get_or_insert(Refusals {
            since: now,
            count: 0,
            last: reason,
        });
        run.count += 1;
        run.last = reason;
        let run = *run;
        match self.state {
            AppHealth::Draining => return None,
            // It was just started: its port may open late.
            AppHealth::Starting if now.since(run.since) < START_LIMIT => return None,
            AppHealth::Failing => {
                if now.since(self.last_told) < REMIND_EACH {
                    return None;
                }
                self.last_told = now;
                return Some(Change::StillFailing(run));
            }
            AppHealth::Starting | AppHealth::Unknown | AppHealth::Ready => {}
        }
        self.state = AppHealth::Failing;
        self.watched_since = now;
        self.last_told = now;
        Some(Change::Failing(run))
    }

    /// When to look next; `None` while the app is known to be ready.
    #[must_use]
    pub fn next_probe(&self) -> Option<Moment> {
        match self.state {
            AppHealth::Ready | AppHealth::Draining => return None,
            AppHealth::Unknown | AppHealth::Starting | AppHealth::Failing => {}
        }
        let Some(last) = self.last_look else {
            return Some(self.watched_since);
        };
        let fast = self.distance == Distance::Local || last.since(self.watched_since) < FAST_FOR;
        Some(last + if fast { PROBE_FAST } else { PROBE_SLOW })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: RefusedReason = RefusedReason::ConnectRefused;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn unknown(distance: Distance) -> Health {
        Health::new(at(0), AppHealth::Unknown, distance)
    }

    #[test]
    fn a_run_of_refusals_is_counted_and_told_when_it_ends() {
        let mut health = unknown(Distance::Local);
        let first = Refusals {
            since: at(10),
            count: 1,
            last: REFUSED,
        };
        assert_eq!(health.failed(at(10), REFUSED), Some(Change::Failing(first)));
        assert_eq!(health.failed(at(20), RefusedReason::ConnectTimeout), None);
        assert_eq!(health.state(), AppHealth::Failing);
        let run = Refusals {
            since: at(10),
            count: 2,
            last: RefusedReason::ConnectTimeout,
        };
        assert_eq!(health.refusals(), Some(run));
        assert_eq!(health.connected(at(30)), Some(Change::Ready(Some(run))));
        assert_eq!(
            (health.state(), health.refusals()),
            (AppHealth::Ready, None)
        );
    }

    #[test]
    fn a_ready_app_is_never_probed() {
        let mut health = unknown(Distance::Local);
        assert_eq!(health.next_probe(), Some(at(0)), "nothing is known yet");
        health.connected(at(5));
        assert_eq!(health.next_probe(), None);
        assert_eq!(health.connected(at(6)), None, "no news");
        assert_eq!(health.next_probe(), None);
    }

    #[test]
    fn an_app_of_this_machine_is_looked_for_within_250_ms_however_long_it_was_away() {
        let mut health = unknown(Distance::Local);
        health.failed(at(0), REFUSED);
        health.failed(at(3_600_000), REFUSED);
        let pause = health.next_probe().expect("probe").since(at(3_600_000));
        assert!(pause < Duration::from_millis(250), "{pause:?}");
    }

    #[test]
    fn an_app_elsewhere_is_looked_for_less_often_after_a_minute() {
        let mut health = unknown(Distance::Remote);
        health.failed(at(0), REFUSED);
        assert_eq!(health.next_probe(), Some(at(0) + PROBE_FAST));
        health.failed(at(61_000), REFUSED);
        assert_eq!(health.next_probe(), Some(at(61_000) + PROBE_SLOW));
    }

    #[test]
    fn an_app_that_is_being_started_is_not_called_failing() {
        let mut health = Health::new(at(0), AppHealth::Starting, Distance::Local);
        assert_eq!(health.failed(at(0), REFUSED), None);
        assert_eq!(health.state(), AppHealth::Starting);
        assert_eq!(health.refusals().expect("run").count, 1);
        assert!(matches!(
            health.connected(at(10)),
            Some(Change::Ready(Some(_)))
        ));
    }

    #[test]
    fn an_app_that_never_opens_its_port_is_called_failing_after_a_minute() {
        let mut health = Health::new(at(0), AppHealth::Starting, Distance::Local);
        for second in 0..60 {
            assert_eq!(health.failed(at(second * 1000), REFUSED), None);
        }
        let run = Refusals {
            since: at(0),
            count: 61,
            last: REFUSED,
        };
        assert_eq!(
            health.failed(at(60_000), REFUSED),
            Some(Change::Failing(run))
        );
    }

    #[test]
    fn a_long_absence_is_told_once_a_minute_with_how_long_and_how_often() {
        let mut health = unknown(Distance::Local);
        let told: Vec<_> = (0..=180)
            .filter_map(|s| health.failed(at(s * 1000), REFUSED))
            .collect();
        let run = |count| Refusals {
            since: at(0),
            count,
            last: REFUSED,
        };
        let expected = [
            Change::Failing(run(1)),
            Change::StillFailing(run(61)),
            Change::StillFailing(run(121)),
            Change::StillFailing(run(181)),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_lies_with_the_exchange_says_nothing_about_the_app() {
        let mut health = unknown(Distance::Local);
        health.connected(at(0));
        for reason in [
            RefusedReason::Expired,
            RefusedReason::Limit,
            RefusedReason::Draining,
            RefusedReason::NoSuchApp,
        ] {
            assert_eq!(health.failed(at(1), reason), None);
        }
        assert_eq!(health.state(), AppHealth::Ready);
    }
}
