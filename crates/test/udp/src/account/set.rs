//! A set of sequence numbers in bounded memory.

use std::ops::Range;

use super::chunk::{CHUNK, Chunk};
use super::run_list::{MAX_SEQUENCES, Run, RunList};

/// What 65,536 sequences take where all or none are in a set, bytes.
pub const ENTRY_BYTES: usize = size_of::<Chunk>();

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

    /// The runs of members. A list that needs more than `room_bytes` is cut, and cannot be written to JSON.
    pub fn runs(&self, room_bytes: Option<usize>) -> RunList {
        let mut runs = RunList::within(room_bytes);
        let mut at = 0;
        while at != u64::MAX {
            let (is_member, end) = self.run(at);
            if is_member {
                runs.push(Run { first_sequence: at, packets: end - at });
            }
            at = end;
        }
        runs
    }

    /// Bytes of the table of chunks that `count` sequences from `first` on would add.
    pub(crate) fn table_growth(&self, first: u64, count: u64) -> usize {
        let end = first.saturating_add(count).min(self.limit);
        let chunks = end.div_ceil(u64::from(CHUNK)) as usize;
        if first < end { chunks.saturating_sub(self.chunks.len()) * size_of::<Chunk>() } else { 0 }
    }

    /// Bytes on the heap of the table of chunks and of those that `count` sequences from `first` on are in.
    pub(crate) fn heap_bytes_of(&self, first: u64, count: u64) -> usize {
        let end = first.saturating_add(count).min(self.limit).div_ceil(u64::from(CHUNK)) as usize;
        let chunks = self.chunks.get(place(first).0..end.min(self.chunks.len())).unwrap_or_default();
        self.chunks.capacity() * size_of::<Chunk>() + chunks.iter().map(Chunk::heap_bytes).sum::<usize>()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.chunks.iter().map(Chunk::heap_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::account::LossMap;
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
            prop_assert_eq!(set.runs(None).runs().collect::<Vec<_>>(), naive_runs(&tree));
            for sequence in (0..300_000).step_by(97) {
                prop_assert_eq!(set.contains(sequence), tree.contains(&sequence));
            }
            let absent: BTreeSet<u64> = (0..end).filter(|sequence| !tree.contains(sequence)).collect();
            let lost = LossMap::of_received(&set, end, None);
            prop_assert_eq!(lost.runs().collect::<Vec<_>>(), naive_runs(&absent));
        }
    }
}
