//! A panel of lines and bands over time, or over numbers, as SVG.

use std::borrow::Cow;
use std::fmt::Write;

use crate::html::axis::{short, step};
use crate::html::page::{escape, number, with_numbers};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 272.0;
/// Of the lines' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [66.0, 32.0, 508.0, 228.0];
/// If the smallest value is above this share of the highest, the axis begins at it instead of 0.
const NARROW: f64 = 0.6;

/// A line. `None` among its points parts it.
#[derive(Debug, Default)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    /// A variable of the style sheet, visible on light and dark backgrounds.
    pub(crate) colour: &'static str,
    /// Seconds and value, in the order of time.
    pub(crate) points: Vec<Option<(f64, f64)>>,
}

/// The range from the smallest to the highest value of each stretch of time.
#[derive(Debug, Default)]
pub(crate) struct Band<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: &'static str,
    /// Seconds, least, highest; `None` parts it.
    pub(crate) points: Vec<Option<(f64, f64, f64)>>,
}

/// Parts of a sum over time, from below upwards.
#[derive(Debug, Default)]
pub(crate) struct Stack<'a> {
    /// How long each value holds, seconds; the first from 0 on.
    pub(crate) step_s: f64,
    pub(crate) parts: Vec<Part<'a>>,
}

/// A part of a sum.
#[derive(Debug, Default)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    /// A variable of the style sheet, or a colour.
    pub(crate) colour: Cow<'static, str>,
    /// Whether another part has the same colour, full.
    pub(crate) faint: bool,
    /// As many for each part.
    pub(crate) values: Vec<f64>,
}

impl Part<'_> {
    /// How it is filled.
    fn look(&self) -> String {
        let colour =
            if self.colour.starts_with("--") { format!("var({})", self.colour) } else { self.colour.to_string() };
        let opacity = if self.faint { ".45" } else { "1" };
        format!("fill: {colour}; fill-opacity: {opacity}; stroke: none")
    }
}

/// What is drawn.
#[derive(Debug, Default)]
pub(crate) struct Panel<'a> {
    pub(crate) title: &'a str,
    /// Stands at the axis, before the unit.
    pub(crate) what: &'a str,
    /// Sizes of units and their names, the largest first.
    pub(crate) units: &'a [(f64, &'static str)],
    pub(crate) stack: Option<Stack<'a>>,
    pub(crate) bands: Vec<Band<'a>>,
    pub(crate) lines: Vec<Line<'a>>,
    /// Whether each value of the lines holds until the next.
    pub(crate) steps: bool,
    /// Stretches of time of which nothing is known, seconds.
    pub(crate) gaps: &'a [(f64, f64)],
    /// What they are; unless told otherwise the capture lost packets there.
    pub(crate) gaps_are: &'static str,
    /// Moments that are marked above, seconds, and what they are.
    pub(crate) marks: (&'static str, Vec<f64>),
    /// A moment, seconds, and what happened.
    pub(crate) events: Vec<(f64, String)>,
    /// What time counts from.
    pub(crate) since: &'static str,
    /// Where the axis of time ends at least.
    pub(crate) end_s: f64,
    /// What points lie over in place of time.
    pub(crate) across: Option<Across<'a>>,
}

/// An axis of numbers: from 0 on, or from the least where that is near the highest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Across<'a> {
    /// What the numbers are.
    pub(crate) what: &'a str,
    /// A number at a line; `None` where it has none.
    pub(crate) label: fn(f64) -> Option<String>,
    /// What a place on the axis stands for.
    pub(crate) value: fn(f64) -> f64,
}

