//! What else an Ethernet carries passes the path as it was sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::common::capture::{Capture, Captured, socket};
use crate::common::datagrams::{PORT, Sink, Source, fill};
use crate::common::transfer::Transfer;
use crate::common::{
    CLIENT_V6, SERVER_V4, SERVER_V6, alone, assert_faithful, attempt, brisk, counters, hop, lab, lab_with, run,
    settled, unprivileged,
};
use longhaul_kernel::packet::VlanTag;
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_lab::{Lab, LabSpec};
use longhaul_testing::waiting::until;
use longhaul_wire::checksum::pseudo_v6;

const PATH: &str = "[[both]]\nrate = '1Gbit'\ndelay = '2ms'";
/// EtherType for local experiments (IEEE 802), which no stack answers.
const EXPERIMENT: u16 = 0x88b5;

/// Sends frames from the client's interface and gives those that arrive at the server's with the experiment's EtherType in
/// or behind their tags.
fn carried(lab: &Lab, frames: &[Vec<u8>]) -> Vec<Captured> {
    let capture = Capture::start(&lab.host("server").unwrap().namespace, HOST_INTERFACE, usize::MAX);
    let sender = socket(&lab.host("client").unwrap().namespace, HOST_INTERFACE);
    for frame in frames {
        sender.send(&[0; 10], &[frame]).unwrap();
    }
    until("the frames", || lab.status().unwrap().ports[1].sent.packets >= frames.len() as u64);
    assert_faithful(&settled(lab));
    capture.finish()
}

/// A frame from client to server; `types` are the bytes from the first EtherType on.
fn frame(lab: &Lab, types: &[u16], payload: &[u8]) -> Vec<u8> {
    let mac = |host| lab.host(host).unwrap().plan.mac;
    let types = types.iter().flat_map(|kind| kind.to_be_bytes());
    mac("server").into_iter().chain(mac("client")).chain(types).chain(payload.iter().copied()).collect()
}

#[test]
fn vlan_tags_arrive_as_they_were_sent() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    for wire in [false, true] {
        let lab = lab_with(LabSpec { wire, ..LabSpec::default() }, PATH);
        let payload: Vec<u8> = (0..100).collect();
        let full: Vec<u8> = (0..1500).map(|i| i as u8).collect();
        let sent = [
            frame(&lab, &[EXPERIMENT], &payload),
            frame(&lab, &[0x8100, 0x6fff, EXPERIMENT], &payload),
            frame(&lab, &[0x88a8, 0x0001, EXPERIMENT], &payload),
            // 802.1ad: a service tag, then a customer's.
            frame(&lab, &[0x88a8, 0x2064, 0x8100, 0xe00a, EXPERIMENT], &payload),
            // A tag does not count towards the MTU.
            frame(&lab, &[0x8100, 0x0003, EXPERIMENT], &full),
        ];
        let got = carried(&lab, &sent);
        assert_eq!(got.len(), sent.len(), "wire: {wire}");
        let tags = [
            None,
            Some(VlanTag { tpid: 0x8100, tci: 0x6fff }),
            Some(VlanTag { tpid: 0x88a8, tci: 0x0001 }),
            Some(VlanTag { tpid: 0x88a8, tci: 0x2064 }),
            Some(VlanTag { tpid: 0x8100, tci: 0x0003 }),
        ];
        for ((sent, got), tag) in sent.iter().zip(&got).zip(tags) {
            assert_eq!(got.vlan, tag, "wire: {wire}");
            let whole = match tag {
                None => got.frame.clone(),
                Some(VlanTag { tpid, tci }) => {
                    let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
                    [&got.frame[..12], &tag[..], &got.frame[12..]].concat()
                }
            };
            assert_eq!(&whole, sent, "wire: {wire}");
        }
    }
}

#[test]
fn neighbours_are_found_over_the_path() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let lab = lab(PATH);
    for (host, other) in
        [("client", "10.77.2.1"), ("client", "fd77::2:1"), ("server", "10.77.1.1"), ("server", "fd77::1:1")]
    {
        run(&lab, host, &["ip", "neigh", "del", other, "dev", HOST_INTERFACE]);
    }
    for other in ["10.77.2.1", "fd77::2:1"] {
        run(&lab, "client", &["ping", "-n", "-c", "2", "-i", "0.05", "-W", "5", other]);
    }
    let neighbours = run(&lab, "client", &["ip", "neigh"]);
    assert_eq!(neighbours.matches("02:6c:68:02:00:01").count(), 2, "{neighbours}");
    assert_faithful(&settled(&lab));
}

#[test]
fn fragments_are_put_together_again() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let lab = lab(PATH);
    for to in ["10.77.2.1", "fd77::2:1"] {
        run(&lab, "client", &["ping", "-n", "-c", "3", "-i", "0.02", "-W", "5", "-s", "4000", "-p", "a55a01", to]);
    }
    let counters = counters(&lab, "server");
    assert!(counters["Ip.ReasmOKs"] >= 3 && counters["Ip6ReasmOKs"] >= 3, "{counters:?}");
    assert_faithful(&settled(&lab));
}

