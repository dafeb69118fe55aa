//! Drops at the receiving socket, and before the device where they are due to a packet that was bad.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use longhaul_bpf::drops::HostRole;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_result::Location;
use longhaul_wire::probe::{FIRST_RESERVED, Probe};
use nix::sys::socket::{setsockopt, sockopt};

use crate::hosts::{Hosts, RECEIVER_IP, watched_hosts};
use crate::{child_of_this_test, wait_for_line};

/// Receives what is there; gives the sequence numbers.
pub(crate) fn receive_all(socket: &UdpSocket) -> Vec<u64> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    let mut sequences = Vec::new();
    while let Ok(bytes) = socket.recv(&mut buffer) {
        sequences.push(Probe::parse(&buffer[..bytes]).unwrap().sequence);
    }
    sequences
}

#[test]
fn a_full_socket_buffer() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    for (ip, ipv6) in [(RECEIVER_IP.into(), false), (Hosts::receiver_ipv6(), true)] {
        watch.seen.clear();
        let socket = hosts.receiving(ip);
        setsockopt(&socket, sockopt::RcvBuf, &4096).unwrap();
        let sending = hosts.sending_to(ip);
        let before = monotonic();
        for sequence in 0..100 {
            sending.send(&hosts.payload(sequence, 500)).unwrap();
        }
        let kept = receive_all(&socket);
        assert!(!kept.is_empty() && kept.len() < 100, "{kept:?}");
        let seen = watch.until(100 - kept.len());
        assert!(
            seen.iter().all(|seen| (seen.unit_packets, seen.super_packet, seen.ipv6) == (1, false, ipv6)),
            "{seen:?}"
        );
        assert!(seen.iter().all(|seen| seen.at >= before && seen.at <= monotonic()));
        watch.print("socket buffer");
        let gone: Vec<_> = (0..100).filter(|sequence| !kept.contains(sequence)).collect();
        assert!(watch.at(Location::ReceiverSocketBuffer).into_iter().eq(gone));
    }
    assert_eq!(watch.drops.unrecorded().unwrap(), []);
}

#[test]
fn what_is_unread_when_the_socket_is_closed() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let socket = hosts.receiving(RECEIVER_IP);
    let sending = hosts.sending();
    for sequence in 0..10 {
        sending.send(&hosts.payload(sequence, 18)).unwrap();
    }
    let mut buffer = [0; 100];
    for _ in 0..3 {
        socket.recv(&mut buffer).unwrap();
    }
    assert!(watch.look().is_empty(), "what is read is no drop");
    hosts.receiver.enter(|| drop(socket)).unwrap();
    watch.until(7);
    watch.print("unread at close");
    assert!(watch.at(Location::ReceiverApplication).into_iter().eq(3..10));
}

#[test]
fn what_is_unread_when_the_process_is_killed() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let mut child = hosts.receiver.enter(|| {
        child_of_this_test("sockets::holds_a_socket")
            .env("LONGHAUL_TEST_PORT", hosts.flow.port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let child = child.as_mut().unwrap();
    wait_for_line(child, "bound");
    for sequence in 0..5 {
        hosts.sending().send(&hosts.payload(sequence, 18)).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    watch.until(5);
    watch.print("unread at kill");
    assert!(watch.at(Location::ReceiverApplication).into_iter().eq(0..5));
}

#[test]
#[ignore = "the child of a test"]
fn holds_a_socket() {
    let Some(port) = std::env::var("LONGHAUL_TEST_PORT").ok().and_then(|port| port.parse::<u16>().ok()) else { return };
    let _socket = UdpSocket::bind((RECEIVER_IP, port)).unwrap();
    println!("bound");
    let _ = Command::new("sleep").arg("60").status();
}

#[test]
fn nobody_listens() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let sending = hosts.sending();
    for sequence in 0..5 {
        // The refusal of an earlier one may come back.
        let _ = sending.send(&hosts.payload(sequence, 100)).or_else(|_| sending.send(&hosts.payload(sequence, 100)));
    }
    watch.until(5);
    watch.print("nobody listens");
    assert!(watch.at(Location::ReceiverStack).into_iter().eq(0..5));
}

#[test]
fn a_wrong_checksum() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let socket = hosts.receiving(RECEIVER_IP);
    let raw =
        hosts.sender.enter(|| PacketSocket::open(hosts.sender_index, &PacketOptions::default())).unwrap().unwrap();
    // The stack looks at small packets (CHECKSUM_BREAK, 76 bytes) when they come, at others when they are read.
    for (sequence, bytes) in [(40, 18), (41, 500), (42, 1400), (43, 64)] {
        raw.send(&[0; 10], &[&hosts.frame(&hosts.payload(sequence, bytes))]).unwrap();
    }
    hosts.sending().send(&hosts.payload(44, 64)).unwrap();
    assert_eq!(hosts.receiver.enter(|| receive_all(&socket)).unwrap(), [44]);
    watch.until(4);
    watch.print("wrong checksum");
    assert!(watch.at(Location::ReceiverStack).into_iter().eq(40..44), "{:?}", watch.seen);
    assert!(watch.seen.iter().all(|seen| seen.role == HostRole::Receiver), "{:?}", watch.seen);
}

/// What a bit flipped in a port or in the cookie leaves of a packet: over IPv6 the kernel finds no socket before it sums up.
#[test]
fn a_damaged_port_and_a_damaged_cookie() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let sockets = [hosts.receiving(RECEIVER_IP), hosts.receiving(Hosts::receiver_ipv6())];
    let raw =
        hosts.sender.enter(|| PacketSocket::open(hosts.sender_index, &PacketOptions::default())).unwrap().unwrap();
    for ipv6 in [false, true] {
        watch.seen.clear();
        let udp_at = if ipv6 { 54 } else { 34 };
        let send = |sequence, at: usize| {
            // Longer than CHECKSUM_BREAK: summed up when read.
            let payload = hosts.payload(sequence, 500);
            let mut frame = if ipv6 { hosts.frame_ipv6(&payload) } else { hosts.frame(&payload) };
            frame[udp_at + at] ^= 0x10;
            raw.send(&[0; 10], &[&frame]).unwrap();
        };
        let (source, destination, cookie) = (1, 3, 8);
        send(40, source);
        send(41, destination);
        send(42, cookie);
        send(FIRST_RESERVED - 1, cookie);
        // No datagram of the data: one of them is not missed.
        send(FIRST_RESERVED, cookie);
        send(FIRST_RESERVED + 1, destination);
        for socket in &sockets {
            assert!(hosts.receiver.enter(|| receive_all(socket)).unwrap().is_empty());
        }
        watch.until(3);
        watch.print("damaged port or cookie");
        assert_eq!(watch.at(Location::ReceiverStack), BTreeSet::from([40, 41, FIRST_RESERVED + 1]), "{:?}", watch.seen);
        let unidentified: Vec<_> = watch.seen.iter().filter(|seen| seen.unidentified.is_some()).collect();
        let reasons: Vec<_> = unidentified.iter().map(|seen| &seen.reason[..]).collect();
        assert_eq!(reasons, ["UDP_CSUM"; 2], "{:?}", watch.seen);
        let own = Hosts::frame_source(ipv6);
        assert!(unidentified.iter().all(|seen| seen.unidentified == Some(own)), "{:?}", watch.seen);
    }
}
