//! The result of a UDP test. Other programs may rely on the names (`docs/reference/udp-results.md`).

use crate::caveats;
use std::collections::BTreeMap;

use longhaul_result::{Caveat, Granularity, Location, LocationMethod};
use longhaul_terms::{EndCounters, Latency, SocketBuffer, StreamSent, ThreadCpu};
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::account::{
    Arrivals, Capacity, DelayOverLeast, Distribution, LossPattern, ReorderingSummary, Spacing, StreamReceived,
    TrafficClasses,
};
use crate::locate::{Attribution, Loss, Sight, StreamLosses, attribute};
use crate::parameters::UdpParameters;
use crate::receive_settings::ReceiveSettings;
use crate::report::{Binding, UdpReceiverReport, UdpSenderReport};

/// If there are more runs, the result does not list them; a file named by `losses_file` does.
pub const MAX_LISTED_LOSSES: usize = 10_000;

/// The losses at one location for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpLossReason {
    /// Where the packets were lost.
    pub location: Location,
    /// The kernel's drop reason and the function that dropped, or the counter.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// The buffers of each socket at both ends; `null` if an end did not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpBuffers {
    /// Send buffer.
    pub sender: Option<SocketBuffer>,
    /// Receive buffer.
    pub receiver: Option<SocketBuffer>,
}

/// One stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpStreamResult {
    /// Packets that the sender handed to its socket.
    pub sent_packets: u64,
    /// Packets that never arrived.
    pub lost_packets: u64,
    /// When its first packet left, nanoseconds after the first of all streams; `null` if the sender did not report it, and in results of older versions.
    #[serde(default)]
    pub first_sent_ns: Option<u64>,
    /// When its last packet left, nanoseconds after the first of all streams; `null` as `first_sent_ns`.
    #[serde(default)]
    pub last_sent_ns: Option<u64>,
    /// What the sending thread used of its CPU; `null` if that end did not report it.
    #[serde(default)]
    pub sender_cpu: Option<ThreadCpu>,
    /// What the receiving thread used of its CPU; `null` if that end did not report it.
    #[serde(default)]
    pub receiver_cpu: Option<ThreadCpu>,
}

/// One direction of a UDP test, all its streams together. Packets are counted as on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpResult {
    /// Packets that the sender handed to its socket.
    pub sent_packets: u64,
    /// Packets received, without duplicates.
    pub received_packets: u64,
    /// Packets that never arrived: `sent_packets - received_packets`.
    pub lost_packets: u64,
    /// Duplicates of packets received.
    pub duplicate_packets: u64,
    /// Reordered packets (RFC 4737 §3).
    pub reordered_packets: u64,
    /// Extent and late time of reordered packets (RFC 4737 §4.2, §4.3).
    pub reordering: ReorderingSummary,
    /// Payload bytes received, without duplicates; the probe header counts as payload.
    pub payload_bytes: u64,
    /// Time from first to last departure, or from first to last arrival if that is longer.
    pub duration_ns: u64,
    /// Payload bits per second handed to the sender's socket, from first to last departure.
    pub sent_rate_bps: u64,
    /// Payload bits per second received, from first to last arrival.
    pub received_rate_bps: u64,
    /// RFC 3550 jitter of the packets that left and arrived by themselves, the greatest of all streams; `null` if at least half of them
    /// shared time stamps.
    pub jitter_ns: Option<u64>,
    /// One-way delay minus the shortest one, the largest of all streams; `null` if nothing arrived.
    #[serde(default)]
    pub delay_over_least: Option<DelayOverLeast>,
    /// Each stream.
    #[serde(default)]
    pub streams: Vec<UdpStreamResult>,
    /// Packets lost at each location; every location is listed.
    #[cfg_attr(feature = "schema", schemars(schema_with = "longhaul_units::every_key::<Location, u64>"))]
    pub loss_by_location: BTreeMap<Location, u64>,
    /// Packets lost at each location for each reason, the most packets first; the sum is `lost_packets`.
    pub loss_reasons: Vec<UdpLossReason>,
    /// How losses were located.
    pub location_method: LocationMethod,
    /// All losses, if they are at most 10,000 runs; otherwise empty.
    #[cfg_attr(feature = "schema", schemars(length(max = 10_000)))]
    pub losses: Vec<Loss>,
    /// The file with every loss if there are more, in the folder of this result.
    pub losses_file: Option<String>,
    /// The file with a row for each packet that arrived, beside the result, where that was asked for.
    #[serde(default)]
    pub packets_file: Option<String>,
    /// What one loss is: a packet, or a batch.
    pub granularity: Granularity,
    /// Lengths of loss periods (RFC 3357).
    pub loss_periods: Distribution,
    /// Loss distances (RFC 3357).
    pub loss_distances: Distribution,
    /// Inter-departure times.
    pub spacing: Spacing,
    /// Inter-arrival times; `null` if nothing arrived.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
    /// What packets that left back to back say of the path's capacity, by the stream with the most of them; `null` without any.
    #[serde(default)]
    pub capacity: Option<Capacity>,
    /// Packets by their TOS byte or traffic class, as they arrived; empty if that was not asked for.
    #[serde(default)]
    pub traffic_classes: TrafficClasses,
    /// Round trips during the test; `null` if they were not requested.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Settings of the interface by which the packets arrived; `null` if its end did not report them.
    #[serde(default)]
    pub receive_settings: Option<ReceiveSettings>,
    /// Socket buffers.
    pub socket_buffers: UdpBuffers,
    /// Where the receiver ran; `null` if no CPU was asked for.
    pub binding: Option<Binding>,
    /// Counters that changed.
    pub counters: EndCounters,
}

