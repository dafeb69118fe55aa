//! Conversations made by hand, one rule each.

mod late;
mod memory;
/// Frames byte by byte, as the tests of `longhaul-captures` make them.
#[path = "../../captures/src/samples.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod samples;
mod stamps;
mod talk;

use longhaul_wire::probe::{Cookie, FIRST_RESERVED, Probe};
use proptest::prelude::*;
use talk::*;

use super::*;
use longhaul_captures::ledger::{DroppedAt, Gap};
use longhaul_captures::packet::{Options, Packet, Transport};

/// A segment a millisecond for 200 ms. One is lost before the capture; all of 99 ms are lost by it, and it says so.
#[test]
fn what_the_capture_lost_is_left_out() {
    let gap = Gap {
        place: DroppedAt::KernelRing,
        interface: Some(0),
        from_ns: 50 * MS + MS / 2,
        to_ns: 150 * MS - MS / 2,
        packets: 99,
    };
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in (0..200).filter(|n| *n != 5) {
        let at_ns = (20 + i64::from(n)) * MS;
        if at_ns < gap.from_ns || at_ns > gap.to_ns {
            talk.say(at_ns, true, ACK, seq(n), 1, MSS);
            talk.say(at_ns + 4 * MS / 10, false, ACK, 1, seq(if n < 5 { n + 1 } else { 5 }), 0);
        }
    }
    let run = |gaps: &[Gap]| {
        let mut flows = Flows::with_gaps(FlowOptions::default(), Vec::new(), Gaps::of(gaps));
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        let (mut all, totals) = flows.finish();
        (all.remove(0), totals)
    };
    let mut flows = Flows::with_gaps(FlowOptions::default(), Intervalled(0), Gaps::of(&[gap]));
    talk.flows.iter().for_each(|packet| flows.packet(packet));
    assert_eq!(flows.finish().0.0, 98, "99 packets and a gap between two of them");
    let (flow, totals) = run(&[gap]);
    assert_eq!((totals.gaps, totals.left_out_ns, flow.forward.left_out_ns), (1, 99 * MS, 99 * MS));
    assert_eq!(
        (forward(&flow).missing_bytes, forward(&flow).not_captured_bytes),
        (u64::from(MSS), 99 * u64::from(MSS))
    );
    assert_eq!(flow.forward.longest_silence_ns, 2 * MS);
    // 100 segments in 199 ms less 99.
    assert_eq!(flow.forward.payload_rate_bps, 8_000_000);
    assert_eq!(forward(&flow).rtt.unwrap().max_ns, 2 * MS, "of the handshake");
    let silent_ns = |flow: &FlowSummary| forward(flow).limits.map_or(0, |limits| limits.silent_ns);
    assert_eq!(silent_ns(&flow), 0);

    // Who does not know of the gap takes all that for the flow's own.
    let (flow, totals) = run(&[]);
    assert_eq!((totals.gaps, totals.left_out_ns, flow.forward.left_out_ns), (0, 0, 0));
    assert_eq!((forward(&flow).missing_bytes, forward(&flow).not_captured_bytes), (100 * u64::from(MSS), 0));
    assert_eq!(flow.forward.longest_silence_ns, 100 * MS);
}

/// Also the first row of a direction, of which nothing was known before its first data.
#[test]
fn each_millisecond_has_the_time_at_which_it_began() {
    #[derive(Default)]
    struct Times([Vec<i64>; 2]);
    impl Sink for Times {
        fn flow(&mut self, _: FlowSummary) {}
        fn millisecond(&mut self, _: u64, forward: bool, at_ns: i64, _: Millisecond) {
            self.0[usize::from(!forward)].push(at_ns);
        }
    }
    let start = 1_700_000_000_000 * MS;
    let mut talk = Talk::new();
    talk.handshake(start);
    for n in 0..3 {
        let at_ns = start + (20 + i64::from(n)) * MS;
        talk.say(at_ns + 1, true, ACK, seq(n), 1, MSS);
        talk.say(at_ns + 2, false, ACK, seq(n), seq(n + 1), MSS);
    }
    let mut flows = Flows::new(FlowOptions::default(), Times::default());
    talk.flows.iter().for_each(|packet| flows.packet(packet));
    let expected = [20, 21, 22].map(|ms| start + ms * MS);
    assert_eq!(flows.finish().0.0, [expected; 2]);
}

