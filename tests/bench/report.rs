//! The table: medians over the rounds, and their ratio to the direct connection.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::load::{Case, Measured};

/// All measurements.
pub(crate) struct Report {
    paths: Vec<String>,
    measured: BTreeMap<(String, String), Vec<Measured>>,
}

impl Report {
    pub(crate) fn new(paths: Vec<String>) -> Self {
        Self {
            paths,
            measured: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, case: &Case, path: &str, measured: Measured) {
        self.measured
            .entry((case.name(), path.to_owned()))
            .or_default()
            .push(measured);
    }

    /// One block per case: rate, ratio to direct, and for small requests the times.
    pub(crate) fn render(&self, cases: &[Case]) -> String {
        let mut text = String::new();
        for case in cases {
            let direct = self.rate(case, &self.paths[0]);
            let _ = writeln!(text, "\n{}", case.name());
            let _ = writeln!(
                text,
                "{:<24} {:>12} {:>8} {:>10} {:>10}",
                "", "median", "ratio", "p50", "p99"
            );
            for path in &self.paths {
                let rate = self.rate(case, path);
                let mut times: Vec<Duration> = self
                    .of(case, path)
                    .iter()
                    .flat_map(|m| m.times.clone())
                    .collect();
                times.sort_unstable();
                let at = |part: f64| {
                    times
                        .get((times.len() as f64 * part) as usize)
                        .map_or(String::new(), micros)
                };
                let ratio = rate / direct;
                let _ = writeln!(
                    text,
                    "{path:<24} {rate:>12.0} {ratio:>8.2} {:>10} {:>10}",
                    at(0.5),
                    at(0.99)
                );
            }
        }
        text
    }

    fn of(&self, case: &Case, path: &str) -> &[Measured] {
        self.measured
            .get(&(case.name(), path.to_owned()))
            .map_or(&[], Vec::as_slice)
    }

    fn rate(&self, case: &Case, path: &str) -> f64 {
        let mut rates: Vec<f64> = self.of(case, path).iter().map(|m| m.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }
}

fn micros(time: &Duration) -> String {
    format!("{} µs", time.as_micros())
}
