//! Flows of a capture over time: TAPEE's figures 5–7 (rate), 10 and 11 (intervals) for any capture.
//!
//! Lines are SVG. The surfaces of interval × time × count are canvases: a small script draws them and zooms. The page's security policy
//! allows this script and no other. Where a screen cannot show all points, the page draws the lowest and the highest, so that bursts,
//! stalls and outliers stay visible.

use std::fmt::Write;

use longhaul_result::Caveat;
use serde::Serialize;

use crate::html::axis::{RATES, TIMES};
use crate::html::lines::{Band, Line, Panel, trimmed, unit_of};
use crate::html::over_time::timeline;
use crate::html::page::{Script, caveats, charts, escape, heading, left_out, page_with, verdict};

/// The script, and its SHA-256 in base64: `openssl dgst -sha256 -binary heat.js | base64`.
const SCRIPT: &str = include_str!("heat.js");
const SCRIPT_HASH: &str = "dAgrqsS/VZOM101yvuTcVZSnqcmdr1cB1B+BqWzLum8=";

/// The content of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The captured files.
    pub title: String,
    /// When it was analysed, RFC 3339.
    pub started_at: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// What was found, in words, and how sure that is.
    pub verdict: [String; 2],
    /// Its caveats.
    pub caveats: Vec<Caveat>,
    /// The flows that are drawn.
    pub flows: Vec<Flow>,
    /// How many flows the capture has.
    pub flows_total: u64,
    /// What `longhaul analyze` prints.
    pub text: String,
    /// Figures that are not drawn, and why: those of a saved result that has not kept what they draw.
    pub left_out: Vec<String>,
}

/// One direction of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// From where to where.
    pub name: String,
    /// The time that a point covers, seconds.
    pub column_s: f64,
    /// Over time, at most a few thousand.
    pub points: Vec<Point>,
    /// Intervals between data packets over time.
    pub heat: Heat,
    /// Intervals between the returning acknowledgments; empty for UDP.
    pub ack_heat: Heat,
}

/// The lowest and the highest value in a span of time.
pub type Range = Option<(f64, f64)>;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Its beginning, seconds from the flow's.
    pub at_s: f64,
    /// The capture dropped packets in it.
    pub in_gap: bool,
    /// The rates of its slowest and its fastest millisecond, bits per second.
    pub rate_1ms_bps: Range,
    /// The moving average over the second that ends with it; `None` in a gap.
    pub rate_1s_bps: Option<f64>,
    /// The highest byte sent.
    pub sequence: Option<f64>,
    /// The highest byte acknowledged.
    pub acknowledged: Option<f64>,
    /// Range of the largest number of bytes in flight of each millisecond.
    pub in_flight_bytes: Range,
    /// Range of the round trips.
    pub rtt_ns: Range,
}

/// Counts of intervals, in bins of a quarter of an octave, by columns of time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Heat {
    /// How many columns.
    pub columns: usize,
    /// How long one is.
    pub column_s: f64,
    /// The lowest bin that has any.
    pub lowest: usize,
    /// The highest.
    pub highest: usize,
    /// Triples: columns since the triple before, bin, count.
    pub cells: Vec<u32>,
    /// First and end column of each gap of the capture.
    pub gaps: Vec<(usize, usize)>,
}

impl Report {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = heading(&self.title, &self.longhaul, &self.started_at);
        let [found, certainty] = &self.verdict;
        body += &verdict(None, "", found, certainty);
        body += &caveats(&self.caveats);
        body += &left_out(&self.left_out);
        let is_whole = self.left_out.is_empty();
        if self.flows.is_empty() && is_whole {
            body += "<p>No flow carries data: nothing to draw.</p>\n";
        }
        let drawn = self.flows.len() as u64;
        // Writing to a string cannot fail.
        if drawn > 0 && drawn < self.flows_total {
            let _ = writeln!(
                body,
                "<p>The largest {drawn} of {} flows, each the direction with more data.</p>",
                self.flows_total
            );
        }
        for (number, flow) in self.flows.iter().enumerate() {
            flow.write(&mut body, number, is_whole);
        }
        let _ = writeln!(body, "<h2>All results</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page_with(&self.title, &body, [&heat_script()].into_iter().chain(charts()))
    }
}

