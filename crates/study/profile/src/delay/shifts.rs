//! Level shifts of a delay: a route that changed, also where jitter hides the step.
//!
//! Delays become normal scores of their ranks, so that rare long delays weigh little, and means of blocks. Each of a set of intervals of all
//! lengths is tested for one shift by the greatest standardised CUSUM (Page 1954); of the intervals in which it exceeds a threshold the shortest
//! are taken first, and a shift rules out all intervals that contain it. Neighbours are alike: the scale is that of sums over times in
//! which they are no longer (the long-run variance). Where that time is not found within the measurement, delay wanders, and no shift is told.
//!
//! Source: Kovács, Li, Bühlmann and Munk, "Seeded binary segmentation", Biometrika 110 (2023); Baranowski, Chen and Fryzlewicz,
//! "Narrowest-over-threshold detection", JRSS B 81 (2019).
//!
//! Differences: blocks instead of single values; the scale comes from quantiles of differences of blocks, which single shifts do not move.

use std::ops::Range;

use super::correlation::normal_scores;

/// A CUSUM of so many standard deviations is a shift: of 1,000 runs without one fewer than 10 exceed it (`tests/suite/shifts.rs`).
const THRESHOLD: f64 = 5.0;
/// Blocks of which the scale is known well enough.
const BLOCKS_LEAST: usize = 48;
/// More blocks cost time alone.
const BLOCKS_MOST: usize = 4_096;
/// Blocks on each side of a shift.
const SIDE_LEAST: usize = 4;
/// Sums over twice the time have a scale at most so much larger: neighbours are alike no more.
const FLAT: f64 = 1.2;
/// Of delays that hardly vary: a single late answer is no shift.
const SCALE_LEAST: f64 = 0.3;
/// Where the route is known to have changed: one place is tested, not all of them. By chance one in 1,000 is higher.
const THRESHOLD_KNOWN: f64 = 3.3;
/// Delays on each side of such a place.
const KNOWN_SIDE_LEAST: usize = 16;
/// More shifts are a delay that wanders.
const SHIFTS_MOST: usize = 20;

/// Shifts of a delay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shifts {
    /// The index of the first sample of each new level, ascending; none: one level.
    At(Vec<usize>),
    /// The delay changes slowly all the time, or there is too little data to tell.
    Wanders,
}

/// Finds them in `delays`, by time. `known` are the first samples after known route changes, ascending: there a smaller
/// shift is one, too.
pub(crate) fn shifts(delays: &[f64], known: &[usize]) -> Shifts {
    let scores = normal_scores(delays);
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(scores.iter().scan(0.0, |sum, score| {
            *sum += score;
            Some(*sum)
        }))
        .collect();
    let Some((block, scale)) = long_run_scale(&sums) else { return Shifts::Wanders };
    // Shortest first, of equal ones the highest: one that has a shift already has no other.
    let mut above: Vec<Found> = intervals(scores.len() / block)
        .into_iter()
        .filter_map(|(from, to)| Found::of(&sums, from * block..to * block, block))
        .filter(|found| found.height > THRESHOLD * scale)
        .collect();
    above.sort_by(|a, b| a.within.len().cmp(&b.within.len()).then(b.height.total_cmp(&a.height)));
    let mut at: Vec<usize> = Vec::new();
    for found in above {
        if !at.iter().any(|at| found.within.start < *at && *at < found.within.end) {
            at.push(found.at);
        }
    }
    at.sort_unstable();
    if at.len() > SHIFTS_MOST {
        return Shifts::Wanders;
    }
    let mut at = refined(&sums, &at, block);
    for place in known_shifts(&sums, &at, known, SIDE_LEAST * block, scale) {
        at.insert(at.partition_point(|at| *at < place), place);
    }
    Shifts::At(at)
}

/// Those of `known` at which the delay shifts and which are not near one that was found.
fn known_shifts(sums: &[f64], found: &[usize], known: &[usize], near: usize, scale: f64) -> Vec<usize> {
    let mut edges: Vec<usize> = [&[0], found, known, &[sums.len() - 1]].concat();
    edges.sort_unstable();
    edges.dedup();
    let shifts = |place: &usize| {
        let nth = edges.partition_point(|edge| edge < place);
        let (Some(before), Some(after)) = (nth.checked_sub(1), edges.get(nth + 1)) else { return false };
        let within = edges[before]..*after;
        let sides = (place - within.start).min(within.end - place);
        let is_found = found.iter().any(|found| found.abs_diff(*place) <= near);
        let higher = |(_, height): (usize, f64)| height > THRESHOLD_KNOWN * scale;
        sides >= KNOWN_SIDE_LEAST && !is_found && highest(sums, &within, [*place].into_iter()).is_some_and(higher)
    };
    known.iter().copied().filter(shifts).collect()
}

