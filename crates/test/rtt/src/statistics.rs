//! Rows to figures, in bounded memory.

use hdrhistogram::Histogram;
use longhaul_units::Thinned;

use crate::by_size::Sizes;
use crate::clocks::responder::{BothWays, ResponderClock};
use crate::clocks::state::bound_ns;
use crate::clocks::{Gap, OneWayDelay, OneWayDelays};
use crate::over_time::Stretches;
use crate::path_change::{Changes, PathChange};
use crate::probe_log::{ProbeKind, ProbeRow};
use crate::result::{Clocks, EndsStamps, HistogramBucket, LossRun, OneWayVariation, RttQuantiles, RttResult, Spread};

/// Longest time that a histogram tells apart, nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Digits of round trips that are told apart: on a long path microseconds count.
const RTT_DIGITS: u8 = 4;
/// The same of what they differ by.
const DIFFERENCE_DIGITS: u8 = 3;
/// Runs of loss that are listed.
const RUNS_MOST: usize = 1_000;
/// A run of loss of this length is an outage, nanoseconds.
const OUTAGE_NS: u64 = 1_000_000_000;
/// Gaps that are listed.
const GAPS_MOST: usize = 1_000;
/// Delays of a direction that are kept.
const KEPT: usize = 65_536;
/// The end of the first bucket of the histogram in the result, nanoseconds.
const BUCKET_LEAST_NS: f64 = 1_000.0;
/// Buckets grow by this factor.
const BUCKET_GROWTH: f64 = 1.1;

fn histogram(digits: u8) -> Histogram<u64> {
    // The bounds are constants that the library takes, so this cannot fail.
    Histogram::new_with_max(LONGEST_NS, digits).expect("constant bounds")
}

/// Figures of the rows so far.
#[derive(Debug)]
pub struct Statistics {
    sent: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    /// When the first and the last probe were sent.
    span: Option<(i64, i64)>,
    rtt: Histogram<u64>,
    /// Sum and sum of squares of what round trips differ from the first, for mean and standard deviation.
    first_rtt: i64,
    sums: (f64, f64),
    ipdv: Differences,
    forward: Direction,
    backward: Direction,
    responder: ResponderClock,
    gaps: Vec<Gap>,
    gap_count: u64,
    gaps_ns: u64,
    run: Option<(LossRun, i64)>,
    runs: Vec<LossRun>,
    run_count: u64,
    longest_run: u64,
    outages: u64,
    longest_outage_ns: u64,
    /// When the latest answered probe was sent.
    answered_ns: Option<i64>,
    path_changes: Changes,
    by_size: Sizes,
    over_time: Stretches,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            sent: 0,
            received: 0,
            duplicates: 0,
            reordered: 0,
            span: None,
            rtt: histogram(RTT_DIGITS),
            first_rtt: 0,
            sums: (0.0, 0.0),
            ipdv: Differences::default(),
            forward: Direction::default(),
            backward: Direction::default(),
            responder: ResponderClock::default(),
            gaps: Vec::new(),
            gap_count: 0,
            gaps_ns: 0,
            run: None,
            runs: Vec::new(),
            run_count: 0,
            longest_run: 0,
            outages: 0,
            longest_outage_ns: 0,
            answered_ns: None,
            path_changes: Changes::default(),
            by_size: Sizes::default(),
            over_time: Stretches::default(),
        }
    }
}

impl Statistics {
    /// Of probes that have one of these payloads each, bytes; none where all have the same.
    pub fn by_sizes(payloads: &[u32]) -> Self {
        Self { by_size: Sizes::new(payloads), ..Self::default() }
    }

    /// Takes the next row.
    pub fn take(&mut self, row: &ProbeRow) {
        self.sent += 1;
        self.duplicates += u64::from(row.copies);
        self.reordered += u64::from(row.late_by > 0);
        self.span = Some((self.span.map_or(row.sent_ns, |(first, _)| first), row.sent_ns));
        if let (Some(forward_ns), Some(backward_ns)) = (row.forward_ns, row.backward_ns) {
            let both = BothWays { sequence: row.sequence, forward_ns, backward_ns };
            if let Some(both) = self.responder.take(both) {
                self.take_both(both);
            }
        }
        self.ipdv.take(row.sequence, row.rtt_ns);
        self.by_size.take(row.payload_bytes, row.rtt_ns);
        self.over_time.take(row.sent_ns, row.rtt_ns);
        match row.rtt_ns {
            Some(rtt) => {
                self.end_run(row.sent_ns);
                self.answered_ns = Some(row.sent_ns);
                if self.received == 0 {
                    self.first_rtt = rtt;
                }
                let apart = rtt.saturating_sub(self.first_rtt) as f64;
                self.sums = (self.sums.0 + apart, self.sums.1 + apart * apart);
                self.received += 1;
                self.rtt.saturating_record(rtt.unsigned_abs());
            }
            None => {
                let new = (LossRun { first_sequence: row.sequence, probes: 0 }, row.sent_ns);
                self.run.get_or_insert(new).0.probes += 1;
            }
        }
    }

