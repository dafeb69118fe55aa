//! What the thread of a flow has written or read, for other threads to look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_terms::ThreadCpu;
use longhaul_units::Nanos;

/// What the thread of a flow has done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    bytes: AtomicU64,
    omitted_bytes: AtomicU64,
    arrived_ns: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    over: AtomicBool,
    failure: Mutex<Option<String>>,
    cpu: Mutex<Option<ThreadCpu>>,
    transfers_ns: Mutex<Vec<u64>>,
}

impl Counts {
    /// Payload bytes written or read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those of the time that is omitted at the beginning.
    pub(super) fn omitted_bytes(&self) -> u64 {
        self.omitted_bytes.load(Ordering::Relaxed)
    }

    /// When the first byte was written or read; 0: none yet.
    pub(super) fn arrived_ns(&self) -> u64 {
        self.arrived_ns.load(Ordering::Relaxed)
    }

    /// When counting began: after the time that is omitted.
    pub(super) fn first_ns(&self) -> u64 {
        self.first_ns.load(Ordering::Relaxed)
    }

    /// When the last byte was written or read, or the stream ended.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }

    /// The stream ended now. An empty one has no time.
    pub(super) fn end_of_stream(&self) {
        if self.bytes() > 0 {
            self.last_ns.store(monotonic().0, Ordering::Relaxed);
        }
    }

    /// Whether the thread has come to the end of its stream.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Why it ended early; `None` where it did not.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What its thread used of its CPU; `None` before its end.
    pub(super) fn cpu(&self) -> Option<ThreadCpu> {
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread used this much of its CPU.
    pub(super) fn used(&self, cpu: ThreadCpu) {
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner) = Some(cpu);
    }

    /// How long each transfer took to arrive; empty before the end of the thread.
    pub(super) fn transfers_ns(&self) -> Vec<u64> {
        self.transfers_ns.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The transfers took this long to arrive.
    pub(super) fn transferred(&self, times_ns: Vec<u64>) {
        *self.transfers_ns.lock().unwrap_or_else(PoisonError::into_inner) = times_ns;
    }

    /// Adds `count` bytes now. `omit`: how long after the first byte they do not count.
    pub(super) fn add(&self, count: usize, omit: Nanos) {
        let now = monotonic().0;
        if self.arrived_ns() == 0 {
            self.arrived_ns.store(now, Ordering::Relaxed);
            self.first_ns.store(now, Ordering::Relaxed);
        }
        // One thread writes.
        let bytes = self.bytes() + count as u64;
        self.bytes.store(bytes, Ordering::Relaxed);
        if omit > Nanos::ZERO && now < self.arrived_ns().saturating_add(omit.0) {
            self.omitted_bytes.store(bytes, Ordering::Relaxed);
            self.first_ns.store(now, Ordering::Relaxed);
        }
        self.last_ns.store(now, Ordering::Relaxed);
    }

    /// The thread has ended.
    pub(super) fn end(&self, failure: Option<std::io::Error>) {
        if let Some(error) = failure {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        self.over.store(true, Ordering::Release);
    }
}
