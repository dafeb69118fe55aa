//! Reordering (RFC 4737).
//!
//! A packet is reordered if its sequence is less than NextExp, the greatest sequence so far plus one (§3.3). Its *extent* is the
//! number of packets that arrived before it, from the first one with a greater sequence on (§4.2: e = i − j for the smallest j with
//! `s[j] > s[i]`). Its *late time* is the time since that one arrived (§4.3). Of duplicates only the first copy counts (§3.3).
//!
//! The first packet with a greater sequence than s must have left a gap before it, because s had not arrived. So it is enough to
//! remember where each gap began, and a stream in order needs no memory.
//!
//! Differences from the RFC: NextExp is the greatest sequence plus one, as in §3.3 with whole packets; only the last
//! [`REMEMBERED_GAPS`] gaps are remembered, and a packet of an earlier gap counts as reordered with unknown extent.

use std::collections::VecDeque;

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// Number of gaps that are remembered: 400 KB a stream. With one packet in ten lost these are 160,000 packets, or 0.2 s of 10 Gb/s
/// in full-size packets; with one in 10,000, three minutes.
pub const REMEMBERED_GAPS: usize = 16_384;

/// The reordering of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReorderingSummary {
    /// Reordered packets (RFC 4737 §3).
    pub reordered_packets: u64,
    /// Reordered packets with unknown extent, because they arrived more than 16,384 gaps late.
    pub extent_unknown_packets: u64,
    /// The greatest extent (§4.2).
    pub extent_packets_max: u64,
    /// The sum of all known extents.
    pub extent_packets_sum: u64,
    /// The longest late time (§4.3).
    pub late_ns_max: u64,
}

impl ReorderingSummary {
    /// Adds another stream.
    pub fn merge(&mut self, other: &Self) {
        // Saturating, because the other end's report can hold any number.
        self.reordered_packets = self.reordered_packets.saturating_add(other.reordered_packets);
        self.extent_unknown_packets = self.extent_unknown_packets.saturating_add(other.extent_unknown_packets);
        self.extent_packets_max = self.extent_packets_max.max(other.extent_packets_max);
        self.extent_packets_sum = self.extent_packets_sum.saturating_add(other.extent_packets_sum);
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
    }
}

/// A reordered packet (RFC 4737 §4.2, §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reordered {
    /// Packets since the first one with a greater sequence, that one included.
    pub extent_packets: u64,
    /// Time since that one arrived.
    pub late: Nanos,
}

/// A packet in order that left a gap before it.
#[derive(Debug, Clone, Copy)]
struct Gap {
    sequence: u64,
    /// Counts arrivals without duplicates.
    arrival_index: u64,
    arrival: Nanos,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Reordering {
    gaps: VecDeque<Gap>,
    /// Packets below this belong to a gap that was forgotten.
    forgotten_below: u64,
    summary: ReorderingSummary,
}

impl Reordering {
    /// `sequence` arrived in order as number `arrival_index`, and some before it are missing.
    pub(super) fn leave_gap(&mut self, sequence: u64, arrival_index: u64, arrival: Nanos) {
        if self.gaps.len() == REMEMBERED_GAPS
            && let Some(oldest) = self.gaps.pop_front()
        {
            self.forgotten_below = oldest.sequence;
        }
        self.gaps.push_back(Gap { sequence, arrival_index, arrival });
    }

    /// `sequence`, below NextExp and not seen before, arrived as number `arrival_index`.
    #[cold]
    pub(super) fn reordered(&mut self, sequence: u64, arrival_index: u64, arrival: Nanos) -> Option<Reordered> {
        self.summary.reordered_packets += 1;
        let first_greater = self.gaps.partition_point(|gap| gap.sequence <= sequence);
        let gap = self.gaps.get(first_greater).filter(|_| sequence >= self.forgotten_below);
        let Some(gap) = gap else {
            self.summary.extent_unknown_packets += 1;
            return None;
        };
        let found =
            Reordered { extent_packets: arrival_index - gap.arrival_index, late: arrival.saturating_sub(gap.arrival) };
        self.summary.extent_packets_max = self.summary.extent_packets_max.max(found.extent_packets);
        self.summary.extent_packets_sum += found.extent_packets;
        self.summary.late_ns_max = self.summary.late_ns_max.max(found.late.0);
        Some(found)
    }

    pub(super) fn summary(&self) -> ReorderingSummary {
        self.summary
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.gaps.capacity() * size_of::<Gap>()
    }
}
