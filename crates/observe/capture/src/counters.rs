//! What a capture has done so far, for whoever watches it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use longhaul_trace::ledger::Place;

/// What a capture has done so far; readable while it runs.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets taken out of the rings.
    pub read_packets: AtomicU64,
    /// Bytes that their frames had.
    pub frame_bytes: AtomicU64,
    /// Super-packets among them.
    pub super_packets: AtomicU64,
    /// Packets written.
    pub written_packets: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// By place.
    pub dropped: [AtomicU64; Place::ALL.len()],
    /// The disk is full at the moment.
    pub disk_full: AtomicBool,
    /// CPU time of the reading and the writing thread, once they have ended.
    pub cpu_ns: AtomicU64,
    /// What the user should hear at once.
    notices: Mutex<Vec<String>>,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn dropped_at(&self, place: Place, packets: u64) {
        let at = Place::ALL.iter().position(|known| *known == place).unwrap_or(0);
        Self::add(&self.dropped[at], packets);
    }

    pub(crate) fn notice(&self, text: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What the user should hear at once, since the last time.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Packets dropped so far, in all places.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}
