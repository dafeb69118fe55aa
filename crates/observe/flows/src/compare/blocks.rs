//! Are two series of one law, though neighbours in either depend on each other?
//!
//! The tests of Kolmogorov and Smirnov and of Anderson and Darling take samples as independent, and reject almost anything that is
//! measured in time. Here their statistics are kept and their p-values are not: each series is cut into blocks that are longer than
//! its memory, and blocks change sides at random, as often as tells how large the statistic becomes by chance (C. Kirch,
//! "Block permutation principles for the change analysis of dependent data", Journal of Statistical Planning and Inference 137, 2007).
//! What depends on each other stays together, so the chance includes it.
//!
//! A series' memory is its integrated autocorrelation time, summed up to five times itself (A. Sokal, "Monte Carlo methods in statistical
//! mechanics", 1997, §3), of its ranks and of their distance from the middle: whichever is longer. A block has three of them. A series that has
//! too few such blocks says nothing, and is said to.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// Points at which the distribution functions are compared.
const BINS: usize = 64;
/// Means of parts of a series that its memory is found in.
const PARTS: usize = 512;
/// Blocks of a series at most: more make the test no better.
const MOST_BLOCKS: usize = 64;
/// Blocks that a series must have: with six and six, 924 ways to change sides.
const LEAST_BLOCKS: usize = 6;
/// Samples from which on memory can be seen.
const LEAST_FOR_MEMORY: usize = 64;
/// Times that blocks change sides, unless [`ENOUGH_BEYOND`] say no sooner.
const MOST_CHANGES: u32 = 1_999;
/// So many larger statistics end it (Besag and Clifford, "Sequential Monte Carlo p-values", Biometrika 78, 1991).
const ENOUGH_BEYOND: u32 = 20;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    /// By the greatest distance of the distribution functions.
    pub(super) kolmogorov_smirnov_p: f64,
    /// By their squared distance, the tails weighted.
    pub(super) anderson_darling_p: f64,
    /// Blocks of either series.
    pub(super) blocks: [usize; 2],
}

/// Why nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooLittle {
    /// Samples.
    Samples,
    /// Blocks that do not depend on each other.
    Blocks,
}

/// Tests whether `a` and `b` are of one law; both in order of time, and samples of both equally far apart. Of fewer than 64 samples
/// memory cannot be seen: they are taken as independent if `events`, else they are too few.
pub(super) fn test(a: &[f64], b: &[f64], events: bool) -> Result<Found, TooLittle> {
    let least = if events { LEAST_BLOCKS } else { LEAST_FOR_MEMORY };
    if a.len() < least || b.len() < least || !a.iter().chain(b).all(|value| value.is_finite()) {
        return Err(TooLittle::Samples);
    }
    let bounds = bounds(a, b);
    let [first, second] = [a, b].map(|series| series.iter().map(|value| bin(&bounds, *value)).collect::<Vec<usize>>());
    let length = [&first, &second].map(|series| block_length(series, bounds.len() + 1)).into_iter().fold(1, usize::max);
    let blocks = [first.len(), second.len()].map(|len| len / length);
    if blocks.iter().any(|blocks| *blocks < LEAST_BLOCKS) {
        return Err(TooLittle::Blocks);
    }
    let mut all = histograms(&first, blocks[0], length, bounds.len() + 1);
    all.extend(histograms(&second, blocks[1], length, bounds.len() + 1));
    Ok(change_sides(&mut all, blocks))
}

/// Values that split both together into [`BINS`] parts, as far as they differ.
fn bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    pooled.sort_by(f64::total_cmp);
    let at = |part: usize| pooled[(part * pooled.len() / BINS).min(pooled.len() - 1)];
    let mut bounds: Vec<f64> = (1..BINS).map(at).collect();
    // The least is no bound: nothing lies below it. A bin has what is from its bound on.
    bounds.retain(|bound| *bound > pooled[0]);
    // So that a value which most share is parted from the few beyond.
    if let Some(beyond) = pooled.iter().find(|value| **value > at(BINS - 1)) {
        bounds.push(*beyond);
    }
    bounds.dedup();
    bounds
}

fn bin(bounds: &[f64], value: f64) -> usize {
    bounds.partition_point(|bound| *bound <= value)
}