impl Flow {
    /// Where the page is whole, and has no intervals, there are none.
    fn write(&self, body: &mut String, number: usize, is_whole: bool) {
        let line = |name, colour, of: &dyn Fn(&Point) -> Option<f64>| Line {
            name,
            colour,
            points: parted(&self.points, |point| of(point).map(|value| (point.at_s, value))),
        };
        let band = |name, colour, of: &dyn Fn(&Point) -> Range| Band {
            name,
            colour,
            points: parted(&self.points, |point| of(point).map(|(low, high)| (point.at_s, low, high))),
        };
        let gaps = self.gaps();
        // All panels have the same time axis, one below the other.
        let end_s = self.points.last().map_or(0.0, |last| last.at_s);
        let since = "the first packet";
        let panel = |title, what, units| Panel { title, what, units, gaps: &gaps, end_s, since, ..Panel::default() };
        let figures = [
            Panel {
                bands: vec![band("1 ms, lowest to highest", "--pale", &|point| point.rate_1ms_bps)],
                lines: vec![line("average over 1 s", "--orange", &|point| point.rate_1s_bps)],
                ..panel("Rate", "payload, ", &RATES[..])
            },
            Panel {
                lines: vec![
                    line("sent", "--blue", &|point| point.sequence),
                    line("acknowledged", "--amber", &|point| point.acknowledged),
                ],
                ..panel("Sequence and acknowledgment", "from the first byte, ", &SIZES)
            },
            Panel {
                bands: vec![band("bytes in flight, lowest to highest", "--green", &|point| point.in_flight_bytes)],
                ..panel("Bytes in flight, as seen at the capture point", "", &SIZES)
            },
            Panel {
                bands: vec![band("round trips, lowest to highest", "--purple", &|point| point.rtt_ns)],
                ..panel("Round trip from the capture point to the receiver", "", &TIMES)
            },
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<h2>{}</h2>\n{}", escape(&self.name), timeline(figures.map(|figure| (figure, ""))));
        if self.points.len() < 2 {
            let _ = writeln!(
                body,
                "<p class=\"quiet\">All packets passed within {}: nothing to draw over time.</p>",
                seconds(self.column_s)
            );
        } else if self.column_s > 0.001 {
            let _ = writeln!(
                body,
                "<p class=\"quiet\">A point covers {}, and shows the lowest and the highest value in that time.</p>",
                seconds(self.column_s)
            );
        }
        if self.heat.cells.is_empty() && is_whole {
            let _ = writeln!(body, "<p class=\"quiet\">One data packet has no interval.</p>");
        }
        surface(body, &format!("heat-{number}"), "Intervals between data packets over time", &self.heat);
        surface(
            body,
            &format!("acks-{number}"),
            "Intervals between the acknowledgments that come back",
            &self.ack_heat,
        );
    }

    /// Start and end of each gap of the capture, seconds.
    fn gaps(&self) -> Vec<(f64, f64)> {
        let runs = self.points.chunk_by(|a, b| a.in_gap == b.in_gap).filter(|run| run[0].in_gap);
        runs.map(|run| (run[0].at_s, run[run.len() - 1].at_s + self.column_s)).collect()
    }
}

/// Values over time, interrupted only by gaps: without packets the last value continues.
fn parted<T>(points: &[Point], of: impl Fn(&Point) -> Option<T>) -> Vec<Option<T>> {
    points.iter().filter_map(|point| if point.in_gap { Some(None) } else { of(point).map(Some) }).collect()
}

/// What draws surfaces.
pub(crate) fn heat_script() -> Script {
    Script { text: SCRIPT.into(), hash: SCRIPT_HASH }
}

/// A canvas, and its data for the script.
pub(crate) fn surface(body: &mut String, id: &str, title: &str, heat: &Heat) {
    if heat.cells.is_empty() {
        return;
    }
    // Only numbers: nothing in it ends the script element.
    let data = serde_json::to_string(heat).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        body,
        "<figure class=\"surface\"><h3>{title}</h3>\n\
         <canvas class=\"heat\" data-source=\"{id}\" tabindex=\"0\" role=\"img\" aria-label=\"{title}\"></canvas>\n\
         <figcaption>The colour shows the count, on a logarithmic scale. Zoom with the wheel or + and - (with Shift only the time), move by dragging, \
         show all with a double click or 0. The pointer shows the values below it. The lowest row includes intervals of 0.</figcaption></figure>\n\
         <script type=\"application/json\" id=\"{id}\">{data}</script>"
    );
}

