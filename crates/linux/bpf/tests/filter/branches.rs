//! Each class, each branch of the algorithm, each exception, by frames on a cable: counters are what was sent.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use longhaul_bpf::filter::{Allow, Cast, Class, FilterOptions, Reason, Tally};
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use nix::sys::socket::{setsockopt, sockopt};

use crate::cable::{Cable, counted};
use crate::frames::*;

/// What is sent, and what it should be taken for.
pub(crate) type Row = (&'static str, Vec<u8>, Class, Cast, Reason);

fn rows() -> Vec<Row> {
    use Cast::{Broadcast, Multicast, Unicast};
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    let (our_group, our_group_ip) = group_of(OUR_IPV6);
    let (other_group, other_group_ip) = group_of(OTHER_IPV6);
    let to_us = |payload: &[u8]| ipv4(OUR_MAC, OUR_IP, 17, 0, payload);
    let hop_by_hop = |next: u8, rest: Vec<u8>| [&[next, 0, 5, 2, 0, 0, 1, 0][..], &rest].concat();
    let fragment = |next: u8, offset: u16| [&[next, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 1], &[9; 24]].concat();
    let llc = |dsap: u8| [dsap, dsap, 3, 0, 0, 0, 0, 0, 0, 0];
    let snap = |organisation: [u8; 3], kind: u16| {
        [&[0xaa, 0xaa, 3][..], &organisation, &kind.to_be_bytes(), &[1; 20]].concat()
    };
    let mdns = [1, 0, 0x5e, 0, 0, 0xfb];
    vec![
        // The paper's algorithm.
        ("our unicast", to_us(&udp(9, 20)), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        ("ours, TCP", ipv4(OUR_MAC, OUR_IP, 6, 0, &tcp(9)), Class::Ipv4Tcp, Unicast, Reason::OurUnicast),
        ("ours, ICMP", ipv4(OUR_MAC, OUR_IP, 1, 0, &[0; 8]), Class::Ipv4Icmp, Unicast, Reason::OurUnicast),
        ("ours, GRE", ipv4(OUR_MAC, OUR_IP, 47, 0, &[0; 8]), Class::Ipv4Other, Unicast, Reason::OurUnicast),
        ("ours, full size", to_us(&udp(9, 1472)), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        (
            "somebody else's",
            ipv4(OTHER_MAC, OTHER_IP, 17, 0, &udp(9, 300)),
            Class::Ipv4Udp,
            Unicast,
            Reason::ForeignUnicast,
        ),
        ("his TCP", ipv4(OTHER_MAC, OTHER_IP, 6, 0, &tcp(80)), Class::Ipv4Tcp, Unicast, Reason::ForeignUnicast),
        ("our IP, his MAC", ipv4(OTHER_MAC, OUR_IP, 6, 0, &tcp(80)), Class::Ipv4Tcp, Unicast, Reason::ForeignUnicast),
        ("ARP for us", arp(EVERYBODY, 1, PEER_IP, OUR_IP), Class::Arp, Broadcast, Reason::ArpForUs),
        ("ARP for others", arp(EVERYBODY, 1, PEER_IP, OTHER_IP), Class::Arp, Broadcast, Reason::ArpForOthers),
        ("ARP reply to us", arp(OUR_MAC, 2, PEER_IP, OUR_IP), Class::Arp, Unicast, Reason::OurUnicast),
        ("ARP refresh to us", arp(OUR_MAC, 1, PEER_IP, OUR_IP), Class::Arp, Unicast, Reason::OurUnicast),
        (
            "broadcast",
            ipv4(EVERYBODY, Ipv4Addr::BROADCAST, 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Broadcast,
            Reason::Broadcast,
        ),
        (
            "subnet broadcast",
            ipv4(EVERYBODY, Ipv4Addr::new(10, 97, 0, 255), 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Broadcast,
            Reason::Broadcast,
        ),
        (
            "multicast of nobody",
            ipv4([1, 0, 0x5e, 1, 2, 3], Ipv4Addr::new(239, 1, 2, 3), 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "all hosts",
            ipv4([1, 0, 0x5e, 0, 0, 1], Ipv4Addr::new(224, 0, 0, 1), 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Multicast,
            Reason::MulticastJoined,
        ),
        (
            "mDNS, not joined",
            ipv4(mdns, Ipv4Addr::new(224, 0, 0, 251), 17, 0, &udp(5353, 20)),
            Class::Ipv4Udp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        // Beyond: addresses.
        (
            "our MAC, his IP",
            ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Unicast,
            Reason::AddressNotOurs,
        ),
        (
            "broadcast MAC, his IP",
            ipv4(EVERYBODY, OTHER_IP, 17, 0, &udp(9, 20)),
            Class::Ipv4Udp,
            Broadcast,
            Reason::AddressNotOurs,
        ),
        ("IPv6 to us", ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20)), Class::Ipv6Udp, Unicast, Reason::OurUnicast),
        ("IPv6 TCP to us", ipv6(OUR_MAC, OUR_IPV6, 6, &tcp(9)), Class::Ipv6Tcp, Unicast, Reason::OurUnicast),
        ("IPv6, no next header", ipv6(OUR_MAC, OUR_IPV6, 59, &[]), Class::Ipv6Other, Unicast, Reason::OurUnicast),
        (
            "our MAC, his IPv6",
            ipv6(OUR_MAC, OTHER_IPV6, 17, &udp(9, 20)),
            Class::Ipv6Udp,
            Unicast,
            Reason::AddressNotOurs,
        ),
        (
            "behind extension headers",
            ipv6(OUR_MAC, OUR_IPV6, 0, &hop_by_hop(60, hop_by_hop(17, udp(9, 20)))),
            Class::Ipv6Udp,
            Unicast,
            Reason::OurUnicast,
        ),
        // Neighbours.
        (
            "solicitation of us",
            ipv6(our_group, our_group_ip, 58, &icmpv6(135, OUR_IPV6)),
            Class::Ipv6Icmp,
            Multicast,
            Reason::NeighbourDiscovery,
        ),
        (
            "of others",
            ipv6(other_group, other_group_ip, 58, &icmpv6(135, OTHER_IPV6)),
            Class::Ipv6Icmp,
            Multicast,
            Reason::SolicitationForOthers,
        ),
        (
            "of others, to all",
            ipv6(all_nodes, "ff02::1".parse().unwrap(), 58, &icmpv6(135, OTHER_IPV6)),
            Class::Ipv6Icmp,
            Multicast,
            Reason::SolicitationForOthers,
        ),
        (
            "of us, to all",
            ipv6(all_nodes, "ff02::1".parse().unwrap(), 58, &icmpv6(135, OUR_IPV6)),
            Class::Ipv6Icmp,
            Multicast,
            Reason::NeighbourDiscovery,
        ),
        (
            "of us, to us",
            ipv6(OUR_MAC, OUR_IPV6, 58, &icmpv6(135, OUR_IPV6)),
            Class::Ipv6Icmp,
            Unicast,
            Reason::NeighbourDiscovery,
        ),
        (
            "advertisement",
            ipv6(all_nodes, "ff02::1".parse().unwrap(), 58, &icmpv6(136, OTHER_IPV6)),
            Class::Ipv6Icmp,
            Multicast,
            Reason::NeighbourDiscovery,
        ),
        (
            "advertisement to a tentative address",
            ipv6(OUR_MAC, OTHER_IPV6, 58, &icmpv6(136, OTHER_IPV6)),
            Class::Ipv6Icmp,
            Unicast,
            Reason::NeighbourDiscovery,
        ),
        ("ARP announcement", arp(EVERYBODY, 1, OTHER_IP, OTHER_IP), Class::Arp, Broadcast, Reason::ArpAnnouncement),
        ("ARP reply to all", arp(EVERYBODY, 2, OTHER_IP, PEER_IP), Class::Arp, Broadcast, Reason::ArpAnnouncement),
        ("ARP probe", arp(EVERYBODY, 1, Ipv4Addr::UNSPECIFIED, OTHER_IP), Class::Arp, Broadcast, Reason::ArpProbe),
        // What is always kept.
        (
            "packet too big",
            ipv6(OUR_MAC, OUR_IPV6, 58, &icmpv6(2, OUR_IPV6)),
            Class::Ipv6Icmp,
            Unicast,
            Reason::OurUnicast,
        ),
        ("DHCP offer", ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(68, 300)), Class::Ipv4Udp, Unicast, Reason::Dhcp),
        (
            "DHCP to all",
            ipv4(EVERYBODY, Ipv4Addr::BROADCAST, 17, 0, &udp(68, 300)),
            Class::Ipv4Udp,
            Broadcast,
            Reason::Dhcp,
        ),
        ("DHCPv6", ipv6(OUR_MAC, OTHER_IPV6, 17, &udp(546, 60)), Class::Ipv6Udp, Unicast, Reason::Dhcp),
        (
            "IGMP, not joined",
            ipv4([1, 0, 0x5e, 1, 2, 3], Ipv4Addr::new(239, 1, 2, 3), 2, 0, &[0x11, 0, 0, 0, 239, 1, 2, 3]),
            Class::Ipv4Igmp,
            Multicast,
            Reason::GroupManagement,
        ),
        (
            "IGMP, joined",
            ipv4([1, 0, 0x5e, 0, 0, 1], Ipv4Addr::new(224, 0, 0, 1), 2, 0, &[0x11, 0, 0, 0, 0, 0, 0, 0]),
            Class::Ipv4Igmp,
            Multicast,
            Reason::GroupManagement,
        ),
        (
            "MLD, not joined",
            ipv6(
                [0x33, 0x33, 1, 2, 3, 4],
                "ff02::102:304".parse().unwrap(),
                0,
                &hop_by_hop(58, icmpv6(130, OTHER_IPV6)),
            ),
            Class::Ipv6Icmp,
            Multicast,
            Reason::GroupManagement,
        ),
        (
            "LLDP",
            ethernet([1, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc, &[2, 7, 4]),
            Class::Lldp,
            Multicast,
            Reason::LinkDiscovery,
        ),
        ("802.1X", ethernet([1, 0x80, 0xc2, 0, 0, 3], 0x888e, &[2, 1]), Class::Other, Multicast, Reason::Eapol),
        ("PTP", ethernet([1, 0x1b, 0x19, 0, 0, 0], 0x88f7, &[0; 44]), Class::Other, Multicast, Reason::Ptp),
        ("LACP", ethernet([1, 0x80, 0xc2, 0, 0, 2], 0x8809, &[1; 40]), Class::Other, Multicast, Reason::SlowProtocol),
        // Protocols that a host of today has nothing for: broadcast cannot be judged, groups can.
        ("IPX, Ethernet II", ethernet(EVERYBODY, 0x8137, &[0xff; 30]), Class::Ipx, Broadcast, Reason::Broadcast),
        ("IPX, raw", ieee(EVERYBODY, &[0xff; 30]), Class::Ipx, Broadcast, Reason::Broadcast),
        ("IPX, 802.2", ieee(OTHER_MAC, &llc(0xe0)), Class::Ipx, Unicast, Reason::ForeignUnicast),
        ("IPX, SNAP", ieee(OTHER_MAC, &snap([0; 3], 0x8137)), Class::Ipx, Unicast, Reason::ForeignUnicast),
        ("NetBEUI", ieee([3, 0, 0, 0, 0, 1], &llc(0xf0)), Class::Netbeui, Multicast, Reason::MulticastNotJoined),
        (
            "spanning tree",
            ieee([1, 0x80, 0xc2, 0, 0, 0], &llc(0x42)),
            Class::Stp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "spanning tree, Cisco",
            ieee([1, 0, 0x0c, 0xcc, 0xcc, 0xcd], &snap([0, 0, 0x0c], 0x010b)),
            Class::Stp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "CDP",
            ieee([1, 0, 0x0c, 0xcc, 0xcc, 0xcc], &snap([0, 0, 0x0c], 0x2000)),
            Class::Cdp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "VTP",
            ieee([1, 0, 0x0c, 0xcc, 0xcc, 0xcc], &snap([0, 0, 0x0c], 0x2003)),
            Class::Vtp,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "DISL",
            ieee([1, 0, 0x0c, 0xcc, 0xcc, 0xcc], &snap([0, 0, 0x0c], 0x2004)),
            Class::Disl,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "EDP",
            ieee([0, 0xe0, 0x2b, 0, 0, 0], &snap([0, 0xe0, 0x2b], 0x00bb)),
            Class::Edp,
            Unicast,
            Reason::ForeignUnicast,
        ),
        (
            "AppleTalk",
            ieee([9, 0, 7, 0xff, 0xff, 0xff], &snap([8, 0, 7], 0x809b)),
            Class::Appletalk,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        (
            "AARP",
            ieee([9, 0, 7, 0xff, 0xff, 0xff], &snap([0; 3], 0x80f3)),
            Class::Appletalk,
            Multicast,
            Reason::MulticastNotJoined,
        ),
        ("unknown, to us", ethernet(OUR_MAC, 0x9999, &[1; 30]), Class::Other, Unicast, Reason::OurUnicast),
        (
            "ATA over Ethernet, to all",
            ethernet(EVERYBODY, 0x88a2, &[1; 30]),
            Class::Other,
            Broadcast,
            Reason::Broadcast,
        ),
        // Tags.
        ("priority tag", tagged(&to_us(&udp(9, 60)), 0x8100, 0xe000), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        (
            "VLAN that nobody has",
            tagged(&to_us(&udp(9, 60)), 0x8100, 100),
            Class::Ipv4Udp,
            Unicast,
            Reason::VlanNotOurs,
        ),
        (
            "QinQ",
            tagged(&tagged(&to_us(&udp(9, 60)), 0x8100, 100), 0x88a8, 200),
            Class::Ipv4Udp,
            Unicast,
            Reason::VlanNotOurs,
        ),
        (
            "QinQ, foreign",
            tagged(&tagged(&ipv6(OTHER_MAC, OTHER_IPV6, 6, &tcp(80)), 0x8100, 100), 0x88a8, 200),
            Class::Ipv6Tcp,
            Unicast,
            Reason::ForeignUnicast,
        ),
        (
            "tagged ARP for us",
            tagged(&arp(EVERYBODY, 1, PEER_IP, OUR_IP), 0x8100, 100),
            Class::Arp,
            Broadcast,
            Reason::VlanNotOurs,
        ),
        // What cannot be parsed passes if its MAC address does.
        (
            "IPv4 cut off",
            ethernet(OUR_MAC, 0x0800, &[0x45; 3])[..30].to_vec(),
            Class::Ipv4Other,
            Unicast,
            Reason::Truncated,
        ),
        ("IPv6 of version 4", ethernet(OUR_MAC, 0x86dd, &[0x45; 60]), Class::Ipv6Other, Unicast, Reason::Truncated),
        ("ARP cut off", arp(EVERYBODY, 1, PEER_IP, OTHER_IP)[..40].to_vec(), Class::Arp, Broadcast, Reason::Truncated),
        (
            "cut off, foreign",
            ethernet(OTHER_MAC, 0x0800, &[])[..20].to_vec(),
            Class::Ipv4Other,
            Unicast,
            Reason::ForeignUnicast,
        ),
        ("fragment", ipv4(OUR_MAC, OUR_IP, 17, 100, &[9; 40]), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        (
            "IPv6 fragment",
            ipv6(OUR_MAC, OUR_IPV6, 44, &fragment(17, 0x0051)),
            Class::Ipv6Udp,
            Unicast,
            Reason::OurUnicast,
        ),
    ]
}

/// How often row number `index` is sent: not the same for all, so that none can stand for another.
fn times(index: usize) -> usize {
    1 + index % 7
}

pub(crate) fn check(rows: &[Row], options: &FilterOptions) {
    let Some(cable) = Cable::lay() else { return };
    let arrived = cable.inside(|| {
        PacketSocket::open(cable.ifindex, &PacketOptions { promiscuous: false, ..PacketOptions::default() })
    });
    let arrived = arrived.unwrap();
    let filter = cable.filter(options);
    let mut sent = 0;
    let mut passed = 0;
    for (index, (what, frame, class, cast, reason)) in rows.iter().enumerate() {
        let before = filter.counters().unwrap();
        cable.send(frame, times(index));
        sent += times(index) as u64;
        let after = counted(&filter, sent);
        let expected = Tally { packets: times(index) as u64, bytes: (times(index) * frame.len()) as u64 };
        let moved = |now: Tally, was: Tally| Tally { packets: now.packets - was.packets, bytes: now.bytes - was.bytes };
        let by_reason: Vec<_> = Reason::ALL.iter().filter(|one| after.reason(**one) != before.reason(**one)).collect();
        assert_eq!(by_reason, [reason], "{what}");
        assert_eq!(moved(after.reason(*reason), before.reason(*reason)), expected, "{what}");
        let by_class: Vec<_> = Class::ALL.iter().filter(|one| after.class(**one) != before.class(**one)).collect();
        assert_eq!(by_class, [class], "{what}");
        let (now, was) = (after.protocol(*class, *cast), before.protocol(*class, *cast));
        let (now, was) = if reason.rejects() { (now.rejected, was.rejected) } else { (now.accepted, was.accepted) };
        assert_eq!(moved(now, was), expected, "{what}");
        if !(reason.rejects() && options.enforce) {
            passed += times(index);
        }
    }
    // What was dropped is what the stack did not get, and nothing else.
    let counters = filter.counters().unwrap();
    assert_eq!(counters.dropped_packets, sent - passed as u64);
    let mut buffer = vec![0; 2048];
    let mut got = 0;
    while let Ok(Some(_)) = arrived.receive(&mut buffer) {
        got += 1;
    }
    assert_eq!(got, passed, "frames that the stack got");
    println!("{sent} frames in {} rows, {passed} passed, {} dropped", rows.len(), counters.dropped_packets);
}

#[test]
fn counted_and_let_pass() {
    check(&rows(), &FilterOptions::default());
}

#[test]
fn counted_and_dropped() {
    check(&rows(), &FilterOptions { enforce: true, ..FilterOptions::default() });
}

#[test]
fn in_the_stack_too() {
    let options =
        FilterOptions { enforce: true, mode: Some(longhaul_bpf::filter::Mode::Generic), ..FilterOptions::default() };
    check(&rows(), &options);
}

#[test]
fn frame_sizes_are_those_on_the_wire() {
    let Some(cable) = Cable::lay() else { return };
    let filter = cable.filter(&FilterOptions::default());
    // With FCS: 64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024, 1514 + 4.
    let lengths = [60, 61, 123, 124, 251, 252, 507, 508, 1019, 1020, 1514];
    for length in lengths {
        let mut frame = ethernet(OUR_MAC, 0x9999, &[]);
        frame.resize(length, 0);
        cable.send(&frame, 1);
    }
    let counters = counted(&filter, lengths.len() as u64);
    let packets: Vec<u64> = (0..7).map(|index| counters.size(index).accepted.packets).collect();
    assert_eq!(packets, [1, 2, 2, 2, 2, 2, 0]);
}

/// One frame after the other, with the host as it is.
fn judged(cable: &Cable, filter: &longhaul_bpf::filter::Filter, frame: &[u8]) -> Reason {
    let before = filter.counters().unwrap();
    cable.send(frame, 1);
    let after = counted(filter, before.total().all().packets + 1);
    *Reason::ALL.iter().find(|one| after.reason(**one) != before.reason(**one)).unwrap()
}

/// Each change is seen by the very next frame, whoever was told of it.
#[test]
fn changes_of_the_host_leave_no_gap() {
    let Some(cable) = Cable::lay() else { return };
    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let to_group = ipv4([1, 0, 0x5e, 1, 2, 3], group, 17, 0, &udp(9, 20));
    assert_eq!(judged(&cable, &filter, &to_group), Reason::MulticastNotJoined);
    let socket = cable.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.join_multicast_v4(&group, &OUR_IP).unwrap();
    assert_eq!(judged(&cable, &filter, &to_group), Reason::MulticastJoined);
    socket.leave_multicast_v4(&group, &OUR_IP).unwrap();
    assert_eq!(judged(&cable, &filter, &to_group), Reason::MulticastNotJoined);

    // The kernel counts joining a group as a change of its routes, too.
    cable.tell(&filter);
    let to_other = ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(9, 20));
    let arp_other = arp(EVERYBODY, 1, PEER_IP, OTHER_IP);
    assert_eq!(judged(&cable, &filter, &to_other), Reason::AddressNotOurs);
    cable.add_address(OTHER_IP.into(), 24);
    assert_eq!(judged(&cable, &filter, &to_other), Reason::Doubtful, "nobody told the filter yet");
    assert_eq!(judged(&cable, &filter, &arp_other), Reason::Doubtful);
    cable.tell(&filter);
    assert_eq!(judged(&cable, &filter, &to_other), Reason::OurUnicast);
    assert_eq!(judged(&cable, &filter, &arp_other), Reason::ArpForUs);

    // What was found to be ours is forgotten with the address.
    let removed = std::process::Command::new("ip");
    let mut removed = removed;
    removed.args(["address", "del", &format!("{OTHER_IP}/24"), "dev", crate::cable::LINK]);
    assert!(cable.inside(|| removed.status()).unwrap().success());
    cable.tell(&filter);
    assert_eq!(judged(&cable, &filter, &ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(9, 20))), Reason::AddressNotOurs);

    let to_other = ipv6(OUR_MAC, OTHER_IPV6, 17, &udp(9, 20));
    assert_eq!(judged(&cable, &filter, &to_other), Reason::AddressNotOurs);
    let (group, group_ip) = group_of(OTHER_IPV6);
    let solicitation = ipv6(group, group_ip, 58, &icmpv6(135, OTHER_IPV6));
    assert_eq!(judged(&cable, &filter, &solicitation), Reason::SolicitationForOthers);
    cable.add_address(OTHER_IPV6.into(), 64);
    // The kernel takes an IPv6 address, and joins its group, some moments after the call; before, it drops what comes for it, too.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    for (frame, before, then) in [
        (&to_other, Reason::AddressNotOurs, Reason::Doubtful),
        (&solicitation, Reason::SolicitationForOthers, Reason::NeighbourDiscovery),
    ] {
        let mut reason = before;
        while reason == before {
            assert!(std::time::Instant::now() < deadline, "the kernel never took the address");
            reason = judged(&cable, &filter, frame);
        }
        assert_eq!(reason, then);
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    cable.tell(&filter);
    assert_eq!(judged(&cable, &filter, &to_other), Reason::OurUnicast);

    // A network that is local as a whole.
    let routed = std::process::Command::new("ip");
    let mut routed = routed;
    routed.args(["route", "add", "local", "192.0.2.0/24", "dev", "lo"]);
    assert!(cable.inside(|| routed.status()).unwrap().success());
    cable.tell(&filter);
    let wide = ipv4(OUR_MAC, Ipv4Addr::new(192, 0, 2, 77), 17, 0, &udp(9, 20));
    assert_eq!(judged(&cable, &filter, &wide), Reason::OurUnicast);

    let new_mac = [2, 0, 0, 0, 0, 7];
    let mut renamed = std::process::Command::new("ip");
    renamed.args(["link", "set", crate::cable::LINK, "address", "02:00:00:00:00:07"]);
    assert!(cable.inside(|| renamed.status()).unwrap().success());
    assert_eq!(judged(&cable, &filter, &ipv4(new_mac, OUR_IP, 17, 0, &udp(9, 20))), Reason::OurUnicast);
    assert_eq!(judged(&cable, &filter, &ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(9, 20))), Reason::ForeignUnicast);
}

/// What a CPU just accepted is no reason to accept what only resembles it.
#[test]
fn what_resembles_an_accepted_frame_is_judged() {
    let Some(cable) = Cable::lay() else { return };
    // The CPU that sends receives, too, and keeps what it found.
    longhaul_kernel::schedule::pin_to(&[0]).unwrap();
    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    let ours = [ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(9, 20)), ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20))];
    let changed = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let [four, six] = &ours;
    let cases = [
        (four, changed(four, 0, &OTHER_MAC), Class::Ipv4Udp, Reason::ForeignUnicast),
        (four, tagged(four, 0x8100, 100), Class::Ipv4Udp, Reason::VlanNotOurs),
        (four, changed(four, 14, &[0x44]), Class::Ipv4Other, Reason::Truncated),
        (four, changed(four, 14, &[0x55]), Class::Ipv4Other, Reason::Truncated),
        (four, changed(four, 23, &[1]), Class::Ipv4Icmp, Reason::OurUnicast),
        (four, changed(four, 23, &[6]), Class::Ipv4Tcp, Reason::OurUnicast),
        (four, changed(four, 30, &OTHER_IP.octets()), Class::Ipv4Udp, Reason::AddressNotOurs),
        (four, changed(four, 36, &[0, 67]), Class::Ipv4Udp, Reason::Dhcp),
        (four, changed(four, 36, &[0, 68]), Class::Ipv4Udp, Reason::Dhcp),
        (four, changed(four, 36, &546_u16.to_be_bytes()), Class::Ipv4Udp, Reason::OurUnicast),
        (four, four[..36].to_vec(), Class::Ipv4Other, Reason::Truncated),
        (four, four[..61].to_vec(), Class::Ipv4Other, Reason::Truncated),
        (four, changed(four, 16, &[0, 49]), Class::Ipv4Other, Reason::Truncated),
        (four, changed(four, 16, &[0, 19]), Class::Ipv4Other, Reason::Truncated),
        (four, changed(four, 16, &[0, 22]), Class::Ipv4Udp, Reason::OurUnicast),
        (four, four[..33].to_vec(), Class::Ipv4Other, Reason::Truncated),
        (six, changed(six, 0, &OTHER_MAC), Class::Ipv6Udp, Reason::ForeignUnicast),
        (six, changed(six, 14, &[0x45]), Class::Ipv6Other, Reason::Truncated),
        (six, changed(six, 20, &[6]), Class::Ipv6Tcp, Reason::OurUnicast),
        (six, changed(six, 38, &OTHER_IPV6.octets()), Class::Ipv6Udp, Reason::AddressNotOurs),
        (six, changed(six, 56, &546_u16.to_be_bytes()), Class::Ipv6Udp, Reason::Dhcp),
        (six, changed(six, 56, &547_u16.to_be_bytes()), Class::Ipv6Udp, Reason::Dhcp),
        (six, changed(six, 56, &67_u16.to_be_bytes()), Class::Ipv6Udp, Reason::OurUnicast),
        (six, six[..53].to_vec(), Class::Ipv6Other, Reason::Truncated),
        (six, six[..81].to_vec(), Class::Ipv6Other, Reason::Truncated),
        (six, changed(six, 18, &[0, 29]), Class::Ipv6Other, Reason::Truncated),
        (six, changed(six, 18, &[0, 2]), Class::Ipv6Udp, Reason::OurUnicast),
    ];
    for (number, (before, frame, class, reason)) in cases.into_iter().enumerate() {
        assert_eq!(judged(&cable, &filter, before), Reason::OurUnicast);
        let counts = |rejects: bool| {
            let verdicts = filter.counters().unwrap().protocol(class, Cast::Unicast);
            if rejects { verdicts.rejected } else { verdicts.accepted }
        };
        let was = counts(reason.rejects());
        assert_eq!(judged(&cable, &filter, &frame), reason, "case {number}");
        let expected = was.plus(Tally { packets: 1, bytes: frame.len() as u64 });
        assert_eq!(counts(reason.rejects()), expected, "case {number}: {class:?}");
    }
    let ip = |words: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(words.split(' '));
        cable.inside(|| command.output()).unwrap()
    };
    let bridge = ip("link add lhf-b type bridge");
    if !bridge.status.success() {
        return longhaul_testing::skipped!("a bridge: {}", String::from_utf8_lossy(&bridge.stderr).trim());
    }
    assert_eq!(judged(&cable, &filter, four), Reason::OurUnicast);
    assert!(ip(&format!("link set {} master lhf-b", crate::cable::LINK)).status.success());
    for frame in &ours {
        assert_eq!(judged(&cable, &filter, frame), Reason::HandedOver);
    }
}

#[test]
fn ports_that_nobody_listens_on() {
    let Some(cable) = Cable::lay() else { return };
    let allow = vec![Allow::Port(7), Allow::Network(PEER_IPV6.into(), 128)];
    let options = FilterOptions { enforce: true, judge_ports: true, allow, ..FilterOptions::default() };
    let filter = cable.filter(&options);
    let to_udp = |port| ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(port, 20));
    let to_tcp = |port| ipv4(OUR_MAC, OUR_IP, 6, 0, &tcp(port));
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::PortClosed);
    assert_eq!(judged(&cable, &filter, &to_tcp(9)), Reason::PortClosed);
    assert_eq!(judged(&cable, &filter, &to_udp(7)), Reason::Allowed);
    assert_eq!(judged(&cable, &filter, &to_tcp(7)), Reason::Allowed);
    assert_eq!(judged(&cable, &filter, &ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20))), Reason::Allowed, "its network");
    assert_eq!(judged(&cable, &filter, &ipv6(OUR_MAC, OTHER_IPV6, 17, &udp(9, 20))), Reason::Allowed, "any address");

    let socket = cable.inside(|| UdpSocket::bind("[::]:9")).unwrap();
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::Listening, "one socket for both families");
    assert_eq!(judged(&cable, &filter, &ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20))), Reason::Listening);
    drop(socket);
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::PortClosed);
    let socket = cable.inside(|| UdpSocket::bind((OUR_IP, 9))).unwrap();
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::Listening);
    socket.connect((PEER_IP, 40_000)).unwrap();
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::Connected);
    socket.connect((PEER_IP, 40_001)).unwrap();
    assert_eq!(judged(&cable, &filter, &to_udp(9)), Reason::PortClosed, "connected to another port");
    let listener = cable.inside(|| TcpListener::bind((OUR_IP, 9))).unwrap();
    assert_eq!(judged(&cable, &filter, &to_tcp(9)), Reason::Listening);
    drop(listener);
    assert_eq!(judged(&cable, &filter, &to_tcp(9)), Reason::PortClosed);

    // Broadcast and multicast have ports, too; a fragment has none, and ICMP brings errors of our own packets.
    let broadcast = ipv4(EVERYBODY, Ipv4Addr::BROADCAST, 17, 0, &udp(138, 20));
    assert_eq!(judged(&cable, &filter, &broadcast), Reason::PortClosed);
    let socket = cable.inside(|| UdpSocket::bind("0.0.0.0:138")).unwrap();
    setsockopt(&socket, sockopt::Broadcast, &true).unwrap();
    assert_eq!(judged(&cable, &filter, &broadcast), Reason::Listening);
    // The same ports, but behind the packet's end.
    let mut ports_in_padding = ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(7, 20));
    ports_in_padding[17] = 22;
    assert_eq!(judged(&cable, &filter, &ports_in_padding), Reason::Truncated);
    let fragment = ipv4(OUR_MAC, OUR_IP, 17, 100, &[9; 40]);
    assert_eq!(judged(&cable, &filter, &fragment), Reason::Fragment);
    let icmp = ipv4(OUR_MAC, OUR_IP, 1, 0, &[3, 4, 0, 0, 0, 0, 5, 0]);
    assert_eq!(judged(&cable, &filter, &icmp), Reason::OurUnicast);
    assert_eq!(judged(&cable, &filter, &ipv4(OUR_MAC, OUR_IP, 6, 0, &[9])[..36]), Reason::Truncated);
}
