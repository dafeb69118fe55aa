//! Nothing that a peer sends makes a session or a channel panic, hang or grow without bound.

use crate::common::{CLIENT, randomness};
use longhaul_channel::{Channel, ChannelError, Key, PROTOCOL, Role};
use longhaul_result::Location;
use longhaul_session::{
    ClientConfig, ClientSession, DataEvent, Hello, Message, Output, Progress, Refusal, ServerConfig, ServerSession,
    SessionError, TestParameters, Verdict,
};
use longhaul_tcp::TcpParameters;
use longhaul_terms::{StreamSent, TestDirection};
use longhaul_udp::account::{Counts, LossMap, ReorderingSummary, Run, StreamReceived, Trains};
use longhaul_udp::locate::{Total, TotalScope};
use longhaul_udp::{UdpEndReport, UdpParameters, UdpReceiverReport, UdpResult, UdpSenderReport};
use longhaul_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CASES: usize = 10_000;

fn key(seed: u8) -> Key {
    let bytes: [u8; 32] = std::array::from_fn(|index| index as u8 ^ seed);
    Key::from_random(bytes).unwrap()
}

fn below(random: &mut impl Rng, limit: u64) -> u64 {
    random.next_u64() % limit
}

/// A message of any type.
fn message(random: &mut impl Rng) -> Message {
    let text = |random: &mut dyn FnMut() -> u64| "\u{1b}[2Jé\"".repeat((random() % 50) as usize);
    let mut next = || random.next_u64();
    let error = SessionError::new("x", text(&mut next), text(&mut next));
    // Several of them are signs of life, so that some sequences get further.
    match next() % 18 {
        0 => Message::Hello(Hello {
            version: if next() % 4 == 0 { text(&mut next) } else { PROTOCOL.into() },
            nonce: next(),
            features: vec![longhaul_session::kind::tcp::FEATURE.into()],
            measurement: (next() % 2 == 0).then(|| longhaul_session::MeasurementId([next(), next()])),
        }),
        1 if next() % 2 == 0 => Message::Propose {
            parameters: TcpParameters { streams: next() as u8 % 80, ..TcpParameters::default() }.into(),
        },
        1 => Message::Propose {
            parameters: UdpParameters { streams: next() as u8 % 80, ..UdpParameters::default() }.into(),
        },
        2 => Message::Queued { ahead: next() as u32 },
        3 => Message::DataProven,
        4 => Message::Start,
        5 => Message::Progress(Progress { received_packets: next(), ..Progress::default() }),
        6 => Message::Stop,
        7 => Message::Finished {
            streams: vec![StreamSent { sent_packets: next(), ..StreamSent::default() }; (next() % 3) as usize],
        },
        8 => Message::Drained,
        9 => Message::Report { text: text(&mut next), last: next() % 2 == 0 },
        10 => Message::Error(error),
        11 => Message::Refuse(Refusal { error, retry_after: Some(Nanos(next())) }),
        12 => Message::Goodbye,
        _ => Message::Alive,
    }
}

/// Drives a server like its driver, and returns whether it sent bulk data.
fn drive(server: &mut ServerSession, now: Nanos) -> bool {
    let mut bulk = false;
    let mut outputs = 0;
    while let Some(output) = server.poll_output(now) {
        outputs += 1;
        assert!(outputs < 1000, "endless output");
        match output {
            Output::RequestAdmission { .. } => server.handle_admission(now, Verdict::Run),
            Output::OpenData(plan) => {
                server.handle_data_opened(now, vec![5210; plan.parameters.kind().streams().into()], vec![]);
            }
            Output::StartSending { .. } => bulk = true,
            Output::StopSending => server.handle_data(now, DataEvent::Sent(vec![])),
            _ => {}
        }
    }
    bulk
}

#[test]
fn ten_thousand_sequences_of_messages() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let peer = CLIENT.parse::<std::net::SocketAddr>().unwrap();
    let mut furthest = 0;
    for _ in 0..CASES {
        let mut now = Nanos::from_secs(5);
        let config = ServerConfig { peer: peer.ip(), caps: Default::default() };
        let mut server = ServerSession::new(now, config, randomness(1));
        let direction = TestDirection::Bidirectional;
        let parameters: TestParameters = match below(&mut random, 2) {
            0 => UdpParameters { direction, ..UdpParameters::default() }.into(),
            _ => TcpParameters { direction, ..TcpParameters::default() }.into(),
        };
        let mut client = ClientSession::new(
            now,
            ClientConfig { parameters: parameters.clone(), nonce: 1, measurement: None, report_bytes: 1 << 16 },
        );
        if below(&mut random, 2) == 0 {
            server.handle_message(
                now,
                Message::Hello(Hello { version: PROTOCOL.into(), nonce: 0, features: vec![], measurement: None }),
            );
            server.handle_message(now, Message::Propose { parameters });
        }
        for step in 0..20 {
            now += Nanos(below(&mut random, 3_000_000_000));
            let message = message(&mut random);
            server.handle_message(now, message.clone());
            client.handle_message(now, message);
            let mut datagram = [0; 40];
            random.fill_bytes(&mut datagram);
            let length = below(&mut random, 40) as usize;
            server.handle_data_probe(now, peer, &datagram[..length]);
            client.handle_data_probe(now, 0, &datagram[..length]);
            assert_eq!(server.handle_data_hello(now, peer, &datagram[..length.min(24)]), None);
            assert!(!drive(&mut server, now), "no bulk without proof");
            while let Some(output) = client.poll_output() {
                if let Output::OpenData(_) = output {
                    client.handle_data_opened(now);
                }
            }
            server.handle_timeout(now);
            client.handle_timeout(now);
            if !server.is_over() {
                furthest = furthest.max(step);
            }
        }
    }
    assert!(furthest > 2, "the messages got somewhere");
}

