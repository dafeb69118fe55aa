//! What happened between two points in one direction, packet after packet.

use super::held::Held;
use super::{Between, Delay, LostRun, NotObservable, PathDirection};
use crate::Loss;
use crate::compare::behaviour::{Kind, verdict};
use crate::compare::equivalence::Margins;
use crate::compare::samples::{Losses, Samples, Thinned};

/// Runs of lost packets that are listed.
const MOST_RUNS: usize = 10_000;
/// Delays that quantiles are made of.
const MOST_DELAYS: usize = 1 << 17;

/// Intervals are compared as they are: what bunches acknowledgments moves them by microseconds.
const SPACING: Margins = Margins { asked: Vec::new(), least_ns: 0.0, least_loss: 0.0 };

/// What is kept of a direction of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OfPath {
    /// The run of lost packets that goes on: its place in the list plus one, 0 where it is not listed; and its packets.
    run: Option<(u32, u64)>,
    /// Whether the run has a length: packets before it reached the second point, or it is the first.
    run_began: bool,
    /// Packets that reached the second point since the run before.
    after_packets: u64,
    /// The highest number at the first point of those that passed the second, plus one.
    highest: u64,
    /// When the last data packet and the last without payload passed the first point and the second; 0 before one.
    last_ns: [[i64; 2]; 2],
    /// When the last packet passed the first point; 0 before one.
    pub(super) passed_first_ns: i64,
    /// When the last one that passed both did so, at A and at B.
    pub(super) reached_ns: Option<(i64, i64)>,
}

/// What is known of a packet that did not pass the other point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// That was captured when it was due.
    Captured,
    /// That lost packets when it was due, by its own account, or this packet was given up before it was due.
    InGap,
    /// Its capture had not begun, or was over.
    Outside,
}

/// Packets in the order in which they passed either point.
#[derive(Debug)]
pub(super) struct Account {
    between: Between,
    /// Intervals of data and of packets without payload, at either point.
    intervals: [[Thinned; 2]; 2],
    delays: Delays,
    samples: Samples,
    losses: Losses,
}

impl Account {
    pub(super) fn new(direction: PathDirection) -> Self {
        let between = Between {
            direction,
            sent_packets: 0,
            reached_packets: 0,
            lost_packets: 0,
            unknown_packets: 0,
            not_observable: NotObservable::default(),
            alike_packets: 0,
            reordered_packets: 0,
            delay: None,
            loss_runs: 0,
            longest_loss_run: 0,
            lost: Vec::new(),
            intervals: Default::default(),
            ack_intervals: Default::default(),
            spacing: verdict(&[], &SPACING),
        };
        Self {
            between,
            intervals: Default::default(),
            delays: Delays::default(),
            samples: Samples::default(),
            losses: Losses::default(),
        }
    }

    pub(super) fn direction(&self) -> PathDirection {
        self.between.direction
    }

    /// The capture of the first point lost packets of `flow` before the next, or may have: no run goes on there.
    pub(super) fn cut(&mut self, flow: &mut OfPath) {
        self.end_run(flow, false);
        self.losses.take(Loss { after_packets: flow.after_packets, packets: 0 });
        (flow.after_packets, flow.run_began) = (0, false);
    }

    /// A packet of the first point that looks like others.
    pub(super) fn alike(&mut self, flow: &mut OfPath) {
        self.between.alike_packets += 1;
        self.cut(flow);
    }

    /// A packet of the first point that passed the second too.
    pub(super) fn reached(&mut self, flow: &mut OfPath) {
        self.between.sent_packets += 1;
        self.between.reached_packets += 1;
        self.end_run(flow, true);
        flow.after_packets += 1;
    }

    /// A packet of the first point alone.
    pub(super) fn first_alone(&mut self, held: &Held, flow: &mut OfPath, elsewhere: Elsewhere) {
        let between = &mut self.between;
        match elsewhere {
            Elsewhere::Captured => {}
            Elsewhere::InGap => {
                between.not_observable.at_second_packets += 1;
                self.cut(flow);
                return;
            }
            Elsewhere::Outside => {
                between.not_observable.outside_packets += 1;
                self.cut(flow);
                return;
            }
        }
        between.sent_packets += 1;
        between.lost_packets += 1;
        let payload_bytes = u64::from(held.payload_len());
        if let Some((place, packets)) = &mut flow.run {
            *packets += 1;
            if let Some(run) = place.checked_sub(1).and_then(|place| between.lost.get_mut(place as usize)) {
                run.packets += 1;
                run.last_sequence = held.sequence;
                run.last_at_ns = held.at_ns;
                run.payload_bytes += payload_bytes;
            }
            return;
        }
        between.loss_runs += 1;
        // Behind a gap a run may have begun within it.
        flow.run_began = flow.after_packets > 0;
        let is_listed = between.lost.len() < MOST_RUNS;
        if is_listed {
            between.lost.push(LostRun {
                path: held.path,
                first_sequence: held.sequence,
                last_sequence: held.sequence,
                packets: 1,
                payload_bytes,
                at_ns: held.at_ns,
                last_at_ns: held.at_ns,
            });
        }
        flow.run = Some((if is_listed { between.lost.len() as u32 } else { 0 }, 1));
    }

