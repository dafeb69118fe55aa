//! Do two captures behave alike?
//!
//! Each kind of sample is tested by [`equivalence`](super::equivalence): within margins that are stated, outside of them, or too little data.
//!
//! What is true of one run each is not true of a path: two runs of it may differ as its load does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::equivalence::{Equivalence, Item, Margins, Quantity, QuantityName, Verdict};
use super::samples::{Losses, Samples, Thinned};

/// Equal captures get equal verdicts.
const SEED: u64 = 0x6c6f_6e67_6861_756c;
/// Samples of a series that one run must have.
const LEAST: u64 = 64;
/// Delays and round trips.
const TIMES: [QuantityName; 4] =
    [QuantityName::MedianNs, QuantityName::RangeNs, QuantityName::P99Ns, QuantityName::Distance];
/// Intervals and rates, which follow the sender too: their distribution alone.
const SHAPE: [QuantityName; 1] = [QuantityName::Distance];
/// Losses.
const LOSSES: [QuantityName; 3] = [QuantityName::LossShare, QuantityName::LossRunPackets, QuantityName::LossDispersion];

/// One kind of sample, tested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Test {
    /// What was compared.
    pub of: Cow<'static, str>,
    /// Samples in A and B; of losses: packets.
    pub samples: [u64; 2],
    /// Independent samples that those which were tested are worth, at most 65,536 of each: less where neighbours are alike.
    pub effective_samples: [u64; 2],
    /// Blocks of A's and B's that were tested, each longer than the samples depend on each other.
    pub blocks: [u64; 2],
    /// The middle of A's and B's.
    pub medians: [f64; 2],
    /// What all but a hundredth of A's and B's are below.
    pub p99: [f64; 2],
    /// Each quantity of it; none where either has no samples.
    pub quantities: Vec<Quantity>,
    /// Outside where any quantity is; within where all are.
    pub verdict: Verdict,
}

/// All tests, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Behaviour {
    /// Whether all quantities are within their margins; false where any is outside, `None` where there is too little data to say.
    pub alike: Option<bool>,
    /// What was tested.
    pub tests: Vec<Test>,
}

/// Samples of one kind in both captures.
#[derive(Debug)]
pub struct Kind<'a> {
    of: &'static str,
    what: What<'a>,
}

#[derive(Debug)]
enum What<'a> {
    /// Samples that come one after the other in time, and whether they are times of the path.
    Series {
        a: Cow<'a, Thinned>,
        b: Cow<'a, Thinned>,
        names: &'static [QuantityName],
    },
    Losses {
        a: &'a Losses,
        b: &'a Losses,
    },
}

impl<'a> Kind<'a> {
    /// Samples that come one after the other in time, whose distribution is compared.
    pub fn series(of: &'static str, a: &'a Thinned, b: &'a Thinned) -> Self {
        Self { of, what: What::Series { a: Cow::Borrowed(a), b: Cow::Borrowed(b), names: &SHAPE } }
    }

    /// Times that the path makes, in nanoseconds.
    pub fn times(of: &'static str, a: &'a Thinned, b: &'a Thinned) -> Self {
        Self { of, what: What::Series { a: Cow::Borrowed(a), b: Cow::Borrowed(b), names: &TIMES } }
    }

