//! Delay of one direction: its distribution, and over what time it changes.

pub(crate) mod levels;
mod shifts;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

/// Quantiles that a path's jitter table gets at most.
const TABLE: usize = 2_000;
/// Samples below which a correlation means nothing.
const LEAST_FOR_CORRELATION: usize = 64;

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

/// How similar delays of neighbours are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Correlation {
    /// Of one probe's delay and the next one's, by ranks.
    #[cfg_attr(feature = "schema", schemars(range(min = -1.0, max = 1.0)))]
    pub of_neighbours: f64,
    /// Delays this far apart have a correlation of 1/e. At most the interval of the probes where `below_interval`.
    pub time_ns: u64,
    /// Whether delays change faster than the probes can see.
    pub below_interval: bool,
}

impl DelaySummary {
    /// Of (sent, delay, resolution) in nanoseconds, by time; `interval_ns` is usually between them. `None` of no sample.
    pub(crate) fn of(samples: &[(i64, f64, u32)], interval_ns: u64) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let sorted = sorted(samples);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let stddev = (sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let level = |share: f64| sorted[((share * count) as usize).min(sorted.len() - 1)];
        let delays: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
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
            correlation: correlation(&delays, interval_ns),
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

/// Normal scores of the ranks of `values`; equal values share a rank.
pub(crate) fn normal_scores(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
    let normal = Normal::standard();
    let mut scores = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| values[*a as usize] == values[*b as usize]) {
        let rank = below as f64 + equal.len() as f64 / 2.0;
        let score = normal.inverse_cdf(rank / values.len() as f64);
        equal.iter().for_each(|index| scores[*index as usize] = score);
        below += equal.len();
    }
    scores
}

/// Correlation of `scores` with themselves `lag` later; their mean is 0.
pub(crate) fn autocorrelation(scores: &[f64], lag: usize) -> f64 {
    let variance = scores.iter().map(|score| score * score).sum::<f64>() / scores.len() as f64;
    if variance <= 0.0 || lag >= scores.len() {
        return 0.0;
    }
    let product: f64 = scores.iter().zip(&scores[lag..]).map(|(a, b)| a * b).sum();
    product / (scores.len() - lag) as f64 / variance
}

/// By normal scores, as the jitter of a path is made: a smooth normal process whose levels become delays.
fn correlation(delays: &[f64], interval_ns: u64) -> Option<Correlation> {
    if delays.len() < LEAST_FOR_CORRELATION || interval_ns == 0 {
        return None;
    }
    let scores = normal_scores(delays);
    let level = (-1f64).exp();
    let (mut before, mut lag) = ((0, 1.0), 1);
    let of_neighbours = autocorrelation(&scores, 1);
    if scores.iter().all(|score| *score == 0.0) {
        return None;
    }
    // Neighbours less alike than 1/e: the delay changes faster than the probes come. From no correlation at all to 1/e the time goes
    // from where the model's correlation ends, 0.47 of the interval, to the interval.
    if of_neighbours < level {
        let share = 0.47 + 0.53 * (of_neighbours / level).max(0.0);
        return Some(Correlation { of_neighbours, time_ns: (interval_ns as f64 * share) as u64, below_interval: true });
    }
    while lag < delays.len() / 4 {
        let found = autocorrelation(&scores, lag);
        if found < level {
            let (from, at_from) = before;
            let place = from as f64 + (lag - from) as f64 * (at_from - level) / (at_from - found);
            let time_ns = (place * interval_ns as f64) as u64;
            return Some(Correlation { of_neighbours, time_ns, below_interval: false });
        }
        before = (lag, found);
        lag = (lag + 1).max(lag * 17 / 16);
    }
    None
}