#[test]
fn jumbo_frames_pass() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    for wire in [false, true] {
        let lab = lab_with(LabSpec { mtu_bytes: 9000, wire, ..LabSpec::default() }, PATH);
        for (to, payload) in [("10.77.2.1", "8972"), ("fd77::2:1", "8952")] {
            let command = ["ping", "-n", "-c", "2", "-i", "0.02", "-W", "5", "-M", "do", "-s", payload, to];
            run(&lab, "client", &command);
        }
        let sink = Sink::new(&lab, "server", SERVER_V4);
        Source::new(&lab, "client", SERVER_V4, 8_900, 7).send_until(700, &sink, 200);
        Transfer::start(&lab, "client", "server", SERVER_V6, 20_000_000, brisk()).finish();
        let status = settled(&lab);
        assert_faithful(&status);
        assert_eq!(sink.finish().numbers, (0..700).collect::<Vec<_>>());
        let sent = status.ports[0].received;
        assert!(sent.bytes / sent.packets > 6_000, "{} bytes a packet", sent.bytes / sent.packets);
    }
}

/// A frame longer than the far end takes is no fault of the emulator's.
#[test]
fn a_frame_too_large_for_the_far_end_is_counted() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let lab = lab("[[client]]\nmtu = 9000\n[[both]]\nrate = '1Gbit'\ndelay = '1ms'");
    let (text, answered) =
        attempt(&lab, "client", &["ping", "-n", "-c", "2", "-i", "0.02", "-W", "1", "-s", "5000", "10.77.2.1"]);
    assert!(!answered, "{text}");
    let status = settled(&lab);
    assert_eq!(status.ports[1].too_large_packets, 2, "{status:?}");
    assert_eq!(status.own_fault.total(), 0);
    run(&lab, "client", &["ping", "-n", "-c", "1", "-W", "5", "-s", "1400", "10.77.2.1"]);
}

/// UDP behind a destination options header (RFC 8200 §4.6), from a raw socket.
#[test]
fn ipv6_with_an_extension_header_passes() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let lab = lab(PATH);
    let sink = Sink::new(&lab, "server", SERVER_V6);
    let sender = socket(&lab.host("client").unwrap().namespace, HOST_INTERFACE);
    for number in 0..10 {
        let mut payload = [0; 300];
        fill(number, &mut payload);
        sender.send(&[0; 10], &[&frame(&lab, &[0x86dd], &optioned(&payload))]).unwrap();
    }
    until("the datagrams", || sink.count() == 10);
    assert_eq!(sink.finish().numbers, (0..10).collect::<Vec<_>>());
    assert_faithful(&settled(&lab));
}

/// `payload` in UDP behind a destination options header in IPv6.
fn optioned(payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (CLIENT_V6, SERVER_V6) else { unreachable!() };
    let length = 8 + payload.len() as u16;
    let mut udp = [[0x30, 0x39], PORT.to_be_bytes(), length.to_be_bytes(), [0, 0]].concat();
    udp.extend_from_slice(payload);
    let sum = pseudo_v6(from.octets(), to.octets(), 17, length.into()).add_bytes(&udp).checksum();
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    // Next header UDP, eight bytes, one PadN option of six bytes.
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(8 + length).to_be_bytes());
    packet.extend_from_slice(&[60, 64]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(&options);
    packet.extend_from_slice(&udp);
    packet
}

/// TCP and UDP super-packets in a VXLAN tunnel between the hosts, over a path that tears runs apart.
#[test]
fn a_tunnel_passes() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab(
        "[[forward]]\nrate = '2Gbit'\ndelay = '1ms'\nloss = { random = '0.5%' }\nduplicate = '0.5%'\n[[backward]]\ndelay = '1ms'",
    );
    for (host, own, other, number) in [("client", "10.77.1.1", "10.77.2.1", 1), ("server", "10.77.2.1", "10.77.1.1", 2)]
    {
        let add =
            ["ip", "link", "add", "vx0", "type", "vxlan", "id", "5", "dstport", "4789", "local", own, "remote", other];
        let (said, made) = attempt(&lab, host, &add);
        if !made {
            longhaul_testing::skipped!("this kernel makes no vxlan interface: {}", said.trim());
            return;
        }
        for address in [format!("10.88.0.{number}/24"), format!("fd88::{number}/64")] {
            run(
                &lab,
                host,
                &["ip", "address", "add", &address, "dev", "vx0", "nodad"][..if address.contains(':') { 7 } else { 6 }],
            );
        }
        run(&lab, host, &["ip", "link", "set", "vx0", "up"]);
    }
    let inner_v4 = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 2));
    let inner_v6 = IpAddr::V6(Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2));
    // Neighbours are asked for in the tunnel, and the path loses questions too.
    for inner in [inner_v4, inner_v6] {
        until("an answer", || attempt(&lab, "client", &["ping", "-n", "-c", "1", "-W", "1", &inner.to_string()]).1);
    }
    for inner in [inner_v4, inner_v6] {
        Transfer::start(&lab, "client", "server", inner, 10_000_000, brisk()).finish();
        let sink = Sink::new(&lab, "server", inner);
        Source::new(&lab, "client", inner, 1200, 30).send_until(3_000, &sink, 500);
        settled(&lab);
        let heard = sink.finish();
        assert_eq!(heard.damaged, 0);
        assert!(heard.missing(3_000).len() < 100, "{} lost at 0.5 %", heard.missing(3_000).len());
    }
    let status = settled(&lab);
    assert_eq!(status.own_fault.total(), 0, "{:?}", status.own_fault);
    assert!(hop(&status, "forward.hop1").counters.dropped_loss.packets > 20);
    let counters = counters(&lab, "server");
    for name in ["Tcp.InCsumErrors", "Udp.InCsumErrors", "Udp6InCsumErrors", "Ip.InHdrErrors"] {
        assert_eq!(counters[name], 0, "{name}");
    }
}
