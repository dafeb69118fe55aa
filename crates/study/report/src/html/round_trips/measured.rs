//! A measurement of round trips as a page: over time, by how rare they are, by the size of messages.

use std::fmt::Write;

use longhaul_rtt::{BySize, Gap, OfSize, OverTime, RttResult, Stretch};

use crate::html::AboutHost;
use crate::html::axis::TIMES;
use crate::html::lines::{Across, Band, Line, Panel};
use crate::html::over_time::{short, timeline};
use crate::html::page::{caveats, charts, escape, page_with, verdict};
use crate::html::round_trips::ONE_IN;

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The host that was probed.
    pub about: AboutHost<'a>,
    /// What was measured.
    pub result: &'a RttResult,
    /// What `longhaul rtt` prints.
    pub text: String,
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let title = format!("Round trips to {}", self.about.host);
        let mut body = self.about.heading(&title);
        body += &verdict(None, "", &found(self.result), &certainty(self.result));
        body += &caveats(self.about.caveats);
        let gaps = seconds_of(&self.result.gaps, self.result.over_time.began_ns);
        body += &timeline([(
            over_time(&self.result.over_time, &gaps),
            "Least to greatest, and mean. Marked: probes were lost.",
        )]);
        let figures = [
            (rare(self.result), "Fraction of round trips longer than this value (logarithmic scale)."),
            (
                self.result.by_size.as_ref().and_then(by_size),
                "The median of each size, the fitted line, and steps outside the fit.",
            ),
        ];
        body += "<div class=\"panels wide\">\n";
        for (figure, caption) in figures {
            // Writing to a string cannot fail.
            let _ = figure.map(|svg| writeln!(body, "<figure>{svg}<figcaption>{caption}</figcaption></figure>"));
        }
        body += "</div>\n";
        let _ = writeln!(body, "<h2>All figures</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page_with(&title, &body, charts())
    }
}

/// What was found, in words.
fn found(result: &RttResult) -> String {
    let RttResult { sent, lost, rtt, .. } = result;
    let mut words = match lost {
        0 => format!("All of {sent} probes were answered."),
        _ => format!("{lost} of {sent} probes were lost, {:.3} %.", *lost as f64 * 100.0 / (*sent).max(1) as f64),
    };
    if let Some(rtt) = rtt {
        let (half, rare, longest) = (short(rtt.p50_ns), short(rtt.p99_ns), short(rtt.max_ns));
        words +=
            &format!(" Half of the round trips took at most {half}, 99 % at most {rare}; the longest took {longest}.");
    }
    words
}

/// How sure that is: quantiles far out rest on few round trips.
fn certainty(result: &RttResult) -> String {
    let one = format!("This is one measurement of {}", short(result.duration_ns));
    match (result.received, result.received / 100) {
        (0, _) => format!("{one}."),
        (_, 0 | 1) => format!("{one}: at most one round trip was longer than the 99 % quantile."),
        (_, many) => format!("{one}: {many} round trips were longer than the 99 % quantile."),
    }
}

/// From when to when there were gaps, seconds after `began_ns`.
fn seconds_of(gaps: &[Gap], began_ns: i64) -> Vec<(f64, f64)> {
    let of = |gap: &Gap| {
        let from_s = gap.from_ns.saturating_sub(began_ns) as f64 / 1e9;
        (from_s, from_s + gap.lasted_ns() as f64 / 1e9)
    };
    gaps.iter().map(of).collect()
}

/// Round trips over time.
fn over_time<'a>(over_time: &OverTime, gaps: &'a [(f64, f64)]) -> Panel<'a> {
    let OverTime { stretch_ns, stretches, .. } = over_time;
    let stretch_s = *stretch_ns as f64 / 1e9;
    let timed = || stretches.iter().zip(0..).map(|(stretch, number)| (stretch, f64::from(number) * stretch_s));
    let of = |stretch: &Stretch, at: f64| stretch.rtt.map(|rtt| (at, rtt));
    let band = timed().map(|(stretch, at)| of(stretch, at).map(|(at, rtt)| (at, rtt.min_ns as f64, rtt.max_ns as f64)));
    let line = timed().map(|(stretch, at)| of(stretch, at).map(|(at, rtt)| (at, rtt.mean_ns)));
    Panel {
        title: "Round trips over time",
        what: "round trip, ",
        units: &TIMES,
        bands: vec![Band { name: "least to greatest", colour: "--blue", points: band.collect() }],
        lines: vec![Line { name: "mean", colour: "--orange", points: line.collect() }],
        marks: ("lost", timed().filter(|(stretch, _)| stretch.lost() > 0).map(|(_, at)| at).collect()),
        since: "the first probe",
        gaps,
        gaps_are: "no information from probes",
        ..Panel::default()
    }
}

