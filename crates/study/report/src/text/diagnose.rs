//! A diagnosis as text: three lines for who asks, the table of bounds, then the evidence.

use std::fmt::Write;

use longhaul_diagnosis::{Basis, Before, Cause, Diagnosed, DiagnosedFlows, Diagnosis, Role, TargetBasis};
use longhaul_terms::Directions;
use longhaul_units::{BitRate, Bytes};

use super::{each_direction, rate, short, visible};

/// Characters of a line of text; commands stand on a line of their own and are not cut.
const WIDTH: usize = 80;

/// The diagnosis of each direction. `reverse`: the only one is from the server to the client.
pub fn report(reverse: bool, results: &Directions<Diagnosed>) -> String {
    each_direction(results, !reverse, |name, result| one(name, &result.diagnosis, result.before.as_ref()))
}

/// Connections that are told in full; the others have a line each.
const IN_FULL: usize = 3;

/// The diagnoses of connections that no test made.
pub fn flows(result: &DiagnosedFlows) -> String {
    let mut text = String::new();
    for (number, flow) in result.flows.iter().take(IN_FULL).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let program = flow.program.as_ref().map_or(String::new(), |name| format!("  {name}"));
        _ = writeln!(text, "{} > {}{program}, {}", flow.sender, flow.receiver, Bytes(flow.payload_bytes).rounded());
        text += &one("goodput", &flow.diagnosed.diagnosis, None);
    }
    let others = result.flows.get(IN_FULL..).unwrap_or_default();
    if !others.is_empty() {
        _ = writeln!(text, "\n{:<52}{:<16}first cause", "others", "goodput");
    }
    for flow in others {
        let diagnosis = &flow.diagnosed.diagnosis;
        let cause = diagnosis.causes.first().map_or("-", |cause| cause.bound.code.name());
        let ends = format!("{} > {}", flow.sender, flow.receiver);
        _ = writeln!(text, "{ends:<52}{:<16}{cause}", diagnosis.goodput_bps.map_or_else(|| "?".into(), bps));
    }
    let silent = result.connections.saturating_sub(result.flows.len() as u64);
    if result.connections == 0 {
        text += "no TCP connection was seen\n";
    } else if silent > 0 {
        let seen = if silent == 1 { "1 more connection".into() } else { format!("{silent} more connections") };
        _ = writeln!(text, "{}{seen}: too little data for a diagnosis", if text.is_empty() { "" } else { "\n" });
    }
    visible(&text)
}

fn bps(bps: u64) -> String {
    format!("{}/s", rate(BitRate(bps)))
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Derived => "derived",
        Basis::AtLeast => "at least",
    }
}

