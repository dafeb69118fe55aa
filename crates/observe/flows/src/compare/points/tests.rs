use std::net::IpAddr;

use longhaul_wire::probe::{Cookie, Probe};

use super::*;
use crate::compare::bounds::Bounds;
use crate::compare::plan::{CompareError, FirstLook, MatchOptions, Sampler, recognition};
use longhaul_captures::ledger::{DroppedAt, Gap};
use longhaul_captures::packet::{Ip, Options, Tcp, Transport};

const MS: i64 = 1_000_000;

/// From host 1 to host 2 or back.
fn packet(at_ns: i64, forward: bool, id: u32, payload: u32, transport: Transport) -> Packet {
    let hosts = if forward { [1, 2] } else { [2, 1] };
    let [src, dst] = hosts.map(|host| IpAddr::from([10, 0, 0, host]));
    let (len, ttl, traffic_class) = (40 + payload, 64, 0);
    let (fragment_offset, more_fragments) = (0, false);
    let ip = Ip { src, dst, protocol: 6, ttl, traffic_class, id: Some(id), len, fragment_offset, more_fragments };
    Packet {
        at_ns,
        frame_len: 54 + payload,
        frame_cap_len: 54,
        eth_type: 0x0800,
        ip: Some(ip),
        transport,
        ..Packet::default()
    }
}

fn tcp(at_ns: i64, forward: bool, id: u32, seq: u32, ack: u32, payload_len: u32) -> Packet {
    let (src_port, dst_port) = if forward { (1000, 2000) } else { (2000, 1000) };
    let options = Options::default();
    let header = Tcp { src_port, dst_port, seq, ack, flags: 16, window: 9, payload_len, options };
    packet(at_ns, forward, id, payload_len, Transport::Tcp(header))
}

fn probe(at_ns: i64, sequence: u64) -> Packet {
    let probe = Some(Probe { cookie: Cookie(1), sequence, sent_ns: 0 });
    packet(at_ns, true, 0, 100, Transport::Udp { src_port: 1, dst_port: 2, payload_len: 100, probe })
}

/// All three readings; also the packets that reached, and the most that were held.
fn compare_in(
    a: &[Packet],
    b: &[Packet],
    options: MatchOptions,
    most_samples: usize,
    gaps: [Gaps; 2],
) -> Result<(Compared, Vec<Reached>, usize), CompareError> {
    compare_within(Bounds::for_bytes([0; 2]), a, b, options, most_samples, gaps)
}

fn compare_within(
    bounds: Bounds,
    a: &[Packet],
    b: &[Packet],
    options: MatchOptions,
    most_samples: usize,
    gaps: [Gaps; 2],
) -> Result<(Compared, Vec<Reached>, usize), CompareError> {
    let looks = [a, b].map(|packets| {
        let mut look = FirstLook::new(bounds);
        packets.iter().for_each(|packet| look.packet(packet));
        look
    });
    let known = recognition(looks);
    let mut samplers = Sampler::of_both(&known).map(|sampler| sampler.keeping(most_samples));
    for (packets, sampler) in [a, b].into_iter().zip(&mut samplers) {
        packets.iter().for_each(|packet| sampler.packet(packet));
    }
    let plan = Plan::of(samplers, options)?;
    let (mut reached, mut most_held) = (Vec::new(), 0);
    let mut matching = Matching::new(plan, &known, gaps, |one: &Reached| reached.push(*one));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        match (a.peek(), b.peek()) {
            (Some(first), Some(second)) if matching.b_is_next(first.at_ns, second.at_ns) => {
                matching.b(b.next().unwrap())
            }
            (Some(_), _) => matching.a(a.next().unwrap()),
            (None, Some(_)) => matching.b(b.next().unwrap()),
            (None, None) => break,
        }
        most_held = most_held.max(matching.held());
    }
    let compared = matching.finish();
    Ok((compared, reached, most_held))
}

fn compare(
    a: impl IntoIterator<Item = Packet>,
    b: impl IntoIterator<Item = Packet>,
    same_clock: bool,
) -> Result<(Compared, Vec<Reached>), CompareError> {
    let [a, b]: [Vec<Packet>; 2] = [a.into_iter().collect(), b.into_iter().collect()];
    let (compared, reached, _) = compare_in(&a, &b, MatchOptions { same_clock }, usize::MAX, Default::default())?;
    Ok((compared, reached))
}

