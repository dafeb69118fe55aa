//! What the sending end of a link counts.

use std::collections::VecDeque;

use super::payload::{HISTORY_MOST, Payload, Span};
use crate::spool::PacketBlock;

/// Up to when all snippets of a capture have gone, whatever link took them.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    floor_ns: i64,
}

impl Floor {
    /// Of a capture that began at `started_ns`.
    pub fn new(started_ns: i64) -> Self {
        Self { floor_ns: started_ns }
    }

    /// No later snippet is older than `watermark_ns`.
    pub fn tick(&mut self, watermark_ns: i64) {
        self.floor_ns = self.floor_ns.max(watermark_ns);
    }

    /// Nanoseconds since 1970: no snippet that goes from now on is older.
    pub fn floor_ns(&self) -> i64 {
        self.floor_ns
    }
}

/// The numbers of one link: its datagrams and the snippets in them.
#[derive(Debug, Clone, Default)]
pub struct LinkSender {
    datagrams: u64,
    snippets: u64,
    latest_ns: Option<i64>,
    history: VecDeque<Span>,
}

impl LinkSender {
    /// Writes the payload that carries `snippets`, which may be none, and gives its sequence number. It counts as sent from then on: where
    /// the kernel does not take it, the other end finds it missing.
    pub fn payload(&mut self, snippets: &PacketBlock, floor_ns: i64, out: &mut Vec<u8>) -> u64 {
        let latest_ns = self.latest_ns.unwrap_or(floor_ns);
        Payload::write(self.snippets, floor_ns, latest_ns, snippets, self.history.iter().copied(), out);
        let sequence = self.datagrams;
        self.datagrams += 1;
        self.snippets += u64::from(snippets.packets());
        let (first_ns, last_ns) = if snippets.is_empty() { (latest_ns, latest_ns) } else { snippets.span_ns() };
        let span = Span { interface: snippets.interface(), count: snippets.packets() as u16, first_ns, last_ns };
        if !snippets.is_empty() {
            self.latest_ns = Some(self.latest_ns.map_or(last_ns, |latest| latest.max(last_ns)));
        }
        self.history.truncate(HISTORY_MOST - 1);
        self.history.push_front(span);
        sequence
    }

    /// Datagrams so far.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Snippets in them.
    pub fn snippets(&self) -> u64 {
        self.snippets
    }

    /// The latest stamp among those; `None` before the first.
    pub fn latest_ns(&self) -> Option<i64> {
        self.latest_ns
    }
}
