//! What each end reports on a UDP test: joins what sockets, drop events and counters tell.

use crate::caveats;
use std::collections::BTreeMap;

use longhaul_result::Caveat;
use longhaul_result::{Location, LocationMethod};
use longhaul_terms::Collect;
use longhaul_terms::SocketBuffer;
use longhaul_udp::Binding;
use longhaul_udp::UdpParameters;
use longhaul_udp::account::SpacingRecorder;
use longhaul_udp::account::StreamReceived;
use longhaul_udp::locate::{Evidence, Total, TotalScope};
use longhaul_udp::{UdpReceiverReport, UdpSenderReport};
use longhaul_units::Nanos;

use super::drops::Seen;
use super::sending::StreamOut;
use crate::counters::{Changed, without_event};

/// The sender's report: what the streams did (`outs`), and what was dropped here by drop events (`seen`) and counters (`changed`).
pub(super) fn sender_report(
    parameters: &UdpParameters,
    outs: Vec<StreamOut>,
    buffer: Option<SocketBuffer>,
    changed: Changed,
    seen: Option<&Seen>,
    caveats: &mut Vec<Caveat>,
) -> UdpSenderReport {
    let mut spacing = SpacingRecorder::default();
    let mut refused = Vec::new();
    let mut report = UdpSenderReport {
        totals: changed.totals,
        counters: changed.all,
        complete: parameters.collect != Collect::Off,
        buffer,
        method: LocationMethod::Counters,
        ..UdpSenderReport::default()
    };
    for out in outs {
        spacing.merge(&out.spacing);
        report.streams.push(out.sent);
        report.evidence.push(out.evidence);
        refused.push(out.refused);
        if out.given_up > Nanos::ZERO {
            caveats.push(Caveat::new(
                caveats::PACING_NOT_ACHIEVED,
                format!("the sender could not keep up and delayed its schedule by {}", out.given_up),
                "ask for a lower rate or larger packets, or allow batches of packets",
            ));
        }
        if let Some(failure) = out.failure {
            caveats.push(Caveat::new(caveats::SENDER_STOPPED, format!("the sender stopped early: {failure}"), ""));
        }
    }
    report.spacing = spacing.spacing(parameters.spacing());
    match seen {
        Some(seen) => {
            // First the events, as they have the kernel's own reasons. What was refused before it became a packet has none.
            // ENOBUFS has one, and does not tell whether the queue or a far veth's ring was full.
            let answers = std::mem::replace(&mut report.evidence, seen.sent.evidence.clone());
            for ((events, answers), refused) in report.evidence.iter_mut().zip(&answers).zip(&refused) {
                events.merge(answers, |at, why| (at != Location::SenderQdisc).then_some((at, why)));
                events.merge(refused, |at, why| Some((at, why)));
            }
            report.method = LocationMethod::Bpf;
            report.complete = seen.complete;
            report.unseen_packets = seen.unseen_packets;
            report.totals = seen.sent.totals.clone();
        }
        None => {
            for (answers, refused) in report.evidence.iter_mut().zip(&refused) {
                // What was refused without a reason gets that of the others, where they have one alone.
                let known = answers.clone();
                answers.merge(refused, |at, why| Some(known.only_kind().unwrap_or((at, why))));
            }
            subtract_events(&mut report.totals, &report.evidence);
        }
    }
    report
}

/// What the receiver's report is made of.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) streams: Vec<StreamReceived>,
    /// What lay unread in each socket at the end.
    pub(super) unread: Vec<Evidence>,
    /// Packets for which the sockets had no room, by `SO_MEMINFO`.
    pub(super) socket_drops: u64,
    pub(super) buffer: Option<SocketBuffer>,
    pub(super) binding: Option<Binding>,
    pub(super) changed: Changed,
    /// Packets that may travel as one.
    pub(super) unit_packets_most: u64,
}