impl Panel<'_> {
    /// `None` where nothing has two points.
    pub(crate) fn svg(&self) -> Option<String> {
        let of_lines = self.lines.iter().flat_map(|line| line.points.iter().flatten().map(|(x, y)| (*x, *y, *y)));
        let of_bands = self.bands.iter().flat_map(|band| band.points.iter().flatten().copied());
        let mut all: Vec<(f64, f64, f64)> = of_lines.chain(of_bands).collect();
        let sums = self.stack.as_ref().map(Stack::sums).unwrap_or_default();
        all.extend(sums.last().into_iter().flatten().map(|(at, _, sum)| (*at, 0.0, *sum)));
        if all.len() < 2 {
            return None;
        }
        let end = all.iter().map(|point| point.0).fold(self.end_s, f64::max).max(1e-9);
        let highest = all.iter().map(|point| point.2).fold(0.0, f64::max);
        let least = all.iter().map(|point| point.1).fold(f64::MAX, f64::min);
        let (size, unit) = unit_of(highest, self.units);
        let axis = Axis::of(least / size, highest / size);
        let [left, top, right, bottom] = EDGES;
        let first = all.iter().map(|point| point.0).fold(f64::MAX, f64::min);
        let begin = if self.across.is_some() && first > end * NARROW && first < end { first } else { 0.0 };
        let x = |value: f64| left + (right - left) * ((value - begin) / (end - begin)).clamp(0.0, 1.0);
        let y = |value: f64| bottom - (bottom - top) * axis.share(value / size);
        let title = escape(self.title);
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{title}</title>\n");
        for (from, to) in self.gaps {
            let (from, to) = (x(*from), x(*to));
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<rect class=\"gap\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                (to - from).max(1.5),
                bottom - top
            );
        }
        axis.draw(&mut svg);
        match &self.across {
            None => time_axis(&mut svg, end, self.since, x),
            Some(across) => across.draw(&mut svg, [begin, end], x),
        }
        for (part, edges) in self.stack.iter().flat_map(|stack| &stack.parts).zip(&sums) {
            let upper = edges.iter().map(|(at, _, high)| format!("{:.1},{:.1}", x(*at), y(*high)));
            let lower = edges.iter().rev().map(|(at, low, _)| format!("{:.1},{:.1}", x(*at), y(*low)));
            let outline: Vec<String> = upper.chain(lower).collect();
            let (look, name) = (part.look(), escape(part.name));
            let _ = writeln!(
                svg,
                "<polygon style=\"{look}\" points=\"{}\"><title>{name}</title></polygon>",
                outline.join(" ")
            );
        }
        for band in &self.bands {
            for run in band.points.split(Option::is_none).filter(|run| !run.is_empty()) {
                let point = |at: f64, value: f64| format!("{:.1},{:.1}", x(at), y(value));
                let upper = run.iter().flatten().map(|(at, _, high)| point(*at, *high));
                let lower = run.iter().rev().flatten().map(|(at, low, _)| point(*at, *low));
                let outline: Vec<String> = upper.chain(lower).collect();
                let colour = band.colour;
                let _ = writeln!(
                    svg,
                    "<polygon style=\"fill: var({colour}); stroke: var({colour})\" points=\"{}\"/>",
                    outline.join(" ")
                );
            }
        }
        for line in &self.lines {
            for run in line.points.split(Option::is_none).filter(|run| !run.is_empty()) {
                let mut points: Vec<String> = Vec::new();
                let mut before = None;
                for (at, value) in run.iter().flatten() {
                    let level = before.filter(|_| self.steps).map(|before| format!("{:.1},{:.1}", x(*at), y(before)));
                    points.extend(level);
                    points.push(format!("{:.1},{:.1}", x(*at), y(*value)));
                    before = Some(*value);
                }
                let _ = writeln!(
                    svg,
                    "<polyline style=\"stroke: var({})\" points=\"{}\"><title>{}</title></polyline>",
                    line.colour,
                    points.join(" "),
                    escape(line.name)
                );
            }
        }
        for at in &self.marks.1 {
            let at = x(*at);
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{:.0}\"/>",
                top + 8.0
            );
        }
        for (at, name) in &self.events {
            let at = x(*at);
            let (anchor, side) = if at > (left + right) / 2.0 { ("end", -4.0) } else { ("start", 4.0) };
            let _ = writeln!(
                svg,
                "<line class=\"axis\" stroke-dasharray=\"5 3\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                at + side,
                top + 12.0,
                escape(name)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"total\" x=\"8\" y=\"16\">{title}</text>\
             <text x=\"{right}\" y=\"16\" text-anchor=\"end\">{}{unit}</text>\n</svg>\n{}",
            escape(self.what),
            self.legend()
        );
        Some(svg)
    }

    /// The same as a figure of its own, with its numbers: a row for each place, in the smallest units.
    pub(crate) fn still(&self) -> Option<String> {
        let svg = self.svg()?;
        let (size, unit) = self.units.last().copied().unwrap_or((1.0, ""));
        let mut names = vec![self.across.map_or("time, s", |across| across.what).to_owned()];
        let mut cells: Vec<(f64, usize, f64)> = Vec::new();
        for Band { name, points, .. } in &self.bands {
            let column = names.len();
            names.extend(["least", "greatest"].map(|end| format!("{name}, {end}, {unit}")));
            let ends =
                points.iter().flatten().flat_map(|(at, low, high)| [(*at, column, *low), (*at, column + 1, *high)]);
            cells.extend(ends);
        }
        for Line { name, points, .. } in &self.lines {
            cells.extend(points.iter().flatten().map(|(at, value)| (*at, names.len(), *value)));
            names.push(format!("{name}, {unit}"));
        }
        cells.sort_by(|one, other| one.0.total_cmp(&other.0));
        let value_of = self.across.map_or((|at: f64| at) as fn(f64) -> f64, |across| across.value);
        let rows = cells.chunk_by(|one, other| one.0 == other.0).map(|cells| {
            let mut row = vec![String::new(); names.len()];
            row[0] = number(value_of(cells[0].0));
            cells.iter().for_each(|(_, column, value)| row[*column] = number(*value / size));
            row
        });
        let table: Vec<Vec<String>> = std::iter::once(names.clone()).chain(rows).collect();
        Some(with_numbers(&svg, table))
    }

    /// Below: a piece of each line beside its name.
    fn legend(&self) -> String {
        let mut entries: Vec<(String, &str)> = Vec::new();
        entries.extend(self.stack.iter().flat_map(|stack| &stack.parts).map(|part| (part.look(), part.name)));
        entries.extend(self.bands.iter().map(|band| (format!("fill: var({})", band.colour), band.name)));
        entries.extend(self.lines.iter().map(|line| (format!("fill: var({})", line.colour), line.name)));
        if !self.gaps.is_empty() {
            let what = if self.gaps_are.is_empty() { "not captured" } else { self.gaps_are };
            entries.push(("fill: var(--gap)".into(), what));
        }
        if !self.marks.1.is_empty() {
            entries.push(("fill: var(--lost)".into(), self.marks.0));
        }
        legend(&entries)
    }
}

