//! Losses on the path, duplicates and reordering, in both directions and over both protocols.

use std::collections::BTreeSet;

use longhaul_result::{Granularity, Location, LocationMethod};
use longhaul_terms::{Amount, TestDirection};
use longhaul_udp::{Pace, UdpParameters};

use crate::capture::{Capture, Wire};
use crate::hosts::*;

/// Batches of eight.
fn batches(packets: u64) -> UdpParameters {
    UdpParameters { wire: false, burst_packets: 8, ..parameters(packets) }
}

/// The numbers of those bulk packets that are lost by their place, from 1, among all packets on the path.
fn numbers(packets: &[Wire], lost: impl Fn(usize) -> bool) -> BTreeSet<u64> {
    packets.iter().zip(1..).filter(|(_, place)| lost(*place)).filter_map(|(packet, _)| packet.sequence).collect()
}

#[test]
fn every_hundredth_packet_is_lost_on_the_path() {
    if !able() {
        return;
    }
    for (asked, granularity) in [(parameters(4_000), Granularity::Wire), (batches(4_000), Granularity::Superpacket)] {
        let lab = lab("[[both]]\ndelay = '5ms'\n[[forward]]\nloss = { every = 100 }\n");
        let capture = Capture::leaving(&lab, "client");
        let end = run(&lab, asked);
        let expected = numbers(&capture.finish(), |place| place % 100 == 0);
        let (result, caveats) = assemble(&end, false);
        assert_eq!((result.location_method, result.granularity), (LocationMethod::Bpf, granularity));
        assert_lost(&result, Location::Network, &expected);
        assert!(expected.len() >= 39, "{}", expected.len());
        let hidden = caveats.iter().any(|caveat| caveat.code == "batches_hide_the_wire");
        assert_eq!(hidden, granularity == Granularity::Superpacket, "{caveats:?}");
    }
}

#[test]
fn a_list_of_packets_is_lost_in_either_direction_over_ipv6() {
    if !able() {
        return;
    }
    let listed = |place: usize| place == 77 || (500..=540).contains(&place) || place == 1_999;
    for direction in ["forward", "backward"] {
        let backward = direction == "backward";
        let lab =
            lab(&format!("[[both]]\ndelay = '3ms'\n[[{direction}]]\nloss = {{ list = [77, '500-540', 1999] }}\n"));
        let capture = Capture::leaving(&lab, if backward { "server" } else { "client" });
        let asked = UdpParameters {
            direction: if backward { TestDirection::Reverse } else { TestDirection::Forward },
            ..parameters(2_500)
        };
        let end = run_to(&lab, lab.host("server").unwrap().plan.ipv6.into(), asked);
        let expected = numbers(&capture.finish(), listed);
        assert!(expected.len() > 30, "{direction}: {}", expected.len());
        assert_lost(&result(&end, backward), Location::Network, &expected);
    }
}

#[test]
fn losses_at_the_end_count() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '2ms'\n");
    // The low half of the sequence, big endian, behind the UDP header, the cookie and four bytes.
    let rule = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                add rule inet t c udp length 508 @th,128,16 >= 1900 drop'";
    if !on(&lab, "server", rule) {
        return;
    }
    let result = result(&run(&lab, parameters(2_000)), false);
    assert_lost(&result, Location::ReceiverFilter, &(1_900..2_000).collect());
    assert_eq!(result.losses.len(), 1);
}

#[test]
fn nothing_is_lost_on_a_good_path_in_either_direction() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '2ms'\n");
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        let end = run(&lab, UdpParameters { direction, streams: 2, ..parameters(4_000) });
        for backward in [false, true] {
            if direction == TestDirection::Bidirectional || backward == (direction == TestDirection::Reverse) {
                let result = result(&end, backward);
                assert_eq!(
                    (result.sent_packets, result.lost_packets),
                    (4_000, 0),
                    "{direction:?}, backward {backward}"
                );
            }
        }
    }
}

/// Duplicates and reordering as a capture at the receiver shows them, by the definitions of RFC 4737 §3.3.
fn copies_and_reordered(packets: &[Wire]) -> (u64, u64) {
    let (mut seen, mut next, mut copies, mut reordered) = (BTreeSet::new(), 0, 0, 0);
    for sequence in packets.iter().filter_map(|packet| packet.sequence) {
        if !seen.insert(sequence) {
            copies += 1;
        } else if sequence < next {
            reordered += 1;
        } else {
            next = sequence + 1;
        }
    }
    (copies, reordered)
}

#[test]
fn duplicate_and_reordered_packets_are_counted_and_hide_no_loss() {
    if !able() {
        return;
    }
    let lab = lab("[[forward]]\ndelay = '4ms'\nduplicate = '5%'\nloss = { every = 250 }\n\
                   jitter = { law = 'uniform', stddev = '1ms', order = 'free' }\n");
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let end = run(&lab, parameters(4_000));
    let expected = numbers(&left.finish(), |place| place % 250 == 0);
    let (copies, reordered) = copies_and_reordered(&reached.finish());
    let result = result(&end, false);
    assert_lost(&result, Location::Network, &expected);
    assert_eq!((result.duplicate_packets, result.reordered_packets), (copies, reordered));
    // 5 % of 4000 are 200; four standard deviations are 55. Of packets 200 us apart with 1 ms of jitter many are reordered.
    assert!((140..=255).contains(&copies) && reordered > 400, "{copies} {reordered}");
}

