//! Are two series of packets alike, within margins that are stated? One test for `verify` and `compare --behaviour`.
//!
//! A test of difference finds any two different, given enough packets, and none with few. Here the question is turned round (Schuirmann,
//! "A comparison of the two one-sided tests procedure", 1987): within its margin a quantity is *within* where the 90 % interval of the
//! difference lies within the margin, *outside* where the 99 % interval lies beyond, and else there is too little data to say. Where a
//! margin is nothing beside chance, a 90 % interval lies beyond it in one of ten comparisons of one path with itself, and each comparison
//! has several quantities: the greater interval keeps all of them together below 5 %.
//!
//! Neighbours depend on each other. So each series is cut into blocks longer than its memory, and blocks are drawn with replacement to see
//! how much a quantity varies by chance (Künsch, "The jackknife and the bootstrap for general stationary observations", 1989).
//!
//! Differences from the paper: the interval of a loss share has Poisson's bound where a side lost nothing, as no draw of its blocks does;
//! that of the distance of two distribution functions is a band around all of both (the greatest distance over the draws, 90 or 99 % of them).

mod blocks;
mod quantity;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use blocks::Item;
use blocks::{Axis, BLOCKS_LEAST, Blocks, Memory, Sum};
pub use quantity::{Margin, MarginError, Margins, Quantity, QuantityName, Verdict};

/// Draws of the blocks.
const DRAWS: usize = 999;
/// Mean loss of 0 events is below this with 95 % confidence (Poisson).
const NONE_SEEN: f64 = 3.0;
/// Runs of losses below which their mean length means nothing.
const RUNS_LEAST: f64 = 10.0;

/// Two sides compared.
#[derive(Debug)]
pub struct Equivalence {
    axis: Axis,
    sides: [Sum; 2],
    /// Each quantity of both.
    values: [[f64; 11]; 2],
    /// Blocks of both.
    pub blocks: [u64; 2],
    /// Independent items that the items of both are worth.
    pub effective_samples: [u64; 2],
    /// Differences, draw by draw; none with too few blocks.
    draws: Vec<[f64; 11]>,
    /// 90 % of draws, and 99 %, have distribution functions that are nowhere farther from those of all.
    bands: [f64; 2],
}

impl Equivalence {
    /// Compares `tested`, one or more runs, with `reference`. Items come in the order of time, at both sides equally far apart.
    pub fn of<I>(reference: I, tested: &[I], seed: u64) -> Self
    where
        I: Iterator<Item = Item> + Clone,
    {
        let count = |items: &I| items.clone().count();
        let all = std::iter::once(&reference).chain(tested);
        let axis = Axis::over(all.flat_map(|items| items.clone().filter_map(|item| item.value)).collect());
        let counts = [count(&reference), tested.iter().map(count).sum()];
        let memories = [
            Memory::of(reference.clone(), counts[0]),
            tested.first().map_or(Memory { items: 1.0, block: 1 }, |run| Memory::of(run.clone(), count(run))),
        ];
        let length = memories[0].block.max(memories[1].block);
        let blocks_of = |items: &I| Blocks::of(items.clone(), count(items), &axis, length);
        let blocks = [blocks_of(&reference), Blocks(tested.iter().flat_map(|run| blocks_of(run).0).collect())];
        let sides = blocks.each_ref().map(|blocks| blocks.sum(&axis, None));
        let values = sides.each_ref().map(|side| side.values(&axis));
        let enough = blocks.iter().all(|blocks| blocks.0.len() >= BLOCKS_LEAST);
        let (draws, bands) = if enough { drawn(&blocks, &sides, &axis, seed) } else { (Vec::new(), [1.0; 2]) };
        let effective_samples = [0, 1].map(|side| (counts[side] as f64 / memories[side].items) as u64);
        let blocks = blocks.map(|blocks| blocks.0.len() as u64);
        Self { axis, sides, values, blocks, effective_samples, draws, bands }
    }