/// How long the longest of 10, 100, 1,000, … round trips are.
fn rare(result: &RttResult) -> Option<String> {
    let least = result.rtt?.min_ns as f64;
    let all = result.received as f64;
    let mut left = all;
    let mut points = vec![Some((0.0, least))];
    for bucket in &result.histogram {
        left -= bucket.probes as f64;
        // The last has none behind it: it is one of all.
        let share = left.max(1.0) / all;
        points.push(Some((-share.log10(), least + bucket.up_to_ns as f64)));
    }
    let panel = Panel {
        title: "Tail of the distribution",
        what: "round trip, ",
        units: &TIMES,
        lines: vec![Line { name: "round trip", colour: "--blue", points }],
        across: Some(ONE_IN),
        ..Panel::default()
    };
    panel.still()
}

/// Medians by size, and the line with its steps.
fn by_size(by_size: &BySize) -> Option<String> {
    let BySize { sizes, line, steps, .. } = by_size;
    let measured = |size: &OfSize| size.rtt.map(|rtt| (f64::from(size.payload_bytes), rtt));
    let median = sizes.iter().map(|size| measured(size).map(|(bytes, rtt)| (bytes, rtt.p50_ns as f64)));
    let interval = sizes
        .iter()
        .map(|size| measured(size).map(|(bytes, rtt)| (bytes, rtt.p50_least_ns as f64, rtt.p50_most_ns as f64)));
    let explained = |bytes: u32| {
        let steps = steps.iter().filter(|step| bytes >= step.to_bytes).map(|step| step.ns).sum::<f64>();
        line.map(|line| (f64::from(bytes), line.intercept_ns + line.slope_ns_per_byte * f64::from(bytes) + steps))
    };
    let panel = Panel {
        title: "Round trips by size",
        what: "median, ",
        units: &TIMES,
        bands: vec![Band { name: "95 % interval of the median", colour: "--blue", points: interval.collect() }],
        lines: vec![
            Line { name: "median", colour: "--blue", points: median.collect() },
            Line {
                name: "line and steps",
                colour: "--orange",
                points: sizes.iter().map(|size| explained(size.payload_bytes)).collect(),
            },
        ],
        across: Some(Across { what: "payload, bytes", label: |bytes| Some(format!("{bytes}")), value: |bytes| bytes }),
        ..Panel::default()
    };
    panel.still()
}

#[cfg(test)]
mod tests {
    use longhaul_rtt::{GapReason, StretchRtt};

    use super::*;

    /// In the second second one of three probes came back, in the third none.
    #[test]
    fn losses_are_marked_at_their_time() {
        let rtt = StretchRtt { min_ns: 1_000, mean_ns: 1_000.0, max_ns: 1_000 };
        let stretch = |sent: u64, received: u64| Stretch { sent, received, rtt: (received > 0).then_some(rtt) };
        let stretches = vec![stretch(2, 2), stretch(3, 1), stretch(1, 0), stretch(1, 1)];
        let measured = OverTime { began_ns: 70_000_000_000, stretch_ns: 1_000_000_000, stretches };
        let panel = over_time(&measured, &[]);
        assert_eq!(panel.marks, ("lost", vec![1.0, 2.0]));
        assert!(panel.svg().unwrap().contains(">lost<"), "the legend says what they are");
    }

    /// A server that was away from the second second to the third is drawn as a time of which nothing is known.
    #[test]
    fn gaps_are_drawn() {
        let rtt = |ns: i64| StretchRtt { min_ns: ns, mean_ns: ns as f64, max_ns: ns };
        let stretch = |ns: i64| Stretch { sent: 1, received: 1, rtt: Some(rtt(ns)) };
        let stretches = vec![stretch(1_000), stretch(2_000), Stretch::default(), stretch(1_500), stretch(1_500)];
        let measured = OverTime { began_ns: 70_000_000_000, stretch_ns: 1_000_000_000, stretches };
        let (from_ns, to_ns) = (72_000_000_000, 73_000_000_000);
        let away = Gap { why: GapReason::ServerEnded, from_ns, to_ns, step_ns: 0, left_out: 3 };
        let drawn = over_time(&measured, &seconds_of(&[away], measured.began_ns)).svg().unwrap();
        // Half of four seconds, and a quarter of them wide: from 66 to 508.
        assert!(drawn.contains("<rect class=\"gap\" x=\"287.0\" y=\"32\" width=\"110.5\""), "{drawn}");
        assert!(drawn.contains("no information from probes"), "{drawn}");
        assert!(!over_time(&measured, &[]).svg().unwrap().contains("no information from probes"));
    }
}
