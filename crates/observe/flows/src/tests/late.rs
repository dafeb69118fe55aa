//! What lies below the highest byte: captured behind its own acknowledgment, copied on the way, or sent once more and why.

use std::net::IpAddr;

use super::talk::*;
use longhaul_captures::packet::{Packet, Transport};

/// The same conversation over IPv6, whose packets have no identification.
fn over_ipv6(packet: &mut Packet) {
    let ip = packet.ip.as_mut().unwrap();
    let v6 = |address: IpAddr| match address {
        IpAddr::V4(v4) => IpAddr::from(v4.to_ipv6_mapped().segments().map(|part| part | 0x10)),
        v6 => v6,
    };
    (ip.src, ip.dst, ip.id) = (v6(ip.src), v6(ip.dst), None);
}

/// A capture of several queues: acknowledgments come up to 2 µs before the data that they acknowledge, once for a packet, once for three, with
/// SACK of what has not come either. All was sent once.
#[test]
fn an_acknowledgment_may_be_captured_before_its_data() {
    for stamps in [false, true] {
        let mut talk = Talk::new();
        talk.stamps = stamps;
        talk.handshake(0);
        for n in 0..100 {
            let at_ns = (20 + i64::from(n)) * MS;
            let (early, behind) = (n % 4 == 0, 2 * i64::from(n % 4 == 0) * 1_000);
            talk.say(at_ns + behind, true, ACK, seq(n), 1, MSS);
            let ack = talk.say(at_ns + if early { 0 } else { 90_000 }, false, ACK, 1, seq(n + 1), 0);
            let echo = (at_ns / MS) as u32;
            options(ack, |own| own.timestamps = own.timestamps.map(|(val, _)| (val, echo)));
        }
        // Three at once, whose acknowledgment comes first, and a selective one before that.
        let ack = talk.say(200 * MS, false, ACK, 1, seq(100), 0);
        options(ack, |own| (own.sack[0], own.sack_blocks) = ((seq(101), seq(102)), 1));
        talk.say(200 * MS + 500, false, ACK, 1, seq(103), 0);
        for n in 100..103 {
            talk.say(200 * MS + 1_000 + i64::from(n), true, ACK, seq(n), 1, MSS);
        }
        talk.say(210 * MS, true, ACK, seq(103), 1, MSS);
        talk.say(210 * MS + 90_000, false, ACK, 1, seq(104), 0);
        talk.flows.sort_by_key(|packet| packet.at_ns);
        let flow = talk.one();
        let tcp = forward(&flow);
        let late = (tcp.retransmitted_packets, tcp.out_of_order_packets, tcp.duplicate_packets);
        assert_eq!((late, tcp.dsack_blocks, tcp.spurious_by_dsack), ((0, 0, 0), 0, 0));
        assert_eq!((tcp.missing_bytes, flow.forward.unique_bytes), (0, 104 * u64::from(MSS)));
        assert_eq!(tcp.captured_behind_ack_packets, 25 + 3);
        for rtt in [tcp.rtt, tcp.timestamp_rtt.or(tcp.rtt)] {
            let rtt = rtt.unwrap();
            assert!(rtt.min_ns >= 90_000 && rtt.max_ns <= 2 * MS, "{rtt:?}");
        }
    }
}

/// What was acknowledged and never came is still missing; what comes a timeout later was sent once more.
#[test]
fn what_was_acknowledged_and_never_came_is_missing() {
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in 0..20 {
        if n != 5 && n != 7 {
            talk.say((20 + 2 * i64::from(n)) * MS, true, ACK, seq(n), 1, MSS);
        }
        talk.say((21 + 2 * i64::from(n)) * MS, false, ACK, 1, seq(n + 1), 0);
    }
    talk.say(300 * MS, true, ACK, seq(7), 1, MSS);
    talk.say(301 * MS, false, ACK, 1, seq(20), 0);
    let tcp = *talk.one().forward.tcp.unwrap();
    assert_eq!((tcp.retransmitted_packets, tcp.captured_behind_ack_packets), (1, 0));
    assert_eq!(tcp.missing_bytes, 2 * u64::from(MSS));
}

