//! Whole tests in virtual time: client and server with a path between them.

use crate::common::{DELAY, Pair, Side};
use longhaul_result::Location;
use longhaul_session::limits::{
    DRAIN_LIMIT, INTERRUPT_TIMEOUT, OVERRUN, PEER_SILENCE, PROOF_TIMEOUT, REPORT_TIMEOUT, SETUP_TIMEOUT,
};
use longhaul_session::{BusyPolicy, Caps, DataEvent, Hello, Message, SessionError, TestEnd, TestParameters, Verdict};
use longhaul_tcp::TcpParameters;
use longhaul_terms::{Amount, TestDirection};
use longhaul_udp::{Pace, UdpParameters, UdpResult};
use longhaul_units::{BitRate, Nanos};

fn parameters(direction: TestDirection) -> UdpParameters {
    UdpParameters {
        amount: Amount::Packets(2_000),
        pace: Pace::SpacingNs(1_000_000),
        payload_bytes: 1250,
        direction,
        ..UdpParameters::default()
    }
}

fn result(end: &TestEnd, backward: bool) -> UdpResult {
    let (sender, receiver) = end.udp_reports(backward).expect("that direction was tested");
    let assembled = UdpResult::assemble(end.parameters.udp().unwrap(), sender, receiver);
    let result = assembled.result;
    assert_eq!(result.sent_packets, result.received_packets + result.loss_by_location.values().sum::<u64>());
    assert_eq!(result.lost_packets, result.losses.iter().map(|loss| loss.packets).sum::<u64>());
    result
}

#[test]
fn forward_with_losses_and_duplicates() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    // 100 and the last five are lost; 200 is duplicated.
    pair.fate = |_, _, sequence| match sequence {
        100 | 1995.. => 0,
        200 => 2,
        _ => 1,
    };
    let took = pair.run();
    let end = pair.test_end(Side::Client);
    assert!(end.udp_reports(true).is_none());
    let result = result(&end, false);
    assert_eq!((result.sent_packets, result.received_packets, result.duplicate_packets), (2_000, 1_994, 1));
    let losses: Vec<_> = result.losses.iter().map(|loss| (loss.first_sequence, loss.packets)).collect();
    assert_eq!(losses, [(100, 1), (1995, 5)], "tail loss counts");
    assert_eq!(result.loss_by_location[&Location::Network], 6);
    // 1250 bytes each millisecond.
    assert!(result.sent_rate_bps.abs_diff(10_000_000) < 10_000, "{}", result.sent_rate_bps);
    assert_eq!(result.jitter_ns, Some(0));
    assert!(pair.test_end(Side::Server).local.udp.unwrap().receiver.is_some());
    assert_eq!(pair.end(Side::Server).bulk_sent, 0);
    // Four round trips, two seconds of data, a second of quiet, another round trip for the report.
    assert!(took < Nanos::from_secs(4), "{took}");
}

#[test]
fn reverse() {
    let mut pair = Pair::new(parameters(TestDirection::Reverse));
    pair.fate = |backward, _, sequence| u32::from(!(backward && sequence == 7));
    pair.run();
    let end = pair.test_end(Side::Client);
    assert!(end.udp_reports(false).is_none());
    let result = result(&end, true);
    assert_eq!((result.sent_packets, result.lost_packets), (2_000, 1));
    pair.test_end(Side::Server);
    assert_eq!(pair.end(Side::Client).bulk_sent, 0);
}

#[test]
fn both_ways_over_three_streams() {
    let mut pair = Pair::new(UdpParameters { streams: 3, ..parameters(TestDirection::Bidirectional) });
    pair.fate = |backward, stream, sequence| u32::from(backward || stream != 2 || sequence != 5);
    pair.run();
    let end = pair.test_end(Side::Client);
    let (forward, backward) = (result(&end, false), result(&end, true));
    assert_eq!((forward.sent_packets, forward.lost_packets), (2_000, 1));
    assert_eq!((forward.losses[0].stream, forward.losses[0].first_sequence), (2, 5));
    assert_eq!((backward.sent_packets, backward.lost_packets), (2_000, 0));
    pair.test_end(Side::Server);
}

