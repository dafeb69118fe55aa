//! The goodput of a series as bars: upright, or a row for each of many.

use std::fmt::Write;

use super::{BESIDE, BESIDE_GOODPUT, EXPECTED, GOODPUT, OWN, Run};
use crate::html::axis::{grid, height, short, step};
use crate::html::bars::{EDGES, HEIGHT, WIDTH, error_bar};
use crate::html::page::{escape, number, with_numbers};
use crate::html::points::Point;
use crate::html::series::Series;
use crate::html::udp_loss::scaled;

/// Of more points labels and values of upright bars would overlap.
const UPRIGHT_MOST: usize = 8;
/// How high a row is.
const ROW: f64 = 19.0;
/// Of what stands left of a row.
const LETTER_WIDE: f64 = 7.6;

/// One or two bars per point, with an axis from 0 to at least `highest` Mb/s.
pub(super) fn panel(series: &Series<Run>, highest: f64) -> String {
    // The values are beyond the bars and below the highest line.
    let highest = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let draw = if series.points.len() > UPRIGHT_MOST { rows } else { upright };
    with_numbers(&draw(series, highest), numbers(series))
}

/// What bars a point has: the mean of each, and its colour.
fn bars(point: &Point<Run>) -> Vec<(&'static str, &'static str)> {
    let has_beside = point.shown().any(|run| run.beside.is_some());
    let bars = [Some((GOODPUT, OWN)), has_beside.then_some((BESIDE_GOODPUT, BESIDE))];
    bars.into_iter().flatten().collect()
}

/// Bars that stand.
fn upright(series: &Series<Run>, highest: f64) -> String {
    let [left, top, right, bottom] = EDGES;
    let step = step(highest);
    let steps = (highest / step).ceil();
    let y = |mbit: f64| height(EDGES, step, steps, mbit);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{}</title>\n",
        escape(&series.name)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let room = (right - left) / series.points.len().max(1) as f64;
    for (number, point) in series.points.iter().enumerate() {
        let middle = left + room * (number as f64 + 0.5);
        let class = if point.doubtful { "bar doubtful" } else { "bar" };
        let _ = write!(svg, "<g class=\"{class}\" data-test=\"{0}\"><title>{0}</title>", escape(&point.label));
        let bars = bars(point);
        let wide = room * 0.62 / bars.len() as f64;
        for (place, (name, fill)) in bars.iter().enumerate() {
            let x = middle + wide * (place as f64 - bars.len() as f64 / 2.0);
            let (goodput, half) = (scaled(point, name, 1e-6), point.mean(name).and_then(|mean| mean.half_width));
            let (high, text) =
                point.mean(name).map_or((bottom, "–".into()), |_| (y(goodput.mean), short(goodput.mean)));
            let above = half.map_or(high, |half| y(goodput.mean + half * 1e-6));
            let _ = write!(
                svg,
                "<rect class=\"piece\" x=\"{x:.1}\" y=\"{high:.2}\" width=\"{wide:.1}\" height=\"{:.2}\" fill=\"{fill}\"/>\
                 <text class=\"total\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom - high,
                x + wide / 2.0,
                above - 5.0,
            );
            if let Some(half) = half {
                svg += &error_bar(x + wide / 2.0, y(goodput.mean - half * 1e-6), above);
            }
        }
        if point.mean(EXPECTED).is_some() {
            let _ = write!(
                svg,
                "<line class=\"axis\" stroke-width=\"2\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2:.2}\" y2=\"{2:.2}\"/>",
                middle - room * 0.42,
                middle + room * 0.42,
                y(scaled(point, EXPECTED, 1e-6).mean)
            );
        }
        // Labels that would overlap are in two rows.
        let below = bottom + 15.0 + if room < 70.0 && number % 2 == 1 { 14.0 } else { 0.0 };
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text></g>",
            escape(&point.label)
        );
    }
    let _ = writeln!(
        svg,
        "<text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">goodput, Mb/s</text>\n</svg>",
        (top + bottom) / 2.0
    );
    svg
}

