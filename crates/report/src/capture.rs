//! Flows of a capture over time: TAPEE's figures 5–7 (rate), 10 and 11 (intervals) for any capture.
//!
//! Lines are SVG. The surface of interval × time × count is a canvas that a small script draws, so that one can zoom into it; the
//! page's security policy lets that script run and no other.

use std::fmt::Write;

use serde::Serialize;

use crate::axis::short;
use crate::lines::{Line, panel};
use crate::page::{escape, page};

/// The script, and its SHA-256 in base64: `openssl dgst -sha256 -binary heat.js | base64`.
const SCRIPT: &str = include_str!("heat.js");
const SCRIPT_HASH: &str = "gxq+EfT8YAiq68tgHtEyF4Tj7+m14L9K9mxYoKw3GVI=";

/// What is to be reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What was captured.
    pub title: String,
    /// When it was analysed, RFC 3339.
    pub started_at: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// The flows that are drawn.
    pub flows: Vec<Flow>,
    /// What `longhaul analyze` prints.
    pub text: String,
}

/// One direction of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// From where to where.
    pub name: String,
    /// Over time, at most some thousand.
    pub points: Vec<Point>,
    /// Intervals between data packets over time.
    pub heat: Heat,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Its beginning, seconds from the flow's.
    pub at_s: f64,
    /// The fullest millisecond in it, bits a second.
    pub rate_1ms_bps: f64,
    /// The moving average over the second that ends with it.
    pub rate_1s_bps: f64,
    /// The highest byte sent.
    pub sequence: Option<f64>,
    /// The highest byte acknowledged.
    pub acknowledged: Option<f64>,
    /// The most bytes in flight.
    pub in_flight_bytes: Option<f64>,
    /// The last round trip.
    pub rtt_ns: Option<f64>,
}

/// Counts of intervals, in bins of a quarter of an octave, by columns of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heat {
    /// How many columns.
    pub columns: usize,
    /// How long one is.
    pub column_s: f64,
    /// The lowest bin that has any.
    pub lowest: usize,
    /// The highest.
    pub highest: usize,
    /// Column, bin, count.
    pub cells: Vec<(usize, usize, u32)>,
}

impl Report {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = format!(
            "<h1>{}</h1>\n<p class=\"quiet\">longhaul {}, {}</p>\n",
            escape(&self.title),
            escape(&self.longhaul),
            escape(&self.started_at)
        );
        if self.flows.is_empty() {
            body += "<p>No flow in it carries data, so there is nothing to draw.</p>\n";
        }
        for (number, flow) in self.flows.iter().enumerate() {
            flow.write(&mut body, number);
        }
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<h2>All that was found</h2>\n<pre>{}</pre>", escape(&self.text));
        let _ = writeln!(body, "<script>{SCRIPT}</script>");
        let policy = format!("default-src 'none'; script-src 'sha256-{SCRIPT_HASH}';");
        page(&self.title, &body).replacen("default-src 'none';", &policy, 1)
    }
}

