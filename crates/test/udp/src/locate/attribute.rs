//! Joins lost packets with the drops that were seen.
//!
//! 1. A lost packet with drop events was lost at the event *farthest* along the path: it survived everything before (a retry, a
//!    dropped copy). Of several kinds of events at one location the first recorded one gives the reason.
//!
//!    Fragments of a packet go their own ways, and the others go on when one is dropped: of drops of fragments the one *nearest* to the
//!    sender counts. What dropped the whole packet at the receiver had it whole, so that comes before them; what did so at the sender
//!    comes behind them.
//! 2. The other losses are assigned to counters, to each at most its count: first to a socket's own counters, then to a host's, of
//!    those first to the farthest along the path. If a counter exceeds the losses, it counted foreign packets, or packets that
//!    arrived.
//! 3. Of the rest, as many are `unexplained` as there are drops without any detail; the others were lost in the `network`. If an
//!    end did not see all its drops, all of the rest is `unexplained`.
//!
//! Counters do not say *which* packets. So a run of losses has a counter's location only if steps 2 and 3 assigned everything to
//! that one location; otherwise the list says `unexplained`, with the candidates as the reason, while [`Attribution::by_location`]
//! has the totals. If there are events for every loss, the list and the totals agree.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

use super::evidence::{Class, Evidence, Sight, Total};
use crate::account::{LossMap, Run, Runs};
use longhaul_result::Location;

/// Consecutive packets of one stream that were lost at the same location for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// The stream; omitted if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stream: u8,
    /// The sequence of the first packet.
    pub first_sequence: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of packets that travelled and were lost together: 1 on a wire, 0 if not known.
    pub unit_packets: u32,
    /// Where the packets were lost.
    pub location: Location,
    /// Why: the kernel's drop reason, or the counter.
    pub reason: Cow<'static, str>,
}

fn is_zero(stream: &u8) -> bool {
    *stream == 0
}

/// The losses of a stream, and the evidence of both ends.
#[derive(Debug, Clone)]
pub struct StreamLosses<'a> {
    /// The stream.
    pub stream: u8,
    /// The packets that never arrived.
    pub losses: &'a LossMap,
    /// Drop events of either end.
    pub evidence: Vec<&'a Evidence>,
}

/// Every loss with its location.
#[derive(Debug, Clone)]
pub struct Attribution<'a> {
    streams: Vec<(StreamLosses<'a>, Vec<&'a Class>)>,
    by_location: BTreeMap<Location, u64>,
    by_reason: BTreeMap<(Location, String), u64>,
    /// Location and reason of the losses without events.
    rest: (Location, Cow<'static, str>),
    surplus_packets: u64,
}

/// Locates the losses of the streams of one direction.
pub fn attribute<'a>(streams: Vec<StreamLosses<'a>>, totals: &[Total], sight: Sight) -> Attribution<'a> {
    let streams: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let mut classes: Vec<&Class> = stream.evidence.iter().flat_map(|evidence| evidence.classes()).collect();
            // Stable, so that of equal locations the first recorded stays first.
            classes.sort_by_key(|class| precedence(class));
            (stream, classes)
        })
        .collect();

    let mut by_location: BTreeMap<Location, u64> = Location::ALL.into_iter().map(|location| (location, 0)).collect();
    let mut by_reason: BTreeMap<(Location, &str), u64> = BTreeMap::new();
    let mut left = 0;
    for (stream, classes) in &streams {
        for (run, class) in pieces(stream, classes) {
            match class {
                Some(class) => {
                    *by_location.entry(class.location).or_default() += run.packets;
                    *by_reason.entry((class.location, &class.reason)).or_default() += run.packets;
                }
                None => left += run.packets,
            }
        }
    }

    let mut totals: Vec<&Total> = totals.iter().filter(|total| total.packets > 0).collect();
    totals.sort_by_key(|total| (total.scope, Reverse(total.location)));
    let mut shares: Vec<(Location, u64, &str)> = Vec::new();
    let mut surplus_packets = 0u64;
    for total in totals {
        let packets = total.packets.min(left);
        surplus_packets = surplus_packets.saturating_add(total.packets - packets);
        left -= packets;
        if packets > 0 {
            shares.push((total.location, packets, &total.reason));
        }
    }
    let unseen = sight.unseen_packets.min(left);
    if unseen > 0 && sight.sender_complete && sight.receiver_complete {
        shares.push((Location::Unexplained, unseen, "drops without an event"));
        left -= unseen;
    }
    if left > 0 {
        let both = sight.sender_complete && sight.receiver_complete;
        let (location, reason) = match both {
            true => (Location::Network, "no end dropped it"),
            false => (Location::Unexplained, "an end did not see all its drops"),
        };
        shares.push((location, left, reason));
    }
    for (location, packets, reason) in &shares {
        *by_location.entry(*location).or_default() += packets;
        *by_reason.entry((*location, reason)).or_default() += packets;
    }
    let by_reason =
        by_reason.into_iter().map(|((location, reason), packets)| ((location, reason.to_owned()), packets)).collect();
    Attribution { streams, by_location, by_reason, rest: rest(&shares), surplus_packets }
}