/// Bars that lie, one below the other.
fn rows(series: &Series<Run>, highest: f64) -> String {
    let longest = series.points.iter().map(|point| point.label.chars().count()).max().unwrap_or_default();
    let (left, top, right) = ((longest as f64 * LETTER_WIDE).clamp(40.0, 200.0) + 8.0, 8.0, WIDTH - 44.0);
    let bottom = top + ROW * series.points.len() as f64;
    let step = step(highest);
    let steps = (highest / step).ceil();
    let x = |mbit: f64| left + (right - left) * (mbit / (step * steps)).clamp(0.0, 1.0);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" class=\"plot\"><title>{}</title>\n",
        bottom + 42.0,
        escape(&series.name)
    );
    for tick in 0..=steps as u32 {
        let value = step * f64::from(tick);
        let _ = writeln!(
            svg,
            "<line class=\"{}\" x1=\"{1:.1}\" x2=\"{1:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text x=\"{1:.1}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
            if tick == 0 { "axis" } else { "grid" },
            x(value),
            bottom + 16.0,
            short(value)
        );
    }
    for (number, point) in series.points.iter().enumerate() {
        let middle = top + ROW * (number as f64 + 0.5);
        let class = if point.doubtful { "bar doubtful" } else { "bar" };
        let _ = write!(
            svg,
            "<g class=\"{class}\" data-test=\"{0}\"><title>{0}</title><text x=\"{1:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{0}</text>",
            escape(&point.label),
            left - 6.0,
            middle + 4.5
        );
        let bars = bars(point);
        let thick = ROW * 0.7 / bars.len() as f64;
        for (place, (name, fill)) in bars.iter().enumerate() {
            let y = middle + thick * (place as f64 - bars.len() as f64 / 2.0);
            let (goodput, half) = (scaled(point, name, 1e-6).mean, point.mean(name).and_then(|mean| mean.half_width));
            let text = point.mean(name).map_or_else(|| "–".into(), |_| short(goodput));
            let [low, high] = [-1.0, 1.0].map(|sign| x(goodput + sign * half.unwrap_or_default() * 1e-6));
            let _ = write!(
                svg,
                "<rect class=\"piece\" x=\"{left:.1}\" y=\"{y:.2}\" width=\"{:.1}\" height=\"{thick:.2}\" fill=\"{fill}\"/>\
                 <text class=\"total\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                x(goodput) - left,
                high + 5.0,
                y + thick / 2.0 + 4.5,
            );
            if half.is_some() {
                let (at, above, below) = (y + thick / 2.0, y + thick / 2.0 - 3.0, y + thick / 2.0 + 3.0);
                let _ = write!(
                    svg,
                    "<path class=\"interval\" d=\"M{low:.1} {above:.1}V{below:.1}M{low:.1} {at:.1}H{high:.1}M{high:.1} {above:.1}V{below:.1}\"/>"
                );
            }
        }
        if point.mean(EXPECTED).is_some() {
            let _ = write!(
                svg,
                "<line class=\"axis\" stroke-width=\"2\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>",
                x(scaled(point, EXPECTED, 1e-6).mean),
                middle - ROW * 0.46,
                middle + ROW * 0.46,
            );
        }
        svg += "</g>\n";
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">goodput, Mb/s</text>\n</svg>",
        f64::midpoint(left, right),
        bottom + 34.0
    );
    svg
}

/// The numbers of the bars: a row for each point.
fn numbers(series: &Series<Run>) -> Vec<Vec<String>> {
    let names = ["test", "goodput, Mb/s", "±", "other flows, Mb/s", "±", "expected, Mb/s", "±"];
    let row = |point: &Point<Run>| {
        let mbit = |name: &str| {
            let mean = point.mean(name);
            let (mean, half) = (mean.map(|mean| mean.mean), mean.and_then(|mean| mean.half_width));
            [mean, half].map(|bps| number(bps.map(|bps| bps * 1e-6)))
        };
        let means = [GOODPUT, BESIDE_GOODPUT, EXPECTED].into_iter().flat_map(mbit);
        std::iter::once(point.label.clone()).chain(means).collect::<Vec<String>>()
    };
    std::iter::once(names.map(str::to_owned).to_vec()).chain(series.points.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    /// Of 2 Gb/s the axis has room for 2.5: 8 letters and 8 units of left edge leave 287.2, of which 1 Gb/s takes 114.9. No label is on another.
    #[test]
    fn many_points_have_a_row_each() {
        let series = |count: usize| {
            let labels: Vec<String> = (0..count).map(|number| format!("reno × {number}")).collect();
            let runs = labels.iter().map(|label| (label.as_str(), run(Some(1_000)))).collect();
            crate::html::series::tests::series("many", runs)
        };
        let [few, many] = [UPRIGHT_MOST, UPRIGHT_MOST + 1].map(|count| panel(&series(count), 2000.0));
        assert!(few.contains(&format!("viewBox=\"0 0 {WIDTH} {HEIGHT}\"")) && !many.contains("rotate(-90)"), "{many}");
        assert_eq!(many.matches("width=\"114.9\" height=\"13.30\"").count(), UPRIGHT_MOST + 1, "{many}");
        for number in 0..=UPRIGHT_MOST {
            let y = 8.0 + ROW * (number as f64 + 0.5) + 4.5;
            assert!(many.contains(&format!("y=\"{y:.1}\" text-anchor=\"end\">reno × {number}</text>")), "{many}");
        }
    }
}
