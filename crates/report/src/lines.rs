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

/// The panel, from 0 up. `None` where no line has two points.
pub(crate) fn panel(title: &str, lines: &[Line], y_title: &str) -> Option<String> {
    let lines: Vec<&Line> = lines.iter().filter(|line| line.points.len() > 1).collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let start = all().map(|(x, _)| *x).reduce(f64::min)?;
    let end = all().map(|(x, _)| *x).reduce(f64::max)?.max(start + 1e-9);
    let highest = all().map(|(_, y)| *y).fold(0.0, f64::max);
    let [left, _, right, bottom] = EDGES;
    let step = step(if highest > 0.0 { highest } else { 1.0 });
    let steps = (highest / step).ceil().max(1.0);
    let x = |value: f64| left + (right - left) * (value - start) / (end - start);
    let y = |value: f64| height(EDGES, step, steps, value);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{}</title>\n", escape(title));
    grid(&mut svg, EDGES, step, steps, tick_label);
    // Writing to a string cannot fail.
    for tick in 0..=4 {
        let value = start + (end - start) * f64::from(tick) / 4.0;
        let anchor = if tick == 4 { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{} s</text>",
            x(value),
            bottom + 17.0,
            short(value)
        );
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

/// Two digits are too few where an axis goes beyond 100 in steps of 25.
fn tick_label(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { short(value) }
}
