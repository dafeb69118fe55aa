//! Two points of a path: one-way delay and losses over time, and intervals at both points side by side (TAPEE's figures 10 and 11, and
//! its question what a path does to acknowledgments).

use std::fmt::Write;

use longhaul_flows::compare::IntervalBin;
use longhaul_result::Caveat;

use crate::html::axis::TIMES;
use crate::html::axis::{grid, height, short, step};
use crate::html::capture::seconds;
use crate::html::lines::{Band, Panel, legend, trimmed, unit_of};
use crate::html::page::{caveats, escape, heading, left_out, number, page, verdict, with_numbers};

/// The content of the page.
#[derive(Debug)]
pub struct Report {
    /// The compared captures.
    pub title: String,
    /// When, RFC 3339.
    pub started_at: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// Whether two runs behave alike, where that was asked, and the sentence that says it.
    pub alike: Option<(Option<bool>, String)>,
    /// Of each direction its name, what was found in words, and how sure that is.
    pub found: Vec<(String, [String; 2])>,
    /// Its caveats.
    pub caveats: Vec<Caveat>,
    /// From A to B, and back; of two runs those of the second behind them.
    pub directions: Vec<BetweenPoints>,
    /// What `longhaul compare` prints.
    pub text: String,
    /// Figures that are not drawn, and why: those of a saved result that has not kept what they draw.
    pub left_out: Vec<String>,
}

/// One direction between the points.
#[derive(Debug)]
pub struct BetweenPoints {
    /// From where to where.
    pub name: String,
    /// The time that a point of `delay` covers, seconds.
    pub column_s: f64,
    /// Seconds from the first packet by A's clock, the shortest and the longest delay in nanoseconds; `None` where a capture dropped packets.
    pub delay: Vec<Option<(f64, f64, f64)>>,
    /// When the captures dropped packets, seconds.
    pub gaps: Vec<(f64, f64)>,
    /// When packets were lost between the points, seconds.
    pub lost_s: Vec<f64>,
    /// Between data packets at both points.
    pub intervals: Vec<IntervalBin>,
    /// Between acknowledgments.
    pub ack_intervals: Vec<IntervalBin>,
}

impl Report {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = heading(&self.title, &self.longhaul, &self.started_at);
        if let Some((alike, said)) = &self.alike {
            body += &verdict(None, if *alike == Some(true) { "good" } else { "alert" }, said, "");
        }
        for (direction, [found, certainty]) in &self.found {
            body += &verdict(Some(direction.as_str()), "", found, certainty);
        }
        body += &caveats(&self.caveats);
        body += &left_out(&self.left_out);
        for direction in &self.directions {
            direction.write(&mut body);
        }
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<h2>All results</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page(&self.title, &body)
    }
}

impl BetweenPoints {
    fn write(&self, body: &mut String) {
        let delay = Panel {
            title: "One-way delay",
            what: "lowest to highest, ",
            units: &TIMES,
            bands: vec![Band { name: "delay", colour: "--blue", points: self.delay.clone() }],
            gaps: &self.gaps,
            marks: ("lost in between", self.lost_s.clone()),
            since: "A's first packet",
            ..Panel::default()
        };
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<h2>{}</h2>\n<div class=\"panels wide\">", escape(&self.name));
        let histograms = [
            histogram("Intervals between data packets", &self.intervals),
            histogram("Intervals between acknowledgments", &self.ack_intervals),
        ];
        for figure in [delay.still()].into_iter().chain(histograms).flatten() {
            let _ = writeln!(body, "<figure>{figure}</figure>");
        }
        let _ = writeln!(body, "</div>");
        if self.column_s > 0.0 {
            let _ = writeln!(
                body,
                "<p class=\"quiet\">A point of the delay covers {}, and shows the lowest and the highest value in that time.</p>",
                seconds(self.column_s)
            );
        }
    }
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 272.0;
/// Left, top, right, bottom of the plot area.
const EDGES: [f64; 4] = [66.0, 32.0, 508.0, 228.0];

