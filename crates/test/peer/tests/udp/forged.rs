//! What somebody forges who is neither of the hosts, nor on the way between them: ICMP messages, and datagrams that seem damaged.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_kernel::signals::Stop;
use longhaul_lab::Lab;
use longhaul_peer::client::{self, Source, Target};
use longhaul_peer::server::{DataPort, ServeOptions, Server};
use longhaul_result::Location;
use longhaul_rtt::RttParameters;
use longhaul_session::{TestEnd, TestParameters};
use longhaul_terms::{Amount, Collect, TestDirection};
use longhaul_udp::UdpParameters;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket};

use crate::hosts::*;

const CLIENT_PORT: u16 = 7_100;
const SERVER_PORT: u16 = 5_210;

/// An ICMP message about a datagram from `own` to `peer`.
fn icmp(kind: u8, code: u8, own: SocketAddrV4, peer: SocketAddrV4) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 60, 0, 1, 0, 0, 60, 17, 0, 0];
    message.extend(own.ip().octets());
    message.extend(peer.ip().octets());
    message.extend(own.port().to_be_bytes());
    message.extend(peer.port().to_be_bytes());
    message.extend([0, 40, 0, 0]);
    // RFC 1071.
    let sum: u32 = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Sends `own` messages about its datagrams to `peer` from another host of the lab, some 1,500 a second, until it is `over`.
fn forge(lab: &Lab, from: &str, own: SocketAddrV4, peer: SocketAddrV4, over: &AtomicBool) {
    // Parameter problem, host unreachable, prohibited, protocol unreachable, port unreachable.
    let messages = [(12, 0), (3, 1), (3, 13), (3, 2), (3, 3)].map(|(kind, code)| icmp(kind, code, own, peer));
    let send = || {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp).unwrap();
        let to = SockaddrIn::from(SocketAddrV4::new(*own.ip(), 0));
        for message in messages.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
            sendto(socket.as_raw_fd(), message, &to, MsgFlags::empty()).unwrap();
            std::thread::sleep(Duration::from_micros(500));
        }
    };
    lab.host(from).unwrap().namespace.enter(send).unwrap();
}

/// A server that serves until the process ends; client and server have data ports that anybody knows. Their addresses.
fn known_ports(lab: &Lab) -> (Target, SocketAddrV4, SocketAddrV4) {
    let [client, server] = ["client", "server"].map(|host| lab.host(host).unwrap().plan.ipv4);
    let namespace = lab.host("server").unwrap().namespace.try_clone().unwrap();
    let (ready, bound) = std::sync::mpsc::channel();
    let stop = Stop::install().unwrap();
    std::thread::spawn(move || {
        namespace.enter_for_good().unwrap();
        let options = ServeOptions { data_port: DataPort::Fixed(SERVER_PORT), ..options(None) };
        let server = Server::bind(SocketAddr::new(server.into(), 0), options).unwrap();
        ready.send(server.address().unwrap()).unwrap();
        server.run(Some(stop), false, |_| {}).unwrap();
    });
    let source = Source { data_port: Some(CLIENT_PORT), ..Source::default() };
    let target = Target { source, ..Target::at(bound.recv().unwrap(), None) };
    (target, SocketAddrV4::new(client, CLIENT_PORT), SocketAddrV4::new(server, SERVER_PORT))
}

/// Sends datagrams with a wrong checksum from `port` of the client to `peer`, some 1,500 a second, until it is `over`.
fn send_damaged(lab: &Lab, port: u16, peer: SocketAddrV4, over: &AtomicBool) {
    // Ports, length, checksum; what follows is no cookie of a test.
    let mut datagram = [0; 48];
    datagram[..2].copy_from_slice(&port.to_be_bytes());
    datagram[2..4].copy_from_slice(&peer.port().to_be_bytes());
    datagram[4..8].copy_from_slice(&[0, 48, 0xde, 0xad]);
    let send = || {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Udp).unwrap();
        let to = SockaddrIn::from(SocketAddrV4::new(*peer.ip(), 0));
        while !over.load(Ordering::Relaxed) {
            sendto(socket.as_raw_fd(), &datagram, &to, MsgFlags::empty()).unwrap();
            std::thread::sleep(Duration::from_micros(500));
        }
    };
    lab.host("client").unwrap().namespace.enter(send).unwrap();
}