#[test]
fn several_places_at_once_add_up() {
    if !able() {
        return;
    }
    for asked in [parameters(4_000), batches(4_000)] {
        let lab = lab("[[both]]\ndelay = '2ms'\n[[forward]]\nloss = { every = 150 }\n");
        // The low byte of the sequence, big endian, behind the UDP header, the cookie and five bytes.
        let rules = [("server", "input", "& 0x3f == 0x08"), ("client", "output", "& 0x7f == 0x10")];
        for (host, hook, which) in rules {
            let rule = format!(
                "nft 'add table inet t; add chain inet t c {{ type filter hook {hook} priority 0; }}; \
                 add rule inet t c udp length > 100 @th,136,8 {which} drop'"
            );
            if !on(&lab, host, &rule) {
                return;
            }
        }
        let wire = asked.wire;
        let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
        let end = run(&lab, asked);
        let left = left.finish();
        let reached: BTreeSet<u64> = reached.sequences();
        let result = result(&end, false);
        let sent: BTreeSet<u64> = (0..4_000).collect();
        let out: BTreeSet<u64> = left.iter().filter_map(|packet| packet.sequence).collect();
        let places = sequences(&result);
        assert_eq!(places[&Location::SenderStack], &sent - &out, "{:?}", reasons(&result));
        assert_eq!(places[&Location::Network], &out - &reached, "{:?}", reasons(&result));
        assert_eq!(places[&Location::Network], numbers(&left, |place| place % 150 == 0));
        // A rule sees the first packet of a batch alone, and takes the batch.
        let known = |sequence: &u64| sequence % 64 == 8;
        let filtered = &places[&Location::ReceiverFilter];
        assert!(filtered.is_subset(&reached));
        if wire {
            assert_eq!(*filtered, reached.iter().copied().filter(known).collect());
            assert_eq!(places[&Location::SenderStack], sent.iter().copied().filter(|n| n % 128 == 16).collect());
        }
        assert_eq!(places.len(), 3, "{:?}", reasons(&result));
        assert_eq!(result.sent_packets, 4_000);
    }
}

/// Control connection, proof of the data path and result succeed although every second or third packet is lost.
#[test]
fn a_test_starts_where_regular_packets_are_lost() {
    if !able() {
        return;
    }
    for every in [2, 3] {
        for direction in ["forward", "backward"] {
            let lab = lab(&format!("[[both]]\ndelay = '1ms'\n[[{direction}]]\nloss = {{ every = {every} }}\n"));
            let capture = Capture::leaving(&lab, if direction == "forward" { "client" } else { "server" });
            let end = run(&lab, parameters(400));
            let result = result(&end, false);
            if direction == "backward" {
                assert_eq!((result.sent_packets, result.lost_packets), (400, 0));
                continue;
            }
            let expected = numbers(&capture.finish(), |place| place % every == 0);
            assert!(expected.len() > 100, "{}", expected.len());
            assert_lost(&result, Location::Network, &expected);
        }
    }
}

#[test]
fn without_the_key_there_is_no_test() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let address = lab.host("server").unwrap().plan.ipv4.into();
    let (address, server) = serve(&lab, address, Some(key(1)));
    for (client_key, good) in [(None, false), (Some(key(2)), false), (Some(key(1)), true)] {
        let target = longhaul_peer::client::Target::at(address, client_key);
        let client = &lab.host("client").unwrap().namespace;
        let asked = UdpParameters { amount: Amount::Packets(100), pace: Pace::RateBps(4_000_000), ..parameters(1) };
        let end = client.enter(|| longhaul_peer::client::run(&target, asked, None, |_| {})).unwrap();
        assert_eq!(end.is_ok(), good, "{:?}", end.err());
    }
    // Its first test was the last client's.
    server.join().unwrap();
}

/// A burst may be longer than what one call sends.
#[test]
fn long_bursts_leave_whole() {
    if !able() {
        return;
    }
    for wire in [true, false] {
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        let capture = Capture::leaving(&lab, "client");
        let asked = UdpParameters {
            wire,
            burst_packets: 400,
            pace: Pace::RateBps(40_000_000),
            sockbuf_bytes: Some(4 << 20),
            ..parameters(2_000)
        };
        let end = run(&lab, asked);
        assert_eq!(capture.sequences(), (0..2_000).collect(), "wire: {wire}");
        let result = result(&end, false);
        assert_eq!((result.sent_packets, result.lost_packets), (2_000, 0), "wire: {wire}");
        assert_eq!(result.spacing.batch_packets.p50, 400, "wire: {wire}");
    }
}
