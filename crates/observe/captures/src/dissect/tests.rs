use longhaul_wire::probe::Cookie;
use proptest::prelude::*;

use super::*;
use crate::record::{InterfaceDirection, LinkType};
use crate::samples;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Two fillers, time stamps 1 and 2.
const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

fn record(snippet: &[u8], frame_len: usize, link: LinkType) -> Record<'_> {
    Record { at_ns: 5, link, frame_len: frame_len as u32, snippet, ..Record::default() }
}

fn whole(frame: &[u8]) -> Packet {
    dissect(&record(frame, frame.len(), LinkType::Ethernet))
}

fn tcp_of(packet: &Packet) -> Tcp {
    let Transport::Tcp(tcp) = packet.transport else { panic!("{packet:?}") };
    tcp
}

#[test]
fn a_tagged_tcp_segment_has_all_its_fields() {
    let frame = samples::ethernet(
        &[(0x88a8, 0x6007), (0x8100, 9)],
        IPV4,
        &samples::ipv4(6, 77, 0x4000, &[1; 4], &samples::tcp(0x18, &STAMPS, 100)),
    );
    let packet = whole(&frame);
    assert_eq!((packet.vlan, packet.eth_type, packet.eth_src[5]), ([Some(7), Some(9)], IPV4, 1));
    let ip = packet.ip.unwrap();
    assert_eq!((ip.src.to_string(), ip.dst.to_string()), ("10.0.0.1".into(), "10.0.0.2".into()));
    assert_eq!((ip.protocol, ip.ttl, ip.traffic_class, ip.id, ip.len), (6, 61, 0x2d, Some(77), 156));
    let tcp = tcp_of(&packet);
    assert_eq!((tcp.src_port, tcp.dst_port, tcp.seq, tcp.ack, tcp.window), (1000, 2000, 7, 8, 9));
    assert_eq!((tcp.flags, tcp.payload_len, tcp.options.timestamps), (0x18, 100, Some((1, 2))));
    assert!(!tcp.options.clipped);
}

/// The frame is padded to 60 bytes and clipped to 54: payload is neither.
#[test]
fn payload_is_ips_word_not_the_frames() {
    let mut frame = samples::ethernet(&[], IPV4, &samples::ipv4(6, 1, 0, &[], &samples::tcp(0x10, &[], 0)));
    frame.resize(60, 0);
    assert_eq!(tcp_of(&whole(&frame)).payload_len, 0);
    let long = samples::ethernet(&[], IPV4, &samples::ipv4(6, 1, 0, &[], &samples::tcp(0x10, &STAMPS, 1448)));
    let clipped = dissect(&record(&long[..54], long.len(), LinkType::Ethernet));
    let tcp = tcp_of(&clipped);
    assert_eq!((tcp.payload_len, tcp.options.clipped, tcp.options.timestamps), (1448, true, None));
    let to_the_window = dissect(&record(&long[..50], long.len(), LinkType::Ethernet));
    assert_eq!((tcp_of(&to_the_window).payload_len, tcp_of(&to_the_window).window), (1448, 9));
    assert_eq!(dissect(&record(&long[..49], long.len(), LinkType::Ethernet)).transport, Transport::Other);
}

/// BIG TCP: IPv4's length is 0, IPv6's too, there with the jumbo option where the kernel leaves it.
#[test]
fn super_packets_beyond_64_kb_have_the_frames_length() {
    let mut ip = samples::ipv4(6, 1, 0, &[], &samples::tcp(0x10, &[], 10));
    ip[2..4].fill(0);
    let frame = samples::ethernet(&[], IPV4, &ip);
    let packet = dissect(&record(&frame, 14 + 40 + 150_000, LinkType::Ethernet));
    assert_eq!((packet.ip.unwrap().len, tcp_of(&packet).payload_len), (150_040, 150_000));

    let mut ip = samples::ipv6(6, &samples::tcp(0x10, &[], 10));
    ip[4..6].fill(0);
    let frame = samples::ethernet(&[], IPV6, &ip);
    assert_eq!(tcp_of(&dissect(&record(&frame, 14 + 60 + 150_000, LinkType::Ethernet))).payload_len, 150_000);

    let jumbo = [&[6, 0, 0xc2, 4, 0, 2, 0x49, 0xf0][..], &samples::tcp(0x10, &[], 10)].concat();
    let mut ip = samples::ipv6(0, &jumbo);
    ip[4..6].fill(0);
    let frame = samples::ethernet(&[], IPV6, &ip);
    // 0x249f0 = 150,000 bytes behind the fixed header: 8 of the option, 20 of TCP.
    assert_eq!(tcp_of(&dissect(&record(&frame, 100, LinkType::Ethernet))).payload_len, 149_972);
}

