//! Round trips from the capture point to the receiver and back.
//!
//! Two methods: from a segment to the acknowledgment that covers it, and from a TSval to its first echo (RFC 7323 §3). By Karn's rule the
//! first leaves out retransmitted data, and data in flight during a retransmission: its acknowledgment waited for that. The sum of both
//! directions is the path's whole round trip, at any capture point.

use std::collections::VecDeque;

/// Segments that are remembered at most; where all of them wait for their acknowledgment, later ones are not timed.
const MOST_WAITING: usize = 1 << 15;
/// Time stamps that wait for their echo at most. A clock of 1 ms makes this 4 s.
const MOST_STAMPS: usize = 1 << 12;
/// Bytes that went by again, or late, whose times are remembered at most.
const MOST_LATE: usize = 1 << 10;
/// How many of these are looked at for each segment in the long run, and how many looks are saved up: enough for a whole window that is
/// retransmitted and loses segments once more.
const LOOKS_A_SEGMENT: u32 = 64;
const MOST_LOOKS: u32 = 1 << 20;
/// The most of either before the first answer: a capture of one direction never has one.
const MOST_UNANSWERED: usize = 64;

/// Longer times are no round trips, but clocks that were set and stamps that mean nothing: 73 min, where TCP gives up within minutes. What is
/// computed of shorter ones and of a time fits a number.
pub(crate) const LONGEST_NS: i64 = 1 << 42;

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
    /// Gives it back where it counts.
    #[inline]
    fn add(&mut self, rtt_ns: i64) -> Option<i64> {
        if !(0..=LONGEST_NS).contains(&rtt_ns) {
            return None;
        }
        self.min_ns = if self.count == 0 { rtt_ns } else { self.min_ns.min(rtt_ns) };
        self.max_ns = self.max_ns.max(rtt_ns);
        self.count += 1;
        self.sum_ns += rtt_ns as f64;
        self.sum_squares += (rtt_ns as f64).powi(2);
        self.last_ns = rtt_ns;
        Some(rtt_ns)
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

/// A segment that went by for the first time.
#[derive(Debug, Clone, Copy)]
struct Passed {
    /// Behind its last byte, the low half: all that are kept lie near each other.
    end: u32,
    /// 0 where it had none.
    ts_val: u32,
    /// `i64::MIN` where it stands for several whose times were not kept.
    at_ns: i64,
}

/// Bytes that went by again, or late.
#[derive(Debug, Clone, Copy)]
struct PassedLate {
    start: u64,
    end: u64,
    /// The highest end, of this one and of those before it.
    highest: u64,
    ts_val: Option<u32>,
    at_ns: i64,
}

/// When bytes went by last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passing {
    pub(crate) at_ns: i64,
    pub(crate) ts_val: Option<u32>,
    /// Segments that passed for the first time since, at least.
    pub(crate) packets_since: usize,
}

/// Why it is not known when bytes went by last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untold {
    /// It is not remembered.
    Forgotten,
    /// Too many bytes went by again to look through them.
    TooMany,
}

/// Round trips of one direction's data, and when its segments went by.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    /// In order: those that were acknowledged, for as long as they may pass again, then those that wait.
    passed: VecDeque<Passed>,
    acknowledged: usize,
    /// Behind segments that there was no room for.
    skipped: Option<u32>,
    /// How long acknowledged ones are kept.
    keep_ns: i64,
    late: VecDeque<PassedLate>,
    /// How many of them may be looked at.
    looks: u32,
    /// Data below this is not timed.
    untimed_below: u64,
    stamps: VecDeque<(u32, i64)>,
    /// Something came back.
    answered: bool,
    pub(crate) by_sequence: Samples,
    pub(crate) by_timestamp: Samples,
}

