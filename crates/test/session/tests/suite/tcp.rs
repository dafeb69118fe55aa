//! TCP tests between a client and a server in virtual time.

use crate::common::{CLIENT, DELAY, Pair, Side, randomness};
use longhaul_channel::PROTOCOL;
use longhaul_session::limits::BESIDE_DATA;
use longhaul_session::{
    ClientConfig, ClientSession, EndReport, Hello, Message, Output, ServerConfig, ServerSession, TestParameters,
    Verdict,
};
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::{Amount, StreamSent, TestDirection};
use longhaul_udp::UdpParameters;
use longhaul_units::{BitRate, Nanos};

fn parameters(direction: TestDirection) -> TcpParameters {
    TcpParameters { amount: Amount::DurationNs(2_000_000_000), streams: 3, direction, ..TcpParameters::default() }
}

#[test]
fn a_test_in_each_direction() {
    for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
        let asked = parameters(direction);
        let mut pair = Pair::new(asked.clone());
        let took = pair.run();
        let (client, server) = (pair.test_end(Side::Client), pair.test_end(Side::Server));
        assert_eq!((client.parameters.tcp(), server.parameters.tcp()), (Some(&asked), Some(&asked)));
        assert!(client.remote.is_some());
        // Hello, proposal, connections and their answer, start, data, drained, report, goodbye: nothing waits for a timer.
        assert!(took < Nanos::from_secs(2) + Nanos(DELAY.0 * 14), "{direction:?}: {took}");
        let sends = [(Side::Client, direction.client_sends()), (Side::Server, direction.server_sends())];
        for (side, sends) in sends {
            let sent: u64 = pair.end(side).sent.iter().map(|sent: &StreamSent| sent.sent_bytes).sum();
            assert_eq!(sent > 0, sends, "{direction:?} {side:?}");
        }
    }
}

/// The server's answer can arrive before the client's own threads report.
#[test]
fn connections_can_be_proven_before_the_driver_reports_them() {
    let mut pair = Pair::new(parameters(TestDirection::Bidirectional));
    pair.connected_after = Nanos(DELAY.0 * 6);
    pair.run();
    assert!(pair.test_end(Side::Client).remote.is_some());
}

