//! The goodput of a series as bars: upright, or a row for each of many.

use std::fmt::Write;

use super::{BESIDE, BESIDE_GOODPUT, EXPECTED, GOODPUT, OWN, Run};
use crate::html::axis::{grid, short, step};
use crate::html::bars::{BAR_SHARE, EDGES, HEADROOM, HEIGHT, LETTER_WIDE, WIDTH};
use crate::html::page::{escape, number, with_numbers};
use crate::html::points::{Mean, NONE, Point};
use crate::html::series::Series;
use crate::html::udp_loss::scaled;

/// Of more points labels and values of upright bars would overlap.
const UPRIGHT_MOST: usize = 8;
/// How high a row is.
const ROW: f64 = 19.0;
/// From the end of a bar to its value, and how much of that direction the value of an upright bar takes.
const BEFORE_VALUE: f64 = 5.0;
const VALUE_HIGH: f64 = 11.0;
/// Letters left of a row: more would leave the bars too little room.
const LETTERS_MOST: usize = 26;

/// One or two bars per point, with an axis from 0 to at least `highest` Mb/s.
pub(super) fn panel(series: &Series<Run>, highest: f64) -> String {
    with_numbers(&figure(series, highest), numbers(series))
}

/// What bars a point has: the mean of each, and its colour.
fn bars(point: &Point<Run>) -> Vec<(&'static str, &'static str)> {
    let has_beside = point.shown().any(|run| run.beside.is_some());
    let bars = [Some((GOODPUT, OWN)), has_beside.then_some((BESIDE_GOODPUT, BESIDE))];
    bars.into_iter().flatten().collect()
}

