//! What each end reports on a UDP test: joins what sockets, drop events and counters tell.

use crate::caveats;
use std::collections::BTreeMap;

use longhaul_result::Caveat;
use longhaul_result::caveats::SENDER_STOPPED;
use longhaul_result::{Location, LocationMethod};
use longhaul_terms::Collect;
use longhaul_terms::{SocketBuffer, ThreadCpu};
use longhaul_udp::Binding;
use longhaul_udp::account::SpacingRecorder;
use longhaul_udp::account::{Arrivals, StreamReceived};
use longhaul_udp::locate::{Evidence, EvidenceRecorder, Total, TotalScope};
use longhaul_udp::{ReceiveSettings, UdpParameters};
use longhaul_udp::{UdpReceiverReport, UdpSenderReport};
use longhaul_units::{Nanos, TimeHistogram};

use super::drops::{Seen, SeenOfDirection, is_damage, may_be_fragmented};
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
    let mut back_to_back = TimeHistogram::default();
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
        back_to_back.merge(&out.back_to_back);
        report.streams.push(out.sent);
        report.cpus.push(out.cpu);
        report.evidence.push(out.evidence.recorded());
        refused.push(out.refused.recorded());
        if out.given_up > Nanos::ZERO {
            caveats.push(Caveat::new(
                caveats::PACING_NOT_ACHIEVED,
                format!("the sender could not keep up and delayed its schedule by {}", out.given_up),
                "ask for a lower rate or larger packets, or allow batches of packets",
            ));
        }
        if let Some(failure) = out.failure {
            let message = format!("the sender stopped early: {failure}");
            let remedy =
                if parameters.dont_fragment { "use a smaller `payload_bytes`, or omit `dont_fragment`" } else { "" };
            caveats.push(Caveat::new(SENDER_STOPPED, message, remedy));
        }
    }
    report.spacing = spacing.spacing(parameters.spacing());
    let together = back_to_back.quantiles();
    report.back_to_back_ns = (together.count > 0).then_some(together.p50_ns);
    match seen {
        Some(seen) => {
            // First the events, as they have the kernel's own reasons. What was refused before it became a packet has none.
            // ENOBUFS has one, and does not tell whether the queue or a far veth's ring was full.
            let answers = std::mem::replace(&mut report.evidence, recorded(&seen.sent));
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
            queue_or_ring(&mut report);
            subtract_events(&mut report.totals, &report.evidence);
        }
    }
    report
}

fn recorded(seen: &SeenOfDirection) -> Vec<Evidence> {
    seen.evidence.iter().map(EvidenceRecorder::recorded).collect()
}

/// `ENOBUFS` is a full queue's, or a full ring's at the far end of a veth. It is the queue's where that counted as many drops.
fn queue_or_ring(report: &mut UdpSenderReport) {
    let at_queue = |total: &&mut Total| total.location == Location::SenderQdisc;
    let refused: u64 = report.evidence.iter().map(|evidence| evidence.units_at(Location::SenderQdisc)).sum();
    let dropped: u64 = report.totals.iter_mut().filter(at_queue).map(|total| total.packets).sum();
    if refused <= dropped {
        return;
    }
    for evidence in &mut report.evidence {
        let answers = std::mem::take(evidence);
        evidence.merge(&answers, |at, why| match at {
            Location::SenderQdisc => Some((Location::Unexplained, "ENOBUFS: the queue, or the far end's ring")),
            _ => Some((at, why)),
        });
    }
    // Its drops are among these.
    report.totals.retain(|total| total.location != Location::SenderQdisc);
}