/// Data there in 10 ms and acknowledgments back in 20 ms; B's clock is a second ahead. The offset is right to half of the round trip,
/// and delays of both directions together are the round trip, whatever the clocks.
#[test]
fn clocks_apart_are_laid_over_each_other() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..200_u32 {
        let at_ns = i64::from(n) * MS;
        a.push(tcp(at_ns, true, n + 1, n * 100, 1, 100));
        b.push(tcp(at_ns + 1_010 * MS, true, n + 1, n * 100, 1, 100));
        b.push(tcp(at_ns + 1_010 * MS + 1, false, n + 500, 1, n * 100 + 100, 0));
        a.push(tcp(at_ns + 30 * MS + 1, false, n + 500, 1, n * 100 + 100, 0));
    }
    a.sort_by_key(|packet| packet.at_ns);
    let compared = compare(a, b, false).unwrap().0;
    let clock = compared.clock;
    assert!(
        (clock.offset_ns - 995e6).abs() < 10.0 && (clock.offset_error_ns.unwrap() - 15e6).abs() < 10.0,
        "{clock:?}"
    );
    assert!(clock.drift_ppb.abs() < 1.0);
    let [forward, backward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.direction, backward.direction), (PathDirection::AToB, PathDirection::BToA));
    let sum = forward.delay.unwrap().p50_ns + backward.delay.unwrap().p50_ns;
    assert!((sum - 30e6).abs() < 10.0, "{sum}");
    assert_eq!((forward.lost_packets, backward.lost_packets, forward.reached_packets), (0, 0, 200));
}

/// Loss by name, order, and what never was at the first point.
#[test]
fn probes_that_were_lost_are_named() {
    let a = (0..100).map(|n| probe(n * MS, n as u64));
    let order = (0..100).filter(|n| ![10, 11, 12, 50].contains(n)).map(|n| {
        if n == 20 {
            21
        } else if n == 21 {
            20
        } else {
            n
        }
    });
    let b = order.zip((0..).map(|n| 5 * MS + n * MS)).map(|(n, at_ns)| probe(at_ns, n));
    let compared = compare(a, b, true).unwrap().0;
    let [forward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.sent_packets, forward.lost_packets, forward.reordered_packets), (100, 4, 1));
    let runs: Vec<_> = forward.lost.iter().map(|run| (run.first_sequence, run.last_sequence, run.packets)).collect();
    assert_eq!(runs, [(10, 12, 3), (50, 50, 1)]);
}

/// A super-packet at A, its segments at B without the third, which is retransmitted.
#[test]
fn a_super_packet_matches_its_segments() {
    for by_gso_size in [true, false] {
        let mut big = tcp(0, true, 7, 5_000, 1, 4_500);
        if by_gso_size {
            (big.gso_size, big.gso_segs) = (1_000, 5);
        }
        let a = [big, tcp(50 * MS, true, 12, 7_000, 1, 1_000), tcp(60 * MS, true, 13, 9_500, 1, 1_000)];
        let segment =
            |n: u32| tcp(MS * 5 + i64::from(n), true, 7 + n, 5_000 + n * 1_000, 1, 1_000.min(4_500 - n * 1_000));
        let b = [0, 1, 3, 4]
            .map(segment)
            .into_iter()
            .chain([tcp(55 * MS, true, 12, 7_000, 1, 1_000), tcp(65 * MS, true, 13, 9_500, 1, 1_000)]);
        let compared = compare(a, b, true).unwrap().0;
        let [forward] = compared.directions.as_slice() else { panic!() };
        assert_eq!((forward.sent_packets, forward.reached_packets, forward.lost_packets), (7, 6, 1), "{by_gso_size}");
        assert_eq!((forward.lost[0].first_sequence, forward.lost[0].payload_bytes), (7_000, 1_000));
        assert!((forward.delay.unwrap().max_ns - 5.0 * MS as f64).abs() < 10.0);
    }
}

