//! Trains: runs of consecutive wire packets of one frame that travel together.

use longhaul_units::Nanos;
use longhaul_wire::{Fragment, Shape};

/// Where a train goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// To one port.
    Port(u16),
    /// To every port but the sender's; copied only behind the sender's access hop.
    All,
    /// To every port of the end that is not the sender's; copied only behind the shared hops.
    FarEnd,
}

/// Packets `first .. first + count` of one frame, with the time at which each is where the train is.
///
/// The times never fall from one packet to the next, and span no more than the network's batch time.
#[derive(Debug, Clone)]
pub(super) struct Train {
    /// Key of the frame among those in flight.
    pub(super) frame: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) from: u16,
    pub(super) to: To,
    /// The random number that says which bit is flipped; only on trains of one packet.
    pub(super) corrupt: Option<u64>,
    /// The part of the packet's payload that travels here, where a hop cut it; only on trains of one packet.
    pub(super) fragment: Option<Fragment>,
    /// Time of the first packet.
    pub(super) start: Nanos,
    /// Nanoseconds from `start` of each packet; empty where all have the same time.
    pub(super) offsets: Vec<u32>,
}

impl Train {
    /// Bytes of its packet `index`, counted from the frame's first, of a frame with `shape`.
    pub(super) fn wire_len(&self, shape: &Shape, index: u32) -> u32 {
        match self.fragment {
            Some(fragment) => shape.cut_behind_bytes + fragment.bytes,
            None => shape.wire_len(index),
        }
    }

    /// Bytes of all its packets.
    pub(super) fn wire_bytes(&self, shape: &Shape) -> u64 {
        match self.fragment {
            Some(_) => self.wire_len(shape, self.first).into(),
            None => shape.run_wire_len(self.first, self.count),
        }
    }

    /// Time of the `i`-th packet of the train.
    pub(super) fn time(&self, i: u32) -> Nanos {
        match self.offsets.get(i as usize) {
            Some(&offset) => self.start + Nanos(u64::from(offset)),
            None => self.start,
        }
    }

    /// Time of the last packet.
    pub(super) fn end(&self) -> Nanos {
        self.time(self.count - 1)
    }

    /// The train with every packet at `time`.
    pub(super) fn at(mut self, time: Nanos) -> Self {
        self.start = time;
        self.offsets = Vec::new();
        self
    }

    /// Takes the packets from the `at`-th on away into a train of their own.
    pub(super) fn split_off(&mut self, at: u32) -> Self {
        let start = self.time(at);
        let shift = (start - self.start).0 as u32;
        let mut offsets = Vec::new();
        if !self.offsets.is_empty() {
            offsets = self.offsets.split_off(at as usize);
            for offset in &mut offsets {
                *offset -= shift;
            }
        }
        let tail = Self { first: self.first + at, count: self.count - at, start, offsets, ..*self };
        self.count = at;
        tail
    }
}

/// Wire packets and the bytes of their frames (L2, without FCS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Count {
    /// Wire packets.
    pub packets: u64,
    /// Bytes at L2, without FCS.
    pub bytes: u64,
}

impl Count {
    /// Adds one packet of `bytes`.
    pub fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}
