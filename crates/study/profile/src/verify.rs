//! Does a path behave like what was measured? An equivalence test for each quantity.
//!
//! A test of difference finds any path different, given enough probes, and none with few. Here the question is turned round (Schuirmann,
//! "A comparison of the two one-sided tests procedure", 1987): within a margin that is stated, both are *equivalent* where the 90 % interval
//! of their difference lies within the margin, *different* where it lies outside, and else there is too little data to say.
//!
//! Neighbouring probes depend on each other. So the series is cut into blocks longer than its memory, and blocks are drawn with
//! replacement to see how much a quantity varies by chance (Künsch, "The jackknife and the bootstrap for general stationary
//! observations", 1989).

use std::str::FromStr;

use longhaul_path::spec::PathSpec;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::curves::Curves;
use crate::delay::{autocorrelation, normal_scores};
use crate::probes::{Probe, Probes};
use crate::simulate::simulate;

/// Draws of the blocks.
const DRAWS: usize = 999;
/// Blocks at most: more cost time and tell no more.
const BLOCKS_MOST: usize = 256;
/// Blocks that a series must have.
const BLOCKS_LEAST: usize = 10;
/// A block has so many times the memory of the series.
const MEMORIES: f64 = 5.0;
/// Levels of a distribution that are kept apart, and as many again of its last part.
const BINS: usize = 1_024;
/// The path is run until it has so many times the probes measured, or [`RUN_MOST`].
const RUN_TIMES: usize = 8;
const RUN_MOST: usize = 4_000_000;
const RUNS_MOST: u64 = 64;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum QuantityName {
    /// Median of the round trip, nanoseconds.
    RttMedianNs,
    /// From the 10 % to the 90 % quantile of the round trip, nanoseconds.
    RttRangeNs,
    /// The 99 % quantile above the median, nanoseconds.
    RttP99Ns,
    /// The 99.9 % quantile above the median, nanoseconds.
    RttP999Ns,
    /// Correlation of neighbouring round trips, by ranks.
    RttCorrelation,
    /// Share of probes without an answer.
    LossShare,
    /// Mean of probes lost in a row.
    LossRunPackets,
    /// Share of answers that came behind later ones.
    ReorderedShare,
    /// Share of answers beyond the first.
    DuplicateShare,
}

impl QuantityName {
    /// All, in the order of the report.
    pub const ALL: [Self; 9] = [
        Self::RttMedianNs,
        Self::RttRangeNs,
        Self::RttP99Ns,
        Self::RttP999Ns,
        Self::RttCorrelation,
        Self::LossShare,
        Self::LossRunPackets,
        Self::ReorderedShare,
        Self::DuplicateShare,
    ];

    /// Its name in `--margin` and on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::RttMedianNs => "median",
            Self::RttRangeNs => "range",
            Self::RttP99Ns => "p99",
            Self::RttP999Ns => "p99.9",
            Self::RttCorrelation => "correlation",
            Self::LossShare => "loss",
            Self::LossRunPackets => "loss-run",
            Self::ReorderedShare => "reordered",
            Self::DuplicateShare => "duplicates",
        }
    }

    /// Whether it is a time.
    pub fn is_time(self) -> bool {
        matches!(self, Self::RttMedianNs | Self::RttRangeNs | Self::RttP99Ns | Self::RttP999Ns)
    }

    /// Whether it is a share of packets.
    pub fn is_share(self) -> bool {
        matches!(self, Self::LossShare | Self::ReorderedShare | Self::DuplicateShare)
    }

    /// The margin unless told otherwise, and the least it can be: a share of the measured value, and an absolute value.
    ///
    /// 20 µs is what scheduling adds to a packet's time on a host. Shares below one in a thousand hurt no one whom a doubled share would not.
    fn margin(self) -> (f64, f64) {
        match self {
            Self::RttMedianNs => (0.01, 20_000.0),
            Self::RttRangeNs => (0.05, 20_000.0),
            Self::RttP99Ns | Self::RttP999Ns => (0.10, 20_000.0),
            Self::RttCorrelation => (0.0, 0.1),
            Self::LossShare | Self::ReorderedShare | Self::DuplicateShare => (0.2, 0.001),
            Self::LossRunPackets => (0.2, 0.2),
        }
    }
}