    /// One quantity; `None` where either side has none, or neither has any of it.
    pub fn quantity(&self, name: QuantityName, margins: &Margins) -> Option<Quantity> {
        let nth = QuantityName::ALL.iter().position(|known| *known == name)?;
        let [mut reference, mut tested] = [0, 1].map(|side| self.values[side][nth]);
        if name == QuantityName::Distance {
            (reference, tested) = (0.0, self.distance(margins.least_ns)?);
        }
        if !reference.is_finite() || !tested.is_finite() {
            return None;
        }
        // Ten independent ones beyond the level, or its interval is a guess.
        let independent = self.effective_samples[0].min(self.effective_samples[1]);
        let few_runs = self.sides.iter().any(|side| side.block.runs < RUNS_LEAST);
        let around = |band: f64| [(tested - band).max(0.0), (tested + band).min(1.0)];
        let intervals = match name {
            _ if self.draws.is_empty() => None,
            QuantityName::Distance => Some(self.bands.map(around)),
            QuantityName::P99Ns if independent < 1_000 => None,
            QuantityName::P999Ns if independent < 10_000 => None,
            QuantityName::LossRunPackets | QuantityName::LossDispersion if few_runs => None,
            _ => intervals(self.draws.iter().map(|draw| draw[nth]).collect()),
        };
        let unseen = |side: usize| {
            let block = &self.sides[side].block;
            if block.lost == 0.0 && name == QuantityName::LossShare { NONE_SEEN / block.sent.max(1.0) } else { 0.0 }
        };
        let intervals = intervals.map(|both| both.map(|[low, high]| [low - unseen(0), high + unseen(1)]));
        let [difference, difference_99] = intervals.map_or([None; 2], |both| both.map(Some));
        let (margin, verdict) = (margins.of(name, reference), Verdict::TooLittleData);
        Some(Quantity { name, reference, tested, difference, difference_99, margin, verdict }.judged())
    }

    /// The greatest distance of both distribution functions where either may be moved by `tolerance`.
    fn distance(&self, tolerance: f64) -> Option<f64> {
        let [a, b] = self.sides.each_ref().map(Sum::distribution);
        let bounds = &self.axis.bounds;
        let beyond = |low: &[f64], high: &[f64]| {
            // How much more of `low` lies up to a bound than of `high` up to it and the tolerance.
            (bounds.iter().zip(low))
                .map(|(bound, low)| low - high[self.axis.bin(bound + tolerance)])
                .fold(0.0, f64::max)
        };
        (!bounds.is_empty()).then(|| beyond(&a, &b).max(beyond(&b, &a)))
    }
}

/// Intervals of 90 and 99 % of the draws; `None` where half of them have no value.
fn intervals(mut draws: Vec<f64>) -> Option<[[f64; 2]; 2]> {
    let all = draws.len();
    draws.retain(|value| value.is_finite());
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws.get((share * draws.len() as f64) as usize).copied();
    if draws.len() * 2 < all { None } else { Some([[at(0.05)?, at(0.95)?], [at(0.005)?, at(0.995)?]]) }
}

/// The tested side's values less the reference's, with blocks of both drawn anew each time; and the bands of distribution functions.
fn drawn(blocks: &[Blocks; 2], sides: &[Sum; 2], axis: &Axis, seed: u64) -> (Vec<[f64; 11]>, [f64; 2]) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = |blocks: &Blocks| {
        let count = blocks.0.len() as u64;
        let nth = |_| ((u128::from(random.next_u64()) * u128::from(count)) >> 64) as usize;
        blocks.sum(axis, Some(&(0..count).map(nth).collect::<Vec<usize>>()))
    };
    let [reference, tested] = sides.each_ref().map(Sum::distribution);
    let (mut differences, mut farthest) = (Vec::with_capacity(DRAWS), Vec::with_capacity(DRAWS));
    for _ in 0..DRAWS {
        let [a, b] = blocks.each_ref().map(&mut draw);
        let (of_a, of_b) = (a.values(axis), b.values(axis));
        differences.push(std::array::from_fn(|nth| of_b[nth] - of_a[nth]));
        let (of_a, of_b) = (a.distribution(), b.distribution());
        let apart = |nth: usize| ((of_a[nth] - reference[nth]) - (of_b[nth] - tested[nth])).abs();
        farthest.push((0..axis.bounds.len()).map(apart).fold(0.0, f64::max));
    }
    farthest.sort_by(f64::total_cmp);
    (differences, [farthest[DRAWS * 90 / 100], farthest[DRAWS * 99 / 100]])
}

#[cfg(test)]
mod tests;
