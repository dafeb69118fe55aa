//! Super-packets in tunnels, cut into single packets: what comes out of the tunnel is what the inner super-packet alone gives,
//! and every outer header fits its packet.

use crate::common::{Spec, fold, naive, pseudo, spec};
use longhaul_wire::{PieceHeader, SegmentError, Segmenter, ShapeError, VnetHeader};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Tunnel {
    Vxlan { port: u16, checksum: bool },
    Geneve { checksum: bool },
    FooOverUdp,
    Gre { checksum: bool, key: bool, bridged: bool },
    IpInIp,
}

const TUNNELS: [Tunnel; 12] = [
    Tunnel::Vxlan { port: 4789, checksum: false },
    Tunnel::Vxlan { port: 4789, checksum: true },
    Tunnel::Vxlan { port: 8472, checksum: true },
    Tunnel::Vxlan { port: 9999, checksum: true },
    Tunnel::Geneve { checksum: false },
    Tunnel::Geneve { checksum: true },
    Tunnel::FooOverUdp,
    Tunnel::Gre { checksum: false, key: false, bridged: false },
    Tunnel::Gre { checksum: true, key: false, bridged: false },
    Tunnel::Gre { checksum: true, key: true, bridged: true },
    Tunnel::Gre { checksum: false, key: true, bridged: true },
    Tunnel::IpInIp,
];

impl Tunnel {
    /// Whether the inner packet begins with an Ethernet header.
    fn bridged(self) -> bool {
        matches!(self, Self::Vxlan { .. } | Self::Geneve { .. } | Self::Gre { bridged: true, .. })
    }

    /// The IP protocol number, and the header between the outer IP header and the inner packet. Lengths and checksums are
    /// left wrong, but for that a checksum there is not 0.
    fn header(self, inner_v6: bool) -> (u8, Vec<u8>) {
        let udp = |port: u16, checksum| {
            [&[0xc0, 0][..], &port.to_be_bytes(), &[0, 0], if checksum { &[0xab, 0xcd] } else { &[0, 0] }].concat()
        };
        let ip_type = if inner_v6 { [0x86, 0xdd] } else { [8, 0] };
        match self {
            Self::Vxlan { port, checksum } => (17, [udp(port, checksum), vec![8, 0, 0, 0, 0, 0, 42, 0]].concat()),
            Self::Geneve { checksum } => {
                (17, [udp(6081, checksum), vec![2, 0, 0x65, 0x58, 0, 0, 42, 0], vec![1; 8]].concat())
            }
            Self::FooOverUdp => (17, udp(5555, true)),
            Self::Gre { checksum, key, bridged } => {
                let mut gre = vec![u8::from(checksum) << 7 | u8::from(key) << 5, 0];
                gre.extend(if bridged { [0x65, 0x58] } else { ip_type });
                gre.extend([0xab, 0xcd, 0, 0].repeat(checksum.into()));
                gre.extend([0, 0, 0, 9].repeat(key.into()));
                (47, gre)
            }
            Self::IpInIp => (if inner_v6 { 41 } else { 4 }, vec![]),
        }
    }
}

/// Puts a super-packet into a tunnel. Returns it with the length of the link layer and of everything before the inner packet.
fn wrap(tunnel: Tunnel, outer_v6: bool, inner: &Spec) -> (VnetHeader, Vec<u8>, usize, usize) {
    let (vnet, inner_frame) = inner.build();
    let l2 = 12 + inner.tags.len() * 4 + 2;
    let inner_bytes = if tunnel.bridged() { &inner_frame[..] } else { &inner_frame[l2..] };
    let (protocol, header) = tunnel.header(inner.v6);
    let mut outer = vec![4; 12];
    if outer_v6 {
        outer.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
        outer.extend((0..32).map(|i| i * 5));
    } else {
        outer.extend([8, 0, 0x45, 0, 0, 0, 0xff, 0xff, 0, 0, 64, protocol, 0, 0, 172, 16, 0, 1, 172, 16, 0, 2]);
    }
    let ip_end = outer.len();
    outer.extend(&header);
    let before = outer.len();
    let moved = before as u16 - if tunnel.bridged() { 0 } else { l2 as u16 };
    (vnet.shifted(moved), [&outer, inner_bytes].concat(), ip_end, before)
}

