//! A panel of lines over time as SVG.

use std::fmt::Write;

use crate::axis::{grid, height, short, step};
use crate::page::escape;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 280.0;
/// Of the lines' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [62.0, 30.0, 512.0, 232.0];

/// A line.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    /// Seconds and value, in the order of time.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The panel, from 0 up and from 0 to `end_s` seconds. `None` where no line has two points.
pub(crate) fn panel(title: &str, lines: &[Line], y_title: &str, end_s: f64) -> Option<String> {
    let lines: Vec<&Line> = lines.iter().filter(|line| line.points.len() > 1).collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    all().next()?;
    let end = all().map(|(x, _)| *x).fold(end_s, f64::max).max(1e-9);
    let highest = all().map(|(_, y)| *y).fold(0.0, f64::max);
    let [left, _, right, bottom] = EDGES;
    let step = step(if highest > 0.0 { highest } else { 1.0 });
    let steps = (highest / step).ceil().max(1.0);
    let x = |value: f64| left + (right - left) * value / end;
    let y = |value: f64| height(EDGES, step, steps, value);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{}</title>\n", escape(title));
    grid(&mut svg, EDGES, step, steps, tick_label);
    // Writing to a string cannot fail.
    let (size, unit) =
        [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")].into_iter().find(|(size, _)| end >= *size).unwrap_or((1e-9, "ns"));
    let every = crate::axis::step(end / size);
    for tick in 0..=(end / size / every * 1.000_001) as u32 {
        let value = every * f64::from(tick);
        let at = x(value * size);
        let anchor = if at > right - 20.0 { "end" } else { "middle" };
        let text = if tick == 0 { "0".into() } else { format!("{} {unit}", tick_label(value)) };
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{text}</text>", bottom + 17.0);
    }
    for (number, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\" points=\"{}\"><title>{}</title></polyline>\
             <text x=\"{:.0}\" y=\"{}\" style=\"fill: {}\">{}</text>",
            line.colour,
            points.join(" "),
            escape(line.name),
            left + 170.0 * number as f64,
            HEIGHT - 8.0,
            line.colour,
            escape(line.name)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"total\" x=\"{left}\" y=\"15\">{}</text>\
         <text x=\"{right}\" y=\"15\" text-anchor=\"end\">{}</text>\n</svg>",
        escape(title),
        escape(y_title)
    );
    Some(svg)
}

/// Three digits behind the point, without zeros at the end.
fn trimmed(value: f64) -> String {
    if value < 0.01 {
        return short(value);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Two digits are too few where an axis goes beyond 10 in steps of 2.5.
fn tick_label(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { trimmed(value) }
}