/// Hosts are upgraded one by one: what a newer one supports is nothing to an older one.
#[test]
fn a_feature_that_nobody_knows_does_no_harm() {
    let mut pair = Pair::new(parameters(TestDirection::Bidirectional));
    pair.newer = true;
    pair.run();
    for side in [Side::Client, Side::Server] {
        let is_newer = |hello: &Hello| hello.features.iter().any(|feature| feature == "of the future");
        let said = &pair.end(side).said;
        assert!(said.iter().any(|said| matches!(said, Message::Hello(hello) if is_newer(hello))), "{side:?}: {said:?}");
    }
    let end = pair.test_end(Side::Client);
    for backward in [false, true] {
        let result = result(&end, backward);
        assert_eq!((result.sent_packets, result.lost_packets), (2_000, 0));
    }
    pair.test_end(Side::Server);
}

#[test]
fn an_outage_of_five_seconds_is_loss_and_no_more() {
    let mut pair =
        Pair::new(UdpParameters { amount: Amount::DurationNs(10_000_000_000), ..parameters(TestDirection::Forward) });
    pair.at(Nanos::from_secs(3), |pair| pair.data_up = false);
    pair.at(Nanos::from_secs(8), |pair| pair.data_up = true);
    pair.run();
    let result = result(&pair.test_end(Side::Client), false);
    assert_eq!(result.sent_packets, 10_000);
    assert_eq!((result.lost_packets, result.loss_periods.count), (5_000, 1));
}

#[test]
fn an_interrupt_gives_what_was_measured_so_far() {
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        let mut pair = Pair::new(parameters(direction));
        pair.at(Nanos::from_millis(1_400), |pair| pair.client.handle_interrupt(pair.now));
        pair.run();
        let end = pair.test_end(Side::Client);
        for backward in [false, true] {
            if end.udp_reports(backward).is_some() {
                let result = result(&end, backward);
                assert!((500..1_500).contains(&result.sent_packets), "{direction:?}: {}", result.sent_packets);
                assert_eq!(result.lost_packets, 0);
            }
        }
    }
}

/// A server may lie about all it reports. When and why this end stopped sending, this end knows.
#[test]
fn a_server_that_ends_a_test_early_is_told_of() {
    for (direction, by_server) in [
        (TestDirection::Forward, true),
        (TestDirection::Bidirectional, true),
        (TestDirection::Forward, false),
        (TestDirection::Reverse, false),
    ] {
        let mut pair = Pair::new(parameters(direction));
        if by_server {
            pair.at(Nanos::from_millis(1_400), |pair| pair.client.handle_message(pair.now, Message::Stop));
        } else {
            // The user was first: what the server says then is an echo.
            pair.at(Nanos::from_millis(1_400), |pair| {
                pair.client.handle_interrupt(pair.now);
                pair.client.handle_message(pair.now, Message::Stop);
            });
        }
        pair.run();
        assert_eq!(pair.test_end(Side::Client).stopped_by_server, by_server, "{direction:?}");
    }
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.run();
    assert!(!pair.test_end(Side::Client).stopped_by_server, "it came to its end");
}

