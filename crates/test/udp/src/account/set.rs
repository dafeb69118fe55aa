//! A set of sequence numbers in bounded memory.

use std::ops::Range;

use super::chunk::{CHUNK, Chunk};

/// Every set refuses sequences from this one on: 1.7 × 10¹⁰ packets, or half an hour at 9 million per second. One forged number can
/// then make us allocate at most 8 MiB (32 bytes for each 65,536 sequences below it).
pub const MAX_SEQUENCES: u64 = 1 << 34;

/// A set of sequence numbers below a limit.
///
/// Memory: at most 8 KiB for each 65,536 sequences, so 12.5 MB for 100 million in any pattern; almost nothing if all or none are in
/// the set; 2 bytes for each of a few exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSet {
    chunks: Vec<Chunk>,
    limit: u64,
}

/// The chunk of `sequence`, and the place in it.
#[inline]
fn place(sequence: u64) -> (usize, u32) {
    ((sequence >> 16) as usize, sequence as u32 & (CHUNK - 1))
}

impl SequenceSet {
    /// An empty set for sequences below `limit`, which [`MAX_SEQUENCES`] bounds.
    pub fn new(limit: u64) -> Self {
        Self { chunks: Vec::new(), limit: limit.min(MAX_SEQUENCES) }
    }

    /// Sequences must be below this.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Number of sequences in the set.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.len())).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.len() == 0)
    }

    /// Whether it holds `sequence`.
    pub fn contains(&self, sequence: u64) -> bool {
        let (index, number) = place(sequence);
        self.chunks.get(index).is_some_and(|chunk| chunk.run(number).0)
    }

    /// Adds `sequence`; `false` if it was there or is not below the limit.
    #[inline]
    pub fn insert(&mut self, sequence: u64) -> bool {
        let (index, number) = place(sequence);
        // The case of nearly every packet: a bitmap that stays a bitmap.
        if sequence < self.limit
            && let Some(Chunk::Bits(bits)) = self.chunks.get_mut(index)
        {
            let new = bits.insert(number as u16);
            if bits.is_full() {
                self.chunks[index] = Chunk::Full;
            }
            return new;
        }
        self.insert_slowly(sequence)
    }

    #[cold]
    fn insert_slowly(&mut self, sequence: u64) -> bool {
        let (index, number) = place(sequence);
        sequence < self.limit && self.chunk(index).insert(number as u16)
    }

    /// Adds `count` sequences from `first` on, as far as they are below the limit, and returns how many were new.
    pub fn insert_run(&mut self, first: u64, count: u64) -> u64 {
        let end = first.saturating_add(count).min(self.limit);
        let (mut at, mut new) = (first, 0);
        while at < end {
            let (index, from) = place(at);
            let to = (end - (at - u64::from(from))).min(u64::from(CHUNK)) as u32;
            new += u64::from(self.chunk(index).insert_range(from, to));
            at += u64::from(to - from);
        }
        new
    }

    fn chunk(&mut self, index: usize) -> &mut Chunk {
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, Chunk::default);
        }
        &mut self.chunks[index]
    }

    /// Turns the chunk of `sequence`, which is below the limit, into the form that takes insertions fastest.
    pub(super) fn open(&mut self, sequence: u64) {
        self.chunk(place(sequence).0).open();
    }

    /// Turns the chunks `from..to` into their smallest form.
    pub(super) fn settle(&mut self, chunks: Range<usize>) {
        let end = chunks.end.min(self.chunks.len());
        if let Some(chunks) = self.chunks.get_mut(chunks.start.min(end)..end) {
            chunks.iter_mut().for_each(Chunk::settle);
        }
    }

    /// The set of all sequences below `end` that this set does not hold.
    #[must_use]
    pub fn complement(mut self, end: u64) -> Self {
        let end = end.min(MAX_SEQUENCES);
        let count = end.div_ceil(u64::from(CHUNK)) as usize;
        self.chunks.resize_with(count, Chunk::default);
        self.chunks.iter_mut().for_each(Chunk::complement);
        if let Some(last) = self.chunks.last_mut() {
            last.truncate((end - (count as u64 - 1) * u64::from(CHUNK)) as u32);
        }
        self.settle(0..count);
        self.limit = end;
        self
    }

    /// Whether it holds `sequence`, and up to which sequence (exclusive) the answer is the same; `u64::MAX` for no end.
    pub fn run(&self, sequence: u64) -> (bool, u64) {
        let (mut index, number) = place(sequence);
        let Some(chunk) = self.chunks.get(index) else { return (false, u64::MAX) };
        let (member, mut end) = chunk.run(number);
        while end == CHUNK {
            index += 1;
            match self.chunks.get(index).map(|chunk| chunk.run(0)) {
                Some((next, next_end)) if next == member => end = next_end,
                None if !member => return (false, u64::MAX),
                _ => return (member, (index as u64) << 16),
            }
        }
        (member, ((index as u64) << 16) + u64::from(end))
    }

    /// The runs of members, ascending: the first sequence and the number of packets.
    pub fn runs(&self) -> Runs<'_> {
        Runs { set: self, at: 0 }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.chunks.iter().map(Chunk::heap_bytes).sum::<usize>()
    }
}

