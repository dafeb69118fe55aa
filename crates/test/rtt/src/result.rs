//! The figures of a measurement.

use longhaul_result::Caveat;
use serde::{Deserialize, Serialize};

use crate::account::Counts;
use crate::by_size::BySize;
use crate::caveats;
use crate::clocks::{ClockState, Gap, GapReason, OneWayDelays};
use crate::over_time::OverTime;
use crate::parameters::RttEndReport;
use crate::path_change::PathChange;
use crate::probe_log::{EndStamps, ProbeKind};

/// What a measurement of round trips found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttResult {
    /// How probes were made.
    pub kind: ProbeKind,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered before the time-out.
    pub received: u64,
    /// Probes not answered by then.
    pub lost: u64,
    /// Answers beyond the first to a probe.
    pub duplicates: u64,
    /// Answers that came after that to a later probe (RFC 4737 §3).
    pub reordered: u64,
    /// From the first probe to the last, nanoseconds.
    pub duration_ns: u64,
    /// Round trips without the time inside the responder; `None` without an answer.
    pub rtt: Option<RttQuantiles>,
    /// How much successive round trips differ (RFC 3393), of neighbours that both were answered: absolute values.
    pub ipdv: Option<Spread>,
    /// How much longer round trips are than the least (RFC 5481 §4.2).
    pub pdv: Option<Spread>,
    /// How the delay forward varied; `None` where the responder does not tell its time.
    pub forward: Option<OneWayVariation>,
    /// How the delay backward varied.
    pub backward: Option<OneWayVariation>,
    /// The delay of one direction, nanoseconds: always null: see `one_way`.
    pub one_way_delay_ns: Option<i64>,
    /// Probes in runs of loss: how many runs there were.
    pub loss_runs: u64,
    /// Probes of the longest run.
    pub longest_loss_run: u64,
    /// The first thousand runs of loss.
    pub losses: Vec<LossRun>,
    /// Runs of loss that lasted a second or more, from the first lost probe to the next one answered.
    pub outages: u64,
    /// The longest of them, nanoseconds.
    pub longest_outage_ns: u64,
    /// Number of times in which probes said nothing about the path. They are neither losses nor outages.
    #[serde(default)]
    pub gap_count: u64,
    /// How long they lasted in all, nanoseconds.
    #[serde(default)]
    pub gaps_ns: u64,
    /// The first thousand of them.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Route changes, as far as this host sees them: how many.
    #[serde(default)]
    pub path_change_count: u64,
    /// The first thousand of them. A change of the forward route, beyond this host's own, shows by the round trip alone.
    #[serde(default)]
    pub path_changes: Vec<PathChange>,
    /// How often the responder's clock was set while probes were in flight: one direction then looks longer and the other shorter. `forward`
    /// and `backward` exclude it.
    #[serde(default)]
    pub responder_steps: u64,
    /// What both hosts say of their clocks; `None` where one was not asked.
    #[serde(default)]
    pub clocks: Clocks,
    /// The delay of each direction; `None` unless both clocks are synchronised.
    #[serde(default)]
    pub one_way: Option<OneWayDelays>,
    /// Who took the time stamps.
    pub timestamps: EndsStamps,
    /// How much longer round trips are than the least: buckets in rising order, without empty ones.
    pub histogram: Vec<HistogramBucket>,
    /// Round trips over time.
    pub over_time: OverTime,
    /// Round trips by the size of probes; `None` where all have one size.
    pub by_size: Option<BySize>,
}

/// What hosts say of their clocks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clocks {
    /// The host that sends probes.
    pub client: Option<ClockState>,
    /// The responder.
    pub server: Option<ClockState>,
}

/// Who took the time stamps at each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndsStamps {
    /// At the host that sends probes.
    pub client: EndStamps,
    /// At the responder; `None` where it does not tell its time.
    pub server: Option<EndStamps>,
}

/// Quantiles of round trips, nanoseconds, within 0.01 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttQuantiles {
    /// The least.
    pub min_ns: u64,
    /// A tenth are at most this.
    pub p10_ns: u64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// 99.9 % are at most this.
    pub p99_9_ns: u64,
    /// The greatest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stddev_ns: f64,
}

/// Quantiles of a variation, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Half are at most this.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// 99.9 % are at most this.
    pub p99_9_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

/// How the delay of one direction varied. It excludes the offset of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWayVariation {
    /// How much successive delays differ (RFC 3393): absolute values.
    pub ipdv: Spread,
    /// How much longer delays are than the least (RFC 5481 §4.2), of at most 65,536 probes spread over the measurement. What the clocks drift
    /// apart is part of it.
    pub pdv: Spread,
}

/// Probes lost one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossRun {
    /// The number of the first.
    pub first_sequence: u64,
    /// How many.
    pub probes: u64,
}

