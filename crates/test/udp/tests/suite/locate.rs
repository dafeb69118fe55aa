//! Losses joined with evidence: every loss has one location, no packet that arrived counts as lost, and unexplained losses are
//! shown.

use std::collections::BTreeMap;

use longhaul_result::Location;
use longhaul_udp::account::{LossMap, Run};
use longhaul_udp::locate::{Evidence, EvidenceRecorder, Loss, Sight, StreamLosses, Total, TotalScope, attribute};
use longhaul_udp::{UdpEndReport, UdpSenderReport};
use proptest::prelude::*;

const COMPLETE: Sight = Sight { sender_complete: true, receiver_complete: true, unseen_packets: 0 };
const BLIND: Sight = Sight { receiver_complete: false, ..COMPLETE };

fn lost(sent: u64, runs: &[(u64, u64)]) -> LossMap {
    let mut runs = runs.to_vec();
    runs.sort_unstable();
    LossMap::of_runs(sent, runs.iter().map(|&(first_sequence, packets)| Run { first_sequence, packets }))
}

fn total(location: Location, packets: u64, scope: TotalScope) -> Total {
    Total { location, reason: format!("{location} counter"), packets, scope }
}

fn one<'a>(losses: &'a LossMap, evidence: &[&'a Evidence]) -> Vec<StreamLosses<'a>> {
    vec![StreamLosses { stream: 0, losses, evidence: evidence.to_vec() }]
}

fn brief(losses: impl Iterator<Item = Loss>) -> Vec<(u64, u64, Location, u32)> {
    losses.map(|loss| (loss.first_sequence, loss.packets, loss.location, loss.unit_packets)).collect()
}

#[test]
fn events_locate_lost_packets_only() {
    let losses = lost(1000, &[(10, 5), (100, 1), (990, 10)]);
    let (mut sender, mut receiver) = (EvidenceRecorder::default(), EvidenceRecorder::default());
    // A super-packet of ten in the qdisc, of which five arrived after a retry.
    sender.add(5, 10, Location::SenderQdisc, "QDISC_DROP", 10);
    // One packet was dropped twice: the last drop counts.
    sender.add(100, 1, Location::SenderStack, "NEIGH_QUEUEFULL", 1);
    receiver.add(100, 1, Location::ReceiverSocketBuffer, "SOCKET_RCVBUFF", 1);
    // Dropped, but another copy arrived.
    receiver.add(500, 1, Location::ReceiverFilter, "NETFILTER_DROP", 1);
    let (sender, receiver) = (sender.recorded(), receiver.recorded());
    let attribution = attribute(one(&losses, &[&sender, &receiver]), &[], COMPLETE);
    assert_eq!(
        brief(attribution.losses()),
        [
            (10, 5, Location::SenderQdisc, 10),
            (100, 1, Location::ReceiverSocketBuffer, 1),
            (990, 10, Location::Network, 1)
        ]
    );
    let by = attribution.by_location();
    assert_eq!(by.len(), Location::ALL.len());
    assert_eq!((by[&Location::SenderQdisc], by[&Location::Network], by[&Location::ReceiverFilter]), (5, 10, 0));

    let attribution = attribute(one(&losses, &[&sender, &receiver]), &[], BLIND);
    assert_eq!(
        (attribution.by_location()[&Location::Network], attribution.by_location()[&Location::Unexplained]),
        (0, 10)
    );
}

#[test]
fn of_drops_of_fragments_the_nearest_counts() {
    let losses = lost(100, &[(10, 3), (50, 1)]);
    let (mut sender, mut receiver) = (EvidenceRecorder::default(), EvidenceRecorder::default());
    // The queue dropped a fragment of 10 and 11; others of both went on to the receiver, which had no room to join them.
    sender.add_fragment(10, Location::SenderQdisc, "QDISC_DROP");
    sender.add_fragment(11, Location::SenderQdisc, "QDISC_DROP");
    receiver.add_fragment(10, Location::ReceiverFilter, "NETFILTER_DROP");
    receiver.add_fragment(11, Location::Unexplained, "NOT_SPECIFIED @ ip_defrag, of a part of the datagram");
    // 12 came whole, by a copy.
    sender.add_fragment(12, Location::SenderQdisc, "QDISC_DROP");
    receiver.add(12, 1, Location::ReceiverSocketBuffer, "SOCKET_RCVBUFF", 1);
    // The kernel refused 50 once; the second attempt lost a fragment.
    sender.add(50, 1, Location::SenderStack, "EPERM", 1);
    receiver.add_fragment(50, Location::ReceiverStack, "NOT_SPECIFIED @ ip_defrag");
    let (sender, receiver) = (sender.recorded(), receiver.recorded());
    let attribution = attribute(one(&losses, &[&sender, &receiver]), &[], COMPLETE);
    assert_eq!(
        brief(attribution.losses()),
        [
            (10, 2, Location::SenderQdisc, 1),
            (12, 1, Location::ReceiverSocketBuffer, 1),
            (50, 1, Location::ReceiverStack, 1)
        ]
    );
}

/// On a path that copies, a damaged fragment may have been one too many, and another one lost.
#[test]
fn drops_of_fragments_can_be_left_open() {
    let losses = lost(100, &[(10, 1), (20, 1), (30, 1)]);
    let mut receiver = EvidenceRecorder::default();
    receiver.add_fragment(10, Location::ReceiverStack, "IP_CSUM @ ip_rcv_core");
    receiver.add(20, 1, Location::ReceiverStack, "UDP_CSUM @ udp_recvmsg", 1);
    receiver.add_fragment(30, Location::ReceiverFilter, "NETFILTER_DROP");
    let mut receiver = receiver.recorded();
    receiver.doubt_fragments(Location::ReceiverStack);
    let attribution = attribute(one(&losses, &[&receiver]), &[], COMPLETE);
    assert_eq!(
        brief(attribution.losses()),
        [(10, 1, Location::Unexplained, 1), (20, 1, Location::ReceiverStack, 1), (30, 1, Location::ReceiverFilter, 1)]
    );
}

#[test]
fn totals_are_assigned_to_the_surest_counters_first() {
    let losses = lost(1000, &[(0, 100)]);
    let totals = [
        total(Location::ReceiverBacklog, 500, TotalScope::Host),
        total(Location::ReceiverSocketBuffer, 70, TotalScope::Test),
        total(Location::SenderQdisc, 20, TotalScope::Host),
    ];
    let attribution = attribute(one(&losses, &[]), &totals, COMPLETE);
    let by = attribution.by_location();
    assert_eq!(
        (by[&Location::ReceiverSocketBuffer], by[&Location::ReceiverBacklog], by[&Location::SenderQdisc]),
        (70, 30, 0)
    );
    assert_eq!(attribution.surplus_packets(), 490);
    // Nobody knows which packets these were, and the list says so.
    let listed: Vec<Loss> = attribution.losses().collect();
    assert_eq!((listed.len(), listed[0].location), (1, Location::Unexplained));
    assert!(listed[0].reason.contains("receiver_socket_buffer 70, receiver_backlog 30"), "{}", listed[0].reason);
}

#[test]
fn at_most_the_unseen_drops_are_unexplained() {
    let losses = lost(1_000, &[(0, 100)]);
    let mut events = EvidenceRecorder::default();
    events.add(0, 40, Location::ReceiverSocketBuffer, "SOCKET_RCVBUFF", 1);
    let events = events.recorded();
    // 20 more at the same location without an event, and 15 unseen drops.
    let totals = [total(Location::ReceiverSocketBuffer, 20, TotalScope::Test)];
    let by = |sight| {
        let attribution = attribute(one(&losses, &[&events]), &totals, sight);
        let by = attribution.by_location();
        (by[&Location::ReceiverSocketBuffer], by[&Location::Network], by[&Location::Unexplained])
    };
    assert_eq!(by(Sight { unseen_packets: 15, ..COMPLETE }), (60, 25, 15));
    assert_eq!(by(Sight { unseen_packets: u64::MAX, ..COMPLETE }), (60, 0, 40));
    assert_eq!(by(COMPLETE), (60, 40, 0));
    assert_eq!(by(Sight { unseen_packets: 15, ..BLIND }), (60, 0, 40));
}

#[test]
fn one_counter_that_explains_every_loss_locates_every_loss() {
    let losses = lost(1000, &[(3, 2), (50, 8)]);
    let totals = [total(Location::ReceiverRing, 10, TotalScope::Host)];
    let attribution = attribute(one(&losses, &[]), &totals, COMPLETE);
    assert_eq!(brief(attribution.losses()), [(3, 2, Location::ReceiverRing, 1), (50, 8, Location::ReceiverRing, 1)]);
    assert_eq!(attribution.losses().next().unwrap().reason, "receiver_ring counter");
    // One fewer: the rest was lost between the ends, or is unexplained.
    let totals = [total(Location::ReceiverRing, 9, TotalScope::Host)];
    let by = attribute(one(&losses, &[]), &totals, COMPLETE).by_location().clone();
    assert_eq!((by[&Location::ReceiverRing], by[&Location::Network]), (9, 1));
    let by = attribute(one(&losses, &[]), &totals, BLIND).by_location().clone();
    assert_eq!((by[&Location::ReceiverRing], by[&Location::Unexplained]), (9, 1));
}

#[test]
fn evidence_has_bounds() {
    let mut evidence = EvidenceRecorder::default();
    for reason in 0..10_000u64 {
        evidence.add(reason, 1, Location::SenderQdisc, &format!("reason {reason} {}", "é".repeat(200)), 1);
    }
    assert_eq!(evidence.recorded().packets_at(Location::SenderQdisc), 10_000);
    assert!(evidence.heap_bytes() < 1 << 20, "{}", evidence.heap_bytes());
    let losses = lost(10_000, &[(9_000, 1_000)]);
    let evidence = evidence.recorded();
    let attribution = attribute(one(&losses, &[&evidence]), &[], COMPLETE);
    assert_eq!(brief(attribution.losses()), [(9_000, 1_000, Location::SenderQdisc, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Compared with a map from each packet to the farthest event.
    #[test]
    fn equals_a_naive_join(
        runs in prop::collection::vec((0u64..2_000, 1u64..80), 0..12),
        events in prop::collection::vec((0u64..2_000, 1u64..60, 0usize..11, 0u32..3, any::<bool>()), 0..30),
        totals in prop::collection::vec((0usize..11, 0u64..300, any::<bool>()), 0..5),
        complete: bool,
        unseen in 0u64..200,
    ) {
        let losses = lost(2_000, &runs);
        let mut ends = [EvidenceRecorder::default(), EvidenceRecorder::default()];
        let mut farthest = BTreeMap::new();
        for &(first, count, location, reason, sender) in &events {
            let location = Location::ALL[location];
            ends[usize::from(sender)].add(first, count, location, ["A", "B", "C"][reason as usize], reason + 1);
            for sequence in first..first + count {
                let at = farthest.entry(sequence).or_insert(location);
                *at = location.max(*at);
            }
        }
        let ends = ends.map(|end| end.recorded());
        let totals: Vec<Total> = totals.iter().map(|&(location, packets, own)| {
            total(Location::ALL[location], packets, if own { TotalScope::Test } else { TotalScope::Host })
        }).collect();
        let sight = Sight { sender_complete: complete, unseen_packets: unseen, ..COMPLETE };
        let attribution = attribute(one(&losses, &[&ends[0], &ends[1]]), &totals, sight);

        prop_assert_eq!(attribution.by_location().values().sum::<u64>(), losses.lost_packets(), "conserved");
        for (location, packets) in attribution.by_location() {
            let reasons = attribution.by_reason().iter().filter(|((at, _), _)| at == location);
            prop_assert_eq!(reasons.map(|(_, packets)| packets).sum::<u64>(), *packets, "reasons add up");
        }
        let mut listed = BTreeMap::new();
        for loss in attribution.losses() {
            for sequence in loss.first_sequence..loss.first_sequence + loss.packets {
                prop_assert!(listed.insert(sequence, loss.location).is_none(), "lost twice");
            }
        }
        let missing: Vec<u64> = losses.runs().flat_map(|run| run.first_sequence..run.end()).collect();
        prop_assert_eq!(listed.keys().copied().collect::<Vec<_>>(), missing);
        for (sequence, location) in &listed {
            if let Some(expected) = farthest.get(sequence) {
                prop_assert_eq!(location, expected);
            }
        }
        // The evidence of the other end is sent as text and stays the same.
        let sender = UdpSenderReport { evidence: ends.to_vec(), ..UdpSenderReport::default() };
        let text = serde_json::to_string(&UdpEndReport { sender: Some(sender), ..UdpEndReport::default() }).unwrap();
        let back: UdpEndReport = serde_json::from_str(&text).unwrap();
        let back = &back.sender.unwrap().evidence;
        let again = attribute(one(&losses, &[&back[0], &back[1]]), &totals, sight);
        prop_assert_eq!(again.losses().collect::<Vec<_>>(), attribution.losses().collect::<Vec<_>>());
    }
}