    fn take_both(&mut self, both: BothWays) {
        self.forward.take(both.sequence, both.forward_ns);
        self.backward.take(both.sequence, both.backward_ns);
    }

    /// Takes a gap between the rows before and the next one: a run of loss ends there, and what lies on either side is not compared.
    pub fn gap(&mut self, gap: &Gap) {
        self.gap_count += 1;
        self.gaps_ns = self.gaps_ns.saturating_add(gap.lasted_ns());
        if self.gaps.len() < GAPS_MOST {
            self.gaps.push(*gap);
        }
        if let Some((_, last_ns)) = self.span {
            self.end_run(last_ns);
        }
        while let Some(both) = self.responder.drain() {
            self.take_both(both);
        }
        self.responder.own_step(gap.step_ns);
        [&mut self.ipdv, &mut self.forward.differences, &mut self.backward.differences]
            .into_iter()
            .for_each(|differences| differences.last = None);
    }

    /// Takes a route change; rows of that time may come before or after it.
    pub fn path_change(&mut self, change: PathChange) {
        self.path_changes.change(change);
    }

    /// A run of loss ends with what was sent at `sent_ns`.
    fn end_run(&mut self, sent_ns: i64) {
        let Some((run, since_ns)) = self.run.take() else { return };
        self.run_count += 1;
        self.path_changes.run(self.answered_ns.unwrap_or(since_ns), sent_ns, run.probes);
        self.longest_run = self.longest_run.max(run.probes);
        let lasted = u64::try_from(sent_ns.saturating_sub(since_ns)).unwrap_or(0);
        if lasted >= OUTAGE_NS {
            self.outages += 1;
            self.longest_outage_ns = self.longest_outage_ns.max(lasted);
        }
        if self.runs.len() < RUNS_MOST {
            self.runs.push(run);
        }
    }

    /// The figures.
    pub fn finish(mut self, kind: ProbeKind, timestamps: EndsStamps, clocks: Clocks) -> RttResult {
        let (first, last) = self.span.unwrap_or_default();
        self.end_run(last);
        while let Some(both) = self.responder.drain() {
            self.take_both(both);
        }
        let (forward, backward) = (self.forward.finish(), self.backward.finish());
        // A clock that was set is no clock that was kept to the time.
        let bound = bound_ns(clocks.client.as_ref(), clocks.server.as_ref()).filter(|_| self.responder.is_steady());
        let one_way = bound.zip(forward).zip(backward).map(|((bound_ns, forward), backward)| OneWayDelays {
            forward: forward.delay,
            backward: backward.delay,
            bound_ns,
        });
        let quantiles = self.quantiles();
        let least = quantiles.map_or(0, |quantiles| quantiles.min_ns);
        let over_least = |ns: u64| ns.saturating_sub(least);
        let answered = self.received > 0;
        let histogram = self.buckets(least);
        let (path_change_count, path_changes) = self.path_changes.finish();
        RttResult {
            kind,
            sent: self.sent,
            received: self.received,
            lost: self.sent - self.received,
            duplicates: self.duplicates,
            reordered: self.reordered,
            duration_ns: u64::try_from(last.saturating_sub(first)).unwrap_or(0),
            rtt: quantiles,
            ipdv: self.ipdv.spread(),
            pdv: answered.then(|| spread(|quantile| over_least(self.rtt.value_at_quantile(quantile)))),
            forward: forward.map(|found| found.variation),
            backward: backward.map(|found| found.variation),
            one_way_delay_ns: None,
            loss_runs: self.run_count,
            longest_loss_run: self.longest_run,
            losses: self.runs,
            outages: self.outages,
            longest_outage_ns: self.longest_outage_ns,
            gap_count: self.gap_count,
            gaps_ns: self.gaps_ns,
            gaps: self.gaps,
            path_change_count,
            path_changes,
            responder_steps: self.responder.steps(),
            clocks,
            one_way,
            timestamps,
            by_size: self.by_size.finish(),
            over_time: self.over_time.finish(),
            histogram,
        }
    }

