//! Evidence that packets were dropped at a location.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::account::loss_map::{decode_runs, encode_runs};
use crate::account::{LossMap, MAX_SEQUENCES, SequenceSet};
use longhaul_result::Location;
use longhaul_terms::{MAX_STREAMS, bounded_list};

/// Number of different (location, reason, unit) that are kept apart. The kernel has some 120 drop reasons, and a super-packet has
/// at most 64 sizes in practice; few of them occur in one test.
pub const MAX_CLASSES: usize = 256;
/// Longest reason that is kept, bytes.
const MAX_REASON: usize = 96;

/// Drop events of one stream, for single packets.
///
/// Memory: a [`SequenceSet`] for each kind of event, so 2 bytes an event or 8 KiB for each 65,536 sequences, whichever is less.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    classes: Vec<Class>,
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) location: Location,
    pub(super) reason: String,
    pub(super) unit_packets: u32,
    /// Fragments of the packets alone were dropped there.
    pub(super) fragments: bool,
    pub(super) sequences: SequenceSet,
}

impl Evidence {
    /// An event: `count` packets from `first` on were dropped at `location`. `reason` is the kernel's name; `unit_packets` packets
    /// travelled together (1 on a wire).
    ///
    /// Events can come in any order, twice, and for packets that arrive: only lost packets are located. Sequences from
    /// [`MAX_SEQUENCES`] on are ignored. After [`MAX_CLASSES`] kinds, further reasons at a location become `other`.
    pub fn add(&mut self, first: u64, count: u64, location: Location, reason: &str, unit_packets: u32) {
        let class = self.class(location, truncated(reason), unit_packets, false);
        self.classes[class].sequences.insert_run(first, count);
    }

    /// An event of an IP fragment: a part of packet `sequence` was dropped at `location`, and the packet with it.
    pub fn add_fragment(&mut self, sequence: u64, location: Location, reason: &str) {
        let class = self.class(location, truncated(reason), 1, true);
        self.classes[class].sequences.insert_run(sequence, 1);
    }

    fn class(&mut self, location: Location, reason: &str, unit_packets: u32, fragments: bool) -> usize {
        let same = |class: &Class| {
            let kind = (class.location, class.unit_packets, class.fragments);
            kind == (location, unit_packets, fragments) && class.reason == reason
        };
        if let Some(index) = self.classes.iter().position(same) {
            return index;
        }
        // Kinds are reserved for `other`, two for each location: packets and fragments.
        let (reason, unit_packets) = if self.classes.len() < MAX_CLASSES - 2 * Location::ALL.len() {
            (reason, unit_packets)
        } else {
            ("other", 0)
        };
        let other = |class: &Class| {
            (class.location, class.unit_packets, class.fragments) == (location, 0, fragments) && class.reason == "other"
        };
        if unit_packets == 0
            && let Some(index) = self.classes.iter().position(other)
        {
            return index;
        }
        let sequences = SequenceSet::new(MAX_SEQUENCES);
        self.classes.push(Class { location, reason: reason.into(), unit_packets, fragments, sequences });
        self.classes.len() - 1
    }

    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Adds the events of `other` after its own. `place` gives the new location and reason for each of the old ones; `None` leaves
    /// the events out.
    pub fn merge<'a>(&mut self, other: &'a Self, place: impl Fn(Location, &'a str) -> Option<(Location, &'a str)>) {
        for class in &other.classes {
            let Some((location, reason)) = place(class.location, &class.reason) else { continue };
            let into = self.class(location, reason, class.unit_packets, class.fragments);
            for run in class.sequences.runs() {
                self.classes[into].sequences.insert_run(run.first_sequence, run.packets);
            }
        }
    }

    /// Location and reason of all events, if they have the same.
    pub fn only_kind(&self) -> Option<(Location, &str)> {
        let mut kinds = self.classes.iter().map(|class| (class.location, class.reason.as_str()));
        let first = kinds.next()?;
        kinds.all(|kind| kind == first).then_some(first)
    }

    /// Packets of `losses` with an event whose reason satisfies `which`.
    pub fn packets_lost(&self, losses: &LossMap, which: impl Fn(&str) -> bool) -> u64 {
        let classes = self.classes.iter().filter(|class| which(&class.reason));
        let sequences = classes.flat_map(|class| class.sequences.runs().flat_map(|run| run.first_sequence..run.end()));
        sequences.filter(|sequence| losses.is_lost(*sequence)).count() as u64
    }

    /// Packets with an event whose reason satisfies `which`, lost or not.
    pub fn packets(&self, which: impl Fn(&str) -> bool) -> u64 {
        self.classes.iter().filter(|class| which(&class.reason)).map(|class| class.sequences.len()).sum()
    }

    /// Packets and super-packets with an event at `location`, lost or not.
    pub fn units_at(&self, location: Location) -> u64 {
        let classes = self.classes.iter().filter(|class| class.location == location);
        classes.map(|class| class.sequences.len().div_ceil(class.unit_packets.max(1).into())).sum()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Packets with an event at `location`, lost or not.
    pub fn packets_at(&self, location: Location) -> u64 {
        self.classes.iter().filter(|class| class.location == location).map(|class| class.sequences.len()).sum()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.sequences.heap_bytes() + class.reason.capacity()).sum()
    }
}

