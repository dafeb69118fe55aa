//! Figures over time on one axis, which zoom together in a browser (`web/src/charts.ts`).
//!
//! Each is in the page twice: as the drawing that Rust makes, for paper and for browsers without scripts, and as its numbers for the script.
//! The numbers are those of the measurement, in base units; a long line is thinned to its extremes (`thin.rs`).

pub mod dropped;
pub mod runs;
mod sampled;
pub mod tcp;
pub mod tcp_runs;
mod tested;
mod thin;
pub mod udp;
pub mod udp_runs;
pub mod watched;

pub use tested::Tested;
pub(crate) use tested::short;

use std::fmt::Write;

use serde::Serialize;

use self::thin::thin;
use crate::html::axis::six_digits;
use crate::html::lines::{Band, Line, Panel};
use crate::html::page::escape;

/// Points of all lines in a timeline: some 20 characters each, so that a page has less than 1 MB of them.
const MOST_POINTS: usize = 40_000;
/// Of a line. A screen has as many columns, and one can zoom.
const MOST_OF_A_LINE: usize = 2_400;
/// Of the drawing.
const MOST_DRAWN: usize = 500;
/// Marks of a figure: more would be an area.
const MOST_MARKS: usize = 300;

/// `panels` over time, one below the other, each with what is to be said below it. Those without two points are left out.
pub(crate) fn timeline<'a>(panels: impl IntoIterator<Item = (Panel<'a>, &'a str)>) -> String {
    let panels: Vec<_> = panels.into_iter().collect();
    let lines = panels.iter().map(|(panel, _)| panel.lines.len() + 2 * panel.bands.len()).sum::<usize>().max(1);
    let most = (MOST_POINTS / lines).clamp(20, MOST_OF_A_LINE);
    let mut html = String::new();
    for (mut panel, caption) in panels {
        panel.thin(most);
        let data = panel.data();
        panel.thin(MOST_DRAWN);
        let Some(drawing) = panel.svg() else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<figure data-figure=\"{}\"><div class=\"drawn\">{drawing}</div>\
             <script type=\"application/json\">{data}</script>",
            escape(panel.title)
        );
        if !caption.is_empty() {
            let _ = write!(html, "<figcaption>{}</figcaption>", escape(caption));
        }
        html += "</figure>\n";
    }
    if html.is_empty() { html } else { format!("<div class=\"timeline\">\n{html}</div>\n") }
}

/// A figure as the script reads it (`web/src/data.ts`).
#[derive(Serialize)]
struct Figure<'a> {
    title: &'a str,
    what: &'a str,
    units: &'a [(f64, &'static str)],
    since: &'a str,
    end_s: f64,
    lines: Vec<LineData<'a>>,
    bands: Vec<BandData<'a>>,
    stack: Option<StackData<'a>>,
    gaps: &'a [(f64, f64)],
    marks: Marks<'a>,
    events: &'a [(f64, String)],
}

#[derive(Serialize)]
struct LineData<'a> {
    name: &'a str,
    colour: &'a str,
    steps: bool,
    at: Vec<Option<f64>>,
    values: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct BandData<'a> {
    name: &'a str,
    colour: &'a str,
    at: Vec<Option<f64>>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct StackData<'a> {
    step_s: f64,
    parts: Vec<PartData<'a>>,
}

#[derive(Serialize)]
struct PartData<'a> {
    name: &'a str,
    colour: &'a str,
    faint: bool,
    values: Vec<f64>,
}

#[derive(Serialize)]
struct Marks<'a> {
    name: &'a str,
    at: Vec<f64>,
}

/// To the microsecond.
fn time(at: f64) -> f64 {
    (at * 1e6).round() / 1e6
}

impl Panel<'_> {
    /// Leaves at most some `most` points in each line.
    fn thin(&mut self, most: usize) {
        for line in &mut self.lines {
            line.points = thin(&line.points, most);
        }
        for band in &mut self.bands {
            band.thin(most);
        }
        if self.marks.1.len() > MOST_MARKS {
            let end = self.marks.1.iter().copied().fold(1e-9, f64::max);
            self.marks.1.dedup_by_key(|at| (*at / end * MOST_MARKS as f64) as usize);
        }
    }

    /// As JSON that cannot end the element around it.
    fn data(&self) -> String {
        let ends = self.lines.iter().flat_map(|line| line.points.iter().flatten().map(|point| point.0));
        let ends = ends.chain(self.bands.iter().flat_map(|band| band.points.iter().flatten().map(|point| point.0)));
        let stacked = self.stack.as_ref().map_or(0.0, |stack| {
            stack.step_s * stack.parts.iter().map(|part| part.values.len()).max().unwrap_or(0) as f64
        });
        let figure = Figure {
            title: self.title,
            what: self.what,
            units: self.units,
            since: self.since,
            end_s: time(ends.fold(self.end_s.max(stacked), f64::max)),
            lines: self.lines.iter().map(|line| line.data(self.steps)).collect(),
            bands: self.bands.iter().map(Band::data).collect(),
            stack: self.stack.as_ref().map(|stack| StackData {
                step_s: stack.step_s,
                parts: (stack.parts.iter())
                    .map(|part| PartData {
                        name: part.name,
                        colour: &part.colour,
                        faint: part.faint,
                        values: part.values.iter().copied().map(six_digits).collect(),
                    })
                    .collect(),
            }),
            gaps: self.gaps,
            marks: Marks { name: self.marks.0, at: self.marks.1.iter().copied().map(time).collect() },
            events: &self.events,
        };
        // Numbers that are not finite become null; nothing else can fail.
        serde_json::to_string(&figure).unwrap_or_default().replace('<', "\\u003c")
    }
}

