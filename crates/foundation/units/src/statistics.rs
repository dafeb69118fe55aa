//! Tests of goodness of fit: does a sample follow a law, do samples come from one law, do counts match?
//!
//! Each gives its statistic and a p-value: the chance of a statistic at least as large where the hypothesis holds.
//! Independent samples are assumed; measurements in time seldom are, so thin them out first or read the p-value as a
//! bound on nothing.

mod anderson_darling;

use statrs::function::gamma::gamma_ur;

pub use anderson_darling::{AndersonDarling, anderson_darling_k_sample};

/// What a test found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestResult {
    /// D of Kolmogorov and Smirnov, X² of the chi-square test.
    pub statistic: f64,
    /// Chance of a statistic at least as large where the hypothesis holds, 0…1.
    pub p_value: f64,
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatisticsError {
    /// A sample is empty, or there are too few samples or categories to compare.
    #[error("too few values for this test")]
    TooFew,
    /// A value is NaN or infinite.
    #[error("a value is not a finite number")]
    NotFinite,
    /// All values are equal, so nothing can differ.
    #[error("all values are equal")]
    AllEqual,
    /// An expected count is zero or negative, or the two lists differ in length.
    #[error("each category needs an expected count above 0")]
    Expectation,
}

/// Whether `samples` follow the continuous law whose distribution function is `below`.
///
/// D = sup |F_n − F|; p by Kolmogorov's limit law with Stephens's correction for finite n, (√n + 0.12 + 0.11/√n)·D
/// (Stephens 1970, "Use of the Kolmogorov–Smirnov, Cramér–von Mises and related statistics without extensive tables";
/// good from n = 8 or so).
///
/// # Errors
/// No samples, or one that is not finite.
pub fn kolmogorov_smirnov(samples: &[f64], below: impl Fn(f64) -> f64) -> Result<TestResult, StatisticsError> {
    let sorted = sorted(samples)?;
    let count = sorted.len() as f64;
    let distance = sorted.iter().enumerate().fold(0f64, |distance, (index, &x)| {
        let share = below(x);
        distance.max(share - index as f64 / count).max((index + 1) as f64 / count - share)
    });
    Ok(TestResult { statistic: distance, p_value: kolmogorov_beyond(distance, count) })
}

