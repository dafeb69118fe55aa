//! Packet trains: how far apart packets arrive that left back to back, and the capacity that this shows.
//!
//! The slowest link of a path spreads packets that follow each other at once: behind it the time from one to the next is what the link
//! takes for a packet. Other traffic between them makes that time longer, and queues behind the slowest link make it longer or shorter;
//! the most frequent time is the link's own (Dovrolis, Ramanathan, Moore: Packet-Dispersion Techniques and a Capacity-Estimation
//! Methodology, IEEE/ACM Transactions on Networking 12(6), 2004). Where a receiver takes packets up in batches, the stamps show its own
//! rhythm instead, so there is no figure.

use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

/// Most times between packets that are kept; then every second one goes.
const KEPT: usize = 4096;
/// The times are cut into this many blocks, in order of arrival; each has its own most frequent time.
const BLOCKS: usize = 20;
/// Ranks of the sorted blocks that enclose the median with 95.9 % (binomial distribution with 20 and a half: 6th and 15th).
const RANKS: (usize, usize) = (5, 14);
/// Fewest times of a block.
const OF_BLOCK: usize = 10;

/// Times between packets of trains, from the packets that left in one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trains {
    /// Trains of at least two packets, all of which arrived in order.
    pub trains: u64,
    /// Times from one packet of a train to the next.
    pub gaps: u64,
    /// Times of 0: both packets have the same stamp.
    pub shared_stamps: u64,
    /// Mean of all times, nanoseconds.
    pub mean_ns: u64,
    /// The most frequent time, nanoseconds; `None` for fewer than 200 times.
    pub mode_ns: Option<Interval>,
}

/// A value with its interval at 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// The value.
    pub value: u64,
    /// Its least.
    pub least: u64,
    /// Its most.
    pub most: u64,
}

/// What trains say of the path's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// Payload bits per second that the slowest link carries in packets of this size; `None` where `why_not` says why.
    pub payload_bps: Option<Interval>,
    /// The sender was not clearly faster than that: the capacity is this or more.
    pub at_least: bool,
    /// Why there is no figure.
    pub why_not: Option<NoCapacity>,
    /// The times that it comes from.
    pub trains: Trains,
}

/// Why trains show no capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoCapacity {
    /// Fewer than 200 times between packets of trains.
    TooFew,
    /// More than a tenth of the packets have the stamp of the one before: the receiver took them up together.
    SharedStamps,
    /// The mean time is more than three times the most frequent one: packets arrived in batches with pauses between them.
    Batches,
}

impl Capacity {
    /// From `trains` of packets with `payload_bytes`; the sender needs `departure_ns` for each packet of a train.
    pub fn of(trains: Trains, payload_bytes: u32, departure_ns: Option<u64>) -> Self {
        let none = |why| Self { payload_bps: None, at_least: false, why_not: Some(why), trains };
        if trains.gaps > 0 && trains.shared_stamps > trains.gaps / 10 {
            return none(NoCapacity::SharedStamps);
        }
        let Some(mode) = trains.mode_ns else { return none(NoCapacity::TooFew) };
        if trains.mean_ns > mode.value.saturating_mul(3) {
            return none(NoCapacity::Batches);
        }
        let rate = |gap_ns: u64| BitRate::of(payload_bytes.into(), Nanos(gap_ns.max(1))).0;
        let payload_bps = Interval { value: rate(mode.value), least: rate(mode.most), most: rate(mode.least) };
        // A sender that takes more than half of the time may be what spread them.
        let at_least = departure_ns.is_none_or(|departure| departure.saturating_mul(2) > mode.value);
        Self { payload_bps: Some(payload_bps), at_least, why_not: None, trains }
    }
}

/// Finds trains in the packets of one stream: packets in order with one stamp of departure.
#[derive(Debug, Clone, Default)]
pub struct TrainRecorder {
    /// Departure of the train, the next sequence, the last arrival, and whether it counts as a train already.
    train: Option<Train>,
    trains: u64,
    gaps: u64,
    shared_stamps: u64,
    sum_ns: u128,
    kept: Vec<u64>,
    /// One of this many is kept, as a power of two.
    stride: u64,
}

#[derive(Debug, Clone, Copy)]
struct Train {
    sent: Nanos,
    next: u64,
    arrival: Nanos,
    counted: bool,
}

impl TrainRecorder {
    /// Packet `sequence` arrived at `arrival` by itself; it was sent at `sent`.
    #[inline]
    pub fn record(&mut self, sequence: u64, arrival: Nanos, sent: Nanos) {
        let next = sequence.saturating_add(1);
        match &mut self.train {
            Some(train) if train.sent == sent && train.next == sequence => {
                let gap = arrival.saturating_sub(train.arrival);
                let first = !std::mem::replace(&mut train.counted, true);
                (train.next, train.arrival) = (next, arrival);
                self.trains += u64::from(first);
                self.take(gap);
            }
            // A hole in a train, or a packet out of order: what follows it can begin anew.
            train => *train = Some(Train { sent, next, arrival, counted: false }),
        }
    }

    fn take(&mut self, gap: Nanos) {
        self.shared_stamps += u64::from(gap == Nanos::ZERO);
        self.sum_ns += u128::from(gap.0);
        if self.gaps & self.stride == 0 {
            if self.kept.len() == KEPT {
                let mut number = 0_u32;
                self.kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.stride = self.stride * 2 + 1;
            }
            if self.gaps & self.stride == 0 {
                self.kept.push(gap.0);
            }
        }
        self.gaps += 1;
    }