/// A router that writes IP identifications anew: the rest still tells.
#[test]
fn new_identifications_do_not_hinder() {
    let a = (0..50).map(|n| tcp(i64::from(n) * MS, true, n + 1, n * 100, 1, 100));
    let b = (0..50).map(|n| tcp(i64::from(n) * MS + 9, true, n + 9_000, n * 100, 1, 100));
    let (compared, reached) = compare(a, b, true).unwrap();
    assert_eq!((compared.by_identification, reached.len()), (false, 50));
}

#[test]
fn what_has_nothing_in_common_is_said() {
    let found = compare([probe(0, 1)], [probe(0, 2)], false);
    assert_eq!(found.err(), Some(CompareError::NothingInCommon));
}

/// 100 s of a packet each millisecond and 10 ms of delay, one in a hundred lost, with B's clock an hour ahead and 50 µs a second fast: what is
/// held are the packets of the window, however long the capture; a sample of 500 does for the clocks, and each lost packet is named.
#[test]
fn memory_follows_the_window() {
    let there = |n: i64| 3_600_000 * MS + n * MS + n * 50 + 10 * MS;
    let back = |n: i64| there(n) + 10;
    let a_to_b = (0..100_000_u32).map(|n| tcp(i64::from(n) * MS, true, n % 65_536, n * 100, 1, 100));
    let acks = (0..100_000_u32).map(|n| tcp(i64::from(n) * MS + 15 * MS, false, n % 65_536, 1, n * 100 + 100, 0));
    let mut a: Vec<Packet> = a_to_b.clone().chain(acks.clone()).collect();
    a.sort_by_key(|packet| packet.at_ns);
    let at = |packet: Packet, at_ns: i64| Packet { at_ns, ..packet };
    let mut b: Vec<Packet> =
        (0..).zip(a_to_b).filter(|(n, _)| n % 100 != 7).map(|(n, packet)| at(packet, there(n))).collect();
    b.extend((0..).zip(acks).map(|(n, packet)| at(packet, back(n))));
    b.sort_by_key(|packet| packet.at_ns);
    let (compared, reached, most_held) = compare_in(&a, &b, MatchOptions::default(), 500, Default::default()).unwrap();
    let [forward, backward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.lost_packets, backward.lost_packets, forward.unknown_packets), (1_000, 0, 0));
    let named =
        forward.lost.iter().zip(0..).all(|(run, n)| run.first_sequence == (n * 100 + 7) * 100 && run.packets == 1);
    assert!(named && forward.lost.len() == 1_000 && reached.len() == 199_000, "{:?}", forward.lost);
    assert!((compared.clock.drift_ppb - 50_000.0).abs() < 10.0, "{:?}", compared.clock);
    let window_ms = compared.window_ns / MS;
    assert!((100..250).contains(&window_ms) && most_held < 3 * window_ms as usize, "{window_ms} {most_held}");
    assert_eq!(compared.given_up_packets, 0);
}

/// Identifications that came round three times while nothing else tells packets apart: those within the window are the same.
#[test]
fn names_that_come_again_are_told_apart_by_time() {
    let datagram = |n: i64, at_ns: i64| {
        let header = Transport::Udp { src_port: 1, dst_port: 2, payload_len: 100, probe: None };
        packet(at_ns, true, (n % 60_000) as u32 + 1, 100, header)
    };
    let a = (0..200_000).map(|n| datagram(n, n * 100_000));
    let b = (0..200_000).filter(|n| n % 1_000 != 5).map(|n| datagram(n, n * 100_000 + 10 * MS));
    let (compared, _) = compare(a, b, true).unwrap();
    let [forward] = compared.directions.as_slice() else { panic!() };
    let delay = forward.delay.unwrap();
    assert_eq!((forward.lost_packets, forward.reordered_packets, forward.unknown_packets), (200, 0, 0));
    assert!(delay.max_ns == delay.min_ns && delay.min_ns == 10.0 * MS as f64, "{delay:?}");
}