impl Stack<'_> {
    /// Of each part its edges: time, the sum below it, and with it. Values hold, so there are two edges for each.
    fn sums(&self) -> Vec<Vec<(f64, f64, f64)>> {
        let values = self.parts.iter().map(|part| part.values.len()).max().unwrap_or(0);
        let mut below = vec![0.0; values];
        let mut edges = Vec::new();
        for part in &self.parts {
            let mut own = Vec::with_capacity(2 * values);
            for (number, (sum, value)) in below.iter_mut().zip(&part.values).enumerate() {
                let with = *sum + value;
                own.extend([number, number + 1].map(|number| (number as f64 * self.step_s, *sum, with)));
                *sum = with;
            }
            // A level that lasts is drawn by its ends.
            let level = |number: usize| own.get(number).map(|(_, low, high): &(f64, f64, f64)| (*low, *high));
            let is_end =
                |number: usize| number == 0 || level(number - 1) != level(number) || level(number + 1) != level(number);
            edges.push((0..own.len()).filter(|number| is_end(*number)).map(|number| own[number]).collect());
        }
        edges
    }
}

/// The legend of colours, as a list that wraps on a narrow screen.
pub(crate) fn legend(entries: &[(String, &str)]) -> String {
    let entries = entries.iter().map(|(look, name)| {
        let name = escape(name);
        format!("<li><svg viewBox=\"0 0 18 10\"><rect width=\"18\" height=\"10\" style=\"{look}\"/></svg>{name}</li>")
    });
    format!("<ul class=\"legend\">{}</ul>", entries.collect::<String>())
}

