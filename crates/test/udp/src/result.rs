//! The result of a UDP test, in the names that other programs may rely on (`docs/reference/udp-results.md`).

use crate::caveats;
use std::collections::BTreeMap;

use longhaul_result::{Caveat, Granularity, Location, LocationMethod};
use longhaul_terms::{EndCounters, SocketBuffer};
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::account::{Distribution, LossPattern, ReorderingSummary, Spacing, StreamReceived};
use crate::locate::{Attribution, Loss, Sight, StreamLosses, attribute};
use crate::parameters::UdpParameters;
use crate::report::{Binding, ReceiverReport, SenderReport};

/// Runs beyond this are not listed in the result but in a file named by `losses_file`.
pub const MAX_LISTED_LOSSES: usize = 10_000;

/// What is behind the losses at a location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossReason {
    /// Where.
    pub location: Location,
    /// The kernel's drop reason and the function that dropped, or the counter.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// Each socket's buffers at both ends; `null` where an end did not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketBuffers {
    /// Send buffer.
    pub sender: Option<SocketBuffer>,
    /// Receive buffer.
    pub receiver: Option<SocketBuffer>,
}

/// One direction of a UDP test, all its streams together. Packets are wire packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpResult {
    /// Packets that the sender handed to its socket.
    pub sent_packets: u64,
    /// Packets received, each once.
    pub received_packets: u64,
    /// Packets that never arrived: `sent_packets - received_packets`.
    pub lost_packets: u64,
    /// Further copies of packets received.
    pub duplicate_packets: u64,
    /// Reordered packets (RFC 4737 §3).
    pub reordered_packets: u64,
    /// Their extent and late time (RFC 4737 §4.2, §4.3).
    pub reordering: ReorderingSummary,
    /// Payload bytes received, each packet once; the probe header counts as payload.
    pub payload_bytes: u64,
    /// From first to last departure, or arrival where that took longer.
    pub duration_ns: u64,
    /// Payload bits handed to the sender's socket, over the time from first to last departure.
    pub sent_rate_bps: u64,
    /// Payload bits received, over the time from first to last arrival.
    pub received_rate_bps: u64,
    /// RFC 3550 jitter, of several streams the greatest; `null` where stamps are not each packet's own.
    pub jitter_ns: Option<u64>,
    /// Packets lost at each location, every location named.
    pub loss_by_location: BTreeMap<Location, u64>,
    /// What is behind them, the most packets first; the sum is `lost_packets`.
    pub loss_reasons: Vec<LossReason>,
    /// How they were placed.
    pub location_method: LocationMethod,
    /// Every loss, where there are at most [`MAX_LISTED_LOSSES`] runs; else empty.
    pub losses: Vec<Loss>,
    /// The file with every loss, where there are more, beside the one that this result was saved in.
    pub losses_file: Option<String>,
    /// What one loss stands for.
    pub granularity: Granularity,
    /// Lengths of loss periods (RFC 3357).
    pub loss_periods: Distribution,
    /// Loss distances (RFC 3357).
    pub loss_distances: Distribution,
    /// Inter-departure times.
    pub spacing: Spacing,
    /// Socket buffers.
    pub socket_buffers: SocketBuffers,
    /// Where the receiver ran; `null` where nothing was asked.
    pub binding: Option<Binding>,
    /// Counters that changed.
    pub counters: EndCounters,
}

/// A result with what it stands on.
#[derive(Debug)]
pub struct Assembled<'a> {
    /// The result. Its `losses` are filled up to [`MAX_LISTED_LOSSES`] runs.
    pub result: UdpResult,
    /// The losses, for a file where there are too many to list.
    pub attribution: Attribution<'a>,
    /// Whether `result.losses` is empty because there are too many.
    pub needs_losses_file: bool,
    /// Doubts that the numbers themselves raise.
    pub caveats: Vec<Caveat>,
}

