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
const TYPICAL: usize = 64;
/// Halvings that find a time to a share of 1e-7.
const HALVINGS: usize = 30;

/// How similar delays of neighbours are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Correlation {
    /// Of one probe's delay and the next one's, by ranks. Of packets that were sent at one time the first counts.
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
    /// Of samples (sent, delay, resolution) in nanoseconds, by time. The wire packets of a super-packet have one stamp: the first counts. By normal
    /// scores, as the jitter of a path is made: a smooth normal process whose levels become delays. `None` where the delay does not vary or there
    /// are too few samples.
    pub(super) fn of(samples: &[(i64, f64, u32)]) -> Option<Self> {
        let firsts = || samples.chunk_by(|one, next| one.0 == next.0).map(|equal| &equal[0]);
        let count = firsts().count();
        if count < LEAST {
            return None;
        }
        // Millions of samples fill half of the memory that there is.
        let mut delays: Vec<f64> = Vec::with_capacity(count);
        delays.extend(firsts().map(|sample| sample.1));
        let scores = normal_scores(&delays);
        drop(delays);
        if scores.iter().all(|score| *score == 0.0) {
            return None;
        }
        let mut sent: Vec<i64> = Vec::with_capacity(count);
        sent.extend(firsts().map(|sample| sample.0));
        let (neighbours_ns, neighbours) = {
            let apart = apart(&sent, 1);
            (middle(&apart), typical(&apart))
        };
        let level = (-1f64).exp();
        let of_neighbours = autocorrelation(&scores, 1);
        let found = |time_ns, below_interval| Self { of_neighbours, neighbours_ns, time_ns, below_interval };
        if of_neighbours < level {
            // Where many neighbours are of two trains, those of one may be more alike than 1/e.
            let time_ns = time_of(&neighbours, of_neighbours.max(0.0));
            return Some(found(time_ns, time_ns <= neighbours_ns));
        }
        let (mut before, mut lag) = ((0, 1.0), 1);
        while lag < count / 4 {
            let at_lag = autocorrelation(&scores, lag);
            if at_lag < level {
                let (from, at_from) = before;
                let [from_ns, to_ns] = [from, lag].map(|lag| middle(&apart(&sent, lag)) as f64);
                let time_ns = (from_ns + (to_ns - from_ns) * (at_from - level) / (at_from - at_lag)) as u64;
                // Where something else varies from packet to packet, the slow part alone would make neighbours too alike.
                let alike = of_neighbours + NEIGHBOURS_MORE_ALIKE;
                let time_ns = if alike < 1.0 { time_ns.min(time_of(&neighbours, alike)) } else { time_ns };
                return Some(found(time_ns, false));
            }
            before = (lag, at_lag);
            lag = (lag + 1).max(lag * 17 / 16);
        }
        None
    }
}

/// The correlation time of a jitter whose neighbours, sent so long `apart`, have the correlation `alike`, from 0 and below 1.
fn time_of(apart: &[Nanos], alike: f64) -> u64 {
    let longest = apart.iter().max().map_or(0, |apart| apart.0) as f64;
    // The delays of the longest time apart are 0.99999 alike where the correlation time is 400 times as long.
    let (mut short, mut long) = (1.0, 400.0 * longest + 1.0);
    for _ in 0..HALVINGS {
        let time = f64::sqrt(short * long);
        let mean =
            apart.iter().map(|apart| jitter_correlation(*apart, Nanos(time as u64))).sum::<f64>() / apart.len() as f64;
        if mean > alike { long = time } else { short = time }
    }
    short as u64
}

/// The times from each packet to the one that was sent `lag` later, in nanoseconds, ascending.
fn apart(sent: &[i64], lag: usize) -> Vec<u64> {
    let mut apart: Vec<u64> = sent.iter().zip(&sent[lag..]).map(|(one, later)| later.abs_diff(*one)).collect();
    apart.sort_unstable();
    apart
}

/// The median of ascending times; 0 of none.
fn middle(ascending: &[u64]) -> u64 {
    ascending.get(ascending.len() / 2).copied().unwrap_or(0)
}

/// The middles of equal parts of ascending times.
fn typical(ascending: &[u64]) -> Vec<Nanos> {
    let parts = ascending.len().min(TYPICAL);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays that rise and fall within 63 ms, of packets each millisecond.
    fn samples() -> Vec<(i64, f64, u32)> {
        (0..1_000_i32).map(|nth| (i64::from(nth) * 1_000_000, (f64::from(nth) / 10.0).sin() * 1e6, 1)).collect()
    }

    /// The wire packets of a super-packet have one stamp where they are sent, and arrive one after the other.
    #[test]
    fn packets_that_were_sent_at_one_time_count_once() {
        let once = samples();
        let found = Correlation::of(&once).unwrap();
        assert_eq!((found.neighbours_ns, found.below_interval), (1_000_000, false));
        assert!((10_000_000..12_000_000).contains(&found.time_ns), "{found:?}");
        let super_packet = |first: &(i64, f64, u32)| [0.0, 1e3, 2e3].map(|later| (first.0, first.1 + later, first.2));
        let many: Vec<_> = once.iter().flat_map(super_packet).collect();
        assert_eq!(Correlation::of(&many), Some(found));
    }

    #[test]
    fn nothing_is_said_of_few_packets_and_of_delays_that_do_not_vary() {
        let mut samples = samples();
        assert_eq!(Correlation::of(&samples[..LEAST - 1]), None);
        samples.iter_mut().for_each(|sample| sample.1 = 1e6);
        assert_eq!(Correlation::of(&samples), None);
        // All were sent at one time.
        samples.iter_mut().zip(0_i32..).for_each(|(sample, nth)| (sample.0, sample.1) = (5, f64::from(nth)));
        assert_eq!(Correlation::of(&samples), None);
    }
}