/// Samples of a block that is three times as long as the memory of `series`.
fn block_length(series: &[usize], bins: usize) -> usize {
    let shortest = series.len().div_ceil(MOST_BLOCKS);
    if series.len() < LEAST_FOR_MEMORY {
        return shortest;
    }
    let mut counts = vec![0_usize; bins];
    series.iter().for_each(|bin| counts[*bin] += 1);
    // The middle rank of each bin, 0 to 1.
    let mut below = 0.0;
    let ranks: Vec<f64> = counts
        .iter()
        .map(|count| {
            let share = *count as f64 / series.len() as f64;
            below += share;
            below - share / 2.0
        })
        .collect();
    let part = series.len().div_ceil(PARTS);
    let means = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
        series.chunks_exact(part).map(|part| part.iter().map(|bin| of(ranks[*bin])).sum::<f64>()).collect()
    };
    let memory = correlation_time(&means(&|rank| rank)).max(correlation_time(&means(&|rank| (rank - 0.5).abs())));
    // Independent samples look a little dependent now and then.
    let parts = if memory < 1.3 { 1 } else { (3.0 * memory).ceil() as usize };
    (part * parts).max(shortest)
}

/// 1 + 2 Σ ρ of a series, in its samples; 1 of independent ones.
fn correlation_time(series: &[f64]) -> f64 {
    let count = series.len() as f64;
    let mean = series.iter().sum::<f64>() / count;
    let variance = series.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    if variance <= 0.0 {
        return 1.0;
    }
    let mut time = 1.0;
    for lag in 1..series.len() / 2 {
        let product: f64 = series.iter().zip(&series[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum();
        time += 2.0 * product / variance;
        if lag as f64 >= 5.0 * time {
            break;
        }
    }
    // The mean is the series' own, so that a long memory looks shorter than it is.
    f64::max(time, 1.0)
}

/// How many samples of each of `blocks` blocks lie in each bin.
fn histograms(series: &[usize], blocks: usize, length: usize, bins: usize) -> Vec<Vec<u32>> {
    let blocks = series.chunks_exact(length).take(blocks);
    blocks
        .map(|block| {
            let mut counts = vec![0; bins];
            block.iter().for_each(|bin| counts[*bin] += 1);
            counts
        })
        .collect()
}

/// How often blocks that changed sides differ as much as they did before.
fn change_sides(blocks: &mut [Vec<u32>], [first, second]: [usize; 2]) -> Found {
    let bins = blocks[0].len();
    let mut pooled = vec![0_u64; bins];
    blocks.iter().for_each(|block| pooled.iter_mut().zip(block).for_each(|(sum, count)| *sum += u64::from(*count)));
    let share = first as f64 / (first + second) as f64;
    let statistics = |side: &[Vec<u32>]| {
        let total = pooled.iter().sum::<u64>() as f64;
        let (mut below, mut of_side, mut distance, mut squares) = (0_u64, 0_u64, 0_f64, 0_f64);
        for (bin, count) in pooled.iter().enumerate().take(bins - 1) {
            below += count;
            of_side += side.iter().map(|block| u64::from(block[bin])).sum::<u64>();
            let level = below as f64 / total;
            let difference = (of_side as f64 / (total * share) - level) / (1.0 - share);
            distance = distance.max(difference.abs());
            squares += difference * difference * (*count as f64 / total) / (level * (1.0 - level)).max(1e-12);
        }
        (distance, squares)
    };
    let (distance, squares) = statistics(&blocks[..first]);
    // Equal captures get equal verdicts.
    let mut random = SplitMix64::seed_from_u64(0x6c6f_6e67_6861_756c);
    let (mut changes, mut further, mut larger) = (0, 0, 0);
    while changes < MOST_CHANGES && (further < ENOUGH_BEYOND || larger < ENOUGH_BEYOND) {
        for place in 0..first {
            let other = place + below(&mut random, (blocks.len() - place) as u64) as usize;
            blocks.swap(place, other);
        }
        let (of_chance, squares_of_chance) = statistics(&blocks[..first]);
        changes += 1;
        // Equal ones but for rounding.
        further += u32::from(of_chance >= distance - 1e-12);
        larger += u32::from(squares_of_chance >= squares - 1e-12);
    }
    // As laid is one of the ways (Phipson and Smyth, "Permutation p-values should never be zero", 2010).
    let p = |beyond: u32| f64::from(beyond + 1) / f64::from(changes + 1);
    Found { kolmogorov_smirnov_p: p(further), anderson_darling_p: p(larger), blocks: [first, second] }
}

fn below(random: &mut SplitMix64, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests;
