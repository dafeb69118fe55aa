//! The flows of captures that a result has: those with most of something, and no more than the captures have room for.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use longhaul_flows::FlowSummary;

use crate::captures::source::Length;

/// How many flows a result may have. A million in a file of some kilobytes would take more than a gigabyte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Of captures of any length.
    pub(crate) sure: u64,
    /// Bytes of captures for which it has one more.
    pub(crate) bytes_a_flow: u64,
}

/// Keeps the flows with the largest keys.
pub(crate) struct Largest {
    top: usize,
    room: Room,
    length: Length,
    flows: BinaryHeap<Reverse<Ranked>>,
}

impl Largest {
    /// Keeps `top` flows (0: all) of captures of this length, if there is room for them.
    pub(crate) fn new(top: usize, room: Room, length: Length) -> Self {
        Self { top, room, length, flows: BinaryHeap::new() }
    }

    /// Of equal keys the earlier flow is kept.
    pub(crate) fn push(&mut self, key: u64, flow: FlowSummary) {
        self.flows.push(Reverse(Ranked(key, flow)));
        if self.flows.len() > self.most() {
            self.flows.pop();
        }
    }

    fn most(&self) -> usize {
        let room = self.room.sure + self.length.bytes() / self.room.bytes_a_flow;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if self.top > 0 { self.top.min(room) } else { room }
    }

    /// The flows, those with the largest keys first.
    pub(crate) fn into_flows(self) -> Vec<FlowSummary> {
        self.flows.into_sorted_vec().into_iter().map(|Reverse(Ranked(_, flow))| flow).collect()
    }
}

/// A flow with its key; of equal ones the earlier is the larger.
struct Ranked(u64, FlowSummary);

impl Ranked {
    fn rank(&self) -> (u64, Reverse<u64>) {
        (self.0, Reverse(self.1.flow))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}
