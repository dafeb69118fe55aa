//! The counters of a running capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use longhaul_captures::ledger::DroppedAt;

/// The counters of a running capture.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets read from the rings.
    pub read_packets: AtomicU64,
    /// Bytes of their frames on the wire.
    pub frame_bytes: AtomicU64,
    /// Super-packets among them.
    pub super_packets: AtomicU64,
    /// Packets written.
    pub written_packets: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Bytes of files that were written and removed since.
    pub removed_bytes: AtomicU64,
    /// Packets dropped, in the order of [`DroppedAt::ALL`].
    pub dropped: [AtomicU64; DroppedAt::ALL.len()],
    /// Whether the disk is full now.
    pub disk_full: AtomicBool,
    /// CPU time of the threads that have ended.
    pub cpu_ns: AtomicU64,
    /// Messages for the user.
    notices: Mutex<Vec<String>>,
    gone: Mutex<Vec<Gone>>,
}

/// An interface that was removed during the capture, or moved to another network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Its name.
    pub interface: String,
    /// When that was seen, nanoseconds since 1970.
    pub at_ns: i64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn dropped_at(&self, place: DroppedAt, packets: u64) {
        let at = DroppedAt::ALL.iter().position(|known| *known == place).unwrap_or(0);
        Self::add(&self.dropped[at], packets);
    }

    pub(crate) fn notice(&self, text: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Takes the messages that the user should see at once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn gone(&self, gone: Gone) {
        self.notice(format!("interface {} was removed", gone.interface));
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(gone);
    }

    /// The interfaces that are gone.
    pub(crate) fn take_gone(&self) -> Vec<Gone> {
        std::mem::take(&mut self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Packets dropped so far, at all places.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}
