//! Which bytes of one direction's sequence space went by, in 64 bits, and where holes are.

/// Holes that are kept apart at most; beyond, the oldest counts as never seen. A window with a hole at every second packet of
/// 512 still fits.
const MOST_HOLES: usize = 256;

/// Bytes that have not gone by, while later ones have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The capture lost packets before the packet behind it.
    pub(crate) in_gap: bool,
    /// There was no packet behind it: they were acknowledged.
    pub(crate) acknowledged: bool,
    /// When the packet behind it, or their acknowledgment, went by.
    pub(crate) at_ns: i64,
    /// That packet's TSval.
    pub(crate) ts_val: Option<u32>,
    /// Its IP identification, where that is counted up.
    pub(crate) id: Option<u16>,
    /// How many data packets had gone by then.
    pub(crate) data_packets: u64,
}

/// What a segment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Covered {
    /// Bytes beyond all before.
    pub(crate) beyond: u64,
    /// Bytes in holes.
    pub(crate) filled: u64,
    /// Bytes that had gone by already.
    pub(crate) repeated: u64,
    /// The hole that it filled, whole or in part; the first of several.
    pub(crate) hole: Option<Hole>,
}

/// The part of sequence space that has gone by.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Behind the highest byte that was seen; 0 before the first.
    pub(crate) next: u64,
    /// The first byte that was seen.
    pub(crate) first: u64,
    /// Bytes that never went by.
    pub(crate) never: u64,
    /// Bytes that the capture lost, or may have.
    not_captured: u64,
    /// In the order of sequence, none empty, none touching.
    holes: Vec<Hole>,
}

impl Seen {
    pub(crate) fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Begins at `sequence`.
    pub(crate) fn begin(&mut self, sequence: u32) {
        // One turn ahead, so that what is below the first byte is still above 0.
        self.next = (1 << 32) + u64::from(sequence);
        self.first = self.next;
    }

    /// Begins at `start` instead.
    pub(crate) fn skip_to(&mut self, start: u64) {
        (self.first, self.next) = (start, start);
    }

    /// The 64-bit number that is nearest to what was seen last.
    #[inline]
    pub(crate) fn unwrap(&self, sequence: u32) -> u64 {
        let ahead = sequence.wrapping_sub(self.next as u32) as i32;
        self.next.saturating_add_signed(ahead.into())
    }

    /// Memory beside its own place, bytes.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.holes.capacity() * size_of::<Hole>()
    }

    #[cfg(test)]
    pub(crate) fn holes(&self) -> &[Hole] {
        &self.holes
    }

    /// Takes in the bytes from `start` to `end`; `maker` says when, for a hole that is left before them.
    #[inline]
    pub(crate) fn take(&mut self, start: u64, end: u64, maker: impl FnOnce() -> Hole) -> Covered {
        if start == self.next {
            self.next = end;
            return Covered { beyond: end - start, ..Covered::default() };
        }
        if start > self.next {
            if self.holes.len() >= MOST_HOLES {
                let oldest = self.holes.remove(0);
                self.give_up(&oldest);
            }
            self.holes.push(Hole { start: self.next, end: start, ..maker() });
            self.next = end;
            return Covered { beyond: end - start, ..Covered::default() };
        }
        self.take_below(start, end)
    }

    /// The bytes of `hole` will not come any more.
    fn give_up(&mut self, hole: &Hole) {
        let bytes = hole.end - hole.start;
        *if hole.in_gap { &mut self.not_captured } else { &mut self.never } += bytes;
    }

    #[cold]
    fn take_below(&mut self, start: u64, end: u64) -> Covered {
        let mut covered = Covered { beyond: end.saturating_sub(self.next), ..Covered::default() };
        let below = end.min(self.next);
        let from = self.holes.partition_point(|hole| hole.end <= start);
        let mut at = from;
        while let Some(hole) = self.holes.get(at).copied().filter(|hole| hole.start < below) {
            covered.hole.get_or_insert(hole);
            let (cut_start, cut_end) = (hole.start.max(start), hole.end.min(below));
            covered.filled += cut_end - cut_start;
            let left = Hole { end: cut_start, ..hole };
            let right = Hole { start: cut_end, ..hole };
            match (left.start < left.end, right.start < right.end) {
                (true, true) => {
                    self.holes[at] = left;
                    self.holes.insert(at + 1, right);
                    break;
                }
                (true, false) => {
                    self.holes[at] = left;
                    at += 1;
                }
                (false, true) => {
                    self.holes[at] = right;
                    break;
                }
                (false, false) => drop(self.holes.remove(at)),
            }
        }
        // Bytes before the first byte seen passed before the capture began, or were reordered.
        covered.repeated = (below - start).saturating_sub(covered.filled);
        self.next = self.next.max(end);
        covered
    }

    /// The receiver has all below `acked`: what was not seen beyond the highest byte never will be, and holes below `acked` that are
    /// older than `before_ns` neither, or than `acknowledged_before_ns` where they were acknowledged first. `after_gap`: the capture lost packets since the last segment.
    #[inline]
    pub(crate) fn acknowledged(&mut self, acked: u64, before_ns: i64, acknowledged_before_ns: i64, after_gap: bool) {
        if acked > self.next {
            *if after_gap { &mut self.not_captured } else { &mut self.never } += acked - self.next;
            self.next = acked;
        }
        if !self.holes.is_empty() {
            let gone = |hole: &Hole| {
                hole.end <= acked && hole.at_ns < if hole.acknowledged { acknowledged_before_ns } else { before_ns }
            };
            for hole in self.holes.extract_if(.., |hole| gone(hole)).collect::<Vec<_>>() {
                self.give_up(&hole);
            }
        }
    }

    /// All bytes that never went by, with those in holes that are still open.
    pub(crate) fn missing(&self) -> u64 {
        self.never + self.open(false)
    }

    /// All bytes that the capture lost, or may have, with those in holes that are still open.
    pub(crate) fn not_captured(&self) -> u64 {
        self.not_captured + self.open(true)
    }

    fn open(&self, in_gap: bool) -> u64 {
        self.holes.iter().filter(|hole| hole.in_gap == in_gap).map(|hole| hole.end - hole.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hole() -> Hole {
        Hole { start: 0, end: 0, in_gap: false, acknowledged: false, at_ns: 0, ts_val: None, id: None, data_packets: 0 }
    }

    #[test]
    fn numbers_wrap() {
        let mut seen = Seen::default();
        seen.begin(u32::MAX - 9);
        let start = seen.unwrap(u32::MAX - 9);
        assert_eq!(seen.take(start, start + 20, hole).beyond, 20);
        assert_eq!(seen.unwrap(10), start + 20);
        assert_eq!(seen.unwrap(u32::MAX - 9), start);
    }

    proptest! {
        /// As many bytes are new, and as many missing, as a set of all bytes says.
        #[test]
        fn counts_as_a_set_of_bytes_does(segments in prop::collection::vec((0_u64..300, 1_u64..40), 1..60)) {
            let mut seen = Seen::default();
            seen.begin(0);
            let base = seen.next;
            let mut bytes = std::collections::BTreeSet::new();
            for (start, len) in segments {
                let before = bytes.len() as u64;
                bytes.extend(start..start + len);
                let new = bytes.len() as u64 - before;
                let covered = seen.take(base + start, base + start + len, hole);
                prop_assert_eq!(covered.beyond + covered.filled, new);
                prop_assert_eq!(covered.repeated, len - new);
                let highest = bytes.last().map_or(0, |last| last + 1);
                prop_assert_eq!(seen.missing(), highest - bytes.len() as u64);
                prop_assert!(seen.holes().windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
