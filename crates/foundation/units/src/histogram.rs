//! A histogram of times in bounded memory, for quantiles of long runs.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Counts times from 1 ns to one hour with two significant digits (error ≤ 1 %), in some 30 KiB. Longer times count
/// as one hour.
#[derive(Debug, Clone)]
pub struct TimeHistogram(Histogram<u64>);

/// Quantiles of times, within 1 %; all are 0 if none was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantiles {
    /// How many times were recorded.
    pub count: u64,
    /// Half are at most this, in nanoseconds.
    pub p50_ns: u64,
    /// 99 % are at most this, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9 % are at most this, in nanoseconds.
    pub p99_9_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        // The bounds are constants that the library takes, so this cannot fail.
        Self(Histogram::new_with_max(3_600_000_000_000, 2).expect("constant bounds"))
    }
}

impl TimeHistogram {
    /// Counts `time` `count` times.
    pub fn record(&mut self, time: Nanos, count: u64) {
        self.0.saturating_record_n(time.0, count);
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so every value fits.
        self.0.add(&other.0).expect("equal bounds");
    }

    /// The quantiles so far.
    pub fn quantiles(&self) -> Quantiles {
        if self.0.is_empty() {
            return Quantiles::default();
        }
        Quantiles {
            count: self.0.len(),
            p50_ns: self.0.value_at_quantile(0.5),
            p99_ns: self.0.value_at_quantile(0.99),
            p99_9_ns: self.0.value_at_quantile(0.999),
            max_ns: self.0.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_set() {
        let mut histogram = TimeHistogram::default();
        assert_eq!(histogram.quantiles(), Quantiles::default());
        for us in 1..=1000 {
            histogram.record(Nanos::from_micros(us), 1);
        }
        let q = histogram.quantiles();
        assert_eq!(q.count, 1000);
        for (got, want) in [(q.p50_ns, 500_000), (q.p99_ns, 990_000), (q.max_ns, 1_000_000)] {
            assert!(got.abs_diff(want) * 100 <= want, "{got} is not within 1 % of {want}");
        }
    }
}
