//! Do two captures behave alike?
//!
//! Samples of the same kind from both, thinned to [`MOST_SAMPLES`] evenly spread ones, are put to the two-sample tests of
//! Kolmogorov and Smirnov and of Anderson and Darling. They do not behave alike where one of the tests says so at [`SIGNIFICANCE`],
//! shared among all tests (Bonferroni).
//!
//! Samples in time depend on each other, which thinning lessens and does not end, and with thousands of samples every difference is
//! significant: with a thousand on each side two laws are told apart from a distance of about 0.1 on, which `distance` tells
//! as it is.

use std::borrow::Cow;

use longhaul_units::statistics::{anderson_darling_k_sample, kolmogorov_smirnov_two_sample};
use serde::{Deserialize, Serialize};

/// Samples of one kind that are tested.
pub const MOST_SAMPLES: usize = 1_000;
/// Fewer say nothing.
const LEAST_SAMPLES: usize = 8;
/// The chance that captures of one law are taken for different.
pub const SIGNIFICANCE: f64 = 0.01;

/// Samples out of a stream of any length, evenly spread, in bounded memory.
#[derive(Debug, Clone)]
pub struct Thinned {
    room: usize,
    kept: Vec<f64>,
    every: u64,
    skipped: u64,
    total: u64,
}

impl Default for Thinned {
    fn default() -> Self {
        Self::keeping(8 * MOST_SAMPLES)
    }
}

impl Thinned {
    /// At most `room` of them are kept, and at least half of it.
    pub fn keeping(room: usize) -> Self {
        Self { room, kept: Vec::new(), every: 0, skipped: 0, total: 0 }
    }

    /// The next sample.
    #[inline]
    pub fn push(&mut self, sample: f64) {
        self.total += 1;
        if self.skipped + 1 < self.every {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        self.kept.push(sample);
        if self.kept.len() >= self.room {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = self.every.max(1) * 2;
        }
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// At most [`MOST_SAMPLES`] of them.
    fn samples(&self) -> Vec<f64> {
        let step = self.kept.len().div_ceil(MOST_SAMPLES).max(1);
        self.kept.iter().copied().step_by(step).collect()
    }

    /// What `shares` of the samples are below; 0 without samples.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        shares.map(|share| {
            let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
            sorted.get(index).copied().unwrap_or(0.0)
        })
    }
}

/// One kind of sample, tested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// What was compared.
    pub of: Cow<'static, str>,
    /// Samples in A and B.
    pub samples: [u64; 2],
    /// The middle of A's and B's.
    pub medians: [f64; 2],
    /// What all but a hundredth of A's and B's are below.
    pub p99: [f64; 2],
    /// The greatest distance of the two distribution functions, 0…1.
    pub distance: f64,
    /// The chance of such a distance where both are of one law (Kolmogorov, Smirnov).
    pub kolmogorov_smirnov_p: f64,
    /// The same by Anderson and Darling, who look closer at the tails; `None` where all values are equal.
    pub anderson_darling_p: Option<f64>,
}

/// All tests, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// `None` where there was too little to test.
    pub alike: Option<bool>,
    /// The p-value below which one test alone decides.
    pub significance: f64,
    /// What was tested.
    pub tests: Vec<Test>,
}

/// Tests each kind of sample of which both captures have enough.
pub fn verdict(kinds: &[(&'static str, &Thinned, &Thinned)]) -> Verdict {
    let mut tests = Vec::new();
    for (of, a, b) in kinds {
        let (first, second) = (a.samples(), b.samples());
        if first.len() < LEAST_SAMPLES || second.len() < LEAST_SAMPLES {
            continue;
        }
        let Ok(kolmogorov) = kolmogorov_smirnov_two_sample(&first, &second) else { continue };
        let [a_quantiles, b_quantiles] = [a, b].map(|samples| samples.quantiles([0.5, 0.99]));
        tests.push(Test {
            of: (*of).into(),
            samples: [a.total(), b.total()],
            medians: [a_quantiles[0], b_quantiles[0]],
            p99: [a_quantiles[1], b_quantiles[1]],
            distance: kolmogorov.statistic,
            kolmogorov_smirnov_p: kolmogorov.p_value,
            anderson_darling_p: anderson_darling_k_sample(&[&first, &second]).ok().map(|found| found.p_value),
        });
    }
    let significance = SIGNIFICANCE / (2 * tests.len().max(1)) as f64;
    let differs = |test: &Test| {
        test.kolmogorov_smirnov_p < significance || test.anderson_darling_p.is_some_and(|p| p < significance)
    };
    Verdict { alike: (!tests.is_empty()).then(|| !tests.iter().any(differs)), significance, tests }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize, seed: u64, scale: f64) -> Thinned {
        let mut state = seed;
        let mut samples = Thinned::default();
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            samples.push((state >> 40) as f64 * scale);
        }
        samples
    }

    #[test]
    fn one_law_is_alike_and_two_are_not() {
        let (a, b, c) = (noise(50_000, 1, 1.0), noise(20_000, 2, 1.0), noise(50_000, 3, 1.3));
        assert_eq!((a.total(), a.samples().len() <= MOST_SAMPLES), (50_000, true));
        assert_eq!(verdict(&[("interval", &a, &b)]).alike, Some(true));
        let differ = verdict(&[("interval", &a, &b), ("delay", &a, &c)]);
        assert_eq!((differ.alike, differ.tests.len()), (Some(false), 2));
        assert!(differ.tests[1].distance > 0.15, "{differ:?}");
        assert_eq!(verdict(&[("interval", &a, &Thinned::default())]).alike, None);
    }
}
