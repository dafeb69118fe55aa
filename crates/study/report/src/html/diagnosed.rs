//! A diagnosis as a page: what each limit allows as a bar, beside the target and the goodput; then causes with their evidence.

use std::fmt::Write;

use longhaul_diagnosis::{Basis, Before, Bound, Cause, Diagnosed, Diagnosis, Evidence, Remedy, Run, about};
use longhaul_terms::Directions;
use longhaul_units::Nanos;

use crate::html::AboutHost;
use crate::html::page::{caveats, escape, page, verdict, with_numbers};
use crate::html::table::Table;

const WIDTH: f64 = 520.0;
/// Left and right of the bars' ground.
const EDGES: [f64; 2] = [8.0, 512.0];
/// Height of a row: its label above its bar.
const ROW: f64 = 42.0;
/// Where the first row begins: the labels of target and goodput are above.
const TOP: f64 = 48.0;
/// A bound far above the target is drawn up to here, times the target.
const FARTHEST: f64 = 1.25;

/// What the page needs beside the diagnosis of each direction.
#[derive(Debug)]
pub struct Report<'a> {
    /// The server.
    pub about: AboutHost<'a>,
    /// Each direction with its name.
    pub directions: Vec<(&'static str, &'a Diagnosed)>,
}

impl<'a> Report<'a> {
    /// The page's content of `results`. A single one is of the backward direction if `reverse`.
    pub fn of(about: AboutHost<'a>, reverse: bool, results: &'a Directions<Diagnosed>) -> Self {
        let directions = match results {
            Directions::One(result) => vec![(if reverse { "backward" } else { "forward" }, &**result)],
            Directions::Both { forward, backward } => vec![("forward", &**forward), ("backward", &**backward)],
        };
        Self { about, directions }
    }

    /// The page.
    pub fn html(&self) -> String {
        let title = format!("Where is my throughput to {}?", self.about.host);
        let mut body = self.about.heading(&title);
        for (name, Diagnosed { diagnosis, evidence, .. }) in &self.directions {
            let name = Some(*name).filter(|_| self.directions.len() > 1);
            let class = if diagnosis.causes.is_empty() { "" } else { "alert" };
            body += &verdict(name, class, &found(diagnosis), &certainty(diagnosis, evidence));
        }
        body += &caveats(self.about.caveats);
        for (name, diagnosed) in &self.directions {
            direction(&mut body, name, &diagnosed.diagnosis, diagnosed.before.as_ref());
        }
        page(&title, &body)
    }
}

fn bps(bps: u64) -> String {
    format!("{}/s", about(bps))
}

/// What was found, in words.
fn found(diagnosis: &Diagnosis) -> String {
    let carried = diagnosis
        .goodput_bps
        .map_or_else(|| "TCP was not measured".into(), |goodput| format!("TCP carries {}", bps(goodput)));
    let of = diagnosis.target_payload_bps.map_or(String::new(), |target| format!(" of {}", bps(target)));
    let none = if diagnosis.is_on_target() {
        "removing any one limit would raise the goodput by less than 1.3 times"
    } else {
        "no cause was found"
    };
    let cause = diagnosis.causes.first().map_or_else(
        || none.into(),
        |cause| {
            format!(
                "the first cause is {}, at {}; it is worth {}",
                cause.bound.code.words(),
                cause.bound.place_name(),
                cause.worth_bps.text()
            )
        },
    );
    format!("{carried}{of}: {cause}.")
}

/// How sure that is: by how many tests, and what of the first cause and beside it is not known.
fn certainty(diagnosis: &Diagnosis, evidence: &Evidence) -> String {
    let failed = evidence.runs.iter().filter(|run| matches!(run, Run::Failed { .. })).count();
    let ended = match evidence.runs.len() - failed {
        1 => "It is based on one test".to_owned(),
        many => format!("It is based on {many} tests"),
    };
    let failed = if failed > 0 { format!("; {failed} more did not come to their end") } else { String::new() };
    let mut sentences = vec![format!("{ended}{failed}.")];
    let first = diagnosis.causes.first();
    if first.is_some_and(|cause| cause.worth_is_upper_end) {
        sentences.push("Too few losses were seen: the first cause is worth what is said, or less.".into());
    } else if first.is_some_and(|cause| cause.bound.bound_bps.basis == Basis::AtLeast) {
        sentences.push("Of the first cause only a lower bound is known.".into());
    }
    match diagnosis.unknown.len() {
        0 => {}
        1 => sentences.push("One thing is not known: it is listed below, with the test to run.".into()),
        many => sentences.push(format!("{many} things are not known: they are listed below, with the tests to run.")),
    }
    sentences.join(" ")
}