#[test]
fn ipv6_extension_headers_are_passed() {
    let tcp = samples::tcp(0x10, &[], 33);
    let chain = [&[43, 0, 1, 4, 0, 0, 0, 0][..], &[60, 0, 0, 0, 0, 0, 0, 0], &[6, 0, 1, 4, 0, 0, 0, 0], &tcp].concat();
    let packet = whole(&samples::ethernet(&[], IPV6, &samples::ipv6(0, &chain)));
    assert_eq!((packet.ip.unwrap().protocol, packet.ip.unwrap().traffic_class), (6, 0x2d));
    assert_eq!(tcp_of(&packet).payload_len, 33);
    // Authentication is in units of four bytes: 4 + 2 of them.
    let chain = [&[6, 4][..], &[0; 22], &tcp].concat();
    assert_eq!(tcp_of(&whole(&samples::ethernet(&[], IPV6, &samples::ipv6(51, &chain)))).payload_len, 33);
    // A chain that does not end.
    let endless = [0, 0, 1, 4, 0, 0, 0, 0].repeat(20);
    assert_eq!(whole(&samples::ethernet(&[], IPV6, &samples::ipv6(0, &endless))).transport, Transport::Other);
}

#[test]
fn only_the_first_fragment_has_ports() {
    let tcp = samples::tcp(0x10, &[], 100);
    let first = whole(&samples::ethernet(&[], IPV4, &samples::ipv4(6, 9, 0x2000, &[], &tcp)));
    assert!(first.ip.unwrap().more_fragments);
    assert_eq!(tcp_of(&first).payload_len, 100);
    let later = whole(&samples::ethernet(&[], IPV4, &samples::ipv4(6, 9, 15, &[], &tcp)));
    assert_eq!((later.ip.unwrap().fragment_offset, later.transport), (120, Transport::Other));
    let chain = [&[6, 0, 0, 0x79, 0, 0, 1, 2][..], &tcp].concat();
    let v6 = whole(&samples::ethernet(&[], IPV6, &samples::ipv6(44, &chain)));
    let ip = v6.ip.unwrap();
    assert_eq!((ip.fragment_offset, ip.more_fragments, ip.id, ip.protocol), (120, true, Some(258), 6));
    assert_eq!(v6.transport, Transport::Other);
}

#[test]
fn options_of_a_syn_and_sack_blocks() {
    let syn = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 255];
    let tcp = tcp_of(&whole(&samples::ethernet(&[], IPV4, &samples::ipv4(6, 1, 0, &[], &samples::tcp(2, &syn, 0)))));
    let found = tcp.options;
    assert_eq!((found.mss, found.window_scale, found.sack_permitted), (Some(1460), Some(255), true), "as offered");
    assert_eq!(found.timestamps, Some((1, 0)));
    let mut sack = STAMPS.to_vec();
    sack.extend_from_slice(&[1, 1, 5, 18, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0, 40]);
    let tcp = tcp_of(&whole(&samples::ethernet(&[], IPV4, &samples::ipv4(6, 1, 0, &[], &samples::tcp(16, &sack, 0)))));
    assert_eq!((tcp.options.sack_blocks, &tcp.options.sack[..2]), (2, &[(10, 20), (30, 40)][..]));
}