/// When it says so, this end sees by its own clock; how much it sent is compared with what was asked for.
#[test]
fn a_server_that_sends_no_more_before_its_time_is_told_of() {
    let told = |parameters: TestParameters, act: Option<fn(&mut Pair)>| {
        let mut pair = Pair::new(parameters);
        if let Some(act) = act {
            pair.at(Nanos::from_millis(1_400), act);
        }
        pair.run();
        pair.test_end(Side::Client).ended_by_server
    };
    let finishes: fn(&mut Pair) = |pair| pair.finish(Side::Server);
    // What the server sends no more then was told it.
    let interrupted: fn(&mut Pair) = |pair| pair.client.handle_interrupt(pair.now);
    for direction in [TestDirection::Reverse, TestDirection::Bidirectional] {
        let time = Amount::DurationNs(2_000_000_000);
        let tests: [TestParameters; 4] = [
            parameters(direction).into(),
            UdpParameters { amount: Amount::Bytes(2_000_000), ..parameters(direction) }.into(),
            UdpParameters { amount: time, ..parameters(direction) }.into(),
            TcpParameters { amount: time, direction, ..TcpParameters::default() }.into(),
        ];
        for asked in tests {
            for (act, is_early) in [(None, false), (Some(interrupted), false), (Some(finishes), true)] {
                assert_eq!(told(asked.clone(), act), is_early, "{asked:?}");
            }
        }
    }
    // The end of a connection says the same, whatever the server says.
    let tcp = |amount| {
        let direction = TestDirection::Reverse;
        TestParameters::from(TcpParameters { amount, direction, streams: 2, ..TcpParameters::default() })
    };
    let closes: fn(&mut Pair) =
        |pair| pair.client.handle_data(pair.now, DataEvent::StreamEnded { stream: 1, bytes: 499 });
    let interrupted_and_closes: fn(&mut Pair) = |pair| {
        pair.client.handle_interrupt(pair.now);
        pair.client.handle_data(pair.now, DataEvent::StreamEnded { stream: 1, bytes: 499 });
    };
    let (time, bytes) = (tcp(Amount::DurationNs(2_000_000_000)), tcp(Amount::Bytes(1_000)));
    for asked in [&time, &bytes] {
        assert!(told(asked.clone(), Some(closes)) && !told(asked.clone(), Some(interrupted_and_closes)), "{asked:?}");
    }
    // All that was asked for may be sent before any time.
    let brings_all: fn(&mut Pair) =
        |pair| pair.client.handle_data(pair.now, DataEvent::StreamEnded { stream: 1, bytes: 500 });
    assert!(!told(bytes.clone(), Some(brings_all)) && !told(bytes, None));
    // The connections are there, and the client does not know that the server has seen them.
    let mut pair = Pair::new(time);
    pair.connected_after = DELAY;
    pair.at(Nanos(DELAY.0 * 11 / 2), closes);
    pair.run();
    assert!(pair.test_end(Side::Client).ended_by_server, "before the test began");
}

/// What a server allows may be less than it takes to send all, and a hostile one may allow what it likes.
#[test]
fn an_amount_that_was_not_sent_is_told_of() {
    let told = |direction, allowed: Nanos, act: Option<fn(&mut Pair)>| {
        let caps = Caps { duration: allowed, ..Caps::default() };
        let mut pair = Pair::with_caps(parameters(direction), caps);
        if let Some(act) = act {
            pair.at(Nanos::from_millis(900), act);
        }
        pair.run();
        let end = pair.test_end(Side::Client);
        (end.fell_short, end.stopped_by_server || end.ended_by_server)
    };
    let (second, hour) = (Nanos::from_secs(1), Nanos::from_secs(3_600));
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        assert_eq!(told(direction, second, None), (Some(second), false), "{direction:?}");
        assert_eq!(told(direction, hour, None), (None, false), "{direction:?}");
        // The user had it stop.
        let interrupted: fn(&mut Pair) = |pair| pair.client.handle_interrupt(pair.now);
        assert_eq!(told(direction, hour, Some(interrupted)), (None, false), "{direction:?}");
    }
    // This end's sender stopped by itself.
    let fails: fn(&mut Pair) = |pair| pair.finish(Side::Client);
    assert_eq!(told(TestDirection::Forward, hour, Some(fails)), (Some(hour), false));
}

/// The server does not do what it is told, and goes on sending.
#[test]
fn an_interrupt_ends_a_test_whose_server_goes_on() {
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        let asked = UdpParameters {
            amount: Amount::DurationNs(600_000_000_000),
            interval_ns: Some(500_000_000),
            ..parameters(direction)
        };
        let mut pair = Pair::new(asked);
        pair.at(Nanos::from_millis(900), |pair| pair.say_progress());
        pair.at(Nanos::from_secs(1), |pair| {
            pair.deaf = Some(Side::Server);
            pair.client.handle_interrupt(pair.now);
        });
        pair.at(Nanos::from_secs(2) + INTERRUPT_TIMEOUT, |pair| assert!(pair.client.is_over()));
        pair.run();
        let (lost, result) = pair.cut();
        assert_eq!(lost.code, "overrun", "{direction:?}");
        result.expect("a result").each(|result| assert!(result.received_packets > 500, "{direction:?} {result:?}"));
    }
}

