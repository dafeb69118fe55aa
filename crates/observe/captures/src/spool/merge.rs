//! Packets of several interfaces and queues, put in order of time in bounded memory.
//!
//! A ring hands packets over in the order in which they found a place, which on several CPUs is not quite the order of their stamps,
//! and interfaces are read in turns. A [`Kind::Tick`](super::Kind::Tick) tells up to when all are there.

use crate::record::{InterfaceDirection, LinkType, Record};

/// Packets that wait at most: 64 bytes each and their snippets, some 300 MiB at 96 bytes. Beyond it the oldest go, in order or not.
const MOST_WAITING: usize = 2 << 20;

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

/// Packets that wait until no older one can come: [`push`](Self::push) them, [`settle`](Self::settle) by a tick, then take what
/// [`current`](Self::current) shows.
#[derive(Debug, Default)]
pub struct RecordBuffer {
    waiting: Vec<Waiting>,
    snippets: Vec<u8>,
    /// The first that was not taken.
    at: usize,
    /// Those before are in order, and nothing older can come.
    settled: usize,
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
        self.waiting.push(Waiting {
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
    }

    /// Whether so many wait that some should go.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.capacity.unwrap_or(MOST_WAITING)
    }

    /// Puts in order what is older than `watermark_ns`, to be taken; where too many wait, the older half of them as well.
    pub fn settle(&mut self, watermark_ns: i64) {
        self.compact();
        self.waiting.sort_by_key(|record| record.at_ns);
        self.settled = self.waiting.partition_point(|record| record.at_ns < watermark_ns);
        if self.is_full() {
            self.settled = self.settled.max(self.waiting.len() / 2);
        }
    }

    /// No further packet comes: all can be taken.
    pub fn settle_all(&mut self) {
        self.compact();
        self.waiting.sort_by_key(|record| record.at_ns);
        self.settled = self.waiting.len();
    }

    /// The next packet in order; `None` where none is settled.
    #[inline]
    pub fn current(&self) -> Option<Record<'_>> {
        let record = self.waiting[..self.settled].get(self.at)?;
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
        let Some(record) = self.waiting[..self.settled].get(self.at) else { return };
        if self.out_ns.is_some_and(|out| record.at_ns < out) {
            self.late += 1;
        } else {
            self.out_ns = Some(record.at_ns);
        }
        self.at += 1;
    }

    /// Forgets what was taken, and moves the snippets that are still needed to the front.
    fn compact(&mut self) {
        self.waiting.drain(..self.at);
        (self.at, self.settled) = (0, 0);
        let first = self.waiting.iter().map(|record| record.snippet_at).min().unwrap_or(self.snippets.len());
        // What one late snippet keeps is kept until the next time.
        if first >= self.snippets.len() / 2 {
            self.snippets.drain(..first);
            for record in &mut self.waiting {
                record.snippet_at -= first;
            }
        }
    }

    /// Packets that came out after a later one.
    pub fn late_packets(&self) -> u64 {
        self.late
    }

    /// Bytes of snippets that are kept.
    #[cfg(test)]
    pub(super) fn snippet_bytes(&self) -> usize {
        self.snippets.len()
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() - self.at
    }
}
