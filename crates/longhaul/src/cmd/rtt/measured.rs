//! What is known of a measurement, from what is observed on its way.

use longhaul_rtt::probe_log::{ProbeKind, ProbeRow};
use longhaul_rtt::{Counts, Gap, GapReason, Observed, PathChange, RttParameters, Statistics};
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use crate::cmd::rtt::live::Live;
use crate::cmd::rtt::log::SegmentLog;
use crate::output::limited::LimitedLines;

/// Lost probes at the end of a session that may prove to be a server's end: more are losses whatever comes.
const TRAILING_MOST: usize = 16_384;

pub(crate) struct Measured {
    pub(crate) kind: ProbeKind,
    pub(crate) statistics: Statistics,
    pub(crate) counts: Counts,
    pub(crate) skipped: Nanos,
    pub(crate) log: Option<SegmentLog>,
    pub(crate) live: Live,
    /// Lines about changes of the route, which the other host causes by its answers.
    pub(crate) changes: LimitedLines,
    /// Lost probes after the last answer, where a server could have ended.
    trailing: Vec<ProbeRow>,
    /// When the latest gap ended.
    gap_to_ns: i64,
    /// Sums of sessions before this one.
    before: Counts,
    /// The number of the next probe.
    pub(crate) next: u64,
    /// When the latest probe was sent.
    pub(crate) last_ns: Option<i64>,
}

impl Measured {
    pub(crate) fn new(kind: ProbeKind, asked: &RttParameters, log: Option<SegmentLog>, live: Live) -> Self {
        Self {
            kind,
            statistics: Statistics::by_sizes(&asked.sizes),
            counts: Counts::default(),
            skipped: Nanos::ZERO,
            log,
            live,
            changes: LimitedLines::default(),
            trailing: Vec::new(),
            gap_to_ns: i64::MIN,
            before: Counts::default(),
            next: asked.first_sequence,
            last_ns: None,
        }
    }

    pub(crate) fn take(&mut self, observed: Observed) {
        self.counts = self.before.plus(&observed.counts);
        self.live.take(&observed.recent);
        if let Some(log) = &mut self.log {
            let server = (self.kind == ProbeKind::Udp).then(|| self.counts.responder());
            log.say(self.counts.client(), server);
        }
        for row in observed.rows {
            self.next = row.sequence + 1;
            self.last_ns = Some(row.sent_ns);
            let may_be_its_end = self.kind == ProbeKind::Udp && row.rtt_ns.is_none();
            self.trailing.push(row);
            if !may_be_its_end || self.trailing.len() >= TRAILING_MOST {
                self.flush();
            }
        }
        observed.gaps.into_iter().for_each(|gap| self.gap(gap));
        observed.path_changes.into_iter().for_each(|change| self.path_change(change));
        if let Some(ended) = observed.ended {
            self.skipped = self.skipped.saturating_add(ended.skipped);
        }
    }

    /// Rows that are there whatever comes.
    pub(crate) fn flush(&mut self) {
        self.trailing.iter().for_each(|row| self.statistics.take(row));
        if let Some(log) = &mut self.log {
            log.take(&self.trailing);
        }
        self.trailing.clear();
    }

    fn path_change(&mut self, change: PathChange) {
        self.changes.say(&change);
        if let Some(log) = &mut self.log {
            log.path_change(change.clone());
        }
        self.statistics.path_change(change);
    }

    pub(crate) fn gap(&mut self, gap: Gap) {
        self.flush();
        self.gap_to_ns = gap.to_ns;
        self.statistics.gap(&gap);
        if let Some(log) = &mut self.log {
            log.gap(gap);
        }
    }

    /// Nothing more comes. `why`: the last session broke off, and no other began.
    pub(crate) fn flush_end(&mut self, why: Option<GapReason>, now_ns: i64) {
        match why {
            Some(why) => self.session_over(why, now_ns),
            None => self.flush(),
        }
    }

    /// A session is over; another one began at `now_ns`. Lost probes at the end of a session that the server closed, or whose address this
    /// host lost, are left out.
    pub(crate) fn session_over(&mut self, why: GapReason, now_ns: i64) {
        self.before = self.counts;
        let mut from_ns = self.last_ns.unwrap_or(now_ns).max(self.gap_to_ns);
        let mut left_out = 0;
        if matches!(why, GapReason::ServerEnded | GapReason::AddressChanged)
            && let Some(first) = self.trailing.first()
        {
            from_ns = first.sent_ns;
            left_out = self.trailing.len() as u64;
            self.trailing.clear();
        }
        self.gap(Gap { why, from_ns, to_ns: now_ns, step_ns: 0, left_out });
    }
}

/// The part of `asked` that is left after `passed`, with `sent` probes; `None` where nothing is.
pub(crate) fn rest(asked: &RttParameters, passed: Nanos, sent: u64) -> Option<RttParameters> {
    let amount = match asked.amount {
        // A shorter one has no probe.
        Amount::DurationNs(ns) => {
            Amount::DurationNs(ns.checked_sub(passed.0).filter(|ns| *ns >= asked.interval_ns.max(1_000_000))?)
        }
        Amount::Packets(count) => Amount::Packets(count.checked_sub(sent).filter(|count| *count > 0)?),
        Amount::Bytes(_) => return None,
    };
    Some(RttParameters { amount, first_sequence: asked.first_sequence + sent, ..asked.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_time_and_of_probes() {
        let of = |amount| RttParameters { amount, first_sequence: 100, ..RttParameters::default() };
        let time = of(Amount::DurationNs(10_000_000_000));
        let left = rest(&time, Nanos::from_secs(4), 400).unwrap();
        assert_eq!((left.amount, left.first_sequence), (Amount::DurationNs(6_000_000_000), 500));
        assert_eq!(rest(&time, Nanos::from_millis(9_995), 990), None);
        let probes = of(Amount::Packets(50));
        assert_eq!(rest(&probes, Nanos::from_secs(4), 20).unwrap().amount, Amount::Packets(30));
        assert_eq!(rest(&probes, Nanos::from_secs(4), 50), None);
    }
}