/// The server says what it received as fast as it can. Each time would be a line on the client's terminal.
#[test]
fn more_progress_than_intervals_is_not_told() {
    let asked = UdpParameters { interval_ns: Some(500_000_000), ..parameters(TestDirection::Forward) };
    let mut pair = Pair::new(asked);
    pair.at(Nanos::from_millis(900), |pair| (0..10_000).for_each(|_| pair.say_progress()));
    pair.run();
    let end = pair.test_end(Side::Client);
    assert_eq!(result(&end, false).lost_packets, 0);
    let told = pair.end(Side::Client).progress;
    assert!((2..40).contains(&told), "{told}");
}

#[test]
fn nothing_in_bulk_before_the_data_path_is_proven() {
    let mut pair = Pair::new(parameters(TestDirection::Bidirectional));
    pair.data_up = false;
    let took = pair.run();
    let error = pair.error(Side::Client);
    assert_eq!(error.code, "data_path_blocked");
    assert!(error.remedy.contains("UDP port"), "{error:?}");
    assert_eq!((pair.end(Side::Client).bulk_sent, pair.end(Side::Server).bulk_sent), (0, 0));
    assert_eq!(pair.end(Side::Server).proof_bytes_sent, 0);
    assert!(pair.end(Side::Client).proof_bytes_sent > 0);
    assert_eq!(pair.error(Side::Server).code, "data_path_blocked", "the client said so");
    assert!(took <= PROOF_TIMEOUT + Nanos::from_secs(1), "{took}");
}

#[test]
fn a_host_that_drops_the_proof_says_where() {
    for side in [Side::Server, Side::Client] {
        let mut pair = Pair::new(parameters(TestDirection::Forward));
        pair.data_up = false;
        pair.end(side).dropped_proof =
            Some("20 datagrams to UDP port 5210 were dropped: receiver_filter, NETFILTER_DROP");
        let took = pair.run();
        let error = pair.error(Side::Client);
        assert_eq!(error.code, "data_path_blocked");
        let (host, place) = (if side == Side::Server { "server's host" } else { "client's host" }, "receiver_filter");
        assert!(error.message.contains(host) && error.message.contains(place), "{}", error.message);
        assert!(took < PROOF_TIMEOUT, "{took}");
    }
}

#[test]
fn a_peer_that_dies_is_noticed_in_the_stated_time() {
    for (side, direction) in [
        (Side::Server, TestDirection::Forward),
        (Side::Server, TestDirection::Reverse),
        (Side::Client, TestDirection::Forward),
        (Side::Client, TestDirection::Reverse),
    ] {
        let mut pair = Pair::new(UdpParameters { amount: Amount::DurationNs(60_000_000_000), ..parameters(direction) });
        match side {
            Side::Client => pair.at(Nanos::from_secs(2), |pair| pair.dead = Some(Side::Client)),
            Side::Server => pair.at(Nanos::from_secs(2), |pair| pair.dead = Some(Side::Server)),
        }
        let took = pair.run();
        let noticed = match side {
            Side::Client => pair.error(Side::Server),
            Side::Server => pair.cut().0,
        };
        assert_eq!(noticed.code, "peer_silent");
        assert!(took <= Nanos::from_secs(2) + PEER_SILENCE + DELAY, "{side:?} {direction:?}: {took}");
    }
}

#[test]
fn a_lost_control_connection_ends_both() {
    let mut pair = Pair::new(parameters(TestDirection::Reverse));
    pair.at(Nanos::from_secs(1), |pair| {
        pair.control_up = false;
        let lost = SessionError::new("connection_lost", "the control connection was closed", "");
        pair.client.handle_connection_lost(pair.now, lost.clone());
        pair.server.handle_connection_lost(lost);
    });
    let took = pair.run();
    let (lost, result) = pair.cut();
    assert_eq!(lost.code, "connection_lost");
    assert_eq!(pair.error(Side::Server).code, "connection_lost");
    assert_eq!(took, Nanos::from_secs(1), "at once");
    let result = result.expect("what arrived").into_first();
    assert!(result.received_packets > 0 && result.lost_packets == 0, "{result:?}");
    assert!(pair.end(Side::Server).bulk_sent < 1_000);
}