/// Bars stand, or lie one below the other where there are many.
fn figure(series: &Series<Run>, highest: f64) -> String {
    let count = series.points.len();
    let lies = count > UPRIGHT_MOST;
    let label = |point: &Point<Run>| if lies { shortened(&point.label) } else { point.label.clone() };
    let longest = series.points.iter().map(|point| label(point).chars().count()).max().unwrap_or_default();
    let beside = (longest as f64 * LETTER_WIDE).max(40.0) + 8.0;
    let edges = if lies { [beside, 8.0, WIDTH - 44.0, 8.0 + ROW * count as f64] } else { EDGES };
    let [left, top, right, bottom] = edges;
    // The values are beyond the bars and below the highest line.
    let highest = if highest > 0.0 { highest * HEADROOM } else { 1.0 };
    let step = step(highest);
    let steps = (highest / step).ceil();
    // x and y: of a goodput in Mb/s along the bars, and of a place across them.
    let at = |mbit: f64, across: f64| {
        let share = (mbit / (step * steps)).clamp(0.0, 1.0);
        if lies { (left + (right - left) * share, across) } else { (across, bottom - (bottom - top) * share) }
    };
    // From 0 along the bars.
    let along = |mbit: f64| {
        let (x, y) = at(mbit, 0.0);
        if lies { x - left } else { bottom - y }
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" class=\"plot\"><title>{}</title>\n",
        if lies { bottom + 42.0 } else { HEIGHT },
        escape(&series.name)
    );
    if lies {
        columns(&mut svg, edges, step, steps);
    } else {
        grid(&mut svg, edges, step, steps, short);
    }
    let (first, room) = if lies { (top, ROW) } else { (left, (right - left) / count.max(1) as f64) };
    for (number, point) in series.points.iter().enumerate() {
        let middle = first + room * (number as f64 + 0.5);
        let class = if point.doubtful { "bar doubtful" } else { "bar" };
        let _ = write!(svg, "<g class=\"{class}\" data-test=\"{0}\"><title>{0}</title>", escape(&point.label));
        let bars = bars(point);
        let thick = room * BAR_SHARE / bars.len() as f64;
        let expected = point.mean(EXPECTED).map(|_| scaled(point, EXPECTED, 1e-6).mean);
        for (place, (name, fill)) in bars.iter().enumerate() {
            let from = middle + thick * (place as f64 - bars.len() as f64 / 2.0);
            let Mean { mean, half_width } = scaled(point, name, 1e-6);
            let ((x, low), (end, high)) = (at(0.0, from), at(mean, from + thick));
            let text = point.mean(name).map_or_else(|| NONE.into(), |_| short(mean));
            let takes = if lies { text.chars().count() as f64 * LETTER_WIDE } else { VALUE_HIGH };
            // A line that would strike the value through stands before it.
            let upper = mean + half_width.unwrap_or_default();
            let strikes = |line: &f64| (0.0..BEFORE_VALUE + takes).contains(&(along(*line) - along(upper)));
            let (text_x, text_y) = at(expected.filter(strikes).unwrap_or(upper), from + thick / 2.0);
            let (text_x, text_y, anchor) = if lies {
                (text_x + BEFORE_VALUE, text_y + 4.5, "start")
            } else {
                (text_x, text_y - BEFORE_VALUE, "middle")
            };
            let _ = write!(
                svg,
                "<rect class=\"piece\" x=\"{x:.1}\" y=\"{:.2}\" width=\"{:.1}\" height=\"{:.2}\" fill=\"{fill}\"/>\
                 <text class=\"total\" x=\"{text_x:.1}\" y=\"{text_y:.1}\" text-anchor=\"{anchor}\">{text}</text>",
                low.min(high),
                end - x,
                (high - low).abs(),
            );
            if let Some(half) = half_width {
                let ends = [(-half, -3.0), (-half, 3.0), (-half, 0.0), (half, 0.0), (half, -3.0), (half, 3.0)];
                let lines = ends.map(|(more, aside)| at(mean + more, from + thick / 2.0 + aside));
                let [a, b, c, d, e, f] = lines.map(|(x, y)| format!("{x:.1} {y:.2}"));
                let _ = write!(svg, "<path class=\"interval\" d=\"M{a}L{b}M{c}L{d}M{e}L{f}\"/>");
            }
        }
        if let Some(expected) = expected {
            let [(x1, y1), (x2, y2)] = [-0.42, 0.42].map(|part| at(expected, middle + room * part));
            let _ = write!(
                svg,
                "<line class=\"axis\" stroke-width=\"2\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.2}\" y2=\"{y2:.2}\"/>"
            );
        }
        // Labels that would overlap are in two rows.
        let below = bottom + 15.0 + if room < 70.0 && number % 2 == 1 { 14.0 } else { 0.0 };
        let (x, y, anchor) = if lies { (left - 6.0, middle + 4.5, "end") } else { (middle, below, "middle") };
        let label = escape(&label(point));
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text></g>");
    }
    let (x, y, turned) =
        if lies { (f64::midpoint(left, right), bottom + 34.0, 0) } else { (13.0, f64::midpoint(top, bottom), -90) };
    let _ = writeln!(
        svg,
        "<text transform=\"translate({x:.1} {y:.1}) rotate({turned})\" text-anchor=\"middle\">goodput, Mb/s</text>\n</svg>"
    );
    svg
}

/// A line down the ground for each step, its number below it.
fn columns(svg: &mut String, [left, top, right, bottom]: [f64; 4], step: f64, steps: f64) {
    for tick in 0..=steps as u32 {
        let (class, x) = (if tick == 0 { "axis" } else { "grid" }, left + (right - left) * f64::from(tick) / steps);
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            short(step * f64::from(tick))
        );
    }
}

