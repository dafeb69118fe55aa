//! Evidence that packets were dropped at a location.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::account::{LossMap, MAX_SEQUENCES, RunList, SequenceSet};
use longhaul_result::Location;
use longhaul_terms::bounded_list;

/// Number of different (location, reason, unit) that are kept apart. The kernel has some 120 drop reasons, and a super-packet has
/// at most 64 sizes in practice; few of them occur in one test.
pub const MAX_CLASSES: usize = 256;
/// Longest reason that is kept, bytes.
const MAX_REASON: usize = 96;

/// Drop events of one stream, for single packets, as an end reports them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    classes: Vec<Class>,
}

/// Takes drop events of one stream while a test runs, in any order.
///
/// Memory: a [`SequenceSet`] for each kind of event, so 2 bytes an event or 8 KiB for each 65,536 sequences, whichever is less.
#[derive(Debug)]
pub struct EvidenceRecorder {
    classes: Vec<Class<SequenceSet>>,
    /// Sequences are below this.
    limit: u64,
}

impl Default for EvidenceRecorder {
    fn default() -> Self {
        Self::below(MAX_SEQUENCES)
    }
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class<Sequences = RunList> {
    pub(super) location: Location,
    pub(super) reason: String,
    pub(super) unit_packets: u32,
    /// Fragments of the packets alone were dropped there.
    pub(super) fragments: bool,
    pub(super) sequences: Sequences,
}

impl EvidenceRecorder {
    /// For events of sequences below `limit`, at most [`MAX_SEQUENCES`]; others are ignored.
    pub fn below(limit: u64) -> Self {
        Self { classes: Vec::new(), limit }
    }

    /// An event: `count` packets from `first` on were dropped at `location`. `reason` is the kernel's name; `unit_packets` packets
    /// travelled together (1 on a wire).
    ///
    /// Events can come in any order, twice, and for packets that arrive: only lost packets are located. Sequences from
    /// the limit on are ignored. After [`MAX_CLASSES`] kinds, further reasons at a location become `other`.
    pub fn add(&mut self, first: u64, count: u64, location: Location, reason: &str, unit_packets: u32) {
        self.sequences(location, reason, unit_packets, false).insert_run(first, count);
    }

    /// An event of an IP fragment: a part of packet `sequence` was dropped at `location`, and the packet with it.
    pub fn add_fragment(&mut self, sequence: u64, location: Location, reason: &str) {
        self.sequences(location, reason, 1, true).insert_run(sequence, 1);
    }

    fn sequences(&mut self, location: Location, reason: &str, unit_packets: u32, fragments: bool) -> &mut SequenceSet {
        class(&mut self.classes, location, reason, unit_packets, fragments, || SequenceSet::new(self.limit))
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.sequences.heap_bytes() + class.reason.capacity()).sum()
    }

    /// What was recorded.
    pub fn recorded(&self) -> Evidence {
        let classes = self.classes.iter().map(|class| {
            let Class { location, reason, unit_packets, fragments, sequences } = class;
            let (location, unit_packets, fragments) = (*location, *unit_packets, *fragments);
            Class { location, reason: reason.clone(), unit_packets, fragments, sequences: sequences.runs() }
        });
        Evidence { classes: classes.collect() }
    }
}

/// The sequences of a kind of events in `classes`; of a new kind they are `none`.
fn class<'a, Sequences>(
    classes: &'a mut Vec<Class<Sequences>>,
    location: Location,
    reason: &str,
    unit_packets: u32,
    fragments: bool,
    none: impl FnOnce() -> Sequences,
) -> &'a mut Sequences {
    let find = |classes: &[Class<Sequences>], reason: &str, unit_packets: u32| {
        classes.iter().position(|class| {
            let kind = (class.location, class.unit_packets, class.fragments);
            kind == (location, unit_packets, fragments) && class.reason == reason
        })
    };
    let reason = truncated(reason);
    let index = find(classes, reason, unit_packets).or_else(|| {
        // Kinds are reserved for `other`, two for each location: packets and fragments.
        let is_full = classes.len() >= MAX_CLASSES - 2 * Location::ALL.len();
        let (reason, unit_packets) = if is_full { ("other", 0) } else { (reason, unit_packets) };
        let other = if is_full { find(classes, reason, unit_packets) } else { None };
        other.or_else(|| {
            classes.push(Class { location, reason: reason.into(), unit_packets, fragments, sequences: none() });
            None
        })
    });
    let index = index.unwrap_or(classes.len() - 1);
    &mut classes[index].sequences
}

impl Evidence {
    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Adds the events of `other` after its own. `place` gives the new location and reason for each of the old ones; `None` leaves
    /// the events out.
    pub fn merge<'a>(&mut self, other: &'a Self, place: impl Fn(Location, &'a str) -> Option<(Location, &'a str)>) {
        for added in &other.classes {
            let Some((location, reason)) = place(added.location, &added.reason) else { continue };
            let (unit_packets, fragments) = (added.unit_packets, added.fragments);
            let own = class(&mut self.classes, location, reason, unit_packets, fragments, RunList::default);
            *own = own.union(&added.sequences);
        }
    }

    /// Leaves open where packets were lost of which a fragment was dropped at `location`.
    pub fn doubt_fragments(&mut self, location: Location) {
        let doubtful = self.classes.iter_mut().filter(|class| class.fragments && class.location == location);
        doubtful.for_each(|class| class.location = Location::Unexplained);
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
        classes.map(|class| class.sequences.common_packets(losses.lost())).sum()
    }

    /// Packets with an event whose reason satisfies `which`, lost or not.
    pub fn packets(&self, which: impl Fn(&str) -> bool) -> u64 {
        self.classes.iter().filter(|class| which(&class.reason)).map(|class| class.sequences.packets()).sum()
    }

    /// Packets and super-packets with an event at `location`, lost or not.
    pub fn units_at(&self, location: Location) -> u64 {
        let classes = self.classes.iter().filter(|class| class.location == location);
        classes.map(|class| class.sequences.packets().div_ceil(class.unit_packets.max(1).into())).sum()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Packets with an event at `location`, lost or not.
    pub fn packets_at(&self, location: Location) -> u64 {
        self.classes.iter().filter(|class| class.location == location).map(|class| class.sequences.packets()).sum()
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
    /// The counter's name, such as `SO_RXQ_OVFL` or `eth0 rx_missed_errors`. It stands in the result beside each loss.
    #[serde(deserialize_with = "short_reason")]
    pub reason: String,
    /// Increase of the counter, packets.
    pub packets: u64,
    /// Whose packets it counts.
    pub scope: TotalScope,
}

fn short_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(truncated(&String::deserialize(deserializer)?).to_owned())
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
    #[serde(deserialize_with = "short_reason")]
    reason: String,
    unit_packets: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    fragments: bool,
    runs: RunList,
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
            runs: class.sequences.clone(),
        }))
    }
}

impl<'de> Deserialize<'de> for Evidence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let classes: Vec<Text> = bounded_list::<_, _, MAX_CLASSES>(deserializer)?;
        let class = |Text { location, reason, unit_packets, fragments, runs }| Class {
            location,
            reason,
            unit_packets,
            fragments,
            sequences: runs,
        };
        Ok(Self { classes: classes.into_iter().map(class).collect() })
    }
}