/// What the client says of a server whose hello has `features`.
fn error_beside(parameters: impl Into<TestParameters>, features: &[&str]) -> Option<(String, String)> {
    let now = Nanos::from_secs(1);
    let config = ClientConfig { parameters: parameters.into(), nonce: 1, measurement: None, report_bytes: 1 << 20 };
    let mut client = ClientSession::new(now, config);
    let said = |client: &mut ClientSession| std::iter::from_fn(|| client.poll_output()).collect::<Vec<_>>();
    assert!(
        matches!(&said(&mut client)[..], [Output::SendMessage(Message::Hello(_))]),
        "it waits for the server's hello"
    );
    let features = features.iter().map(|feature| (*feature).to_owned()).collect();
    client
        .handle_message(now, Message::Hello(Hello { version: PROTOCOL.into(), nonce: 2, features, measurement: None }));
    match said(&mut client).pop() {
        Some(Output::Failed(error)) => Some((error.code, error.message)),
        Some(Output::SendMessage(Message::Propose { .. })) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_is_too_old_for_a_test_is_reported() {
    let error = |text: &str| Some(("unknown_test".to_owned(), text.to_owned()));
    assert_eq!(error_beside(TcpParameters::default(), &[]), error("the server does not support TCP tests"));
    assert_eq!(error_beside(TcpParameters::default(), &["tcp"]), None);
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let rows = UdpParameters { each_packet: true, direction, ..UdpParameters::default() };
        let old = error("the server cannot report when each packet arrived");
        assert_eq!(error_beside(rows.clone(), &["tcp", "rtt", "receive_settings"]), old);
        assert_eq!(error_beside(rows, &["each_packet"]), None);
        let whole = UdpParameters { dont_fragment: true, direction, ..UdpParameters::default() };
        let old = error("the server does not support `dont_fragment`");
        assert_eq!(error_beside(whole.clone(), &["tcp", "rtt", "each_packet"]), old);
        assert_eq!(error_beside(whole, &["dont_fragment"]), None);
        let class = error("the server does not support `traffic_class`");
        let marked = UdpParameters { traffic_class: 0x2e << 2, direction, ..UdpParameters::default() };
        assert_eq!(error_beside(marked.clone(), &["tcp", "rtt", "each_packet"]), class);
        assert_eq!(error_beside(marked, &["traffic_class"]), None);
        let marked = TcpParameters { traffic_class: 1, direction, ..TcpParameters::default() };
        assert_eq!(error_beside(marked.clone(), &["tcp"]), class);
        assert_eq!(error_beside(marked, &["tcp", "traffic_class"]), None);
    }
}

#[test]
fn no_bulk_before_every_connection_has_said_the_cookie() {
    let now = Nanos::from_secs(1);
    let peer: std::net::SocketAddr = CLIENT.parse().unwrap();
    let mut server = ServerSession::new(now, ServerConfig { peer: peer.ip(), caps: Default::default() }, randomness(9));
    server.handle_message(
        now,
        Message::Hello(Hello { version: PROTOCOL.into(), nonce: 0, features: vec![], measurement: None }),
    );
    let asked = TcpParameters { streams: 2, ..parameters(TestDirection::Reverse) };
    server.handle_message(now, Message::Propose { parameters: asked.into() });
    let mut cookie = None;
    let mut proven = false;
    let mut drive = |server: &mut ServerSession, now| {
        while let Some(output) = server.poll_output(now) {
            match output {
                Output::RequestAdmission { .. } => server.handle_admission(now, Verdict::Run),
                Output::OpenData(plan) => {
                    cookie = Some(plan.tcp_cookie);
                    server.handle_data_opened(now, vec![5210], Vec::new());
                }
                Output::SendMessage(Message::DataProven) => proven = true,
                Output::StartSending { .. } => assert!(proven, "bulk without proof"),
                _ => {}
            }
        }
        (cookie, proven)
    };
    let (cookie, _) = drive(&mut server, now);
    let cookie = cookie.unwrap();
    let id = |stream| TcpStreamId { backward: true, stream };
    let mut wrong = cookie.hello(id(0));
    wrong[23] ^= 1;
    assert_eq!(server.handle_data_hello(now, peer, &wrong), None);
    let stranger = "198.51.100.7:9".parse().unwrap();
    assert_eq!(server.handle_data_hello(now, stranger, &cookie.hello(id(0))), None);
    assert_eq!(server.handle_data_hello(now, peer, &cookie.hello(id(0))), Some(id(0)));
    assert_eq!(server.handle_data_hello(now, peer, &cookie.hello(id(0))), None, "taken");
    assert!(!drive(&mut server, now).1);
    assert_eq!(server.handle_data_hello(now, peer, &cookie.hello(id(1))), Some(id(1)));
    assert!(drive(&mut server, now).1);
    server.handle_message(now, Message::Start);
    drive(&mut server, now);
    assert_eq!(server.handle_data_hello(now, peer, &cookie.hello(id(1))), None, "too late");
}

/// At each step the client has the server wait for as long as it may, with signs of life.
#[test]
fn a_client_that_does_not_end_its_test_keeps_its_place_for_a_bounded_time() {
    let (taken, second) = (Nanos::from_secs(1), Nanos::from_secs(1));
    let peer: std::net::SocketAddr = CLIENT.parse().unwrap();
    let config = ServerConfig { peer: peer.ip(), caps: Default::default() };
    let mut server = ServerSession::new(taken, config, randomness(9));
    let hello = Hello { version: PROTOCOL.into(), nonce: 0, features: vec![], measurement: None };
    server.handle_message(taken, Message::Hello(hello));
    let asked = TcpParameters { amount: Amount::DurationNs(second.0), streams: 1, ..TcpParameters::default() };
    server.handle_message(taken, Message::Propose { parameters: asked.into() });
    let (mut reported, mut failed) = (false, None);
    let mut drive = |server: &mut ServerSession, now| {
        while let Some(output) = server.poll_output(now) {
            match output {
                Output::RequestAdmission { .. } => server.handle_admission(now, Verdict::Run),
                Output::OpenData(plan) => {
                    server.handle_data_opened(now, vec![5210], Vec::new());
                    let id = TcpStreamId { backward: false, stream: 0 };
                    server.handle_data_hello(now, peer, &plan.tcp_cookie.hello(id)).unwrap();
                }
                Output::CollectReport => server.handle_report(now, EndReport::default()),
                Output::SendMessage(Message::Report { last, .. }) => reported |= last,
                Output::Failed(error) => failed = Some(error.code),
                _ => {}
            }
        }
    };
    drive(&mut server, taken);
    let started = taken + Nanos::from_secs(29);
    let finished = started + second + Nanos::from_secs(29);
    let mut now = taken;
    while !server.is_over() {
        now += second;
        let message = match now {
            _ if now == started => Message::Start,
            _ if now == finished => Message::Finished { streams: vec![StreamSent::default()] },
            _ => Message::Alive,
        };
        server.handle_message(now, message);
        server.handle_timeout(now);
        drive(&mut server, now);
    }
    assert_eq!((reported, failed.as_deref()), (true, Some("report_timeout")));
    let held = now - taken;
    assert!(held <= BESIDE_DATA + second + second, "{held}");
}

#[test]
fn connections_that_never_come_end_the_test() {
    let mut pair = Pair::new(parameters(TestDirection::Forward));
    pair.data_up = false;
    // The path's data is down: hellos are refused by the pair's server as unknown, so drop them.
    pair.dead = Some(Side::Server);
    pair.run();
    assert_eq!(pair.error(Side::Client).code, "setup_timeout");
}

#[test]
fn caps_hold_for_tcp() {
    let caps = longhaul_session::Caps { rate: Some(BitRate::from_gbit(3)), ..Default::default() };
    let mut pair = Pair::with_caps(parameters(TestDirection::Forward), caps);
    pair.run();
    let end = pair.test_end(Side::Client);
    assert_eq!(end.parameters.tcp().unwrap().pace_bps, Some(1_000_000_000));
    assert!(end.caveats.iter().any(|caveat| caveat.code == "rate_capped"), "{:?}", end.caveats);
    let caps = longhaul_session::Caps { streams: 2, ..Default::default() };
    let mut pair = Pair::with_caps(parameters(TestDirection::Forward), caps);
    pair.run();
    assert_eq!(pair.error(Side::Client).message, "`streams` 3: this server allows 2");
}
