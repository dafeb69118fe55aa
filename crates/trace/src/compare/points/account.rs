//! What happened between two points in one direction, packet after packet.

use std::collections::HashMap;

use super::{Between, Delay, Direction, Held, LostRun};
use crate::compare::behaviour::{Thinned, verdict};

/// Runs of lost packets that are listed.
const MOST_RUNS: usize = 10_000;
/// Delays that quantiles are made of.
const MOST_DELAYS: usize = 1 << 17;

/// Packets in the order in which they passed either point.
#[derive(Debug)]
pub(super) struct Account {
    between: Between,
    /// The run of lost packets that goes on, by path.
    open: HashMap<u32, usize>,
    /// The highest number at the first point of those that passed the second, by path.
    highest: HashMap<u32, u64>,
    /// When the last data packet passed the first point and the second, by path.
    last_ns: [HashMap<u32, i64>; 2],
    samples: [Thinned; 2],
    delays: Delays,
}

impl Account {
    pub(super) fn new(direction: Direction) -> Self {
        let between = Between {
            direction,
            sent_packets: 0,
            reached_packets: 0,
            lost_packets: 0,
            unknown_packets: 0,
            reordered_packets: 0,
            delay: None,
            lost: Vec::new(),
            intervals: Default::default(),
            spacing: verdict(&[]),
        };
        Self {
            between,
            open: HashMap::new(),
            highest: HashMap::new(),
            last_ns: Default::default(),
            samples: Default::default(),
            delays: Delays::default(),
        }
    }

    /// A packet of the first point. Unless it passed the second, it was lost if that `is_captured` at the time.
    pub(super) fn first(&mut self, held: &Held, is_captured: bool) {
        self.interval(0, held);
        let between = &mut self.between;
        if held.partner.is_some() {
            between.sent_packets += 1;
            between.reached_packets += 1;
            self.open.remove(&held.path);
            return;
        }
        if !is_captured {
            return;
        }
        between.sent_packets += 1;
        between.lost_packets += 1;
        if let Some(index) = self.open.get(&held.path) {
            let run: &mut LostRun = &mut between.lost[*index];
            run.packets += 1;
            run.last_sequence = held.sequence;
            run.payload_bytes += u64::from(held.payload_len);
        } else if between.lost.len() < MOST_RUNS {
            self.open.insert(held.path, between.lost.len());
            between.lost.push(LostRun {
                path: held.path,
                first_sequence: held.sequence,
                last_sequence: held.sequence,
                packets: 1,
                payload_bytes: held.payload_len.into(),
                at_ns: held.at_ns,
            });
        }
    }

    /// A packet of the second point.
    pub(super) fn second(&mut self, held: &Held) {
        self.interval(1, held);
        let Some((origin, _)) = held.partner else {
            self.between.unknown_packets += 1;
            return;
        };
        let before = self.highest.entry(held.path).or_insert(origin);
        self.between.reordered_packets += u64::from(origin < *before);
        *before = origin.max(*before);
    }

    fn interval(&mut self, point: usize, held: &Held) {
        if held.follows || held.payload_len == 0 {
            return;
        }
        if let Some(before) = self.last_ns[point].insert(held.path, held.at_ns) {
            let interval = (held.at_ns - before).max(0);
            self.between.intervals[point].add(interval);
            self.samples[point].push(interval as f64);
        }
    }

    /// From the first point to the second.
    pub(super) fn delay(&mut self, delay_ns: f64) {
        self.delays.add(delay_ns);
    }

    pub(super) fn finish(mut self) -> Between {
        self.between.delay = self.delays.summed_up();
        self.between.spacing = verdict(&[("interval_ns", &self.samples[0], &self.samples[1])]);
        self.between
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
