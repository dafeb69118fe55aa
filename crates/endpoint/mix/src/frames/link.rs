//! Frames of neighbours and switches: ARP, spanning tree, CDP, VTP, LLDP.

use std::net::IpAddr;

use longhaul_wire::checksum::Sum;

use super::ip::host;
use super::{Writer, length_framed, snap, stranger};
use crate::draw::Random;
use crate::target::Target;

/// IEEE 802.1Q table 8-1: bridges.
const BRIDGES: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
/// IEEE 802.1AB table 7-1: the nearest bridge.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
/// Cisco's group for CDP, VTP and others.
const CISCO: [u8; 6] = [0x01, 0, 0x0c, 0xcc, 0xcc, 0xcc];
const CISCO_OUI: [u8; 3] = [0, 0, 0x0c];
/// Extreme's, for EDP: not a group by its bits.
const EXTREME: [u8; 6] = [0, 0xe0, 0x2b, 0, 0, 0];
const EXTREME_OUI: [u8; 3] = [0, 0xe0, 0x2b];

/// RFC 826: a request for the address of `target`, or of another host.
pub(super) fn arp(random: &mut Random, target: Option<&Target>) -> Vec<u8> {
    let (own, from, other) = (stranger(random), host(random), host(random));
    let wanted = match target.map(|target| target.address) {
        Some(IpAddr::V4(address)) => address.octets(),
        _ => other,
    };
    Writer::to([0xff; 6], own).u16(0x0806).put(&[0, 1, 8, 0, 6, 4, 0, 1]).put(&own).put(&from).zeros(6).put(&wanted).0
}

/// A configuration BPDU (IEEE 802.1D-1998 §9.3.1): its times are the defaults of table 8-3, in 1/256 s.
pub(super) fn stp(random: &mut Random) -> Vec<u8> {
    let (root, bridge) = (stranger(random), stranger(random));
    let bpdu = Writer(vec![0x42, 0x42, 0x03])
        .zeros(5)
        .u16(0x8000)
        .put(&root)
        .u32(4)
        .u16(0x8000)
        .put(&bridge)
        .u16(0x8001)
        .u16(1 << 8)
        .u16(20 << 8)
        .u16(2 << 8)
        .u16(15 << 8);
    length_framed(BRIDGES, bridge, &bpdu.0)
}

/// CDP version 2, as switches send it each minute.
pub(super) fn cdp(random: &mut Random) -> Vec<u8> {
    let value = |writer: Writer, kind: u16, bytes: &[u8]| writer.u16(kind).u16(4 + bytes.len() as u16).put(bytes);
    let name = format!("switch-{:05}", random.below(100_000));
    let mut message = Writer(vec![2, 180]).u16(0);
    message = value(message, 1, name.as_bytes());
    message = value(message, 3, b"GigabitEthernet0/1");
    // Capabilities: a switch.
    message = value(message, 4, &[0, 0, 0, 8]);
    message = value(message, 6, b"example switch");
    // Even: Cisco's checksum of an odd length differs from that of the Internet.
    debug_assert!(message.len().is_multiple_of(2));
    message.set16(2, Sum::ZERO.add_bytes(&message.0).checksum());
    length_framed(CISCO, stranger(random), &snap(CISCO_OUI, 0x2000, &message.0))
}

/// A summary advertisement of version 1.
pub(super) fn vtp(random: &mut Random) -> Vec<u8> {
    let domain = b"campus";
    let message = Writer(vec![1, 1, 0, domain.len() as u8])
        .put(domain)
        .zeros(32 - domain.len())
        .u32(random.below(1_000))
        .put(&host(random))
        .put(b"050101000000")
        .put(&random.bytes::<16>());
    length_framed(CISCO, stranger(random), &snap(CISCO_OUI, 0x2003, &message.0))
}

/// As Wireshark's `packet-dtp.c` reads it: the domain, whether to be a trunk, of which kind, and who asks.
pub(super) fn disl(random: &mut Random) -> Vec<u8> {
    let value = |writer: Writer, kind: u16, bytes: &[u8]| writer.u16(kind).u16(4 + bytes.len() as u16).put(bytes);
    let own = stranger(random);
    let mut message = Writer(vec![1]);
    // Desirable; ISL.
    for (kind, bytes) in [(1, &b"campus\0"[..]), (2, &[3]), (3, &[0x42]), (4, &own)] {
        message = value(message, kind, bytes);
    }
    length_framed(CISCO, own, &snap(CISCO_OUI, 0x2004, &message.0))
}

/// As Wireshark's `packet-edp.c` reads it: the switch's name, and the end.
pub(super) fn edp(random: &mut Random) -> Vec<u8> {
    let own = stranger(random);
    let name = format!("switch-{:05}\0", random.below(100_000));
    let value =
        |writer: Writer, kind: u8, bytes: &[u8]| writer.u8(0x99).u8(kind).u16(4 + bytes.len() as u16).put(bytes);
    let mut message = Writer(vec![1, 0]).u16(0).u16(0).u16(random.next() as u16).u16(0).put(&own);
    message = value(message, 1, name.as_bytes());
    message = value(message, 0, &[]);
    message.set16(2, message.len() as u16);
    message.set16(4, Sum::ZERO.add_bytes(&message.0).checksum());
    length_framed(EXTREME, own, &snap(EXTREME_OUI, 0x00bb, &message.0))
}

/// IEEE 802.1AB §8.5: chassis, port and time to live, which are mandatory, a name, the end.
pub(super) fn lldp(random: &mut Random) -> Vec<u8> {
    let value = |writer: Writer, kind: u16, bytes: &[u8]| writer.u16(kind << 9 | bytes.len() as u16).put(bytes);
    let own = stranger(random);
    let name = format!("switch-{:05}", random.below(100_000));
    let mut frame = Writer::to(NEAREST_BRIDGE, own).u16(0x88cc);
    frame = value(frame, 1, &[&[4][..], &own].concat());
    frame = value(frame, 2, b"\x05ge-0/0/1");
    frame = value(frame, 3, &120_u16.to_be_bytes());
    frame = value(frame, 5, name.as_bytes());
    value(frame, 0, &[]).0
}
