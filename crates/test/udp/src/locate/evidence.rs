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
    /// Bytes that it may still take.
    room_bytes: Option<usize>,
    /// Bytes that the runs of all kinds may take.
    runs_bytes: Option<usize>,
    left_out_packets: u64,
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
        Self { classes: Vec::new(), limit, room_bytes: None, runs_bytes: None, left_out_packets: 0 }
    }

    /// The same, which takes about `bytes` at most: events beyond that are only counted.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        let bytes = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { room_bytes: bytes, runs_bytes: bytes, ..self }
    }

    /// Packets of events for which there was no room.
    pub fn left_out_packets(&self) -> u64 {
        self.left_out_packets
    }

    /// An event: `count` packets from `first` on were dropped at `location`. `reason` is the kernel's name; `unit_packets` packets
    /// travelled together (1 on a wire).
    ///
    /// Events can come in any order, twice, and for packets that arrive: only lost packets are located. Sequences from
    /// the limit on are ignored. After [`MAX_CLASSES`] kinds, further reasons at a location become `other`.
    pub fn add(&mut self, first: u64, count: u64, location: Location, reason: &str, unit_packets: u32) {
        self.record(first, count, (location, reason, unit_packets, false));
    }

    /// An event of an IP fragment: a part of packet `sequence` was dropped at `location`, and the packet with it.
    pub fn add_fragment(&mut self, sequence: u64, location: Location, reason: &str) {
        self.record(sequence, 1, (location, reason, 1, true));
    }

    fn record(&mut self, first: u64, count: u64, kind: (Location, &str, u32, bool)) {
        let (location, reason, unit_packets, fragments) = kind;
        let none = || SequenceSet::new(self.limit);
        let set = class(&mut self.classes, location, reason, unit_packets, fragments, none);
        let before = set.heap_bytes_of(first, count);
        if self.room_bytes.is_some_and(|room| room == 0 || set.table_growth(first, count) > room) {
            self.left_out_packets = self.left_out_packets.saturating_add(count);
            return;
        }
        set.insert_run(first, count);
        let after = set.heap_bytes_of(first, count);
        if let Some(room) = &mut self.room_bytes {
            *room = (*room + before).saturating_sub(after);
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.sequences.heap_bytes() + class.reason.capacity()).sum()
    }

    /// What was recorded.
    pub fn recorded(&self) -> Evidence {
        let mut room = self.runs_bytes;
        let classes = self.classes.iter().map(|class| {
            let Class { location, reason, unit_packets, fragments, sequences } = class;
            let (location, unit_packets, fragments) = (*location, *unit_packets, *fragments);
            let sequences = sequences.runs(room);
            room = room.map(|room| room.saturating_sub(sequences.heap_bytes()));
            Class { location, reason: reason.clone(), unit_packets, fragments, sequences }
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

    /// Leaves the location open for lost packets that may have had a fragment dropped at `location`.
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
struct Text<Runs> {
    location: Location,
    #[serde(deserialize_with = "short_reason")]
    reason: String,
    unit_packets: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    fragments: bool,
    runs: Runs,
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
            runs: &class.sequences,
        }))
    }
}

impl<'de> Deserialize<'de> for Evidence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let classes: Vec<Text<RunList>> = bounded_list::<_, _, MAX_CLASSES>(deserializer)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who sends chooses the numbers and how many travel together, and so the number of sets.
    #[test]
    fn events_take_no_more_than_their_room() {
        const ROOM: u64 = 4 << 20;
        let limit = 4_000_000_000;
        let mut recorder = EvidenceRecorder::below(limit).within(ROOM);
        let mut packets = 0;
        for round in 0..1_000_000 / 60 {
            for unit_packets in 1..=60 {
                // Every other number from the end down, and some far apart.
                let first = limit - 2 * round - 2 - u64::from(unit_packets) * 1_000_003;
                recorder.add(first, 1, Location::ReceiverSocketBuffer, "SOCKET_RCVBUFF", unit_packets);
                packets += 1;
            }
        }
        assert!(recorder.heap_bytes() as u64 <= 2 * ROOM, "{}", recorder.heap_bytes());
        let recorded = recorder.recorded();
        let known = recorded.packets_at(Location::ReceiverSocketBuffer);
        assert!(known > 0 && recorder.left_out_packets() > 0);
        assert_eq!(known + recorder.left_out_packets(), packets, "each is recorded or counted");
    }

    #[test]
    fn a_report_that_is_too_long_is_not_written() {
        let recorder = |bytes| {
            let mut recorder = EvidenceRecorder::below(1 << 20).within(bytes);
            // 8 KiB for each 65,536, and 64 KiB in a report.
            (0..1 << 19).for_each(|number| recorder.add(2 * number, 1, Location::ReceiverStack, "UDP_CSUM", 1));
            recorder
        };
        let short = recorder(1 << 18);
        assert_eq!(short.left_out_packets(), 0);
        assert!(serde_json::to_string(&short.recorded()).is_err());
        let text = serde_json::to_string(&recorder(2 << 20).recorded()).unwrap();
        let back: Evidence = serde_json::from_str(&text).unwrap();
        assert_eq!(back.packets_at(Location::ReceiverStack), 1 << 19);
    }
}
