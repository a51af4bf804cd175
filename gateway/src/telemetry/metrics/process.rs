//! The metrics of the process itself: since when, by which configuration and certificates, how many
//! open files.
//!
//! Registered by the file above; the same rules hold. The label of a file is what the configuration
//! names, so there are as many as it has.

use std::time::{SystemTime, UNIX_EPOCH};

use bridgehead_protocol::io::descriptors;
use prometheus::{IntGauge, IntGaugeVec};

use super::{Families, clamp, each};
use crate::telemetry::labels::DescriptorKind;
use crate::telemetry::memory;

/// See the file above.
#[derive(Debug)]
pub struct ProcessMetrics {
    started: IntGauge,
    descriptors: Vec<IntGauge>,
    certificates: IntGaugeVec,
    reload_success: IntGauge,
    reloaded: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn register(families: &Families) -> Self {
        let one = |name, help| {
            families
                .gauges(name, help, &[])
                .with_label_values::<&str>(&[])
        };
        let descriptors = families.gauges("descriptors", "Open files of the process", &["kind"]);
        Self {
            started: one(
                "start_time_seconds",
                "When the process started, as seconds since 1970",
            ),
            descriptors: each(DescriptorKind::ALL, |k| {
                descriptors.with_label_values(&[k.as_str()])
            }),
            certificates: families.gauges(
                "certificate_expiry_seconds",
                "When certificates end, as seconds since 1970",
                &["listener", "file"],
            ),
            reload_success: one(
                "reload_success",
                "1 if the configuration was put in place when it was read last, else 0",
            ),
            reloaded: one(
                "reload_timestamp_seconds",
                "When a configuration was put in place last, as seconds since 1970",
            ),
        }
    }

    /// The process runs since then, by the configuration that it was started with.
    pub fn started(&self, at: SystemTime) {
        self.started.set(seconds(at));
        self.reload_succeeded(at);
    }

    /// Another configuration is in place.
    pub fn reload_succeeded(&self, at: SystemTime) {
        self.reload_success.set(1);
        self.reloaded.set(seconds(at));
    }

    /// The configuration of before stays.
    pub fn reload_failed(&self) {
        self.reload_success.set(0);
    }

    /// Say which certificates are in use and when they end; those of before are forgotten.
    /// Each has its listener, its file and its last second of the epoch.
    pub fn set_certificates<'a>(&self, ends: impl Iterator<Item = (&'a str, &'a str, i64)>) {
        self.certificates.reset();
        for (listener, file, until) in ends {
            let labels = [listener, file];
            self.certificates.with_label_values(&labels).set(until);
        }
    }

    /// Asks the system, at a scrape. What it does not say stays zero.
    pub(super) fn look(&self) {
        let told = [memory::open_files(), descriptors::limit()];
        for (gauge, told) in self.descriptors.iter().zip(told) {
            gauge.set(told.map_or(0, clamp));
        }
    }
}

fn seconds(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| clamp(since.as_secs()))
}
