//! Trains that wait for their time, nearly always put in with times that do not fall.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use longhaul_units::Nanos;

use super::train::Train;

/// Trains by time; those of one time in the order in which they were put in.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Trains that were put in with a time no earlier than those before.
    ordered: VecDeque<Entry>,
    /// The others: trains that leave before earlier ones.
    reordered: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry {
    time: Nanos,
    number: u64,
    train: Train,
}

impl Line {
    pub(super) fn push(&mut self, time: Nanos, train: Train) {
        self.pushed += 1;
        let entry = Entry { time, number: self.pushed, train };
        if self.ordered.back().is_none_or(|last| last.time <= time) {
            self.ordered.push_back(entry);
        } else {
            self.reordered.push(Reverse(entry));
        }
    }

    /// The time of the first train.
    pub(super) fn head(&self) -> Option<Nanos> {
        let ordered = self.ordered.front().map(|entry| entry.time);
        let reordered = self.reordered.peek().map(|entry| entry.0.time);
        match (ordered, reordered) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the first train and its time.
    pub(super) fn pop(&mut self) -> Option<(Nanos, Train)> {
        let reordered_first = match (self.ordered.front(), self.reordered.peek()) {
            (Some(ordered), Some(Reverse(reordered))) => reordered < ordered,
            (ordered, _) => ordered.is_none(),
        };
        let entry = if reordered_first { self.reordered.pop().map(|entry| entry.0) } else { self.ordered.pop_front() };
        entry.map(|entry| (entry.time, entry.train))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}