impl Line<'_> {
    fn data(&self, steps: bool) -> LineData<'_> {
        LineData {
            name: self.name,
            colour: self.colour,
            steps,
            at: self.points.iter().map(|point| point.map(|point| time(point.0))).collect(),
            values: self.points.iter().map(|point| point.map(|point| six_digits(point.1))).collect(),
        }
    }
}

impl Band<'_> {
    fn data(&self) -> BandData<'_> {
        let column = |of: fn((f64, f64, f64)) -> f64| self.points.iter().map(|point| point.map(of)).collect();
        BandData {
            name: self.name,
            colour: self.colour,
            at: column(|point| time(point.0)),
            low: column(|point| six_digits(point.1)),
            high: column(|point| six_digits(point.2)),
        }
    }

    /// Joins neighbours: of each run the least and the greatest.
    fn thin(&mut self, most: usize) {
        let together = self.points.len().div_ceil(most.max(1)).max(1);
        let joined = |points: &[Option<(f64, f64, f64)>]| {
            let known = points.iter().flatten().copied();
            known.reduce(|one, other| (one.0, one.1.min(other.1), one.2.max(other.2)))
        };
        self.points = self.points.chunks(together).map(joined).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::lines::{Part, Stack};

    fn panel(name: &str, points: u32) -> Panel<'_> {
        let points = (0..points).map(|n| Some((f64::from(n) / 100.0, f64::from(n % 977) * 1_234.567_89))).collect();
        let lines = vec![Line { name, colour: "--blue", points }];
        Panel { title: "Rate", units: &[(1e3, "kB"), (1.0, "B")], lines, ..Panel::default() }
    }

    fn data(html: &str) -> serde_json::Value {
        let (_, after) = html.split_once("<script type=\"application/json\">").unwrap();
        serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn a_page_of_an_hour_of_many_flows_has_less_than_a_megabyte_and_every_extreme() {
        let html = timeline((0..24).map(|_| (panel("a flow", 100_000), "")));
        assert!(html.len() < 2_000_000, "{}", html.len());
        let numbers: usize =
            html.split("application/json\">").skip(1).map(|part| part.split("</script>").next().unwrap().len()).sum();
        assert!(numbers < 1_000_000, "{numbers}");
        let values = data(&html)["lines"][0]["values"].as_array().unwrap().clone();
        let most = values.iter().filter_map(serde_json::Value::as_f64).fold(0.0, f64::max);
        assert_eq!(most, 1_204_938.0, "976 x 1234.56789");
    }

    #[test]
    fn names_from_outside_end_no_element() {
        let html = timeline([(panel("</script><img src=x>", 3), "a < b")]);
        assert!(!html.contains("<img") && html.matches("</script>").count() == 1, "{html}");
        assert_eq!(data(&html)["lines"][0]["name"], "</script><img src=x>");
        assert!(html.contains("a &lt; b"));
    }

    #[test]
    fn what_has_no_points_is_left_out() {
        assert_eq!(timeline([(panel("one", 1), "")]), "");
    }

    #[test]
    fn parts_of_a_sum_lie_on_one_another() {
        let part = |name, values: [f64; 3]| Part { name, values: values.to_vec(), ..Part::default() };
        let parts = vec![part("a", [1.0, 2.0, 0.0]), part("b", [3.0, 0.0, 4.0])];
        let panel =
            Panel { title: "Lost", units: &[(1.0, "")], stack: Some(Stack { step_s: 0.5, parts }), ..Panel::default() };
        let html = timeline([(panel, "")]);
        assert_eq!(html.matches("<polygon").count(), 2);
        let data = data(&html);
        assert_eq!((data["end_s"].as_f64(), data["stack"]["parts"][1]["values"][2].as_f64()), (Some(1.5), Some(4.0)));
    }
}