/// The likeliest shift within an interval.
#[derive(Debug)]
struct Found {
    within: Range<usize>,
    at: usize,
    /// Of the standardised CUSUM, in units of a score.
    height: f64,
}

impl Found {
    /// Looks every `step` samples. `None`: the interval is too short.
    fn of(sums: &[f64], within: Range<usize>, block: usize) -> Option<Self> {
        let side = SIDE_LEAST * block;
        let places = (within.start + side..=within.end.checked_sub(side)?).step_by(block);
        let (at, height) = highest(sums, &within, places)?;
        Some(Self { within, at, height })
    }
}

fn highest(sums: &[f64], within: &Range<usize>, places: impl Iterator<Item = usize>) -> Option<(usize, f64)> {
    let height = |at: usize| {
        let (before, after) = ((at - within.start) as f64, (within.end - at) as f64);
        let (left, right) = (sums[at] - sums[within.start], sums[within.end] - sums[at]);
        (right / after - left / before).abs() * (before * after / (before + after)).sqrt()
    };
    places.map(|at| (at, height(at))).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Intervals of all lengths, in blocks: each √2 times as long as those before, each half overlapping the next.
fn intervals(blocks: usize) -> Vec<(usize, usize)> {
    let (mut all, mut length) = (Vec::new(), blocks as f64);
    while length >= (2 * SIDE_LEAST) as f64 {
        let count = if length as usize >= blocks { 1 } else { (2.0 * blocks as f64 / length).ceil() as usize };
        let apart = (blocks as f64 - length) / (count.max(2) - 1) as f64;
        all.extend((0..count).map(|nth| {
            let from = (apart * nth as f64) as usize;
            (from, (from + length.ceil() as usize).min(blocks))
        }));
        length /= std::f64::consts::SQRT_2;
    }
    all
}

/// How many samples make a block whose neighbours are alike no more, and the scale of a sample's score in long sums.
fn long_run_scale(sums: &[f64]) -> Option<(usize, f64)> {
    let samples = sums.len() - 1;
    let mut block = samples.div_ceil(BLOCKS_MOST).max(1);
    let (mut greatest, mut before, mut flat) = (0.0_f64, None, None);
    while samples / block >= BLOCKS_LEAST {
        let scale = block_scale(sums, block);
        greatest = greatest.max(scale);
        if before.is_some_and(|before| scale <= before * FLAT) {
            // Twice in a row: one may be chance.
            if let Some(block) = flat {
                return Some((block, greatest.max(SCALE_LEAST)));
            }
            flat = Some(block);
        } else {
            flat = None;
        }
        before = Some(scale);
        block *= 2;
    }
    None
}

/// The scale of block means, times the root of their length: by the 80 % quantile of differences of every other block.
fn block_scale(sums: &[f64], block: usize) -> f64 {
    /// The 90 % quantile of the normal distribution.
    const NORMAL_P90: f64 = 1.281_551_565_5;
    let means: Vec<f64> = sums
        .iter()
        .step_by(block)
        .collect::<Vec<_>>()
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / block as f64)
        .collect();
    let mut differences: Vec<f64> = means.iter().zip(means.iter().skip(2)).map(|(a, b)| (b - a).abs()).collect();
    if differences.is_empty() {
        return 0.0;
    }
    let place = (differences.len() - 1) * 4 / 5;
    let quantile = *differences.select_nth_unstable_by(place, f64::total_cmp).1;
    quantile / NORMAL_P90 / std::f64::consts::SQRT_2 * (block as f64).sqrt()
}

/// Each shift to the sample, by all that lies between the shifts beside it: the short interval that it was found in knows its place less well. The
/// one before has its new place already: else two could pass each other.
fn refined(sums: &[f64], at: &[usize], block: usize) -> Vec<usize> {
    let mut refined: Vec<usize> = Vec::with_capacity(at.len());
    for (nth, coarse) in at.iter().copied().enumerate() {
        let from = refined.last().copied().unwrap_or(0);
        let to = at.get(nth + 1).copied().unwrap_or(sums.len() - 1);
        let places = from + block..to.saturating_sub(block);
        refined.push(highest(sums, &(from..to), places).map_or(coarse, |(at, _)| at));
    }
    refined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Levels of any lengths and heights, with some jitter.
        #[test]
        fn shifts_ascend(levels in proptest::collection::vec((20_usize..400, 0_u8..12), 2..12), seed in any::<u64>()) {
            let mut state = seed | 1;
            let mut jitter = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            let delays: Vec<f64> = levels.iter().flat_map(|(probes, height)| vec![f64::from(*height); *probes])
                .map(|level| level + 3.0 * jitter()).collect();
            if let Shifts::At(at) = shifts(&delays, &[]) {
                prop_assert!(at.is_sorted_by(|a, b| a < b) && at.iter().all(|at| (1..delays.len()).contains(at)), "{at:?}");
            }
        }
    }
}