/// Packets 100 to 109 are lost; then the server is gone in the middle of an interval.
#[test]
fn of_a_test_that_is_cut_there_is_a_result_up_to_the_last_word() {
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        let asked = UdpParameters {
            amount: Amount::DurationNs(60_000_000_000),
            interval_ns: Some(1_000_000_000),
            ..parameters(direction)
        };
        let mut pair = Pair::new(asked);
        pair.fate = |_, _, sequence| u32::from(!(100..110).contains(&sequence));
        pair.at(Nanos::from_millis(2_500), |pair| pair.dead = Some(Side::Server));
        pair.at(Nanos::from_millis(2_000), |pair| pair.say_progress());
        pair.run();
        let (lost, result) = pair.cut();
        assert_eq!(lost.code, "peer_silent");
        let mut results = 0;
        result.expect("a result").each(|result| {
            results += 1;
            assert_eq!(result.lost_packets, 10, "{direction:?} {result:?}");
            assert!(result.received_packets > 1_000, "{direction:?} {result:?}");
            assert_eq!(result.sent_packets, result.received_packets + result.lost_packets);
            assert!(result.received_rate_bps > 0 && result.sent_rate_bps > 0, "{result:?}");
        });
        assert_eq!(results, if direction == TestDirection::Bidirectional { 2 } else { 1 });
    }
}

#[test]
fn a_silent_client_is_dropped_before_it_gets_anything() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.dead = Some(Side::Client);
    let took = pair.run();
    assert!(["setup_timeout", "peer_silent"].contains(&pair.error(Side::Server).code.as_str()));
    assert_eq!(took, SETUP_TIMEOUT.min(PEER_SILENCE));
    assert!(pair.end(Side::Server).plan.is_none());
}

/// A client that sends only signs of life, at each stage.
#[test]
fn a_client_that_only_keeps_alive_ends_too() {
    for silent_after in [0, 1, 2, 3] {
        let mut pair = Pair::new(parameters(TestDirection::Reverse));
        pair.dead = Some(Side::Client);
        let (mut said, began) = (0, pair.now);
        let mut now = pair.now;
        while let Some(at) = pair.server.poll_timeout() {
            let offered = [
                Message::Hello(hello("longhaul/1")),
                Message::Propose { parameters: parameters(TestDirection::Reverse).into() },
            ];
            if said < silent_after.min(2) {
                pair.server.handle_message(now, offered[said].clone());
                said += 1;
            }
            pair.server.handle_message(now, Message::Alive);
            pair.now = now;
            // Drives outputs only: nothing is delivered to a dead client.
            while let Some(output) = pair.server.poll_output(now) {
                use longhaul_session::Output;
                match output {
                    Output::RequestAdmission { .. } => pair.server.handle_admission(now, Verdict::Run),
                    Output::OpenData(_) if silent_after == 3 => pair.server.handle_data_opened(now, vec![1], vec![]),
                    Output::StartSending { .. } => panic!("bulk"),
                    _ => {}
                }
            }
            now = at.min(now + Nanos::from_secs(1)).max(now + Nanos(1));
            pair.server.handle_timeout(now);
            assert!(now - began <= SETUP_TIMEOUT + SETUP_TIMEOUT + PROOF_TIMEOUT, "after {silent_after} messages");
        }
    }
}

/// A server that sends signs of life for ever instead of its report.
#[test]
fn a_peer_that_never_ends_the_test_is_left() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.at(Nanos::from_millis(2_300), |pair| {
        pair.dead = Some(Side::Server);
        for second in 0..200 {
            fn alive(pair: &mut Pair) {
                let now = pair.now;
                pair.client.handle_message(now, Message::Alive);
            }
            pair.at(Nanos::from_secs(second), alive);
        }
    });
    let took = pair.run();
    assert_eq!(pair.error(Side::Client).code, "overrun");
    assert!(took <= Nanos::from_secs(3) + DRAIN_LIMIT + PEER_SILENCE + OVERRUN + REPORT_TIMEOUT, "{took}");
}

fn hello(version: &str) -> Hello {
    Hello { version: version.into(), nonce: 0, features: vec!["of the future".into()], measurement: None }
}