#[test]
fn cooked_and_raw_ip() {
    let ip = samples::ipv4(17, 1, 0, &[], &samples::udp(&[0; 30]));
    let cooked = [&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0][..], &ip].concat();
    let packet = dissect(&record(&cooked, cooked.len(), LinkType::LinuxCooked));
    assert_eq!((packet.direction, packet.eth_src[5]), (InterfaceDirection::Outbound, 9));
    assert!(matches!(packet.transport, Transport::Udp { payload_len: 30, .. }));
    let snippet = [8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0];
    let cooked = [&snippet[..], &ip].concat();
    let packet = dissect(&record(&cooked, cooked.len(), LinkType::LinuxCooked2));
    assert_eq!((packet.direction, packet.eth_src[5]), (InterfaceDirection::Inbound, 9));
    assert!(matches!(packet.transport, Transport::Udp { src_port: 1000, dst_port: 2000, payload_len: 30, .. }));
    assert!(matches!(dissect(&record(&ip, ip.len(), LinkType::RawIp)).transport, Transport::Udp { .. }));
    assert_eq!(dissect(&record(&ip, ip.len(), LinkType::Other(147))).ip, None);
}

/// The same datagram behind each link header that longhaul knows.
#[test]
fn each_link_type_is_looked_through() {
    let v4 = samples::ipv4(17, 1, 0, &[], &samples::udp(&[0; 30]));
    let v6 = samples::ipv6(17, &samples::udp(&[0; 30]));
    let found = |link: LinkType, before: &[u8], ip: &[u8]| {
        let frame = [before, ip].concat();
        // Clipped anywhere, nothing is made up.
        for len in 0..frame.len() {
            let packet = dissect(&record(&frame[..len], frame.len(), link));
            assert!(packet.ip.is_none() || len >= before.len() + 20, "{link:?} {len}");
        }
        let packet = dissect(&record(&frame, frame.len(), link));
        let udp = matches!(packet.transport, Transport::Udp { src_port: 1000, payload_len: 30, .. });
        (udp && packet.ip.unwrap().src.is_ipv4() == (ip[0] >> 4 == 4)).then_some((packet.eth_src[5], packet.eth_dst[5]))
    };
    let none = Some((0, 0));
    for (family, ip) in [(2, &v4), (24, &v6), (28, &v6), (30, &v6), (10, &v6)] {
        assert_eq!(found(LinkType::Null, &u32::to_le_bytes(family), ip), none);
        assert_eq!(found(LinkType::Null, &u32::to_be_bytes(family), ip), none);
        assert_eq!(found(LinkType::Loop, &u32::to_be_bytes(family), ip), none);
    }
    assert_eq!(found(LinkType::Null, &u32::to_le_bytes(7), &v4), None, "another family");
    for (header, ip) in [(&[0xff, 3, 0, 0x21][..], &v4), (&[0xff, 3, 0x57], &v6), (&[0, 0x57], &v6), (&[0x21], &v4)] {
        assert_eq!(found(LinkType::Ppp, header, ip), none);
    }
    assert_eq!(found(LinkType::Ppp, &[0xff, 3, 0xc0, 0x21], &v4), None, "LCP");

    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let addresses = |[a, b, c]: [u8; 3]| [[2, 0, 0, 0, 0, a], [2, 0, 0, 0, 0, b], [2, 0, 0, 0, 0, c]].concat();
    let wlan = |control: [u8; 2], more: &[u8]| {
        [&control[..], &[0, 0], &addresses([1, 2, 3]), &[0x10, 0], more, &snap].concat()
    };
    assert_eq!(found(LinkType::Ieee80211, &wlan([8, 0], &[]), &v4), Some((2, 1)));
    assert_eq!(found(LinkType::Ieee80211, &wlan([8, 1], &[]), &v4), Some((2, 3)));
    assert_eq!(found(LinkType::Ieee80211, &wlan([8, 2], &[]), &v4), Some((3, 1)));
    assert_eq!(found(LinkType::Ieee80211, &wlan([8, 3], &[2, 0, 0, 0, 0, 4]), &v4), Some((4, 3)));
    assert_eq!(found(LinkType::Ieee80211, &wlan([0x88, 2], &[0, 0]), &v4), Some((3, 1)), "QoS");
    assert_eq!(found(LinkType::Ieee80211, &wlan([0x88, 0x82], &[0; 6]), &v4), Some((3, 1)), "with HT control");
    assert_eq!(found(LinkType::Ieee80211, &wlan([8, 0x42], &[]), &v4), None, "encrypted");
    assert_eq!(found(LinkType::Ieee80211, &wlan([0x88, 2], &[0x80, 0]), &v4), None, "aggregated");
    assert_eq!(found(LinkType::Ieee80211, &wlan([0x80, 0], &[]), &v4), None, "a beacon");
    assert_eq!(found(LinkType::Ieee80211, &wlan([0x48, 2], &[]), &v4), None, "no data");
    let radiotap = |present: u32, fields: &[u8], wlan: Vec<u8>| {
        [&[0, 0, 8 + fields.len() as u8, 0][..], &present.to_le_bytes(), fields, &wlan].concat()
    };
    assert_eq!(found(LinkType::Radiotap, &radiotap(0, &[], wlan([8, 2], &[])), &v4), Some((3, 1)));
    let padded = wlan([0x88, 2], &[0, 0, 0, 0]);
    assert_eq!(found(LinkType::Radiotap, &radiotap(2, &[0x20, 0], padded.clone()), &v4), Some((3, 1)));
    let with_time = [&[0; 8][..], &[0x20, 0, 0, 0]].concat();
    assert_eq!(found(LinkType::Radiotap, &radiotap(3, &with_time, padded.clone()), &v4), Some((3, 1)));
    let two_words = [&[0; 4][..], &[0; 8], &[0x20, 0, 0, 0]].concat();
    assert_eq!(
        found(LinkType::Radiotap, &radiotap(3 | 1 << 31, &[&[0; 4][..], &two_words].concat(), padded), &v4),
        Some((3, 1))
    );
}

