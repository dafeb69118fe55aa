//! `longhaul lab run X --plan --json`: what would be run.

use longhaul_experiment::{Experiment, Plan};
use longhaul_units::Nanos;
use serde::Serialize;

/// `parameters` of a plan.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlanParameters<'a> {
    /// Title of the experiment.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) title: &'a str,
    /// The paper that it repeats; empty if none.
    pub(super) source: &'a str,
    /// Runs of each point, if the command said it.
    pub(super) repeat: Option<u32>,
    /// A few points of each series, three runs each.
    pub(super) quick: bool,
    /// Texts in the names of the series; empty: all series.
    pub(super) only: &'a [String],
    /// Rates, buffers and queues will be scaled to what this machine can do.
    pub(super) calibrate: bool,
}

/// `result` of a plan.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlannedRuns {
    /// In the order of the experiment.
    series: Vec<PlannedSeries>,
    /// Runs in all, in random order.
    runs: u64,
    /// About how long all takes, what is before the first run included, and without runs that are rejected.
    time_ns: u64,
    /// About how long that is before the first run: warming up, and finding out what this machine can do.
    before_ns: u64,
}

/// A series of a plan.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlannedSeries {
    /// Its name.
    name: String,
    /// Its points that are run.
    points: Vec<String>,
    /// Runs of each.
    #[cfg_attr(test, schemars(range(min = 1)))]
    runs_of_each: u32,
    /// About how long all of them take.
    time_ns: u64,
}

impl PlannedRuns {
    pub(super) fn of(plan: &Plan, before: Nanos) -> Self {
        let series: Vec<PlannedSeries> = plan
            .series()
            .into_iter()
            .map(|(name, labels, runs_of_each, time)| PlannedSeries {
                name: name.to_owned(),
                points: labels.into_iter().map(str::to_owned).collect(),
                runs_of_each,
                time_ns: time.0,
            })
            .collect();
        let time_ns = all(&series).saturating_add(before.0);
        Self { runs: plan.runs().len() as u64, time_ns, before_ns: before.0, series }
    }
}

/// The time of all.
fn all(series: &[PlannedSeries]) -> u64 {
    series.iter().fold(0, |sum, series| sum.saturating_add(series.time_ns))
}

impl<'a> PlanParameters<'a> {
    pub(super) fn of(experiment: &'a Experiment, args: &'a super::Args) -> Self {
        Self {
            title: &experiment.title,
            source: &experiment.source,
            repeat: args.repeat,
            quick: args.quick,
            only: &args.only,
            calibrate: args.calibrates(experiment),
        }
    }
}
