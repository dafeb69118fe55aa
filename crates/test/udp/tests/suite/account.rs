//! The tracker compared with a naive implementation, and the examples of RFC 4737.

use std::collections::HashSet;

use longhaul_udp::account::{Arrivals, Receipt, Reordered, Run, SequenceTracker, StreamReceived};
use longhaul_units::Nanos;
use proptest::prelude::*;

/// Directly from the definitions: sets, and for each packet a search through all earlier ones.
#[derive(Default)]
struct Naive {
    arrived: Vec<(u64, u64)>,
    seen: HashSet<u64>,
    duplicates: u64,
    extents: Vec<u64>,
    late_max: u64,
}

impl Naive {
    fn receive(&mut self, sequence: u64, arrival: u64) {
        if !self.seen.insert(sequence) {
            self.duplicates += 1;
            return;
        }
        // RFC 4737 §4.2: the least j with s[j] > s[i].
        if let Some(j) = self.arrived.iter().position(|(other, _)| *other > sequence) {
            self.extents.push((self.arrived.len() - j) as u64);
            self.late_max = self.late_max.max(arrival - self.arrived[j].1);
        }
        self.arrived.push((sequence, arrival));
    }

    fn check(&self, found: &StreamReceived, sent: u64) {
        let counts = found.counts;
        assert_eq!(counts.received_packets, self.seen.len() as u64);
        assert_eq!(counts.duplicate_packets, self.duplicates);
        assert_eq!(counts.reordering.reordered_packets, self.extents.len() as u64);
        assert_eq!(counts.reordering.extent_packets_sum, self.extents.iter().sum::<u64>());
        assert_eq!(counts.reordering.extent_packets_max, self.extents.iter().copied().max().unwrap_or(0));
        assert_eq!(counts.reordering.late_ns_max, self.late_max);
        let lost: Vec<u64> = (0..sent).filter(|sequence| !self.seen.contains(sequence)).collect();
        assert_eq!(found.losses.lost_packets(), lost.len() as u64);
        let listed: Vec<u64> = found.losses.runs().flat_map(|run| run.first_sequence..run.end()).collect();
        assert_eq!(listed, lost);
        assert_eq!(counts.received_packets + found.losses.lost_packets(), sent);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Each packet is lost or arrives up to three times, and each copy has its own delay.
    #[test]
    fn the_tracker_equals_its_naive_twin(
        fates in prop::collection::vec((0u32..10, 0u64..12, 0u64..12), 1..400),
        stride in prop_oneof![Just(1u64), Just(300), Just(70_000)],
        tail in 0u64..100,
    ) {
        // With a stride the same few packets are in many chunks.
        let sequence = |index: usize| index as u64 * stride;
        let mut arrivals = Vec::new();
        for (index, (kind, late, later)) in fates.iter().enumerate() {
            let copies = match kind { 0 | 1 => 0, 2 => 2, 3 => 3, _ => 1 };
            for copy in 0..copies {
                arrivals.push((index as u64 + if *kind > 6 { *late } else { 0 } + copy * later, sequence(index)));
            }
        }
        arrivals.sort();
        let (mut tracker, mut naive) = (SequenceTracker::new(u64::MAX, true), Naive::default());
        for (step, (_, sequence)) in arrivals.into_iter().enumerate() {
            let arrival = step as u64 * 10;
            tracker.receive(sequence, Nanos(arrival), Nanos(0));
            naive.receive(sequence, arrival);
        }
        if stride < 70_000 {
            let sent = sequence(fates.len() - 1) + 1 + tail;
            naive.check(&tracker.finish(sent), sent);
        } else {
            prop_assert_eq!(tracker.counts().received_packets, naive.seen.len() as u64);
            prop_assert_eq!(tracker.counts().duplicate_packets, naive.duplicates);
            prop_assert_eq!(tracker.counts().reordering.extent_packets_sum, naive.extents.iter().sum::<u64>());
        }
    }

    /// Batches with consecutive sequences, some overlapping earlier ones, count like their single packets.
    #[test]
    fn runs_equal_single_packets(parts in prop::collection::vec((0u64..300_000, 0u32..5_000, any::<bool>()), 0..40)) {
        let mut by_run = SequenceTracker::new(250_000, false);
        let mut by_one = by_run.clone();
        for (step, (first, count, follow)) in parts.into_iter().enumerate() {
            let first = if follow { by_run.next_expected() } else { first };
            by_run.receive_run(first, count, Nanos(step as u64));
            for sequence in first..first + u64::from(count) {
                by_one.receive(sequence, Nanos(step as u64), Nanos(0));
            }
            prop_assert_eq!(by_run.counts(), by_one.counts());
        }
        prop_assert_eq!(Arrivals::of([by_run.take_arrivals()]), Arrivals::of([by_one.take_arrivals()]));
        // Of packets that arrived as one it is not known when each left.
        let received = |tracker: SequenceTracker| StreamReceived { trains: None, ..tracker.finish(260_000) };
        prop_assert_eq!(received(by_run), received(by_one));
    }
}

/// Receives `order` (numbered from 1, as the RFC does) and returns the extent of each reordered packet.
fn extents(order: &[u64]) -> Vec<(u64, u64)> {
    let mut tracker = SequenceTracker::new(1000, false);
    let mut found = Vec::new();
    for (index, sequence) in order.iter().enumerate() {
        let arrival = Nanos::from_millis(20 * index as u64);
        if let Receipt::Reordered(Some(reordered)) = tracker.receive(sequence - 1, arrival, Nanos(0)) {
            assert_eq!(reordered.late, Nanos::from_millis(20 * reordered.extent_packets), "evenly spaced arrivals");
            found.push((*sequence, reordered.extent_packets));
        }
    }
    found
}

/// The three arrival orders of RFC 4737 §7.1 to §7.3 (Tables 1 to 3): packet 4 is late by four; 5 and 6 by one and two; 4, 5 and 6 by four,
/// five and six.
#[test]
fn examples_of_rfc_4737() {
    assert_eq!(extents(&[1, 2, 3, 5, 6, 7, 8, 4, 9, 10]), [(4, 4)]);
    assert_eq!(extents(&[1, 2, 3, 4, 7, 5, 6, 8, 9, 10]), [(5, 1), (6, 2)]);
    assert_eq!(extents(&[1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11]), [(4, 4), (5, 5), (6, 6)]);
    assert_eq!(extents(&[1, 2, 4, 5, 8]), [], "loss is no reordering");
}

/// A packet that arrives too late for its gap to be remembered is reordered with unknown extent.
#[test]
fn what_is_too_late_has_an_unknown_extent() {
    let mut tracker = SequenceTracker::new(1 << 30, false);
    for packet in 0..20_000 {
        tracker.receive(packet * 2, Nanos(packet), Nanos(0));
    }
    assert_eq!(tracker.receive(1, Nanos(20_000), Nanos(0)), Receipt::Reordered(None));
    let known = tracker.receive(39_997, Nanos(20_001), Nanos(0));
    let late = Nanos(20_001 - 19_999);
    assert_eq!(known, Receipt::Reordered(Some(Reordered { extent_packets: 2, late })));
    let summary = tracker.counts().reordering;
    assert_eq!((summary.reordered_packets, summary.extent_unknown_packets), (2, 1));
}

#[test]
fn nothing_arrived_and_forged_numbers() {
    let tracker = SequenceTracker::new(1_000, true);
    let received = tracker.clone().finish(10);
    assert_eq!(received.losses.runs().collect::<Vec<_>>(), [Run { first_sequence: 0, packets: 10 }]);
    assert_eq!(tracker.clone().finish(0).losses.lost_packets(), 0);

    let mut tracker = tracker;
    for forged in [1_000, 1 << 47, u64::MAX] {
        assert_eq!(tracker.receive(forged, Nanos(1), Nanos(0)), Receipt::OutOfRange);
    }
    tracker.receive_run(990, 20, Nanos(2));
    tracker.receive_run(u64::MAX - 3, u32::MAX, Nanos(2));
    let counts = tracker.counts();
    assert_eq!((counts.received_packets, counts.out_of_range_packets), (10, 3 + 10 + 3));
    assert!(tracker.heap_bytes() < 100_000);
    let received = tracker.finish(995);
    assert_eq!((received.losses.sent_packets(), received.losses.lost_packets()), (995, 990));
    // What was never sent was forged.
    let counts = received.counts;
    assert_eq!(
        (counts.received_packets, counts.missing_packets, counts.out_of_range_packets),
        (5, 990, 3 + 10 + 3 + 5)
    );
}

/// Every other packet: as many runs as packets.
#[test]
fn losses_beyond_their_room_are_counted_and_not_written() {
    let received = |room: u64| {
        let mut tracker = SequenceTracker::new(200_000, true).within(room);
        (0..100_000).for_each(|number| _ = tracker.receive(2 * number, Nanos(number), Nanos(number)));
        tracker.finish(200_000)
    };
    let (whole, cut) = (received(400_000), received(1_000));
    for found in [&whole, &cut] {
        assert_eq!((found.counts.received_packets, found.losses.lost_packets()), (100_000, 100_000));
    }
    assert!(serde_json::to_string(&whole).unwrap().len() < 300_000);
    assert!(serde_json::to_string(&cut).is_err());
}
