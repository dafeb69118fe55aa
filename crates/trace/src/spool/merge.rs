//! Packets of several interfaces and queues, put in order of time in bounded memory.
//!
//! A ring hands packets over in the order in which they found a place, which on several CPUs is not quite the order of their stamps,
//! and interfaces are read in turns. A [`Kind::Tick`](super::Kind::Tick) tells up to when all are there.

use crate::record::{Direction, LinkType, Record};

/// Packets that wait at most: 64 bytes each and their heads, some 300 MiB at 96 bytes. Beyond it the oldest go, in order or not.
const MOST_WAITING: usize = 2 << 20;

/// A record whose head lies in the arena.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    at_ns: i64,
    head_at: usize,
    head_len: u32,
    frame_len: u32,
    interface: u16,
    gso_segs: u16,
    gso_size: u16,
    direction: Direction,
    link: LinkType,
}

/// Packets that wait until no older one can come.
#[derive(Debug, Default)]
pub struct RecordBuffer {
    waiting: Vec<Waiting>,
    heads: Vec<u8>,
    /// The latest that was handed out.
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
            head_at: self.heads.len(),
            head_len: record.head.len() as u32,
            frame_len: record.frame_len,
            interface: record.interface,
            gso_segs: record.gso_segs,
            gso_size: record.gso_size,
            direction: record.direction,
            link: record.link,
        });
        self.heads.extend_from_slice(record.head);
    }

    /// Whether so many wait that some should go.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.capacity.unwrap_or(MOST_WAITING)
    }

    /// Hands out what is older than `watermark_ns`, in order; where too many wait, the older half of the rest as well.
    ///
    /// # Errors
    /// What `take` returns.
    pub fn release<E>(&mut self, watermark_ns: i64, take: impl FnMut(&Record<'_>) -> Result<(), E>) -> Result<(), E> {
        self.waiting.sort_by_key(|record| record.at_ns);
        let mut count = self.waiting.partition_point(|record| record.at_ns < watermark_ns);
        if self.is_full() && count < self.waiting.len() / 2 {
            count = self.waiting.len() / 2;
        }
        self.hand_out(count, take)
    }

    /// Hands out all.
    ///
    /// # Errors
    /// What `take` returns.
    pub fn finish<E>(&mut self, take: impl FnMut(&Record<'_>) -> Result<(), E>) -> Result<(), E> {
        self.waiting.sort_by_key(|record| record.at_ns);
        self.hand_out(self.waiting.len(), take)
    }

    fn hand_out<E>(&mut self, count: usize, mut take: impl FnMut(&Record<'_>) -> Result<(), E>) -> Result<(), E> {
        for record in &self.waiting[..count] {
            if self.out_ns.is_some_and(|out| record.at_ns < out) {
                self.late += 1;
            } else {
                self.out_ns = Some(record.at_ns);
            }
            take(&Record {
                at_ns: record.at_ns,
                interface: record.interface,
                direction: record.direction,
                link: record.link,
                frame_len: record.frame_len,
                gso_segs: record.gso_segs,
                gso_size: record.gso_size,
                head: &self.heads[record.head_at..record.head_at + record.head_len as usize],
            })?;
        }
        self.waiting.drain(..count);
        self.compact();
        Ok(())
    }

    /// Moves the heads that are still needed to the front.
    fn compact(&mut self) {
        let first = self.waiting.iter().map(|record| record.head_at).min().unwrap_or(self.heads.len());
        // What one late head keeps is kept until the next time.
        if first > self.heads.len() / 2 {
            self.heads.drain(..first);
            for record in &mut self.waiting {
                record.head_at -= first;
            }
        }
    }

    /// Packets that came out after a later one.
    pub fn late_packets(&self) -> u64 {
        self.late
    }

    /// Bytes of heads that are kept.
    #[cfg(test)]
    pub(super) fn heads_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
