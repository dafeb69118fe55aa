//! Datagrams arrive as they were sent, in batches and one by one, over IPv4 and IPv6.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::udp::{
    EchoSocket, ReceiveSlots, ReceiverOptions, SendBatch, SenderOptions, TimestampMode, UdpOpenError, UdpReceiveError,
    UdpReceiver, UdpSendError, UdpSender, Unsent,
};
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use crate::cable::{Cable, LEFT_IP, RIGHT_IP, unprivileged};
use crate::pair::{LEFT_IP6, Pair, RIGHT_IP6, address_v6, receive_numbered, roomy, send_numbered};

const PATIENCE: Nanos = Nanos::from_secs(5);

fn counts_are_exact(pair: &Pair, bytes: usize, singly: bool) {
    const COUNT: u64 = 3_000;
    let mut slots = ReceiveSlots::new(16, 65_536, true);
    // In parts that the receive buffer holds: both ends are in one thread.
    for first in (0..COUNT).step_by(500) {
        send_numbered(&pair.sender, first, 500, bytes, singly);
        let numbers = receive_numbered(&pair.receiver, &mut slots, 500, PATIENCE);
        assert_eq!(numbers, (first..first + 500).collect::<Vec<_>>(), "{bytes} bytes, singly {singly}");
    }
    assert_eq!(pair.receiver.memory().unwrap().drops, 0);
}

#[test]
fn numbered_datagrams_make_the_round_in_every_size() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    assert_eq!(pair.sender.path_mtu_bytes().unwrap(), 1500);
    for (bytes, singly) in [(18, false), (1448, false), (1472, false), (1472, true), (18, true), (3_000, true)] {
        counts_are_exact(&pair, bytes, singly);
    }
}

#[test]
fn ipv6_too() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    if !address_v6(&cable) {
        return;
    }
    let pair = Pair::over(cable, LEFT_IP6.into(), RIGHT_IP6.into(), SenderOptions::default(), roomy());
    assert_eq!(pair.sender.path_mtu_bytes().unwrap(), 1500);
    for (bytes, singly) in [(18, false), (1428, false), (1452, false), (1452, true)] {
        counts_are_exact(&pair, bytes, singly);
    }
    let mut slots = ReceiveSlots::new(1, 65_536, true);
    pair.sender.send(b"who", true).unwrap();
    assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), 1);
    assert_eq!(slots.packets().next().unwrap().source, Some(pair.sender.local_address()));
}

#[test]
fn a_super_packet_stays_whole_only_with_gro() {
    if unprivileged() {
        return;
    }
    for (gro, packets, segment) in [(true, 1, 1000), (false, 11, 1000)] {
        let pair = Pair::v4(SenderOptions::default(), ReceiverOptions { gro, ..roomy() });
        let sent = pair.sender.send_segments(&[7; 10_400], 1000, true);
        assert!(sent.unsent.is_none() && sent.datagrams == 11, "{sent:?}");
        let mut slots = ReceiveSlots::new(20, 65_536, true);
        assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), packets);
        let first = slots.packets().next().unwrap();
        assert_eq!((first.segment_bytes, first.source), (segment, Some(pair.sender.local_address())));
        assert!(!first.truncated && first.dropped_before == 0);
        let lengths: Vec<usize> = slots.datagrams().map(|d| d.bytes.len()).collect();
        assert_eq!(lengths, [[1000; 10].as_slice(), &[400]].concat());
    }
}

#[test]
fn no_more_than_a_super_packet_holds_is_sent_at_once() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let sent = pair.sender.send_segments(&[1; 300 * 20], 20, true);
    assert!(sent.unsent.is_none());
    assert_eq!(sent.datagrams, pair.sender.segments_most(20));
    assert!([64, 128].contains(&sent.datagrams), "{sent:?}");
    assert_eq!(pair.sender.segments_most(1448), 45);
    assert_eq!(pair.sender.segments_most(60_000), 1);
    let mut slots = ReceiveSlots::new(4, 65_536, true);
    let mut got = 0;
    while got < sent.datagrams {
        assert!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap() > 0);
        got += slots.datagrams().count();
    }
    assert_eq!(got, sent.datagrams);
    // More than the link's MTU a segment cannot have.
    let sent = pair.sender.send_segments(&[1; 6000], 3000, true);
    let refused = matches!(&sent.unsent, Some(Unsent::Because(UdpSendError::MessageTooLong | UdpSendError::Other(_))));
    assert!(refused && sent.datagrams == 0, "{sent:?}");
}

