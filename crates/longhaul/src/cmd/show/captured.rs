//! Pages of saved results about captures, from the table beside them: of `analyze` and `compare`.

use longhaul_flows::compare::behaviour::Behaviour;
use longhaul_flows::compare::{CompareResult, PathDirection, Points, Reached, Shown};
use longhaul_flows::{AnalyzeResult, Gaps, Sink};
use longhaul_report::html::{capture, compared};
use longhaul_report::parquet::{read_delays, read_series};
use longhaul_report::text;
use serde::Deserialize;

use crate::cmd::analyze::PAGE_FLOWS;
use crate::cmd::analyze::figures::Figures;
use crate::cmd::compare::figures::{Delays, numbered};
use crate::cmd::show::read::{Read, named};
use crate::output::Failure;
use crate::output::saved::{DELAYS, SERIES};

/// Runs of losses that a result of `compare` lists.
const RUNS_MOST: usize = 10_000;
/// Quarters of octaves of all intervals that a number can be.
const BINS_MOST: usize = 256;

/// The captures of `longhaul analyze`.
#[derive(Deserialize)]
struct Files {
    files: Vec<String>,
}

/// Those of `longhaul compare`.
#[derive(Deserialize)]
struct Both {
    a: String,
    b: String,
}

/// Of `longhaul analyze`.
///
/// # Errors
/// The result does not say what was analysed.
pub(super) fn analyzed(read: &Read<'_>, result: &AnalyzeResult) -> Result<String, Failure> {
    // Longer results are told of as far as the command's own page would.
    let told = |flows: usize| AnalyzeResult {
        totals: result.totals,
        flows_total: result.flows_total,
        flows: result.flows[..flows].to_vec(),
    };
    let shortened = (result.flows.len() > PAGE_FLOWS).then(|| told(PAGE_FLOWS));
    let result = shortened.as_ref().unwrap_or(result);
    let (flows, left_out) = match over_time(read, result) {
        Ok(flows) if flows.is_empty() => (flows, Vec::new()),
        Ok(flows) => {
            let why = "Intervals over time are left out: only the --html of longhaul analyze draws them.";
            (flows, vec![why.to_owned()])
        }
        Err(why) => (Vec::new(), vec![format!("Figures over time are left out: {why}")]),
    };
    let report = capture::Report {
        title: named(&read.asked::<Files>()?.files.join(", ")),
        started_at: named(&read.saved.started_at),
        longhaul: named(&read.saved.longhaul),
        verdict: text::analyze::verdict(result),
        caveats: read.saved.caveats.clone(),
        flows,
        flows_total: result.flows_total,
        text: text::analyze::report(result),
        left_out,
    };
    Ok(report.html())
}

/// The largest flows, as far as the series of milliseconds has them.
///
/// # Errors
/// Why there is no series, or why it does not show what was.
fn over_time(read: &Read<'_>, result: &AnalyzeResult) -> Result<Vec<capture::Flow>, String> {
    if result.totals.gaps > 0 {
        // A millisecond without a row is one in which nothing passed, or one that was not captured.
        let why = "the result does not say when the capture lost packets; the --html of longhaul analyze draws it";
        return Err(why.into());
    }
    let mut figures = Figures::of(&result.flows, Gaps::default());
    read.table(SERIES, |file| {
        read_series(file, |flow, forward, at_ns, row| figures.millisecond(flow, forward, at_ns, row))
    })?;
    Ok(figures.flows())
}

/// Of `longhaul compare` of two points, or of two runs with two points each.
///
/// # Errors
/// Another result has no page, or it does not say what was compared.
pub(super) fn compared(read: &Read<'_>, result: &CompareResult) -> Result<String, Failure> {
    let Some(points) = &result.points else { return Err(read.no_page("longhaul compare --behaviour of one point")) };
    let second = result.second_points.as_ref();
    if [Some(points), second].into_iter().flatten().any(is_too_long) {
        return Err(read.too_long());
    }
    let asked: Both = read.asked()?;
    let mut left_out = Vec::new();
    let first = delays(read, points).map_err(|why| left_out.push(format!("One-way delays are left out: {why}"))).ok();
    let mut runs = vec![drawn(first, points)];
    if let Some(second) = second {
        let why = "One-way delays of the second run are left out: only the --html of longhaul compare draws them.";
        left_out.push(why.into());
        runs.push(drawn(None, second));
    }
    let lost = |points: &Points| points.gaps.iter().any(|gaps| gaps.count > 0);
    if lost(points) || second.is_some_and(lost) {
        left_out.push("When captures lost packets is left out: only the --html of longhaul compare draws it.".into());
    }
    let said = |behaviour: &Behaviour| (behaviour.alike, text::compare::alike(behaviour));
    let report = compared::Report {
        title: named(&format!("{} and {}", asked.a, asked.b)),
        started_at: named(&read.saved.started_at),
        longhaul: named(&read.saved.longhaul),
        alike: result.behaviour.as_ref().map(said),
        found: text::compare::found(result),
        caveats: read.saved.caveats.clone(),
        directions: numbered(runs),
        text: text::compare::report(result),
        left_out,
    };
    Ok(report.html())
}

/// Whether it has more than any comparison: each is drawn.
fn is_too_long(points: &Points) -> bool {
    let bins = |shown: &Shown| shown.intervals.len().max(shown.ack_intervals.len());
    points.directions.iter().any(|shown| shown.between.lost.len() > RUNS_MOST || bins(shown) > BINS_MOST)
}

/// The delays between the points, as the table has them.
///
/// # Errors
/// Why there is no table.
fn delays(read: &Read<'_>, points: &Points) -> Result<Delays, String> {
    let mut delays = Delays::default();
    read.table(DELAYS, |file| {
        read_delays(file, |a_ns, b_ns, delay_ns| {
            // A row does not say its direction: the delay is the time from A to B, or the same from B to A.
            let later_ns = b_ns.saturating_sub(a_ns) as f64 - points.clock.offset_at(a_ns);
            let goes_there = (delay_ns - later_ns).abs() <= (delay_ns + later_ns).abs();
            let direction = if goes_there { PathDirection::AToB } else { PathDirection::BToA };
            let (path, sequence, payload_bytes, after_gap) = (0, 0, 0, false);
            delays.add(&Reached { direction, path, sequence, payload_bytes, a_ns, b_ns, delay_ns, after_gap });
        })
    })?;
    Ok(delays)
}

/// What the page draws of a run. Without delays there is no time to draw losses over.
fn drawn(delays: Option<Delays>, points: &Points) -> Vec<compared::BetweenPoints> {
    let are_known = delays.is_some();
    let mut directions = delays.unwrap_or_default().drawn(&[Gaps::default(), Gaps::default()], points);
    if !are_known {
        for direction in &mut directions {
            (direction.column_s, direction.lost_s) = (0.0, Vec::new());
        }
    }
    directions
}