/// The first packet behind a gap is far beyond the last acknowledgment before it, which says nothing about what is in flight.
#[test]
fn what_is_in_flight_behind_a_gap_is_known_from_the_next_acknowledgment() {
    let gap = Gap { place: DroppedAt::KernelRing, interface: None, from_ns: 30 * MS, to_ns: 129 * MS, packets: 99 };
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in (0..10).chain(110..120) {
        talk.say((20 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
        talk.say((20 + i64::from(n)) * MS + 5, false, ACK, 1, seq(n + 1), 0);
    }
    for (gaps, most) in [(vec![gap], u64::from(MSS)), (vec![], 101 * u64::from(MSS))] {
        let mut flows = Flows::with_gaps(FlowOptions::default(), Vec::new(), Gaps::of(&gaps));
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        assert_eq!(forward(&flows.finish().0[0]).max_in_flight_bytes, Some(most));
    }
}

/// Of 40 segments 10, 11 and 25 are lost behind this point and retransmitted; in front of it they leave holes. Either way the sink
/// hears of runs of two and one, and of what lies between.
#[test]
fn losses_of_tcp_are_told_in_runs() {
    struct Heard(Vec<Loss>);
    impl Sink for Heard {
        fn flow(&mut self, _: FlowSummary) {}
        fn lost(&mut self, _: u64, forward: bool, loss: Loss) {
            if forward {
                self.0.push(loss);
            }
        }
    }
    for before in [true, false] {
        let lost = [10, 11, 25];
        let mut talk = Talk::new();
        talk.handshake(0);
        for n in 0..40 {
            let at_ns = (20 + 20 * i64::from(n)) * MS;
            if before || !lost.contains(&n) {
                talk.say(at_ns, true, ACK, seq(n), 1, MSS);
            }
            let acked = match n {
                10..15 => 10,
                25..30 => 25,
                _ => n + 1,
            };
            talk.say(at_ns + 5, false, ACK, 1, seq(acked), 0);
            for again in [(15, 10), (16, 11), (30, 25)].into_iter().filter(|(at, _)| *at == n) {
                talk.say(at_ns + 9, true, ACK, seq(again.1), 1, MSS);
            }
        }
        let mut flows = Flows::new(FlowOptions::default(), Heard(Vec::new()));
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        let heard: Vec<_> = flows.finish().0.0.iter().map(|loss| (loss.after_packets, loss.packets)).collect();
        assert_eq!(heard, [(10, 2), (13, 1), (14, 0)], "lost behind: {before}");
    }
}

/// A retransmission does not prove a loss before this point if the original fell into a gap.
#[test]
fn a_retransmission_of_what_was_not_captured() {
    for (packets, unseen) in [(1, 0), (0, 1)] {
        let gap = Gap { place: DroppedAt::Writer, interface: None, from_ns: 30 * MS, to_ns: 31 * MS, packets };
        let mut talk = Talk::new();
        talk.handshake(0);
        for n in [0, 2, 3, 4] {
            talk.say((29 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
            talk.say((29 + i64::from(n)) * MS + 5, false, ACK, 1, seq(1), 0);
        }
        talk.say(60 * MS, true, ACK, seq(1), 1, MSS);
        let mut flows = Flows::with_gaps(FlowOptions::default(), Vec::new(), Gaps::of(&[gap]));
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        let flow = &flows.finish().0[0];
        assert_eq!((forward(flow).retransmitted_packets, forward(flow).retransmissions_of_unseen), (1, unseen));
    }
}

#[test]
fn a_whole_connection() {
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in 0..10 {
        talk.say((20 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
        talk.say((22 + i64::from(n)) * MS, false, ACK, 1, seq(n + 1), 0);
    }
    talk.flows.sort_by_key(|packet| packet.at_ns);
    talk.say(40 * MS, true, FIN | ACK, seq(10), 1, 0);
    talk.say(42 * MS, false, FIN | ACK, 1, seq(10) + 1, 0);
    talk.say(50 * MS, true, ACK, seq(10) + 1, 2, 0);
    let flow = talk.one();
    let connection = flow.connection.unwrap();
    assert_eq!((connection.opened, connection.end), (true, End::Fin));
    assert_eq!((connection.handshake_rtt_ns, connection.handshake_server_ns), (Some(10 * MS), Some(2 * MS)));
    assert_eq!((flow.client.to_string(), flow.server.to_string()), ("10.0.0.1:1000".into(), "10.0.0.2:2000".into()));
    assert_eq!((flow.forward.packets, flow.forward.data_packets, flow.backward.packets), (14, 10, 12));
    assert_eq!((flow.forward.payload_bytes, flow.forward.unique_bytes), (10_000, 10_000));
    let tcp = forward(&flow);
    assert_eq!((tcp.retransmitted_packets, tcp.out_of_order_packets, tcp.missing_bytes), (0, 0, 0));
    assert_eq!(
        (tcp.max_in_flight_bytes, tcp.max_window_bytes, tcp.mss_bytes),
        (Some(2_000), Some(128_000), Some(1_000))
    );
    let rtt = tcp.rtt.unwrap();
    assert_eq!((rtt.min_ns, rtt.max_ns, rtt.samples), (2 * MS, 2 * MS, 12));
    assert_eq!(flow.forward.payload_rate_bps, 10_000 * 8 * 1000 / 9);
}

/// Segment 3 is lost behind the capture point; three duplicate acknowledgments bring it again.
#[test]
fn a_fast_retransmission() {
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in 0..8 {
        talk.say(20 * MS + i64::from(n) * 1_000, true, ACK, seq(n), 1, MSS);
    }
    for n in 1..=3 {
        talk.say(22 * MS + i64::from(n) * 1_000, false, ACK, 1, seq(n), 0);
    }
    for n in 4..8 {
        talk.say(22 * MS + i64::from(n) * 1_000, false, ACK, 1, seq(3), 0);
    }
    talk.say(30 * MS, true, ACK, seq(3), 1, MSS);
    talk.say(32 * MS, false, ACK, 1, seq(8), 0);
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((tcp.retransmitted_packets, tcp.fast_retransmissions, tcp.timeout_retransmissions), (1, 1, 0));
    assert_eq!((tcp.duplicate_acks, tcp.retransmitted_bytes, tcp.retransmissions_of_unseen), (4, 1_000, 0));
    assert_eq!((flow.forward.unique_bytes, flow.forward.payload_bytes), (8_000, 9_000));
    // Karn: the retransmission and the segments that waited for it are not timed; SYN and three segments are.
    assert_eq!(tcp.rtt.unwrap().max_ns, 2 * MS + 1_000);
}

/// The last segment is lost; only silence brings it again.
#[test]
fn a_timeout_retransmission() {
    let mut talk = Talk::new();
    talk.handshake(0);
    talk.say(20 * MS, true, ACK, seq(0), 1, MSS);
    talk.say(220 * MS, true, ACK, seq(0), 1, MSS);
    talk.say(222 * MS, false, ACK, 1, seq(1), 0);
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((tcp.retransmitted_packets, tcp.fast_retransmissions, tcp.timeout_retransmissions), (1, 0, 1));
}

/// Lost before the capture point: a hole, that is filled a round trip later after duplicate acknowledgments, or at once.
/// The rule holds from microseconds to seconds.
#[test]
fn what_fills_a_hole_is_told_by_the_flows_own_round_trip() {
    for scale in [10, 1_000, 100_000, 10_000_000] {
        for (late, expected) in [(true, (1, 0)), (false, (0, 1))] {
            let mut talk = Talk::new();
            talk.handshake(0);
            for n in [0, 1, 3, 4, 5] {
                talk.say(20 * MS + i64::from(n) * 1_000, true, ACK, seq(n), 1, MSS);
            }
            if !late {
                talk.say(20 * MS + 5_500, true, ACK, seq(2), 1, MSS);
            }
            talk.say(22 * MS + 1_000, false, ACK, 1, seq(2), 0);
            for n in 3..6 {
                talk.say(22 * MS + i64::from(n) * 1_000, false, ACK, 1, seq(2), 0);
            }
            if late {
                talk.say(30 * MS + 3_000, true, ACK, seq(2), 1, MSS);
            }
            talk.say(33 * MS, false, ACK, 1, seq(6), 0);
            // Round trips of 1 µs, 100 µs, 10 ms and 1 s.
            let flow = talk.run_with(|packet| packet.at_ns = packet.at_ns / 100_000 * scale).remove(0);
            let tcp = forward(&flow);
            assert_eq!((tcp.retransmitted_packets, tcp.out_of_order_packets), expected, "{scale} {late}");
            assert_eq!((tcp.retransmissions_of_unseen, tcp.missing_bytes), (expected.0, 0));
        }
    }
}

/// Near the receiver its duplicate acknowledgments pass at once, while whoever could send again is far: what comes within three quarters of a round
/// trip of the whole path was reordered, whatever was acknowledged since.
#[test]
fn near_the_receiver_the_whole_path_counts() {
    for scale in [10, 1_000, 100_000, 10_000_000] {
        for (late_ms, expected) in [(7, (0, 1)), (8, (1, 0)), (11, (1, 0))] {
            let mut talk = Talk::new();
            talk.handshake(0);
            for n in [0, 1, 3, 4, 5] {
                talk.say(20 * MS + i64::from(n) * 1_000, true, ACK, seq(n), 1, MSS);
            }
            for n in 2..6 {
                talk.say(22 * MS + i64::from(n) * 1_000, false, ACK, 1, seq(2), 0);
            }
            talk.say(20 * MS + late_ms * MS, true, ACK, seq(2), 1, MSS);
            let flow = talk.run_with(|packet| packet.at_ns = packet.at_ns / 100_000 * scale).remove(0);
            let tcp = forward(&flow);
            assert_eq!((tcp.retransmitted_packets, tcp.out_of_order_packets), expected, "{scale} {late_ms}");
        }
    }
}

/// From the connection's first packet on each second packet is reordered with the next: identifications still count as incremented, and
/// retransmissions are recognised, even reordered ones.
#[test]
fn identification_survives_disorder() {
    let mut talk = Talk::new();
    talk.ids = true;
    talk.handshake(0);
    for n in 0..40 {
        talk.say((20 + i64::from(n)) * 1_000, true, ACK, seq(n), 1, MSS);
    }
    // The 30th again, and it comes behind the one that was sent after it.
    talk.say(70_000, true, ACK, seq(30), 1, MSS);
    talk.say(60_000, true, ACK, seq(40), 1, MSS);
    let data = talk.flows.len() - 42;
    for pair in talk.flows[data..data + 40].chunks_mut(2) {
        pair.swap(0, 1);
        let first_ns = pair[1].at_ns;
        (pair[1].at_ns, pair[0].at_ns) = (pair[0].at_ns, first_ns);
    }
    talk.flows.sort_by_key(|packet| packet.at_ns);
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((tcp.out_of_order_packets, tcp.retransmitted_packets, tcp.duplicate_packets), (20, 1, 0));
}

/// Datagrams in fragments, byte by byte: under two tags, with IPv6's extension headers, in any order, and one that never becomes whole.
#[test]
fn fragments_are_put_together_under_tags_and_extension_headers() {
    use longhaul_captures::{Record, dissect};
    let tags = [(0x88a8, 7), (0x8100, 8)];
    let datagram = samples::udp(&[5; 1_000]);
    let v4 = |id: u16, part: std::ops::Range<usize>, more: bool| {
        let field = (part.start / 8) as u16 | if more { 0x2000 } else { 0 };
        samples::ethernet(&tags, 0x0800, &samples::ipv4(17, id, field, &[], &datagram[part]))
    };
    let v6 = |id: u8, part: std::ops::Range<usize>, more: bool| {
        let field = ((part.start as u16) | u16::from(more)).to_be_bytes();
        let chain = [&[17, 0, field[0], field[1], 0, 0, 0, id][..], &datagram[part]].concat();
        samples::ethernet(&tags, 0x86dd, &samples::ipv6(44, &chain))
    };
    // Behind the fragment header, in the first fragment: destination options.
    let optioned = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &datagram].concat();
    let with_options = |part: std::ops::Range<usize>, more: bool| {
        let field = ((part.start as u16) | u16::from(more)).to_be_bytes();
        let chain = [&[60, 0, field[0], field[1], 0, 0, 0, 77][..], &optioned[part]].concat();
        samples::ethernet(&[], 0x86dd, &samples::ipv6(44, &chain))
    };
    let frames = [
        v4(1, 0..400, true),
        v4(1, 400..800, true),
        v4(1, 800..1_008, false),
        v4(2, 800..1_008, false),
        v4(2, 400..800, true),
        v4(2, 0..400, true),
        v4(3, 0..400, true),
        v6(1, 504..1_008, false),
        v6(1, 0..504, true),
        with_options(0..512, true),
        with_options(512..1_016, false),
    ];
    let mut flows = Flows::new(FlowOptions::default(), Vec::new());
    for (number, frame) in (0..).zip(&frames) {
        // Snippets alone: what was clipped away counts by the headers.
        let snippet = &frame[..frame.len().min(96)];
        let record = Record { at_ns: number * 1_000, frame_len: frame.len() as u32, snippet, ..Record::default() };
        flows.packet(&dissect(&record));
    }
    let (found, totals) = flows.finish();
    assert_eq!((totals.fragments, totals.incomplete_datagrams, totals.other_packets), (11, 1, 0));
    let told: Vec<_> =
        found.iter().map(|flow| (flow.client.is_ipv6(), flow.forward.packets, flow.forward.payload_bytes)).collect();
    assert_eq!(told, [(false, 2, 2_000), (true, 2, 2_000)]);
}

/// Against the time rules: a segment within a round trip is a retransmission by its identification or its time stamp, a later
/// one was reordered.
#[test]
fn identification_and_time_stamps_overrule_time() {
    for by_id in [true, false] {
        for reordered in [true, false] {
            let mut talk = Talk::new();
            (talk.ids, talk.stamps) = (by_id, !by_id);
            talk.handshake(0);
            for n in 0..20 {
                talk.say((20 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
            }
            talk.flows.sort_by_key(|packet| packet.at_ns);
            let index = talk.flows.len() - 4;
            let mut late = talk.flows.remove(index);
            if !reordered {
                late.ip.as_mut().unwrap().id = Some(123);
                options(&mut late, |own| own.timestamps = own.timestamps.map(|(val, ecr)| (val + 9, ecr)));
            }
            late.at_ns = if reordered { 200 * MS } else { 39 * MS + 1_000 };
            talk.flows.push(late);
            if reordered {
                for n in 0..4 {
                    let mut ack = talk.clone();
                    let ack = ack.say(60 * MS + n, false, ACK, 1, seq(16), 0);
                    let at = talk.flows.len() - 1;
                    talk.flows.insert(at, *ack);
                }
            }
            let flow = talk.one();
            let tcp = forward(&flow);
            let found = (tcp.retransmitted_packets, tcp.out_of_order_packets);
            assert_eq!(found, if reordered { (0, 1) } else { (1, 0) }, "{by_id} {reordered}");
        }
    }
}

/// Stamps alike: by a clock whose tick is shorter than a round trip (10 ms) it was sent before any news of a loss, however late it
/// comes; by a slow clock that says nothing.
#[test]
fn stamps_of_one_tick_are_of_one_round_trip() {
    for (ticks, expected) in [(1, (0, 1)), (50, (1, 0))] {
        let mut talk = Talk::new();
        talk.stamps = true;
        talk.handshake(0);
        for n in (0..30).filter(|n| *n != 21) {
            talk.say((1_000 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
        }
        for n in 0..4 {
            talk.say(1_040 * MS + n, false, ACK, 1, seq(21), 0);
        }
        let late = talk.say(1_060 * MS, true, ACK, seq(21), 1, MSS);
        options(late, |own| own.timestamps = Some((1_022, 0)));
        let slower = |packet: &mut Packet| {
            options(packet, |own| own.timestamps = own.timestamps.map(|(val, ecr)| (val / ticks, ecr)))
        };
        let flow = talk.run_with(slower).remove(0);
        let tcp = forward(&flow);
        assert_eq!((tcp.retransmitted_packets, tcp.out_of_order_packets), expected, "{ticks} ms a tick");
    }
}

#[test]
fn a_copy_is_no_retransmission() {
    let mut talk = Talk::new();
    talk.ids = true;
    talk.handshake(0);
    for n in 0..20 {
        talk.say((20 + i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
    }
    let mut copy = talk.flows[20];
    copy.at_ns = 40 * MS;
    talk.flows.push(copy);
    let flow = talk.one();
    assert_eq!((forward(&flow).duplicate_packets, forward(&flow).retransmitted_packets), (1, 0));
}

/// RFC 3522: the acknowledgment of a retransmission echoes the original's stamp. RFC 2883: a block below it says the same.
#[test]
fn needless_retransmissions() {
    let mut talk = Talk::new();
    talk.stamps = true;
    talk.handshake(0);
    talk.say(20 * MS, true, ACK, seq(0), 1, MSS);
    talk.say(220 * MS, true, ACK, seq(0), 1, MSS);
    options(talk.say(230 * MS, false, ACK, 1, seq(1), 0), |own| own.timestamps = Some((230, 20)));
    options(talk.say(232 * MS, false, ACK, 1, seq(1), 0), |own| {
        own.timestamps = Some((232, 220));
        (own.sack[0], own.sack_blocks) = ((seq(0), seq(1)), 1);
    });
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((tcp.spurious_by_timestamp, tcp.dsack_blocks, tcp.spurious_by_dsack, tcp.sack_acks), (1, 1, 1, 1));
}

#[test]
fn windows_that_close_and_fill() {
    let mut talk = Talk::new();
    talk.handshake(0);
    talk.say(11 * MS, false, ACK, 1, 1, 0);
    for n in 0..128 {
        talk.say(20 * MS + i64::from(n), true, ACK, seq(n), 1, MSS);
    }
    let window = |packet: &mut Packet, bytes| {
        let Transport::Tcp(tcp) = &mut packet.transport else { panic!() };
        tcp.window = bytes;
    };
    window(talk.say(30 * MS, false, ACK, 1, seq(128), 0), 0);
    talk.say(40 * MS, true, ACK, seq(128) - 1, 1, 0);
    window(talk.say(50 * MS, false, ACK, 1, seq(128), 0), 1000);
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((tcp.window_full, tcp.zero_window_acks, tcp.zero_window_ns, tcp.keep_alives), (1, 1, 20 * MS, 1));
    assert_eq!((tcp.min_window_bytes, tcp.max_window_bytes), (Some(0), Some(128_000)));
}

#[test]
fn ports_that_are_used_again_are_another_connection() {
    let mut talk = Talk::new();
    talk.handshake(0);
    talk.say(20 * MS, true, ACK, seq(0), 1, MSS);
    talk.say(30 * MS, false, RST | ACK, 1, seq(1), 0);
    let second = talk.flows.clone();
    talk.flows.extend(second.into_iter().map(|mut packet| {
        packet.at_ns += 100 * MS;
        let Transport::Tcp(tcp) = &mut packet.transport else { panic!() };
        let (own, other) = if tcp.src_port == 1000 { (7_000_000, 900) } else { (900, 7_000_000) };
        tcp.seq = tcp.seq.wrapping_add(own);
        tcp.ack = tcp.ack.wrapping_add(other);
        packet
    }));
    let flows = talk.run();
    assert_eq!(flows.len(), 2);
    for flow in &flows {
        assert_eq!((flow.forward.unique_bytes, flow.connection.unwrap().end), (1_000, End::Reset));
        assert_eq!((forward(flow).missing_bytes, forward(flow).retransmitted_packets), (0, 0));
    }
    // The same SYN again is no other connection.
    let mut talk = Talk::new();
    talk.say(0, true, SYN, 0, 0, 0);
    talk.say(1_000 * MS, true, SYN, 0, 0, 0);
    assert_eq!(forward(&talk.one()).retransmitted_packets, 1);
}

/// Numbers wrap in the middle, the capture begins after the handshake, and one direction is missing.
#[test]
fn one_direction_in_mid_flow_over_the_wrap() {
    let mut talk = Talk::new();
    for n in 0..100_u32 {
        let seq = (u32::MAX - 50_000).wrapping_add(n * MSS);
        talk.say(i64::from(n) * MS, true, ACK, seq, 1, MSS);
        if n == 60 {
            talk.say(i64::from(n) * MS + 5, true, ACK, seq - 5 * MSS, 1, MSS);
        }
    }
    let flow = talk.one();
    let tcp = forward(&flow);
    assert_eq!((flow.forward.unique_bytes, tcp.retransmitted_packets, tcp.missing_bytes), (100_000, 1, 0));
    assert_eq!((tcp.rtt, tcp.limits, tcp.fast_retransmissions), (None, None, 0));
    assert!(!flow.connection.unwrap().opened);
}

#[test]
fn acknowledgments_alone_tell_how_much_passed_elsewhere() {
    let mut talk = Talk::new();
    for n in 0..100_u32 {
        talk.say(i64::from(n) * MS, false, ACK, 1, seq(n), 0);
    }
    // Who was seen first counts as client.
    assert_eq!(talk.one().backward.tcp.unwrap().missing_bytes, 99_000);
}

#[test]
fn a_super_packet_is_one_packet_and_many_on_the_wire() {
    let mut talk = Talk::new();
    talk.handshake(0);
    let big = talk.say(20 * MS, true, ACK, seq(0), 1, 45 * MSS);
    (big.gso_segs, big.gso_size) = (45, MSS as u16);
    talk.say(21 * MS, true, ACK, seq(45), 1, 10 * MSS);
    let flow = talk.one();
    assert_eq!((flow.forward.packets, flow.forward.wire_packets, flow.forward.data_packets), (4, 57, 2));
}

#[test]
fn fragments_make_one_datagram() {
    let mut talk = Talk::new();
    let mut whole = *talk.say(0, true, ACK, 1, 1, 2_980);
    talk.flows.clear();
    let Transport::Tcp(tcp) = &mut whole.transport else { panic!() };
    tcp.payload_len = 1_460;
    let ip = whole.ip.as_mut().unwrap();
    (ip.len, ip.more_fragments, ip.id) = (1_500, true, Some(9));
    let mut last = whole;
    last.transport = Transport::Other;
    let ip = last.ip.as_mut().unwrap();
    (ip.len, ip.more_fragments, ip.fragment_offset) = (1_540, false, 1_480);
    for order in [[whole, last], [last, whole]] {
        talk.flows = order.to_vec();
        assert_eq!(talk.one().forward.payload_bytes, 2_980);
    }
}

/// The probe header has no mark: the same bytes again and again are none, and each twice may come of a path that doubles.
#[test]
fn only_numbers_that_go_on_are_probes() {
    for (numbers, copies, is_probes) in [(100, 1, true), (100, 2, true), (1, 100, false), (10, 10, false)] {
        let mut talk = Talk::new();
        for nth in 0..numbers * copies {
            let packet = talk.say(nth as i64 * MS, true, ACK, 1, 1, 100);
            let probe = Some(Probe { cookie: Cookie(7), sequence: nth / copies, sent_ns: 0 });
            packet.transport = Transport::Udp { src_port: 1, dst_port: 2, payload_len: 100, probe };
            packet.ip.as_mut().unwrap().protocol = 17;
        }
        assert_eq!(talk.one().forward.probe.is_some(), is_probes, "{numbers} numbers, {copies} times each");
    }
}

/// A test of longhaul's from its start: hello and response, repeated, then the packets. The proof alone is no test.
#[test]
fn the_proof_of_the_data_path_does_not_hide_a_test() {
    for (proofs, packets) in [(7, 100), (7, 0)] {
        let mut talk = Talk::new();
        let sequences = (0..proofs).map(|n| FIRST_RESERVED + 2 * (n % 2)).chain((0..packets).filter(|n| *n != 50));
        for (at_ns, sequence) in (0..).map(|n| n * MS).zip(sequences) {
            let packet = talk.say(at_ns, true, ACK, 1, 1, 100);
            let probe = Some(Probe { cookie: Cookie(7), sequence, sent_ns: 9 });
            packet.transport = Transport::Udp { src_port: 1, dst_port: 2, payload_len: 100, probe };
        }
        let found =
            talk.one().forward.probe.map(|probe| (probe.first_sequence, probe.unique_packets, probe.lost_packets));
        assert_eq!(found, (packets > 0).then_some((0, 99, 1)));
    }
}

/// RFC 7323 §2.3: a scale above 14 is used as 14, and shown as it was offered. Without the options of one of the SYNs windows are not known.
#[test]
fn a_window_scale_beyond_the_limit() {
    for clipped in [None, Some(0), Some(1)] {
        let mut talk = Talk::new();
        talk.handshake(0);
        options(&mut talk.flows[1], |own| own.window_scale = Some(255));
        if let Some(clipped) = clipped {
            options(&mut talk.flows[clipped], |own| *own = Options { clipped: true, ..Options::default() });
        }
        talk.say(20 * MS, true, ACK, seq(0), 1, MSS);
        talk.say(22 * MS, false, ACK, 1, seq(1), 0);
        let tcp = *talk.one().forward.tcp.unwrap();
        let known = (Some(255), Some(1000 << 14));
        assert_eq!((tcp.window_scale, tcp.max_window_bytes), if clipped.is_none() { known } else { (None, None) });
    }
}

proptest! {
    /// Any packets, in any order and number: totals are consistent and nothing panics.
    #[test]
    fn totals_are_consistent(packets in prop::collection::vec(
        (0_i64..50, any::<bool>(), 0_u16..32, 0_u32..20, 0_u32..20, 0_u32..4, any::<bool>(), 0_u32..3), 0..200), offset: u32) {
        let mut talk = Talk::new();
        let mut at_ns = 0;
        for (later, forward, flags, seq, ack, payload, stamps, sack) in packets {
            at_ns += later * 100_000;
            talk.stamps = stamps;
            let packet = talk.say(at_ns, forward, flags, offset.wrapping_add(seq * 500), offset.wrapping_add(ack * 500), payload * 500);
            options(packet, |own| {
                own.sack_blocks = sack as u8;
                own.sack = [(offset.wrapping_add(seq * 700), offset.wrapping_add(ack * 900)); 4];
            });
        }
        let flows = talk.run();
        let packets: u64 = flows.iter().map(|flow| flow.forward.packets + flow.backward.packets).sum();
        prop_assert_eq!(packets, talk.flows.len() as u64);
        for direction in flows.iter().flat_map(|flow| [&flow.forward, &flow.backward]) {
            let tcp = direction.tcp.as_ref().unwrap();
            prop_assert!(direction.unique_bytes <= direction.payload_bytes);
            prop_assert!(direction.wire_packets >= direction.packets && direction.data_packets <= direction.packets);
            prop_assert!(tcp.fast_retransmissions + tcp.timeout_retransmissions <= tcp.retransmitted_packets);
            prop_assert!(tcp.retransmitted_packets + tcp.out_of_order_packets + tcp.duplicate_packets <= direction.packets);
            prop_assert!(direction.payload_bytes - direction.unique_bytes >= tcp.retransmitted_bytes);
        }
    }
}