/// The axis of values.
struct Axis {
    low: f64,
    step: f64,
    steps: f64,
}

impl Axis {
    fn of(least: f64, highest: f64) -> Self {
        let is_narrow = least > highest * NARROW && highest > least;
        let from = if is_narrow { least } else { 0.0 };
        let span = highest - from;
        let step = step(if span > 0.0 { span } else { 1.0 });
        let low = (from / step).floor() * step;
        Self { low, step, steps: ((highest - low) / step - 1e-9).ceil().max(1.0) }
    }

    fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.step * self.steps)).clamp(0.0, 1.0)
    }

    fn draw(&self, svg: &mut String) {
        let [left, top, right, bottom] = EDGES;
        // As many digits as tell one step from the next.
        let digits =
            (0..9).find(|digits| ((self.step * 10_f64.powi(*digits)).fract() + 1e-6).fract() < 1e-5).unwrap_or(9);
        for tick in 0..=self.steps as u32 {
            let value = self.low + self.step * f64::from(tick);
            let y = bottom - (bottom - top) * self.share(value);
            let class = if tick == 0 { "axis" } else { "grid" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.*}</text>",
                left - 6.0,
                y + 4.5,
                digits as usize
            );
        }
    }
}

fn time_axis(svg: &mut String, end: f64, since: &str, x: impl Fn(f64) -> f64) {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let (size, unit) = units.into_iter().find(|(size, _)| end >= *size).unwrap_or(units[3]);
    let every = step(end / size);
    for number in 0..=(end / size / every * 1.000_001) as u32 {
        let value = every * f64::from(number);
        tick(svg, x(value * size), &trimmed(value));
    }
    below(svg, &format!("time from {since}, {unit}"));
}

impl Across<'_> {
    fn draw(&self, svg: &mut String, [begin, end]: [f64; 2], x: impl Fn(f64) -> f64) {
        let every = step(end - begin);
        // Both ends may be large numbers and near each other.
        for number in (begin / every - 1e-6).ceil() as u64..=(end / every + 1e-6) as u64 {
            let value = every * number as f64;
            if let Some(label) = (self.label)(value) {
                tick(svg, x(value), &label);
            }
        }
        below(svg, self.what);
    }
}

/// A number below the ground.
fn tick(svg: &mut String, at: f64, label: &str) {
    let [_, _, right, bottom] = EDGES;
    let anchor = if at > right - 12.0 { "end" } else { "middle" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
         <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
        bottom + 4.0,
        bottom + 18.0,
        escape(label)
    );
}

/// What the numbers below the ground are.
fn below(svg: &mut String, what: &str) {
    let [_, _, right, bottom] = EDGES;
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>", bottom + 36.0, escape(what));
}

/// The largest unit that `highest` has one of.
pub(crate) fn unit_of(highest: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    units.iter().copied().find(|(size, _)| highest >= *size).or(units.last().copied()).unwrap_or((1.0, ""))
}

