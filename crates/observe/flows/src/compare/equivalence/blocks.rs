//! A series cut into blocks, each summed up so that drawing blocks anew costs additions.

/// Levels of a distribution that are kept apart, and as many again of its last part.
const BINS: usize = 512;
/// Blocks at most: more cost time and tell no more.
const BLOCKS_MOST: usize = 128;
/// Blocks that a series must have.
pub(super) const BLOCKS_LEAST: usize = 10;
/// A block has so many times the memory of the series.
const MEMORIES: f64 = 5.0;
/// Means of parts of a series that its memory is found in.
const PARTS: usize = 2_048;
/// Values from which on memory can be seen.
const LEAST_FOR_MEMORY: usize = 64;

/// What one packet says, or one window of packets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Item {
    /// Its delay or round trip, or another value; `None` without one.
    pub value: Option<f64>,
    /// Packets that it stands for.
    pub sent: u32,
    /// Of these lost.
    pub lost: u32,
    /// Runs of lost packets that began with it, where it is a window of several; of single packets they are counted.
    pub runs: Option<u32>,
    /// Whether it came behind a later one.
    pub reordered: bool,
    /// Copies beyond the first.
    pub copies: u32,
}

/// How long a series remembers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Integrated autocorrelation time in items, at least 1: so many items are worth an independent one.
    pub(super) items: f64,
    /// Items of a block that is long enough.
    pub(super) block: usize,
}

impl Memory {
    /// Of values and of losses: whichever is longer.
    pub(super) fn of(items: impl Iterator<Item = Item> + Clone, count: usize) -> Self {
        let values: Vec<f64> = items.clone().filter_map(|item| item.value).collect();
        let lost: Vec<f64> = items.map(|item| f64::from(item.lost)).collect();
        let of_losses = lost.iter().any(|lost| *lost > 0.0).then(|| Self::of_values(&lost));
        let all = [Self::of_values(&values)].into_iter().chain(of_losses);
        let longest = |a: Self, b: Self| Self { items: a.items.max(b.items), block: a.block.max(b.block) };
        all.fold(Self { items: 1.0, block: count.div_ceil(BLOCKS_MOST).max(1) }, longest)
    }

    /// Of the values' ranks, and of the ranks' distance from the middle (A. Sokal, "Monte Carlo methods in statistical mechanics", 1997, §3).
    fn of_values(values: &[f64]) -> Self {
        if values.len() < LEAST_FOR_MEMORY {
            return Self { items: 1.0, block: 1 };
        }
        let ranks = ranks(values);
        let part = values.len().div_ceil(PARTS);
        let of = |score: &dyn Fn(f64) -> f64| {
            let mean_of = |part: &[f64]| part.iter().map(|rank| score(*rank)).sum::<f64>() / part.len() as f64;
            let means: Vec<f64> = ranks.chunks_exact(part).map(mean_of).collect();
            let single: Vec<f64> = ranks.iter().map(|rank| score(*rank)).collect();
            let parts = correlation_time(&means);
            let share = variance(&means) / variance(&single).max(f64::MIN_POSITIVE);
            (parts, parts * part as f64 * share)
        };
        let (level, spread) = (of(&|rank| rank), of(&|rank| rank.abs()));
        let parts = f64::max(level.0, spread.0);
        // Independent parts look a little dependent now and then.
        let parts = if parts < 1.3 { 1 } else { (MEMORIES * parts).ceil() as usize };
        Self { items: level.1.max(spread.1).max(1.0), block: part * parts }
    }
}

fn mean(series: &[f64]) -> f64 {
    series.iter().sum::<f64>() / series.len().max(1) as f64
}

fn variance(series: &[f64]) -> f64 {
    let mean = mean(series);
    series.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / series.len().max(1) as f64
}

/// 1 + 2 Σ ρ of a series, in its values, summed up to five times itself; 1 of independent ones.
pub(super) fn correlation_time(series: &[f64]) -> f64 {
    let mean = mean(series);
    let squares = series.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    if squares <= 0.0 {
        return 1.0;
    }
    let mut time = 1.0;
    for lag in 1..series.len() / 2 {
        let product: f64 = series.iter().zip(&series[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum();
        time += 2.0 * product / squares;
        if lag as f64 >= 5.0 * time {
            break;
        }
    }
    f64::max(time, 1.0)
}

/// Ranks from −½ to ½; equal values share one.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| values[*a as usize] == values[*b as usize]) {
        let rank = (below as f64 + equal.len() as f64 / 2.0) / values.len() as f64 - 0.5;
        equal.iter().for_each(|index| ranks[*index as usize] = rank);
        below += equal.len();
    }
    ranks
}

/// Values that part those of both into bins: even ones, and even ones of the last of those.
#[derive(Debug)]
pub(super) struct Axis {
    /// The least value of each bin.
    pub(super) bounds: Vec<f64>,
    /// The greatest value in each bin: its bound where all share one.
    tops: Vec<f64>,
}

impl Axis {
    pub(super) fn over(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let even = (0..BINS).map(|nth| nth * count / BINS);
        let last = count - count / BINS;
        let tail = (1..=BINS).map(|nth| (last + nth * (count - last) / BINS).min(count.saturating_sub(1)));
        let mut bounds: Vec<f64> = even.chain(tail).filter_map(|index| values.get(index)).copied().collect();
        bounds.dedup();
        let top = |bin: usize| {
            let behind = bounds.get(bin + 1).map_or(count, |next| values.partition_point(|value| value < next));
            values[behind.saturating_sub(1)]
        };
        let tops = (0..bounds.len()).map(top).collect();
        Self { bounds, tops }
    }

