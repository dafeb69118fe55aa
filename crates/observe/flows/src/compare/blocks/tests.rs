//! How often runs of one law are taken for different, and runs of two laws for alike.

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

const PAIRS: u64 = 300;
/// Of 300 pairs of one law at 5 %, 15 are expected; more than 27 come once in a thousand times (binomial).
const MOST_REJECTED: usize = 27;

/// Whether the test of Kolmogorov and Smirnov for independent samples tells two series of one length apart, at 5 %.
fn differ_if_independent(mut a: Vec<f64>, mut b: Vec<f64>) -> bool {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let count = a.len() as f64;
    let below = |values: &[f64], x: f64| values.partition_point(|value| *value <= x) as f64;
    let distance = a.iter().chain(&b).map(|x| (below(&a, *x) - below(&b, *x)).abs() / count).fold(0.0, f64::max);
    distance > 1.358 * (2.0 / count).sqrt()
}

fn rejected(test: impl Fn(&mut SplitMix64) -> Option<bool>) -> (usize, usize) {
    let found: Vec<bool> = (0..PAIRS).filter_map(|seed| test(&mut SplitMix64::seed_from_u64(seed * 7_919))).collect();
    (found.iter().filter(|rejected| **rejected).count(), found.len())
}

/// Of 300 pairs of series of one law the test rejects one in twenty at 5 %, however long their memory: the same test without
/// blocks rejects most of them.
#[test]
fn series_with_memory_are_not_taken_for_different() {
    for memory in [0.0, 0.5, 0.9, 0.99] {
        let draw = |random: &mut SplitMix64| [0, 1].map(|_| autoregressive(random, 4_096, memory));
        let by_blocks = rejected(|random| {
            let [a, b] = draw(random);
            test(&a, &b, false).ok().map(|found| found.anderson_darling_p < 0.05)
        });
        let as_independent = rejected(|random| {
            let [a, b] = draw(random);
            Some(differ_if_independent(a, b))
        });
        println!("memory {memory}: by blocks {by_blocks:?}, as independent {as_independent:?} of those tested");
        assert!(by_blocks.0 <= MOST_REJECTED && by_blocks.1 > 200, "{memory}: {by_blocks:?}");
        assert!(memory < 0.9 || as_independent.0 > 150, "{memory}: {as_independent:?}");
    }
    let of_bursts = rejected(|random| {
        let [a, b] = [0, 1].map(|_| bursts(random, 8_000));
        test(&a, &b, false).ok().map(|found| found.anderson_darling_p < 0.05)
    });
    println!("bursts: {of_bursts:?}");
    assert!(of_bursts.0 <= MOST_REJECTED && of_bursts.1 == PAIRS as usize, "{of_bursts:?}");
}

/// The whole verdict of 300 pairs of runs, each of delays, intervals and losses: with many tests at once it stays at 5 %, and with what
/// does not matter left out below it.
#[test]
fn runs_of_one_path_are_alike() {
    let by_chance = std::cell::Cell::new(0);
    let found = rejected(|random| {
        let [a, b] = [0, 1].map(|_| {
            let delays = thinned(&autoregressive(random, 20_000, 0.95));
            (delays, thinned(&bursts(random, 20_000)), losses(random, 20_000, 0.01, 0.4))
        });
        let mut kinds = vec![Kind::series("delay_ns", &a.0, &b.0), Kind::series("interval_ns", &a.1, &b.1)];
        kinds.extend(Kind::losses(["runs", "distances", "counts"], &a.2, &b.2));
        let verdict = verdict(&kinds);
        assert_eq!(verdict.tests.len(), 5, "{verdict:?}");
        by_chance.set(by_chance.get() + usize::from(verdict.tests.iter().any(|test| test.adjusted_p < 0.05)));
        verdict.alike.map(|alike| !alike)
    });
    let by_chance = by_chance.get();
    println!("{found:?} called different; {by_chance} by significance alone");
    assert!(by_chance <= MOST_REJECTED && found.0 <= by_chance && found.1 == PAIRS as usize, "{found:?} {by_chance}");
}

/// Longer runs of losses at the same loss rate, another delay, another jitter: told from each other, and by name.
#[test]
fn paths_that_differ_are_told_apart_by_name() {
    let told = |different: &str| {
        let found = rejected(|random| {
            let a = (thinned(&autoregressive(random, 20_000, 0.9)), losses(random, 40_000, 0.01, 0.8));
            let moved: Vec<f64> = autoregressive(random, 20_000, 0.9)
                .into_iter()
                .map(|delay| match different {
                    "delay" => delay + 2.0,
                    "jitter" => delay * 2.0,
                    _ => delay,
                })
                .collect();
            let (p, r) = if different == "runs" { (0.005, 0.4) } else { (0.01, 0.8) };
            let b = (thinned(&moved), losses(random, 40_000, p, r));
            let mut kinds = vec![Kind::series("delay", &a.0, &b.0)];
            kinds.extend(Kind::losses(["runs", "distances", "counts"], &a.1, &b.1));
            let verdict = verdict(&kinds);
            let name = if different == "runs" { "runs" } else { "delay" };
            Some(verdict.tests.iter().any(|test| test.of == name && test.differs))
        });
        println!("{different}: {found:?}");
        found.0 as f64 / found.1 as f64
    };
    assert!(told("delay") > 0.95 && told("jitter") > 0.95 && told("runs") > 0.95);
}

#[test]
fn too_little_is_said() {
    let mut random = SplitMix64::seed_from_u64(1);
    let few: Vec<f64> = (0..5).map(|_| random.normal()).collect();
    let some: Vec<f64> = (0..20).map(|_| random.normal()).collect();
    assert_eq!(test(&few, &some, true), Err(TooLittle::Samples));
    assert_eq!(test(&some, &some, false), Err(TooLittle::Samples));
    assert!(test(&some, &some, true).is_ok());
    // A value that goes up and down once in all the time.
    let slow: Vec<f64> = (0..4_000).map(|n| (f64::from(n) / 4_000.0 * std::f64::consts::TAU).sin()).collect();
    assert_eq!(test(&slow, &slow, false), Err(TooLittle::Blocks));
    assert_eq!(test(&[f64::NAN; 100], &some, true), Err(TooLittle::Samples));
    let equal = [7.0; 100];
    assert_eq!(test(&equal, &equal, false).map(|found| found.anderson_darling_p), Ok(1.0));
}

/// 1/(1 − φ) · (1 + φ) of an autoregressive series.
#[test]
fn memory_is_measured() {
    for memory in [0.0, 0.5, 0.9] {
        let mut random = SplitMix64::seed_from_u64(3);
        let series = autoregressive(&mut random, 20_000, memory);
        let (found, expected) = (correlation_time(&series), (1.0 + memory) / (1.0 - memory));
        assert!((found / expected - 1.0).abs() < 0.3, "{memory}: {found} of {expected}");
    }
}