/// A packet each millisecond, 10 ms there. B loses what comes from 400 to 500 ms and does not record it, A what passes from 600 to 650 ms.
/// What is missing there is not lost, and what is lost elsewhere still is, by name. Nothing is drawn across the gaps.
#[test]
fn what_a_capture_lost_is_not_lost_on_the_path() {
    let gap = |from_ms: i64, to_ms: i64| {
        let (from_ns, to_ns) = (from_ms * MS, to_ms * MS);
        Gaps::of(&[Gap { place: DroppedAt::KernelRing, interface: None, from_ns, to_ns, packets: 1 }])
    };
    for offset_ms in [0, 5_000] {
        let data = |n: i64, at_ns: i64| tcp(at_ns, true, n as u32 + 1, n as u32 * 100, 1, 100);
        let ack = |n: i64, at_ns: i64| tcp(at_ns, false, n as u32 + 9_000, 1, n as u32 * 100 + 100, 0);
        let lost = [100, 101, 380, 520, 700, 999];
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for n in 0..1_050 {
            let (sent, came) = (n * MS, n * MS + 10 * MS + n % 7 * 1_000);
            let captured = |at_ns: i64, from: i64, to: i64| !(from * MS..to * MS).contains(&at_ns);
            if captured(sent, 600, 650) {
                a.push(data(n, sent));
            }
            if !lost.contains(&n) {
                if captured(came, 400, 500) {
                    b.push(data(n, came + offset_ms * MS));
                    b.push(ack(n, came + offset_ms * MS));
                }
                if captured(came + 10 * MS, 600, 650) {
                    a.push(ack(n, came + 10 * MS));
                }
            }
        }
        a.sort_by_key(|packet| packet.at_ns);
        let gaps = [gap(600, 650), gap(400 + offset_ms, 500 + offset_ms)];
        let options = MatchOptions { same_clock: offset_ms == 0 };
        let (compared, reached, _) = compare_in(&a, &b, options, usize::MAX, gaps).unwrap();
        let [forward, backward] = compared.directions.as_slice() else { panic!() };
        let named: Vec<u64> = forward.lost.iter().map(|run| run.first_sequence / 100).collect();
        assert_eq!(named, [100, 380, 520, 700, 999], "{:?}", forward.lost);
        assert_eq!((forward.lost_packets, forward.unknown_packets, backward.lost_packets), (6, 0, 0));
        let not = forward.not_observable;
        assert_eq!((not.at_second_packets, not.at_first_packets, not.outside_packets), (100, 50, 0), "{not:?}");
        assert_eq!((backward.unknown_packets, backward.not_observable.at_second_packets), (0, 50), "{backward:?}");
        assert_eq!((compared.gaps, forward.loss_runs, forward.longest_loss_run), ([(1, 50 * MS), (1, 100 * MS)], 5, 2));
        let cut: Vec<u64> =
            reached.iter().filter(|row| row.path == 0 && row.after_gap).map(|row| row.sequence / 100).collect();
        assert_eq!(cut, [490, 650]);
        // 3 ms at most, over the two that were lost in a row.
        let longest = forward.intervals.each_ref().map(|counts| counts.0.iter().rposition(|count| *count > 0));
        assert!(longest.iter().all(|bin| Intervals::lower_ns(bin.unwrap()) < 4e6), "{longest:?}");
    }
}

/// Identifications come round through 0 in the first packet of a super-packet, and within one.
#[test]
fn a_super_packet_that_begins_with_identification_0_matches_its_segments() {
    let big = |n: u32, id: u32| {
        let mut big = tcp(i64::from(n) * MS, true, id, n * 4_000, 1, 4_000);
        (big.gso_size, big.gso_segs) = (1_000, 4);
        big
    };
    let ids = [65_528, 65_532, 0, 4, 8];
    let a = (0..5).zip(ids).map(|(n, id)| big(n, id));
    let b = (0..5_u32).zip(ids).flat_map(|(n, id)| {
        (0..4).map(move |nth| {
            tcp(i64::from(n) * MS + 5 * MS, true, (id + nth) & 0xffff, n * 4_000 + nth * 1_000, 1, 1_000)
        })
    });
    let compared = compare(a, b, true).unwrap().0;
    let [forward] = compared.directions.as_slice() else { panic!() };
    assert!(compared.by_identification);
    assert_eq!((forward.reached_packets, forward.lost_packets, forward.unknown_packets), (20, 0, 0));
}