/// The receiver's report.
pub(super) fn receiver_report(
    parameters: &UdpParameters,
    received: Received,
    seen: Option<&Seen>,
) -> UdpReceiverReport {
    let Received { streams, unread, socket_drops, buffer, binding, changed, unit_packets_most } = received;
    // With UDP_GRO a counter counts all packets of a super-packet as one, so what remains need not be the network's.
    let counts_packets = parameters.wire || changed.totals.is_empty();
    let mut report = UdpReceiverReport {
        complete: counts_packets && changed.complete,
        totals: changed.totals,
        counters: changed.all,
        binding,
        buffer,
        streams,
        method: LocationMethod::Counters,
        evidence: unread,
        ..UdpReceiverReport::default()
    };
    match seen {
        Some(seen) => {
            let unread = std::mem::replace(&mut report.evidence, seen.received.evidence.clone());
            for (events, unread) in report.evidence.iter_mut().zip(&unread) {
                events.merge(unread, |at, why| Some((at, why)));
            }
            report.method = LocationMethod::Bpf;
            report.complete = seen.complete;
            report.unseen_packets = seen.unseen_packets;
            report.totals.retain(|total| without_event(total.location, &total.reason));
            subtract_events(&mut report.totals, &report.evidence);
            report.totals.extend(seen.received.totals.iter().cloned());
            // The socket counts by itself what it had no room for. A kernel may not run a BPF program where it interrupted another one,
            // and does not always count that.
            let full = socket_drops.min(changed.buffer_full_packets);
            let units = full.saturating_sub(seen.received.buffer_full_units);
            let more = units.saturating_mul(unit_packets_most - 1);
            report.unseen_packets = report.unseen_packets.saturating_add(more);
            report.totals.extend((units > 0).then(|| Total {
                location: Location::ReceiverSocketBuffer,
                reason: "SO_MEMINFO drops without an event".into(),
                packets: units,
                scope: TotalScope::Test,
            }));
            report.totals.extend(damaged(changed.damaged_packets, &report));
        }
        None => {
            // The socket's own count covers this test alone, with its end, and damaged packets that were read.
            let damaged = socket_drops.saturating_sub(changed.buffer_full_packets).min(changed.damaged_packets);
            let total = |location, packets| Total {
                location,
                reason: "SO_MEMINFO drops".into(),
                packets,
                scope: TotalScope::Test,
            };
            report.totals.push(total(Location::ReceiverSocketBuffer, socket_drops - damaged));
            report.totals.push(total(Location::ReceiverStack, damaged));
            report.totals.push(Total {
                scope: TotalScope::Host,
                reason: "InCsumErrors, InHdrErrors".into(),
                ..total(Location::ReceiverStack, changed.damaged_packets - damaged)
            });
            report.complete &= parameters.wire || socket_drops == 0;
            report.totals.retain(|total| total.packets > 0);
        }
    }
    report
}

/// Leaves in each total what no event placed.
fn subtract_events(totals: &mut Vec<Total>, evidence: &[Evidence]) {
    let mut placed: BTreeMap<Location, u64> = BTreeMap::new();
    for total in totals.iter_mut() {
        let known = || evidence.iter().map(|evidence| evidence.packets_at(total.location)).sum();
        let placed = placed.entry(total.location).or_insert_with(known);
        let both = total.packets.min(*placed);
        (total.packets, *placed) = (total.packets - both, *placed - both);
    }
    totals.retain(|total| total.packets > 0);
}

/// Packets whose damage hit the fields that identify them: the kernel counted them, and their events name another packet or none.
fn damaged(counted: u64, report: &UdpReceiverReport) -> Option<Total> {
    let checksum = |reason: &str| ["UDP_CSUM", "IP_CSUM", "IP_INHDR"].iter().any(|known| reason.starts_with(known));
    let streams = report.evidence.iter().zip(&report.streams);
    let placed: u64 = streams.map(|(evidence, stream)| evidence.packets_lost(&stream.losses, checksum)).sum();
    let packets = counted.saturating_sub(placed);
    (packets > 0).then(|| Total {
        location: Location::ReceiverStack,
        reason: "InCsumErrors, InHdrErrors: a header was damaged".into(),
        packets,
        scope: TotalScope::Host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_events_placed_is_no_longer_in_the_totals() {
        let mut evidence = Evidence::default();
        evidence.add(0, 30, Location::SenderQdisc, "ENOBUFS", 1);
        let total = |location, packets| Total { location, reason: "x".into(), packets, scope: TotalScope::Host };
        let mut totals =
            vec![total(Location::SenderQdisc, 20), total(Location::SenderQdisc, 15), total(Location::SenderDevice, 4)];
        subtract_events(&mut totals, &[evidence]);
        assert_eq!(totals, [total(Location::SenderQdisc, 5), total(Location::SenderDevice, 4)]);
    }
}