    /// The bin of a value: the last one whose lower bound is not above it.
    pub(super) fn bin(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound <= value).saturating_sub(1)
    }
}

/// What one block says, or several.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Bin and count, ascending.
    bins: Vec<(u32, u32)>,
    items: f64,
    pub(super) sent: f64,
    pub(super) lost: f64,
    pub(super) runs: f64,
    lost_squares: f64,
    reordered: f64,
    copies: f64,
    /// Σ of products of neighbouring ranks and of their squares.
    product: f64,
    square: f64,
    pairs: f64,
}

impl Block {
    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.sent += other.sent;
        self.lost += other.lost;
        self.runs += other.runs;
        self.lost_squares += other.lost_squares;
        self.reordered += other.reordered;
        self.copies += other.copies;
        self.product += other.product;
        self.square += other.square;
        self.pairs += other.pairs;
    }
}

/// The blocks of one side.
#[derive(Debug)]
pub(super) struct Blocks(pub(super) Vec<Block>);

impl Blocks {
    pub(super) fn of(items: impl Iterator<Item = Item> + Clone, count: usize, axis: &Axis, length: usize) -> Self {
        let values: Vec<f64> = items.clone().filter_map(|item| item.value).collect();
        let mut ranks = ranks(&values).into_iter();
        let length = length.min(count).max(1);
        let (mut blocks, mut lost_before) = (Vec::with_capacity(count / length), false);
        let (mut block, mut bins, mut before) = (Block::default(), Vec::new(), None);
        for item in items {
            let lost = item.lost > 0;
            let began = item.runs.unwrap_or(u32::from(lost && !lost_before));
            lost_before = lost;
            block.items += 1.0;
            block.sent += f64::from(item.sent);
            block.lost += f64::from(item.lost);
            block.lost_squares += f64::from(item.lost).powi(2);
            block.runs += f64::from(began);
            block.reordered += f64::from(u8::from(item.reordered));
            block.copies += f64::from(item.copies);
            let rank = item.value.and_then(|_| ranks.next());
            if let (Some(value), Some(rank)) = (item.value, rank) {
                bins.push(axis.bin(value) as u32);
                block.square += rank * rank;
                if let Some(before) = before {
                    block.product += before * rank;
                    block.pairs += 1.0;
                }
            }
            before = rank;
            if block.items as usize == length {
                bins.sort_unstable();
                block.bins = bins.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u32)).collect();
                bins.clear();
                before = None;
                blocks.push(std::mem::take(&mut block));
            }
        }
        Self(blocks)
    }

    /// All blocks summed up, or those drawn.
    pub(super) fn sum(&self, axis: &Axis, drawn: Option<&[usize]>) -> Sum {
        let mut sum = Sum { block: Block::default(), counts: vec![0; axis.bounds.len()], answers: 0.0 };
        let mut take = |block: &Block| {
            block.bins.iter().for_each(|(bin, count)| sum.counts[*bin as usize] += u64::from(*count));
            sum.block.add(block);
        };
        match drawn {
            Some(drawn) => drawn.iter().for_each(|nth| take(&self.0[*nth])),
            None => self.0.iter().for_each(&mut take),
        }
        sum.answers = sum.counts.iter().sum::<u64>() as f64;
        sum
    }
}

/// Several blocks.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) block: Block,
    /// Values in each bin.
    counts: Vec<u64>,
    answers: f64,
}

impl Sum {
    /// What `share` of the values are below.
    fn level(&self, axis: &Axis, share: f64) -> f64 {
        let mut left = share * self.answers;
        for (bin, count) in self.counts.iter().enumerate() {
            let count = *count as f64;
            if left < count {
                return axis.bounds[bin] + (axis.tops[bin] - axis.bounds[bin]) * left / count;
            }
            left -= count;
        }
        axis.tops.last().copied().unwrap_or(f64::NAN)
    }

    /// Share of values up to each bound.
    pub(super) fn distribution(&self) -> Vec<f64> {
        let mut below = 0;
        let up_to = |count: &u64| {
            below += count;
            below as f64 / self.answers.max(1.0)
        };
        self.counts.iter().map(up_to).collect()
    }

    /// Each quantity but the distance, in the order of [`super::QuantityName::ALL`]. NaN where there is none.
    pub(super) fn values(&self, axis: &Axis) -> [f64; 11] {
        let Self { block, answers, .. } = self;
        let median = self.level(axis, 0.5);
        let variance = block.square / answers;
        let mean_lost = block.lost / block.items;
        let tail = |share: f64, least: f64| {
            if *answers >= least { self.level(axis, share) - median } else { f64::NAN }
        };
        [
            median,
            self.level(axis, 0.9) - self.level(axis, 0.1),
            tail(0.99, 1_000.0),
            tail(0.999, 10_000.0),
            0.0,
            if variance > 0.0 { block.product / block.pairs / variance } else { f64::NAN },
            block.lost / block.sent,
            if block.runs > 0.0 { block.lost / block.runs } else { f64::NAN },
            if block.lost > 0.0 {
                (block.lost_squares / block.items - mean_lost.powi(2)) / mean_lost
            } else {
                f64::NAN
            },
            block.reordered / answers,
            block.copies / answers,
        ]
    }
}