const SIZES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];

pub(crate) fn seconds(value: f64) -> String {
    let (size, unit) = unit_of(value * 1e9, &TIMES);
    format!("{} {unit}", trimmed(value * 1e9 / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flows: Vec<Flow>) -> Report {
        Report {
            title: "none".into(),
            started_at: "now".into(),
            longhaul: "1".into(),
            verdict: ["a flow".into(), "sure".into()],
            caveats: Vec::new(),
            flows,
            flows_total: 1,
            text: String::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_page_has_its_figures_and_no_markup_from_outside() {
        let point = |n: u32| Point {
            at_s: f64::from(n) / 1e3,
            rate_1ms_bps: Some((0.0, 1e9)),
            rate_1s_bps: Some(5e8),
            sequence: Some(f64::from(n) * 1e5),
            ..Point::default()
        };
        let flow = Flow {
            name: "<img src=x>".into(),
            points: (0..100).map(point).collect(),
            column_s: 0.001,
            heat: Heat { columns: 10, column_s: 0.01, lowest: 40, highest: 41, cells: vec![3, 40, 7], gaps: vec![] },
            ack_heat: Heat::default(),
        };
        let caveats = vec![Caveat::of_error("super_packets", "some are several", "capture outside")];
        let report = Report { title: "a < b".into(), caveats, flows_total: 2, text: "1 & 2".into(), ..of(vec![flow]) };
        let html = report.html();
        let top = "<p class=\"verdict\">a flow</p>\n<p class=\"certainty\">sure</p>\n\
                   <details class=\"caveats\"><summary>1 caveat applies: super packets</summary>";
        assert!(html.contains(top), "{html}");
        assert!(!html.contains("<img") && html.contains("a &lt; b") && html.contains("1 &amp; 2"));
        assert!(html.contains("\"cells\":[3,40,7]") && html.contains(&format!("script-src 'sha256-{SCRIPT_HASH}'")));
        // Rate and sequence are drawn; bytes in flight and round trip have no points.
        assert_eq!(html.matches("class=\"plot\"").count(), 2, "{html}");
    }

    #[test]
    fn empty_and_short_captures_say_so() {
        let report = |flows| of(flows).html();
        assert!(report(vec![]).contains("nothing to draw"));
        let (heat, ack_heat) = (Heat::default(), Heat::default());
        let flow = Flow { name: "one".into(), column_s: 0.001, points: vec![Point::default()], heat, ack_heat };
        let one = report(vec![flow.clone()]);
        assert!(
            one.contains("passed within 1 ms") && one.contains("has no interval") && !one.contains("class=\"plot\""),
            "{one}"
        );
        let left_out = vec!["no <table>".into()];
        let saved = Report { left_out, ..of(vec![flow]) }.html();
        assert!(
            saved.contains("<p class=\"quiet\">no &lt;table&gt;</p>") && !saved.contains("has no interval"),
            "{saved}"
        );
    }

    #[test]
    fn an_axis_has_the_unit_of_its_values() {
        assert_eq!([3e9, 2e6, 999.0, 0.0].map(|highest| unit_of(highest, &SIZES).1), ["GB", "MB", "B", "B"]);
        assert_eq!([0.25, 2.5e-6].map(seconds), ["250 ms", "2.5 µs"]);
    }
}