impl UdpResult {
    /// Joins what the two ends know of one direction of the test that `parameters` describe.
    pub fn assemble<'a>(
        parameters: &UdpParameters,
        sender: &'a SenderReport,
        receiver: &'a ReceiverReport,
    ) -> Assembled<'a> {
        let granularity = if parameters.wire { Granularity::Wire } else { Granularity::Superpacket };
        let mut caveats = Vec::new();
        let attribution = attribution(sender, receiver);
        let mut losses: Vec<Loss> = attribution.losses().take(MAX_LISTED_LOSSES + 1).collect();
        let needs_losses_file = losses.len() > MAX_LISTED_LOSSES;
        if needs_losses_file {
            losses.clear();
        }

        // Saturating: a report of the other end may say anything. What was lost and what was sent is in its loss maps, whose
        // numbers were checked when they were read; what was received is the rest.
        let add = |sum: u64, packets: u64| sum.saturating_add(packets);
        let sum = |of: fn(&StreamReceived) -> u64| receiver.streams.iter().map(of).fold(0, add);
        let lost_packets = sum(|stream| stream.losses.lost_packets());
        let sent_packets = sum(|stream| stream.losses.sent_packets());
        let received_packets = sent_packets - lost_packets;
        let stated = sender.streams.iter().map(|stream| stream.sent_packets).fold(0, add);
        if stated != sent_packets || received_packets != sum(|stream| stream.counts.received_packets) {
            let message = format!("the sender counted {stated} packets, the receiver's account has {sent_packets}");
            caveats.push(Caveat::new(caveats::ACCOUNTS_DIFFER, message, "trust the receiver's account; report this"));
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
                "no jitter: packets shared their time stamps",
                "use --wire and a rate at which packets are sent one by one",
            ));
        }
        let unexplained = attribution.by_location().get(&Location::Unexplained).copied().unwrap_or(0);
        if unexplained > 0 && looked_at_packets(sender, receiver) {
            caveats.push(Caveat::new(
                caveats::DROPS_UNSEEN,
                format!("{unexplained} losses cannot be placed: not every drop at the ends could be seen"),
                "lower the rate, use --wire, or give the receiver more CPU",
            ));
        }
        if attribution.surplus_packets() > 0 {
            let message = format!("counters saw {} drops more than packets were lost", attribution.surplus_packets());
            caveats.push(Caveat::new(
                caveats::COUNTERS_EXCEED_LOSSES,
                message,
                "other traffic was dropped too: keep the hosts idle",
            ));
        }
        let foreign = sum(|stream| stream.counts.out_of_range_packets);
        if foreign > 0 {
            let message = format!("{foreign} packets with the test's cookie had impossible sequence numbers");
            caveats.push(Caveat::new(caveats::FOREIGN_PACKETS, message, "look for what else sends to the data port"));
        }
        if granularity == Granularity::Superpacket && lost_packets > 0 {
            caveats.push(Caveat::new(
                caveats::BATCHES_HIDE_THE_WIRE,
                "packets travelled in batches, so a drop may have taken a whole batch",
                "use --wire to count single packets",
            ));
        }
        let batch_packets = sender.spacing.batch_packets.p50;
        if sender.spacing.requested_ns.is_some() && batch_packets > u64::from(parameters.burst_packets) {
            let message = format!(
                "the sender held the rate by sending {batch_packets} packets at a time, so packets on the wire are not spaced as asked"
            );
            let remedy = "ask for a lower rate or larger packets, or read the result as a test of bursts";
            caveats.push(Caveat::new(caveats::OFFLOAD_HIDES_SPACING, message, remedy));
        }

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
            loss_by_location: attribution.by_location().clone(),
            loss_reasons: reasons(&attribution),
            location_method: sender.method.of_both(receiver.method),
            losses,
            losses_file: None,
            granularity,
            loss_periods: pattern.loss_periods(),
            loss_distances: pattern.loss_distances(),
            spacing: sender.spacing,
            socket_buffers: SocketBuffers { sender: sender.buffer, receiver: receiver.buffer },
            binding: receiver.binding.clone(),
            counters: EndCounters { sender: sender.counters.clone(), receiver: receiver.counters.clone() },
        };
        Assembled { result, attribution, needs_losses_file, caveats }
    }
}

/// Whether both ends looked packet by packet, so that a loss without a place is their failure.
fn looked_at_packets(sender: &SenderReport, receiver: &ReceiverReport) -> bool {
    sender.method == LocationMethod::Bpf && receiver.method == LocationMethod::Bpf
}

fn reasons(attribution: &Attribution<'_>) -> Vec<LossReason> {
    let of = |((location, reason), packets): (&(Location, String), &u64)| LossReason {
        location: *location,
        reason: reason.clone(),
        packets: *packets,
    };
    let mut reasons: Vec<LossReason> = attribution.by_reason().iter().map(of).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.packets));
    reasons
}

fn attribution<'a>(sender: &'a SenderReport, receiver: &'a ReceiverReport) -> Attribution<'a> {
    let streams = receiver.streams.iter().enumerate().map(|(index, stream)| StreamLosses {
        stream: index as u8,
        losses: &stream.losses,
        evidence: sender.evidence.get(index).into_iter().chain(receiver.evidence.get(index)).collect(),
    });
    let totals: Vec<_> = sender.totals.iter().chain(&receiver.totals).cloned().collect();
    let sight = Sight {
        sender_complete: sender.complete,
        receiver_complete: receiver.complete,
        // A report of the other end may say anything.
        doubtful_packets: sender.doubtful_packets.saturating_add(receiver.doubtful_packets),
    };
    attribute(streams.collect(), &totals, sight)
}

/// From the first to the last of all streams that had any packets.
fn span(streams: impl Iterator<Item = (u64, u64, u64)> + Clone) -> Nanos {
    let used = streams.filter(|(packets, _, _)| *packets > 0);
    let first = used.clone().map(|(_, first, _)| first).min().unwrap_or(0);
    let last = used.map(|(_, _, last)| last).max().unwrap_or(0);
    Nanos(last.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that keeps a rate by batches says so, whoever asked for the result; one whose batches are the bursts asked for does not.
    #[test]
    fn batches_beyond_the_bursts_asked_for_are_a_caveat() {
        let mut sender = SenderReport::default();
        sender.spacing.requested_ns = Some(1_000);
        sender.spacing.batch_packets.p50 = 4;
        let receiver = ReceiverReport::default();
        let raised = |burst_packets: u32| {
            let parameters = UdpParameters { burst_packets, ..UdpParameters::default() };
            let assembled = UdpResult::assemble(&parameters, &sender, &receiver);
            assembled.caveats.iter().any(|caveat| caveat.code == "offload_hides_spacing")
        };
        assert!(raised(1) && raised(3) && !raised(4));
    }
}
