//! TCP tests between a client and a server in virtual time.

use crate::common::{CLIENT, DELAY, Pair, Side, randomness};
use longhaul_channel::PROTOCOL;
use longhaul_session::{ClientConfig, ClientSession, Hello, Message, Output, ServerConfig, ServerSession, Verdict};
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::{Amount, StreamSent, TestDirection};
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

#[test]
fn a_server_without_tcp_tests_is_reported() {
    let now = Nanos::from_secs(1);
    let config = ClientConfig { parameters: TcpParameters::default().into(), nonce: 1, report_bytes: 1 << 20 };
    let mut client = ClientSession::new(now, config);
    let said = |client: &mut ClientSession| std::iter::from_fn(|| client.poll_output()).collect::<Vec<_>>();
    assert!(
        matches!(&said(&mut client)[..], [Output::SendMessage(Message::Hello(_))]),
        "it waits for the server's hello"
    );
    client.handle_message(now, Message::Hello(Hello { version: PROTOCOL.into(), nonce: 2, features: Vec::new() }));
    let outputs = said(&mut client);
    let Some(Output::Failed(error)) = outputs.last() else { panic!("{outputs:?}") };
    assert_eq!((error.code.as_str(), error.message.as_str()), ("unknown_test", "the server does not know TCP tests"));
}

#[test]
fn no_bulk_before_every_connection_has_said_the_cookie() {
    let now = Nanos::from_secs(1);
    let peer: std::net::SocketAddr = CLIENT.parse().unwrap();
    let mut server = ServerSession::new(now, ServerConfig { peer: peer.ip(), caps: Default::default() }, randomness(9));
    server.handle_message(now, Message::Hello(Hello { version: PROTOCOL.into(), nonce: 0, features: vec![] }));
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