    /// Delays of both; where clocks lie apart and are not known to be one, what they are above the least.
    pub fn delays(of: [&'static str; 2], a: &'a Samples, b: &'a Samples, one_clock: bool) -> Self {
        if one_clock {
            return Self::times(of[0], &a.delays_ns, &b.delays_ns);
        }
        let (a, b) = (Cow::Owned(a.delays_ns.above_least()), Cow::Owned(b.delays_ns.above_least()));
        Self { of: of[1], what: What::Series { a, b, names: &TIMES } }
    }

    /// How many packets were lost, in which runs, and whether close together.
    pub fn losses(of: &'static str, a: &'a Losses, b: &'a Losses) -> Self {
        Self { of, what: What::Losses { a, b } }
    }

    fn test(&self, margins: &Margins) -> Test {
        let (found, samples, medians, p99, names) = match &self.what {
            What::Series { a, b, names } => {
                let kept = a.alike_spread(b);
                let items = kept
                    .each_ref()
                    .map(|kept| kept.iter().map(|value| Item { value: Some(*value), sent: 1, ..Item::default() }));
                let [a_items, b_items] = items;
                let found = Equivalence::of(a_items, &[b_items], SEED);
                let [a_levels, b_levels] = [a, b].map(|samples| samples.quantiles([0.5, 0.99]));
                let [medians, p99] = [0, 1].map(|nth| [a_levels[nth], b_levels[nth]]);
                (found, [a.total(), b.total()], medians, p99, *names)
            }
            What::Losses { a, b } => {
                let [of_a, of_b] = a.windows_like(b);
                let found = Equivalence::of(of_a.iter().copied(), &[of_b.iter().copied()], SEED);
                (found, [a.packets(), b.packets()], [0.0; 2], [0.0; 2], &LOSSES[..])
            }
        };
        let quantities: Vec<Quantity> = names.iter().filter_map(|name| found.quantity(*name, margins)).collect();
        Test {
            of: self.of.into(),
            samples,
            effective_samples: found.effective_samples,
            blocks: found.blocks,
            medians,
            p99,
            verdict: Verdict::of_all(quantities.iter().map(|quantity| quantity.verdict)),
            quantities,
        }
    }

    /// What neither has says nothing, and handshakes of a few packets are no behaviour.
    fn is_in_either(&self) -> bool {
        match &self.what {
            What::Series { a, b, .. } => a.total().max(b.total()) >= LEAST,
            What::Losses { a, b } => a.lost() + b.lost() > 0,
        }
    }
}

/// Tests each kind of sample. What neither has 64 of, or any loss, is left out.
pub fn verdict(kinds: &[Kind<'_>], margins: &Margins) -> Behaviour {
    let tests: Vec<Test> = kinds.iter().filter(|kind| kind.is_in_either()).map(|kind| kind.test(margins)).collect();
    let alike = match Verdict::of_all(tests.iter().map(|test| test.verdict)) {
        Verdict::Within => Some(true),
        Verdict::Outside => Some(false),
        Verdict::TooLittleData => None,
    };
    Behaviour { alike, tests }
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

    fn margins(least_ns: f64) -> Margins {
        Margins { asked: Vec::new(), least_ns, least_loss: 1e-5 }
    }

    #[test]
    fn one_law_is_alike_and_two_are_not() {
        let (a, b, c) = (noise(50_000, 1, 1.0), noise(20_000, 2, 1.0), noise(50_000, 3, 1.3));
        assert_eq!(verdict(&[Kind::series("interval_ns", &a, &b)], &margins(0.0)).alike, Some(true));
        let kinds = [Kind::series("interval_ns", &a, &b), Kind::series("delay_ns", &a, &c)];
        let differ = verdict(&kinds, &margins(0.0));
        let which: Vec<_> = differ.tests.iter().map(|test| test.verdict).collect();
        assert_eq!((differ.alike, which), (Some(false), vec![Verdict::Within, Verdict::Outside]));
        assert!(differ.tests[1].quantities[0].tested > 0.15, "{differ:?}");
        let none = Thinned::default();
        let kinds = [Kind::series("interval_ns", &a, &none), Kind::series("delay_ns", &none, &none)];
        let too_few = verdict(&kinds, &margins(0.0));
        assert_eq!((too_few.alike, too_few.tests.len()), (None, 1));
    }

    /// A scale that is 5 % larger is told, and 1 % is within 5 %.
    #[test]
    fn five_percent_is_told() {
        let a = noise(200_000, 1, 1.0);
        let of = |scale: f64| {
            let b = noise(200_000, 2, scale);
            let found = verdict(&[Kind::times("delay_ns", &a, &b)], &margins(1_000.0));
            found.tests[0].quantities.iter().map(|quantity| quantity.verdict).collect::<Vec<_>>()
        };
        assert_eq!(of(1.1)[..2], [Verdict::Outside, Verdict::Outside]);
        assert_eq!(of(1.0)[1..], [Verdict::Within, Verdict::Within, Verdict::Within]);
    }

    #[test]
    fn a_shift_within_the_tolerance_is_none() {
        let near = noise(5_000, 1, 1e-3);
        let mut moved = Thinned::default();
        noise(5_000, 2, 1e-3).alike_spread(&near)[0].iter().for_each(|value| moved.push(value + 5_000.0));
        let within = |tolerance| verdict(&[Kind::times("delay_ns", &near, &moved)], &margins(tolerance)).alike;
        assert_eq!([within(0.0), within(20_000.0)], [Some(false), Some(true)]);
    }
}
