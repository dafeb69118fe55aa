//! Route changes during a measurement, and what of the round trip changed with them.

use longhaul_rtt::PathChange;
use serde::Serialize;

use crate::delay::levels::DelayShift;

/// A step of the delay is found so near to the change that made it, nanoseconds: to a second and a half where it is small beside the jitter.
const NEAR_NS: u64 = 2_000_000_000;
/// Two routes with their interfaces and addresses are shorter.
const LETTERS_MOST: usize = 300;
/// Changes that a file lists; of the others it says how many there are.
const LISTED_MOST: usize = 10;

/// The route changed during the measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteChange {
    /// When, nanoseconds after the first probe.
    pub at_ns: u64,
    /// What changed, in words: a route, the TTL of answers.
    pub what: String,
    /// By how much the round trip became longer with it; `None` where no step of it shows.
    pub rtt_ns: Option<f64>,
}

impl RouteChange {
    /// Each of `changes` with the shift of the round trip that came with it. Changes before the first probe are none.
    pub(crate) fn all(changes: &[PathChange], began_ns: i64, shifts: &[DelayShift]) -> Vec<Self> {
        let one = |change: &PathChange| {
            let at_ns = u64::try_from(change.at_ns.checked_sub(began_ns)?).ok()?;
            // A log of others may have anything in the name of an interface.
            let what = change.to_string().chars().filter(|letter| !letter.is_control()).take(LETTERS_MOST).collect();
            let near = |shift: &&DelayShift| {
                let (earliest, latest) = (at_ns.saturating_sub(change.within_ns), at_ns);
                shift.at_ns.saturating_add(NEAR_NS) >= earliest && shift.at_ns <= latest.saturating_add(NEAR_NS)
            };
            let step = shifts.iter().filter(near).min_by_key(|shift| shift.at_ns.abs_diff(at_ns));
            Some(Self { at_ns, what, rtt_ns: step.map(|shift| shift.rtt_ns) })
        };
        changes.iter().filter_map(one).collect()
    }

    /// What happened, in a line.
    pub fn told(&self) -> String {
        let seconds = self.at_ns as f64 / 1e9;
        let step = match self.rtt_ns {
            Some(ns) => format!("round trip {:+.3} ms with it", ns / 1e6),
            None => "no step of the round trip shows with it".into(),
        };
        format!("at {seconds:.1} s, {}: {step}", self.what)
    }
}

/// The lines of a path file.
pub(crate) fn comments(changes: &[RouteChange]) -> Vec<String> {
    let mut lines: Vec<String> =
        changes.iter().take(LISTED_MOST).map(|change| format!("The route changed {}.", change.told())).collect();
    if changes.len() > LISTED_MOST {
        lines.push(format!("The route changed {} times more.", changes.len() - LISTED_MOST));
    }
    lines
}

/// What the measurement does not say because of them; `None` where each change has its step.
pub(crate) fn not_known(changes: &[RouteChange], delay_wanders: bool) -> Option<String> {
    let without = changes.iter().filter(|change| change.rtt_ns.is_none()).count();
    if without == 0 {
        return None;
    }
    let times = if without == 1 { "once".to_owned() } else { format!("{without} times") };
    let why = if delay_wanders {
        "and it is unknown whether delay changed with it, because delay changes all the time or there are too few probes"
    } else {
        "without a step of the round trip that shows"
    };
    Some(format!(
        "how the routes of the probes differ: the route changed {times} {why}; delay, jitter and loss are of all these routes together"
    ))
}