fn truncated(reason: &str) -> &str {
    let end = (0..=MAX_REASON.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}

/// Number of packets that a counter counted as dropped at a location during the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The location.
    pub location: Location,
    /// The counter's name, such as `SO_RXQ_OVFL` or `eth0 rx_missed_errors`.
    pub reason: String,
    /// Increase of the counter, packets.
    pub packets: u64,
    /// Whose packets it counts.
    pub scope: TotalScope,
}

/// Whose packets a counter counts. Counters with fewer foreign packets are used first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TotalScope {
    /// Only the packets of this test, like a socket's own counter.
    Test,
    /// All packets of a device, a namespace or the machine.
    Host,
}

/// Whether an end saw all its drops: with the `bpf` method all drop events, with none overrun; with `counters` all counters. Only
/// then were the other losses between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sight {
    /// The sender's end.
    pub sender_complete: bool,
    /// The receiver's end.
    pub receiver_complete: bool,
    /// Packets that either end may have dropped unseen although it saw everything else: only a limit of their number is known, not
    /// which packets or where.
    pub unseen_packets: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    location: Location,
    reason: String,
    unit_packets: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    fragments: bool,
    runs: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.classes.iter().map(|class| Text {
            location: class.location,
            reason: class.reason.clone(),
            unit_packets: class.unit_packets,
            fragments: class.fragments,
            runs: encode_runs(class.sequences.runs()),
        }))
    }
}

/// Most memory for the evidence of all streams in a message: ten times what 100 million packets with one in ten dropped need. A
/// short text can name high sequences, so its length is no bound.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// Reads the evidence of each stream from a message of the other end.
pub(crate) fn of_message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Evidence>, D::Error> {
    let streams: Vec<Vec<Text>> = bounded_list::<_, _, { MAX_STREAMS as usize }>(deserializer)?;
    let mut budget = MAX_MESSAGE_BYTES;
    let mut class = |text: Text| {
        let sequences = decode_runs(&text.runs, MAX_SEQUENCES).map_err(D::Error::custom)?;
        budget = budget
            .checked_sub(sequences.heap_bytes())
            .ok_or_else(|| D::Error::custom("the evidence takes more memory than that of any test"))?;
        let Text { location, reason, unit_packets, fragments, .. } = text;
        Ok(Class { location, reason: truncated(&reason).into(), unit_packets, fragments, sequences })
    };
    let mut evidence = |texts: Vec<Text>| {
        if texts.len() > MAX_CLASSES {
            return Err(D::Error::custom(format_args!(
                "{} kinds of evidence; at most {MAX_CLASSES} are allowed",
                texts.len()
            )));
        }
        Ok(Evidence { classes: texts.into_iter().map(&mut class).collect::<Result<_, _>>()? })
    };
    streams.into_iter().map(&mut evidence).collect()
}
