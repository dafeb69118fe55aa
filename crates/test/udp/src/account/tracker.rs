//! What a receiver knows of one stream: every packet is counted once, in bounded memory.

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use super::arrivals::ArrivalRecorder;
use super::delay::{DelayOverLeast, Delays};
use super::jitter::Jitter;
use super::loss_map::LossMap;
use super::packet_rows::PacketRows;
use super::reordering::{Reordered, Reordering, ReorderingSummary};
use super::set::SequenceSet;
use super::traffic_class::TrafficClasses;
use super::trains::{TrainRecorder, Trains};

/// Number of the newest chunks of 65,536 sequences that are kept as bitmaps, which take late packets fastest: 260,000 packets, or
/// 0.3 s of 10 Gb/s in full-size packets. Later packets are counted too, in some 100 ns instead of 2.
const OPEN_CHUNKS: usize = 4;

/// Accounts for every packet of one stream.
///
/// Costs some 15 ns for a packet in order by itself (5 of them for the times between arrivals), 1 ns in a batch, and at most 8 KiB for each 65,536 sequences that arrived in part.
#[derive(Debug, Clone)]
pub struct SequenceTracker {
    received: SequenceSet,
    /// Bytes that the runs of lost packets may take.
    runs_bytes: Option<usize>,
    /// NextExp of RFC 4737: the greatest sequence so far plus one.
    next_expected: u64,
    unique_packets: u64,
    duplicate_packets: u64,
    out_of_range_packets: u64,
    first_arrival: Nanos,
    last_arrival: Nanos,
    newest_chunk: u64,
    /// Chunks below this are in their smallest form.
    settled_chunks: usize,
    reordering: Reordering,
    jitter: Jitter,
    /// Whether each packet has an arrival and a sending time of its own.
    stamped_each: bool,
    /// Packets that had: those of `jitter`.
    stamped_packets: u64,
    last_sent: Nanos,
    delays: Delays,
    arrivals: ArrivalRecorder,
    trains: TrainRecorder,
    traffic_classes: TrafficClasses,
}

/// What a packet was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// New, and the greatest sequence so far.
    InOrder,
    /// New, but a greater one arrived before it; `None` if it is too late for its extent to be known.
    Reordered(Option<Reordered>),
    /// A duplicate.
    Duplicate,
    /// Its sequence is not below the limit: the packet is foreign or forged. It is only counted.
    OutOfRange,
}

/// The counters of a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Packets received, without duplicates.
    pub received_packets: u64,
    /// Duplicates.
    pub duplicate_packets: u64,
    /// Packets that came from another address than the client's, or whose sequence was not below the limit or was never sent: foreign or
    /// forged.
    pub out_of_range_packets: u64,
    /// Sequences below the greatest one that have not arrived: lost, or still in flight.
    pub missing_packets: u64,
    /// Reordering so far.
    pub reordering: ReorderingSummary,
}

/// The final account of a stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamReceived {
    /// The counters.
    pub counts: Counts,
    /// RFC 3550 jitter; `None` if at least half of the packets shared time stamps, or fewer than two arrived.
    pub jitter_ns: Option<u64>,
    /// One-way delay over its least; `None` if nothing arrived.
    #[serde(default)]
    pub delay_over_least: Option<DelayOverLeast>,
    /// Times between packets that left together; `None` without any.
    #[serde(default)]
    pub trains: Option<Trains>,
    /// Packets by their TOS byte or traffic class, as they arrived; empty if that was not asked for.
    #[serde(default)]
    pub traffic_classes: TrafficClasses,
    /// Arrival of the first packet, by the receiver's clock; 0 if none arrived.
    pub first_arrival_ns: u64,
    /// Arrival of the last.
    pub last_arrival_ns: u64,
    /// The packets that never arrived.
    pub losses: LossMap,
    /// When each packet arrived; `None` where that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketRows>,
}

impl SequenceTracker {
    /// Sequences are below this.
    pub fn limit(&self) -> u64 {
        self.received.limit()
    }

