//! Do two captures behave alike?
//!
//! Each kind of sample of which both have enough is tested by blocks (`compare/blocks.rs`). The captures differ in a kind where both hold:
//!
//! - **It is no chance.** Anderson and Darling's p-value, all kinds taken together (S. Holm, "A simple sequentially rejective
//!   multiple test procedure", Scandinavian Journal of Statistics 6, 1979), is below [`SIGNIFICANCE`]: of pairs of runs of one law
//!   that many at most are taken for different in any kind.
//! - **It matters.** The distribution functions are [`LEAST_DISTANCE`] apart or more, also where one of them is moved by the tolerance. With
//!   a million samples every difference is significant, down to how warm the machine was.
//!
//! What is true of one run each is not true of a path: two runs of it may differ as its load does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::blocks::{self, TooLittle};
use super::samples::{Losses, Samples, Thinned};

/// The chance that captures of one law are taken for different.
pub const SIGNIFICANCE: f64 = 0.05;
/// Distribution functions that are nearer are taken as one.
pub const LEAST_DISTANCE: f64 = 0.1;

/// One kind of sample, tested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Test {
    /// What was compared.
    pub of: Cow<'static, str>,
    /// Samples in A and B.
    pub samples: [u64; 2],
    /// Blocks of A's and B's that were tested, each three times as long as the samples depend on each other.
    pub blocks: [u64; 2],
    /// The middle of A's and B's.
    pub medians: [f64; 2],
    /// What all but a hundredth of A's and B's are below.
    pub p99: [f64; 2],
    /// The greatest distance of the two distribution functions, 0…1.
    pub distance: f64,
    /// What of it is left where either may be moved by this, in the samples' unit.
    pub tolerance: f64,
    /// The distance that is left where either capture's values may be moved by it.
    pub distance_beyond_tolerance: f64,
    /// The chance of such a distance where both are of one law, by permutation of blocks.
    pub kolmogorov_smirnov_p: f64,
    /// The same by Anderson and Darling, who look closer at the tails.
    pub anderson_darling_p: f64,
    /// The latter, all tests taken together (Holm).
    pub adjusted_p: f64,
    /// Whether they differ in this: `adjusted_p` is below significance, and `distance_beyond_tolerance` is `least_distance` or
    /// more.
    pub differs: bool,
}

/// One kind of sample of which there was too little.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotTested {
    /// What was to be compared.
    pub of: Cow<'static, str>,
    /// Samples in A and B.
    pub samples: [u64; 2],
    /// Too few samples; or they depend on each other for so long that the run has too few independent parts.
    pub why: Why,
}

/// Why a kind was not tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Too few samples.
    TooFew,
    /// Samples depend on each other for so long that the run has too few independent parts.
    TooDependent,
}

/// All tests, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Whether no test finds a difference; `None` where there was too little to test anything.
    pub alike: Option<bool>,
    /// The adjusted p-value below which a difference is no chance.
    pub significance: f64,
    /// The distance from which on a difference matters.
    pub least_distance: f64,
    /// What was tested.
    pub tests: Vec<Test>,
    /// What was there and could not be tested.
    pub not_tested: Vec<NotTested>,
}

/// Samples of one kind in both captures.
#[derive(Debug)]
pub struct Kind<'a> {
    of: &'static str,
    a: Cow<'a, Thinned>,
    b: Cow<'a, Thinned>,
    /// Each stands for itself, as one loss does beside the next: few of them are enough.
    events: bool,
    tolerance: f64,
}

impl<'a> Kind<'a> {
    /// Samples that come one after the other in time.
    pub fn series(of: &'static str, a: &'a Thinned, b: &'a Thinned) -> Self {
        Self { of, a: Cow::Borrowed(a), b: Cow::Borrowed(b), events: false, tolerance: 0.0 }
    }

    /// The same where a shift of `tolerance` counts as none.
    pub fn tolerant(of: &'static str, a: &'a Thinned, b: &'a Thinned, tolerance: f64) -> Self {
        Self { tolerance, ..Self::series(of, a, b) }
    }