/// How much a quantity may differ, as a share of its measured value: `p99=5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    /// Of what.
    pub name: QuantityName,
    /// From 0.
    pub share: f64,
}

/// Why a text is no margin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: use NAME=SHARE such as p99=5%, NAME one of median, range, p99, p99.9, loss, loss-run, reordered, duplicates"
)]
pub struct MarginError(String);

impl FromStr for Margin {
    type Err = MarginError;

    fn from_str(text: &str) -> Result<Self, MarginError> {
        let wrong = || MarginError(text.escape_debug().take(40).collect());
        let (name, share) = text.split_once('=').ok_or_else(wrong)?;
        let name = QuantityName::ALL.into_iter().find(|quantity| quantity.name() == name.trim());
        let name = name.filter(|name| *name != QuantityName::RttCorrelation).ok_or_else(wrong)?;
        let share = share.trim();
        let share = match share.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            None => share.parse::<f64>(),
        };
        share.ok().filter(|share| (0.0..=10.0).contains(share)).map(|share| Self { name, share }).ok_or_else(wrong)
    }
}

/// What is said of a quantity, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Verdict {
    /// The difference is within the margin (90 % interval).
    Within,
    /// It is outside.
    Outside,
    /// The interval reaches over the margin's edge: more probes would tell.
    TooLittleData,
}

/// One quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantity {
    /// Which.
    pub name: QuantityName,
    /// As measured.
    pub measured: f64,
    /// As the path has it.
    pub path: f64,
    /// 90 % interval of the path's value less the measured one; none where the data have no 10 independent blocks.
    pub difference: Option<[f64; 2]>,
    /// How much it may differ.
    pub margin: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verification {
    /// Probes measured.
    pub probes: u64,
    /// Independent samples that they are worth: less where neighbours are alike.
    pub effective_samples: u64,
    /// Probes sent over the path in virtual time.
    pub path_probes: u64,
    /// Outside where any quantity is; within where all are.
    pub verdict: Verdict,
    /// Each quantity.
    pub quantities: Vec<Quantity>,
    /// Both as curves.
    #[serde(skip)]
    pub curves: Curves,
}

/// Runs `path` with the probes of `measured` and compares, quantity by quantity.
pub fn verify(path: &PathSpec, measured: &Probes, margins: &[Margin], seed: u64) -> Verification {
    let sent: Vec<i64> = measured.rows.iter().map(|row| row.sent_ns).collect();
    let runs = (RUN_MOST / sent.len().max(1)).clamp(1, RUN_TIMES).min(RUNS_MOST as usize);
    let simulated: Vec<Vec<Probe>> =
        (0..runs as u64).map(|run| simulate(path, &sent, measured.frame_bytes, seed.wrapping_add(run)).rows).collect();
    let axis = Axis::over(std::iter::once(&measured.rows).chain(&simulated));
    let memory = memory(&measured.rows);
    let length = block_length(measured.rows.len(), memory);
    let blocks = Blocks::of(&measured.rows, &axis, length);
    let of_path = Blocks::of_all(&simulated, &axis, length);
    let (seen, had) = (blocks.values(&axis, None), of_path.values(&axis, None));
    let differences = (blocks.enough() && of_path.enough()).then(|| differences(&blocks, &of_path, &axis, seed));
    let quantities: Vec<Quantity> = QuantityName::ALL
        .into_iter()
        .enumerate()
        .filter(|(nth, _)| seen[*nth].is_finite() && had[*nth].is_finite())
        .map(|(nth, name)| {
            let (share, least) = name.margin();
            let share = margins.iter().rev().find(|margin| margin.name == name).map_or(share, |margin| margin.share);
            let margin = (share * seen[nth].abs()).max(least);
            let difference = differences.as_ref().map(|all| interval(all.iter().map(|draw| draw[nth]).collect()));
            let verdict = match difference {
                Some([low, high]) if -margin <= low && high <= margin => Verdict::Within,
                Some([low, high]) if high < -margin || margin < low => Verdict::Outside,
                _ => Verdict::TooLittleData,
            };
            Quantity { name, measured: seen[nth], path: had[nth], difference, margin, verdict }
        })
        .collect();
    let any = |verdict: Verdict| quantities.iter().any(|quantity| quantity.verdict == verdict);
    let verdict = match () {
        () if any(Verdict::Outside) => Verdict::Outside,
        () if any(Verdict::TooLittleData) || quantities.is_empty() => Verdict::TooLittleData,
        () => Verdict::Within,
    };
    Verification {
        probes: sent.len() as u64,
        effective_samples: (sent.len() as f64 / memory) as u64,
        path_probes: (sent.len() * runs) as u64,
        verdict,
        quantities,
        curves: Curves::of(&measured.rows, &simulated),
    }
}

