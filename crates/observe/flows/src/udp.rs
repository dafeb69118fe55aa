//! A UDP flow, and longhaul's probes in it.
//!
//! The probe header has no mark of its own. A direction counts as probes if nine tenths of its packets, and at least four, have the same
//! cookie and numbers within a window below the highest, and each number came at most four times on average: a program that repeats the same
//! bytes is not longhaul's. Packets that may be the proof of the data path, which comes before a test's packets, count neither way.

use std::collections::VecDeque;

use longhaul_wire::probe::{FIRST_RESERVED, Probe};

use crate::gaps::Lost;
use crate::half::paced;
use crate::loss::Loss;
use crate::pace::{Millisecond, Pace};
use crate::summary::{DirectionSummary, LOSS_RUN_LENGTHS, ProbeSummary};
use longhaul_captures::packet::Packet;

/// Numbers that are told from duplicates, below the highest: some 40 ms of small packets at 100 Gb/s and 3 s at 1 Gb/s.
const WINDOW: u64 = 1 << 18;

/// Numbers that a packet may skip, in the long run: a flow that skips more of them is none of probes. Beyond 98 % of loss nothing is told.
const LOOKED_AT: u64 = 64;
/// Packets in a super-packet at most: `UDP_MAX_SEGMENTS` of Linux's include/linux/udp.h.
const SEGMENTS_MOST: u64 = 128;
/// Runs of lost packets that are kept until the flow counts as one of probes. The oldest makes room.
const LOSSES_MOST: usize = 4096;

/// Numbers of probes that a capture has looked at, in all its flows: a row of some bits can stand for thousands.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Those that may still be looked at.
    pub(crate) left: u64,
    /// Packets that came when too few were left, and all behind the first of these.
    pub(crate) refused: u64,
}