/// Three digits behind the point, without zeros at the end.
pub(crate) fn trimmed(value: f64) -> String {
    if value < 0.01 {
        return short(value);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &[Option<f64>]) -> String {
        let points = values.iter().zip(0..).map(|(value, n)| value.map(|value| (f64::from(n), value))).collect();
        let lines = vec![Line { name: "one", colour: "--blue", points }];
        Panel { title: "a", units: &[(1.0, "B")], lines, gaps: &[(1.0, 2.0)], ..Panel::default() }.svg().unwrap()
    }

    #[test]
    fn gaps_part_lines_and_are_shown() {
        let svg = drawn(&[Some(1.0), Some(2.0), None, Some(3.0), Some(1.0)]);
        assert_eq!((svg.matches("<polyline").count(), svg.contains("class=\"gap\"")), (2, true), "{svg}");
    }

    /// In the smallest unit, a row for each place; what lies over powers of ten stands by what they are of.
    #[test]
    fn a_still_figure_has_its_numbers() {
        let lines =
            vec![Line { name: "one", colour: "--blue", points: vec![Some((0.0, 1.5)), None, Some((2.0, 3.0))] }];
        let bands = vec![Band { name: "all", colour: "--pale", points: vec![Some((0.0, 5.0, 6.0))] }];
        let panel = Panel { title: "a", units: &[(1e3, "kB"), (1.0, "B")], lines, bands, ..Panel::default() };
        let numbers = |panel: &Panel<'_>| {
            let svg = panel.still().unwrap().replace("&quot;", "");
            svg.split_once("data-csv=\"").unwrap().1.split_once('"').unwrap().0.to_owned()
        };
        assert_eq!(numbers(&panel), "time, s,all, least, B,all, greatest, B,one, B\n0,5,6,1.5\n2,,,3");
        let across = Some(Across { what: "one in", label: |_| None, value: |power| 10_f64.powf(power) });
        assert_eq!(numbers(&Panel { across, bands: Vec::new(), ..panel }), "one in,one, B\n1,1.5\n100,3");
    }

    /// 250.01 to 250.03: an axis from 0 would show a flat line.
    #[test]
    fn what_changes_little_is_seen() {
        let svg = drawn(&[Some(250.01), Some(250.03), Some(250.02)]);
        assert!(svg.contains(">250.010<") && svg.contains(">250.030<") && !svg.contains("end\">0<"), "{svg}");
        assert!(drawn(&[Some(10.0), Some(250.0)]).contains("text-anchor=\"end\">0</text>"));
    }

    /// The same across.
    #[test]
    fn numbers_that_lie_close_fill_the_width() {
        let drawn = |points: [(f64, f64); 3]| {
            let lines = vec![Line { name: "one", colour: "--blue", points: points.map(Some).to_vec() }];
            let across = Some(Across { what: "ms", label: |value| Some(trimmed(value)), value: |value| value });
            Panel { title: "a", units: &[(1.0, "B")], lines, across, ..Panel::default() }.svg().unwrap()
        };
        let close = drawn([(250.0, 1.0), (250.5, 2.0), (251.0, 3.0)]);
        assert!(
            close.contains("points=\"66.0,") && close.contains(">250.2<") && !close.contains("middle\">0<"),
            "{close}"
        );
        let far = drawn([(1.0, 1.0), (5.0, 2.0), (10.0, 3.0)]);
        assert!(!far.contains("points=\"66.0,") && far.contains("middle\">0<"), "{far}");
    }

    /// As between powers of ten.
    #[test]
    fn a_number_without_a_label_has_no_line() {
        let points = vec![Some((0.0, 1.0)), Some((4.0, 1.0))];
        let lines = vec![Line { name: "one", colour: "--blue", points }];
        let label = |value: f64| (value != 3.0).then(|| format!("n = {value}"));
        let across = Some(Across { what: "one in <so many>", label, value: |power| 10_f64.powf(power) });
        let svg = Panel { title: "a", units: &[(1.0, "B")], lines, across, ..Panel::default() }.svg().unwrap();
        let labels: Vec<&str> = svg.split(">n = ").skip(1).filter_map(|rest| rest.split('<').next()).collect();
        assert_eq!(labels, ["0", "1", "2", "4"]);
        assert_eq!(svg.matches("<line class=\"axis\"").count(), 1 + labels.len(), "the ground, and one each: {svg}");
        assert!(svg.contains(">one in &lt;so many&gt;</text>") && !svg.contains("time from"), "{svg}");
    }
}
