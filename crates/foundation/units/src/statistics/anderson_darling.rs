//! The k-sample Anderson–Darling test: F. W. Scholz and M. A. Stephens, "K-Sample Anderson–Darling Tests", Journal of
//! the American Statistical Association 82 (1987).
//!
//! It weighs the tails more than Kolmogorov and Smirnov do, which is where paths differ.

use super::{StatisticsError, sorted};

/// What the test found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AndersonDarling {
    /// A²_akN, the version for ties (Eq. 7).
    pub statistic: f64,
    /// (A²_akN − (k − 1))/σ_N: what Table 1 of the paper lists.
    pub standardized: f64,
    /// Chance of a statistic at least as large where all samples come from one law, interpolated from Table 1. It lists
    /// 0.25 to 0.001 (as extended in the authors' R package kSamples); beyond, the nearest of these two stands here.
    pub p_value: f64,
}

/// `(p, b0, b1, b2)`: the point beyond which T_m lies with chance p is b0 + b1/√m + b2/m (Eq. 8, Table 2 of the paper;
/// the last two rows from later work of the authors, as scipy's `anderson_ksamp` and R's kSamples have them).
const POINTS: [(f64, f64, f64, f64); 7] = [
    (0.25, 0.675, -0.245, -0.105),
    (0.10, 1.281, 0.250, -0.305),
    (0.05, 1.645, 0.678, -0.362),
    (0.025, 1.960, 1.149, -0.391),
    (0.01, 2.326, 1.822, -0.396),
    (0.005, 2.573, 2.364, -0.345),
    (0.001, 3.085, 3.615, -0.154),
];

/// Whether k samples come from one law.
///
/// # Errors
/// Fewer than two samples, an empty one, fewer than four values in all, a value that is not finite, or all equal.
pub fn anderson_darling_k_sample(samples: &[&[f64]]) -> Result<AndersonDarling, StatisticsError> {
    let sorted_samples: Vec<Vec<f64>> = samples.iter().map(|sample| sorted(sample)).collect::<Result<_, _>>()?;
    let pooled = sorted(&sorted_samples.concat())?;
    let total = pooled.len();
    if samples.len() < 2 || total < 4 {
        return Err(StatisticsError::TooFew);
    }
    if pooled[0] == pooled[total - 1] {
        return Err(StatisticsError::AllEqual);
    }
    let statistic = statistic(&sorted_samples, &pooled);
    let groups = samples.len() as f64 - 1.0;
    let standardized = (statistic - groups) / variance(&sorted_samples, total).sqrt();
    Ok(AndersonDarling { statistic, standardized, p_value: p_value(standardized, groups) })
}

/// Eq. 7: with M_ij the values of sample i up to the j-th distinct one, half of the equal ones counted.
fn statistic(samples: &[Vec<f64>], pooled: &[f64]) -> f64 {
    let total = pooled.len() as f64;
    // Each distinct value with its multiplicity l_j and B_aj, the mid-rank of it.
    let steps: Vec<(f64, f64, f64)> = pooled
        .chunk_by(|a, b| a == b)
        .scan(0.0, |before, equal| {
            let count = equal.len() as f64;
            let middle = *before + count / 2.0;
            *before += count;
            Some((equal[0], count, middle))
        })
        .collect();
    let sum: f64 = samples
        .iter()
        .map(|sample| {
            let size = sample.len() as f64;
            let mut seen = 0;
            let inner: f64 = steps
                .iter()
                .map(|&(value, count, middle)| {
                    let first = seen;
                    while sample.get(seen).is_some_and(|x| *x <= value) {
                        seen += 1;
                    }
                    let own = first as f64 + (seen - first) as f64 / 2.0;
                    let weight = middle * (total - middle) - total * count / 4.0;
                    // Zero only where one value is all there is, which was refused.
                    count / total * (total * own - size * middle).powi(2) / weight
                })
                .sum();
            inner / size
        })
        .sum();
    sum * (total - 1.0) / total
}

