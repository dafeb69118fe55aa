//! What the receiving end of a link accounts for: each snippet that was sent came, or is in a gap.

use std::collections::BTreeMap;

use longhaul_units::Nanos;

use super::INTERFACES_MOST;
use super::payload::{Payload, Span};
use crate::ledger::{DroppedAt, Gap, Ledger};

/// A datagram that is missing this long after a later one came is lost: more than paths of ours reorder by.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// Datagrams that may wait for an earlier one; beyond it the missing are lost. Some 6 MB.
const AHEAD_MOST: usize = 65_536;
/// Missing datagrams of which it is kept what was in them; of further ones the gap has only its bounds. Some 4 MB.
const KNOWN_MOST: usize = 65_536;
/// Losses within this are one gap.
const JOINED_NS: i64 = 100_000;

/// What came over a link, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounts {
    /// Datagrams that came, each once.
    pub datagrams: u64,
    /// Snippets in them.
    pub snippets: u64,
    /// Datagrams that did not come in time.
    pub lost_datagrams: u64,
    /// Snippets in those.
    pub lost_snippets: u64,
    /// Datagrams that came again, or after they were given up.
    pub stale_datagrams: u64,
    /// Datagrams that cannot be what a link of ours sends, and were left out.
    pub wrong_datagrams: u64,
}

/// What to do with a datagram.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// Its snippets are to be written.
    Snippets(Payload<'a>),
    /// It came again, or too late.
    Stale,
    /// It is none of ours.
    Wrong,
}

/// A datagram that came before one that is missing.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    snippets_before: u64,
    count: u16,
    floor_ns: i64,
    latest_ns: i64,
    at: Nanos,
}

/// The account of a link's receiving end.
///
/// Datagrams go in by [`handle`](Self::handle); what was found lost comes out by [`take_part`](Self::take_part). Time is any clock that
/// does not step. Memory: what waits for a missing datagram, and what is known of missing ones, at most some 10 MB.
#[derive(Debug, Clone)]
pub struct LinkReceiver {
    interfaces: u16,
    /// The lowest number that is not settled.
    next: u64,
    /// Snippets in all before it.
    settled_snippets: u64,
    floor_ns: i64,
    ahead: BTreeMap<u64, Ahead>,
    /// Of datagrams that are missing.
    known: BTreeMap<u64, Span>,
    counts: LinkCounts,
    part: Ledger,
}

impl LinkReceiver {
    /// Of a capture on so many interfaces, that began at `started_ns`.
    pub fn new(interfaces: usize, started_ns: i64) -> Self {
        Self {
            interfaces: interfaces.min(INTERFACES_MOST) as u16,
            next: 0,
            settled_snippets: 0,
            floor_ns: started_ns,
            ahead: BTreeMap::new(),
            known: BTreeMap::new(),
            counts: LinkCounts::default(),
            part: Ledger::default(),
        }
    }