    /// What was longer than `least` by how much, in buckets that grow from a microsecond on.
    fn buckets(&self, least: u64) -> Vec<HistogramBucket> {
        let mut buckets: Vec<HistogramBucket> = Vec::new();
        let mut up_to = BUCKET_LEAST_NS;
        for value in self.rtt.iter_recorded() {
            let over = value.value_iterated_to().saturating_sub(least);
            while up_to < over as f64 {
                up_to *= BUCKET_GROWTH;
            }
            let probes = value.count_since_last_iteration();
            match buckets.last_mut().filter(|last| last.up_to_ns == up_to as u64) {
                Some(last) => last.probes += probes,
                None => buckets.push(HistogramBucket { up_to_ns: up_to as u64, probes }),
            }
        }
        buckets
    }

    fn quantiles(&self) -> Option<RttQuantiles> {
        let count = self.received as f64;
        let at = |quantile| self.rtt.value_at_quantile(quantile);
        (self.received > 0).then(|| {
            let mean = self.sums.0 / count;
            RttQuantiles {
                min_ns: self.rtt.min(),
                p10_ns: at(0.1),
                p50_ns: at(0.5),
                p90_ns: at(0.9),
                p99_ns: at(0.99),
                p99_9_ns: at(0.999),
                max_ns: self.rtt.max(),
                mean_ns: self.first_rtt as f64 + mean,
                stddev_ns: (self.sums.1 / count - mean * mean).max(0.0).sqrt(),
            }
        })
    }
}

fn spread(at: impl Fn(f64) -> u64) -> Spread {
    Spread { p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), p99_9_ns: at(0.999), max_ns: at(1.0) }
}

/// How much values of successive probes differ.
#[derive(Debug)]
struct Differences {
    histogram: Histogram<u64>,
    last: Option<(u64, i64)>,
}

impl Default for Differences {
    fn default() -> Self {
        Self { histogram: histogram(DIFFERENCE_DIGITS), last: None }
    }
}

impl Differences {
    fn take(&mut self, sequence: u64, value: Option<i64>) {
        let Some(value) = value else { return };
        if let Some((last, before)) = self.last
            && last.checked_add(1) == Some(sequence)
        {
            self.histogram.saturating_record(value.abs_diff(before));
        }
        self.last = Some((sequence, value));
    }

    fn spread(&self) -> Option<Spread> {
        (!self.histogram.is_empty()).then(|| spread(|quantile| self.histogram.value_at_quantile(quantile)))
    }
}

/// Raw differences of two clocks, of one direction.
#[derive(Debug)]
struct Direction {
    differences: Differences,
    kept: Thinned<i64>,
    least: Option<i64>,
}

impl Default for Direction {
    fn default() -> Self {
        Self { differences: Differences::default(), kept: Thinned::keeping(KEPT), least: None }
    }
}

impl Direction {
    fn take(&mut self, sequence: u64, value: i64) {
        self.differences.take(sequence, Some(value));
        self.least = Some(self.least.map_or(value, |least| least.min(value)));
        self.kept.push(value);
    }

    fn finish(&mut self) -> Option<OfDirection> {
        let least = self.least?;
        let kept = std::mem::take(&mut self.kept).sorted();
        let at = |quantile: f64| {
            let place = ((quantile * kept.len() as f64).ceil() as usize).saturating_sub(1);
            kept.get(place).copied().unwrap_or(least)
        };
        let variation = OneWayVariation {
            ipdv: self.differences.spread().unwrap_or_default(),
            pdv: spread(|quantile| at(quantile).abs_diff(least)),
        };
        Some(OfDirection { variation, delay: OneWayDelay { min_ns: least, p50_ns: at(0.5), p99_ns: at(0.99) } })
    }
}

/// What is known of a direction at the end.
#[derive(Debug, Clone, Copy)]
struct OfDirection {
    variation: OneWayVariation,
    /// By the difference of both clocks.
    delay: OneWayDelay,
}

#[cfg(test)]
mod tests {
    use crate::clocks::{ClockState, GapReason};
    use crate::probe_log::EndStamps;

    use super::*;

    const MS: i64 = 1_000_000;