#[test]
fn stamps_say_where_they_were_made() {
    if unprivileged() {
        return;
    }
    for timestamps in [TimestampMode::App, TimestampMode::Kernel, TimestampMode::Nic] {
        let pair = Pair::v4(SenderOptions::default(), ReceiverOptions { timestamps, ..roomy() });
        let before = realtime();
        send_numbered(&pair.sender, 0, 3, 100, true);
        let mut slots = ReceiveSlots::new(4, 2_048, false);
        while receive_numbered(&pair.receiver, &mut slots, 1, PATIENCE).is_empty() {}
        let packet = slots.packets().next().unwrap();
        assert!(before <= packet.stamp() && packet.stamp() <= realtime(), "{packet:?}");
        assert_eq!(packet.received_at_kernel.is_some(), timestamps != TimestampMode::App, "{packet:?}");
        assert!(packet.received_at_kernel.is_none_or(|kernel| kernel <= packet.received_at_app), "{packet:?}");
        assert_eq!((packet.received_at_nic, packet.source), (None, None));
    }
}

#[test]
fn an_answer_goes_back_and_one_socket_does_both() {
    if unprivileged() {
        return;
    }
    let mut pair = Pair::v4(SenderOptions::default(), roomy());
    pair.sender.send(b"cookie?", false).unwrap();
    let mut slots = ReceiveSlots::new(1, 2_048, true);
    assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), 1);
    let client = slots.packets().next().unwrap().source.unwrap();
    pair.receiver.send_to(b"cookie!", client).unwrap();

    // Reverse: the receiver's socket becomes a sender, from the same port.
    pair.receiver.connect(client).unwrap();
    let back = pair.receiver.sender(&SenderOptions::default()).unwrap();
    assert_eq!((back.local_address(), back.peer_address()), (pair.receiver.local_address(), client));
    let there = pair.sender.receiver(&roomy()).unwrap();
    assert_eq!(there.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), 1);
    assert_eq!(slots.packets().next().unwrap().bytes, b"cookie!");
    send_numbered(&back, 0, 100, 200, false);
    let mut slots = ReceiveSlots::new(8, 65_536, false);
    let numbers = receive_numbered(&there, &mut slots, 100, PATIENCE);
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[test]
fn empty_and_cut_datagrams_are_told() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let mut slots = ReceiveSlots::new(1, 100, true);
    let mut next = |datagram: &[u8]| {
        pair.sender.send(datagram, true).unwrap();
        assert!(readable_until(&pair.receiver, Some(monotonic() + PATIENCE)).unwrap());
        assert_eq!(pair.receiver.receive(&mut slots).unwrap(), 1);
        let packet = slots.packets().next().unwrap();
        assert_eq!(packet.datagrams(), 1);
        (packet.bytes.len(), packet.truncated)
    };
    assert_eq!(next(&[]), (0, false));
    assert_eq!(next(&[1; 500]), (100, true));
    assert_eq!(next(&[1; 100]), (100, false));
}

/// An ICMP message about a packet from the left host to the right one: of `protocol`, with `quoted` behind its IP header.
fn icmp_about(kind: u8, code: u8, protocol: u8, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 60, 0, 1, 0, 0, 60, protocol, 0, 0];
    message.extend(LEFT_IP.octets());
    message.extend(RIGHT_IP.octets());
    message.extend(quoted);
    // RFC 1071.
    let sum: u32 = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The same about what the pair's sender sends.
fn icmp_about_sent(pair: &Pair, kind: u8, code: u8) -> Vec<u8> {
    let [own, peer] = [pair.sender.local_address(), pair.sender.peer_address()].map(|address| address.port());
    icmp_about(kind, code, 17, &[&own.to_be_bytes()[..], &peer.to_be_bytes(), &[0, 40, 0, 0]].concat())
}

/// Has the right host send the left one the messages.
fn forge<'a>(pair: &Pair, messages: impl Iterator<Item = &'a Vec<u8>> + Send) {
    let send = || {
        let protocol = Some(ipproto::ICMP);
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, protocol).unwrap();
        for message in messages {
            sendto(&socket, message, SendFlags::empty(), &SocketAddr::new(LEFT_IP.into(), 0)).unwrap();
        }
    };
    pair.cable.right.enter(send).unwrap();
}

