//! Over what time a delay changes.

use longhaul_path::network::jitter_correlation;
use longhaul_units::Nanos;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

/// Samples below which a correlation means nothing.
const LEAST: usize = 64;
/// By how much a copy's neighbours may be more alike than they are, so that it changes as slowly as the path: half of what `verify` allows.
const NEIGHBOURS_MORE_ALIKE: f64 = 0.05;
/// Typical times between neighbours that are kept.
const GAPS: usize = 64;
/// Halvings that find a time: a share of 1e-9.
const HALVINGS: usize = 30;

/// How similar delays of neighbours are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Correlation {
    /// Of one probe's delay and the next one's, by ranks.
    #[cfg_attr(feature = "schema", schemars(range(min = -1.0, max = 1.0)))]
    pub of_neighbours: f64,
    /// Between neighbours, the median, in nanoseconds: packets of a capture are not sent regularly.
    pub neighbours_ns: u64,
    /// Delays this far apart have a correlation of 1/e. At most `neighbours_ns` where `below_interval`.
    pub time_ns: u64,
    /// Whether delays change faster than the probes can see.
    pub below_interval: bool,
}

impl Correlation {
    /// Of samples (sent, delay, resolution) in nanoseconds, by time. By normal scores, as the jitter of a path is made: a smooth normal process
    /// whose levels become delays. `None` where the delay does not vary or there are too few samples.
    pub(super) fn of(samples: &[(i64, f64, u32)]) -> Option<Self> {
        if samples.len() < LEAST {
            return None;
        }
        let delays: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
        let scores = normal_scores(&delays);
        let gaps = apart(samples, 1);
        let neighbours_ns = middle(&gaps);
        if neighbours_ns == 0 || scores.iter().all(|score| *score == 0.0) {
            return None;
        }
        let level = (-1f64).exp();
        let of_neighbours = autocorrelation(&scores, 1);
        let below_interval = of_neighbours < level;
        let found = |time_ns| Self { of_neighbours, neighbours_ns, time_ns, below_interval };
        let gaps = typical(&gaps);
        if below_interval {
            return Some(found(time_of(&gaps, of_neighbours.max(0.0))));
        }
        let (mut before, mut lag) = ((0, 1.0), 1);
        while lag < delays.len() / 4 {
            let at_lag = autocorrelation(&scores, lag);
            if at_lag < level {
                let (from, at_from) = before;
                let [from_ns, to_ns] = [from, lag].map(|lag| middle(&apart(samples, lag)) as f64);
                let time_ns = (from_ns + (to_ns - from_ns) * (at_from - level) / (at_from - at_lag)) as u64;
                // Where something else varies from packet to packet, the slow part alone would make neighbours too alike.
                let alike = of_neighbours + NEIGHBOURS_MORE_ALIKE;
                return Some(found(if alike < 1.0 { time_ns.min(time_of(&gaps, alike)) } else { time_ns }));
            }
            before = (lag, at_lag);
            lag = (lag + 1).max(lag * 17 / 16);
        }
        None
    }
}

/// The correlation time of a jitter whose neighbours, sent `gaps` apart, have the correlation `alike`, from 0 and below 1.
fn time_of(gaps: &[Nanos], alike: f64) -> u64 {
    let longest = gaps.iter().max().map_or(0, |gap| gap.0) as f64;
    // The longest gap's delays are 0.99999 alike where the time is 400 times as long.
    let (mut short, mut long) = (1.0, 400.0 * longest + 1.0);
    for _ in 0..HALVINGS {
        let time = f64::sqrt(short * long);
        let mean = gaps.iter().map(|gap| jitter_correlation(*gap, Nanos(time as u64))).sum::<f64>() / gaps.len() as f64;
        if mean > alike { long = time } else { short = time }
    }
    short as u64
}

/// The times from each sample to the one that is `lag` later, in nanoseconds, ascending.
fn apart(samples: &[(i64, f64, u32)], lag: usize) -> Vec<u64> {
    let mut apart: Vec<u64> = samples.iter().zip(&samples[lag..]).map(|(one, later)| later.0.abs_diff(one.0)).collect();
    apart.sort_unstable();
    apart
}

/// The median of ascending times; 0 of none.
fn middle(ascending: &[u64]) -> u64 {
    ascending.get(ascending.len() / 2).copied().unwrap_or(0)
}

/// The middles of equal parts of ascending times.
fn typical(ascending: &[u64]) -> Vec<Nanos> {
    let parts = ascending.len().min(GAPS);
    (0..parts).map(|nth| Nanos(ascending[(2 * nth + 1) * ascending.len() / (2 * parts)])).collect()
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
