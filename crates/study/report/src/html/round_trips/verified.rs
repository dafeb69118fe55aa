//! A path beside the measurement that it shall behave like: the verdict, both distributions, both over time.

use std::fmt::Write;

use longhaul_flows::compare::equivalence::{Quantity, Verdict};
use longhaul_profile::{Curves, DirectionName, Lateness, Level, Stretch, Verification, VerifiedDirection};
use longhaul_result::Caveat;

use crate::equivalence::{self, Cells, why};
use crate::html::axis::TIMES;
use crate::html::lines::{Across, Band, Line, Panel, trimmed, unit_of};
use crate::html::over_time::short;
use crate::html::page::{caveats, heading, page, verdict};
use crate::html::round_trips::ONE_IN;
use crate::html::table::Table;

/// The plain distribution is drawn up to here: what is rarer has a drawing of its own.
const PLAIN_TO: f64 = 0.01;
const PERCENT: [(f64, &str); 1] = [(0.01, "%")];

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The path, as it was named.
    pub path: String,
    /// The measurement.
    pub against: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// When the path was tested.
    pub started_at: String,
    /// What was found.
    pub found: &'a Verification,
    /// Its caveats.
    pub caveats: &'a [Caveat],
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let Self { path, against, found, .. } = self;
        let title = format!("{path} against {against}");
        let mut body = heading(&title, &self.longhaul, &self.started_at);
        let single = found.directions.len() == 1;
        let all = found.directions.iter().flat_map(|direction| {
            let of = if single { String::new() } else { direction.of.name().to_owned() };
            direction.quantities.iter().map(move |quantity| (of.clone(), quantity))
        });
        let said = format!("{}. {}", equivalence::verdict(path, found.verdict), why(found.verdict, all));
        body += &verdict(None, class(found), said.trim_end(), &certainty(found));
        body += &caveats(self.caveats);
        let how = if found.lateness.is_some() { "in real time" } else { "in virtual time" };
        for direction in &found.directions {
            if !single {
                // Writing to a string cannot fail.
                let _ = writeln!(body, "<h2>{}</h2>", direction.of.name());
            }
            write_direction(&mut body, direction, how);
        }
        body += "<p class=\"quiet\">p99 and p99.9 are above the median. Within: the whole interval lies within the margin. Outside: it lies beyond. \
                 Too little data: it crosses the margin's edge, and more packets are needed.</p>\n";
        page(&title, &body)
    }
}

fn write_direction(body: &mut String, direction: &VerifiedDirection, how: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        body,
        "<p class=\"quiet\">{} {} measured (effective sample size {}); {} sent over the path, {how}.</p>",
        direction.packets,
        if direction.of == DirectionName::RoundTrip { "probes" } else { "packets" },
        direction.effective_samples,
        direction.path_packets
    );
    if let Some(coarse) = direction.coarse() {
        let _ = writeln!(body, "<p class=\"quiet\">{coarse}</p>");
    }
    let curves = &direction.curves;
    let figures = [
        (distribution(&curves.levels), "Share of round trips up to this value, without the longest 1 %."),
        (
            quantiles(&curves.levels),
            "Each quantile of the path against the same quantile of the measurement. Where both agree the lines meet; at the right end a few packets decide.",
        ),
        (rare(&curves.levels), "Fraction of round trips longer than this value (logarithmic scale)."),
        (
            over_time(curves),
            "Packets at the same times. Random values differ: compare the range and the speed of change. Marked above: losses in the measurement.",
        ),
        (losses(curves), "Share of packets without an answer, stretch by stretch."),
    ];
    *body += "<div class=\"panels wide\">\n";
    for (figure, caption) in figures {
        let _ = figure.map(|svg| writeln!(body, "<figure>{svg}<figcaption>{caption}</figcaption></figure>"));
    }
    *body += "</div>\n";
    let columns = ["Quantity", "measured", "path", "difference, 90 % interval", "margin", "verdict"];
    let mut table = Table::new("Each quantity", "numbers", &columns);
    for quantity in &direction.quantities {
        let Cells { reference, tested, difference, margin, verdict } = Cells::of(quantity);
        table.row(&named(quantity), [reference, tested, difference, margin, verdict.into()]);
    }
    *body += &table.finish();
}

fn class(found: &Verification) -> &'static str {
    if found.verdict == Verdict::Within { "good" } else { "alert" }
}

/// How sure it is: by how many independent packets, and how late the emulator was.
fn certainty(found: &Verification) -> String {
    let worth = found.directions.iter().map(|direction| direction.effective_samples).min().unwrap_or(0);
    let or_more = if found.directions.len() > 1 { " or more" } else { "" };
    let mut text = format!(
        "Each quantity is judged by confidence intervals of its difference. The effective sample size is {worth}{or_more}."
    );
    if let Some(Lateness { p50_ns, p99_ns }) = found.lateness {
        text += &format!(
            " The emulator was late: half of the packets by up to {}, 99 % by up to {}. How much that adds to round trips is not known.",
            short(p50_ns),
            short(p99_ns)
        );
    }
    text
}

/// With its unit.
fn named(quantity: &Quantity) -> String {
    let unit = if quantity.name.is_time() { ", ms" } else { "" };
    format!("{}{unit}", quantity.name.name())
}

/// The label below a line.
type Label = fn(f64) -> Option<String>;
const NUMBER: Label = |value| Some(trimmed(value));

fn unit_over(levels: &[Level]) -> (f64, &'static str) {
    let highest = levels.iter().map(|level| level.measured_ns.max(level.path_ns)).fold(0.0, f64::max);
    unit_of(highest, &TIMES)
}