/// Shares of all intervals at both points, in bins of a quarter of an octave. `None` without any.
fn histogram(title: &str, bins: &[IntervalBin]) -> Option<String> {
    let sums = bins.iter().fold((0.0, 0.0), |(a, b), bin| (a + f64::from(bin.first), b + f64::from(bin.second)));
    let (least, most) = (bins.first()?.from_ns.max(1.0).log2(), bins.last()?.from_ns.max(1.0).log2() + 0.25);
    let share = |count: u32, sum: f64| f64::from(count) * 100.0 / f64::max(sum, 1.0);
    let highest = bins.iter().map(|bin| share(bin.first, sums.0).max(share(bin.second, sums.1))).fold(0.0, f64::max);
    let step = step(highest.max(1e-3));
    let steps = (highest / step - 1e-9).ceil().max(1.0);
    let [left, top, right, bottom] = EDGES;
    let x = |octave: f64| left + (right - left) * (octave - least) / (most - least).max(1.0);
    let y = |share: f64| height(EDGES, step, steps, share);
    let title = escape(title);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{title}</title>\n");
    grid(&mut svg, EDGES, step, steps, short);
    // Powers of ten; in a narrow plot also 2 and 5 times each.
    let decades = (most - least) * std::f64::consts::LOG10_2;
    for power in 0..12 {
        for factor in if decades > 2.5 { &[1.0][..] } else { &[1.0, 2.0, 5.0] } {
            let ns = factor * 10_f64.powi(power);
            let at = x(ns.log2());
            if !(left..=right).contains(&at) {
                continue;
            }
            let (size, unit) = unit_of(ns, &TIMES);
            let anchor = if at > right - 25.0 { "end" } else { "middle" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{}\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{} {unit}</text>",
                bottom + 4.0,
                bottom + 18.0,
                trimmed(ns / size)
            );
        }
    }
    type Count = fn(&IntervalBin) -> u32;
    let points: [(&str, Count, f64); 2] = [("--amber", |bin| bin.first, sums.0), ("--blue", |bin| bin.second, sums.1)];
    for (number, (colour, of, sum)) in points.into_iter().enumerate() {
        // Side by side in each bin: each point has half of it.
        let wide = (x(least + 0.25) - left) / 2.0;
        for bin in bins.iter().filter(|bin| of(bin) > 0) {
            let at = x(bin.from_ns.max(1.0).log2()) + wide * number as f64;
            let high = y(share(of(bin), sum)).min(bottom - 1.0);
            let _ = writeln!(
                svg,
                "<rect style=\"fill: var({colour})\" x=\"{at:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                (wide - 0.3).max(1.0),
                bottom - high
            );
        }
    }
    let names = [("fill: var(--amber)".to_owned(), "first point"), ("fill: var(--blue)".to_owned(), "second point")];
    let table = [["from, ns", "first point", "second point"].map(str::to_owned).to_vec()]
        .into_iter()
        .chain(bins.iter().map(|bin| vec![number(bin.from_ns), bin.first.to_string(), bin.second.to_string()]));
    let _ = writeln!(
        svg,
        "<text class=\"total\" x=\"8\" y=\"16\">{title}</text><text x=\"{right}\" y=\"16\" text-anchor=\"end\">% of all</text>\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">interval</text>\n</svg>\n{}",
        bottom + 36.0,
        legend(&names)
    );
    Some(with_numbers(&svg, table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_points_are_side_by_side() {
        let bin = |from_ns, first, second| IntervalBin { from_ns, first, second };
        let direction = BetweenPoints {
            name: "A to B <b>".into(),
            column_s: 0.5,
            delay: vec![
                Some((0.0, 5e6, 6e6)),
                Some((0.5, 5e6, 9e6)),
                None,
                Some((1.5, 5e6, 5.1e6)),
                Some((2.0, 5e6, 5.2e6)),
            ],
            gaps: vec![(1.0, 1.5)],
            lost_s: vec![0.25],
            intervals: vec![bin(1_024.0, 10, 0), bin(65_536.0, 30, 40)],
            ack_intervals: vec![],
        };
        let (title, text) = ("a & b".to_owned(), "x < y".to_owned());
        let report = Report {
            title,
            started_at: "now".into(),
            longhaul: "1".into(),
            alike: None,
            found: vec![("A to B".into(), ["None was lost.".into(), "One clock.".into()])],
            caveats: Vec::new(),
            directions: vec![direction],
            text,
            left_out: vec!["no <table>".into()],
        };
        let html = report.html();
        let top = "<p class=\"verdict\"><strong>A to B:</strong> None was lost.</p>\n<p class=\"certainty\">One clock.</p>\n\
                   <p class=\"quiet\">No known problem affects";
        assert!(html.contains(top), "{html}");
        assert!(html.contains("<p class=\"quiet\">no &lt;table&gt;</p>\n<h2>A to B &lt;b&gt;"), "{html}");
        assert!(html.contains("A to B &lt;b&gt;") && html.contains("a &amp; b"), "{html}");
        assert_eq!(html.matches("<polygon").count(), 2, "parted by the gap");
        let numbers = "data-csv=\"&quot;from, ns&quot;,first point,second point\n1024,10,0\n65536,30,40\"";
        assert!(html.contains(numbers), "{html}");
        assert!(html.contains("class=\"mark\"") && html.contains("lost in between") && html.contains("not captured"));
        assert_eq!((html.matches("<figure>").count(), html.matches(">second point<").count()), (2, 1));
    }
}