/// The same with one about what the pair's sender sends; waits until it is there.
fn forge_icmp(pair: &Pair, kind: u8, code: u8) {
    forge(pair, [icmp_about_sent(pair, kind, code)].iter());
    assert!(readable_until(&pair.sender, Some(monotonic() + PATIENCE)).unwrap(), "{kind}/{code}: no error came");
}

/// Anybody can forge it who knows the addresses and ports.
#[test]
fn what_icmp_says_of_earlier_datagrams_keeps_none_from_going() {
    if unprivileged() {
        return;
    }
    // What cannot be reached (network, host, protocol, port, too long, ...), a time that was exceeded, a parameter that is wrong.
    let all = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (3, 7), (3, 8), (3, 13), (11, 0), (12, 0)];
    // Those that end a connection are errors also where none are asked for.
    let fatal = [(3, 2), (3, 3), (3, 7), (3, 8), (3, 13), (12, 0)];
    for (report_drops, messages) in [(true, &all[..]), (false, &fatal[..])] {
        let pair = Pair::v4(SenderOptions { report_drops, ..SenderOptions::default() }, roomy());
        for (kind, code) in messages {
            goes_on(&pair, *kind, *code);
        }
    }
}

fn goes_on(pair: &Pair, kind: u8, code: u8) {
    let there = pair.sender.receiver(&roomy()).unwrap();
    let (mut slots, mut batch) = (ReceiveSlots::new(16, 65_536, false), SendBatch::new(3, 100));
    forge_icmp(pair, kind, code);
    pair.sender.send(&[1; 100], true).unwrap_or_else(|error| panic!("{kind}/{code}: {error}"));
    forge_icmp(pair, kind, code);
    let sent = pair.sender.send_segments(&[1; 300], 100, true);
    assert!(sent.unsent.is_none(), "{kind}/{code}: {sent:?}");
    forge_icmp(pair, kind, code);
    let sent = pair.sender.send_singly(&mut batch, 0..3, true);
    assert!(sent.unsent.is_none(), "{kind}/{code}: {sent:?}");
    assert!(!readable_until(&pair.sender, Some(monotonic())).unwrap(), "{kind}/{code}: the error queue has more");
    let mut got = 0;
    while got < 7 {
        let came = pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap();
        assert!(came > 0, "{kind}/{code}: {got}");
        got += slots.datagrams().count();
    }
    forge_icmp(pair, kind, code);
    pair.receiver.send_to(b"back", pair.sender.local_address()).unwrap();
    while there.receive_until(&mut slots, monotonic() + PATIENCE).unwrap() == 0 {}
    assert_eq!(slots.packets().next().unwrap().bytes, b"back", "{kind}/{code}");
    // A socket whose error queue has more than errors keeps them for who reads it.
    forge_icmp(pair, kind, code);
    there.send_to(b"on", pair.sender.peer_address()).unwrap_or_else(|error| panic!("{kind}/{code}: {error}"));
    assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), 1);
    pair.sender.send(b"and on", true).unwrap();
    assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + PATIENCE).unwrap(), 1);
    while there.receive_until(&mut slots, monotonic()).unwrap() > 0 {}
}

/// A thread that sends and one that receives empty the error queue, and sendmmsg does not say what ended it: a message tells, whoever has it.
#[test]
fn icmp_without_end_leaves_no_datagram_of_a_batch_behind() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let there = pair.sender.receiver(&roomy()).unwrap();
    // Protocol unreachable.
    let message = icmp_about_sent(&pair, 3, 2);
    let over = AtomicBool::new(false);
    let forged = std::iter::repeat(&message).take_while(|_| {
        std::thread::sleep(Duration::from_micros(50));
        !over.load(Ordering::Relaxed)
    });
    let unsent: Vec<Unsent> = std::thread::scope(|scope| {
        scope.spawn(|| forge(&pair, forged));
        scope.spawn(|| {
            let mut slots = ReceiveSlots::new(4, 2_048, false);
            while !over.load(Ordering::Relaxed) {
                let _ = there.receive_until(&mut slots, monotonic() + Nanos::from_millis(20));
            }
        });
        let mut batch = SendBatch::new(32, 100);
        let end = monotonic() + Nanos::from_millis(300);
        // With pauses: what comes faster than the kernel takes it up costs tests beside this one their packets.
        let times = std::iter::repeat(()).take_while(|()| {
            std::thread::sleep(Duration::from_micros(200));
            monotonic() < end
        });
        let unsent = times.filter_map(|()| pair.sender.send_singly(&mut batch, 0..32, true).unsent).collect();
        over.store(true, Ordering::Relaxed);
        unsent
    });
    // On a busy machine the other end's queue may be full.
    let refused = unsent.iter().find(|why| !matches!(why, Unsent::Because(UdpSendError::NoBuffers)));
    assert!(refused.is_none(), "{refused:?}");
}