    fn end_run(&mut self, flow: &mut OfPath, is_whole: bool) {
        let Some((_, packets)) = flow.run.take() else { return };
        self.between.longest_loss_run = self.between.longest_loss_run.max(packets);
        if is_whole && flow.run_began {
            self.losses.take(Loss { after_packets: flow.after_packets, packets });
            flow.after_packets = 0;
        }
    }

    /// A packet of the second point; where it passed there alone, what is known of the first.
    pub(super) fn second(&mut self, held: &Held, flow: &mut OfPath, elsewhere: Elsewhere) {
        let Some((origin, _)) = held.partner() else {
            *match elsewhere {
                Elsewhere::Captured => &mut self.between.unknown_packets,
                Elsewhere::InGap => &mut self.between.not_observable.at_first_packets,
                Elsewhere::Outside => &mut self.between.not_observable.outside_packets,
            } += 1;
            return;
        };
        if !held.is_alike() {
            self.between.reordered_packets += u64::from(origin + 1 < flow.highest);
            flow.highest = flow.highest.max(origin + 1);
        }
    }

    /// The interval that a packet ends at a point, unless one of the captures lost packets in it: `is_cut` says of the time between two
    /// stamps of this point.
    pub(super) fn interval(
        &mut self,
        point: usize,
        held: &Held,
        flow: &mut OfPath,
        is_cut: impl FnOnce(i64, i64) -> bool,
    ) {
        if held.follows() {
            return;
        }
        let kind = usize::from(held.payload_len() == 0);
        let before = std::mem::replace(&mut flow.last_ns[point][kind], held.at_ns);
        if before == 0 || is_cut(before, held.at_ns) {
            return;
        }
        let interval = (held.at_ns - before).max(0);
        let counts = [&mut self.between.intervals, &mut self.between.ack_intervals];
        counts.into_iter().nth(kind).into_iter().for_each(|counts| counts[point].add(interval));
        self.intervals[kind][point].push(interval as f64);
    }

    /// From the first point to the second.
    pub(super) fn delay(&mut self, delay_ns: f64) {
        self.delays.add(delay_ns);
        self.samples.delays_ns.push(delay_ns);
    }

    /// What happened, and samples of it.
    pub(super) fn finish(mut self, flows: &mut [OfPath]) -> (Between, Samples) {
        for flow in flows {
            self.cut(flow);
        }
        self.between.delay = self.delays.summed_up();
        let [data, acks] = &self.intervals;
        let kinds =
            [Kind::series("interval_ns", &data[0], &data[1]), Kind::series("ack_interval_ns", &acks[0], &acks[1])];
        self.between.spacing = verdict(&kinds, &SPACING);
        self.samples.losses = self.losses;
        let [[_, data], [_, acks]] = self.intervals;
        (self.samples.intervals_ns, self.samples.ack_intervals_ns) = (data, acks);
        (self.between, self.samples)
    }
}

/// Delays in bounded memory.
#[derive(Debug)]
struct Delays {
    count: u64,
    min_ns: f64,
    max_ns: f64,
    mean_ns: f64,
    /// Of squares of differences from the mean (Welford, "Note on a method for calculating corrected sums of squares and products",
    /// Technometrics 4, 1962).
    squares: f64,
    spread: Thinned,
}

impl Default for Delays {
    fn default() -> Self {
        let spread = Thinned::keeping(MOST_DELAYS);
        Self { count: 0, min_ns: f64::MAX, max_ns: f64::MIN, mean_ns: 0.0, squares: 0.0, spread }
    }
}

impl Delays {
    fn add(&mut self, delay_ns: f64) {
        self.count += 1;
        self.min_ns = self.min_ns.min(delay_ns);
        self.max_ns = self.max_ns.max(delay_ns);
        let difference = delay_ns - self.mean_ns;
        self.mean_ns += difference / self.count as f64;
        self.squares += difference * (delay_ns - self.mean_ns);
        self.spread.push(delay_ns);
    }

    fn summed_up(&self) -> Option<Delay> {
        if self.count == 0 {
            return None;
        }
        let [p50_ns, p90_ns, p99_ns] = self.spread.quantiles([0.5, 0.9, 0.99]);
        let stddev_ns = (self.squares / self.count as f64).sqrt();
        let Self { min_ns, max_ns, mean_ns, .. } = *self;
        Some(Delay { min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, stddev_ns })
    }
}
