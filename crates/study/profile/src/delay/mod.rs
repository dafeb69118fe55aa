//! Delay of one direction: its distribution, and over what time it changes.

pub(crate) mod correlation;
pub(crate) mod levels;
mod shifts;

use serde::Serialize;

use self::correlation::Correlation;

/// Quantiles that a path's jitter table gets at most.
const TABLE: usize = 2_000;

/// How a delay was distributed, and how fast it changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DelaySummary {
    /// Packets whose delay is known.
    pub samples: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: f64,
    /// The mean, in nanoseconds.
    pub mean_ns: f64,
    /// Standard deviation, in nanoseconds.
    pub stddev_ns: f64,
    /// A tenth was shorter.
    pub p10_ns: f64,
    /// The median.
    pub p50_ns: f64,
    /// A tenth was longer.
    pub p90_ns: f64,
    /// One in a hundred was longer.
    pub p99_ns: f64,
    /// The longest, in nanoseconds.
    pub max_ns: f64,
    /// Over what time the delay changes; `None` where it does not vary or there are too few samples.
    pub correlation: Option<Correlation>,
    /// Means of equal parts of the sorted delays, in standard deviations from the mean.
    #[serde(skip)]
    pub(crate) table: Vec<f64>,
}

impl DelaySummary {
    /// Of (sent, delay, resolution) in nanoseconds, by time. `None` of no sample.
    pub(crate) fn of(samples: &[(i64, f64, u32)]) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let sorted = sorted(samples);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let stddev = (sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let level = |share: f64| sorted[((share * count) as usize).min(sorted.len() - 1)];
        Some(Self {
            samples: samples.len() as u64,
            min_ns: sorted[0],
            mean_ns: mean,
            stddev_ns: stddev,
            p10_ns: level(0.1),
            p50_ns: level(0.5),
            p90_ns: level(0.9),
            p99_ns: level(0.99),
            max_ns: sorted[sorted.len() - 1],
            correlation: Correlation::of(samples),
            table: table(&sorted, mean, stddev),
        })
    }
}

/// The delays, ascending. Those of one printed value are spread over the interval that it stands for.
pub(crate) fn sorted(samples: &[(i64, f64, u32)]) -> Vec<f64> {
    let mut values: Vec<(f64, u32)> = samples.iter().map(|(_, delay, resolution)| (*delay, *resolution)).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut spread = Vec::with_capacity(values.len());
    for equal in values.chunk_by(|a, b| a == b) {
        let (value, resolution) = equal[0];
        let step = f64::from(resolution) / equal.len() as f64;
        let first = value - f64::from(resolution) / 2.0 + step / 2.0;
        spread.extend((0..equal.len()).map(|nth| if resolution <= 1 { value } else { first + step * nth as f64 }));
    }
    spread.sort_by(f64::total_cmp);
    spread
}

/// Means of equal parts: the mean of all is kept, and the tail counts in the last part.
fn table(sorted: &[f64], mean: f64, stddev: f64) -> Vec<f64> {
    if stddev <= 0.0 {
        return Vec::new();
    }
    let parts = sorted.len().min(TABLE);
    let part = |nth: usize| {
        let part = &sorted[nth * sorted.len() / parts..(nth + 1) * sorted.len() / parts];
        (part.iter().sum::<f64>() / part.len() as f64 - mean) / stddev
    };
    (0..parts).map(part).collect()
}
