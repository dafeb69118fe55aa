//! Exactly which packets of a stream were lost.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::set::{MAX_SEQUENCES, Run, Runs, SequenceSet};

/// The packets of one stream that were sent and never received.
///
/// In JSON: `{"sent_packets": 10, "lost_packets": 3, "runs": "…"}`, where `runs` is base64 of pairs of LEB128 numbers: packets that
/// arrived since the previous run, packets that were lost. A run takes some 3 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossMap {
    sent_packets: u64,
    lost_packets: u64,
    lost: SequenceSet,
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
    /// A run is empty, or extends beyond the packets sent.
    #[error("a run is empty or extends beyond the packets sent")]
    Range,
}

impl LossMap {
    /// The sequences below `sent_packets` (at most [`MAX_SEQUENCES`]) that `received` does not hold.
    pub fn of_received(received: SequenceSet, sent_packets: u64) -> Self {
        let sent_packets = sent_packets.min(MAX_SEQUENCES);
        let lost = received.complement(sent_packets);
        Self { sent_packets, lost_packets: lost.len(), lost }
    }

    /// The map of these losses, in any order, out of `sent_packets`.
    pub fn of_runs(sent_packets: u64, runs: impl IntoIterator<Item = Run>) -> Self {
        let sent_packets = sent_packets.min(MAX_SEQUENCES);
        let mut lost = SequenceSet::new(sent_packets);
        for run in runs {
            lost.insert_run(run.first_sequence, run.packets);
        }
        Self { sent_packets, lost_packets: lost.len(), lost }
    }

    /// Packets sent.
    pub fn sent_packets(&self) -> u64 {
        self.sent_packets
    }

    /// Packets lost.
    pub fn lost_packets(&self) -> u64 {
        self.lost_packets
    }

    /// The losses as runs, ascending.
    pub fn runs(&self) -> Runs<'_> {
        self.lost.runs()
    }

    /// Whether `sequence` was lost.
    pub fn is_lost(&self, sequence: u64) -> bool {
        self.lost.contains(sequence)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.lost.heap_bytes()
    }
}

/// Runs as text: base64 of pairs of LEB128 numbers (gap, length).
pub(crate) fn encode_runs(runs: Runs<'_>) -> String {
    let mut bytes = Vec::new();
    let mut at = 0;
    for run in runs {
        put_leb128(&mut bytes, run.first_sequence - at);
        put_leb128(&mut bytes, run.packets);
        at = run.end();
    }
    STANDARD_NO_PAD.encode(bytes)
}

/// Reads the text of [`encode_runs`] into a set of sequences below `limit`.
pub(crate) fn decode_runs(text: &str, limit: u64) -> Result<SequenceSet, RunsError> {
    let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| RunsError::Base64)?;
    let mut set = SequenceSet::new(limit);
    let (mut rest, mut at) = (bytes.as_slice(), 0u64);
    while !rest.is_empty() {
        let (gap, packets) = (take_leb128(&mut rest)?, take_leb128(&mut rest)?);
        let first = at.checked_add(gap).ok_or(RunsError::Range)?;
        at = first.checked_add(packets).filter(|end| *end <= set.limit() && packets > 0).ok_or(RunsError::Range)?;
        set.insert_run(first, packets);
    }
    Ok(set)
}

fn put_leb128(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_leb128(bytes: &mut &[u8]) -> Result<u64, RunsError> {
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

#[derive(Serialize, Deserialize)]
struct Text {
    sent_packets: u64,
    lost_packets: u64,
    runs: String,
}

impl Serialize for LossMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let runs = encode_runs(self.runs());
        Text { sent_packets: self.sent_packets, lost_packets: self.lost_packets, runs }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LossMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text { sent_packets, lost_packets, runs } = Text::deserialize(deserializer)?;
        if sent_packets > MAX_SEQUENCES {
            return Err(D::Error::custom(format_args!(
                "{sent_packets} packets sent, more than the possible {MAX_SEQUENCES}"
            )));
        }
        let lost = decode_runs(&runs, sent_packets).map_err(D::Error::custom)?;
        let counted = lost.len();
        if counted != lost_packets {
            return Err(D::Error::custom(format_args!("lost_packets is {lost_packets}, but the runs have {counted}")));
        }
        Ok(Self { sent_packets, lost_packets, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_that_lie_are_refused() {
        let json = |sent: u64, lost: u64, bytes: &[u8]| {
            let runs = STANDARD_NO_PAD.encode(bytes);
            let text = format!(r#"{{"sent_packets":{sent},"lost_packets":{lost},"runs":"{runs}"}}"#);
            serde_json::from_str::<LossMap>(&text).map_err(|error| error.to_string())
        };
        let runs: Vec<Run> = json(10, 3, &[2, 2, 3, 1]).unwrap().runs().collect();
        assert_eq!(runs, [Run { first_sequence: 2, packets: 2 }, Run { first_sequence: 7, packets: 1 }]);
        for (sent, lost, bytes) in [
            (10, 3, &[2u8, 2, 3][..]),
            (10, 9, &[2, 9]),
            (10, 0, &[2, 0]),
            (10, 1, &[0x80]),
            (10, 4, &[2, 2, 3, 1]),
            (u64::MAX, 0, &[]),
            (10, 1, &[0xff; 20]),
        ] {
            assert!(json(sent, lost, bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn run_lists_read_back(
            sent in 1u64..1_000_000_000,
            runs in prop::collection::vec((0u64..1_000_000_000, 1u64..100_000), 0..50),
        ) {
            let runs = runs.iter().map(|&(first_sequence, packets)| Run { first_sequence, packets });
            let map = LossMap::of_runs(sent, runs);
            let text = serde_json::to_string(&map).unwrap();
            let back: LossMap = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.runs().collect::<Vec<_>>(), map.runs().collect::<Vec<_>>());
            prop_assert_eq!(back.lost_packets(), map.runs().map(|run| run.packets).sum::<u64>());
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9+/]{0,40}") {
            let _ = decode_runs(&text, 1 << 20);
        }
    }
}
