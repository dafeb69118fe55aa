//! Round trips from the capture point to the receiver and back.
//!
//! Two methods: from a segment to the acknowledgment that covers it, and from a TSval to its first echo (RFC 7323 §3). By Karn's rule the
//! first leaves out retransmitted data, and data in flight during a retransmission: its acknowledgment waited for that. The sum of both
//! directions is the path's whole round trip, at any capture point.

use std::collections::VecDeque;

/// Segments that wait for their acknowledgment at most; later ones are not timed until some were acknowledged.
const MOST_WAITING: usize = 1 << 15;
/// Time stamps that wait for their echo at most. A clock of 1 ms makes this 4 s.
const MOST_STAMPS: usize = 1 << 12;
/// The most of either before the first answer: a capture of one direction never has one.
const MOST_UNANSWERED: usize = 64;

/// Samples, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Samples {
    pub(crate) count: u64,
    pub(crate) min_ns: i64,
    pub(crate) max_ns: i64,
    pub(crate) sum_ns: f64,
    sum_squares: f64,
    pub(crate) last_ns: i64,
}

impl Samples {
    #[inline]
    fn add(&mut self, rtt_ns: i64) {
        if rtt_ns < 0 {
            return;
        }
        self.min_ns = if self.count == 0 { rtt_ns } else { self.min_ns.min(rtt_ns) };
        self.max_ns = self.max_ns.max(rtt_ns);
        self.count += 1;
        self.sum_ns += rtt_ns as f64;
        self.sum_squares += (rtt_ns as f64).powi(2);
        self.last_ns = rtt_ns;
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        self.sum_ns / self.count.max(1) as f64
    }

    pub(crate) fn stddev_ns(&self) -> f64 {
        (self.sum_squares / self.count.max(1) as f64 - self.mean_ns().powi(2)).max(0.0).sqrt()
    }

    pub(crate) fn min(&self) -> Option<i64> {
        (self.count > 0).then_some(self.min_ns)
    }
}

/// Round trips of one direction's data.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    waiting: VecDeque<(u64, i64)>,
    /// Data below this is not timed.
    untimed_below: u64,
    stamps: VecDeque<(u32, i64)>,
    /// Something came back.
    answered: bool,
    pub(crate) by_sequence: Samples,
    pub(crate) by_timestamp: Samples,
}

impl RoundTrips {
    /// Data up to `end` went by for the first time.
    #[inline]
    pub(crate) fn sent(&mut self, end: u64, at_ns: i64) {
        if self.waiting.len() < if self.answered { MOST_WAITING } else { MOST_UNANSWERED } {
            self.waiting.push_back((end, at_ns));
        }
    }

    /// Something went by again, or late, while all up to `next` was in flight.
    pub(crate) fn disturbed(&mut self, next: u64) {
        self.untimed_below = next;
    }

    /// The capture lost packets while all up to `next` was in flight: what answers it may be an answer to something else.
    #[cold]
    pub(crate) fn interrupted(&mut self, next: u64) {
        self.disturbed(next);
        self.stamps.clear();
    }

    /// All below `acked` was acknowledged. The sample, if it makes one.
    #[inline]
    pub(crate) fn acknowledged(&mut self, acked: u64, at_ns: i64) -> Option<i64> {
        self.answered = true;
        let mut newest = None;
        while let Some((end, sent_ns)) = self.waiting.front().copied().filter(|(end, _)| *end <= acked) {
            newest = Some((end, sent_ns));
            self.waiting.pop_front();
        }
        let (_, sent_ns) = newest.filter(|(end, _)| *end > self.untimed_below)?;
        self.by_sequence.add(at_ns - sent_ns);
        Some(at_ns - sent_ns)
    }

    /// A packet with `ts_val` went by.
    #[inline]
    pub(crate) fn stamped(&mut self, ts_val: u32, at_ns: i64) {
        let newer = self.stamps.back().is_none_or(|(last, _)| (ts_val.wrapping_sub(*last) as i32) > 0);
        if newer && self.stamps.len() < if self.answered { MOST_STAMPS } else { MOST_UNANSWERED } {
            self.stamps.push_back((ts_val, at_ns));
        }
    }

    /// A packet with `ts_ecr` came back.
    #[inline]
    pub(crate) fn echoed(&mut self, ts_ecr: u32, at_ns: i64) {
        self.answered = true;
        while let Some((ts_val, sent_ns)) = self.stamps.front().copied() {
            let behind = ts_ecr.wrapping_sub(ts_val) as i32;
            if behind < 0 {
                break;
            }
            // The newest one stays as a mark: its value must not be taken as new when it comes again.
            if self.stamps.len() > 1 {
                self.stamps.pop_front();
            } else if sent_ns == i64::MIN {
                break;
            } else {
                self.stamps[0].1 = i64::MIN;
            }
            if behind == 0 && sent_ns != i64::MIN {
                self.by_timestamp.add(at_ns - sent_ns);
            }
        }
    }

    /// The shortest, by either way.
    #[inline]
    pub(crate) fn min_ns(&self) -> Option<i64> {
        match (self.by_sequence.min(), self.by_timestamp.min()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgment_times_the_newest_segment_that_it_covers() {
        let mut trips = RoundTrips::default();
        for (end, at_ns) in [(100, 10), (200, 20), (300, 30)] {
            trips.sent(end, at_ns);
        }
        assert_eq!(trips.acknowledged(200, 70), Some(50));
        assert_eq!(trips.acknowledged(250, 75), None);
        trips.disturbed(300);
        trips.sent(400, 80);
        assert_eq!(trips.acknowledged(300, 90), None, "it waited for the retransmission");
        assert_eq!(trips.acknowledged(400, 120), Some(40));
        assert_eq!((trips.by_sequence.count, trips.by_sequence.min_ns, trips.by_sequence.max_ns), (2, 40, 50));
    }

    #[test]
    fn the_first_echo_of_a_stamp_times_it() {
        let mut trips = RoundTrips::default();
        for (ts_val, at_ns) in [(u32::MAX, 10), (u32::MAX, 11), (0, 20)] {
            trips.stamped(ts_val, at_ns);
        }
        trips.echoed(u32::MAX, 50);
        trips.echoed(u32::MAX, 60);
        trips.echoed(0, 65);
        trips.stamped(0, 66);
        trips.echoed(0, 99);
        assert_eq!((trips.by_timestamp.count, trips.by_timestamp.min_ns, trips.by_timestamp.max_ns), (2, 40, 45));
    }
}