fn datagram(at_ns: i64, forward: bool, id: Option<u32>, payload: Option<u64>) -> Packet {
    let probe = payload.map(|payload| Probe { cookie: Cookie(payload as u32), sequence: payload >> 32, sent_ns: 5 });
    let (src_port, dst_port) = if forward { (1, 2) } else { (3, 4) };
    let mut packet = packet(at_ns, forward, 0, 100, Transport::Udp { src_port, dst_port, payload_len: 100, probe });
    packet.ip.as_mut().unwrap().id = id;
    packet
}

/// Datagrams without identification, or all with 0, clipped or of one payload: nothing is told of them. Beside a flow that is known, they
/// are counted as alike; alone, that is the error. By payloads or identifications that differ each is known.
#[test]
fn datagrams_that_look_alike_have_no_figures() {
    let same = |_: u64| Some(7);
    let differs = |n: u64| Some(n * 0x1234_5678_9abc);
    type Payload = fn(u64) -> Option<u64>;
    let cases: [(Option<u32>, Payload, bool); 5] = [
        (None, |_| None, false),
        (Some(0), |_| None, false),
        (None, same, false),
        (Some(0), same, false),
        (None, differs, true),
    ];
    for (id, payload, is_known) in cases {
        let sent = |n: u64| datagram(n as i64 * MS, true, id, payload(n));
        let a: Vec<Packet> = (0..400).map(sent).collect();
        let came = |n: &u64| n % 8 != 3;
        let b: Vec<Packet> = (0..400).filter(came).map(|n| Packet { at_ns: (n as i64 + 10) * MS, ..sent(n) }).collect();
        let alone = compare(a.clone(), b.clone(), true);
        if !is_known {
            assert_eq!(alone.err(), Some(CompareError::AllAlike));
        }
        let known = |from: &[Packet], late_ms: i64| {
            let tcp = (0..400).map(|n| tcp(i64::from(n) * MS + late_ms * MS + 7, true, n + 1, n * 100, 1, 100));
            let mut all: Vec<Packet> = from.iter().copied().chain(tcp).collect();
            all.sort_by_key(|packet| packet.at_ns);
            all
        };
        let (compared, reached) = compare(known(&a, 0), known(&b, 10), true).unwrap();
        let [forward] = compared.directions.as_slice() else { panic!() };
        let expected = if is_known { (800, 50, 0) } else { (400, 0, 400) };
        assert_eq!((forward.sent_packets, forward.lost_packets, forward.alike_packets), expected, "{id:?}");
        assert_eq!(
            (forward.unknown_packets, forward.reordered_packets, reached.len() as u64),
            (0, 0, forward.reached_packets)
        );
        let delay = forward.delay.unwrap();
        assert_eq!((delay.min_ns, delay.max_ns), (10.0 * MS as f64, 10.0 * MS as f64));
    }
}

/// The payload tells nothing, IP's identification does; the path copies each tenth, and the copies do not hide what was lost.
#[test]
fn copies_do_not_make_datagrams_alike() {
    let sent = |n: i64| datagram(n * MS, true, Some(n as u32 + 1), Some(7));
    let b = (0..400).filter(|n| n % 8 != 3).flat_map(|n| {
        let one = Packet { at_ns: (n + 10) * MS, ..sent(n) };
        let copy = Packet { at_ns: one.at_ns + MS / 2, ..one };
        [Some(one), (n % 10 == 0).then_some(copy)].into_iter().flatten()
    });
    let (compared, _) = compare((0..400).map(sent), b, true).unwrap();
    let [forward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.lost_packets, forward.unknown_packets, forward.alike_packets), (50, 40, 0));
    assert_eq!(forward.delay.unwrap().max_ns, 10.0 * MS as f64);
}