    /// A row each 400 ms.
    fn row(sequence: u64, rtt_ms: Option<i64>) -> ProbeRow {
        let ns = rtt_ms.map(|ms| ms * MS);
        let sent_ns = sequence as i64 * 400 * MS;
        // The responder's clock is a day ahead.
        let offset = 86_400_000 * MS;
        let (forward_ns, backward_ns) = (ns.map(|ns| ns - 5 * MS + offset), ns.map(|_| 5 * MS - offset));
        ProbeRow { sequence, sent_ns, rtt_ns: ns, forward_ns, backward_ns, ..ProbeRow::default() }
    }

    fn result(rows: &[ProbeRow]) -> RttResult {
        let mut statistics = Statistics::default();
        rows.iter().for_each(|row| statistics.take(row));
        finished(statistics)
    }

    fn finished(statistics: Statistics) -> RttResult {
        let timestamps = EndsStamps { client: EndStamps::default(), server: None };
        statistics.finish(ProbeKind::Udp, timestamps, Clocks::default())
    }

    #[test]
    fn a_gap_is_no_loss_and_ends_a_run_of_them() {
        let mut statistics = Statistics::default();
        [row(0, Some(20)), row(1, None)].iter().for_each(|row| statistics.take(row));
        let hour = 3_600_000 * MS;
        let gap = Gap { why: GapReason::Suspended, from_ns: 400 * MS, to_ns: 400 * MS + hour, step_ns: 0, left_out: 3 };
        statistics.gap(&gap);
        let later =
            |sequence, rtt: Option<i64>| ProbeRow { sent_ns: row(sequence, rtt).sent_ns + hour, ..row(sequence, rtt) };
        [later(2, None), later(3, Some(50))].iter().for_each(|row| statistics.take(row));
        let result = finished(statistics);
        assert_eq!((result.lost, result.loss_runs, result.longest_loss_run, result.outages), (2, 2, 1, 0));
        assert_eq!((result.gap_count, result.gaps_ns, &result.gaps[..]), (1, hour as u64, &[gap][..]));
        // 20 and 50 ms are no neighbours.
        assert_eq!(result.ipdv, None);
    }

    #[test]
    fn steps_of_either_clock_are_cut_out_of_both_directions() {
        let mut statistics = Statistics::default();
        let hour = 3_600_000 * MS;
        for at in 0..300_u64 {
            // The responder's clock is set back by an hour at 100, this host's forward by five seconds at 200.
            let offset = if at < 100 { hour } else { 0 } - if at < 200 { 0 } else { 5_000 * MS };
            if at == 200 {
                let (from_ns, to_ns) = (80_000 * MS, 85_001 * MS);
                let (why, step_ns) = (GapReason::ClockStepped, 5_000 * MS);
                statistics.gap(&Gap { why, from_ns, to_ns, step_ns, left_out: 1 });
            }
            // From 150 on the forward delay is 5 ms longer.
            let forward = if at < 150 { 10 } else { 15 } * MS + at as i64 % 3 * 1_000;
            let backward = 10 * MS + at as i64 % 5 * 1_000;
            statistics.take(&ProbeRow {
                rtt_ns: Some(forward + backward),
                forward_ns: Some(forward + offset),
                backward_ns: Some(backward - offset),
                ..row(at, None)
            });
        }
        let result = finished(statistics);
        assert_eq!((result.responder_steps, result.gap_count), (1, 1));
        let (forward, backward) = (result.forward.unwrap(), result.backward.unwrap());
        assert!(forward.pdv.max_ns.abs_diff(5_002_000) < 10, "{forward:?}");
        assert!(backward.pdv.max_ns <= 4_000 && backward.ipdv.max_ns <= 4_010, "{backward:?}");
        assert_eq!(result.one_way, None);
    }

    #[test]
    fn delays_are_told_where_both_clocks_are_kept_to_the_time() {
        let clock = |max_error_ns| Some(ClockState { synchronised: true, max_error_ns, ..ClockState::default() });
        let delays = |server: Option<ClockState>| {
            let mut statistics = Statistics::default();
            (0..100).for_each(|at| {
                let (forward_ns, backward_ns) = (Some(7 * MS), Some(13 * MS));
                statistics.take(&ProbeRow { forward_ns, backward_ns, ..row(at, Some(20)) });
            });
            let timestamps = EndsStamps { client: EndStamps::default(), server: None };
            statistics.finish(ProbeKind::Udp, timestamps, Clocks { client: clock(10_000), server }).one_way
        };
        let known = delays(clock(2_000)).unwrap();
        assert_eq!((known.forward.p50_ns, known.backward.min_ns, known.bound_ns), (7 * MS, 13 * MS, 12_000));
        assert_eq!(delays(None), None);
    }

