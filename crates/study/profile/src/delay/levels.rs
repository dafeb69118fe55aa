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
/// A direction whose level changed by less than this part of the round trip's has no part in it.
const LEAST_OF_SHIFT: f64 = 0.2;
/// More shifts, where the route is known to have changed as often, are a delay that wanders: a path file has room for no more than twice as many.
const SHIFTS_MOST: usize = 500;
/// Levels that are hardly apart are joined, and all of their delays are looked at each time: at so many in any measurement, and so many more for
/// each delay that it has. A delay for which that is not enough wanders, too: it goes on by small steps all the time.
const JOINED_SURE: usize = 1 << 26;
const JOINED_EACH: usize = 64;

/// The delay went to another level, as after a change of the route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DelayShift {
    /// When the first probe of the new level was sent, nanoseconds after the first of all.
    pub at_ns: u64,
    /// By how much the round trip became longer, nanoseconds.
    pub rtt_ns: f64,
    /// By how much the delay of the forward direction grew, where its stamps are known.
    pub forward_ns: Option<f64>,
    /// By how much the delay of the backward direction grew.
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
    /// Of round trips, whose route is known to have changed before the probes at `known` were sent, ascending.
    pub(crate) fn of(rtts: &Samples, known: &[i64]) -> Self {
        let delays: Vec<f64> = rtts.iter().map(|sample| sample.1).collect();
        let mut known: Vec<usize> =
            known.iter().map(|at_ns| rtts.partition_point(|sample| sample.0 < *at_ns)).collect();
        known.sort_unstable();
        known.dedup();
        let Shifts::At(found) = shifts(&delays, &known) else { return Self { unknown: true, ..Self::default() } };
        // Some late answers in a row are no level; on another route they are.
        let end = rtts.len();
        let lasts = |nth: usize| {
            let (from, to) = (found[nth], *found.get(nth + 1).unwrap_or(&end));
            let long = rtts[to - 1].0 - rtts[from].0 >= LASTS_LEAST_NS;
            to - from >= PROBES_LEAST && (long || known.binary_search(&from).is_ok())
        };
        Self::at(rtts, (0..found.len()).filter(|nth| lasts(*nth)).map(|nth| rtts[found[nth]].0).collect())
    }

    /// Those that begin at these times and are far enough apart.
    fn at(rtts: &Samples, at: Vec<i64>) -> Self {
        Self::at_within(rtts, at, JOINED_SURE + JOINED_EACH * rtts.len())
    }

    /// The same with looks at so many delays of levels that are joined.
    fn at_within(rtts: &Samples, mut at: Vec<i64>, mut joined: usize) -> Self {
        if at.len() > SHIFTS_MOST {
            return Self { unknown: true, ..Self::default() };
        }
        let mut levels = levels(rtts, &at);
        loop {
            let changes = changes(&levels);
            let least = LEAST_NS.max(LEAST_OF_STDDEV * stddev(&levels));
            let smallest = changes.iter().enumerate().min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
            match smallest {
                Some((nth, change)) if change.abs() < least => {
                    at.remove(nth);
                    let behind = levels.remove(nth + 1).delays;
                    let both = [std::mem::take(&mut levels[nth].delays), behind].concat();
                    let Some(left) = joined.checked_sub(both.len()) else {
                        return Self { unknown: true, ..Self::default() };
                    };
                    joined = left;
                    levels[nth] = Level::of(both);
                }
                _ => return Self { at, changes, unknown: false },
            }
        }
    }

    /// What of the shifts one direction has.
    pub(crate) fn of_way(&self, way: &Samples) -> Vec<f64> {
        let own = changes(&levels(way, &self.at));
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

/// Delays between two shifts.
struct Level {
    /// Ascending.
    delays: Vec<f64>,
    /// The mean of their middle half; `None` without delays.
    middle: Option<f64>,
    /// Sums of what they are above it, and of the squares of that.
    above: [f64; 2],
}

impl Level {
    /// Two that were sorted cost no more than to merge them.
    fn of(mut delays: Vec<f64>) -> Self {
        delays.sort_by(f64::total_cmp);
        let half = &delays[delays.len() / 4..delays.len() - delays.len() / 4];
        let middle = (!half.is_empty()).then(|| half.iter().sum::<f64>() / half.len() as f64);
        let from = middle.unwrap_or_default();
        let above = delays.iter().fold([0.0; 2], |[sum, squares], delay| {
            let above = delay - from;
            [sum + above, squares + above * above]
        });
        Self { delays, middle, above }
    }
}

/// The levels that begin at the first of all and at each of `at`.
fn levels(samples: &Samples, at: &[i64]) -> Vec<Level> {
    let mut from = 0;
    let level = |until: i64| {
        let to = samples.partition_point(|sample| sample.0 < until).max(from);
        let level = samples[from..to].iter().map(|sample| sample.1).collect();
        from = to;
        Level::of(level)
    };
    at.iter().copied().chain([i64::MAX]).map(level).collect()
}

/// How much longer the delays of each level are than those of the one before: by the means of the middle halves.
fn changes(levels: &[Level]) -> Vec<f64> {
    let middles = levels.iter().scan(0.0, |before, level| {
        // A level in which a direction has no stamps is that of before.
        *before = level.middle.unwrap_or(*before);
        Some(*before)
    });
    let middles: Vec<f64> = middles.collect();
    middles.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The standard deviation of all delays as if they were of one level.
fn stddev(levels: &[Level]) -> f64 {
    let count = levels.iter().map(|level| level.delays.len()).sum::<usize>().max(1) as f64;
    let [mean, squares] = [0, 1].map(|nth| levels.iter().map(|level| level.above[nth]).sum::<f64>() / count);
    (squares - mean * mean).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All delays are looked at anew for each level less, as slow as that is.
    fn naive(rtts: &Samples, mut at: Vec<i64>) -> (Vec<i64>, Vec<f64>) {
        loop {
            let changes = changes(&levels(rtts, &at));
            let still: Vec<f64> = without(rtts, &at, &changes).iter().map(|sample| sample.1).collect();
            let mean = still.iter().sum::<f64>() / still.len() as f64;
            let variance = still.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / still.len() as f64;
            let least = LEAST_NS.max(LEAST_OF_STDDEV * variance.sqrt());
            let smallest = (0..changes.len()).min_by(|a, b| changes[*a].abs().total_cmp(&changes[*b].abs()));
            match smallest.filter(|nth| changes[*nth].abs() < least) {
                Some(nth) => at.remove(nth),
                None => return (at, changes),
            };
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Levels of any lengths, from nothing to a millisecond apart, with jitter and rare long delays.
        #[test]
        fn levels_that_are_hardly_apart_are_one(
            levels in prop::collection::vec((1_usize..60, 0_u32..1_000_000), 1..40), spread in 1_u64..2_000_000, seed: u32,
        ) {
            let (mut at, mut rtts, mut state) = (Vec::new(), Samples::new(), u64::from(seed));
            for (probes, delay) in levels {
                at.push(rtts.len() as i64);
                for _ in 0..probes {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let rare = if state >> 58 == 0 { 10 } else { 1 };
                    rtts.push((rtts.len() as i64, f64::from(delay) + ((state >> 33) % spread * rare) as f64, 1));
                }
            }
            let at = at.split_off(1);
            let found = Levels::at(&rtts, at.clone());
            prop_assert_eq!((found.at, found.changes), naive(&rtts, at));
        }
    }

    /// A delay that rises by a microsecond a level. Each time that two are joined, all of their delays are looked at.
    #[test]
    fn levels_are_joined_in_bounded_time() {
        let rtts: Samples = (0..100).flat_map(|nth| [(nth, nth as f64 * 1e3, 1); 20]).collect();
        let within = |joined: usize| Levels::at_within(&rtts, (1..100).collect(), joined);
        assert_eq!((within(usize::MAX).unknown, within(100 * rtts.len()).unknown), (false, false));
        assert_eq!(within(rtts.len()), Levels { unknown: true, ..Levels::default() });
    }

    /// Each is a step that a path would have.
    #[test]
    fn very_many_shifts_are_a_delay_that_wanders() {
        let of = |shifts: i64| {
            let rtts = (0..=shifts).flat_map(|nth| [(nth, (nth % 2) as f64 * 1e6, 1); 20]).collect();
            Levels::at(&rtts, (1..=shifts).collect())
        };
        assert_eq!((of(500).at.len(), of(500).unknown), (500, false));
        assert_eq!(of(501), Levels { unknown: true, ..Levels::default() });
    }
}