/// A result, and what it was computed from.
#[derive(Debug)]
pub struct UdpAssembled<'a> {
    /// The result. Its `losses` have at most [`MAX_LISTED_LOSSES`] runs.
    pub result: UdpResult,
    /// The losses, for a file if there are too many to list.
    pub attribution: Attribution<'a>,
    /// Whether `result.losses` is empty because there are too many.
    pub needs_losses_file: bool,
    /// The caveats that the numbers give rise to.
    pub caveats: Vec<Caveat>,
}

impl UdpResult {
    /// Joins the reports of the two ends for one direction of the test with `parameters`.
    pub fn assemble<'a>(
        parameters: &UdpParameters,
        sender: &'a UdpSenderReport,
        receiver: &'a UdpReceiverReport,
    ) -> UdpAssembled<'a> {
        let granularity = if parameters.wire { Granularity::Wire } else { Granularity::Superpacket };
        let mut caveats = Vec::new();
        let attribution = attribution(sender, receiver);
        let mut losses: Vec<Loss> = attribution.losses().take(MAX_LISTED_LOSSES + 1).collect();
        let needs_losses_file = losses.len() > MAX_LISTED_LOSSES;
        if needs_losses_file {
            losses.clear();
        }

        // Saturating, because the other end's report can hold any number. Lost and sent packets come from its loss maps, which were
        // checked when they were read; received packets are the difference.
        let add = |sum: u64, packets: u64| sum.saturating_add(packets);
        let sum = |of: fn(&StreamReceived) -> u64| receiver.streams.iter().map(of).fold(0, add);
        let lost_packets = sum(|stream| stream.losses.lost_packets());
        let sent_packets = sum(|stream| stream.losses.sent_packets());
        let received_packets = sent_packets - lost_packets;
        let stated = sender.streams.iter().map(|stream| stream.sent_packets).fold(0, add);
        if stated != sent_packets || received_packets != sum(|stream| stream.counts.received_packets) {
            let message = format!("the sender counted {stated} packets, but the receiver's account has {sent_packets}");
            caveats.push(Caveat::new(
                caveats::ACCOUNTS_DIFFER,
                message,
                "use the receiver's account, and report this as a bug of longhaul",
            ));
        }
        let mut reordering = ReorderingSummary::default();
        let mut pattern = LossPattern::default();
        for stream in &receiver.streams {
            reordering.merge(&stream.counts.reordering);
            pattern.add_stream(stream.losses.runs());
        }

        let sending = span(sender.streams.iter().map(|s| (s.sent_packets, s.first_sent_ns, s.last_sent_ns)));
        let receiving =
            span(receiver.streams.iter().map(|s| (s.counts.received_packets, s.first_arrival_ns, s.last_arrival_ns)));
        let bytes = |packets: u64| packets.saturating_mul(parameters.payload_bytes.into());
        let jitter_ns = receiver.streams.iter().filter_map(|stream| stream.jitter_ns).max();
        if jitter_ns.is_none() && received_packets > 1 {
            caveats.push(Caveat::new(
                caveats::JITTER_UNKNOWN,
                "there is no jitter, because packets shared time stamps",
                "use `wire`, and a rate at which packets are sent one by one",
            ));
        }
        let unexplained = attribution.by_location().get(&Location::Unexplained).copied().unwrap_or(0);
        if unexplained > 0 && looked_at_packets(sender, receiver) {
            caveats.push(Caveat::new(
                caveats::DROPS_UNSEEN,
                format!("{unexplained} losses have no known location, because not every drop at the ends was seen"),
                "lower the rate, use `wire`, or give the receiver more CPU",
            ));
        }
        if attribution.surplus_packets() > 0 {
            let message = format!("counters show {} drops more than packets were lost", attribution.surplus_packets());
            caveats.push(Caveat::new(
                caveats::COUNTERS_EXCEED_LOSSES,
                message,
                "other traffic was dropped too: stop it during the test",
            ));
        }
        let foreign = sum(|stream| stream.counts.out_of_range_packets);
        if foreign > 0 {
            let message = format!(
                "{foreign} packets with the test's cookie did not come from the sender: their address or number is not \
                 the sender's; they, and forged ones that look like the sender's, may have changed the interim reports, \
                 duplicates, reordering, jitter and delays"
            );
            caveats.push(Caveat::new(caveats::FOREIGN_PACKETS, message, "find out what else sends to the data port"));
        }
        if granularity == Granularity::Superpacket && lost_packets > 0 {
            caveats.push(Caveat::new(
                caveats::BATCHES_HIDE_THE_WIRE,
                "packets travelled in super-packets, so one drop can be a whole super-packet",
                "use `wire` to count single packets",
            ));
        }
        let batch_packets = sender.spacing.batch_packets.p50;
        if sender.spacing.requested_ns.is_some() && batch_packets > u64::from(parameters.burst_packets) {
            let message = format!(
                "the sender kept the rate by sending {batch_packets} packets at a time, so the packets are not spaced as requested"
            );
            let remedy = "use a lower rate or larger packets, or read the result as a test of bursts";
            caveats.push(Caveat::new(caveats::OFFLOAD_HIDES_SPACING, message, remedy));
        }

        if let Some(arrivals) = receiver.arrivals
            && arrivals.batch_packets.p50 > batch_packets.max(1)
        {
            let shaping = receiver.settings.as_ref().map(ReceiveSettings::shaping).unwrap_or_default();
            let why = if shaping.is_empty() { "the reader found them together".into() } else { shaping };
            let message = format!(
                "packets arrived {} at a time and left {batch_packets} at a time: {why}",
                arrivals.batch_packets.p50
            );
            let remedy = "for the times between arrivals take the kernel's time stamps, with `wire` and without GRO";
            caveats.push(Caveat::new(caveats::ARRIVALS_IN_BATCHES, message, remedy));
        }

        let used = sender.streams.iter().filter(|sent| sent.sent_packets > 0);
        let began_ns = used.map(|sent| sent.first_sent_ns).min().unwrap_or(0);
        // The account of a lost server has one stream for all.
        let are_told = sender.streams.len() == receiver.streams.len();
        let departed = |number: usize, at_ns: fn(&StreamSent) -> u64| {
            let sent = sender.streams.get(number).filter(|_| are_told);
            sent.map(|sent| at_ns(sent).saturating_sub(began_ns))
        };
        let mut traffic_classes = TrafficClasses::default();
        receiver.streams.iter().for_each(|stream| traffic_classes.merge(&stream.traffic_classes));
        let result = Self {
            sent_packets,
            received_packets,
            lost_packets,
            duplicate_packets: sum(|stream| stream.counts.duplicate_packets),
            reordered_packets: reordering.reordered_packets,
            reordering,
            payload_bytes: bytes(received_packets),
            duration_ns: sending.max(receiving).0,
            sent_rate_bps: BitRate::of(bytes(sent_packets), sending).0,
            received_rate_bps: BitRate::of(bytes(received_packets), receiving).0,
            jitter_ns,
            delay_over_least: (receiver.streams.iter())
                .filter_map(|stream| stream.delay_over_least)
                .reduce(DelayOverLeast::max),
            streams: (receiver.streams.iter().enumerate())
                .map(|(number, stream)| UdpStreamResult {
                    sent_packets: stream.losses.sent_packets(),
                    lost_packets: stream.losses.lost_packets(),
                    first_sent_ns: departed(number, |sent| sent.first_sent_ns),
                    last_sent_ns: departed(number, |sent| sent.last_sent_ns),
                    sender_cpu: sender.cpus.get(number).copied().flatten(),
                    receiver_cpu: receiver.cpus.get(number).copied().flatten(),
                })
                .collect(),
            loss_by_location: attribution.by_location().clone(),
            loss_reasons: reasons(&attribution),
            location_method: sender.method.of_both(receiver.method),
            losses,
            losses_file: None,
            packets_file: None,
            granularity,
            loss_periods: pattern.loss_periods(),
            loss_distances: pattern.loss_distances(),
            spacing: sender.spacing,
            arrivals: receiver.arrivals,
            capacity: (receiver.streams.iter().filter_map(|stream| stream.trains))
                .max_by_key(|trains| trains.gaps)
                .map(|trains| Capacity::of(trains, parameters.payload_bytes, sender.back_to_back_ns)),
            traffic_classes,
            latency: None,
            receive_settings: receiver.settings.clone(),
            socket_buffers: UdpBuffers { sender: sender.buffer, receiver: receiver.buffer },
            binding: receiver.binding.clone(),
            counters: EndCounters { sender: sender.counters.clone(), receiver: receiver.counters.clone() },
        };
        UdpAssembled { result, attribution, needs_losses_file, caveats }
    }
}

