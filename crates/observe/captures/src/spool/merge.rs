//! Packets of several interfaces and queues, put in order of time in bounded memory.
//!
//! A ring hands packets over in the order in which they found a place, which on several CPUs is not quite the order of their stamps,
//! and interfaces are read in turns. A [`Kind::Tick`](super::Kind::Tick) tells up to when all are there.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::record::{InterfaceDirection, LinkType, Record};

/// The most packets that wait, 64 bytes each, and the most bytes of their snippets; twice as many bytes are kept. Beyond either limit the oldest
/// packets are passed on, in order or not.
const MOST_WAITING: usize = 2 << 20;
const MOST_WAITING_BYTES: usize = 128 << 20;

/// A record whose snippet lies in the arena.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    at_ns: i64,
    snippet_at: usize,
    snippet_len: u32,
    frame_len: u32,
    interface: u16,
    gso_segs: u16,
    gso_size: u16,
    direction: InterfaceDirection,
    link: LinkType,
}

/// One that is not settled, by its time, and of equal ones by when it came.
#[derive(Debug)]
struct Later {
    order: u64,
    record: Waiting,
}

impl Later {
    fn rank(&self) -> (i64, u64) {
        (self.record.at_ns, self.order)
    }
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Later {}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest, as a heap hands out.
impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

/// Packets that wait until no older one can come: [`push`](Self::push) them, [`settle`](Self::settle) by a tick, then take what
/// [`current`](Self::current) shows.
///
/// A tick costs nothing for those that wait longer: they are put into a heap once, and taken out once.
#[derive(Debug, Default)]
pub struct RecordBuffer {
    /// In order, and nothing older can come.
    settled: Vec<Waiting>,
    /// The first of these that was not taken.
    at: usize,
    /// Came since the last tick.
    fresh: Vec<Waiting>,
    /// Waited for an earlier tick in vain.
    later: BinaryHeap<Later>,
    /// How many came.
    order: u64,
    snippets: Vec<u8>,
    /// Bytes of snippets that were not taken.
    waiting_bytes: usize,
    /// The latest that was taken.
    out_ns: Option<i64>,
    late: u64,
    capacity: Option<usize>,
}

impl RecordBuffer {
    /// One that keeps at most `packets`.
    pub fn with_most(packets: usize) -> Self {
        Self { capacity: Some(packets.max(1)), ..Self::default() }
    }

    /// Takes a packet in.
    pub fn push(&mut self, record: &Record<'_>) {
        self.fresh.push(Waiting {
            at_ns: record.at_ns,
            snippet_at: self.snippets.len(),
            snippet_len: record.snippet.len() as u32,
            frame_len: record.frame_len,
            interface: record.interface,
            gso_segs: record.gso_segs,
            gso_size: record.gso_size,
            direction: record.direction,
            link: record.link,
        });
        self.snippets.extend_from_slice(record.snippet);
        self.waiting_bytes += record.snippet.len();
    }

    /// Whether so many wait, or such long ones, that some should go.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.capacity.unwrap_or(MOST_WAITING) || self.waiting_bytes >= MOST_WAITING_BYTES
    }

    /// Puts in order what is older than `watermark_ns`, to be taken; where too many wait, the older half of them as well.
    pub fn settle(&mut self, watermark_ns: i64) {
        self.forget();
        let is_full = self.is_full();
        self.fresh.sort_by_key(|record| record.at_ns);
        let due = self.fresh.partition_point(|record| record.at_ns < watermark_ns);
        let (settled, later) = (&mut self.settled, &mut self.later);
        let mut fresh = self.fresh.drain(..);
        for record in fresh.by_ref().take(due) {
            take_up_to(later, record.at_ns, settled);
            settled.push(record);
        }
        if let Some(before_ns) = watermark_ns.checked_sub(1) {
            take_up_to(later, before_ns, settled);
        }
        for record in fresh {
            later.push(Later { order: self.order, record });
            self.order += 1;
        }
        if is_full {
            let half = settled.len().midpoint(settled.len() + later.len());
            while settled.len() < half.max(1)
                && let Some(Later { record, .. }) = later.pop()
            {
                settled.push(record);
            }
        }
    }

    /// No further packet comes: all can be taken.
    pub fn settle_all(&mut self) {
        self.settle(i64::MAX);
        take_up_to(&mut self.later, i64::MAX, &mut self.settled);
    }

    /// The next packet in order; `None` where none is settled.
    #[inline]
    pub fn current(&self) -> Option<Record<'_>> {
        let record = self.settled.get(self.at)?;
        Some(Record {
            at_ns: record.at_ns,
            interface: record.interface,
            direction: record.direction,
            link: record.link,
            frame_len: record.frame_len,
            gso_segs: record.gso_segs,
            gso_size: record.gso_size,
            snippet: &self.snippets[record.snippet_at..record.snippet_at + record.snippet_len as usize],
        })
    }

    /// Goes on to the one after [`current`](Self::current).
    #[inline]
    pub fn advance(&mut self) {
        let Some(record) = self.settled.get(self.at) else { return };
        if self.out_ns.is_some_and(|out| record.at_ns < out) {
            self.late += 1;
        } else {
            self.out_ns = Some(record.at_ns);
        }
        self.waiting_bytes -= record.snippet_len as usize;
        self.at += 1;
    }

    /// Forgets packets that were taken. Their snippets go once they are more than half of the arena: so moving the others costs at most twice
    /// as much as storing them.
    fn forget(&mut self) {
        self.settled.drain(..self.at);
        self.at = 0;
        if self.snippets.len() - self.waiting_bytes <= (self.waiting_bytes + self.waiting()) / 2 {
            return;
        }
        let mut kept = Vec::with_capacity(self.waiting_bytes);
        let mut later = std::mem::take(&mut self.later).into_vec();
        let waiting =
            self.settled.iter_mut().chain(&mut self.fresh).chain(later.iter_mut().map(|later| &mut later.record));
        for record in waiting {
            let snippet = &self.snippets[record.snippet_at..record.snippet_at + record.snippet_len as usize];
            record.snippet_at = kept.len();
            kept.extend_from_slice(snippet);
        }
        (self.snippets, self.later) = (kept, later.into());
    }

    /// Packets that came out after a later one.
    pub fn late_packets(&self) -> u64 {
        self.late
    }

    /// Memory that it has, bytes.
    pub fn held_bytes(&self) -> u64 {
        let in_order = (self.settled.capacity() + self.fresh.capacity()) * size_of::<Waiting>();
        (in_order + self.later.capacity() * size_of::<Later>() + self.snippets.capacity()) as u64
    }

    /// Bytes of snippets that are kept.
    #[cfg(test)]
    pub(super) fn snippet_bytes(&self) -> usize {
        self.snippets.len()
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.settled.len() - self.at + self.fresh.len() + self.later.len()
    }
}

/// Hands over those up to `last_ns`, in order.
fn take_up_to(later: &mut BinaryHeap<Later>, last_ns: i64, settled: &mut Vec<Waiting>) {
    while later.peek().is_some_and(|later| later.record.at_ns <= last_ns)
        && let Some(Later { record, .. }) = later.pop()
    {
        settled.push(record);
    }
}