impl Numbers {
    /// Takes `count` for `packets` that came, where they are left. Once they were not, none is taken any more: packets that were refused
    /// would count as lost.
    fn take(&mut self, count: u64, packets: u64) -> bool {
        match self.left.checked_sub(count) {
            Some(left) if self.refused == 0 => self.left = left,
            _ => self.refused += packets,
        }
        self.refused == 0
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct UdpHalf {
    packets: u64,
    wire_packets: u64,
    frame_bytes: u64,
    payload_bytes: u64,
    first_ns: i64,
    last_ns: i64,
    pace: Option<Box<Pace>>,
    probes: Option<Box<Probes>>,
    other: u64,
}

/// Numbers of probes that came. The bit of a number is at the number modulo the window.
#[derive(Debug)]
struct Probes {
    cookie: u32,
    found: ProbeSummary,
    seen: Vec<u64>,
    packets: u64,
    /// Behind the highest in a row: no number below is missing that was not counted.
    settled: u64,
    /// Missing numbers in a row right below it.
    run: usize,
    /// Numbers from and up to which the capture may have lost, in order; none of them is settled.
    not_captured: VecDeque<(u64, u64)>,
    /// Numbers in a row that came, below `settled` and before the run.
    after: u64,
    /// Runs that ended and that nobody took.
    losses: VecDeque<Loss>,
    /// Numbers that may be looked at.
    credit: u64,
}

impl Probes {
    fn new(probe: &Probe) -> Self {
        Self {
            cookie: probe.cookie.0,
            found: ProbeSummary {
                cookie: probe.cookie.0,
                first_sequence: probe.sequence,
                last_sequence: probe.sequence,
                ..ProbeSummary::default()
            },
            seen: vec![0; 64],
            packets: 0,
            settled: probe.sequence,
            run: 0,
            not_captured: VecDeque::new(),
            after: 0,
            losses: VecDeque::new(),
            credit: WINDOW,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.seen.len() * size_of::<u64>()
            + self.not_captured.capacity() * size_of::<(u64, u64)>()
            + self.losses.capacity() * size_of::<Loss>()
    }

    fn ended(&mut self, loss: Loss) {
        if self.losses.len() >= LOSSES_MOST {
            self.losses.pop_front();
        }
        self.losses.push_back(loss);
    }

    fn bit(&mut self, sequence: u64) -> (&mut u64, u64) {
        let bits = self.seen.len() as u64 * 64;
        // The length is a power of two.
        let at = sequence & (bits - 1);
        (&mut self.seen[(at / 64) as usize], 1 << (at % 64))
    }

    fn has(&mut self, sequence: u64) -> bool {
        let (word, bit) = self.bit(sequence);
        *word & bit != 0
    }

    /// Counts out the numbers below `until`: what is missing there is lost.
    fn settle(&mut self, until: u64) {
        while self.settled < until {
            let sequence = self.settled;
            let came = self.has(sequence);
            if self.not_captured.front().is_some_and(|(_, to)| *to <= sequence) {
                self.not_captured.pop_front();
            }
            if !came && self.not_captured.front().is_some_and(|(from, _)| *from <= sequence) {
                self.found.not_captured_packets += 1;
                self.settled += 1;
                self.cut();
                continue;
            }
            let before = sequence == self.found.first_sequence || self.was_here(sequence);
            if !came {
                self.found.lost_packets += 1;
                self.found.loss_runs += u64::from(before);
                self.run += 1;
            } else if self.run > 0 {
                self.found.loss_run_lengths[self.run.min(LOSS_RUN_LENGTHS) - 1] += 1;
                self.ended(Loss { after_packets: self.after, packets: self.run as u64 });
                (self.run, self.after) = (0, 1);
            } else {
                self.after += 1;
            }
            self.settled += 1;
        }
    }

    /// What goes on here is not known: a run that reaches so far has no length.
    fn cut(&mut self) {
        if self.run > 0 {
            self.found.loss_run_lengths[self.run.min(LOSS_RUN_LENGTHS) - 1] += 1;
        }
        if self.after > 0 {
            self.ended(Loss { after_packets: self.after, packets: 0 });
        }
        (self.run, self.after) = (0, 0);
    }

    /// Whether the number before `sequence` came; its bit is not used anew before that of `sequence` is.
    fn was_here(&mut self, sequence: u64) -> bool {
        sequence.checked_sub(1).is_some_and(|before| self.has(before))
    }

    /// Whether they are a flow of probes, beside `other` packets that are none.
    fn are_ours(&self, other: u64) -> bool {
        self.packets >= 4 && self.packets >= 9 * other && self.packets <= 4 * self.found.unique_packets
    }

    /// Takes in a run of `count` numbers. `false` where they are not of this flow's, or too few of `numbers` are left. `after_gap`: the
    /// capture lost packets before it.
    fn take(&mut self, probe: &Probe, count: u64, after_gap: bool, numbers: &mut Numbers) -> bool {
        if probe.cookie.0 != self.cookie || count > SEGMENTS_MOST {
            return false;
        }
        let last = probe.sequence.saturating_add(count - 1);
        self.credit = (self.credit + LOOKED_AT * count).min(WINDOW);
        let mut not_captured = None;
        if after_gap && probe.sequence > self.found.last_sequence + 1 {
            let skipped = probe.sequence - self.found.last_sequence;
            if last - self.found.last_sequence > WINDOW / 2 || skipped > self.credit {
                self.skip_to(probe.sequence);
            } else {
                not_captured = Some((self.found.last_sequence + 1, probe.sequence));
            }
        }
        let far = last.abs_diff(self.found.last_sequence) > WINDOW / 2;
        let skipped = probe.sequence.saturating_sub(self.found.last_sequence);
        if far || skipped > self.credit || !numbers.take(skipped + count, count) {
            return false;
        }
        self.not_captured.extend(not_captured);
        self.credit -= skipped;
        self.packets += count;
        for sequence in probe.sequence..=last {
            self.one(sequence);
        }
        true
    }

    /// Goes on at `sequence`: the capture lost more than there is room for.
    fn skip_to(&mut self, sequence: u64) {
        self.settle(self.found.last_sequence + 1);
        self.cut();
        self.found.not_captured_packets += sequence - self.settled;
        self.not_captured.clear();
        self.seen.fill(0);
        // As if the number before had come: what is missing behind it is a loss of its own.
        let (word, bit) = self.bit(sequence - 1);
        *word |= bit;
        (self.settled, self.found.last_sequence) = (sequence, sequence - 1);
    }

    fn one(&mut self, sequence: u64) {
        let found = &mut self.found;
        if sequence > found.last_sequence || found.unique_packets == 0 {
            let bits = self.seen.len() as u64 * 64;
            let span = sequence - self.settled.min(sequence);
            if span + 1 >= bits && bits < WINDOW {
                self.grow();
            }
            let bits = self.seen.len() as u64 * 64;
            self.settle((sequence + 1).saturating_sub(bits - 1));
            for skipped in self.found.last_sequence + 1..=sequence {
                let (word, bit) = self.bit(skipped);
                *word &= !bit;
            }
            let (word, bit) = self.bit(sequence);
            *word |= bit;
            self.found.last_sequence = sequence;
            self.found.unique_packets += 1;
            return;
        }
        if sequence < self.found.first_sequence {
            // Reordered: the first packet seen was sent later.
            self.found.reordered_packets += 1;
            self.found.unique_packets += 1;
            let gap = self.found.first_sequence - sequence - 1;
            self.found.lost_packets += gap;
            self.found.loss_runs += u64::from(gap > 0);
            self.found.first_sequence = sequence;
            return;
        }
        if sequence < self.settled || self.has(sequence) {
            self.found.duplicate_packets += 1;
            return;
        }
        let (word, bit) = self.bit(sequence);
        *word |= bit;
        self.found.unique_packets += 1;
        self.found.reordered_packets += 1;
    }

    /// A window of twice the size; what is not settled keeps its bits.
    fn grow(&mut self) {
        let known: Vec<u64> = (self.settled.saturating_sub(1)..=self.found.last_sequence).collect();
        let came: Vec<u64> = known.into_iter().filter(|sequence| self.has(*sequence)).collect();
        self.seen = vec![0; self.seen.len() * 2];
        for sequence in came {
            let (word, bit) = self.bit(sequence);
            *word |= bit;
        }
    }
}

impl UdpHalf {
    /// A datagram, or a super-packet of several. The millisecond that ended, and the interval since the one before.
    pub(crate) fn packet(
        &mut self,
        packet: &Packet,
        payload: u32,
        probe: Option<&Probe>,
        lost: Lost,
        numbers: &mut Numbers,
    ) -> (Option<(i64, Millisecond)>, Option<i64>) {
        let segments = match (packet.gso_segs, packet.gso_size) {
            (0, 0) => 1,
            (0, size) => payload.div_ceil(size.into()).max(1),
            (segments, _) => segments.into(),
        };
        if self.packets == 0 {
            self.first_ns = packet.at_ns;
        }
        self.packets += 1;
        self.wire_packets += u64::from(segments);
        self.frame_bytes += u64::from(packet.frame_len);
        self.payload_bytes += u64::from(payload);
        self.last_ns = self.last_ns.max(packet.at_ns);
        let pace = self.pace.get_or_insert_default();
        let after_gap = lost.since(pace.gap_ns());
        match probe {
            Some(probe) if probe.sequence >= FIRST_RESERVED => {}
            Some(probe) if self.other == 0 || self.probes.is_some() => {
                let probes = self.probes.get_or_insert_with(|| Box::new(Probes::new(probe)));
                let is_taken = probes.take(probe, segments.into(), after_gap, numbers);
                self.other += if is_taken { 0 } else { u64::from(segments) };
            }
            _ => self.other += u64::from(segments),
        }
        let ended = pace.advance(packet.at_ns, lost);
        (ended, pace.add(packet.at_ns, payload.into(), None, lost))
    }

    /// Memory beside its own place, bytes.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        let pace = self.pace.as_ref().map_or(0, |pace| size_of::<Pace>() + pace.heap_bytes());
        pace + self.probes.as_ref().map_or(0, |probes| size_of::<Probes>() + probes.heap_bytes())
    }

    /// A run of lost probes that came to its end.
    #[inline]
    pub(crate) fn take_loss(&mut self) -> Option<Loss> {
        let probes = self.probes.as_mut()?;
        if !probes.are_ours(self.other) {
            return None;
        }
        probes.losses.pop_front()
    }

    pub(crate) fn finish(&mut self) -> (DirectionSummary, Option<(i64, Millisecond)>) {
        let mut pace = self.pace.take().map(|pace| *pace).unwrap_or_default();
        let ended = pace.finish();
        let other = self.other;
        let probes = self.probes.as_mut().filter(|probes| probes.are_ours(other));
        let summary = DirectionSummary {
            packets: self.packets,
            wire_packets: self.wire_packets,
            frame_bytes: self.frame_bytes,
            data_packets: self.packets,
            payload_bytes: self.payload_bytes,
            unique_bytes: self.payload_bytes,
            probe: probes.map(|probes| {
                probes.settle(probes.found.last_sequence + 1);
                probes.cut();
                probes.found
            }),
            ..paced(pace, self.payload_bytes, self.last_ns - self.first_ns)
        };
        (summary, ended)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_wire::probe::Cookie;
    use proptest::prelude::*;

    use super::*;

    fn probe(sequence: u64) -> Probe {
        Probe { cookie: Cookie(1), sequence, sent_ns: 0 }
    }

    fn take(probes: &mut Probes, sequence: u64, count: u64, after_gap: bool) -> bool {
        probes.take(&probe(sequence), count, after_gap, &mut Numbers { left: u64::MAX, refused: 0 })
    }

    fn take_all(sequences: &[u64]) -> ProbeSummary {
        let mut probes = Probes::new(&probe(sequences[0]));
        for sequence in sequences {
            assert!(take(&mut probes, *sequence, 1, false));
        }
        probes.settle(probes.found.last_sequence + 1);
        probes.found
    }

    #[test]
    fn losses_order_and_copies() {
        let found = take_all(&[5, 6, 9, 8, 8, 12, 4]);
        assert_eq!((found.unique_packets, found.lost_packets, found.loss_runs), (6, 3, 2));
        assert_eq!((found.duplicate_packets, found.reordered_packets), (1, 2));
        assert_eq!((found.first_sequence, found.last_sequence, &found.loss_run_lengths[..2]), (4, 12, &[1, 1][..]));
    }

    /// Numbers that are missing behind a gap of the capture are not lost, whether they come late or are too many to keep.
    #[test]
    fn numbers_that_were_not_captured() {
        let mut probes = Probes::new(&probe(0));
        for sequence in [0, 1, 2, 4] {
            assert!(take(&mut probes, sequence, 1, false));
        }
        assert!(take(&mut probes, 15, 1, true));
        for sequence in [7, 20] {
            assert!(take(&mut probes, sequence, 1, false));
        }
        assert!(take(&mut probes, 5_000_000, 1, true));
        assert!(take(&mut probes, 5_000_002, 1, false));
        probes.settle(probes.found.last_sequence + 1);
        let found = probes.found;
        assert_eq!((found.unique_packets, found.reordered_packets, found.duplicate_packets), (9, 1, 0));
        assert_eq!((found.lost_packets, found.loss_runs), (1 + 4 + 1, 3), "3; 16 to 19; 5000001");
        assert_eq!(found.not_captured_packets, 9 + (5_000_000 - 21), "5 to 14 but for 7; 21 to 4999999");
    }

    /// A row of some bits can skip 130,000 numbers.
    #[test]
    fn a_flow_that_skips_nearly_all_numbers_is_none_of_probes() {
        let mut probes = Probes::new(&probe(0));
        let taken = |probes: &mut Probes| (0..10_000).filter(|n| take(probes, n * WINDOW / 2, 1, false)).count();
        assert_eq!(taken(&mut probes), 3);
        assert!(!take(&mut probes, 1, 65_535, false), "no datagram has so many segments");
        assert!(take(&mut probes, WINDOW, 64, false));
    }

    /// Super-packets skip no number, and what the capture lost is not looked at.
    #[test]
    fn a_flow_of_super_packets_goes_on_as_one_of_probes() {
        for (count, lost) in [(128, 0), (100, 0), (64, 64), (1, 30)] {
            let mut probes = Probes::new(&probe(0));
            let mut next = 0;
            for nth in 1..100_000 {
                assert!(take(&mut probes, next, count, false), "{count} {nth}");
                next += count + if nth % 100 == 0 { lost } else { 0 };
            }
        }
        let mut probes = Probes::new(&probe(0));
        assert!((0..1_000).all(|n| take(&mut probes, n * 100_000, 1, true)));
    }

    /// Super-packets that skip 8,192 numbers each: a million rows of them are some ten thousand bytes.
    #[test]
    fn numbers_that_are_looked_at_are_bounded() {
        let mut probes = Probes::new(&probe(0));
        let mut numbers = Numbers { left: 1 << 20, refused: 0 };
        let mut taken = 0;
        for n in 0..10_000 {
            taken += u64::from(probes.take(&probe(n * 64 * SEGMENTS_MOST), SEGMENTS_MOST, false, &mut numbers));
        }
        probes.settle(probes.found.last_sequence + 1);
        assert!((100..=(1 << 20) / (64 * SEGMENTS_MOST)).contains(&taken), "{taken}");
        assert!(probes.settled <= 1 << 20 && numbers.left < 65 * SEGMENTS_MOST);
        assert_eq!(probes.found.unique_packets, taken * SEGMENTS_MOST);
        // Those that are too far by then are none of the flow's, whatever is left.
        assert!(numbers.refused >= 10 * SEGMENTS_MOST, "{}", numbers.refused);
    }

    #[test]
    fn losses_that_nobody_takes_are_bounded() {
        let mut probes = Probes::new(&probe(0));
        assert!((0..100_000).all(|n| take(&mut probes, 2 * n, 1, false)));
        probes.settle(probes.found.last_sequence + 1);
        assert_eq!((probes.losses.len(), probes.found.lost_packets), (LOSSES_MOST, 99_999));
    }

    proptest! {
        /// The account is that of a set of numbers, whatever is lost, reordered or duplicated within the window.
        #[test]
        fn counts_as_a_set_does(fates in prop::collection::vec((0_u8..10, 0_u64..50), 1..9_000)) {
            let mut sequences = Vec::new();
            for (number, (fate, delay)) in fates.iter().enumerate() {
                let number = number as u64 + 1_000;
                match fate {
                    0 => {}
                    1 => sequences.extend([(number, number), (number + delay, number)]),
                    2 => sequences.push((number + delay, number)),
                    _ => sequences.push((number, number)),
                }
            }
            sequences.sort();
            let sequences: Vec<u64> = sequences.into_iter().map(|(_, number)| number).collect();
            prop_assume!(!sequences.is_empty());
            let set: std::collections::BTreeSet<u64> = sequences.iter().copied().collect();
            // What comes before the first of all is not in the window.
            prop_assume!(*set.first().unwrap() == sequences[0]);
            let found = take_all(&sequences);
            let span = set.last().unwrap() - set.first().unwrap() + 1;
            prop_assert_eq!(found.unique_packets, set.len() as u64);
            prop_assert_eq!(found.lost_packets, span - set.len() as u64);
            prop_assert_eq!(found.duplicate_packets, (sequences.len() - set.len()) as u64);
            let sorted: Vec<u64> = set.into_iter().collect();
            prop_assert_eq!(found.loss_runs, sorted.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as u64);
        }
    }
}