/// Share of round trips up to each.
fn distribution(levels: &[Level]) -> Option<String> {
    let plain: Vec<Level> = levels.iter().copied().filter(|level| level.longer >= PLAIN_TO).collect();
    let (size, unit) = unit_over(&plain);
    let line = |ns: fn(&Level) -> f64| plain.iter().map(|level| Some((ns(level) / size, 1.0 - level.longer))).collect();
    let what = format!("round trip, {unit}");
    let panel = Panel {
        title: "Distribution",
        what: "round trips, ",
        units: &PERCENT,
        lines: vec![
            Line { name: "measured", colour: "--blue", points: line(|level| level.measured_ns) },
            Line { name: "path", colour: "--orange", points: line(|level| level.path_ns) },
        ],
        across: Some(Across { what: &what, label: NUMBER, value: |value| value }),
        ..Panel::default()
    };
    panel.still()
}

/// Quantile over quantile.
fn quantiles(levels: &[Level]) -> Option<String> {
    let (size, unit) = unit_over(levels);
    let ends = [levels.first()?.measured_ns, levels.last()?.measured_ns];
    let what = format!("measured, {unit}");
    let panel = Panel {
        title: "Quantile by quantile",
        what: "path, ",
        units: &TIMES,
        lines: vec![
            Line { name: "alike", colour: "--quiet", points: ends.map(|ns| Some((ns / size, ns))).to_vec() },
            Line {
                name: "path over measurement",
                colour: "--orange",
                points: levels.iter().map(|level| Some((level.measured_ns / size, level.path_ns))).collect(),
            },
        ],
        across: Some(Across { what: &what, label: NUMBER, value: |value| value }),
        ..Panel::default()
    };
    panel.still()
}

/// How long the longest of 10, 100, 1,000, … round trips are.
fn rare(levels: &[Level]) -> Option<String> {
    let line = |ns: fn(&Level) -> f64| levels.iter().map(|level| Some((-level.longer.log10(), ns(level)))).collect();
    let panel = Panel {
        title: "Tail of the distribution",
        what: "round trip, ",
        units: &TIMES,
        lines: vec![
            Line { name: "measured", colour: "--blue", points: line(|level| level.measured_ns) },
            Line { name: "path", colour: "--orange", points: line(|level| level.path_ns) },
        ],
        across: Some(ONE_IN),
        ..Panel::default()
    };
    panel.still()
}

/// Seconds from the first probe to the middle of each stretch, with the stretch.
fn timed<'a>(curves: &Curves, stretches: &'a [Stretch]) -> impl Iterator<Item = (f64, &'a Stretch)> {
    let stretch_s = curves.stretch_ns as f64 / 1e9;
    (0..).zip(stretches).map(move |(number, stretch)| ((f64::from(number) + 0.5) * stretch_s, stretch))
}

/// Both over time.
fn over_time(curves: &Curves) -> Option<String> {
    let level = |stretches, nth: usize| -> Vec<Option<(f64, f64)>> {
        timed(curves, stretches).map(|(at, stretch)| stretch.rtt_ns.map(|rtt| (at, rtt[nth]))).collect()
    };
    let band = timed(curves, &curves.measured).map(|(at, stretch)| stretch.rtt_ns.map(|rtt| (at, rtt[0], rtt[2])));
    let panel = Panel {
        title: "Round trips over time",
        what: "round trip, ",
        units: &TIMES,
        bands: vec![Band { name: "measured, 10 % to 90 %", colour: "--pale", points: band.collect() }],
        lines: vec![
            Line { name: "measured, median", colour: "--blue", points: level(&curves.measured, 1) },
            Line { name: "path, median", colour: "--orange", points: level(&curves.path, 1) },
            Line { name: "path, 10 %", colour: "--amber", points: level(&curves.path, 0) },
            Line { name: "path, 90 %", colour: "--purple", points: level(&curves.path, 2) },
        ],
        marks: (
            "lost",
            timed(curves, &curves.measured).filter(|(_, stretch)| stretch.lost > 0).map(|(at, _)| at).collect(),
        ),
        since: "the first probe",
        ..Panel::default()
    };
    panel.still()
}

/// Losses of both over time; `None` where neither lost any.
fn losses(curves: &Curves) -> Option<String> {
    let share = |stretches| -> Vec<Option<(f64, f64)>> {
        timed(curves, stretches)
            .map(|(at, stretch)| (stretch.sent > 0).then(|| (at, stretch.lost as f64 / stretch.sent as f64)))
            .collect()
    };
    curves.measured.iter().chain(&curves.path).any(|stretch| stretch.lost > 0).then_some(())?;
    let panel = Panel {
        title: "Losses over time",
        what: "lost, ",
        units: &PERCENT,
        lines: vec![
            Line { name: "measured", colour: "--blue", points: share(&curves.measured) },
            Line { name: "path", colour: "--orange", points: share(&curves.path) },
        ],
        since: "the first probe",
        ..Panel::default()
    };
    panel.still()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_with_the_verdict_how_sure_it_is_and_what_speaks_against_it() {
        let lateness = Some(Lateness { p50_ns: 2_000, p99_ns: 30_000 });
        let found = Verification { verdict: Verdict::Within, directions: Vec::new(), lateness };
        let caveats = [Caveat::of_error("emulator_late", "by 3 ms", "")];
        let (path, against, longhaul, started_at) = ("far".into(), "ping <b>".into(), "1".into(), "now".into());
        let html = Report { path, against, longhaul, started_at, found: &found, caveats: &caveats }.html();
        let top = "<p class=\"verdict good\">far behaves like the measured path, within the margins.</p>\n<p class=\"certainty\">";
        assert!(html.contains(top) && html.contains("half of the packets by up to 2.00us"), "{html}");
        assert!(html.contains("<summary>1 caveat applies: emulator late</summary>") && !html.contains("<b>"), "{html}");
    }
}