/// IPv6, a path of 96 ms: each tenth packet comes once more, up to a millisecond later, near the sender as near the receiver, with time stamps of
/// a millisecond and without, while a loss makes duplicate acknowledgments flow. That one alone was sent once more.
#[test]
fn a_copy_within_less_than_any_reaction_is_a_duplicate() {
    for (stamps, near_sender) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut talk = Talk::new();
        talk.stamps = stamps;
        talk.handshake(0);
        let to_receiver = if near_sender { 95 * MS } else { MS };
        // The handshake's round trip is not that of the path.
        talk.flows[1].at_ns = to_receiver;
        talk.flows[2].at_ns = 96 * MS;
        for n in 0..400_u32 {
            let at_ns = 100 * MS + i64::from(n) * MS / 4;
            talk.say(at_ns, true, ACK, seq(n), 1, MSS);
            if n.is_multiple_of(10) {
                let mut copy = *talk.flows.last().unwrap();
                copy.at_ns += 20_000 + i64::from(n) * 2_400;
                talk.flows.push(copy);
            }
            let acked = if (201..600).contains(&n) { 201 } else { n + 1 };
            talk.say(at_ns + to_receiver, false, ACK, 1, seq(acked), 0);
        }
        talk.say(350 * MS, true, ACK, seq(201), 1, MSS);
        let mut copy = *talk.flows.last().unwrap();
        copy.at_ns += MS;
        talk.flows.push(copy);
        talk.say(350 * MS + to_receiver, false, ACK, 1, seq(400), 0);
        talk.flows.sort_by_key(|packet| packet.at_ns);
        let flow = talk.run_with(over_ipv6).remove(0);
        let tcp = forward(&flow);
        assert_eq!((tcp.duplicate_packets, tcp.retransmitted_packets), (41, 1), "{stamps} {near_sender}");
        assert_eq!((tcp.fast_retransmissions, tcp.timeout_retransmissions), (1, 0), "{stamps} {near_sender}");
    }
}

/// The path copies a SYN, and the server answers both; near the server, without time stamps, the handshake still has the round trip of the path. Where
/// the SYN-ACK was sent once more by a timer, it has not: then it is said how many packets time alone told apart.
#[test]
fn a_copied_syn_leaves_the_round_trip_known() {
    for (second_answer_ns, is_known) in [(18_000, true), (1_000 * MS, false)] {
        let mut talk = Talk::new();
        talk.stamps = false;
        talk.handshake(0);
        talk.flows[1].at_ns = 30_000;
        talk.flows[2].at_ns = 30_000 + second_answer_ns + 96 * MS;
        let (mut syn, mut answer) = (talk.flows[0], talk.flows[1]);
        (syn.at_ns, answer.at_ns) = (45_000, 30_000 + second_answer_ns);
        talk.flows.extend([syn, answer]);
        for n in 0..400_u32 {
            let at_ns = 1_200 * MS + i64::from(n) * MS / 4;
            talk.say(at_ns, true, ACK, seq(n), 1, MSS);
            if n.is_multiple_of(10) {
                let mut copy = *talk.flows.last().unwrap();
                copy.at_ns += 300_000;
                talk.flows.push(copy);
            }
            let acked = if n >= 201 { 201 } else { n + 1 };
            talk.say(at_ns + 1_000, false, ACK, 1, seq(acked), 0);
        }
        talk.say(1_400 * MS, true, ACK, seq(201), 1, MSS);
        talk.flows.sort_by_key(|packet| packet.at_ns);
        let flow = talk.run_with(over_ipv6).remove(0);
        let tcp = forward(&flow);
        let [again, copied] = [tcp.retransmitted_packets, tcp.duplicate_packets];
        // With the SYN, which time does not tell alone: a timer alone sends it once more.
        assert_eq!((again + copied, tcp.out_of_order_packets), (42, 0), "{tcp:?}");
        assert_eq!(tcp.late_packets_judged_without_rtt, if is_known { 0 } else { 41 }, "{tcp:?}");
        assert!(!is_known || again == 1, "{tcp:?}");
        let handshake = flow.connection.as_ref().unwrap().handshake_rtt_ns;
        assert_eq!(handshake, None, "either SYN-ACK may have been answered");
    }
}

/// Near the server, over IPv6 and without time stamps the handshake alone has a round trip: it took 23 ms, and all others take 20.
#[test]
fn a_retransmission_may_come_sooner_than_the_handshake_tells() {
    let mut talk = Talk::new();
    talk.stamps = false;
    talk.handshake(0);
    (talk.flows[1].at_ns, talk.flows[2].at_ns) = (30_000, 23 * MS);
    // The first of ten is lost, and sent once more for what its successor brought. Each third of ten comes 2 ms late.
    let first_again = |at_ns: i64, n: u32| (at_ns + 250_000 + 20 * MS, n);
    let mut again = Vec::new();
    for n in 0..400_u32 {
        let at_ns = 100 * MS + i64::from(n) * 250_000;
        match n % 10 {
            0 => again.push(first_again(at_ns, n)),
            2 => again.push((at_ns + 2 * MS, n)),
            _ => drop(talk.say(at_ns, true, ACK, seq(n), 1, MSS)),
        }
        // All of it asks for the first that is missing.
        let missing = again.iter().filter(|(when, _)| *when > at_ns).map(|(_, n)| *n).min();
        talk.say(at_ns + 30_000, false, ACK, 1, seq(missing.unwrap_or(n + 1)), 0);
    }
    for (at_ns, n) in again {
        talk.say(at_ns, true, ACK, seq(n), 1, MSS);
    }
    talk.flows.sort_by_key(|packet| packet.at_ns);
    let flow = talk.run_with(over_ipv6).remove(0);
    let tcp = forward(&flow);
    assert_eq!((tcp.retransmitted_packets, tcp.out_of_order_packets, tcp.duplicate_packets), (40, 40, 0), "{tcp:?}");
}

