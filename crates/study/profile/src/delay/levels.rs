//! Levels of a delay between its shifts, and the delay without them.

use serde::Serialize;

use super::shifts::{Shifts, shifts};

/// (Sent, delay, resolution) in nanoseconds, by time.
pub(crate) type Samples = Vec<(i64, f64, u32)>;

/// A smaller shift may be one of the hosts' scheduling, nanoseconds.
const LEAST_NS: f64 = 20_000.0;
/// A shift is at least this part of the jitter's standard deviation: in a long measurement less is significant, and nobody feels it.
const LEAST_OF_STDDEV: f64 = 0.2;
/// A level has so many probes.
const PROBES_LEAST: usize = 16;
/// A level lasts so long, nanoseconds. A host that paused, or a queue that was full for a moment, is jitter.
const LASTS_LEAST_NS: i64 = 2_000_000_000;
/// A way whose level changed by less than this part of the round trip's has no part in it.
const LEAST_OF_SHIFT: f64 = 0.2;

/// The delay went to another level, as after a change of the route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DelayShift {
    /// When the first probe of the new level was sent, nanoseconds after the first of all.
    pub at_ns: u64,
    /// By how much the round trip became longer, nanoseconds.
    pub rtt_ns: f64,
    /// By how much the way to the server became longer, where its stamps are known.
    pub forward_ns: Option<f64>,
    /// By how much the way back became longer.
    pub backward_ns: Option<f64>,
}

/// What shifts were found of a round trip.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Levels {
    /// When the first probe of each new level was sent.
    pub(crate) at: Vec<i64>,
    /// How much longer each of them is than the one before.
    changes: Vec<f64>,
    /// Slow changes all the time, or too little data, leave it open.
    pub(crate) unknown: bool,
}

impl Levels {
    /// Of round trips, whose way is known to have changed before the probes at `known` were sent, ascending.
    pub(crate) fn of(rtts: &Samples, known: &[i64]) -> Self {
        let delays: Vec<f64> = rtts.iter().map(|sample| sample.1).collect();
        let mut known: Vec<usize> =
            known.iter().map(|at_ns| rtts.partition_point(|sample| sample.0 < *at_ns)).collect();
        known.dedup();
        let Shifts::At(found) = shifts(&delays, &known) else { return Self { unknown: true, ..Self::default() } };
        // Some late answers in a row are no level; on another way they are.
        let end = rtts.len();
        let lasts = |nth: usize| {
            let (from, to) = (found[nth], *found.get(nth + 1).unwrap_or(&end));
            let long = rtts[to - 1].0 - rtts[from].0 >= LASTS_LEAST_NS;
            to - from >= PROBES_LEAST && (long || known.contains(&from))
        };
        let mut at: Vec<i64> = (0..found.len()).filter(|nth| lasts(*nth)).map(|nth| rtts[found[nth]].0).collect();
        loop {
            let changes = changes(rtts, &at);
            let stddev = stddev(&without(rtts, &at, &changes));
            let least = LEAST_NS.max(LEAST_OF_STDDEV * stddev);
            let smallest = changes.iter().enumerate().min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
            match smallest {
                Some((nth, change)) if change.abs() < least => _ = at.remove(nth),
                _ => return Self { at, changes, unknown: false },
            }
        }
    }

    /// What of the shifts one way has.
    pub(crate) fn of_way(&self, way: &Samples) -> Vec<f64> {
        let own = changes(way, &self.at);
        let of = |(own, all): (f64, &f64)| if own.abs() < LEAST_OF_SHIFT * all.abs() { 0.0 } else { own };
        own.into_iter().zip(&self.changes).map(of).collect()
    }

    pub(crate) fn shifts(&self, began_ns: i64, ways: [Option<&[f64]>; 2]) -> Vec<DelayShift> {
        let of = |nth: usize, way: usize| ways[way].and_then(|way| way.get(nth)).copied();
        (0..self.at.len())
            .map(|nth| DelayShift {
                at_ns: self.at[nth].abs_diff(began_ns),
                rtt_ns: self.changes[nth],
                forward_ns: of(nth, 0),
                backward_ns: of(nth, 1),
            })
            .collect()
    }

    /// The round trip's own.
    pub(crate) fn changes(&self) -> &[f64] {
        &self.changes
    }
}

/// `samples` as if all were of the first level.
pub(crate) fn without(samples: &Samples, at: &[i64], changes: &[f64]) -> Samples {
    let (mut nth, mut above) = (0, 0.0);
    let level = |sample: &(i64, f64, u32)| {
        while at.get(nth).is_some_and(|at| *at <= sample.0) {
            above += changes[nth];
            nth += 1;
        }
        (sample.0, sample.1 - above, sample.2)
    };
    samples.iter().map(level).collect()
}

/// How much longer delays are from each of `at` on than before: by the means of the middle halves.
fn changes(samples: &Samples, at: &[i64]) -> Vec<f64> {
    let mut from = 0;
    let mut middles: Vec<f64> = Vec::new();
    for until in at.iter().copied().chain([i64::MAX]) {
        let to = samples.partition_point(|sample| sample.0 < until).max(from);
        let mut level: Vec<f64> = samples[from..to].iter().map(|sample| sample.1).collect();
        level.sort_by(f64::total_cmp);
        let middle = &level[level.len() / 4..level.len() - level.len() / 4];
        // A level in which a way has no stamps is that of before.
        let before = middles.last().copied().unwrap_or_default();
        middles.push(if middle.is_empty() { before } else { middle.iter().sum::<f64>() / middle.len() as f64 });
        from = to;
    }
    middles.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn stddev(samples: &Samples) -> f64 {
    let count = samples.len().max(1) as f64;
    let mean = samples.iter().map(|sample| sample.1).sum::<f64>() / count;
    (samples.iter().map(|sample| (sample.1 - mean).powi(2)).sum::<f64>() / count).sqrt()
}