/// Valid byte streams with and without key: cut off, with changed bytes, or pure noise.
#[test]
fn ten_thousand_broken_byte_streams() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
    let (mut understood, mut refused) = (0, 0);
    for case in 0..CASES {
        let keyed = case % 4 == 0;
        let channel = |side, seed| if keyed { Channel::keyed(side, &key(1), [seed; 32]) } else { Channel::plain(side) };
        let (mut client, mut server) = (channel(Role::Client, 5), channel(Role::Server, 6));
        let mut bytes = client.poll_transmit().unwrap();
        if below(&mut random, 8) > 0 {
            // Complete the handshake, so that the damage is in what follows.
            server.handle_bytes(&bytes).unwrap();
            client.handle_bytes(&server.poll_transmit().unwrap()).unwrap();
            bytes.clear();
        }
        for _ in 0..below(&mut random, 4) {
            client.send(&message(&mut random)).unwrap();
        }
        bytes.extend(client.poll_transmit().unwrap_or_default());
        match below(&mut random, 4) {
            0 => bytes.truncate(below(&mut random, bytes.len() as u64 + 1) as usize),
            1 if !bytes.is_empty() => {
                for _ in 0..3 {
                    let at = below(&mut random, bytes.len() as u64) as usize;
                    bytes[at] = random.next_u32() as u8;
                }
            }
            2 => {
                bytes.resize(below(&mut random, 300) as usize, 0);
                random.fill_bytes(&mut bytes);
            }
            _ => {}
        }
        let piece = 1 + below(&mut random, 70) as usize;
        let mut outcome = Ok(());
        for piece in bytes.chunks(piece) {
            outcome = server.handle_bytes(piece);
            while server.poll_message().is_some() {
                understood += 1;
            }
            if outcome.is_err() {
                break;
            }
        }
        refused += u32::from(outcome.is_err());
        // After an error a keyed channel sends nothing unencrypted.
        if outcome.is_err() && keyed {
            server.poll_transmit();
            server.send(&Message::Goodbye).unwrap();
            assert_eq!(server.poll_transmit(), None);
        }
    }
    assert!(understood > 1_000 && refused > 1_000, "{understood} {refused}");
}

#[test]
fn what_is_not_json_of_ours_is_an_error_and_no_more() {
    let deep = format!("{{\"type\":\"hello\",\"version\":{}", "[".repeat(100_000));
    let wide = format!("{{\"type\":\"report\",\"text\":\"\",\"last\":true,\"x\":[{}0]}}", "0,".repeat(100_000));
    for (text, good) in
        [("{\"type\":\"alive\"}", true), ("{\"type\":\"launch\"}", false), (&deep, false), (&wide, false)]
    {
        let mut channel = Channel::<Message>::plain(Role::Server);
        channel.handle_bytes(b"longhaul/1 plain").unwrap();
        channel.trust();
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        assert_eq!(channel.handle_bytes(&bytes).is_ok(), good);
    }
    let mut channel = Channel::<Message>::plain(Role::Server);
    assert_eq!(channel.handle_bytes(b"GET / HTTP/1.1\r\n"), Err(ChannelError::NotLonghaul));
    assert_eq!(channel.poll_transmit(), None, "strangers get no answer");
}

/// A report in which every number has the greatest possible value.
#[test]
fn a_report_that_lies_gives_a_result_with_caveats() {
    let losses = LossMap::of_runs(u64::MAX, [Run { first_sequence: 5, packets: u64::MAX }]);
    let reordering = ReorderingSummary { extent_unknown_packets: u64::MAX, ..ReorderingSummary::default() };
    let counts = Counts { received_packets: u64::MAX, out_of_range_packets: u64::MAX, reordering, ..Counts::default() };
    let stream = StreamReceived {
        packets: None,
        counts,
        jitter_ns: None,
        delay_over_least: None,
        trains: Some(Trains { gaps: u64::MAX, mean_ns: u64::MAX, ..Trains::default() }),
        first_arrival_ns: u64::MAX,
        last_arrival_ns: 0,
        losses,
        traffic_classes: Default::default(),
    };
    let total =
        Total { location: Location::ReceiverRing, reason: "x".into(), packets: u64::MAX, scope: TotalScope::Host };
    let receiver =
        UdpReceiverReport { streams: vec![stream; 64], totals: vec![total; 3], ..UdpReceiverReport::default() };
    let streams =
        vec![StreamSent { sent_packets: u64::MAX, first_sent_ns: 0, last_sent_ns: u64::MAX, sent_bytes: u64::MAX }; 64];
    let sender = UdpSenderReport { streams, ..UdpSenderReport::default() };
    let text = serde_json::to_string(&UdpEndReport { receiver: Some(receiver), ..UdpEndReport::default() }).unwrap();
    let receiver = serde_json::from_str::<UdpEndReport>(&text).unwrap().receiver.unwrap();
    let parameters = UdpParameters { payload_bytes: u32::MAX, wire: true, ..UdpParameters::default() };
    let assembled = UdpResult::assemble(&parameters, &sender, &receiver);
    assert_eq!(assembled.result.received_packets, 64 * 5);
    assert_eq!(assembled.result.reordering.extent_unknown_packets, u64::MAX);
    assert!(assembled.caveats.iter().any(|caveat| caveat.code == "accounts_differ"));
}
