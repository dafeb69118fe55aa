//! The pattern of losses: distances and periods (RFC 3357).

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::run_list::Run;

/// The distribution of counts. Quantiles are exact below 256 and within 1 % above.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Distribution {
    /// Number of values; if it is 0, all other fields are 0.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The greatest, exact.
    pub max: u64,
    /// The mean, exact.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub mean: f64,
}

/// Collects counts for a [`Distribution`].
#[derive(Debug, Clone)]
pub(crate) struct Collector {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
}

impl Default for Collector {
    fn default() -> Self {
        // There are 2^48 sequences at most; the library accepts these constant bounds.
        let histogram = Histogram::new_with_max(1 << 48, 2).expect("constant bounds");
        Self { histogram, min: u64::MAX, max: 0, sum: 0 }
    }
}

impl Collector {
    pub(crate) fn record(&mut self, value: u64, count: u64) {
        if count > 0 {
            self.histogram.saturating_record_n(value, count);
            (self.min, self.max) = (self.min.min(value), self.max.max(value));
            self.sum += u128::from(value) * u128::from(count);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so every value fits.
        self.histogram.add(&other.histogram).expect("equal bounds");
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.sum += other.sum;
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn distribution(&self) -> Distribution {
        let count = self.count();
        if count == 0 {
            return Distribution::default();
        }
        let quantile = |q| self.histogram.value_at_quantile(q).clamp(self.min, self.max);
        Distribution {
            count,
            min: self.min,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: self.max,
            mean: self.sum as f64 / count as f64,
        }
    }
}

/// Loss distances and periods of one or more streams.
///
/// A *loss period* begins with a lost packet whose predecessor arrived (RFC 3357 §4, §5.4.2): it is a run of losses. Its length is
/// Type-P-One-Way-Loss-Period-Lengths (§6.3); the number of periods is Type-P-One-Way-Loss-Period-Total (§6.2). A *loss distance*
/// is the difference between the sequences of a lost packet and the previous lost one (§4, §5.4.1).
///
/// Difference from the RFC: the first loss of a stream has no distance; the RFC sets it to zero.
#[derive(Debug, Clone, Default)]
pub struct LossPattern {
    periods: Collector,
    distances: Collector,
}

impl LossPattern {
    /// Adds the losses of one stream, as ascending runs with received packets between them.
    pub fn add_stream(&mut self, runs: impl IntoIterator<Item = Run>) {
        let mut last_lost = None;
        for run in runs {
            self.periods.record(run.packets, 1);
            if let Some(last) = last_lost {
                self.distances.record(run.first_sequence - last, 1);
            }
            self.distances.record(1, run.packets - 1);
            last_lost = Some(run.end() - 1);
        }
    }

    /// Lengths of loss periods, packets.
    pub fn loss_periods(&self) -> Distribution {
        self.periods.distribution()
    }

    /// Loss distances, packets.
    pub fn loss_distances(&self) -> Distribution {
        self.distances.distribution()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pattern: &str) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (sequence, _) in pattern.bytes().enumerate().filter(|(_, letter)| *letter == b'x') {
            match runs.last_mut() {
                Some(run) if run.end() == sequence as u64 => run.packets += 1,
                _ => runs.push(Run { first_sequence: sequence as u64, packets: 1 }),
            }
        }
        runs
    }

    /// RFC 3357 §4 draws "r r r x r r x x x r x r r x x x" and finds four loss periods, beginning at P_3, P_6, P_10 and P_13.
    #[test]
    fn the_rfcs_four_loss_periods() {
        let runs = runs("rrrxrrxxxrxrrxxx");
        assert_eq!(runs.iter().map(|run| run.first_sequence).collect::<Vec<_>>(), [3, 6, 10, 13]);
        let mut pattern = LossPattern::default();
        pattern.add_stream(runs.iter().copied());
        let periods = pattern.loss_periods();
        assert_eq!((periods.count, periods.min, periods.max, periods.mean), (4, 1, 3, 2.0));
        // By hand: 6−3, then 1, 1, 10−8, 13−10, 1, 1.
        let distances = pattern.loss_distances();
        assert_eq!((distances.count, distances.min, distances.p50, distances.max), (7, 1, 1, 3));
        assert!((distances.mean - 12.0 / 7.0).abs() < 1e-12);
    }

    /// By hand after RFC 3357 §5.4: packets 2, 5, 7, 9 and 10 of ten are lost; distances 0, 3, 2, 2, 1 in four periods.
    #[test]
    fn ten_packets_by_hand() {
        let runs = runs("rxrrxrxrxx");
        let mut pattern = LossPattern::default();
        pattern.add_stream(runs.iter().copied());
        assert_eq!(pattern.loss_periods().count, 4);
        let distances = pattern.loss_distances();
        assert_eq!((distances.count, distances.min, distances.max, distances.mean), (4, 1, 3, 2.0));
    }

    #[test]
    fn streams_do_not_border_on_each_other() {
        let mut pattern = LossPattern::default();
        pattern.add_stream([Run { first_sequence: 5, packets: 1 }]);
        pattern.add_stream([Run { first_sequence: 1, packets: 1 }]);
        assert_eq!((pattern.loss_periods().count, pattern.loss_distances().count), (2, 0));
    }
}
