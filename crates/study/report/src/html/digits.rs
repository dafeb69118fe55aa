//! How many digits of a mean are worth reading: those that its interval leaves.

/// Digits of a mean without an interval.
const ALONE: usize = 4;
/// Digits of half of an interval.
const OF_HALF: usize = 2;
/// Digits of a mean at most: no instrument has more.
const MOST: usize = 6;
/// Decimals at most.
const DECIMALS_MOST: i32 = 12;

/// A mean and half of its interval: the half has two digits that count, the mean ends at the same decimal place (`252.1 ± 1.8`). Without an
/// interval, or with one of no width, it has four digits at most.
pub(crate) fn with_half(mean: f64, half: Option<f64>) -> String {
    let alone = || without_zeros(&rounded(mean, last_place(mean, ALONE)));
    let Some(half) = half else { return alone() };
    let last = last_place(half, OF_HALF).min(last_place(mean.abs().max(half), MOST));
    let shown = rounded(half, last);
    // What equal runs have, but for what is left of their sums.
    if without_zeros(&shown) == "0" {
        return format!("{} ± 0", alone());
    }
    format!("{} ± {shown}", rounded(mean, last))
}

/// The decimal place at which the last of `digits` digits that count stands; below 0 it is left of the point.
fn last_place(value: f64, digits: usize) -> i32 {
    let after = digits - 1;
    // The exponent of what is rounded already: 9.96 with two digits is 10.
    let written = format!("{value:.after$e}");
    let exponent = written.rsplit_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    (after as i32 - exponent.unwrap_or_default()).min(DECIMALS_MOST)
}

/// `value` down to the decimal `place`.
fn rounded(value: f64, place: i32) -> String {
    let (unit, decimals) = (10_f64.powi(place), place.max(0) as usize);
    // Nothing has no sign.
    let value = (value * unit).round() / unit + 0.0;
    format!("{value:.decimals$}")
}

fn without_zeros(text: &str) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand.
    #[test]
    fn an_interval_leaves_some_digits_of_its_mean() {
        for (mean, half, shown) in [
            (252.057, Some(1.757), "252.1 ± 1.8"),
            (1.181, Some(0.005), "1.1810 ± 0.0050"),
            (5432.1, Some(213.0), "5430 ± 210"),
            (50.2, Some(9.96), "50 ± 10"),
            (0.003_14, Some(0.004_5), "0.0031 ± 0.0045"),
            (-0.001, Some(0.3), "0.00 ± 0.30"),
            (0.0, Some(0.0), "0 ± 0"),
            (0.1 + 0.2, Some(5e-17), "0.3 ± 0"),
            (1376.26, None, "1376"),
            (0.123_456, None, "0.1235"),
            (252_057.0, None, "252100"),
            (25.0, None, "25"),
            (0.0, None, "0"),
        ] {
            assert_eq!(with_half(mean, half), shown);
        }
    }
}