/// Checks the outer headers of one packet.
fn check_outer(packet: &[u8], ip_end: usize, index: u32, tunnel: Tunnel) {
    let (ip, behind) = (&packet[14..ip_end], &packet[ip_end..]);
    if ip[0] >> 4 == 4 {
        assert_eq!(fold(ip), 0xffff, "IPv4 checksum");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), packet.len() - 14);
        assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 0xffff_u16.wrapping_add(index as u16));
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), behind.len());
    }
    match tunnel {
        Tunnel::Vxlan { checksum, .. } | Tunnel::Geneve { checksum } => check_udp(ip, behind, checksum),
        Tunnel::FooOverUdp => check_udp(ip, behind, true),
        Tunnel::Gre { checksum: true, .. } => assert_eq!(fold(behind), 0xffff, "GRE checksum"),
        Tunnel::Gre { .. } | Tunnel::IpInIp => {}
    }
}

fn check_udp(ip: &[u8], udp: &[u8], checksum: bool) {
    assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
    if checksum {
        assert_ne!(udp[6..8], [0, 0]);
        assert_eq!(fold(&[&pseudo(ip, 17, udp.len()), udp].concat()), 0xffff, "outer UDP checksum");
    } else {
        assert_eq!(udp[6..8], [0, 0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_leaves_the_tunnel_is_the_inner_packet(
        inner in spec(), tunnel in prop::sample::select(TUNNELS.to_vec()), outer_v6: bool
    ) {
        // Without the place of the inner header, a tunnel is known by its port alone, and UDP is never taken for one.
        let inner = match tunnel {
            Tunnel::Vxlan { port: 9999, .. } | Tunnel::FooOverUdp => Spec { needs_csum: true, ..inner },
            _ => Spec { needs_csum: inner.needs_csum || !inner.tcp, ..inner },
        };
        let (inner_vnet, inner_frame) = inner.build();
        let (vnet, frame, ip_end, before) = wrap(tunnel, outer_v6, &inner);
        let segmenter = Segmenter::new(&frame, frame.len(), vnet).unwrap();
        let shape = segmenter.shape();
        prop_assert!(shape.is_tunnel);
        prop_assert_eq!(segmenter.run(&frame, 0, 1, &mut PieceHeader::new()), Err(SegmentError::Tunnel));

        let wanted = naive(&inner_vnet, &inner_frame);
        prop_assert_eq!(shape.segments as usize, wanted.len());
        let skipped = if tunnel.bridged() { 0 } else { 14 + inner.tags.len() * 4 };
        let mut out = Vec::new();
        for (index, wanted) in (0..).zip(&wanted) {
            prop_assert_eq!(segmenter.segment_whole(&frame, index, &mut out), Ok(VnetHeader::default()));
            prop_assert_eq!(&out[before..], &wanted[skipped..]);
            prop_assert_eq!(shape.wire_len(index) as usize, out.len());
            check_outer(&out, ip_end, index, tunnel);
        }
    }
}

#[test]
fn tunnels_in_tunnels_come_to_an_end() {
    // IPv4 in IPv4, without end.
    let mut frame = vec![0; 14];
    frame[12] = 8;
    let ip = [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 4][..], &[0; 10]].concat();
    frame.extend(ip.repeat(100));
    let vnet = VnetHeader { gso_type: 1, gso_size: 100, ..VnetHeader::default() };
    assert_eq!(Segmenter::new(&frame, frame.len(), vnet).err(), Some(ShapeError::TooDeep));
}