impl Flow {
    fn write(&self, body: &mut String, number: usize) {
        let line = |name: &'static str, colour: &'static str, of: &dyn Fn(&Point) -> Option<f64>| Line {
            name,
            colour,
            points: self.points.iter().filter_map(|point| Some((point.at_s, of(point)?))).collect(),
        };
        let some = |value: f64| Some(value);
        // One axis of time for all, so that what stands below each other belongs together.
        let end_s = self.points.last().map_or(0.0, |last| last.at_s);
        let drawn = |title, mut lines: Vec<Line>, what: &str, units: &[(f64, &str)]| {
            let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
            let (size, unit) = unit_of(values().fold(0.0, f64::max), units);
            lines.iter_mut().flat_map(|line| &mut line.points).for_each(|(_, value)| *value /= size);
            panel(title, &lines, &format!("{what}{unit}"), end_s)
        };
        let figures = [
            drawn(
                "Rate",
                vec![
                    line("fullest millisecond", "#56b4e9", &|point| some(point.rate_1ms_bps)),
                    line("average over 1 s", "#d55e00", &|point| some(point.rate_1s_bps)),
                ],
                "payload, ",
                &RATES,
            ),
            drawn(
                "Sequence and acknowledgment",
                vec![
                    line("sent", "#0072b2", &|point| point.sequence),
                    line("acknowledged", "#e69f00", &|point| point.acknowledged),
                ],
                "from the first byte, ",
                &SIZES,
            ),
            drawn(
                "In flight, as seen here",
                vec![line("bytes in flight", "#009e73", &|point| point.in_flight_bytes)],
                "",
                &SIZES,
            ),
            drawn(
                "Round trip from here to the receiver",
                vec![line("round trip", "#cc79a7", &|point| point.rtt_ns)],
                "",
                &TIMES,
            ),
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<h2>{}</h2>\n<div class=\"panels wide\">", escape(&self.name));
        for figure in figures.into_iter().flatten() {
            let _ = writeln!(body, "<figure>{figure}</figure>");
        }
        let _ = writeln!(body, "</div>");
        if self.points.len() < 2 {
            let _ = writeln!(
                body,
                "<p class=\"quiet\">All of it passed within {}: there is nothing to draw over time.</p>",
                seconds(self.heat.column_s)
            );
        }
        if self.heat.cells.is_empty() {
            let _ = writeln!(body, "<p class=\"quiet\">With one data packet there is no interval.</p>");
            return;
        }
        // Numbers alone: nothing in it ends the script element.
        let data = serde_json::to_string(&self.heat).unwrap_or_default();
        let _ = writeln!(
            body,
            "<figure class=\"surface\"><h3>Intervals between data packets over time</h3>\n\
             <canvas class=\"heat\" data-source=\"heat-{number}\"></canvas>\n\
             <figcaption>How many, from blue to yellow, on a logarithmic scale. The wheel zooms (with Shift: time alone), a drag moves, \
             a double click shows all.</figcaption></figure>\n\
             <script type=\"application/json\" id=\"heat-{number}\">{data}</script>"
        );
    }
}

const RATES: [(f64, &str); 4] = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
const SIZES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];

/// The largest unit that `highest` has one of.
fn unit_of<'a>(highest: f64, units: &[(f64, &'a str)]) -> (f64, &'a str) {
    units.iter().copied().find(|(size, _)| highest >= *size).or(units.last().copied()).unwrap_or((1.0, ""))
}

fn seconds(value: f64) -> String {
    let (size, unit) = unit_of(value * 1e9, &TIMES);
    format!("{} {unit}", short(value * 1e9 / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_figures_and_no_markup_from_outside() {
        let point = |n: u32| Point {
            at_s: f64::from(n) / 1e3,
            rate_1ms_bps: 1e9,
            rate_1s_bps: 5e8,
            sequence: Some(f64::from(n) * 1e5),
            ..Point::default()
        };
        let flow = Flow {
            name: "<img src=x>".into(),
            points: (0..100).map(point).collect(),
            heat: Heat { columns: 10, column_s: 0.01, lowest: 40, highest: 41, cells: vec![(3, 40, 7)] },
        };
        let (title, text) = ("a < b".to_owned(), "1 & 2".to_owned());
        let report = Report { title, started_at: "now".into(), longhaul: "1".into(), flows: vec![flow], text };
        let html = report.html();
        assert!(!html.contains("<img") && html.contains("a &lt; b") && html.contains("1 &amp; 2"));
        assert!(html.contains("\"cells\":[[3,40,7]]") && html.contains(&format!("script-src 'sha256-{SCRIPT_HASH}'")));
        // Rate and sequence are drawn; in flight and round trip have no points.
        assert_eq!(html.matches("<svg").count(), 2, "{html}");
    }

    #[test]
    fn empty_and_short_captures_say_so() {
        let report = |flows| {
            let (title, text) = ("none".to_owned(), String::new());
            Report { title, started_at: "now".into(), longhaul: "1".into(), flows, text }.html()
        };
        assert!(report(vec![]).contains("nothing to draw"));
        let heat = Heat { columns: 1, column_s: 0.001, lowest: 0, highest: 0, cells: vec![] };
        let one = report(vec![Flow { name: "one".into(), points: vec![Point::default()], heat }]);
        assert!(one.contains("passed within 1 ms") && one.contains("no interval") && !one.contains("<svg"), "{one}");
    }

    #[test]
    fn an_axis_has_the_unit_of_its_values() {
        assert_eq!([3e9, 2e6, 999.0, 0.0].map(|highest| unit_of(highest, &SIZES).1), ["GB", "MB", "B", "B"]);
        assert_eq!([0.25, 2.5e-6].map(seconds), ["250 ms", "2.5 µs"]);
    }
}