/// A test of `asked` from the client, while `disturbs` runs until it is over.
fn disturbed(
    lab: &Lab,
    target: &Target,
    asked: impl Into<TestParameters> + Send,
    disturbs: impl FnOnce(&AtomicBool) + Send,
) -> TestEnd {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| disturbs(&over));
        let test = || client::run(target, asked, None, |_| {});
        let end = lab.host("client").unwrap().namespace.enter(test).unwrap();
        over.store(true, Ordering::Relaxed);
        end.unwrap()
    })
}

/// Of a damaged packet whose cookie is wrong only ports and addresses tell: the port of the test alone, to which anybody may send, does not.
#[test]
fn damaged_datagrams_of_others_take_no_loss_from_the_path() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 50 }\n");
    let (target, _, server) = known_ports(&lab);
    for (port, is_peers) in [(CLIENT_PORT + 1, false), (CLIENT_PORT, true)] {
        let end = disturbed(&lab, &target, parameters(3_000), |over| send_damaged(&lab, port, server, over));
        let result = result(&end, false);
        let lost = lost_at(&result);
        assert!((20..=80).contains(&result.lost_packets), "{lost:?}");
        if is_peers {
            assert!(lost.iter().any(|(at, _)| *at == Location::ReceiverStack), "{lost:?}");
        } else {
            assert_eq!(lost, [(Location::Network, result.lost_packets)]);
        }
    }
    assert!(counter(&lab, "server", "Udp", "InCsumErrors") > 100, "they came");
}

/// Until the client has proven its address, anybody's datagrams come to the socket of a test, and it counts what it drops of them.
#[test]
fn what_a_socket_dropped_before_the_proof_is_none_of_the_test() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '50ms'\n[[forward]]\nloss = { every = 50 }\n");
    let (target, _, server) = known_ports(&lab);
    let asked = UdpParameters { collect: Collect::Counters, ..parameters(3_000) };
    let end = disturbed(&lab, &target, asked, |over| send_damaged(&lab, CLIENT_PORT + 1, server, over));
    let lost = lost_at(&result(&end, false));
    assert!(!lost.iter().any(|(at, _)| *at == Location::ReceiverStack), "{lost:?}");
    assert!(counter(&lab, "server", "Udp", "InCsumErrors") > 100, "they came");
}

/// Anybody may send to the port of a responder: it reads what its client sent, and nothing else fills its buffer.
#[test]
fn who_floods_a_responder_loses_none_of_its_probes() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let (target, _, server) = known_ports(&lab);
    // Of the server's own host, so that nothing else is full.
    let flood = |over: &AtomicBool| {
        let socket = UdpSocket::bind((*server.ip(), 0)).unwrap();
        while !over.load(Ordering::Relaxed) {
            for _ in 0..600 {
                // Where no socket takes it, that is told by ICMP.
                let _ = socket.send_to(&[0], server);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let asked = RttParameters { amount: Amount::Packets(200), interval_ns: 5_000_000, ..RttParameters::default() };
    let of_server = |over: &AtomicBool| lab.host("server").unwrap().namespace.enter(|| flood(over)).unwrap();
    let end = disturbed(&lab, &target, asked, of_server);
    let responder = end.responder().unwrap();
    assert_eq!((responder.received, responder.answered, responder.dropped), (200, 200, 0));
    assert!(counter(&lab, "server", "Udp", "NoPorts") > 10_000, "no socket took them");
}

#[test]
fn icmp_errors_neither_end_a_test_nor_lose_its_packets() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let (target, client, server) = known_ports(&lab);
    for (direction, wire) in [
        (TestDirection::Forward, true),
        (TestDirection::Forward, false),
        (TestDirection::Reverse, true),
        (TestDirection::Reverse, false),
    ] {
        let backward = direction.server_sends();
        let (own, peer, forger) = if backward { (server, client, "client") } else { (client, server, "server") };
        let asked = UdpParameters { direction, wire, ..parameters(3_000) };
        let end = disturbed(&lab, &target, asked, |over| forge(&lab, forger, own, peer, over));
        let (result, caveats) = assemble(&end, backward);
        assert!(!caveats.iter().any(|caveat| caveat.code == "sender_stopped"), "{direction:?} {wire}: {caveats:?}");
        let said = format!("{direction:?} {wire}: {:?}", reasons(&result));
        assert_eq!((result.sent_packets, result.lost_packets), (3_000, 0), "{said}");
    }
    assert!(counter(&lab, "client", "Icmp", "InDestUnreachs") > 100, "they came");
    assert!(counter(&lab, "server", "Icmp", "InParmProbs") > 20, "they came");
}