/// Of programs that hand super-packets to the kernel, as QUIC does, the pieces are not known by what the first begins with.
#[test]
fn pieces_of_others_super_packets_are_known_by_identification() {
    let big =
        |n: i64| Packet { gso_size: 25, gso_segs: 4, ..datagram(n * MS, true, Some(4 * n as u32 + 1), Some(n as u64)) };
    let b = (0..100).flat_map(|n| {
        (0..4).map(move |nth| {
            let mut piece =
                datagram((n + 5) * MS + nth, true, Some((4 * n + nth) as u32 + 1), Some((n * 77 + nth) as u64));
            let Transport::Udp { payload_len, .. } = &mut piece.transport else { panic!() };
            *payload_len = 25;
            piece
        })
    });
    let (compared, _) = compare((0..100).map(big), b, true).unwrap();
    let [forward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.reached_packets, forward.lost_packets, forward.unknown_packets), (400, 0, 0));
}

/// Equal acknowledgments on their way at the same time: how many were lost is known, which and when they came is not.
#[test]
fn of_acknowledgments_that_look_alike_there_is_no_delay() {
    let ack = |at_ns: i64| tcp(at_ns, true, 0, 1, 100, 0);
    let a = (0..20).map(|n| tcp(n * MS, true, 0, n as u32 * 100, 1, 100)).chain((30..40).map(|n| ack(n * MS)));
    let b = (0..20).map(|n| tcp((n + 20) * MS, true, 0, n as u32 * 100, 1, 100));
    let b = b.chain((30..40).filter(|n| *n != 32).map(|n| ack((n + 20) * MS)));
    let (compared, reached) = compare(a, b.chain([tcp(90 * MS, true, 0, 1, 1, 0)]), true).unwrap();
    let [forward] = compared.directions.as_slice() else { panic!() };
    assert_eq!((forward.sent_packets, forward.lost_packets, reached.len()), (30, 1, 20));
    assert_eq!(forward.delay.unwrap().max_ns, 20.0 * MS as f64);
}

/// Delays from 10 to 60 ms; B's capture begins 200 ms later and ends 200 ms earlier. What was on its way then is not lost, and each loss between is.
#[test]
fn a_capture_that_begins_in_mid_traffic_loses_nothing() {
    let delay_ms = |n: i64| 10 + (n * 37 % 50);
    let sent = |n: i64| tcp(n * MS, true, n as u32 + 1, n as u32 * 100, 1, 100);
    let is_lost = |n: i64| n % 20 == 7;
    let mut b: Vec<Packet> = (0..2_000)
        .filter(|n| !is_lost(*n))
        .map(|n| Packet { at_ns: (n + delay_ms(n)) * MS, ..sent(n) })
        .filter(|packet| (200 * MS..1_800 * MS).contains(&packet.at_ns))
        .collect();
    b.sort_by_key(|packet| packet.at_ns);
    let (compared, _) = compare((0..2_000).map(sent), b, true).unwrap();
    let [forward] = compared.directions.as_slice() else { panic!() };
    let lost: Vec<i64> = forward.lost.iter().map(|run| i64::from(run.first_sequence as u32) / 100).collect();
    assert!(lost.iter().all(|n| is_lost(*n)), "{lost:?}");
    let surely = (210..1_720).filter(|n| is_lost(*n)).count() as u64;
    assert!((surely..surely + 6).contains(&forward.lost_packets), "{} of {surely}", forward.lost_packets);
    assert_eq!(forward.longest_loss_run, 1);
}

/// Two flows that each go one way, from either host, and B's clock is 25 ms ahead: they go in opposite directions, and there is no drift.
#[test]
fn one_way_flows_of_both_directions_are_not_merged() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..1_000 {
        let (there, back) =
            (datagram(n * MS, true, Some(n as u32 + 1), None), datagram(n * MS, false, Some(n as u32 + 1), None));
        let queue_ns = n % 7 * 100_000;
        a.push(there);
        b.push(Packet { at_ns: there.at_ns + 30 * MS + queue_ns, ..there });
        if n > 500 {
            b.push(Packet { at_ns: back.at_ns + 25 * MS, ..back });
            a.push(Packet { at_ns: back.at_ns + 5 * MS + queue_ns, ..back });
        }
    }
    a.sort_by_key(|packet| packet.at_ns);
    b.sort_by_key(|packet| packet.at_ns);
    let (compared, _) = compare(a, b, false).unwrap();
    let told: Vec<_> = compared.directions.iter().map(|between| (between.direction, between.reached_packets)).collect();
    assert_eq!(told, [(PathDirection::AToB, 1_000), (PathDirection::BToA, 499)]);
    let clock = compared.clock;
    assert!(clock.drift_ppb.abs() < 1_000.0 && (clock.offset_ns - 25e6).abs() < 1e3, "{clock:?}");
}