/// What the receiver's report is made of.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) streams: Vec<StreamReceived>,
    pub(super) arrivals: Option<Arrivals>,
    /// What each receiving thread used of its CPU.
    pub(super) cpus: Vec<Option<ThreadCpu>>,
    /// What lay unread in each socket at the end.
    pub(super) unread: Vec<Evidence>,
    /// Packets for which the sockets had no room, by `SO_MEMINFO`.
    pub(super) socket_drops: u64,
    pub(super) buffer: Option<SocketBuffer>,
    pub(super) binding: Option<Binding>,
    pub(super) settings: Option<ReceiveSettings>,
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
    let Received {
        streams,
        arrivals,
        cpus,
        unread,
        socket_drops,
        buffer,
        binding,
        settings,
        changed,
        unit_packets_most,
    } = received;
    // With UDP_GRO a counter counts all packets of a super-packet as one, so what remains need not be the network's.
    let counts_packets = parameters.wire || changed.totals.is_empty();
    let mut report = UdpReceiverReport {
        complete: counts_packets && changed.complete,
        totals: changed.totals,
        counters: changed.all,
        binding,
        settings,
        buffer,
        streams,
        arrivals,
        cpus,
        method: LocationMethod::Counters,
        evidence: unread,
        ..UdpReceiverReport::default()
    };
    let duplicates = report.streams.iter().any(|stream| stream.counts.duplicate_packets > 0);
    // The kernel keeps a fragment once, so that no duplicates tell of copies.
    let copies = duplicates || may_be_fragmented(parameters.payload_bytes);
    match seen {
        Some(seen) => {
            let unread = std::mem::replace(&mut report.evidence, recorded(&seen.received));
            for (events, unread) in report.evidence.iter_mut().zip(&unread) {
                events.merge(unread, |at, why| Some((at, why)));
            }
            report.method = LocationMethod::Bpf;
            report.complete = seen.complete;
            report.unseen_packets = seen.unseen_packets;
            report.totals.retain(|total| without_event(total.location, &total.reason));
            subtract_events(&mut report.totals, &report.evidence);
            if seen.received.copied_fragments {
                // What was dropped may have been a copy, and another fragment of the datagram lost on the way.
                report.evidence.iter_mut().for_each(|events| events.doubt_fragments(Location::ReceiverStack));
            }
            report.totals.extend(seen.received.totals.iter().cloned());
            // The socket counts by itself what it had no room for. A kernel may not run a BPF program where it interrupted another one,
            // and does not always count that.
            let full = socket_drops.min(changed.buffer_full_packets);
            let units = full.saturating_sub(seen.received.buffer_full_units);
            let more = units.saturating_mul(unit_packets_most - 1);
            report.unseen_packets = report.unseen_packets.saturating_add(more);
            report.totals.extend((units > 0).then(|| Total {
                location: if duplicates { Location::Unexplained } else { Location::ReceiverSocketBuffer },
                reason: "SO_MEMINFO drops without an event".into(),
                packets: units,
                scope: TotalScope::Test,
            }));
            let damaged = damaged(seen.received.unidentified_packets, &report);
            // On a path that duplicates, another copy of what was damaged may have arrived.
            if copies {
                report.unseen_packets = report.unseen_packets.saturating_add(damaged);
            } else {
                report.totals.extend((damaged > 0).then(|| Total {
                    location: Location::ReceiverStack,
                    reason: "UDP_CSUM, IP_CSUM, IP_INHDR: a header was damaged".into(),
                    packets: damaged,
                    scope: TotalScope::Test,
                }));
            }
        }
        None => {
            report.totals.extend(by_counters(socket_drops, changed.buffer_full_packets, changed.damaged_packets));
            let may_be_copies = |location| match location {
                Location::ReceiverStack => copies,
                Location::ReceiverSocketBuffer => duplicates,
                _ => false,
            };
            doubt(&mut report.totals, may_be_copies);
            report.totals.extend((changed.strange_packets > 0).then(|| Total {
                location: Location::Unexplained,
                reason: "InAddrErrors, NoPorts and the like: of this test or of another".into(),
                packets: changed.strange_packets,
                scope: TotalScope::Host,
            }));
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

/// Leaves the location open for lost packets if another copy of them may have arrived.
fn doubt(totals: &mut [Total], may_be_copies: impl Fn(Location) -> bool) {
    for total in totals.iter_mut().filter(|total| may_be_copies(total.location)) {
        total.location = Location::Unexplained;
        total.reason.push_str(": lost, or a copy");
    }
}

/// Packets of the test that were dropped for their damage, and are not known: nothing names them (`unidentified`), or what does is a packet
/// that arrived.
fn damaged(unidentified: u64, report: &UdpReceiverReport) -> u64 {
    let streams = report.evidence.iter().zip(&report.streams);
    let arrived = streams.map(|(evidence, stream)| {
        evidence.packets(is_damage).saturating_sub(evidence.packets_lost(&stream.losses, is_damage))
    });
    unidentified + arrived.sum::<u64>()
}

/// What the sockets of the test counted themselves, and where that was: the host's counters, which are other sockets', too, say how many of
/// them can have been full buffers (`full`) and damaged packets (`damaged`). What of the latter no socket of the test counted is
/// anybody's.
fn by_counters(socket_drops: u64, full: u64, damaged: u64) -> Vec<Total> {
    let total = |location, packets, scope, reason: &str| Total { location, reason: reason.into(), packets, scope };
    let own = "SO_MEMINFO drops";
    let surely_full = socket_drops.saturating_sub(damaged);
    let surely_damaged = socket_drops.saturating_sub(full).min(socket_drops - surely_full);
    let either = socket_drops - surely_full - surely_damaged;
    let others = damaged.saturating_sub(surely_damaged + either);
    let totals = [
        total(Location::ReceiverSocketBuffer, surely_full, TotalScope::Test, own),
        total(Location::ReceiverStack, surely_damaged, TotalScope::Test, own),
        total(Location::Unexplained, either, TotalScope::Test, "SO_MEMINFO drops: buffer full, or damaged"),
        total(Location::Unexplained, others, TotalScope::Host, "InCsumErrors, InHdrErrors: of this test or of another"),
    ];
    totals.into_iter().filter(|total| total.packets > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (socket's drops, host's full buffers, host's damaged packets) and what is told: full, damaged, either, and what may be another's.
    #[test]
    fn what_may_be_another_sockets_is_not_placed() {
        let told = |drops, full, damaged| {
            let totals = by_counters(drops, full, damaged);
            let at = |location, scope| {
                let found = totals.iter().filter(|total| (total.location, total.scope) == (location, scope));
                found.map(|total| total.packets).sum::<u64>()
            };
            (
                at(Location::ReceiverSocketBuffer, TotalScope::Test),
                at(Location::ReceiverStack, TotalScope::Test),
                at(Location::Unexplained, TotalScope::Test),
                at(Location::Unexplained, TotalScope::Host),
            )
        };
        assert_eq!(told(10, 10, 0), (10, 0, 0, 0));
        assert_eq!(told(10, 7, 3), (7, 3, 0, 0));
        assert_eq!(told(0, 0, 43), (0, 0, 0, 43), "damaged, and nobody knows whose");
        assert_eq!(told(10, 1_000, 0), (10, 0, 0, 0), "another socket was full, too");
        assert_eq!(told(10, 8, 5), (5, 2, 3, 0));
        assert_eq!(told(10, 100, 100), (0, 0, 10, 90));
    }

    /// Where the path duplicates, a full buffer drops copies, too.
    #[test]
    fn drops_that_may_be_of_copies_are_not_placed() {
        let told = |duplicate_packets, seen: Option<&Seen>| {
            let mut stream = StreamReceived::default();
            stream.counts.duplicate_packets = duplicate_packets;
            let changed = Changed { buffer_full_packets: 10, complete: true, ..Changed::default() };
            let (streams, socket_drops, unit_packets_most) = (vec![stream], 10, 1);
            let received = Received { streams, socket_drops, changed, unit_packets_most, ..Received::default() };
            let report = receiver_report(&UdpParameters::default(), received, seen);
            let [total] = &report.totals[..] else { panic!("{:?}", report.totals) };
            (total.location, total.packets)
        };
        for seen in [None, Some(&Seen::default())] {
            assert_eq!(told(0, seen), (Location::ReceiverSocketBuffer, 10));
            assert_eq!(told(1, seen), (Location::Unexplained, 10));
        }
    }

    #[test]
    fn what_the_queue_did_not_count_is_not_the_queues() {
        let told = |dropped: u64| {
            let mut evidence = EvidenceRecorder::default();
            evidence.add(0, 30, Location::SenderQdisc, "ENOBUFS", 10);
            evidence.add(50, 1, Location::SenderStack, "EPERM", 1);
            let total = Total {
                location: Location::SenderQdisc,
                reason: "x".into(),
                packets: dropped,
                scope: TotalScope::Host,
            };
            let mut report = UdpSenderReport {
                evidence: vec![evidence.recorded()],
                totals: vec![total],
                ..UdpSenderReport::default()
            };
            queue_or_ring(&mut report);
            let at = |location| report.evidence[0].packets_at(location);
            assert_eq!(at(Location::SenderStack), 1);
            (at(Location::SenderQdisc), at(Location::Unexplained), report.totals.len())
        };
        assert_eq!(told(3), (30, 0, 1), "three super-packets");
        assert_eq!(told(2), (0, 30, 0));
        assert_eq!(told(0), (0, 30, 0));
    }

    #[test]
    fn what_events_placed_is_no_longer_in_the_totals() {
        let mut evidence = EvidenceRecorder::default();
        evidence.add(0, 30, Location::SenderQdisc, "ENOBUFS", 1);
        let total = |location, packets| Total { location, reason: "x".into(), packets, scope: TotalScope::Host };
        let mut totals =
            vec![total(Location::SenderQdisc, 20), total(Location::SenderQdisc, 15), total(Location::SenderDevice, 4)];
        subtract_events(&mut totals, &[evidence.recorded()]);
        assert_eq!(totals, [total(Location::SenderQdisc, 5), total(Location::SenderDevice, 4)]);
    }
}