/// 5 % and 95 % quantiles.
fn interval(mut draws: Vec<f64>) -> [f64; 2] {
    draws.retain(|value| value.is_finite());
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws.get((share * draws.len() as f64) as usize).copied().unwrap_or(f64::MAX);
    [at(0.05), at(0.95)]
}

/// 1 + 2 Σ ρ of round trips and of losses, in probes (Sokal, 1997, §3): whichever is longer.
fn memory(rows: &[Probe]) -> f64 {
    let of = |values: Vec<f64>| {
        if values.len() < 64 {
            return 1.0;
        }
        let scores = normal_scores(&values);
        let mut time = 1.0;
        for lag in 1..values.len() / 2 {
            time += 2.0 * autocorrelation(&scores, lag);
            if lag as f64 >= 5.0 * time {
                break;
            }
        }
        f64::max(time, 1.0)
    };
    // Long series are thinned for it: what is alike over millions of probes is found in parts of them.
    let step = rows.len().div_ceil(1 << 17).max(1);
    let thin = |of: &dyn Fn(&Probe) -> Option<f64>| rows.iter().step_by(step).filter_map(of).collect::<Vec<f64>>();
    let rtt = of(thin(&|row| row.rtt_ns.map(|rtt| rtt as f64)));
    let loss = thin(&|row| Some(f64::from(u8::from(row.rtt_ns.is_none()))));
    let lost = if loss.iter().any(|lost| *lost > 0.0) { of(loss) } else { 1.0 };
    let found = rtt.max(lost);
    if step > 1 && found < 1.5 { 1.0 } else { found * step as f64 }
}

fn block_length(rows: usize, memory: f64) -> usize {
    rows.div_ceil(BLOCKS_MOST).max((MEMORIES * memory).ceil() as usize).max(1)
}

/// Values that part the round trips of all into bins: even ones, and even ones of the last of those.
struct Axis(Vec<f64>);

impl Axis {
    fn over<'a>(all: impl Iterator<Item = &'a Vec<Probe>>) -> Self {
        let mut values: Vec<u64> = all.flatten().filter_map(|row| row.rtt_ns).collect();
        values.sort_unstable();
        let count = values.len();
        let even = (0..BINS).map(|nth| nth * count / BINS);
        let last = count - count / BINS;
        let tail = (1..=BINS).map(|nth| (last + nth * (count - last) / BINS).min(count.saturating_sub(1)));
        let mut bounds: Vec<f64> =
            even.chain(tail).filter_map(|index| values.get(index)).map(|value| *value as f64).collect();
        bounds.dedup();
        Self(bounds)
    }

    fn bin(&self, rtt: u64) -> usize {
        self.0.partition_point(|bound| *bound <= rtt as f64).saturating_sub(1)
    }
}

/// What one block says.
#[derive(Clone, Default)]
struct Block {
    /// Bin and count, ascending.
    bins: Vec<(u32, u32)>,
    sent: f64,
    lost: f64,
    runs: f64,
    reordered: f64,
    copies: f64,
    /// Σ of products of neighbouring scores and of their squares.
    product: f64,
    square: f64,
    pairs: f64,
}

struct Blocks(Vec<Block>);

impl Blocks {
    fn enough(&self) -> bool {
        self.0.len() >= BLOCKS_LEAST
    }

    fn of_all(runs: &[Vec<Probe>], axis: &Axis, length: usize) -> Self {
        Self(runs.iter().flat_map(|rows| Self::of(rows, axis, length).0).collect())
    }

