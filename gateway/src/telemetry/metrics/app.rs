//! The metrics of one app: the families with an `app` label, and the ready counters of each app.
//!
//! Registered by the file above; the same rules hold.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bridgehead_protocol::verdict::{Code, Delivery, Reason, WindowKind};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Families, GaugeGuard, each};
use crate::telemetry::labels::{Direction, HoldResult, Outcome, Phase, SharedPlaces};

/// The families with an `app` label.
#[derive(Clone, Debug)]
pub(super) struct PerApp {
    exchanges: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGaugeVec,
    long_lived: IntGaugeVec,
    held: IntGaugeVec,
    queue_depth: IntGaugeVec,
    queue_wait: HistogramVec,
    client_share: IntCounterVec,
    refusals: IntCounterVec,
    windows: IntCounterVec,
    holds: IntCounterVec,
    retries: IntCounterVec,
    bytes: IntCounterVec,
}

impl PerApp {
    pub(super) fn register(families: &Families) -> Self {
        Self {
            exchanges: families.counters(
                "exchanges_total",
                "Exchanges that ended, each exactly once",
                &["app", "outcome", "delivery", "code"],
            ),
            seconds: families.histograms(
                "exchange_seconds",
                "Time from the arrival of the request's head to each phase's end",
                &["app", "phase"],
            ),
            in_flight: families.gauges("in_flight", "Exchanges that occupy the app", &["app"]),
            long_lived: families.gauges(
                "long_lived",
                "Upgraded, streaming and TCP exchanges",
                &["app"],
            ),
            held: families.gauges(
                "held",
                "Requests and TCP connections whose app is away, waiting or trying again",
                &["app"],
            ),
            queue_depth: families.gauges(
                "queue_depth",
                "Requests that wait for a place in flight",
                &["app"],
            ),
            queue_wait: families.histograms(
                "queue_wait_seconds",
                "How long requests waited for a place, whatever came of it; those that did not wait are not counted",
                &["app"],
            ),
            client_share: families.counters(
                "client_share_total",
                "Times that a request waited or was refused because its client had its share",
                &["app", "places"],
            ),
            refusals: families.counters(
                "refusals_total",
                "Requests that the app did not see and never will",
                &["app", "code", "reason"],
            ),
            windows: families.counters(
                "windows_fired_total",
                "Exchanges that were silent for a whole window",
                &["app", "window"],
            ),
            holds: families.counters(
                "holds_total",
                "Requests that waited for their app to come back, or might not",
                &["app", "result"],
            ),
            retries: families.counters(
                "retries_total",
                "Repeated tries, with the reason of the failed one",
                &["app", "reason"],
            ),
            bytes: families.counters("bytes_total", "Body bytes", &["app", "direction"]),
        }
    }
}

impl PerApp {
    /// Removes the series of an app that are there from its first request on. Taken apart whole: a family
    /// that is new has to say here how it goes.
    fn remove(&self, label: &str) {
        let Self {
            exchanges: _,
            seconds,
            in_flight,
            long_lived,
            held,
            queue_depth,
            queue_wait,
            client_share,
            refusals: _,
            windows,
            holds,
            retries: _,
            bytes,
        } = self;
        // A series that is not there has nothing to remove.
        for gauge in [in_flight, long_lived, held, queue_depth] {
            let _ = gauge.remove_label_values(&[label]);
        }
        let _ = queue_wait.remove_label_values(&[label]);
        for phase in Phase::ALL {
            let _ = seconds.remove_label_values(&[label, phase.as_str()]);
        }
        for places in SharedPlaces::ALL {
            let _ = client_share.remove_label_values(&[label, places.as_str()]);
        }
        for window in [WindowKind::FirstFrame, WindowKind::Stall] {
            let _ = windows.remove_label_values(&[label, window.as_str()]);
        }
        for result in HoldResult::ALL {
            let _ = holds.remove_label_values(&[label, result.as_str()]);
        }
        for direction in Direction::ALL {
            let _ = bytes.remove_label_values(&[label, direction.as_str()]);
        }
    }
}

