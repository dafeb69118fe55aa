//! Applications that read or write at a rate of their own.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;

use crate::data::RATE_MEMORY;

/// How often to look whether the test was stopped.
pub(super) const LOOK: Nanos = Nanos::from_millis(50);
/// Such an application moves this part of what it moves in a second at a time, which is smooth on any path.
const PACED_PARTS: u64 = 200;

/// Whether a call only returned so that the caller may look whether the test was stopped.
pub(super) fn go_on(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}

/// Bytes that an application of `rate_bps` moves at a time, at most `most`.
pub(super) fn paced_bytes(rate_bps: Option<u64>, most: usize) -> usize {
    let part = rate_bps.map_or(u64::MAX, |bps| (bps / 8 / PACED_PARTS).max(1));
    most.min(usize::try_from(part).unwrap_or(usize::MAX))
}

/// Waits until `bytes` at `rate_bps` since `start` are due.
pub(super) fn wait_for_rate(start: Nanos, bytes: u64, rate_bps: Option<u64>, stop: &AtomicBool, end: Nanos) {
    let Some(bps) = rate_bps else { return };
    let due = u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1));
    wait_until(start.saturating_add(Nanos(due.try_into().unwrap_or(u64::MAX))).min(end), stop);
}

/// A rate that an application does not pass: of a time in which it moved less, [`RATE_MEMORY`] counts.
#[derive(Debug)]
pub(super) struct Limit {
    bps: u64,
    /// From when on all bytes count; it moves up.
    began: Nanos,
}

impl Limit {
    pub(super) fn new(bps: u64) -> Self {
        Self { bps, began: Nanos::ZERO }
    }

    /// Waits until `bytes` since `start` are due, or `stop`.
    pub(super) fn wait(&mut self, start: Nanos, bytes: u64, stop: &AtomicBool) {
        wait_until(self.due(monotonic(), start, bytes), stop);
    }

    fn due(&mut self, now: Nanos, start: Nanos, bytes: u64) -> Nanos {
        let takes = u128::from(bytes) * 8_000_000_000 / u128::from(self.bps.max(1));
        let takes = Nanos(takes.try_into().unwrap_or(u64::MAX));
        let earliest = now.saturating_sub(takes.saturating_add(RATE_MEMORY));
        self.began = self.began.max(start).max(earliest);
        self.began.saturating_add(takes)
    }
}

/// Waits until `due`, or `stop`.
pub(super) fn wait_until(due: Nanos, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic();
        if now >= due {
            return;
        }
        sleep_until(due.min(now + LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_silent_time_ten_seconds_count() {
        let mut limit = Limit::new(8_000_000);
        let seconds = Nanos::from_secs;
        assert_eq!(limit.due(seconds(100), seconds(100), 2_000_000), seconds(102));
        // Ten minutes later: 10 MB at once, and no more.
        assert_eq!(limit.due(seconds(700), seconds(100), 3_000_000), seconds(690));
        assert_eq!(limit.due(seconds(700), seconds(100), 13_000_000), seconds(700));
        assert_eq!(limit.due(seconds(700), seconds(100), 14_000_000), seconds(701));
    }
}
