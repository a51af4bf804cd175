//! A breaker on one client's run of identical failures.
//!
//! A failure is what the app, or the gateway in its place, said after the request was handed over:
//! a status of 500 or more, 422, or a code without proof that nothing was delivered. The breaker is
//! open while so many identical ones lie within the last hour. Then every fiftieth request passes;
//! one that does not fail, or fails otherwise, ends the run.

use std::collections::VecDeque;
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Code, Reason};

use super::net::Client;
use super::recent::Recent;

/// Failures older than this are forgotten.
const WITHIN: Duration = Duration::from_secs(3600);
/// Every so many requests of a stopped client one passes.
const PROBE_EVERY: u64 = 50;

/// What two failures share if they are the same failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The app's own answer.
    Status(u16),
    /// The gateway's.
    Code(Code, Reason),
}

#[derive(Debug)]
struct Run {
    sign: Sign,
    /// When the last of them happened, the oldest first; as many as trip the breaker.
    at: VecDeque<Moment>,
    stopped: u64,
}

#[derive(Debug, Default)]
pub(super) struct ErrorLoops {
    runs: Recent<Run>,
}

impl ErrorLoops {
    /// `Err` with the number of failures if the client is stopped.
    pub(super) fn check(
        &mut self,
        now: Moment,
        client: Client,
        trips_at: usize,
    ) -> Result<(), usize> {
        let Some(run) = self.runs.find(client) else {
            return Ok(());
        };
        let recent = run.at.iter().filter(|at| now.since(**at) < WITHIN).count();
        if recent < trips_at {
            return Ok(());
        }
        run.stopped += 1;
        match run.stopped % PROBE_EVERY {
            0 => Ok(()),
            _ => Err(recent),
        }
    }

    pub(super) fn failed(&mut self, now: Moment, client: Client, sign: Sign, trips_at: usize) {
        match self.runs.find(client) {
            Some(run) if run.sign == sign => {
                run.at.push_back(now);
                while run.at.len() > trips_at {
                    run.at.pop_front();
                }
            }
            _ => {
                let at = VecDeque::from([now]);
                let stopped = 0;
                self.runs.put(client, Run { sign, at, stopped });
            }
        }
    }

    pub(super) fn succeeded(&mut self, client: Client) {
        self.runs.forget(client);
    }

    /// Clients with a run of failures.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Client = Client::Address(1);
    const YOU: Client = Client::Address(2);
    const SIGN: Sign = Sign::Status(500);

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    fn after(failures: u64) -> ErrorLoops {
        let mut loops = ErrorLoops::default();
        for n in 0..failures {
            loops.failed(at(n), ME, SIGN, 12);
        }
        loops
    }

    #[test]
    fn the_twelfth_identical_failure_stops_the_client_and_no_other() {
        assert_eq!(after(11).check(at(20), ME, 12), Ok(()));
        let mut loops = after(12);
        assert_eq!(loops.check(at(20), ME, 12), Err(12));
        assert_eq!(loops.check(at(20), YOU, 12), Ok(()));
    }

    #[test]
    fn every_fiftieth_request_of_a_stopped_client_passes() {
        let mut loops = after(12);
        let passed = (1..=200)
            .filter(|_| loops.check(at(20), ME, 12).is_ok())
            .count();
        assert_eq!(passed, 4);
        let mut loops = after(12);
        let first = (1..=200).find(|_| loops.check(at(20), ME, 12).is_ok());
        assert_eq!(first, Some(50));
    }

    #[test]
    fn a_success_or_another_failure_ends_the_run() {
        let mut loops = after(12);
        loops.succeeded(ME);
        assert_eq!(loops.check(at(20), ME, 12), Ok(()));
        let mut loops = after(12);
        loops.failed(
            at(20),
            ME,
            Sign::Code(Code::BhAppTimeout, Reason::Stall),
            12,
        );
        assert_eq!(loops.check(at(20), ME, 12), Ok(()));
    }

    #[test]
    fn a_probe_that_fails_the_same_way_keeps_the_client_stopped() {
        let mut loops = after(12);
        loops.failed(at(3599), ME, SIGN, 12);
        assert_eq!(loops.check(at(3600), ME, 12), Err(12));
    }

    #[test]
    fn failures_of_more_than_an_hour_ago_are_forgotten() {
        let mut loops = after(12);
        assert_eq!(loops.check(at(3599), ME, 12), Err(12));
        assert_eq!(loops.check(at(3600), ME, 12), Ok(()));
    }
}