/// Without acknowledgments no round trip is known: what follows at once, when fewer than three packets have passed since, no sender could know
/// of; what follows later was sent once more.
#[test]
fn of_one_direction_a_copy_comes_at_once() {
    let mut talk = Talk::new();
    for n in 0..40 {
        talk.say(i64::from(n) * MS, true, ACK, seq(n), 1, MSS);
        if n == 20 {
            talk.say(i64::from(n) * MS + 5_000, true, ACK, seq(n), 1, MSS);
        }
        if n == 30 {
            talk.say(i64::from(n) * MS + 5_000, true, ACK, seq(n - 6), 1, MSS);
        }
    }
    let tcp = *talk.one().forward.tcp.unwrap();
    assert_eq!((tcp.duplicate_packets, tcp.retransmitted_packets), (1, 1));
    assert_eq!(tcp.retransmissions_of_unknown_cause, 1);
}

/// Five duplicate acknowledgments pass the receiver. After a round trip of silence, as the window is full, comes what they asked for; their way
/// has a queue of 60 ms.
#[test]
fn duplicate_acknowledgments_take_a_round_trip_to_bring_an_answer() {
    for near_receiver in [true, false] {
        let answer_ns = if near_receiver { 99 * MS } else { MS };
        let mut talk = Talk::new();
        talk.handshake(0);
        talk.flows[1].at_ns = 100 * MS - answer_ns;
        talk.flows[2].at_ns = 100 * MS;
        for n in 0..6 {
            talk.say(110 * MS + i64::from(n) * 10_000, true, ACK, seq(n), 1, MSS);
        }
        for n in 0..5 {
            talk.say(210 * MS - answer_ns + i64::from(n) * 10_000, false, ACK, 1, seq(0), 0);
        }
        let queue_ns = 60 * MS;
        if !near_receiver {
            talk.flows.iter_mut().rev().take(5).for_each(|packet| packet.at_ns += queue_ns);
        }
        talk.say(210 * MS + queue_ns + 90_000, true, ACK, seq(0), 1, MSS);
        talk.say(310 * MS + queue_ns - answer_ns + 90_000, false, ACK, 1, seq(6), 0);
        talk.flows.sort_by_key(|packet| packet.at_ns);
        let tcp = *talk.one().forward.tcp.unwrap();
        let by = (tcp.fast_retransmissions, tcp.timeout_retransmissions, tcp.retransmissions_of_unknown_cause);
        assert_eq!((tcp.duplicate_acks, by), (5, (1, 0, 0)), "near the receiver: {near_receiver}");
    }
}

/// NewReno (RFC 6582): without SACK a partial acknowledgment brings the next lost segment.
#[test]
fn a_partial_acknowledgment_brings_the_next() {
    let mut talk = Talk::new();
    talk.handshake(0);
    for n in 0..20 {
        talk.say(20 * MS + i64::from(n) * 10_000, true, ACK, seq(n), 1, MSS);
    }
    for n in 0..10 {
        talk.say(22 * MS + i64::from(n) * 10_000, false, ACK, 1, seq(3), 0);
    }
    talk.say(30 * MS, true, ACK, seq(3), 1, MSS);
    talk.say(32 * MS, false, ACK, 1, seq(9), 0);
    talk.say(40 * MS, true, ACK, seq(9), 1, MSS);
    talk.say(42 * MS, false, ACK, 1, seq(20), 0);
    let tcp = *talk.one().forward.tcp.unwrap();
    assert_eq!((tcp.retransmitted_packets, tcp.fast_retransmissions, tcp.timeout_retransmissions), (2, 2, 0));
}

/// SACK blocks that were clipped away are the news that a sender answers: without them nobody can tell a timeout.
#[test]
fn of_clipped_options_no_cause_is_known() {
    for clipped in [true, false] {
        let mut talk = Talk::new();
        talk.stamps = true;
        talk.handshake(0);
        for n in 0..20 {
            talk.say(20 * MS + i64::from(n) * 10_000, true, ACK, seq(n), 1, MSS);
        }
        // The window moves, as the receiver's buffer fills.
        for n in 0..10 {
            let ack = talk.say(22 * MS + i64::from(n) * 10_000, false, ACK, 1, seq(3), 0);
            options(ack, |own| {
                own.clipped = clipped;
                if !clipped {
                    (own.sack[0], own.sack_blocks) = ((seq(4), seq(5 + n as u32)), 1);
                }
            });
            let Transport::Tcp(tcp) = &mut ack.transport else { panic!() };
            tcp.window -= n as u16;
        }
        talk.say(30 * MS, true, ACK, seq(3), 1, MSS);
        talk.say(32 * MS, false, ACK, 1, seq(20), 0);
        let tcp = *talk.one().forward.tcp.unwrap();
        let by = (tcp.fast_retransmissions, tcp.timeout_retransmissions, tcp.retransmissions_of_unknown_cause);
        assert_eq!(by, if clipped { (0, 0, 1) } else { (1, 0, 0) });
        assert_eq!(tcp.clipped_acks, if clipped { 10 } else { 0 });
    }
}