/// Whether both ends saw every single drop, so that a loss without a location is a failure of theirs.
fn looked_at_packets(sender: &UdpSenderReport, receiver: &UdpReceiverReport) -> bool {
    sender.method == LocationMethod::Bpf && receiver.method == LocationMethod::Bpf
}

fn reasons(attribution: &Attribution<'_>) -> Vec<UdpLossReason> {
    let of = |((location, reason), packets): (&(Location, String), &u64)| UdpLossReason {
        location: *location,
        reason: reason.clone(),
        packets: *packets,
    };
    let mut reasons: Vec<UdpLossReason> = attribution.by_reason().iter().map(of).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.packets));
    reasons
}

/// Each loss of one direction with its location.
pub fn attribution<'a>(sender: &'a UdpSenderReport, receiver: &'a UdpReceiverReport) -> Attribution<'a> {
    let streams = receiver.streams.iter().enumerate().map(|(index, stream)| StreamLosses {
        stream: index as u8,
        losses: &stream.losses,
        evidence: sender.evidence.get(index).into_iter().chain(receiver.evidence.get(index)).collect(),
    });
    let totals: Vec<_> = sender.totals.iter().chain(&receiver.totals).cloned().collect();
    let sight = Sight {
        sender_complete: sender.complete,
        receiver_complete: receiver.complete,
        // The other end's report can hold any number.
        unseen_packets: sender.unseen_packets.saturating_add(receiver.unseen_packets),
    };
    attribute(streams.collect(), &totals, sight)
}

/// From the first to the last time of all streams that had packets.
fn span(streams: impl Iterator<Item = (u64, u64, u64)> + Clone) -> Nanos {
    let used = streams.filter(|(packets, _, _)| *packets > 0);
    let first = used.clone().map(|(_, first, _)| first).min().unwrap_or(0);
    let last = used.map(|(_, _, last)| last).max().unwrap_or(0);
    Nanos(last.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that keeps a rate by batches reports this in every command; one whose batches are the requested bursts does not.
    #[test]
    fn batches_beyond_the_bursts_asked_for_are_a_caveat() {
        let mut sender = UdpSenderReport::default();
        sender.spacing.requested_ns = Some(1_000);
        sender.spacing.batch_packets.p50 = 4;
        let receiver = UdpReceiverReport::default();
        let raised = |burst_packets: u32| {
            let parameters = UdpParameters { burst_packets, ..UdpParameters::default() };
            let assembled = UdpResult::assemble(&parameters, &sender, &receiver);
            assembled.caveats.iter().any(|caveat| caveat.is(caveats::OFFLOAD_HIDES_SPACING))
        };
        assert!(raised(1) && raised(3) && !raised(4));
    }
}