/// A series that was looked up by its labels, the app's aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Exchange([&'static str; 3]),
    Refusal([&'static str; 2]),
    Retry(&'static str),
}

/// The counters of one app, resolved once.
#[derive(Debug)]
pub struct AppMetrics {
    label: Box<str>,
    /// What has to be removed with it; nothing once it was.
    made: Mutex<Option<BTreeSet<Made>>>,
    families: PerApp,
    answered: IntCounter,
    phases: Vec<Histogram>,
    in_flight: IntGauge,
    long_lived: IntGauge,
    held: IntGauge,
    queue_depth: IntGauge,
    queue_wait: Histogram,
    client_share: Vec<IntCounter>,
    windows: [(WindowKind, IntCounter); 2],
    holds: Vec<IntCounter>,
    bytes: Vec<IntCounter>,
}

impl AppMetrics {
    pub(super) fn resolve(label: &str, families: &PerApp) -> Self {
        let window = |kind: WindowKind| {
            let counter = families.windows.with_label_values(&[label, kind.as_str()]);
            (kind, counter)
        };
        Self {
            label: label.into(),
            made: Mutex::new(Some(BTreeSet::new())),
            answered: families.exchanges.with_label_values(&[
                label,
                Outcome::Answered.as_str(),
                Delivery::Delivered.as_str(),
                "",
            ]),
            phases: each(Phase::ALL, |p| {
                families.seconds.with_label_values(&[label, p.as_str()])
            }),
            in_flight: families.in_flight.with_label_values(&[label]),
            long_lived: families.long_lived.with_label_values(&[label]),
            held: families.held.with_label_values(&[label]),
            queue_depth: families.queue_depth.with_label_values(&[label]),
            queue_wait: families.queue_wait.with_label_values(&[label]),
            client_share: each(SharedPlaces::ALL, |p| {
                let labels = [label, p.as_str()];
                families.client_share.with_label_values(&labels)
            }),
            windows: [window(WindowKind::FirstFrame), window(WindowKind::Stall)],
            holds: each(HoldResult::ALL, |r| {
                families.holds.with_label_values(&[label, r.as_str()])
            }),
            bytes: each(Direction::ALL, |d| {
                families.bytes.with_label_values(&[label, d.as_str()])
            }),
            families: families.clone(),
        }
    }

    /// Count an exchange as occupying the app until the guard is dropped.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.in_flight)
    }

    /// Count an exchange as long-lived until the guard is dropped.
    pub fn long_lived(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.long_lived)
    }

    /// Count an exchange as waiting for its app until the guard is dropped.
    pub fn held(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.held)
    }

    /// Count a request as waiting for a place until the guard is dropped.
    pub fn queued(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.queue_depth)
    }

    /// Record how long a request waited for its place, in seconds.
    pub fn queue_waited(&self, seconds: f64) {
        self.queue_wait.observe(seconds);
    }

    /// Count that a client's share was in the way of a request.
    pub fn share_reached(&self, places: SharedPlaces) {
        self.client_share[places as usize].inc();
    }

    /// Exchanges that occupy the app now.
    #[must_use]
    pub fn in_flight_now(&self) -> u64 {
        u64::try_from(self.in_flight.get()).unwrap_or(0)
    }

    /// Long-lived exchanges now.
    #[must_use]
    pub fn long_lived_now(&self) -> u64 {
        u64::try_from(self.long_lived.get()).unwrap_or(0)
    }

    /// Count body bytes.
    pub fn bytes(&self, direction: Direction, count: u64) {
        self.bytes[direction as usize].inc_by(count);
    }

    /// Count a window that ran out.
    pub fn window_fired(&self, kind: WindowKind) {
        for (known, counter) in &self.windows {
            if *known == kind {
                counter.inc();
            }
        }
    }

    /// Count the end of a hold.
    pub fn hold_ended(&self, result: HoldResult) {
        self.holds[result as usize].inc();
    }

    /// Count a repeated try.
    pub fn retried(&self, reason: Reason) {
        self.count(Made::Retry(reason.as_str()));
    }

    /// Count the end of an exchange. Only the drop of `ExchangeGuard` calls this.
    pub(in crate::telemetry) fn ended(
        &self,
        outcome: Outcome,
        delivery: Option<Delivery>,
        code: Option<Code>,
    ) {
        if outcome == Outcome::Answered && delivery == Some(Delivery::Delivered) && code.is_none() {
            self.answered.inc();
            return;
        }
        self.count(Made::Exchange([
            outcome.as_str(),
            delivery.map_or("", Delivery::as_str),
            code.map_or("", Code::as_str),
        ]));
    }

    /// Count a refusal. Only the drop of `ExchangeGuard` calls this.
    pub(in crate::telemetry) fn refused(&self, code: Code, reason: Reason) {
        self.count(Made::Refusal([code.as_str(), reason.as_str()]));
    }

    /// Counts one in a series that is looked up, unless the app was forgotten.
    fn count(&self, made: Made) {
        let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(all) = all.as_mut() else { return };
        all.insert(made);
        let (label, families) = (self.label.as_ref(), &self.families);
        let counter = match made {
            Made::Exchange([outcome, delivery, code]) => {
                let labels = [label, outcome, delivery, code];
                families.exchanges.with_label_values(&labels)
            }
            Made::Refusal([code, reason]) => {
                families.refusals.with_label_values(&[label, code, reason])
            }
            Made::Retry(reason) => families.retries.with_label_values(&[label, reason]),
        };
        counter.inc();
    }

    /// Removes its series. What is still counted through it goes nowhere.
    pub(super) fn forget(&self) {
        let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = all.take().unwrap_or_default();
        let (label, families) = (self.label.as_ref(), &self.families);
        let answered = [Outcome::Answered.as_str(), Delivery::Delivered.as_str(), ""];
        // A series that is not there has nothing to remove.
        for made in made.into_iter().chain([Made::Exchange(answered)]) {
            let _ = match made {
                Made::Exchange([outcome, delivery, code]) => {
                    let labels = [label, outcome, delivery, code];
                    families.exchanges.remove_label_values(&labels)
                }
                Made::Refusal([code, reason]) => families
                    .refusals
                    .remove_label_values(&[label, code, reason]),
                Made::Retry(reason) => families.retries.remove_label_values(&[label, reason]),
            };
        }
        families.remove(label);
    }

    /// Record how long a phase took, in seconds.
    pub(in crate::telemetry) fn phase(&self, phase: Phase, seconds: f64) {
        self.phases[phase as usize].observe(seconds);
    }
}