#[test]
fn different_versions_are_reported_at_both_ends() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.server.handle_message(pair.now, Message::Hello(hello("longhaul/2\x1b[31m")));
    pair.run();
    let error = pair.error(Side::Server);
    assert_eq!((error.code.as_str(), error.message.contains('\x1b')), ("version_mismatch", false));
    assert_eq!(pair.error(Side::Client).code, "version_mismatch");
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.client.handle_message(pair.now, Message::Hello(hello("longhaul/0")));
    pair.run();
    let error = pair.error(Side::Client);
    assert_eq!(error.message, "the server speaks longhaul/0, but this end speaks longhaul/1");
}

#[test]
fn a_busy_server_says_when_to_try_again() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.admission.ask(pair.now, pair.now + Nanos::from_secs(30));
    pair.run();
    let error = pair.error(Side::Client);
    assert_eq!((error.code.as_str(), error.remedy.as_str()), ("busy", "try again in 30 s"));
    pair.error(Side::Server);
}

#[test]
fn a_queued_client_waits_longer_than_any_timeout_and_then_runs() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.admission = longhaul_session::Admission::new(1, BusyPolicy::Queue(4));
    pair.admission.ask(pair.now, pair.now + Nanos::from_secs(300));
    pair.at(Nanos::from_secs(200), |pair| pair.server.handle_admission(pair.now, Verdict::Run));
    let took = pair.run();
    assert_eq!(result(&pair.test_end(Side::Client), false).received_packets, 2_000);
    assert!(took > Nanos::from_secs(200));
    // The server repeats it each 4 s, and the user is told each third time.
    let told = pair.ends[&Side::Client].waiting;
    assert!((16..=20).contains(&told), "{told} times");
}

/// Others come and go behind it, as often as they like.
#[test]
fn a_queued_client_is_told_what_has_changed() {
    use longhaul_session::Output;
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    let now = pair.now;
    let asked = Message::Propose { parameters: parameters(TestDirection::Forward).into() };
    [Message::Hello(hello("longhaul/1")), asked].into_iter().for_each(|said| pair.server.handle_message(now, said));
    let ahead = |output| if let Output::SendMessage(Message::Queued { ahead }) = output { Some(ahead) } else { None };
    let mut told = |now: Nanos, verdicts: &[u32]| -> Vec<u32> {
        verdicts.iter().for_each(|ahead| pair.server.handle_admission(now, Verdict::Wait { ahead: *ahead }));
        pair.server.handle_timeout(now);
        std::iter::from_fn(|| pair.server.poll_output(now)).filter_map(ahead).collect()
    };
    assert!(told(now, &[3, 2]).is_empty(), "a test that is at its end is not worth a word");
    assert_eq!(told(now + Nanos::from_millis(200), &[2]), [2]);
    assert_eq!(told(now + Nanos::from_millis(300), &[2, 2, 1, 1]), [1]);
}

#[test]
fn caps_are_refused_with_the_field_or_set_the_pace() {
    let caps = Caps { duration: Nanos::from_secs(5), rate: Some(BitRate::from_gbit(1)), ..Caps::default() };
    let long = UdpParameters { amount: Amount::DurationNs(6_000_000_000), ..parameters(TestDirection::Forward) };
    let mut pair = Pair::with_caps(long, caps);
    pair.run();
    let error = pair.error(Side::Client);
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("test_too_long", "`duration_ns` 6s: this server allows 5s")
    );

    let caps = Caps { rate: Some(BitRate(10_000_000)), ..Caps::default() };
    let mut pair = Pair::with_caps(UdpParameters { pace: Pace::Unlimited, ..parameters(TestDirection::Forward) }, caps);
    pair.run();
    let end = pair.test_end(Side::Client);
    assert_eq!(end.parameters.udp().unwrap().pace, Pace::RateBps(10_000_000));
    assert_eq!(end.caveats[0].code, "rate_capped");
}

#[test]
fn a_sender_that_runs_over_is_stopped() {
    let caps = Caps { duration: Nanos::from_secs(3), ..Caps::default() };
    // Packets for 20 s where the server allows 3 s.
    let endless = UdpParameters { amount: Amount::Packets(20_000), ..parameters(TestDirection::Reverse) };
    let mut pair = Pair::with_caps(endless, caps);
    pair.run();
    let result = result(&pair.test_end(Side::Client), true);
    assert!((2_900..3_100).contains(&result.sent_packets), "{}", result.sent_packets);
}
