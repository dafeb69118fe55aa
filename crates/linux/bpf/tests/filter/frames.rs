//! Frames of every class, well formed.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const EVERYBODY: [u8; 6] = [0xff; 6];
pub(crate) const OUR_IP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
pub(crate) const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
pub(crate) const OTHER_IP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 9);
pub(crate) const OUR_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd97, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const PEER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd97, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const OTHER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd97, 0, 0, 0, 0, 0, 0x12, 0x3456);

/// Padded to the shortest on a wire, without FCS.
pub(crate) fn ethernet(to: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &PEER_MAC, &kind.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// IEEE 802.3: the length, then `payload`.
pub(crate) fn ieee(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    ethernet(to, payload.len() as u16, payload)
}

/// A tag with `vid` behind the addresses.
pub(crate) fn tagged(frame: &[u8], tpid: u16, vid: u16) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &vid.to_be_bytes(), &frame[12..]].concat()
}

pub(crate) fn arp(to: [u8; 6], operation: u16, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut payload = vec![0, 1, 8, 0, 6, 4];
    payload.extend(operation.to_be_bytes());
    payload.extend(PEER_MAC);
    payload.extend(sender.octets());
    payload.extend([0; 6]);
    payload.extend(target.octets());
    ethernet(to, 0x0806, &payload)
}

pub(crate) fn ipv4(to: [u8; 6], destination: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((20 + payload.len() as u16).to_be_bytes());
    ip.extend([0, 7]);
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0]);
    ip.extend(PEER_IP.octets());
    ip.extend(destination.octets());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(payload);
    ethernet(to, 0x0800, &ip)
}

/// Source port 40000; no checksum, which IPv4 allows.
pub(crate) fn udp(port: u16, bytes: usize) -> Vec<u8> {
    let mut udp = Vec::new();
    for word in [40_000, port, 8 + bytes as u16, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.resize(8 + bytes, 0xa5);
    udp
}

/// A SYN from port 40000.
pub(crate) fn tcp(port: u16) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(40_000_u16.to_be_bytes());
    tcp.extend(port.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x10, 0, 0, 0, 0, 0]);
    tcp
}

pub(crate) fn ipv6(to: [u8; 6], destination: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((payload.len() as u16).to_be_bytes());
    ip.extend([next, 255]);
    ip.extend(PEER_IPV6.octets());
    ip.extend(destination.octets());
    ip.extend(payload);
    ethernet(to, 0x86dd, &ip)
}

/// An ICMPv6 message; what the kernel makes of it is not the filter's business, so without checksum.
pub(crate) fn icmpv6(kind: u8, target: Ipv6Addr) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

pub(crate) fn group_of(ip: Ipv6Addr) -> ([u8; 6], Ipv6Addr) {
    let bytes = ip.octets();
    let mac = [0x33, 0x33, 0xff, bytes[13], bytes[14], bytes[15]];
    (
        mac,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(bytes[13]), u16::from_be_bytes([bytes[14], bytes[15]])),
    )
}