fn one(name: &str, diagnosis: &Diagnosis, before: Option<&Before>) -> String {
    let mut text = String::new();
    let carried =
        diagnosis.goodput_bps.map_or_else(|| "was not measured".into(), |goodput| format!("carries {}", bps(goodput)));
    let of = match (diagnosis.target_payload_bps, diagnosis.goodput_bps) {
        (Some(target), Some(goodput)) => {
            format!(" of {} ({:.0} %)", bps(target), goodput as f64 * 100.0 / target.max(1) as f64)
        }
        (Some(target), None) => format!("; the target is {}", bps(target)),
        (None, _) => String::new(),
    };
    let target = match diagnosis.target_basis {
        Some(TargetBasis::Named) => "",
        Some(TargetBasis::Link) => ", by the slowest link of both hosts",
        Some(TargetBasis::Udp) => ", by what UDP carries",
        None => "",
    };
    _ = writeln!(text, "{name:<10}TCP {carried}{of}{target}");
    match diagnosis.causes.first() {
        Some(cause) => {
            _ = writeln!(text, "{:<10}{}, at {}", "cause", cause.bound.code.words(), cause.bound.place_name());
            _ = writeln!(
                text,
                "{:<10}worth {}{}",
                "",
                worth(cause),
                if diagnosis.causes.len() > 1 { "; then the next cause limits" } else { "" }
            );
            if let Some(remedy) = cause.bound.remedies.first() {
                _ = writeln!(text, "{:<10}{}{}", "do", at(remedy.host), remedy.text);
            }
        }
        None if diagnosis.is_on_target() => {
            _ = writeln!(
                text,
                "{:<10}none: removing any one limit would raise the goodput by less than 1.3 times",
                "cause"
            );
        }
        None => _ = writeln!(text, "{:<10}not found", "cause"),
    }
    if let Some(before) = before {
        wrapped(&mut text, &format!("{:<10}", "before"), &before.text());
    }
    if let Some(rtt) = diagnosis.base_rtt_ns {
        _ = writeln!(text, "{:<10}{} round trip at least", "path", short(rtt));
    }
    table(&mut text, diagnosis);
    for (number, cause) in diagnosis.causes.iter().enumerate() {
        evidence(&mut text, number + 1, cause);
    }
    if !diagnosis.findings.is_empty() {
        _ = writeln!(text, "\nfindings without a price");
        for finding in &diagnosis.findings {
            let place = finding.host.map_or(String::new(), |host| format!("{}: ", host.name()));
            wrapped(&mut text, "  - ", &format!("{place}{} [{}]", finding.text, finding.code));
            wrapped(&mut text, "    ", &finding.remedy);
        }
    }
    if !diagnosis.unknown.is_empty() {
        _ = writeln!(text, "\nnot known");
        for unknown in &diagnosis.unknown {
            wrapped(&mut text, "  - ", &unknown.what);
            wrapped(&mut text, "    ", &unknown.test);
        }
    }
    text
}

fn at(host: Option<Role>) -> String {
    host.map_or("in the network: ".into(), |host| format!("at the {}: ", host.name()))
}

fn worth(cause: &Cause) -> String {
    if cause.worth_bps.most.is_none() {
        return "an unknown cost: name the path's rate with --rate".into();
    }
    let worth = cause.worth_bps.text();
    if cause.worth_is_upper_end { format!("up to {worth}: too few losses were seen to state a cost") } else { worth }
}

fn table(text: &mut String, diagnosis: &Diagnosis) {
    let rows = diagnosis
        .causes
        .iter()
        .map(|cause| (&cause.bound, "cause"))
        .chain(diagnosis.bounds.iter().map(|bound| (bound, "")));
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    _ = writeln!(text, "\n{:<22}{:<22}{:<28}basis", "limit", "where", "allows");
    for (bound, mark) in rows {
        let line = format!(
            "{:<22}{:<22}{:<28}{}{}",
            bound.code.name(),
            bound.place_name(),
            bound.bound_bps.text(),
            basis(bound.bound_bps.basis),
            if mark.is_empty() { String::new() } else { format!(", {mark}") }
        );
        _ = writeln!(text, "{}", line.trim_end());
    }
}

fn evidence(text: &mut String, number: usize, cause: &Cause) {
    let bound = &cause.bound;
    _ = writeln!(text, "\n{number} {} at {}: worth {}", bound.code, bound.place_name(), worth(cause));
    for line in &bound.evidence {
        wrapped(text, "  - ", &line.text);
        if !line.command.is_empty() {
            _ = writeln!(text, "      {}", line.command);
        }
    }
    for remedy in &bound.remedies {
        wrapped(text, "  > ", &format!("{}{}", at(remedy.host), remedy.text));
        if !remedy.command.is_empty() {
            _ = writeln!(text, "      {}", remedy.command);
        }
    }
}

/// Words in lines of at most [`WIDTH`]; the first begins with `lead`, the others below it.
fn wrapped(text: &mut String, lead: &str, words: &str) {
    if words.is_empty() {
        return;
    }
    let mut line = lead.to_owned();
    let mut empty = true;
    for word in words.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            _ = writeln!(text, "{line}");
            line = " ".repeat(lead.len());
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    _ = writeln!(text, "{line}");
}