// Writing to a string cannot fail.
fn direction(body: &mut String, name: &str, diagnosis: &Diagnosis, before: Option<&Before>) {
    let _ = writeln!(body, "<h2>{}</h2>", escape(name));
    if let Some(remedy) = diagnosis.causes.first().and_then(|cause| cause.bound.remedies.first()) {
        let _ = writeln!(body, "<p>What to do: {}.</p>", escape(&told(remedy)));
    }
    if let Some(before) = before {
        let _ = writeln!(body, "<p>Before: {}.</p>", escape(&before.text()));
    }
    if let Some(rtt) = diagnosis.base_rtt_ns {
        let _ = writeln!(body, "<p class=\"quiet\">Round trip without load: {}.</p>", Nanos(rtt / 100_000 * 100_000));
    }
    if let Some(figure) = picture(diagnosis) {
        let _ = writeln!(
            body,
            "<div class=\"panels wide\"><figure>{figure}<figcaption>What each limit allows, as payload of TCP. The paler part is what is not known exactly.</figcaption></figure></div>"
        );
    }
    for (number, cause) in diagnosis.causes.iter().enumerate() {
        evidence(body, number + 1, cause);
    }
    if !diagnosis.findings.is_empty() {
        let mut table = Table::new("Findings without a price", "facts", &["finding", "where", "what to do"]);
        for finding in &diagnosis.findings {
            let host = finding.host.map_or("network", |host| host.name());
            table.row(&finding.text, [host.to_owned(), finding.remedy.clone()]);
        }
        *body += &table.finish();
    }
    if !diagnosis.unknown.is_empty() {
        let mut table = Table::new("Not known", "facts", &["what", "the test to run"]);
        for unknown in &diagnosis.unknown {
            table.row(&unknown.what, [unknown.test.clone()]);
        }
        *body += &table.finish();
    }
}

fn told(remedy: &Remedy) -> String {
    format!(
        "{}{}",
        remedy.host.map_or("in the network: ".into(), |host| format!("at the {}: ", host.name())),
        remedy.text
    )
}

fn evidence(body: &mut String, number: usize, cause: &Cause) {
    let bound = &cause.bound;
    let upper = if cause.worth_is_upper_end { "; too few losses were seen for more than an upper end" } else { "" };
    let _ = writeln!(
        body,
        "<h2>{number}. {} <span class=\"quiet\">{}</span></h2>\n<p>It allows {} and is worth {}{upper}.</p>\n<ul>",
        escape(bound.code.words()),
        escape(&bound.place_name()),
        escape(&bound.bound_bps.text()),
        escape(&cause.worth_bps.text()),
    );
    let item = |body: &mut String, text: &str, command: &str| {
        let code = if command.is_empty() { String::new() } else { format!("<br><code>{}</code>", escape(command)) };
        let _ = writeln!(body, "<li>{}{code}</li>", escape(text));
    };
    bound.evidence.iter().for_each(|line| item(body, &line.text, &line.command));
    let _ = writeln!(body, "</ul>\n<p>What to do:</p>\n<ul>");
    bound.remedies.iter().for_each(|remedy| item(body, &told(remedy), &remedy.command));
    let _ = writeln!(body, "</ul>");
}