    /// A tracker for sequences below `limit` (at most [`MAX_SEQUENCES`](super::MAX_SEQUENCES)). `stamped_each`: whether each packet
    /// surely has its own arrival and sending time; else those count for jitter that arrived alone, sent at a time of their own.
    pub fn new(limit: u64, stamped_each: bool) -> Self {
        Self {
            received: SequenceSet::new(limit),
            runs_bytes: None,
            next_expected: 0,
            unique_packets: 0,
            duplicate_packets: 0,
            out_of_range_packets: 0,
            first_arrival: Nanos::ZERO,
            last_arrival: Nanos::ZERO,
            newest_chunk: u64::MAX,
            settled_chunks: 0,
            reordering: Reordering::default(),
            jitter: Jitter::default(),
            stamped_each,
            stamped_packets: 0,
            last_sent: Nanos::MAX,
            delays: Delays::default(),
            arrivals: ArrivalRecorder::default(),
            trains: TrainRecorder::default(),
            traffic_classes: TrafficClasses::default(),
        }
    }

    /// The same, which tells the losses in `bytes` at most: if that is too little, what [`Self::finish`] gives cannot be written to JSON.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        Self { runs_bytes: Some(usize::try_from(bytes).unwrap_or(usize::MAX)), ..self }
    }

    /// A packet arrived at `arrival` (receiver's clock) that was sent at `sent` (sender's clock, used only for jitter).
    #[inline]
    pub fn receive(&mut self, sequence: u64, arrival: Nanos, sent: Nanos) -> Receipt {
        let receipt = self.place(sequence, arrival);
        if receipt == Receipt::OutOfRange {
            return receipt;
        }
        self.arrivals.record(arrival, 1);
        if receipt != Receipt::Duplicate {
            if self.stamped_each || sent != self.last_sent {
                self.jitter.receive(arrival, sent);
                self.stamped_packets += 1;
            }
            if self.stamped_each {
                self.trains.record(sequence, arrival, sent);
            }
            self.last_sent = sent;
        }
        receipt
    }

    /// A packet or a super-packet arrived at `arrival` (receiver's clock), whose first one was sent at `sent` (sender's clock).
    #[inline]
    pub fn delayed(&mut self, arrival: Nanos, sent: Nanos) {
        self.delays.take(arrival, sent);
    }

    #[inline]
    fn place(&mut self, sequence: u64, arrival: Nanos) -> Receipt {
        if sequence >> 16 != self.newest_chunk && !self.enter_chunk(sequence) {
            self.out_of_range_packets += 1;
            return Receipt::OutOfRange;
        }
        if !self.received.insert(sequence) {
            return self.unplaced(sequence);
        }
        if self.unique_packets == 0 {
            self.first_arrival = arrival;
        }
        self.unique_packets += 1;
        self.last_arrival = arrival;
        if sequence < self.next_expected {
            return Receipt::Reordered(self.reordering.reordered(sequence, self.unique_packets, arrival));
        }
        if sequence > self.next_expected {
            self.reordering.leave_gap(sequence, self.unique_packets, arrival);
        }
        self.next_expected = sequence + 1;
        Receipt::InOrder
    }

    /// A packet that the set did not accept.
    #[cold]
    fn unplaced(&mut self, sequence: u64) -> Receipt {
        if sequence >= self.received.limit() {
            self.out_of_range_packets += 1;
            return Receipt::OutOfRange;
        }
        self.duplicate_packets += 1;
        Receipt::Duplicate
    }

    /// `count` packets with consecutive sequences arrived together, as UDP_GRO returns them. They do not count for jitter, because
    /// they share a time stamp. Sequences not below the limit count as out of range.
    pub fn receive_run(&mut self, first: u64, count: u32, arrival: Nanos) {
        let end = first.saturating_add(u64::from(count));
        let within = end.min(self.received.limit()).max(first);
        self.out_of_range_packets += end - within;
        let (end, count) = (within, within - first);
        let in_one_chunk = first >> 16 == self.newest_chunk && end.saturating_sub(1) >> 16 == self.newest_chunk;
        if count > 0 {
            self.arrivals.record(arrival, count as u32);
            self.trains.record_together(count as u32);
        }
        if count == 0 || first != self.next_expected || !in_one_chunk {
            for sequence in first..end {
                self.place(sequence, arrival);
            }
            return;
        }
        // No sequence from NextExp on was seen, so all are new and in order.
        self.received.insert_run(first, count);
        if self.unique_packets == 0 {
            self.first_arrival = arrival;
        }
        self.unique_packets += count;
        self.last_arrival = arrival;
        self.next_expected = end;
    }

    /// Prepares the chunk of `sequence`; `false` if that is not below the limit.
    #[cold]
    fn enter_chunk(&mut self, sequence: u64) -> bool {
        if sequence >= self.received.limit() {
            return false;
        }
        let chunk = sequence >> 16;
        if self.newest_chunk == u64::MAX || chunk > self.newest_chunk {
            self.newest_chunk = chunk;
            self.received.open(sequence);
            let settled = (chunk as usize).saturating_sub(OPEN_CHUNKS);
            self.received.settle(self.settled_chunks..settled);
            self.settled_chunks = self.settled_chunks.max(settled);
        }
        true
    }

    /// The counters now.
    pub fn counts(&self) -> Counts {
        Counts {
            received_packets: self.unique_packets,
            duplicate_packets: self.duplicate_packets,
            out_of_range_packets: self.out_of_range_packets,
            missing_packets: self.next_expected - self.unique_packets,
            reordering: self.reordering.summary(),
        }
    }

    /// When the first packet arrived; `None` before.
    pub fn first_arrival(&self) -> Option<Nanos> {
        (self.unique_packets > 0).then_some(self.first_arrival)
    }

    /// When the last packet arrived; [`Nanos::ZERO`] before the first.
    pub fn last_arrival(&self) -> Nanos {
        self.last_arrival
    }

    /// The greatest sequence so far plus one: at least this many packets were sent.
    pub fn next_expected(&self) -> u64 {
        self.next_expected
    }

    /// Whether `sequence` has not arrived although a greater one has: it is lost, or late.
    pub fn misses(&self, sequence: u64) -> bool {
        sequence < self.next_expected && !self.received.contains(sequence)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.received.heap_bytes() + self.reordering.heap_bytes()
    }

    /// A packet of another address arrived.
    pub fn foreign(&mut self) {
        self.out_of_range_packets += 1;
    }

    /// So many packets arrived with `traffic_class`.
    pub fn classed(&mut self, traffic_class: u8, packets: u64) {
        self.traffic_classes.add(traffic_class, packets);
    }

    /// Takes out the times between arrivals.
    pub fn take_arrivals(&mut self) -> ArrivalRecorder {
        std::mem::take(&mut self.arrivals)
    }

    /// The account of a stream of `sent_packets` packets, so that losses at its end count too. What arrived with a number from
    /// `sent_packets` on was never sent: it is foreign. Where nobody knows how many were sent, give [`Self::next_expected`].
    pub fn finish(self, sent_packets: u64) -> StreamReceived {
        let losses = LossMap::of_received(&self.received, sent_packets, self.runs_bytes);
        let mut counts = self.counts();
        let own_packets = losses.sent_packets() - losses.lost_packets();
        let forged = counts.received_packets - own_packets;
        if forged > 0 {
            counts.received_packets = own_packets;
            counts.out_of_range_packets += forged;
            counts.missing_packets = losses.lost_packets();
        }
        StreamReceived {
            counts,
            // Of a minority it would be the jitter of chance.
            jitter_ns: (self.stamped_packets > 1 && self.stamped_packets > self.unique_packets / 2)
                .then(|| self.jitter.estimate())
                .flatten()
                .map(|jitter| jitter.0),
            first_arrival_ns: self.first_arrival.0,
            last_arrival_ns: self.last_arrival.0,
            losses,
            delay_over_least: self.delays.over_least(),
            trains: self.trains.trains(),
            traffic_classes: self.traffic_classes,
            packets: None,
        }
    }
}