/// Directions that come when there is no room are left out at both points: they are neither lost nor unknown, and the others stay exact.
#[test]
fn more_directions_than_are_kept_are_counted_and_left_out() {
    let both = |n: i64| {
        let number = n as u32;
        [tcp(n * MS, true, number + 1, number * 100, 1, 100), datagram(n * MS + 2, true, Some(number + 1), None)]
    };
    let a: Vec<Packet> = (0..20).flat_map(both).collect();
    let later = |packet: &Packet| Packet { at_ns: packet.at_ns + 5 * MS, ..*packet };
    let b: Vec<Packet> = a.iter().map(later).filter(|packet| packet.at_ns != 12 * MS).collect();
    let options = MatchOptions { same_clock: true };
    for (paths, reached, left_out) in [(1, 19, 40), (2, 39, 0)] {
        let bounds = Bounds { paths, ..Bounds::for_bytes([0; 2]) };
        let (compared, ..) = compare_within(bounds, &a, &b, options, usize::MAX, Default::default()).unwrap();
        let [forward] = compared.directions.as_slice() else { panic!() };
        assert_eq!((compared.paths.len(), compared.left_out_packets), (paths, left_out));
        assert_eq!((forward.reached_packets, forward.lost_packets, forward.unknown_packets), (reached, 1, 0));
    }
}

/// Ten super-packets of 200 segments, as short as Linux sends them: each segment is matched, as long as there may be so many.
#[test]
fn more_wire_packets_than_files_of_their_length_hold_are_refused() {
    let big = |n: u32| {
        let big = tcp(i64::from(n) * MS, true, n * 200 + 1, n * 7_200, 1, 7_200);
        Packet { gso_size: 36, gso_segs: 200, ..big }
    };
    let a: Vec<Packet> = (0..10).map(big).collect();
    let b: Vec<Packet> = a.iter().map(|packet| Packet { at_ns: packet.at_ns + 5 * MS, ..*packet }).collect();
    let reached = |wire_packets: [u64; 2]| {
        let bounds = Bounds { wire_packets, ..Bounds::for_bytes([0; 2]) };
        let options = MatchOptions { same_clock: true };
        let compared = compare_within(bounds, &a, &b, options, usize::MAX, Default::default());
        compared.map(|(compared, ..)| compared.directions[0].reached_packets)
    };
    assert_eq!(reached([2_000; 2]), Ok(2_000));
    for either in [[1_999, 2_000], [2_000, 1_999]] {
        assert_eq!(reached(either), Err(CompareError::TooManyWirePackets(1_999)));
    }
}

/// Of packets a microsecond apart, five milliseconds away, no more are held than there is room for, and none of the others is called lost.
#[test]
fn no_more_wire_packets_are_held_than_there_is_room_for() {
    let a: Vec<Packet> = (0..20_000).map(|n| tcp(i64::from(n) * 1_000, true, n + 1, n * 100, 1, 100)).collect();
    let b: Vec<Packet> = a.iter().map(|packet| Packet { at_ns: packet.at_ns + 5 * MS, ..*packet }).collect();
    let held = |held: usize| {
        let (bounds, options) = (Bounds { held, ..Bounds::for_bytes([0; 2]) }, MatchOptions { same_clock: true });
        let (compared, _, most_held) = compare_within(bounds, &a, &b, options, usize::MAX, Default::default()).unwrap();
        let lost: u64 = compared.directions.iter().map(|between| between.lost_packets).sum();
        (compared.given_up_packets > 0, lost, most_held)
    };
    let (is_given_up, lost, most) = held(1_000);
    assert!(is_given_up && lost == 0 && most <= 2_002, "{most} held, {lost} lost");
    let (is_given_up, lost, most) = held(20_000);
    assert!(!is_given_up && lost == 0 && (5_000..6_000).contains(&most), "{most} held, {lost} lost");
}