/// Eq. 4: the variance of A²_kN where all samples come from one law.
fn variance(samples: &[Vec<f64>], total: usize) -> f64 {
    let groups = samples.len() as f64;
    let sizes: f64 = samples.iter().map(|sample| 1.0 / sample.len() as f64).sum();
    let harmonic: f64 = (1..total).map(|i| 1.0 / i as f64).sum();
    // g = Σ_{i=1}^{N−2} Σ_{j=i+1}^{N−1} 1/((N − i) j), the inner sum carried from the end.
    let (mut tail, mut g) = (0.0, 0.0);
    for i in (1..total - 1).rev() {
        tail += 1.0 / (i + 1) as f64;
        g += tail / (total - i) as f64;
    }
    let a = (4.0 * g - 6.0) * (groups - 1.0) + (10.0 - 6.0 * g) * sizes;
    let b = (2.0 * g - 4.0) * groups * groups + 8.0 * harmonic * groups + (2.0 * g - 14.0 * harmonic - 4.0) * sizes
        - 8.0 * harmonic
        + 4.0 * g
        - 6.0;
    let c = (6.0 * harmonic + 2.0 * g - 2.0) * groups * groups
        + (4.0 * harmonic - 4.0 * g + 6.0) * groups
        + (2.0 * harmonic - 6.0) * sizes
        + 4.0 * harmonic;
    let d = (2.0 * harmonic + 6.0) * groups * groups - 4.0 * harmonic * groups;
    let n = total as f64;
    (((a * n + b) * n + c) * n + d) / ((n - 1.0) * (n - 2.0) * (n - 3.0))
}

/// Straight lines through ln p between the points of the table.
fn p_value(standardized: f64, m: f64) -> f64 {
    let points = POINTS.map(|(p, b0, b1, b2)| (b0 + b1 / m.sqrt() + b2 / m, f64::ln(p)));
    let (first, last) = (points[0], points[points.len() - 1]);
    if standardized <= first.0 {
        return first.1.exp();
    }
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if standardized <= x1 {
            return (y0 + (y1 - y0) * (standardized - x0) / (x1 - x0)).exp();
        }
    }
    last.1.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own example (Table 4): smoothness of paper from four laboratories. T = 4.480 for the version with
    /// ties, p between 0.001 and 0.005.
    #[test]
    fn smoothness_of_paper() {
        let laboratories: [&[f64]; 4] = [
            &[38.7, 41.5, 43.8, 44.5, 45.5, 46.0, 47.7, 58.0],
            &[39.2, 39.3, 39.7, 41.4, 41.8, 42.9, 43.3, 45.8],
            &[34.0, 35.0, 39.0, 40.0, 43.0, 43.0, 44.0, 45.0],
            &[34.0, 34.8, 34.8, 35.4, 37.2, 37.8, 41.2, 42.8],
        ];
        let test = anderson_darling_k_sample(&laboratories).unwrap();
        assert!((test.statistic - 8.3926).abs() < 1e-3, "{test:?}");
        assert!((test.standardized - 4.480).abs() < 1e-3, "{test:?}");
        assert!((0.001..0.005).contains(&test.p_value), "{test:?}");
    }

    #[test]
    fn equal_samples_and_shifted_ones() {
        let even: Vec<f64> = (0..200).map(|i| f64::from(2 * i)).collect();
        let odd: Vec<f64> = (0..200).map(|i| f64::from(2 * i + 1)).collect();
        assert_eq!(anderson_darling_k_sample(&[&even, &odd]).unwrap().p_value, 0.25);
        let shifted: Vec<f64> = odd.iter().map(|x| x + 120.0).collect();
        assert!((anderson_darling_k_sample(&[&even, &shifted]).unwrap().p_value - 0.001).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_compared() {
        assert_eq!(anderson_darling_k_sample(&[&[1.0, 2.0, 3.0, 4.0]]), Err(StatisticsError::TooFew));
        assert_eq!(anderson_darling_k_sample(&[&[1.0, 2.0, 3.0], &[]]), Err(StatisticsError::TooFew));
        assert_eq!(anderson_darling_k_sample(&[&[1.0, 1.0], &[1.0, 1.0]]), Err(StatisticsError::AllEqual));
        assert_eq!(anderson_darling_k_sample(&[&[1.0, f64::NAN], &[1.0, 2.0]]), Err(StatisticsError::NotFinite));
    }
}