/// Round trips that are longer than the least by about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramBucket {
    /// At most so much longer than the least, nanoseconds, and more than the bucket before.
    pub up_to_ns: u64,
    /// How many.
    pub probes: u64,
}

/// Doubts about the figures. `skipped_ns`: time by which the schedule of probes was put off. `remote`: the responder's report.
pub fn caveats_of(counts: &Counts, skipped_ns: u64, remote: Option<&RttEndReport>) -> Vec<Caveat> {
    let mut all = Vec::new();
    let [sent, received] = [counts.sent_by, counts.received_by].map(|stampers| stampers.lacking(counts.answered));
    if sent + received > 0 {
        let best = if counts.sent_by.nic + counts.received_by.nic > 0 { "NIC" } else { "kernel" };
        let message = format!(
            "of {} answered probes, {sent} have no time stamp of the {best} for sending and {received} none for receiving",
            counts.answered
        );
        all.push(Caveat::new(caveats::STAMPS_MISSING, message, "probe less often, or on a host with less load"));
    }
    if counts.ignored + counts.impossible > 0 {
        let message = format!(
            "{} datagrams were not answers to these probes, and {} answers came before their probes by the clock",
            counts.ignored, counts.impossible
        );
        let remedy = "look for a host that answers in the responder's place, and for a clock that is stepped";
        all.push(Caveat::new(caveats::ANSWERS_IGNORED, message, remedy));
    }
    if counts.late > 0 {
        let message = format!("{} answers came after the time-out", counts.late);
        all.push(Caveat::new(caveats::ANSWERS_LATE, message, "give a longer time-out"));
    }
    if counts.dropped > 0 {
        let message =
            format!("this host's socket dropped {} packets, as it was full or they were damaged", counts.dropped);
        all.push(Caveat::new(
            caveats::ANSWERS_DROPPED,
            message,
            "run it as root, whose sockets may be larger, or raise net.core.rmem_max",
        ));
    }
    if let Some(limited) = remote.map(|remote| remote.limited).filter(|limited| *limited > 0) {
        let message = format!("the responder left {limited} probes without an answer, as they came too often");
        all.push(Caveat::new(caveats::ANSWERS_LIMITED, message, "send probes less often"));
    }
    if let Some(dropped) = remote.map(|remote| remote.dropped).filter(|dropped| *dropped > 0) {
        let message = format!("the responder's socket dropped {dropped} packets, as it was full or they were damaged");
        all.push(Caveat::new(
            caveats::PROBES_DROPPED,
            message,
            "send probes less often, or end what else keeps that host busy",
        ));
    }
    if skipped_ns > 0 {
        let message = format!("probes left {} ms late in all", skipped_ns / 1_000_000);
        all.push(Caveat::new(
            caveats::INTERVAL_NOT_KEPT,
            message,
            "probe less often, and keep the host from suspending",
        ));
    }
    all
}

/// A doubt where there are gaps.
pub fn caveats_of_gaps(result: &RttResult) -> Option<Caveat> {
    let mut reasons: Vec<(GapReason, u64)> = Vec::new();
    // A pause is the user's, and another session is no doubt.
    let doubts = |gap: &&Gap| !matches!(gap.why, GapReason::Paused | GapReason::SessionRenewed);
    for gap in result.gaps.iter().filter(doubts) {
        match reasons.iter_mut().find(|(why, _)| *why == gap.why) {
            Some((_, count)) => *count += 1,
            None => reasons.push((gap.why, 1)),
        }
    }
    let mut parts: Vec<String> = reasons.iter().map(|(why, count)| format!("{} {count}", why.words())).collect();
    if result.responder_steps > 0 {
        parts.push(format!("the responder's clock was set {}", result.responder_steps));
    }
    if parts.is_empty() {
        return None;
    }
    let message = format!(
        "for {:.1} s in all the probes say nothing about the path, which does not count as loss; how often: {}",
        result.gaps_ns as f64 / 1e9,
        parts.join(", ")
    );
    let remedy = "keep hosts from suspending, and clocks from being set (chrony: makestep)";
    Some(Caveat::new(caveats::MEASUREMENT_HAS_GAPS, message, remedy))
}

/// A doubt where the route changed: round trips are those of several routes.
pub fn caveats_of_path_changes(result: &RttResult) -> Option<Caveat> {
    (result.path_change_count > 0).then(|| {
        let lost: u64 = result.path_changes.iter().map(|change| change.lost).max().unwrap_or(0);
        let message = format!(
            "the route to the host or back changed {} times while probes were sent; up to {lost} probes were lost during the change",
            result.path_change_count
        );
        Caveat::new(caveats::PATH_CHANGED, message, "look at `path_changes`: round trips before and after are of two routes")
    })
}