#[test]
fn a_probe_is_read_as_far_as_it_was_captured() {
    let probe = Probe { cookie: Cookie(77), sequence: 5, sent_ns: 9 };
    let mut payload = [0; 40];
    probe.emit(&mut payload).unwrap();
    let frame = samples::ethernet(&[], IPV4, &samples::ipv4(17, 1, 0, &[], &samples::udp(&payload)));
    let found = |bytes: usize| match dissect(&record(&frame[..bytes], frame.len(), LinkType::Ethernet)).transport {
        Transport::Udp { probe, .. } => probe,
        _ => panic!(),
    };
    assert_eq!((found(60), found(59)), (Some(probe), None));
    // Padding is no probe: the datagram's payload is too short for one.
    let mut short = samples::ethernet(&[], IPV4, &samples::ipv4(17, 1, 0, &[], &samples::udp(&[0; 10])));
    short.resize(64, 0);
    assert!(matches!(whole(&short).transport, Transport::Udp { probe: None, payload_len: 10, .. }));
}

proptest! {
    /// Fields of what is left of a clipped frame are those of the whole one.
    #[test]
    fn clipping_takes_fields_away_and_changes_none(clip in 0_usize..200, v6: bool, tags in 0_usize..3) {
        let segment = samples::tcp(0x10, &STAMPS, 100);
        let ip = if v6 { samples::ipv6(6, &segment) } else { samples::ipv4(6, 1, 0, &[], &segment) };
        let frame = samples::ethernet(&[(0x88a8, 7), (0x8100, 9)][..tags], if v6 { IPV6 } else { IPV4 }, &ip);
        let all = whole(&frame);
        let some = dissect(&record(&frame[..clip.min(frame.len())], frame.len(), LinkType::Ethernet));
        prop_assert!(some.ip.is_none() || some.ip == all.ip);
        if let (Transport::Tcp(some), Transport::Tcp(all)) = (some.transport, all.transport) {
            let tcp = Tcp { options: all.options, ..some };
            prop_assert_eq!(tcp, all);
            prop_assert!(some.options.timestamps == all.options.timestamps || some.options.clipped);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u16..10, at in 0_usize..60, set: u8) {
        let link = [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2, LinkType::Other(9),
            LinkType::Null, LinkType::Ppp, LinkType::Ieee80211, LinkType::Radiotap];
        let link = link[usize::from(kind) % link.len()];
        dissect(&record(&bytes, 0, link));
        let mut frame = samples::ethernet(&[], IPV6, &samples::ipv6(0, &bytes));
        if let Some(byte) = frame.get_mut(at) {
            *byte = set;
        }
        dissect(&record(&frame, 0, LinkType::Ethernet));
    }
}
