//! Captures at both ends of a TCP test, and what they say of its packets.

use std::collections::BTreeMap;
use std::fmt::Display;

use longhaul_capture::Running;
use longhaul_captures::reader::{Captures, OpenError};
use longhaul_flows::{FlowOptions, FlowSummary, Flows, Gaps, Millisecond, Sink};
use longhaul_lab::Lab;
use longhaul_report::html::tcp_goodput::packets::{AckIntervals, Packets, Rates, Surface};
use longhaul_report::html::tcp_goodput::rates::RatesOverTime;
use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::folder::Folder;
use crate::{capture, caveats};

const MILLISECOND_NS: i64 = 1_000_000;
/// Intervals that are kept of a direction.
const INTERVALS_MOST: usize = 8 << 20;

/// Two captures that run.
pub(super) struct Capturing {
    /// Of the sender and of the receiver.
    ends: [(Running, Folder); 2],
}

fn failed(error: &dyn Display) -> Caveat {
    Caveat::new(caveats::NOT_CAPTURED, error.to_string(), "give the folder of temporary files room, and run as root")
}

impl Capturing {
    /// Captures at `sender` and at the server.
    ///
    /// # Errors
    /// A capture does not begin.
    pub(super) fn begin(lab: &Lab, sender: &str) -> Result<Self, Caveat> {
        let begin = |name: &str| {
            let folder = Folder::new(name).map_err(|error| failed(&error))?;
            let host = lab.host(name).map_err(|error| failed(&error))?;
            let running = host.namespace.enter(|| {
                lab.spec().keep_off_the_emulator();
                capture::start(folder.path(), name)
            });
            Ok((running.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?, folder))
        };
        Ok(Self { ends: [begin(sender)?, begin("server")?] })
    }

    /// Ends them. What happened in the first `omit` of the flow does not count. Where it is known when the time of the samples began, Unix time in
    /// nanoseconds, the rates say when they begin in it.
    ///
    /// # Errors
    /// A capture cannot be read, or has no TCP data.
    pub(super) fn end(self, omit: Nanos, began_unix_ns: Option<i64>) -> Result<Packets, Caveat> {
        let folders = self.ends.map(|(running, folder)| {
            drop(running.stop());
            folder
        });
        let read = |folder: &Folder| -> Result<(Seen, u64), OpenError> {
            let mut captures = Captures::open(&[folder.path().to_owned()], false)?;
            let gaps = captures.gaps();
            let mut flows = Flows::with_gaps(FlowOptions::default(), Seen::default(), Gaps::of(&gaps));
            captures.for_each_packet(|packet| flows.packet(packet))?;
            Ok((flows.finish().0, gaps.iter().map(|gap| gap.packets).sum()))
        };
        let [sender, receiver] = folders.map(|folder| read(&folder).map_err(|error| failed(&error)));
        let ((sender, lost_at_sender), (receiver, lost_at_receiver)) = (sender?, receiver?);
        let none = || failed(&"the captures have no flow of TCP");
        let (from, to) = (sender.largest().ok_or_else(none)?, receiver.largest().ok_or_else(none)?);
        let milliseconds = sender.milliseconds(from, omit);
        let begins_ns = began_unix_ns.map(|began| sender.span(from, omit).0.saturating_sub(began));
        let tens: Vec<u64> = milliseconds.chunks_exact(10).map(|ten| ten.iter().sum()).collect();
        let (left, came) = (receiver.acks(to, omit), sender.acks(from, omit));
        let intervals = |acks: &[(i64, i64)]| AckIntervals::of(acks.iter().map(|(_, interval)| *interval).collect());
        Ok(Packets {
            sent: Rates::of(&milliseconds, 1),
            sent_10ms: Rates::of(&tens, 10),
            acks_at_receiver: intervals(&left),
            acks_at_sender: intervals(&came),
            surface_at_receiver: Surface::of(&left),
            surface_at_sender: Surface::of(&came),
            rates: RatesOverTime { begins_ns, ..RatesOverTime::of(&milliseconds) },
            not_captured: lost_at_sender + lost_at_receiver,
        })
    }
}

/// A flow and its direction.
type FlowDirection = (u64, bool);

/// What a capture has of each direction of each flow.
#[derive(Default)]
struct Seen {
    /// Beginning and payload of milliseconds with any.
    sent: BTreeMap<FlowDirection, Vec<(i64, u64)>>,
    /// When each acknowledgment came, and the time since the one before.
    acks: BTreeMap<FlowDirection, Vec<(i64, i64)>>,
}

impl Sink for Seen {
    fn flow(&mut self, _: FlowSummary) {}

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        self.sent.entry((flow, forward)).or_default().push((at_ns, row.payload_bytes));
    }

    fn ack_interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let acks = self.acks.entry((flow, forward)).or_default();
        if acks.len() < INTERVALS_MOST {
            acks.push((at_ns, interval_ns));
        }
    }
}

impl Seen {
    /// The direction with the most payload.
    fn largest(&self) -> Option<FlowDirection> {
        let bytes = |rows: &Vec<(i64, u64)>| rows.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        self.sent.iter().max_by_key(|(_, rows)| bytes(rows)).map(|(direction, _)| *direction)
    }

    /// When what counts of `direction` begins and ends: without `omit` from its first data.
    fn span(&self, direction: FlowDirection, omit: Nanos) -> (i64, i64) {
        let rows = self.sent.get(&direction).map_or(&[][..], Vec::as_slice);
        let ends = rows.first().zip(rows.last());
        ends.map_or((0, 0), |((first, _), (last, _))| (first.saturating_add(omit.0 as i64), *last))
    }

    /// The payload of each millisecond that counts.
    fn milliseconds(&self, direction: FlowDirection, omit: Nanos) -> Vec<u64> {
        let (from, to) = self.span(direction, omit);
        let count = to.saturating_sub(from) / MILLISECOND_NS;
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        for (at, bytes) in self.sent.get(&direction).into_iter().flatten().filter(|(at, _)| *at >= from) {
            if let Some(place) = usize::try_from((at - from) / MILLISECOND_NS).ok().and_then(|place| all.get_mut(place))
            {
                *place += bytes;
            }
        }
        all
    }

    /// When those acknowledgments of `direction` came that count, which travel against it, and the time since the one before.
    fn acks(&self, (flow, forward): FlowDirection, omit: Nanos) -> Vec<(i64, i64)> {
        let (from, to) = self.span((flow, forward), omit);
        let acks = self.acks.get(&(flow, !forward)).into_iter().flatten();
        acks.filter(|(at, _)| (from..=to).contains(at)).copied().collect()
    }
}