impl RoundTrips {
    /// Memory beside its own place, bytes.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.passed.capacity() * size_of::<Passed>()
            + self.late.capacity() * size_of::<PassedLate>()
            + self.stamps.capacity() * size_of::<(u32, i64)>()
    }

    /// Data up to `end` went by for the first time.
    #[inline]
    pub(crate) fn sent(&mut self, end: u64, ts_val: Option<u32>, at_ns: i64) {
        self.may_look();
        let end = end as u32;
        if self.passed.len() >= if self.answered { MOST_WAITING } else { MOST_UNANSWERED } && !self.has_room() {
            self.skipped = Some(end);
            return;
        }
        if let Some(end) = self.skipped.take() {
            self.passed.push_back(Passed { end, ts_val: 0, at_ns: i64::MIN });
        }
        self.passed.push_back(Passed { end, ts_val: ts_val.unwrap_or(0), at_ns });
    }

    /// Forgets the oldest, unless it waits for its acknowledgment.
    #[cold]
    fn has_room(&mut self) -> bool {
        if self.answered && self.acknowledged == 0 {
            return false;
        }
        self.acknowledged = self.acknowledged.saturating_sub(1);
        self.passed.pop_front().is_some()
    }

    /// The bytes from `start` to `end` went by again, or late.
    pub(crate) fn sent_late(&mut self, start: u64, end: u64, ts_val: Option<u32>, at_ns: i64) {
        self.may_look();
        let late = &mut self.late;
        while late.len() >= MOST_LATE || late.front().is_some_and(|first| first.at_ns < at_ns - self.keep_ns) {
            late.pop_front();
        }
        let highest = late.back().map_or(end, |last| last.highest.max(end));
        late.push_back(PassedLate { start, end, highest, ts_val, at_ns });
    }

    /// A segment more.
    #[inline]
    fn may_look(&mut self) {
        self.looks = (self.looks + LOOKS_A_SEGMENT).min(MOST_LOOKS);
    }

    /// When the bytes up to `end`, from `start` on, went by last.
    ///
    /// # Errors
    /// That is not remembered, or was not looked for.
    pub(crate) fn last_passing(&mut self, start: u64, end: u64) -> Result<Passing, Untold> {
        for late in self.late.iter().rev().take_while(|late| start < late.highest) {
            self.looks = self.looks.checked_sub(1).ok_or(Untold::TooMany)?;
            if late.start < end && start < late.end {
                return Ok(Passing { at_ns: late.at_ns, ts_val: late.ts_val, packets_since: 0 });
            }
        }
        self.first_passing(end).ok_or(Untold::Forgotten)
    }

    /// When the bytes up to `end` went by for the first time.
    fn first_passing(&self, end: u64) -> Option<Passing> {
        let index = self.passed.partition_point(|passed| (passed.end.wrapping_sub(end as u32) as i32) < 0);
        let passed = self.passed.get(index).filter(|passed| passed.at_ns != i64::MIN)?;
        // Of the oldest one it is not known where it begins: it passed then, or before.
        let is_whole = index > 0 || passed.end == end as u32;
        let ts_val = Some(passed.ts_val).filter(|ts_val| *ts_val != 0);
        let packets_since = self.passed.len() - 1 - index;
        is_whole.then_some(Passing { at_ns: passed.at_ns, ts_val, packets_since })
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

    /// All below `acked` was acknowledged. The sample, if it makes one. What was sent in the last `keep_ns` may pass again.
    #[inline]
    pub(crate) fn acknowledged(&mut self, acked: u64, at_ns: i64, keep_ns: i64) -> Option<i64> {
        self.answered = true;
        self.keep_ns = keep_ns;
        let mut newest = None;
        while let Some(passed) = self.passed.get(self.acknowledged) {
            let behind = (acked as u32).wrapping_sub(passed.end) as i32;
            if behind < 0 {
                break;
            }
            newest = Some((acked - u64::from(behind as u32), passed.at_ns));
            self.acknowledged += 1;
        }
        while self.acknowledged > 0 && self.passed.front().is_some_and(|first| first.at_ns < at_ns - keep_ns) {
            self.passed.pop_front();
            self.acknowledged -= 1;
        }
        let (_, sent_ns) = newest.filter(|(end, sent_ns)| *end > self.untimed_below && *sent_ns != i64::MIN)?;
        self.by_sequence.add(at_ns - sent_ns)
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
            } else {
                // An echo that is captured before its stamp times nothing.
                let is_near = (1..MOST_STAMPS as i32).contains(&behind);
                self.stamps[0] = (if is_near { ts_ecr } else { ts_val }, i64::MIN);
                if sent_ns == i64::MIN {
                    break;
                }
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
            trips.sent(end, None, at_ns);
        }
        assert_eq!(trips.acknowledged(200, 70, 1_000), Some(50));
        assert_eq!(trips.acknowledged(250, 75, 1_000), None);
        trips.disturbed(300);
        trips.sent(400, None, 80);
        assert_eq!(trips.acknowledged(300, 90, 1_000), None, "it waited for the retransmission");
        assert_eq!(trips.acknowledged(400, 120, 1_000), Some(40));
        assert_eq!((trips.by_sequence.count, trips.by_sequence.min_ns, trips.by_sequence.max_ns), (2, 40, 50));
    }

    /// Segments are remembered beyond their acknowledgment, each with its own time; of what was not kept nothing is told.
    #[test]
    fn the_last_passing_of_bytes() {
        let mut trips = RoundTrips::default();
        for n in 1..=10_u64 {
            trips.sent(n * 100, Some(n as u32), n as i64);
        }
        let told =
            |trips: &mut RoundTrips, start, end| trips.last_passing(start, end).ok().map(|passing| passing.at_ns);
        assert_eq!(trips.last_passing(400, 500), Ok(Passing { at_ns: 5, ts_val: Some(5), packets_since: 5 }));
        assert_eq!((told(&mut trips, 450, 480), told(&mut trips, 1_000, 1_100)), (Some(5), None));
        trips.acknowledged(800, 20, 14);
        assert_eq!(trips.last_passing(400, 500), Err(Untold::Forgotten));
        assert_eq!((told(&mut trips, 500, 550), told(&mut trips, 600, 700)), (None, Some(7)));
        trips.sent_late(600, 700, None, 30);
        assert_eq!((told(&mut trips, 600, 700), told(&mut trips, 700, 800)), (Some(30), Some(8)));
        trips.sent_late(100, 200, None, 45);
        assert_eq!(told(&mut trips, 600, 700), Some(7), "too long ago");
        // No room: nothing is told of those between.
        for n in 11..MOST_WAITING as u64 + 40 {
            trips.sent(n * 100, None, n as i64);
        }
        let last = (MOST_WAITING as u64 + 39) * 100;
        trips.acknowledged(last - 5_000, last as i64, 0);
        trips.sent(last + 100, None, 1);
        assert_eq!((told(&mut trips, last - 100, last), told(&mut trips, last, last + 100)), (None, Some(1)));
    }

    /// A window that is retransmitted in order needs no look, and segments of it that are lost once more are found. Hostile segments, which
    /// each overlap all of the others, cost 64 looks each.
    #[test]
    fn looks_follow_segments() {
        let mut trips = RoundTrips::default();
        trips.acknowledged(0, 0, 1_000_000);
        let again = |trips: &mut RoundTrips, n: u64, at_ns: i64| {
            let (start, end) = (n * 100, n * 100 + 100);
            let found = trips.last_passing(start, end).map(|passing| passing.at_ns);
            trips.sent_late(start, end, None, at_ns);
            found
        };
        for n in 0..2_000 {
            trips.sent(n * 100 + 100, None, n as i64);
        }
        assert!((0..2_000).all(|n| again(&mut trips, n, 10_000 + n as i64) == Ok(n as i64)));
        assert_eq!(trips.looks, 4_000 * LOOKS_A_SEGMENT);
        for n in (1_500..2_000).step_by(3) {
            assert_eq!(again(&mut trips, n, 20_000), Ok(10_000 + n as i64));
        }
        // From above, each new one is below all others.
        let mut trips = RoundTrips::default();
        trips.acknowledged(0, 0, 1_000_000);
        let (mut looked, mut told) = (0, 0);
        for n in (0..10_000).rev() {
            let before = trips.looks;
            told += u32::from(again(&mut trips, n, 10) != Err(Untold::TooMany));
            looked += before + LOOKS_A_SEGMENT - trips.looks;
        }
        assert!(looked < 10_000 * LOOKS_A_SEGMENT && (128..1_000).contains(&told), "{looked} {told}");
    }

    #[test]
    fn centuries_are_no_round_trip() {
        let mut trips = RoundTrips::default();
        for (number, rtt_ns) in (1..).zip([-1, 0, LONGEST_NS, LONGEST_NS + 1, 1 << 62]) {
            trips.sent(number * 100, None, 0);
            let counts = (0..=LONGEST_NS).contains(&rtt_ns);
            assert_eq!(trips.acknowledged(number * 100, rtt_ns, 0), counts.then_some(rtt_ns));
            trips.stamped(number as u32, 0);
            trips.echoed(number as u32, rtt_ns);
        }
        assert_eq!((trips.by_sequence.count, trips.by_timestamp.max_ns), (2, LONGEST_NS));
    }

    /// Captured in the wrong order: the echo, then the stamp, then a later echo of it.
    #[test]
    fn an_echo_before_its_stamp_times_nothing() {
        let mut trips = RoundTrips::default();
        trips.stamped(1, 10);
        trips.echoed(1, 20);
        trips.echoed(2, 30);
        trips.stamped(2, 31);
        trips.echoed(2, 500);
        trips.stamped(3, 600);
        trips.echoed(3, 612);
        assert_eq!((trips.by_timestamp.count, trips.by_timestamp.max_ns), (2, 12));
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