    fn of(rows: &[Probe], axis: &Axis, length: usize) -> Self {
        let rtts: Vec<f64> = rows.iter().filter_map(|row| row.rtt_ns).map(|rtt| rtt as f64).collect();
        let mut scores = if rtts.is_empty() { Vec::new() } else { normal_scores(&rtts) }.into_iter();
        let mut lost_before = false;
        let blocks = rows.chunks_exact(length.min(rows.len()).max(1)).map(|rows| {
            let mut block = Block::default();
            let mut before = None;
            let mut bins: Vec<u32> = Vec::new();
            for row in rows {
                let lost = row.rtt_ns.is_none();
                block.sent += 1.0;
                block.lost += f64::from(u8::from(lost));
                block.runs += f64::from(u8::from(lost && !lost_before));
                lost_before = lost;
                block.reordered += f64::from(u8::from(row.reordered));
                block.copies += f64::from(row.copies);
                let score = row.rtt_ns.and_then(|_| scores.next());
                if let (Some(rtt), Some(score)) = (row.rtt_ns, score) {
                    bins.push(axis.bin(rtt) as u32);
                    block.square += score * score;
                    if let Some(before) = before {
                        block.product += before * score;
                        block.pairs += 1.0;
                    }
                }
                before = score;
            }
            bins.sort_unstable();
            block.bins = bins.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u32)).collect();
            block
        });
        Self(blocks.collect())
    }

    /// Each quantity, in the order of [`QuantityName::ALL`], of all blocks or of those drawn. NaN where there is none.
    fn values(&self, axis: &Axis, drawn: Option<&[usize]>) -> [f64; 9] {
        let mut sum = Block::default();
        let mut counts = vec![0_u64; axis.0.len()];
        let mut take = |block: &Block| {
            block.bins.iter().for_each(|(bin, count)| counts[*bin as usize] += u64::from(*count));
            sum.sent += block.sent;
            sum.lost += block.lost;
            sum.runs += block.runs;
            sum.reordered += block.reordered;
            sum.copies += block.copies;
            sum.product += block.product;
            sum.square += block.square;
            sum.pairs += block.pairs;
        };
        match drawn {
            Some(drawn) => drawn.iter().for_each(|nth| take(&self.0[*nth])),
            None => self.0.iter().for_each(&mut take),
        }
        let answered: u64 = counts.iter().sum();
        let level = |share: f64| {
            let mut left = share * answered as f64;
            for (bin, count) in counts.iter().enumerate() {
                let count = *count as f64;
                if left < count {
                    let next = axis.0.get(bin + 1).unwrap_or(&axis.0[bin]);
                    return axis.0[bin] + (next - axis.0[bin]) * left / count;
                }
                left -= count;
            }
            axis.0.last().copied().unwrap_or(f64::NAN)
        };
        let answers = answered as f64;
        let median = level(0.5);
        let variance = sum.square / answers;
        [
            median,
            level(0.9) - level(0.1),
            if answers >= 1_000.0 { level(0.99) - median } else { f64::NAN },
            if answers >= 10_000.0 { level(0.999) - median } else { f64::NAN },
            if variance > 0.0 { sum.product / sum.pairs / variance } else { f64::NAN },
            sum.lost / sum.sent,
            if sum.runs > 0.0 { sum.lost / sum.runs } else { f64::NAN },
            sum.reordered / answers,
            sum.copies / answers,
        ]
    }
}

/// The path's values less the measured ones, with blocks of both drawn anew each time.
fn differences(measured: &Blocks, path: &Blocks, axis: &Axis, seed: u64) -> Vec<[f64; 9]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = |blocks: &Blocks| -> Vec<usize> {
        let count = blocks.0.len() as u64;
        (0..count).map(|_| ((u128::from(random.next_u64()) * u128::from(count)) >> 64) as usize).collect()
    };
    (0..DRAWS)
        .map(|_| {
            let of_path = path.values(axis, Some(&draw(path)));
            let seen = measured.values(axis, Some(&draw(measured)));
            std::array::from_fn(|nth| of_path[nth] - seen[nth])
        })
        .collect()
}