/// Whether two samples come from one law.
///
/// D = sup |F_a − F_b|; p as in [`kolmogorov_smirnov`] with n = ab/(a + b). Ties make it conservative.
///
/// # Errors
/// An empty sample, or a value that is not finite.
pub fn kolmogorov_smirnov_two_sample(a: &[f64], b: &[f64]) -> Result<TestResult, StatisticsError> {
    let (a, b) = (sorted(a)?, sorted(b)?);
    let (mut i, mut j, mut distance) = (0, 0, 0f64);
    while i < a.len() && j < b.len() {
        let x = a[i].min(b[j]);
        while i < a.len() && a[i] <= x {
            i += 1;
        }
        while j < b.len() && b[j] <= x {
            j += 1;
        }
        distance = distance.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    let (a, b) = (a.len() as f64, b.len() as f64);
    Ok(TestResult { statistic: distance, p_value: kolmogorov_beyond(distance, a * b / (a + b)) })
}

/// Whether counts match what was expected: Pearson's X² = Σ (observed − expected)²/expected, with one degree of freedom
/// fewer than categories, less `fitted` for parameters that were estimated from the same counts.
///
/// The limit law wants an expected count of some 5 in each category; join rare ones.
///
/// # Errors
/// Lists of different length, an expected count that is not above 0, or no degree of freedom left.
pub fn chi_square(observed: &[u64], expected: &[f64], fitted: usize) -> Result<TestResult, StatisticsError> {
    if observed.len() != expected.len() || expected.iter().any(|e| !(e.is_finite() && *e > 0.0)) {
        return Err(StatisticsError::Expectation);
    }
    let freedom = observed.len().checked_sub(fitted.saturating_add(1)).filter(|freedom| *freedom > 0);
    let freedom = freedom.ok_or(StatisticsError::TooFew)?;
    let statistic: f64 = observed.iter().zip(expected).map(|(o, e)| (*o as f64 - e).powi(2) / e).sum();
    let p_value = if statistic > 0.0 { gamma_ur(freedom as f64 / 2.0, statistic / 2.0) } else { 1.0 };
    Ok(TestResult { statistic, p_value })
}

fn sorted(samples: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    if samples.is_empty() {
        return Err(StatisticsError::TooFew);
    }
    if !samples.iter().all(|x| x.is_finite()) {
        return Err(StatisticsError::NotFinite);
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

/// P(D > `distance`) for `count` samples: Q(λ) = 2 Σ (−1)^(k−1) e^(−2k²λ²).
fn kolmogorov_beyond(distance: f64, count: f64) -> f64 {
    let lambda = (count.sqrt() + 0.12 + 0.11 / count.sqrt()) * distance;
    // Below this Q is 1 to fifteen digits and its alternating series converges badly.
    if lambda < 0.2 {
        return 1.0;
    }
    let term = |k: i32| f64::from(1 - 2 * ((k - 1) % 2)) * (-2.0 * f64::from(k * k) * lambda * lambda).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The critical values that textbooks print for large samples.
    #[test]
    fn kolmogorov_critical_values() {
        let count = 1e12f64;
        for (lambda, p) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01), (0.1, 1.0)] {
            let found = kolmogorov_beyond(lambda / count.sqrt(), count);
            assert!((found - p).abs() < 1e-4, "{lambda}: {found}");
        }
    }

    /// By hand: of 0.1, 0.2, 0.3 against the uniform law on 0…1 the largest step is 1 − 0.3.
    #[test]
    fn distance_of_one_sample() {
        let test = kolmogorov_smirnov(&[0.3, 0.1, 0.2], |x| x.clamp(0.0, 1.0)).unwrap();
        assert!((test.statistic - 0.7).abs() < 1e-12);
        assert_eq!(kolmogorov_smirnov(&[], |x| x), Err(StatisticsError::TooFew));
        assert_eq!(kolmogorov_smirnov(&[f64::NAN], |x| x), Err(StatisticsError::NotFinite));
    }

    /// By hand: after 2, all of the first sample and one of three of the second lie below.
    #[test]
    fn distance_of_two_samples() {
        let test = kolmogorov_smirnov_two_sample(&[1.0, 2.0], &[2.0, 3.0, 4.0]).unwrap();
        assert!((test.statistic - 2.0 / 3.0).abs() < 1e-12);
        let same: Vec<f64> = (0..500).map(f64::from).collect();
        assert_eq!(kolmogorov_smirnov_two_sample(&same, &same), Ok(TestResult { statistic: 0.0, p_value: 1.0 }));
        let shifted: Vec<f64> = same.iter().map(|x| x + 100.0).collect();
        assert!(kolmogorov_smirnov_two_sample(&same, &shifted).unwrap().p_value < 1e-6);
    }

    /// Mendel's peas (1866): 315, 108, 101, 32 against 9 : 3 : 3 : 1 give X² = 0.470, p = 0.925.
    #[test]
    fn chi_square_of_mendels_peas() {
        let expected = [9.0, 3.0, 3.0, 1.0].map(|share| 556.0 * share / 16.0);
        let test = chi_square(&[315, 108, 101, 32], &expected, 0).unwrap();
        assert!((test.statistic - 0.470_02).abs() < 1e-4, "{test:?}");
        assert!((test.p_value - 0.925_4).abs() < 1e-3, "{test:?}");
        assert_eq!(chi_square(&[1, 2], &[1.0], 0), Err(StatisticsError::Expectation));
        assert_eq!(chi_square(&[1, 2], &[1.0, 2.0], 1), Err(StatisticsError::TooFew));
        // With one degree of freedom X² is the square of a normal variable: P(|z| > √2) = erfc(1).
        let test = chi_square(&[0, 2], &[1.0, 1.0], 0).unwrap();
        assert!((test.statistic - 2.0).abs() < 1e-12 && (test.p_value - 0.157_299).abs() < 1e-5, "{test:?}");
    }
}
