//! Received rate by the spacing of packets, a line for each length: how DataTAG characterised end systems, for any experiment.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_udp::Pace;

use super::{RECEIVED, Run};
use crate::html::axis::{grid, height, short, step};
use crate::html::page::{escape, number, with_numbers};
use crate::html::series::{Report, Series};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
/// Of the lines' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [60.0, 22.0, 390.0, 212.0];
/// Colours that differ without colour vision (Okabe and Ito 2008), and dashes for print.
const LINES: [(&str, &str); 8] = [
    ("#0072b2", ""),
    ("#e69f00", "6 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "8 3 2 3"),
    ("#56b4e9", "1 4"),
    ("#d55e00", "10 3"),
    ("#777777", "4 2"),
    ("#a08000", "1 2"),
];

/// Spacing in microseconds and received megabits a second, by length and what else sets a line apart.
type Lines = BTreeMap<(u32, String), Vec<(f64, f64)>>;

fn lines(series: &Series<Run>) -> Lines {
    let mut lines = Lines::new();
    for point in &series.points {
        let (Some(run), Some(received)) = (point.shown().next(), point.mean(RECEIVED)) else { continue };
        let Pace::SpacingNs(ns) = run.parameters.pace else { continue };
        // A label begins with the spacing, and may have settings of the hosts behind it.
        let rest: Vec<&str> = point.label.split(", ").skip(1).filter(|word| !word.ends_with(" bytes")).collect();
        let line = lines.entry((run.parameters.payload_bytes, rest.join(", "))).or_default();
        line.push((ns as f64 / 1e3, received.mean / 1e6));
    }
    lines.values_mut().for_each(|line| line.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

impl Report<Run> {
    /// A panel for each series whose packets are sent at a spacing.
    pub(super) fn spaced(&self, body: &mut String) {
        let panels: Vec<(&str, Lines)> = (self.series.iter())
            .map(|series| (series.name.as_str(), lines(series)))
            .filter(|(_, lines)| lines.values().any(|line| line.len() > 1))
            .collect();
        if panels.is_empty() {
            return;
        }
        *body += "<h2>Received rate by the spacing of packets</h2>\n<div class=\"panels\">\n";
        for (name, lines) in &panels {
            // Writing to a string cannot fail.
            let _ = writeln!(body, "<figure><h3>{}</h3>\n{}</figure>", escape(name), draw(name, lines));
        }
        *body += "</div>\n";
    }
}

fn draw(name: &str, lines: &Lines) -> String {
    let [left, top, right, bottom] = EDGES;
    let points = || lines.values().flatten();
    let widest = points().map(|(us, _)| *us).fold(1e-3, f64::max);
    let highest = points().map(|(_, mbit)| *mbit).fold(1e-3, f64::max) * 1.05;
    let step = step(highest);
    let steps = (highest / step).ceil();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>Received by spacing: {}</title>\n",
        escape(name)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let mut legend = String::from("<ul class=\"legend\">");
    for (((bytes, rest), line), (colour, dashes)) in lines.iter().zip(LINES.iter().cycle()) {
        let drawn: Vec<String> = (line.iter())
            .map(|(us, mbit)| {
                format!("{:.1},{:.1}", left + (right - left) * us / widest, height(EDGES, step, steps, *mbit))
            })
            .collect();
        let rest = if rest.is_empty() { String::new() } else { format!(", {rest}") };
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<polyline data-line=\"{bytes}\" points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            drawn.join(" ")
        );
        let _ = write!(
            legend,
            "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><line x1=\"0\" x2=\"24\" y1=\"4\" y2=\"4\" stroke=\"{colour}\" stroke-width=\"4\" \
             stroke-dasharray=\"{dashes}\"/></svg>{bytes} bytes{}</li>",
            escape(&rest)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{0}\">0</text><text x=\"{right}\" y=\"{0}\" text-anchor=\"end\">{1} us</text>\
         <text x=\"{2}\" y=\"{0}\" text-anchor=\"middle\">from one packet to the next</text>\
         <text transform=\"translate(13 {3}) rotate(-90)\" text-anchor=\"middle\">received, Mb/s of payload</text>\n</svg>",
        bottom + 17.0,
        short(widest),
        (left + right) / 2.0,
        (top + bottom) / 2.0
    );
    let names = ["payload, bytes", "settings", "from one packet to the next, us", "received, Mb/s"].map(str::to_owned);
    let rows = lines.iter().flat_map(|((bytes, rest), line)| {
        line.iter().map(move |(us, mbit)| vec![bytes.to_string(), rest.clone(), number(*us), number(*mbit)])
    });
    with_numbers(&svg, std::iter::once(names.to_vec()).chain(rows)) + &legend + "</ul>\n"
}

#[cfg(test)]
mod tests {
    use longhaul_udp::UdpParameters;

    use super::super::tests::run;
    use super::*;
    use crate::html::series::tests::{report, series};

    /// A line for each length, from the narrowest spacing to the widest.
    #[test]
    fn each_length_has_a_line() {
        let spaced = |us: u64, bytes: u32, mbit: u64| {
            let mut one = run(1, &[]);
            one.parameters =
                UdpParameters { pace: Pace::SpacingNs(us * 1000), payload_bytes: bytes, ..UdpParameters::default() };
            one.result.as_mut().unwrap().received_rate_bps = mbit * 1_000_000;
            one
        };
        let points = vec![
            ("every 20us, 100 bytes", spaced(20, 100, 40)),
            ("every 10us, 100 bytes", spaced(10, 100, 80)),
            ("every 10us, 1000 bytes", spaced(10, 1000, 800)),
            ("every 20us, 1000 bytes", spaced(20, 1000, 400)),
        ];
        let report = report(vec![series("two ends", points)]);
        let seen = lines(&report.series[0]);
        assert_eq!(seen[&(100, String::new())], [(10.0, 80.0), (20.0, 40.0)]);
        let html = report.to_html();
        assert_eq!(html.matches("<polyline data-line=").count(), 2, "{html}");
        // 800 of an axis to 1000 Mb/s, 190 high, at half of the width.
        assert!(html.contains("data-line=\"1000\" points=\"225.0,60.0 "), "{html}");
    }
}
