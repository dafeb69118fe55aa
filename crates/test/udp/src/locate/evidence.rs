//! What speaks for a packet having been dropped at a place.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::account::loss_map::{decode_runs, encode_runs};
use crate::account::{LossMap, MAX_SEQUENCES, SequenceSet};
use longhaul_result::Location;
use longhaul_terms::{MAX_STREAMS, bounded_list};

/// Different (location, reason, unit) that are told apart. The kernel knows some 120 drop reasons and a super-packet has at most
/// 64 sizes in practice, of which few occur in one test.
pub const MAX_CLASSES: usize = 256;
/// Longest reason kept, bytes.
const MAX_REASON: usize = 96;

/// Drop events of one stream, by packet.
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
    pub(super) sequences: SequenceSet,
}

impl Evidence {
    /// An event: `count` packets from `first` on were dropped at `location`, for a reason in the kernel's words, in a unit of
    /// `unit_packets` packets that travelled together (1 on a wire).
    ///
    /// Events come in any order, twice, and for packets that arrive after all: none of that matters, as only missing packets are
    /// placed. Sequences from [`MAX_SEQUENCES`] on are ignored. Beyond [`MAX_CLASSES`] kinds, further reasons at a location
    /// become `other`.
    pub fn add(&mut self, first: u64, count: u64, location: Location, reason: &str, unit_packets: u32) {
        let class = self.class(location, truncated(reason), unit_packets);
        self.classes[class].sequences.insert_run(first, count);
    }

    fn class(&mut self, location: Location, reason: &str, unit_packets: u32) -> usize {
        let same =
            |class: &Class| class.location == location && class.unit_packets == unit_packets && class.reason == reason;
        if let Some(index) = self.classes.iter().position(same) {
            return index;
        }
        // Twelve places are kept for `other`, one a location.
        let (reason, unit_packets) =
            if self.classes.len() < MAX_CLASSES - Location::ALL.len() { (reason, unit_packets) } else { ("other", 0) };
        let other = |class: &Class| class.location == location && class.unit_packets == 0 && class.reason == "other";
        if unit_packets == 0
            && let Some(index) = self.classes.iter().position(other)
        {
            return index;
        }
        let sequences = SequenceSet::new(MAX_SEQUENCES);
        self.classes.push(Class { location, reason: reason.into(), unit_packets, sequences });
        self.classes.len() - 1
    }

    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Adds the events of `other` behind those that are there, at the place and for the reason that `place` gives for theirs;
    /// `None` leaves them out.
    pub fn merge<'a>(&mut self, other: &'a Self, place: impl Fn(Location, &'a str) -> Option<(Location, &'a str)>) {
        for class in &other.classes {
            let Some((location, reason)) = place(class.location, &class.reason) else { continue };
            for run in class.sequences.runs() {
                self.add(run.first_sequence, run.packets, location, reason, class.unit_packets);
            }
        }
    }

    /// Place and reason of all events, where they have one and the same.
    pub fn only_kind(&self) -> Option<(Location, &str)> {
        let mut kinds = self.classes.iter().map(|class| (class.location, class.reason.as_str()));
        let first = kinds.next()?;
        kinds.all(|kind| kind == first).then_some(first)
    }

    /// Packets of `losses` with an event for a reason that `which` wants.
    pub fn packets_lost(&self, losses: &LossMap, which: impl Fn(&str) -> bool) -> u64 {
        let classes = self.classes.iter().filter(|class| which(&class.reason));
        let sequences = classes.flat_map(|class| class.sequences.runs().flat_map(|run| run.first_sequence..run.end()));
        sequences.filter(|sequence| losses.is_lost(*sequence)).count() as u64
    }

    /// Whether there was no event.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Packets with an event at `location`, lost or not.
    pub fn packets_at(&self, location: Location) -> u64 {
        self.classes.iter().filter(|class| class.location == location).map(|class| class.sequences.len()).sum()
    }

    /// Bytes that it holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.sequences.heap_bytes() + class.reason.capacity()).sum()
    }
}

fn truncated(reason: &str) -> &str {
    let end = (0..=MAX_REASON.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}

/// How many packets a counter saw dropped at a place during the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The place.
    pub location: Location,
    /// The counter's name, such as `SO_RXQ_OVFL` or `eth0 rx_missed_errors`.
    pub reason: String,
    /// By how much it grew, in packets.
    pub packets: u64,
    /// Whose packets it counts.
    pub scope: TotalScope,
}

/// Whose packets a counter counts. Those that count fewer strangers are believed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TotalScope {
    /// This test's only, as a socket's own counter.
    Test,
    /// Everyone's on a device, in a namespace or on the machine.
    Host,
}

/// Whether all places of an end could be seen: with the `bpf` method all its drop events, none of them overrun; with `counters`
/// all its counters. Only then must what is left over have been lost between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sight {
    /// The sender's end.
    pub sender_complete: bool,
    /// The receiver's end.
    pub receiver_complete: bool,
    /// Packets that either end may have dropped unseen although it saw completely otherwise: drops of which it is known how many
    /// there were at most, but not what or where.
    pub doubtful_packets: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    location: Location,
    reason: String,
    unit_packets: u32,
    runs: String,
}

impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.classes.iter().map(|class| Text {
            location: class.location,
            reason: class.reason.clone(),
            unit_packets: class.unit_packets,
            runs: encode_runs(class.sequences.runs()),
        }))
    }
}

/// Memory that the evidence of all streams in a message may take: ten times what 100 million packets with one in ten dropped need.
/// A short text can name far sequences, so its length bounds nothing.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// Reads the evidence of each stream out of a message from the other end.
pub(crate) fn of_message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Evidence>, D::Error> {
    let streams: Vec<Vec<Text>> = bounded_list::<_, _, { MAX_STREAMS as usize }>(deserializer)?;
    let mut budget = MAX_MESSAGE_BYTES;
    let mut class = |text: Text| {
        let sequences = decode_runs(&text.runs, MAX_SEQUENCES).map_err(D::Error::custom)?;
        budget = budget
            .checked_sub(sequences.heap_bytes())
            .ok_or_else(|| D::Error::custom("the evidence takes more memory than any test's could"))?;
        let (location, unit_packets) = (text.location, text.unit_packets);
        Ok(Class { location, reason: truncated(&text.reason).into(), unit_packets, sequences })
    };
    let mut evidence = |texts: Vec<Text>| {
        if texts.len() > MAX_CLASSES {
            return Err(D::Error::custom(format_args!("{} kinds of evidence, at most {MAX_CLASSES}", texts.len())));
        }
        Ok(Evidence { classes: texts.into_iter().map(&mut class).collect::<Result<_, _>>()? })
    };
    streams.into_iter().map(&mut evidence).collect()
}
