//! The metrics of one app: the families with an `app` label, and the ready counters of each app.
//!
//! Registered by the file above; the same rules hold.

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

/// The counters of one app, resolved once.
#[derive(Debug)]
pub struct AppMetrics {
    label: Box<str>,
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
        self.families
            .retries
            .with_label_values(&[self.label.as_ref(), reason.as_str()])
            .inc();
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
        self.families
            .exchanges
            .with_label_values(&[
                self.label.as_ref(),
                outcome.as_str(),
                delivery.map_or("", Delivery::as_str),
                code.map_or("", Code::as_str),
            ])
            .inc();
    }

    /// Count a refusal. Only the drop of `ExchangeGuard` calls this.
    pub(in crate::telemetry) fn refused(&self, code: Code, reason: Reason) {
        self.families
            .refusals
            .with_label_values(&[self.label.as_ref(), code.as_str(), reason.as_str()])
            .inc();
    }

    /// Record how long a phase took, in seconds.
    pub(in crate::telemetry) fn phase(&self, phase: Phase, seconds: f64) {
        self.phases[phase as usize].observe(seconds);
    }
}
