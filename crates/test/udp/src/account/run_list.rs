//! Runs of sequences as a report has them: in memory as long as its text, whatever the text says.

use std::fmt::{self, Display, Formatter};

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Every set refuses sequences from this one on: 1.7 × 10¹⁰ packets, or half an hour at 9 million per second. One forged number can
/// then make us allocate at most 8 MiB (32 bytes for each 65,536 sequences below it).
pub const MAX_SEQUENCES: u64 = 1 << 34;

/// A run of two of the largest numbers.
const RUN_BYTES_MOST: usize = 10;

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

/// Runs of sequences, ascending and apart.
///
/// In memory: pairs of LEB128 numbers, sequences left out since the previous run and sequences in the run. A run takes some 3 bytes,
/// also one of 10¹⁰ sequences, so memory and every walk over it are bounded by the text that it came from. In JSON: base64 of that,
/// without padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunList {
    bytes: Vec<u8>,
    /// The last run, whose bytes are still to come: another that touches it makes it longer.
    last: Option<Run>,
    /// Where the last run in `bytes` ends.
    written_end: u64,
    /// Sequences in all runs.
    packets: u64,
    /// Bytes that it may take.
    room_bytes: Option<usize>,
    /// Whether a run had no room.
    is_cut: bool,
}

/// Why a text is not a list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// Not base64.
    #[error("the runs are not base64")]
    Base64,
    /// A number is cut off, or a pair is incomplete.
    #[error("the runs end within a number")]
    Truncated,
    /// A run is empty, or extends beyond [`MAX_SEQUENCES`].
    #[error("a run is empty or extends beyond the possible packets")]
    Range,
}

impl RunList {
    /// An empty list that takes at most `room_bytes`. One that had no room for a run counts its sequences all the same, and cannot be written
    /// to JSON.
    pub(super) fn within(room_bytes: Option<usize>) -> Self {
        Self { room_bytes, ..Self::default() }
    }

    /// Adds a run behind all others. Of one that begins among them, only what lies behind them is added.
    pub fn push(&mut self, run: Run) {
        let end = run.first_sequence.saturating_add(run.packets);
        let first_sequence = run.first_sequence.max(self.end());
        if end <= first_sequence {
            return;
        }
        let run = Run { first_sequence, packets: end - first_sequence };
        self.packets += run.packets;
        if self.room_bytes.is_some_and(|room| self.bytes.len() + RUN_BYTES_MOST > room) {
            self.is_cut = true;
            return;
        }
        match &mut self.last {
            Some(last) if last.end() == run.first_sequence => last.packets += run.packets,
            last => {
                if let Some(before) = last.replace(run) {
                    put(&mut self.bytes, self.written_end, before);
                    self.written_end = before.end();
                }
            }
        }
    }

    /// The runs of both lists.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut union, mut one, mut two) = (Self::default(), self.runs().peekable(), other.runs().peekable());
        loop {
            let first = |run: Option<&Run>| run.map_or(u64::MAX, |run| run.first_sequence);
            let next = if first(one.peek()) <= first(two.peek()) { one.next() } else { two.next() };
            match next {
                Some(run) => union.push(run),
                None => return union,
            }
        }
    }

    /// Sequences that are in both lists.
    pub fn common_packets(&self, other: &Self) -> u64 {
        self.packets + other.packets - self.union(other).packets
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sequences in all runs.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The sequence after the last run; 0 without runs.
    pub fn end(&self) -> u64 {
        self.last.map_or(0, Run::end)
    }

    /// The runs.
    pub fn runs(&self) -> Runs<'_> {
        Runs { rest: &self.bytes, end: 0, last: self.last }
    }

    fn parse(text: &str) -> Result<Self, RunsError> {
        let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| RunsError::Base64)?;
        let (mut list, mut rest) = (Self::default(), bytes.as_slice());
        while !rest.is_empty() {
            let (gap, packets) = (take(&mut rest)?, take(&mut rest)?);
            let run = Run { first_sequence: list.end().saturating_add(gap), packets };
            if packets == 0 || run.first_sequence.saturating_add(packets) > MAX_SEQUENCES {
                return Err(RunsError::Range);
            }
            list.push(run);
        }
        Ok(list)
    }
}

/// Base64, without a copy of the bytes.
impl Display for RunList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Three bytes are four letters.
        let (whole, rest) = self.bytes.split_at(self.bytes.len() / 3 * 3);
        let mut rest = rest.to_vec();
        if let Some(last) = self.last {
            put(&mut rest, self.written_end, last);
        }
        let text = |bytes| Base64Display::new(bytes, &STANDARD_NO_PAD);
        write!(f, "{}{}", text(whole), text(&rest))
    }
}

impl FromIterator<Run> for RunList {
    fn from_iter<I: IntoIterator<Item = Run>>(runs: I) -> Self {
        let mut list = Self::default();
        runs.into_iter().for_each(|run| list.push(run));
        list
    }
}

impl Serialize for RunList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_cut {
            return Err(serde::ser::Error::custom("there are more runs than there is room for"));
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The runs of a [`RunList`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    rest: &'a [u8],
    /// Where the run before ended.
    end: u64,
    last: Option<Run>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.rest.is_empty() {
            return self.last.take();
        }
        // The list wrote these bytes.
        let (gap, packets) = (take(&mut self.rest).ok()?, take(&mut self.rest).ok()?);
        let run = Run { first_sequence: self.end + gap, packets };
        self.end = run.end();
        Some(run)
    }
}

fn put(bytes: &mut Vec<u8>, before: u64, run: Run) {
    for mut value in [run.first_sequence - before, run.packets] {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
}

fn take(bytes: &mut &[u8]) -> Result<u64, RunsError> {
    let mut value = 0;
    // Nine bytes hold 63 bits, more than any sequence.
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(RunsError::Truncated)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(RunsError::Range)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_tree(
            mut one in prop::collection::vec((0u64..2_000, 0u64..300), 0..20),
            mut two in prop::collection::vec((0u64..2_000, 0u64..300), 0..20),
        ) {
            let trees = [&mut one, &mut two].map(|runs| {
                runs.sort_unstable();
                runs.iter().flat_map(|(first, count)| *first..first + count).collect::<BTreeSet<u64>>()
            });
            let lists = [&one, &two].map(|runs| -> RunList {
                runs.iter().map(|&(first_sequence, packets)| Run { first_sequence, packets }).collect()
            });
            let numbers = |list: &RunList| list.runs().flat_map(|run| run.first_sequence..run.end()).collect::<Vec<_>>();
            for (list, tree) in lists.iter().zip(&trees) {
                prop_assert_eq!(numbers(list), tree.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(list.packets(), tree.len() as u64);
                prop_assert_eq!(&RunList::parse(&list.to_string()).unwrap(), list);
            }
            prop_assert_eq!(numbers(&lists[0].union(&lists[1])), trees[0].union(&trees[1]).copied().collect::<Vec<_>>());
            prop_assert_eq!(lists[0].common_packets(&lists[1]), trees[0].intersection(&trees[1]).count() as u64);
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9+/]{0,40}") {
            let _ = RunList::parse(&text);
        }
    }
}
