//! Latencies in buckets that grow with them: about 3 % exact from a microsecond to hours.
//!
//! Pure.

use std::time::Duration;

use serde::Serialize;

/// Buckets of each power of two.
const FINE: u64 = 32;

/// Counts by latency.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

/// What is told of a histogram; milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Measurements.
    pub count: u64,
    /// Half are below.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Histogram {
    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket(micros);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(latency);
    }

    /// Latency below or at which this share of all is.
    pub fn quantile(&self, share: f64) -> Duration {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a count
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            sum += count;
            if sum >= rank {
                return Duration::from_micros(top(bucket)).min(self.max);
            }
        }
        self.max
    }

    /// The usual ones.
    pub fn percentiles(&self) -> Percentiles {
        let at = |share| self.quantile(share).as_secs_f64() * 1e3;
        Percentiles {
            count: self.count,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max.as_secs_f64() * 1e3,
        }
    }
}

fn bucket(micros: u64) -> usize {
    if micros < FINE {
        return usize::try_from(micros).unwrap_or(0);
    }
    let power = u64::from(micros.ilog2() - FINE.ilog2());
    let fine = (micros >> power) - FINE;
    usize::try_from(FINE + power * FINE + fine).unwrap_or(usize::MAX)
}

/// Highest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let (power, fine) = ((bucket - FINE) / FINE, (bucket - FINE) % FINE);
    ((FINE + fine + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_within_three_percent(micros in 0_u64..1 << 40) {
            let top = top(bucket(micros));
            prop_assert!(top >= micros && top - micros <= micros / 32);
        }

        #[test]
        fn a_quantile_lies_near_the_exact_one(mut all in proptest::collection::vec(0_u64..10_000_000, 1..300), share in 0.0_f64..1.0) {
            let mut histogram = Histogram::default();
            all.iter().for_each(|m| histogram.add(Duration::from_micros(*m)));
            all.sort_unstable();
            let rank = ((all.len() as f64 * share).ceil() as usize).max(1);
            let exact = all[rank - 1];
            let found = histogram.quantile(share).as_micros() as u64;
            prop_assert!(found >= exact && found - exact <= exact / 32 + 1, "{found} {exact}");
        }
    }
}