/// Else who forges them without end fills the buffer in which the answers wait.
#[test]
fn icmp_errors_about_echoes_come_where_they_are_asked_for() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let echo = pair.cable.left.enter(|| EchoSocket::open((RIGHT_IP, 0).into(), None, 7)).unwrap().unwrap();
    let mut slots = ReceiveSlots::new(16, 2_048, false);
    for asked in [false, true] {
        if asked {
            echo.socket().report_errors().unwrap();
        }
        // Host unreachable, about an echo request. The answer to another one comes behind it.
        forge(&pair, [icmp_about(3, 1, 1, &[8, 0, 0, 0, 0, 7, 0, 1])].iter());
        echo.send(&mut [0; 16], 2).unwrap();
        let deadline = monotonic() + PATIENCE;
        while echo.receive(&mut slots).unwrap() == 0 {
            assert!(echo.wait_until(deadline).unwrap() && monotonic() < deadline, "no answer");
        }
        // A raw socket would get the message itself as well.
        assert!(slots.packets().all(|got| echo.answer(got.bytes).is_some()), "something else came");
        echo.socket().receive_sent(&mut slots).unwrap();
        assert_eq!(slots.packets().any(|packet| packet.icmp.is_some()), asked);
    }
}

#[test]
fn missing_routes_and_addresses_are_typed() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let nobody = SocketAddr::new(pair.sender.peer_address().ip(), 9);
    let open =
        |local, peer| pair.cable.left.enter(|| UdpSender::connect(local, peer, &SenderOptions::default())).unwrap();
    let elsewhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let error = open(None, elsewhere).unwrap_err();
    assert!(matches!(error, UdpOpenError::NoRoute { peer } if peer == elsewhere), "{error}");
    let error = open(Some("192.0.2.7:0".parse().unwrap()), nobody).unwrap_err();
    assert!(matches!(error, UdpOpenError::NoSuchAddress { .. }), "{error}");
    let taken = pair.receiver.local_address();
    let error = pair.cable.right.enter(|| UdpReceiver::bind(taken, &ReceiverOptions::default())).unwrap().unwrap_err();
    assert!(matches!(error, UdpOpenError::AddressInUse { address, .. } if address == taken), "{error}");
}

#[test]
fn buffers_say_what_was_given() {
    let options = ReceiverOptions { receive_buffer_bytes: Some(100_000), ..ReceiverOptions::default() };
    let receiver = UdpReceiver::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
    let grant = receiver.receive_buffer();
    assert_eq!((grant.asked_bytes, grant.given_bytes, grant.is_whole()), (Some(100_000), 200_000, true));
    assert_eq!(receiver.memory().unwrap().receive_buffer_bytes, 200_000);
    let default = UdpReceiver::bind((Ipv4Addr::LOCALHOST, 0).into(), &ReceiverOptions::default()).unwrap();
    assert!(default.receive_buffer().asked_bytes.is_none() && default.receive_buffer().given_bytes > 0);
    let options = SenderOptions { send_buffer_bytes: Some(300_000), ..SenderOptions::default() };
    let sender = UdpSender::connect(None, receiver.local_address(), &options).unwrap();
    assert_eq!(sender.memory().unwrap().send_buffer_bytes as usize, sender.send_buffer().given_bytes);
}

/// Errors that an earlier send met must not keep a receiver awake.
#[test]
fn a_receiver_is_quiet_behind_a_closed_port() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sender = UdpSender::connect(None, closed, &SenderOptions::default()).unwrap();
    let receiver = sender.receiver(&ReceiverOptions::default()).unwrap();
    let mut slots = ReceiveSlots::new(4, 2_000, true);
    for _ in 0..20 {
        let _ = sender.send(b"nobody", true);
    }
    // What was refused is said; after that there is nothing.
    let mut waited = false;
    for _ in 0..50 {
        let deadline = monotonic() + Nanos::from_millis(50);
        match receiver.receive_until(&mut slots, deadline) {
            Ok(0) => {
                waited = true;
                assert!(monotonic() >= deadline, "it came back at once, with nothing");
                break;
            }
            other => assert!(matches!(other, Err(UdpReceiveError::ConnectionRefused)), "{other:?}"),
        }
    }
    assert!(waited);
}