/// What counts first of several kinds of events for one packet.
fn precedence(class: &Class) -> (u8, i32) {
    let along = class.location as i32;
    match class.fragments {
        false if class.location > Location::Network => (0, -along),
        true => (1, along),
        false => (2, -along),
    }
}

/// Location and reason of single losses without events, given how those losses were assigned.
fn rest(shares: &[(Location, u64, &str)]) -> (Location, Cow<'static, str>) {
    let Some((location, _, reason)) = shares.first() else {
        return (Location::Unexplained, Cow::Borrowed(""));
    };
    if shares.iter().all(|share| share.0 == *location) {
        return (*location, Cow::Owned((*reason).to_owned()));
    }
    let mut by_location: Vec<(Location, u64)> = Vec::new();
    for (location, packets, _) in shares {
        match by_location.iter_mut().find(|known| known.0 == *location) {
            Some(known) => known.1 += packets,
            None => by_location.push((*location, *packets)),
        }
    }
    let shares: Vec<String> = by_location.iter().map(|(location, packets)| format!("{location} {packets}")).collect();
    (Location::Unexplained, Cow::Owned(format!("counters have only totals: {}", shares.join(", "))))
}

impl Attribution<'_> {
    /// Packets lost at each location; every location is listed. Their sum is the number of lost packets.
    pub fn by_location(&self) -> &BTreeMap<Location, u64> {
        &self.by_location
    }

    /// Packets lost at each location for each reason. Their sum is the number of lost packets.
    pub fn by_reason(&self) -> &BTreeMap<(Location, String), u64> {
        &self.by_reason
    }

    /// By how many packets the counters exceed the losses that they can explain: foreign packets, or copies. Above 0, the totals of
    /// [`TotalScope::Host`](super::TotalScope::Host) can be too high.
    pub fn surplus_packets(&self) -> u64 {
        self.surplus_packets
    }

    /// The losses, stream after stream, ascending, in as few runs as possible.
    pub fn losses(&self) -> Losses<'_> {
        Losses { attribution: self, stream: 0, pieces: None, pending: None }
    }
}

/// The losses of an [`Attribution`].
#[derive(Debug, Clone)]
pub struct Losses<'a> {
    attribution: &'a Attribution<'a>,
    /// The next stream.
    stream: usize,
    pieces: Option<(u8, Pieces<'a>)>,
    pending: Option<Loss>,
}

impl Iterator for Losses<'_> {
    type Item = Loss;

    fn next(&mut self) -> Option<Loss> {
        loop {
            let Some((stream, pieces)) = &mut self.pieces else {
                let Some((next, classes)) = self.attribution.streams.get(self.stream) else {
                    return self.pending.take();
                };
                self.stream += 1;
                self.pieces = Some((next.stream, pieces(next, classes)));
                continue;
            };
            let Some((run, class)) = pieces.next() else {
                self.pieces = None;
                continue;
            };
            let (location, reason, unit_packets) = match class {
                Some(class) => (class.location, Cow::Owned(class.reason.clone()), class.unit_packets),
                None => (self.attribution.rest.0, self.attribution.rest.1.clone(), 1),
            };
            let loss = Loss {
                stream: *stream,
                first_sequence: run.first_sequence,
                packets: run.packets,
                unit_packets,
                location,
                reason,
            };
            match &mut self.pending {
                Some(before)
                    if before.stream == loss.stream
                        && before.first_sequence + before.packets == loss.first_sequence
                        && before.location == loss.location
                        && before.unit_packets == loss.unit_packets
                        && before.reason == loss.reason =>
                {
                    before.packets += loss.packets;
                }
                pending => {
                    if let Some(before) = pending.replace(loss) {
                        return Some(before);
                    }
                }
            }
        }
    }
}

