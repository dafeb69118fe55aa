//! Exactly which packets of a stream were lost.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::run_list::{MAX_SEQUENCES, Run, RunList, Runs};
use super::set::SequenceSet;

/// The packets of one stream that were sent and never received.
///
/// In JSON: `{"sent_packets": 10, "lost_packets": 3, "runs": "…"}`, where `runs` is a [`RunList`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossMap {
    sent_packets: u64,
    lost: RunList,
}

impl LossMap {
    /// The sequences below `sent_packets` (at most [`MAX_SEQUENCES`]) that `received` does not hold. A map that needs more than `room_bytes`
    /// is cut, and cannot be written to JSON.
    pub fn of_received(received: &SequenceSet, sent_packets: u64, room_bytes: Option<usize>) -> Self {
        let sent_packets = sent_packets.min(MAX_SEQUENCES);
        let mut lost = RunList::within(room_bytes);
        let mut at = 0;
        while at < sent_packets {
            let (is_received, end) = received.run(at);
            let end = end.min(sent_packets);
            if !is_received {
                lost.push(Run { first_sequence: at, packets: end - at });
            }
            at = end;
        }
        Self { sent_packets, lost }
    }

    /// The map of these losses, ascending, out of `sent_packets`.
    pub fn of_runs(sent_packets: u64, runs: impl IntoIterator<Item = Run>) -> Self {
        let sent_packets = sent_packets.min(MAX_SEQUENCES);
        let mut lost = RunList::default();
        for run in runs {
            let packets = run.packets.min(sent_packets.saturating_sub(run.first_sequence));
            lost.push(Run { packets, ..run });
        }
        Self { sent_packets, lost }
    }

    /// Packets sent.
    pub fn sent_packets(&self) -> u64 {
        self.sent_packets
    }

    /// Packets lost.
    pub fn lost_packets(&self) -> u64 {
        self.lost.packets()
    }

    /// The losses.
    pub fn lost(&self) -> &RunList {
        &self.lost
    }

    /// The losses as runs, ascending.
    pub fn runs(&self) -> Runs<'_> {
        self.lost.runs()
    }
}

#[derive(Serialize, Deserialize)]
struct Text<Runs> {
    sent_packets: u64,
    lost_packets: u64,
    runs: Runs,
}

impl Serialize for LossMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lost_packets = self.lost_packets();
        Text { sent_packets: self.sent_packets, lost_packets, runs: &self.lost }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LossMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text { sent_packets, lost_packets, runs: lost } = Text::<RunList>::deserialize(deserializer)?;
        if sent_packets > MAX_SEQUENCES {
            return Err(D::Error::custom(format_args!(
                "{sent_packets} packets sent, more than the possible {MAX_SEQUENCES}"
            )));
        }
        if lost.end() > sent_packets {
            return Err(D::Error::custom("a run extends beyond the packets sent"));
        }
        let counted = lost.packets();
        if counted != lost_packets {
            return Err(D::Error::custom(format_args!("lost_packets is {lost_packets}, but the runs have {counted}")));
        }
        Ok(Self { sent_packets, lost })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;

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
            mut runs in prop::collection::vec((0u64..1_000_000_000, 1u64..100_000), 0..50),
        ) {
            runs.sort_unstable();
            let runs = runs.iter().map(|&(first_sequence, packets)| Run { first_sequence, packets });
            let map = LossMap::of_runs(sent, runs);
            let text = serde_json::to_string(&map).unwrap();
            let back: LossMap = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.runs().collect::<Vec<_>>(), map.runs().collect::<Vec<_>>());
            prop_assert_eq!(back.lost_packets(), map.runs().map(|run| run.packets).sum::<u64>());
        }
    }
}