    #[test]
    fn losses_come_in_runs_and_long_ones_are_outages() {
        // Lost: 1, then 3 to 5 (1.2 s until 6 is answered), then 8 and 9 at the end.
        let answered = [true, false, true, false, false, false, true, true, false, false];
        let rows: Vec<_> = (0..).zip(answered).map(|(at, answered)| row(at, answered.then_some(20))).collect();
        let result = result(&rows);
        assert_eq!((result.sent, result.received, result.lost), (10, 4, 6));
        let run = |first_sequence, probes| LossRun { first_sequence, probes };
        assert_eq!(result.losses, [run(1, 1), run(3, 3), run(8, 2)]);
        assert_eq!((result.loss_runs, result.longest_loss_run), (3, 3));
        assert_eq!((result.outages, result.longest_outage_ns), (1, 1_200_000_000));
        assert_eq!(result.duration_ns, 3_600_000_000);
    }

    #[test]
    fn duplicates_and_reordering_are_summed() {
        let rows = [
            ProbeRow { copies: 2, ..row(0, Some(20)) },
            ProbeRow { late_by: 3, copies: 1, ..row(1, Some(20)) },
            row(2, Some(20)),
        ];
        let result = result(&rows);
        assert_eq!((result.duplicates, result.reordered, result.lost), (3, 1, 0));
    }

    #[test]
    fn quantiles_and_variations_of_a_known_set() {
        // 20, 21, 22 … 119 ms, and a gap in the middle over which no difference counts.
        let mut rows: Vec<_> = (0..100).map(|at| row(at, Some(20 + at as i64))).collect();
        rows[50] = row(50, None);
        let result = result(&rows);
        let rtt = result.rtt.unwrap();
        let near = |got: u64, ms: u64| assert!(got.abs_diff(ms * 1_000_000) * 500 <= ms * 1_000_000, "{got} {ms}");
        near(rtt.min_ns, 20);
        near(rtt.max_ns, 119);
        near(rtt.p50_ns, 69);
        near(rtt.p90_ns, 110);
        // Mean of 20 … 119 without 70.
        assert!((rtt.mean_ns / 1e6 - (6950.0 - 70.0) / 99.0).abs() < 1e-6, "{}", rtt.mean_ns);
        assert!((rtt.stddev_ns / 1e6 - 29.01).abs() < 0.02, "{}", rtt.stddev_ns);
        near(result.ipdv.unwrap().p50_ns, 1);
        near(result.ipdv.unwrap().max_ns, 1);
        near(result.pdv.unwrap().p90_ns, 90);
        let (forward, backward) = (result.forward.unwrap(), result.backward.unwrap());
        near(forward.pdv.max_ns, 99);
        near(forward.ipdv.max_ns, 1);
        assert_eq!((backward.pdv.max_ns, backward.ipdv.max_ns), (0, 0));
        assert_eq!(result.histogram.iter().map(|bucket| bucket.probes).sum::<u64>(), 99);
        assert!(result.histogram.len() < 50, "{}", result.histogram.len());
        assert!(result.histogram.is_sorted_by_key(|bucket| bucket.up_to_ns));
    }

    #[test]
    fn nothing_and_extremes_have_figures() {
        assert_eq!(result(&[]).rtt, None);
        let all_lost = result(&[row(0, None)]);
        assert_eq!((all_lost.rtt, all_lost.lost, all_lost.histogram.len()), (None, 1, 0));
        let extreme = |ns| ProbeRow { rtt_ns: Some(ns), forward_ns: Some(ns), sent_ns: ns, ..ProbeRow::default() };
        let rows = [extreme(i64::MIN), ProbeRow { sequence: 1, ..extreme(i64::MAX) }];
        assert_eq!(result(&rows).received, 2);
    }

    #[test]
    fn the_variation_of_a_week_is_that_of_probes_spread_over_it() {
        let mut direction = Direction::default();
        (0..1_000_000).for_each(|at| direction.take(at, at as i64 % 1000));
        let variation = direction.finish().unwrap().variation;
        assert!(variation.pdv.p50_ns.abs_diff(500) < 10, "{variation:?}");
    }
}
