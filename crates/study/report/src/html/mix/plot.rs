//! Panels of a mix experiment's report: lines over the rates.

use std::fmt::Write;

use crate::html::bars::error_bar;
use crate::html::page::{escape, number, with_numbers};
use crate::html::points::Mean;

/// Width and height of a panel; left, top, right and bottom of its plot.
const SIZE: [f64; 2] = [400.0, 240.0];
const EDGES: [f64; 4] = [52.0, 18.0, 390.0, 200.0];
/// Colours that differ without colour vision (Okabe and Ito 2008), and dashes for print.
const LINES: [(&str, &str); 5] =
    [("#d55e00", ""), ("#0072b2", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#56b4e9", "1 4")];
/// Values that an axis of decades has room for.
const DECADES: std::ops::Range<f64> = 1e-3..1e12;

/// Means over the rates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) dots: Vec<Dot>,
}

/// A mean at a rate, in bits a second on a wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dot {
    pub(super) rate_bps: f64,
    pub(super) mean: Mean,
    /// It should not be trusted: pale.
    pub(super) doubtful: bool,
}

impl Dot {
    /// The lower and the upper end of its interval.
    fn ends(&self) -> (f64, f64) {
        let half = self.mean.half_width.unwrap_or_default();
        (self.mean.mean - half, self.mean.mean + half)
    }
}

/// Lines over the rates, from 0 on.
pub(super) fn panel(title: &str, lines: &[Line]) -> String {
    let most = lines.iter().flat_map(|line| &line.dots).map(|dot| dot.ends().1).fold(1e-9, f64::max);
    let step = crate::html::axis::step(most);
    let steps = (most / step - 1e-6).ceil().max(1.0);
    let y = |value: f64| crate::html::axis::height(EDGES, step, steps, value);
    let mut svg = start(title);
    crate::html::axis::grid(&mut svg, EDGES, step, steps, crate::html::axis::short);
    draw(svg, lines, y)
}

/// Lines over the rates. The axis of values is logarithmic: some values are a hundred times others.
pub(super) fn decades(title: &str, lines: &[Line]) -> String {
    let [left, top, right, bottom] = EDGES;
    let drawn = |line: &Line| {
        let dots = line.dots.iter().copied().filter(|dot| DECADES.contains(&dot.mean.mean)).collect();
        Line { name: line.name.clone(), dots }
    };
    let lines: Vec<Line> = lines.iter().map(drawn).collect();
    let values = || lines.iter().flat_map(|line| &line.dots).map(|dot| dot.mean.mean);
    let least = values().fold(f64::MAX, f64::min).min(1e9).log10().floor();
    let most = values().fold(1.0, f64::max).log10().ceil().max(least + 1.0);
    // The lower end of an interval may be nothing, which such an axis has not.
    let y = |value: f64| {
        let share = (value.max(DECADES.start).log10() - least) / (most - least);
        bottom - (bottom - top) * share.clamp(0.0, 1.0)
    };
    let mut svg = start(title);
    for decade in least as i32..=most as i32 {
        let at = y(10_f64.powi(decade));
        let label = match decade {
            6.. => format!("{} M", 10_i64.pow(decade as u32 - 6)),
            3.. => format!("{} k", 10_i64.pow(decade as u32 - 3)),
            _ => crate::html::axis::short(10_f64.powi(decade)),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    draw(svg, &lines, y)
}

fn start(title: &str) -> String {
    let title = escape(title);
    format!("<figure><h3>{title}</h3><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\">", SIZE[0], SIZE[1])
}

/// The numbers of lines: a row for each point.
fn table(lines: &[Line]) -> Vec<Vec<String>> {
    let mut table = vec![["line", "Mb/s", "value", "± 95 %"].map(str::to_owned).to_vec()];
    for line in lines {
        let row = |dot: &Dot| {
            let numbers = [number(dot.rate_bps / 1e6), number(dot.mean.mean), number(dot.mean.half_width)];
            [line.name.clone()].into_iter().chain(numbers).collect()
        };
        table.extend(line.dots.iter().map(row));
    }
    table
}

/// The lines with their error bars, the axis of rates, the numbers, and the legend. `y` is where a value lies.
fn draw(mut svg: String, lines: &[Line], y: impl Fn(f64) -> f64) -> String {
    let [left, _, right, bottom] = EDGES;
    let most_rate = lines.iter().flat_map(|line| &line.dots).map(|dot| dot.rate_bps).fold(1.0, f64::max);
    let x = |dot: &Dot| left + (right - left) * dot.rate_bps / most_rate;
    for (line, (colour, dashes)) in lines.iter().zip(LINES.iter().cycle()) {
        let points: Vec<String> =
            line.dots.iter().map(|dot| format!("{:.1},{:.1}", x(dot), y(dot.mean.mean))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
        for dot in &line.dots {
            let (low, high) = dot.ends();
            let bar = dot.mean.half_width.map_or_else(String::new, |_| error_bar(x(dot), y(low), y(high)));
            let class = if dot.doubtful { " class=\"doubtful\"" } else { "" };
            let _ = write!(
                svg,
                "<g{class}>{bar}<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/></g>",
                x(dot),
                y(dot.mean.mean)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"{:.0}\">0</text><text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{:.0} Mb/s</text></svg>",
        bottom + 18.0,
        bottom + 18.0,
        most_rate / 1e6
    );
    svg = with_numbers(&svg, table(lines)) + "<ul class=\"legend\">";
    for (line, (colour, dashes)) in lines.iter().zip(LINES.iter().cycle()) {
        let _ = write!(
            svg,
            "<li><svg viewBox=\"0 0 24 8\"><line x1=\"0\" x2=\"24\" y1=\"4\" y2=\"4\" stroke=\"{colour}\" stroke-width=\"4\" \
             stroke-dasharray=\"{dashes}\"/></svg>{}</li>",
            escape(&line.name)
        );
    }
    svg + "</ul></figure>\n"
}
