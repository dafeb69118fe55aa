//! The axes of a plot: steps, their lines, their numbers.

use std::fmt::Write;

/// Units of quantities that are drawn, the largest first.
pub(crate) const RATES: [(f64, &str); 4] = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
/// Of nanoseconds.
pub(crate) const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];

/// The step of an axis: the smallest of 1, 2, 2.5 and 5 times a power of ten with at most five steps up to `highest`.
pub(crate) fn step(highest: f64) -> f64 {
    let rough = (highest / 5.0).max(1e-6);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999_999)
        .unwrap_or(rough)
}

/// A number with two digits that count, as short as that allows.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = (1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The position of `value` on a ground (left, top, right, bottom) whose axis has `steps` steps of `step` upwards from 0.
pub(crate) fn height([_, top, _, bottom]: [f64; 4], step: f64, steps: f64, value: f64) -> f64 {
    bottom - (bottom - top) * (value / (step * steps)).clamp(0.0, 1.0)
}

/// A line across the ground for each step, its number left of it.
pub(crate) fn grid(svg: &mut String, edges: [f64; 4], step: f64, steps: f64, label: impl Fn(f64) -> String) {
    let [left, _, right, _] = edges;
    for tick in 0..=steps as u32 {
        let value = step * f64::from(tick);
        let (class, y) = (if tick == 0 { "axis" } else { "grid" }, height(edges, step, steps, value));
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.5,
            label(value)
        );
    }
}

/// Six digits that count: no instrument has more, and a page is to be short. Whole numbers stay as they are.
pub(crate) fn six_digits(value: f64) -> f64 {
    if value.fract() == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    if !scale.is_finite() {
        // Below 1e-303 there is no such scale.
        return 0.0;
    }
    if scale >= 1.0 { (value * scale).round() / scale } else { value.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_left_of_any_number() {
        for (value, left) in [(0.123_456_789, 0.123_457), (-12.345_678_9, -12.345_7), (1_234_567.8, 1_234_568.0)] {
            assert_eq!(six_digits(value), left);
        }
        assert_eq!((six_digits(f64::from_bits(1)), six_digits(1e-306), six_digits(3.0)), (0.0, 0.0, 3.0));
    }
}