fn pieces<'a>(stream: &StreamLosses<'a>, classes: &'a [&'a Class]) -> Pieces<'a> {
    let mut events: Vec<_> = classes.iter().map(|class| Events { runs: class.sequences.runs(), run: None }).collect();
    let mut present = Present(vec![0; classes.len().div_ceil(64)]);
    let first = events.iter_mut().enumerate();
    let changes = first.filter_map(|(class, events)| Some(Reverse((events.change(0, class, &mut present)?, class))));
    let changes = changes.collect();
    Pieces { runs: stream.losses.runs(), run: None, classes, events, changes, present }
}

/// The lost runs of a stream, cut where their evidence changes.
///
/// A sweep over the losses and the runs of all kinds of events, each looked at once: the time follows the number of runs. A report of the
/// greatest length has 32 million of them, which another host chose, so that each must be cheap.
#[derive(Debug, Clone)]
struct Pieces<'a> {
    runs: Runs<'a>,
    run: Option<Run>,
    /// In the order of [`precedence`].
    classes: &'a [&'a Class],
    /// Of each class.
    events: Vec<Events<'a>>,
    /// Where a run begins or ends, and its class.
    changes: BinaryHeap<Reverse<(u64, usize)>>,
    /// The classes with events at the sequence up to which the sweep has come.
    present: Present,
}

/// The events of a class.
#[derive(Debug, Clone)]
struct Events<'a> {
    /// Further runs.
    runs: Runs<'a>,
    /// The one that is next or present.
    run: Option<Run>,
}

impl Events<'_> {
    /// A run of `class`, whose events these are, begins or ends `at` a sequence. Returns where the next change is.
    fn change(&mut self, at: u64, class: usize, present: &mut Present) -> Option<u64> {
        match self.run {
            Some(run) if run.first_sequence == at => {
                present.insert(class);
                Some(run.end())
            }
            _ => {
                present.remove(class);
                self.run = self.runs.next();
                self.run.map(|run| run.first_sequence)
            }
        }
    }
}

/// A set of classes, a bit for each.
#[derive(Debug, Clone)]
struct Present(Vec<u64>);

impl Present {
    fn insert(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    fn remove(&mut self, class: usize) {
        self.0[class / 64] &= !(1 << (class % 64));
    }

    /// The one that counts first.
    fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }
}

impl Pieces<'_> {
    /// Goes on to `sequence`.
    fn sweep(&mut self, sequence: u64) {
        while let Some(mut top) = self.changes.peek_mut() {
            let Reverse((at, class)) = *top;
            if at > sequence {
                return;
            }
            match self.events[class].change(at, class, &mut self.present) {
                Some(next) => *top = Reverse((next, class)),
                None => drop(PeekMut::pop(top)),
            }
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (Run, Option<&'a Class>);

    fn next(&mut self) -> Option<Self::Item> {
        let run = self.run.take().or_else(|| self.runs.next())?;
        self.sweep(run.first_sequence);
        let found = self.present.first();
        let mut end = run.end();
        while let Some(&Reverse((at, _))) = self.changes.peek().filter(|Reverse((at, _))| *at < run.end()) {
            self.sweep(at);
            if self.present.first() != found {
                end = at;
                self.run = Some(Run { first_sequence: end, packets: run.end() - end });
                break;
            }
        }
        let piece = Run { first_sequence: run.first_sequence, packets: end - run.first_sequence };
        Some((piece, found.map(|class| self.classes[class])))
    }
}