    /// `count` packets arrived with one stamp.
    pub fn record_together(&mut self, count: u32) {
        self.train = None;
        let gaps = u64::from(count.saturating_sub(1));
        self.gaps += gaps;
        self.shared_stamps += gaps;
    }

    /// What the trains say; `None` without any.
    pub fn trains(&self) -> Option<Trains> {
        if self.gaps == 0 {
            return None;
        }
        let mean_ns = u64::try_from(self.sum_ns / u128::from(self.gaps)).unwrap_or(u64::MAX);
        Some(Trains {
            trains: self.trains,
            gaps: self.gaps,
            shared_stamps: self.shared_stamps,
            mean_ns,
            mode_ns: self.mode(),
        })
    }

    fn mode(&self) -> Option<Interval> {
        let of_block = self.kept.len() / BLOCKS;
        if of_block < OF_BLOCK {
            return None;
        }
        let mut modes: Vec<u64> =
            self.kept.chunks_exact(of_block).take(BLOCKS).map(|block| mode(block.to_vec())).collect();
        modes.sort_unstable();
        let value = (modes[BLOCKS / 2 - 1] + modes[BLOCKS / 2]) / 2;
        Some(Interval { value, least: modes[RANKS.0], most: modes[RANKS.1] })
    }
}

/// The half-sample mode (Robertson and Cryer, 1974): the shortest interval with half of the values, and so on within it.
fn mode(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let mut part = &values[..];
    while part.len() > 2 {
        let half = part.len().div_ceil(2);
        let start = (0..=part.len() - half).min_by_key(|&at| part[at + half - 1] - part[at]).unwrap_or(0);
        part = &part[start..start + half];
    }
    let sum: u128 = part.iter().map(|value| u128::from(*value)).sum();
    u64::try_from(sum / part.len().max(1) as u128).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains of 8, a link of 1250 bytes in 100 µs; of every third pair the second one waited for another packet.
    fn over_a_link(trains: u64, arrival_of: impl Fn(Nanos) -> Nanos) -> TrainRecorder {
        let mut recorder = TrainRecorder::default();
        let mut free = Nanos::ZERO;
        for number in 0..trains * 8 {
            let sent = Nanos::from_millis(number / 8 * 10);
            free = free.max(sent).saturating_add(Nanos::from_micros(if number % 3 == 2 { 150 } else { 100 }));
            recorder.record(number, arrival_of(Nanos(free.0 + number * 7919 % 900)), sent);
        }
        recorder
    }

    #[test]
    fn the_most_frequent_time_is_the_links() {
        let trains = over_a_link(500, |at| at).trains().unwrap();
        assert_eq!((trains.trains, trains.gaps, trains.shared_stamps), (500, 3500, 0));
        let capacity = Capacity::of(trains, 1250, Some(2_000));
        let found = capacity.payload_bps.unwrap();
        assert!(found.value.abs_diff(100_000_000) < 1_000_000, "{capacity:?}");
        assert!(found.least <= found.value && found.value <= found.most && !capacity.at_least);
        assert!(Capacity::of(trains, 1250, Some(60_000)).at_least && Capacity::of(trains, 1250, None).at_least);
    }

    #[test]
    fn where_batches_shape_arrivals_there_is_no_figure() {
        let why_not = |recorder: TrainRecorder| Capacity::of(recorder.trains().unwrap(), 1250, Some(1_000)).why_not;
        assert_eq!(why_not(over_a_link(20, |at| at)), Some(NoCapacity::TooFew));
        // One stamp for all that arrived within 250 µs.
        let rounded = |at: Nanos| Nanos(at.0.next_multiple_of(250_000));
        assert_eq!(why_not(over_a_link(500, rounded)), Some(NoCapacity::SharedStamps));
        // A NIC that interrupts each 500 µs, and a CPU that stamps one packet each 300 ns then.
        let moderated = |at: Nanos| {
            let interrupt = at.0.next_multiple_of(500_000);
            Nanos(interrupt + (500_000 - (interrupt - at.0)) / 100_000 * 300)
        };
        assert_eq!(why_not(over_a_link(500, moderated)), Some(NoCapacity::Batches));
        let mut joined = TrainRecorder::default();
        assert_eq!(joined.trains(), None);
        joined.record_together(45);
        assert_eq!(why_not(joined), Some(NoCapacity::SharedStamps));
    }

    #[test]
    fn holes_and_strangers_end_a_train() {
        let mut recorder = TrainRecorder::default();
        for (sequence, sent) in [(0, 1), (1, 1), (3, 1), (2, 1), (3, 1), (4, 2), (u64::MAX, 2)] {
            recorder.record(sequence, Nanos(1_000 + sequence % 100), Nanos(sent));
        }
        let trains = recorder.trains().unwrap();
        assert_eq!((trains.trains, trains.gaps, trains.mode_ns), (2, 2, None));
    }

    #[test]
    fn memory_is_bounded_and_modes_are_found_by_halves() {
        let mut recorder = TrainRecorder::default();
        (0..100_000).for_each(|number| recorder.record(number, Nanos(number * 50), Nanos(1)));
        assert!(recorder.kept.len() <= KEPT && recorder.kept.len() > KEPT / 4);
        assert_eq!(recorder.trains().unwrap().mode_ns, Some(Interval { value: 50, least: 50, most: 50 }));
        assert_eq!(mode(vec![9, 1, 100, 10, 11, 500]), 9);
        assert_eq!(mode(vec![u64::MAX, u64::MAX]), u64::MAX);
        assert_eq!(mode(vec![]), 0);
    }
}