/// Bars of all bounds; `None` without a scale.
fn picture(diagnosis: &Diagnosis) -> Option<String> {
    let rows: Vec<(&Bound, bool)> = (diagnosis.causes.iter().map(|cause| (&cause.bound, true)))
        .chain(diagnosis.bounds.iter().map(|bound| (bound, false)))
        .collect();
    let target = diagnosis.target_payload_bps?;
    let full = target.max(diagnosis.goodput_bps.unwrap_or(0)) as f64 * FARTHEST;
    if rows.is_empty() || full <= 0.0 {
        return None;
    }
    let [left, right] = EDGES;
    let x = |bps: u64| left + (right - left) * (bps as f64 / full).min(1.0);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" class=\"plot\"><title>What each limit allows</title>\n",
        bottom + 8.0
    );
    for (number, (bound, is_cause)) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        let colour = if *is_cause { "var(--orange)" } else { "var(--blue)" };
        let least = x(bound.bound_bps.least);
        let most = bound.bound_bps.most.map_or(right, x);
        let paler = if bound.bound_bps.basis == Basis::AtLeast { 0.15 } else { 0.4 };
        let _ = writeln!(
            svg,
            "<g class=\"bound\" data-code=\"{}\"><text x=\"{left}\" y=\"{:.0}\">{}: {}</text>\
             <rect x=\"{left}\" y=\"{:.0}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
             <rect x=\"{least:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\" fill-opacity=\"{paler}\"/></g>",
            bound.code,
            y + 14.0,
            escape(&format!("{} at {}", bound.code, bound.place_name())),
            escape(&bound.bound_bps.text()),
            y + 20.0,
            (least - left).max(1.0),
            y + 20.0,
            (most - least).max(0.0),
        );
    }
    let mut mark = |bps: u64, name: &str, y: f64| {
        let at = x(bps);
        let anchor = if at > WIDTH / 2.0 { "end" } else { "start" };
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.0}\" y2=\"{bottom:.0}\" class=\"axis\" stroke-dasharray=\"4 3\"/>\
             <text class=\"total\" x=\"{at:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            y + 4.0,
            escape(&format!("{name} {}", self::bps(bps)))
        );
    };
    mark(target, "target", 18.0);
    if let Some(goodput) = diagnosis.goodput_bps {
        mark(goodput, "goodput", 38.0);
    }
    let names = ["limit", "where", "least, bit/s", "most, bit/s"].map(str::to_owned).to_vec();
    let whole = |name: &str, bps: u64| vec![name.to_owned(), String::new(), bps.to_string(), bps.to_string()];
    let bounds = rows.iter().map(|(bound, _)| {
        let most = bound.bound_bps.most.map_or_else(String::new, |most| most.to_string());
        vec![bound.code.to_string(), bound.place_name(), bound.bound_bps.least.to_string(), most]
    });
    let goodput = diagnosis.goodput_bps.map(|goodput| whole("goodput", goodput));
    let table = std::iter::once(names).chain([whole("target", target)]).chain(goodput).chain(bounds);
    Some(with_numbers(&(svg + "</svg>\n"), table))
}

#[cfg(test)]
mod tests {
    use longhaul_diagnosis::{Purpose, Unknown};
    use longhaul_result::Caveat;

    use super::*;

    #[test]
    fn a_page_begins_with_what_was_found_how_sure_it_is_and_what_speaks_against_it() {
        let diagnosis = Diagnosis {
            target_bps: None,
            target_basis: None,
            target_payload_bps: None,
            goodput_bps: Some(8_000_000),
            base_rtt_ns: None,
            causes: Vec::new(),
            bounds: Vec::new(),
            findings: Vec::new(),
            unknown: vec![Unknown { what: "the <rate>".into(), test: "name one".into() }],
        };
        let failed = Run::Failed { purpose: Purpose::Observed, why: "refused".into() };
        let evidence = Evidence { runs: vec![failed], ..Evidence::default() };
        let diagnosed = Diagnosed { diagnosis, before: None, evidence };
        let caveats = [Caveat::of_error("interrupted", "it was interrupted", "")];
        let report = |directions| {
            let (host, longhaul, started_at) = ("far".into(), "1".into(), "now".into());
            let about = AboutHost { host, longhaul, started_at, caveats: &caveats };
            Report { about, directions }.html()
        };
        let html = report(vec![("forward", &diagnosed)]);
        let top = "<p class=\"verdict\">TCP carries 8Mbit/s: no cause was found.</p>\n\
                   <p class=\"certainty\">It is based on 0 tests; 1 more did not come to their end. \
                   One thing is not known: it is listed below, with the test to run.</p>\n\
                   <details class=\"caveats\"><summary>1 caveat applies: interrupted</summary>";
        assert!(html.contains(top), "{html}");
        let both = report(vec![("forward", &diagnosed), ("backward", &diagnosed)]);
        assert!(both.contains("<p class=\"verdict\"><strong>backward:</strong> TCP carries"), "{both}");
    }
}