/// `label` without its middle where it is long: both ends tell it from others.
fn shortened(label: &str) -> String {
    let letters: Vec<char> = label.chars().collect();
    if letters.len() <= LETTERS_MOST {
        return label.to_owned();
    }
    let (begin, end) = (&letters[..LETTERS_MOST / 2], &letters[letters.len() + 1 - LETTERS_MOST / 2..]);
    begin.iter().chain(&['…']).chain(end).collect()
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

    /// Of 2 Gb/s the axis has room for 2.5: 8 letters and 8 units of left edge leave 288, of which 1 Gb/s takes 115.2. No label is on another.
    #[test]
    fn many_points_have_a_row_each() {
        let series = |count: usize| {
            let labels: Vec<String> = (0..count).map(|number| format!("reno × {number}")).collect();
            let runs = labels.iter().map(|label| (label.as_str(), run(Some(1_000)))).collect();
            crate::html::series::tests::series("many", runs)
        };
        let [few, many] = [UPRIGHT_MOST, UPRIGHT_MOST + 1].map(|count| panel(&series(count), 2000.0));
        assert!(few.contains(&format!("viewBox=\"0 0 {WIDTH} {HEIGHT}\"")) && !many.contains("rotate(-90)"), "{many}");
        assert_eq!(many.matches("width=\"115.2\" height=\"11.78\"").count(), UPRIGHT_MOST + 1, "{many}");
        for number in 0..=UPRIGHT_MOST {
            let y = 8.0 + ROW * (number as f64 + 0.5) + 4.5;
            assert!(many.contains(&format!("y=\"{y:.1}\" text-anchor=\"end\">reno × {number}</text>")), "{many}");
        }
    }

    /// Bars of up to 1850 Mb/s have an axis to 2000, 190 units high: the bar of 500 ends at 164.5, and a line of 520 is 1.9 units above it. Of nine
    /// rows that of 1 Gb/s ends at 183.2, and its value has four letters of 7.5 units.
    #[test]
    fn no_line_strikes_a_value_through() {
        let drawn = |goodput: u64, expected: u64, count: usize, highest: f64| {
            let expected_bps = Some(expected * 1_000_000);
            let labels: Vec<String> = (0..count).map(|number| format!("reno × {number}")).collect();
            let runs = labels.iter().map(|label| (label.as_str(), Run { expected_bps, ..run(Some(goodput)) }));
            panel(&crate::html::series::tests::series("expected", runs.collect()), highest)
        };
        for (expected, y) in [(520, "157.6"), (580, "151.9"), (1_000, "159.5"), (400, "159.5")] {
            let html = drawn(500, expected, 1, 1850.0);
            assert!(html.contains(&format!("y=\"{y}\" text-anchor=\"middle\">500</text>")), "{expected}: {html}");
        }
        for (expected, x) in [(1_100, "199.7"), (1_600, "188.2"), (900, "188.2")] {
            let html = drawn(1_000, expected, UPRIGHT_MOST + 1, 2000.0);
            assert!(html.contains(&format!("class=\"total\" x=\"{x}\"")), "{expected}: {html}");
        }
    }

    /// 26 letters of 7.5 units begin 2 units right of the left edge and end 6 left of the bars.
    #[test]
    fn a_long_label_beside_a_row_is_shortened_and_its_title_has_all() {
        let label = |number: usize| format!("reno:2s,cubic:3s, MTU 9000, IPv6, beside {number}");
        let labels: Vec<String> = (10..=10 + UPRIGHT_MOST).map(label).collect();
        let runs = labels.iter().map(|label| (label.as_str(), run(Some(1_000)))).collect();
        let html = panel(&crate::html::series::tests::series("long", runs), 2000.0);
        for (number, label) in labels.iter().enumerate() {
            let y = 8.0 + ROW * (number as f64 + 0.5) + 4.5;
            let shown =
                format!("x=\"197.0\" y=\"{y:.1}\" text-anchor=\"end\">reno:2s,cubic…6, beside {}</text>", 10 + number);
            for part in [shown, format!("<title>{label}</title>")] {
                assert!(html.contains(&part), "{part}: {html}");
            }
        }
        assert_eq!((shortened(&"a".repeat(26)), shortened(&"a".repeat(27)).chars().count()), ("a".repeat(26), 26));
    }
}