/// The runs of a [`SequenceSet`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    set: &'a SequenceSet,
    at: u64,
}

/// Consecutive sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first of them.
    pub first_sequence: u64,
    /// Number of sequences, at least one.
    pub packets: u64,
}

impl Run {
    /// The sequence after the last.
    pub fn end(self) -> u64 {
        self.first_sequence + self.packets
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while self.at != u64::MAX {
            let first_sequence = self.at;
            let (member, end) = self.set.run(first_sequence);
            self.at = end;
            if member {
                return Some(Run { first_sequence, packets: end - first_sequence });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn naive_runs(set: &BTreeSet<u64>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &sequence in set {
            match runs.last_mut() {
                Some(run) if run.end() == sequence => run.packets += 1,
                _ => runs.push(Run { first_sequence: sequence, packets: 1 }),
            }
        }
        runs
    }

    #[test]
    fn nothing_beyond_the_limit_is_taken() {
        let mut set = SequenceSet::new(u64::MAX);
        assert_eq!(set.limit(), MAX_SEQUENCES);
        assert!(!set.insert(MAX_SEQUENCES) && !set.insert(u64::MAX));
        assert_eq!(set.insert_run(MAX_SEQUENCES - 2, u64::MAX), 2);
        assert_eq!(set.insert_run(u64::MAX, 5), 0);
        assert_eq!(set.len(), 2);
        assert!(set.heap_bytes() < 9 << 20);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Bursts of single numbers and runs, dense enough that chunks take every form, in any order.
        #[test]
        fn equals_a_tree(
            parts in prop::collection::vec((0u64..200_000, 1u64..90_000, 1u64..40), 0..12),
            end in 0u64..300_000,
            settle: bool,
        ) {
            let (mut set, mut tree) = (SequenceSet::new(u64::MAX), BTreeSet::new());
            for &(first, count, step) in &parts {
                if step == 1 {
                    let new = (first..first + count).filter(|sequence| tree.insert(*sequence)).count();
                    prop_assert_eq!(set.insert_run(first, count), new as u64);
                } else {
                    for sequence in (first..first + count).step_by(step as usize) {
                        prop_assert_eq!(set.insert(sequence), tree.insert(sequence));
                    }
                }
                if settle {
                    set.settle(0..4);
                }
            }
            prop_assert_eq!(set.len(), tree.len() as u64);
            prop_assert_eq!(set.runs().collect::<Vec<_>>(), naive_runs(&tree));
            for sequence in (0..300_000).step_by(97) {
                prop_assert_eq!(set.contains(sequence), tree.contains(&sequence));
            }
            let absent: BTreeSet<u64> = (0..end).filter(|sequence| !tree.contains(sequence)).collect();
            prop_assert_eq!(set.complement(end).runs().collect::<Vec<_>>(), naive_runs(&absent));
        }
    }
}
