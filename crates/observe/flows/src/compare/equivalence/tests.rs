//! How often runs of one law are called different, and runs of two laws alike.

use rand_xoshiro::SplitMix64;

use super::blocks::correlation_time;
use super::*;
use crate::Loss;
use crate::compare::behaviour::{Kind, verdict};
use crate::compare::samples::{Losses, Thinned};

trait Draw: Rng {
    /// 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.share()).ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

impl Draw for SplitMix64 {}

/// Each depends on the one before by `memory`.
fn autoregressive(random: &mut SplitMix64, count: usize, memory: f64) -> Vec<f64> {
    let mut value = random.normal() / (1.0 - memory * memory).sqrt();
    let next = |_| {
        value = memory * value + random.normal();
        value
    };
    (0..count).map(next).collect()
}

/// Bursts: short intervals, and a long one in so many.
fn bursts(random: &mut SplitMix64, count: usize) -> Vec<f64> {
    let (mut fast, mut intervals) = (false, Vec::new());
    for _ in 0..count {
        fast ^= random.share() < if fast { 0.02 } else { 0.2 };
        intervals.push(-(1.0 - random.share()).ln() * if fast { 1.0 } else { 50.0 });
    }
    intervals
}

/// A path with two states (Gilbert): loses from `p` on and until `r`.
fn losses(random: &mut SplitMix64, packets: usize, p: f64, r: f64) -> Losses {
    let (mut losses, mut after, mut run) = (Losses::default(), 0, 0);
    for _ in 0..packets {
        let lost = if run > 0 { random.share() >= r } else { random.share() < p };
        match (lost, run) {
            (true, _) => run += 1,
            (false, 0) => after += 1,
            (false, _) => {
                losses.take(Loss { after_packets: after, packets: run });
                (after, run) = (1, 0);
            }
        }
    }
    losses
}

fn thinned(samples: &[f64]) -> Thinned {
    let mut thinned = Thinned::default();
    samples.iter().for_each(|sample| thinned.push(*sample));
    thinned
}

/// Each costs a thousand draws.
const PAIRS: u64 = 60;

fn margins() -> Margins {
    Margins { asked: Vec::new(), least_ns: 0.0, least_loss: 1e-5 }
}

fn items(series: &[f64]) -> impl Iterator<Item = Item> + Clone {
    series.iter().map(|value| Item { value: Some(*value), sent: 1, ..Item::default() })
}

/// How often a quantity of two series is within, outside, and too little.
fn counted(name: QuantityName, margins: &Margins, pair: impl Fn(&mut SplitMix64) -> [Vec<f64>; 2]) -> [usize; 3] {
    let mut counts = [0; 3];
    for seed in 0..PAIRS {
        let [a, b] = pair(&mut SplitMix64::seed_from_u64(seed * 7_919));
        let found = Equivalence::of(items(&a), &[items(&b)], seed);
        counts[found.quantity(name, margins).unwrap().verdict as usize] += 1;
    }
    counts
}

/// Series that differ by exactly the margin are called within, and outside, in no more than 5 % of the pairs each (of 60, 3 are expected;
/// more than 9 come once in a thousand times), whatever their memory; and those of one law are hardly ever called outside.
#[test]
fn errors_are_as_rare_as_said() {
    for memory in [0.0, 0.5, 0.9] {
        let series = |random: &mut SplitMix64, scale: f64| -> Vec<f64> {
            autoregressive(random, 6_000, memory).into_iter().map(|value| 100_000.0 + 1_000.0 * scale * value).collect()
        };
        let of = |scale: f64| {
            counted(QuantityName::RangeNs, &margins(), |random| [series(random, 1.0), series(random, scale)])
        };
        let (edge, same, far) = (of(1.05), of(1.0), of(1.6));
        println!(
            "memory {memory}: at the margin {edge:?}, of one law {same:?}, far {far:?}: within, outside, too little"
        );
        assert!(edge[0] <= 9 && edge[1] <= 9, "{memory}: {edge:?}");
        assert!(same[1] <= 3, "{memory}: {same:?}");
        assert!(far[1] as f64 > 0.9 * PAIRS as f64, "{memory}: {far:?}");
    }
}

/// A scale within 5 % takes some 5,500 independent samples, and 35,000 where neighbours have a correlation of 0.9.
#[test]
fn as_many_samples_as_it_takes() {
    let power = |count: usize, memory: f64| {
        let series = |random: &mut SplitMix64| -> Vec<f64> {
            autoregressive(random, count, memory).into_iter().map(|value| 1e5 + 1e3 * value).collect()
        };
        let found = counted(QuantityName::RangeNs, &margins(), |random| [series(random), series(random)]);
        found[0] as f64 / PAIRS as f64
    };
    let powers = [power(1_000, 0.0), power(22_000, 0.0), power(1_000, 0.9), power(65_000, 0.9)];
    println!("{powers:?}");
    assert!(powers[0] < 0.3 && powers[2] < 0.1 && powers[1] > 0.9 && powers[3] > 0.6, "{powers:?}");
}

/// The whole verdict of pairs of runs, each of delays, intervals and losses. The delays vary by 30 %, so that a margin of 1 % of the median
/// is nothing beside chance: each quantity of a pair has its own chance to be outside, and all of them together have 5 %.
#[test]
fn runs_of_one_path_are_not_called_different() {
    let mut counts = [0; 3];
    for seed in 0..PAIRS {
        let mut random = SplitMix64::seed_from_u64(seed * 7_919);
        let [a, b] = [0, 1].map(|_| {
            let delays: Vec<f64> = autoregressive(&mut random, 20_000, 0.95).iter().map(|x| 1e6 + 1e5 * x).collect();
            (thinned(&delays), thinned(&bursts(&mut random, 20_000)), losses(&mut random, 20_000, 0.01, 0.4))
        });
        let kinds = [
            Kind::times("delay_ns", &a.0, &b.0),
            Kind::series("interval_ns", &a.1, &b.1),
            Kind::losses("loss", &a.2, &b.2),
        ];
        let verdict = verdict(&kinds, &margins());
        assert_eq!(verdict.tests.len(), 3, "{verdict:?}");
        counts[verdict.alike.map_or(2, |alike| usize::from(!alike))] += 1;
    }
    println!("{counts:?}: alike, not, too little data");
    assert!(counts[1] <= PAIRS as usize / 20, "{counts:?}");
}

/// Longer runs of losses at the same loss rate, another delay, another jitter: told from each other, and by name.
#[test]
fn paths_that_differ_are_told_apart_by_name() {
    let told = |different: &str, name: QuantityName| {
        let mut found = 0;
        for seed in 0..PAIRS {
            let mut random = SplitMix64::seed_from_u64(seed * 7_919);
            let a = (autoregressive(&mut random, 20_000, 0.9), losses(&mut random, 40_000, 0.01, 0.8));
            let moved = autoregressive(&mut random, 20_000, 0.9).into_iter().map(|delay| match different {
                "delay" => delay + 2.0,
                "jitter" => delay * 1.4,
                _ => delay,
            });
            let moved: Vec<f64> = moved.collect();
            let (p, r) = if different == "runs" { (0.005, 0.4) } else { (0.01, 0.8) };
            let b = losses(&mut random, 40_000, p, r);
            let [first, second] =
                [&a.0, &moved].map(|delays| thinned(&delays.iter().map(|x| x + 100.0).collect::<Vec<_>>()));
            let kinds = [Kind::times("delay", &first, &second), Kind::losses("loss", &a.1, &b)];
            let verdict = verdict(&kinds, &margins());
            let quantities = verdict.tests.iter().flat_map(|test| &test.quantities);
            let outside = |quantity: &Quantity| quantity.name == name && quantity.verdict == Verdict::Outside;
            found += usize::from(quantities.into_iter().any(outside));
        }
        println!("{different}: {found} of {PAIRS}");
        found as f64 / PAIRS as f64
    };
    assert!(told("delay", QuantityName::MedianNs) > 0.95);
    assert!(told("jitter", QuantityName::RangeNs) > 0.95);
    assert!(told("runs", QuantityName::LossRunPackets) > 0.95);
}

/// Five runs of loss and 33 of as many packets are no equal losses, and none is less than one where there are enough packets to say.
#[test]
fn few_losses_are_told_from_many() {
    let run = |packets: u64, runs: u64| {
        let mut losses = Losses::default();
        let each = packets / (runs + 1);
        (0..runs).for_each(|_| losses.take(Loss { after_packets: each - 1, packets: 1 }));
        losses.take(Loss { after_packets: each, packets: 0 });
        losses
    };
    let of = |a: (u64, u64), b: (u64, u64)| {
        let (a, b) = (run(a.0, a.1), run(b.0, b.1));
        let found = verdict(&[Kind::losses("loss", &a, &b)], &margins());
        found.tests[0].quantities.iter().find(|quantity| quantity.name == QuantityName::LossShare).unwrap().verdict
    };
    assert_eq!(of((400_000, 5), (400_000, 33)), Verdict::Outside);
    assert_eq!(of((400_000, 33), (400_000, 5)), Verdict::Outside);
    assert_eq!(of((20_000, 0), (20_000, 1)), Verdict::TooLittleData);
    assert_eq!(of((400_000, 0), (400_000, 33)), Verdict::Outside);
    assert_eq!(of((2_000_000, 0), (2_000_000, 1)), Verdict::Within);
    assert_eq!(of((2_000_000, 2_000), (2_000_000, 2_000)), Verdict::Within);
}

#[test]
fn too_little_is_said() {
    let mut random = SplitMix64::seed_from_u64(1);
    let few: Vec<f64> = (0..5).map(|_| random.normal()).collect();
    let verdict_of = |a: &[f64], b: &[f64]| {
        let found = Equivalence::of(items(a), &[items(b)], 1);
        found.quantity(QuantityName::Distance, &margins()).map(|quantity| quantity.verdict)
    };
    assert_eq!(verdict_of(&few, &few), Some(Verdict::TooLittleData));
    assert_eq!(verdict_of(&[], &[]), None);
    assert_eq!(verdict_of(&few, &[]), Some(Verdict::TooLittleData));
    // A value that goes up and down once in all the time.
    let slow: Vec<f64> = (0..4_000).map(|n| (f64::from(n) / 4_000.0 * std::f64::consts::TAU).sin()).collect();
    assert_eq!(verdict_of(&slow, &slow), Some(Verdict::TooLittleData));
    let equal = [7.0; 100];
    assert_eq!(verdict_of(&equal, &equal), Some(Verdict::Within));
    let other = [8.0; 100];
    assert_eq!(verdict_of(&equal, &other), Some(Verdict::Outside));
}

/// Values that are all the same have no range, wherever the other side's are.
#[test]
fn equal_values_have_no_range() {
    let (a, b) = ([12e6; 2_000], [13e6; 2_000]);
    let found = Equivalence::of(items(&a), &[items(&b)], 1);
    let of = |name| found.quantity(name, &margins()).map(|quantity| (quantity.reference, quantity.tested));
    assert_eq!(of(QuantityName::MedianNs), Some((12e6, 13e6)));
    assert_eq!(of(QuantityName::RangeNs), Some((0.0, 0.0)));
    assert_eq!(of(QuantityName::P99Ns), Some((0.0, 0.0)));
}

/// 1/(1 − φ) · (1 + φ) of an autoregressive series.
#[test]
fn memory_is_measured() {
    for memory in [0.0, 0.5, 0.9] {
        let mut random = SplitMix64::seed_from_u64(3);
        let series = autoregressive(&mut random, 20_000, memory);
        let expected = (1.0 + memory) / (1.0 - memory);
        let found = correlation_time(&series);
        assert!((found / expected - 1.0).abs() < 0.3, "{memory}: {found} of {expected}");
        let effective = Equivalence::of(items(&series), &[items(&series)], 1).effective_samples[0] as f64;
        assert!((effective * expected / 20_000.0 - 1.0).abs() < 0.4, "{memory}: {effective}");
    }
}

#[test]
fn margins_are_read() {
    let margin = "p99=5%".parse::<Margin>().unwrap();
    assert_eq!((margin.name, margin.share), (QuantityName::P99Ns, 0.05));
    for wrong in ["p99", "p99=", "p99=-1", "p99=x", "colour=5%", "correlation=5%", "distance=5%", "loss=NaN"] {
        assert!(wrong.parse::<Margin>().is_err(), "{wrong}");
    }
}