    /// Delays of both; where clocks lie apart and are not known to be one, what they are above the least.
    pub fn delays(of: [&'static str; 2], a: &'a Samples, b: &'a Samples, one_clock: bool, tolerance: f64) -> Self {
        if one_clock {
            return Self::tolerant(of[0], &a.delays_ns, &b.delays_ns, tolerance);
        }
        let (a, b) = (Cow::Owned(a.delays_ns.above_least()), Cow::Owned(b.delays_ns.above_least()));
        Self { of: of[1], a, b, events: false, tolerance }
    }

    /// Lengths of loss runs, what lies between them, and how many of so many packets were lost.
    pub fn losses(of: [&'static str; 3], a: &'a Losses, b: &'a Losses) -> [Self; 3] {
        let [runs, distances, counts] = of;
        let events = |of, a, b| Self { events: true, ..Self::series(of, a, b) };
        let [first, second] = a.counts(b);
        let (first, second) = (Cow::Owned(first), Cow::Owned(second));
        [
            events(runs, &a.runs, &b.runs),
            events(distances, &a.distances, &b.distances),
            Self { of: counts, a: first, b: second, events: false, tolerance: 0.0 },
        ]
    }

    fn test(&self) -> Result<Test, NotTested> {
        let [first, second] = self.a.alike_spread(&self.b);
        let samples = [self.a.total(), self.b.total()];
        let found = blocks::test(&first, &second, self.events).map_err(|why| NotTested {
            of: self.of.into(),
            samples,
            why: match why {
                TooLittle::Samples => Why::TooFew,
                TooLittle::Blocks => Why::TooDependent,
            },
        })?;
        let [a, b] = [&self.a, &self.b].map(|samples| samples.quantiles([0.5, 0.99]));
        let distance = distance(&first, &second, 0.0);
        Ok(Test {
            of: self.of.into(),
            samples,
            blocks: found.blocks.map(|blocks| blocks as u64),
            medians: [a[0], b[0]],
            p99: [a[1], b[1]],
            distance,
            tolerance: self.tolerance,
            distance_beyond_tolerance: distance.min(self::distance(&first, &second, self.tolerance)),
            kolmogorov_smirnov_p: found.kolmogorov_smirnov_p,
            anderson_darling_p: found.anderson_darling_p,
            adjusted_p: 1.0,
            differs: false,
        })
    }
}

/// The greatest distance of the distribution functions of `a` and `b`, where either may be moved to the other by `tolerance`.
fn distance(a: &[f64], b: &[f64], tolerance: f64) -> f64 {
    let [a, b] = [a, b].map(|samples| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    });
    let below =
        |samples: &[f64], value: f64| samples.partition_point(|x| *x <= value) as f64 / samples.len().max(1) as f64;
    // How much more of `low` lies below a value than of `high` below it and the tolerance; greatest at a value of `low`.
    let beyond = |low: &[f64], high: &[f64]| {
        low.iter().map(|value| below(low, *value) - below(high, *value + tolerance)).fold(0.0, f64::max)
    };
    beyond(&a, &b).max(beyond(&b, &a))
}

/// Tests each kind of sample of which both captures have enough. What neither has any of is left out.
pub fn verdict(kinds: &[Kind<'_>]) -> Verdict {
    let (mut tests, mut not_tested) = (Vec::new(), Vec::new());
    for kind in kinds.iter().filter(|kind| kind.a.total() + kind.b.total() > 0) {
        match kind.test() {
            Ok(test) => tests.push(test),
            Err(not) => not_tested.push(not),
        }
    }
    adjust(&mut tests);
    for test in &mut tests {
        test.differs = test.adjusted_p < SIGNIFICANCE && test.distance_beyond_tolerance >= LEAST_DISTANCE;
    }
    Verdict {
        alike: (!tests.is_empty()).then(|| !tests.iter().any(|test| test.differs)),
        significance: SIGNIFICANCE,
        least_distance: LEAST_DISTANCE,
        tests,
        not_tested,
    }
}

/// Holm: the least of m p-values counts m times, the next m − 1 times and not less than the one before.
fn adjust(tests: &mut [Test]) {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by(|a, b| tests[*a].anderson_darling_p.total_cmp(&tests[*b].anderson_darling_p));
    let mut before = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let times = (tests.len() - rank) as f64;
        before = f64::max(before, (times * tests[index].anderson_darling_p).min(1.0));
        tests[index].adjusted_p = before;
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::SplitMix64;

    use super::*;

    fn noise(count: usize, seed: u64, scale: f64) -> Thinned {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut samples = Thinned::default();
        (0..count).for_each(|_| samples.push((random.next_u64() >> 40) as f64 * scale));
        samples
    }

    #[test]
    fn one_law_is_alike_and_two_are_not() {
        let (a, b, c) = (noise(50_000, 1, 1.0), noise(20_000, 2, 1.0), noise(50_000, 3, 1.3));
        assert_eq!(verdict(&[Kind::series("interval_ns", &a, &b)]).alike, Some(true));
        let differ = verdict(&[Kind::series("interval_ns", &a, &b), Kind::series("delay_ns", &a, &c)]);
        let which: Vec<_> = differ.tests.iter().map(|test| test.differs).collect();
        assert_eq!((differ.alike, which), (Some(false), vec![false, true]));
        assert!(differ.tests[1].distance > 0.15, "{differ:?}");
        let none = Thinned::default();
        let too_few = verdict(&[Kind::series("interval_ns", &a, &none), Kind::series("delay_ns", &none, &none)]);
        assert_eq!((too_few.alike, too_few.not_tested.len()), (None, 1));
    }

    /// Holm's own order: of 0.01, 0.04, 0.03, the least thrice, the next twice, and none below the one before.
    #[test]
    fn p_values_are_adjusted() {
        let a = noise(1_000, 1, 1.0);
        let mut tests = verdict(&[("a"), ("b"), ("c")].map(|of| Kind::series(of, &a, &a))).tests;
        for (test, p) in tests.iter_mut().zip([0.01, 0.04, 0.03]) {
            test.anderson_darling_p = p;
        }
        adjust(&mut tests);
        let adjusted: Vec<f64> = tests.iter().map(|test| (test.adjusted_p * 1e6).round() / 1e6).collect();
        assert_eq!(adjusted, [0.03, 0.06, 0.06]);
    }

    /// By hand: moved by 5, {1, 2, 3} and {5, 6, 20} differ in the last third alone.
    #[test]
    fn a_shift_within_the_tolerance_is_none() {
        let (a, b) = ([1.0, 2.0, 3.0], [5.0, 6.0, 20.0]);
        assert!((distance(&a, &b, 0.0) - 1.0).abs() < 1e-12);
        assert!((distance(&a, &b, 5.0) - 1.0 / 3.0).abs() < 1e-12);
        let (near, far) = (noise(5_000, 1, 1e-3), noise(5_000, 2, 1e-3));
        let mut moved = Thinned::default();
        far.alike_spread(&far)[0].iter().for_each(|value| moved.push(value + 5_000.0));
        let within = |tolerance| verdict(&[Kind::tolerant("delay_ns", &near, &moved, tolerance)]).alike;
        assert_eq!([within(0.0), within(20_000.0)], [Some(false), Some(true)]);
    }
}