    /// A datagram of the other end's came.
    pub fn handle<'a>(&mut self, now: Nanos, sequence: u64, payload: &'a [u8]) -> Arrival<'a> {
        if sequence < self.next || self.ahead.contains_key(&sequence) {
            self.counts.stale_datagrams += 1;
            return Arrival::Stale;
        }
        let Some(payload) = Payload::parse(payload).filter(|payload| self.fits(sequence, payload)) else {
            self.counts.wrong_datagrams += 1;
            return Arrival::Wrong;
        };
        self.counts.datagrams += 1;
        self.counts.snippets += u64::from(payload.span.count);
        self.part.seen_packets += u64::from(payload.span.count);
        if sequence == self.next {
            self.settle(payload.snippets_before, payload.span.count, payload.floor_ns);
            self.settle_ahead();
        } else {
            for (back, span) in (1..).zip(&payload.history) {
                let Some(before) = sequence.checked_sub(back).filter(|before| *before >= self.next) else { break };
                let has_room = self.known.len() < KNOWN_MOST;
                if has_room && !self.ahead.contains_key(&before) && span.interface < self.interfaces {
                    self.known.insert(before, *span);
                }
            }
            let ahead = Ahead {
                snippets_before: payload.snippets_before,
                count: payload.span.count,
                floor_ns: payload.floor_ns,
                latest_ns: payload.latest_ns,
                at: now,
            };
            self.ahead.insert(sequence, ahead);
            while self.ahead.len() > AHEAD_MOST {
                self.give_up();
            }
        }
        Arrival::Snippets(payload)
    }

    /// Whether a datagram can have `sequence`, between the known ones.
    fn fits(&self, sequence: u64, payload: &Payload<'_>) -> bool {
        let span = payload.span;
        if span.count > 0 && span.interface >= self.interfaces {
            return false;
        }
        let most = |datagrams: u64| datagrams.saturating_mul(u16::MAX.into());
        let fits = |(low, low_snippets): (u64, u64), (high, high_snippets): (u64, u64)| {
            high_snippets.checked_sub(low_snippets).is_some_and(|snippets| snippets <= most(high - low))
        };
        let before = self.ahead.range(..sequence).next_back();
        let before = before.map(|(at, ahead)| (at + 1, ahead.snippets_before + u64::from(ahead.count)));
        let after = self.ahead.range(sequence..).next().map(|(at, ahead)| (*at, ahead.snippets_before));
        let Some(end) = payload.snippets_before.checked_add(span.count.into()) else { return false };
        fits(before.unwrap_or((self.next, self.settled_snippets)), (sequence, payload.snippets_before))
            && after.is_none_or(|after| fits((sequence + 1, end), after))
    }

    fn settle(&mut self, snippets_before: u64, count: u16, floor_ns: i64) {
        self.next += 1;
        self.settled_snippets = snippets_before + u64::from(count);
        self.floor_ns = self.floor_ns.max(floor_ns);
    }

    /// Settles the waiting datagrams whose turn it is.
    fn settle_ahead(&mut self) {
        while let Some(ahead) = self.ahead.remove(&self.next) {
            self.settle(ahead.snippets_before, ahead.count, ahead.floor_ns);
        }
        if self.known.first_key_value().is_some_and(|(first, _)| *first < self.next) {
            self.known = self.known.split_off(&self.next);
        }
    }

    /// Enters what is missing before the first that waits as lost.
    fn give_up(&mut self) {
        let Some((&sequence, &ahead)) = self.ahead.first_key_value() else { return };
        self.lose(sequence, ahead.snippets_before, ahead.latest_ns);
        self.settle_ahead();
    }

    /// All that is missing before `sequence`, which `snippets_before` snippets precede, none of them later than `latest_ns`, is lost.
    fn lose(&mut self, sequence: u64, snippets_before: u64, latest_ns: i64) {
        let later = self.known.split_off(&sequence);
        let known = std::mem::replace(&mut self.known, later);
        let lost = snippets_before - self.settled_snippets;
        let told: u64 = known.values().map(|span| u64::from(span.count)).sum();
        let mut rest = lost;
        if told <= lost {
            for span in known.values().filter(|span| span.count > 0) {
                let interface = Some(span.interface);
                let (from_ns, to_ns, packets) = (span.first_ns, span.last_ns, span.count.into());
                self.part
                    .drop_packets(Gap { place: DroppedAt::LogLink, interface, from_ns, to_ns, packets }, JOINED_NS);
            }
            rest -= told;
        }
        let interface = (self.interfaces == 1).then_some(0);
        let (from_ns, to_ns) = (self.floor_ns.min(latest_ns), latest_ns.max(self.floor_ns));
        self.part.drop_packets(Gap { place: DroppedAt::LogLink, interface, from_ns, to_ns, packets: rest }, JOINED_NS);
        self.part.seen_packets += lost;
        self.counts.lost_snippets += lost;
        self.counts.lost_datagrams += sequence - self.next;
        (self.next, self.settled_snippets) = (sequence, snippets_before);
    }

    /// Gives up what is missing for too long. Call it some times a second.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while self.ahead.values().next().is_some_and(|ahead| now >= ahead.at.saturating_add(PATIENCE)) {
            self.give_up();
        }
    }

    /// Whether all of so many datagrams have come or are lost.
    pub fn is_settled(&self, datagrams: u64) -> bool {
        self.next >= datagrams
    }

    /// The link is over: the other end sent `datagrams` with `snippets`, none later than `latest_ns`, or nothing is known of it. What is
    /// missing is lost; `false` where the other end's word does not fit what came.
    pub fn finish(&mut self, end: Option<(u64, u64, i64)>) -> bool {
        while !self.ahead.is_empty() {
            self.give_up();
        }
        let Some((datagrams, snippets, latest_ns)) = end else { return true };
        let (more, more_snippets) = (datagrams.checked_sub(self.next), snippets.checked_sub(self.settled_snippets));
        match (more, more_snippets) {
            (Some(more), Some(more_snippets)) if more_snippets <= more.saturating_mul(u16::MAX.into()) => {
                if more > 0 {
                    self.lose(datagrams, snippets, latest_ns);
                }
                true
            }
            _ => false,
        }
    }

    /// No snippet that comes is older: nanoseconds since 1970.
    pub fn watermark_ns(&self) -> i64 {
        self.floor_ns
    }

    /// What came so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// The ledger of what came or was given up since the last time; `written_packets` is left 0.
    pub fn take_part(&mut self) -> Ledger {
        self.part.take()
    }
}
