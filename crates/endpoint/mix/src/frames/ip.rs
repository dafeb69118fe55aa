//! IPv4 (RFC 791), IPv6 (RFC 8200) and what they carry: UDP, TCP, ICMP, IGMP.

use std::net::IpAddr;

use longhaul_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use longhaul_wire::{probe, udp};

use super::{Writer, stranger};
use crate::draw::Random;
use crate::target::Target;

/// RFC 863: the port that discards what it gets.
const DISCARD: u16 = 9;
const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const ICMP6: u8 = 58;
/// The default of RFC 1700 and of Linux.
const TTL: u8 = 64;

/// A host of 198.18.0.0/15.
pub(super) fn host(random: &mut Random) -> [u8; 4] {
    let [low, rest @ ..] = random.bytes::<3>();
    [198, 18 | low & 1, rest[0], rest[1].clamp(1, 254)]
}

/// A host of 2001:2::/48.
fn host6(random: &mut Random) -> [u8; 16] {
    let tail: [u8; 10] = random.bytes();
    std::array::from_fn(|at| match at {
        0 => 0x20,
        1 => 0x01,
        3 => 0x02,
        6.. => tail[at - 6],
        _ => 0,
    })
}

/// A port that the system gives to clients (RFC 6335 §6).
fn port(random: &mut Random) -> u16 {
    49_152 + random.below(16_384) as u16
}

/// The IPv4 header for `payload` bytes behind it.
fn header4(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    ttl: u8,
    payload: usize,
    random: &mut Random,
) -> Vec<u8> {
    let mut header = Writer(vec![0x45, 0])
        .u16((20 + payload) as u16)
        .u16(random.next() as u16)
        .u16(0)
        .u8(ttl)
        .u8(protocol)
        .u16(0)
        .put(&source)
        .put(&destination);
    header.set16(10, Sum::ZERO.add_bytes(&header.0).checksum());
    header.0
}

/// A UDP checksum of 0 means none, so it is sent as 0xffff (RFC 768).
fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

fn udp_segment(ports: (u16, u16), data: usize, pseudo: impl Fn(u32) -> Sum) -> Vec<u8> {
    let length = udp::HEADER_LEN + data;
    let mut segment = Writer(Vec::new()).u16(ports.0).u16(ports.1).u16(length as u16).u16(0).data(data);
    segment.set16(udp::CHECKSUM_OFFSET, not_zero(pseudo(length as u32).add_bytes(&segment.0).checksum()));
    segment.0
}

/// An acknowledgement with data, in the middle of a connection.
fn tcp_segment(data: usize, random: &mut Random, pseudo: impl Fn(u32) -> Sum) -> Vec<u8> {
    let mut segment = Writer(Vec::new())
        .u16(port(random))
        .u16(DISCARD)
        .u32(random.next() as u32)
        .u32(random.next() as u32)
        .put(&[0x50, 0x18])
        .u16(502)
        .u32(0)
        .data(data);
    segment.set16(16, pseudo(segment.len() as u32).add_bytes(&segment.0).checksum());
    segment.0
}

/// Ethernet and IPv4 around `contents`.
fn packet4(to: ([u8; 6], [u8; 4]), from: [u8; 4], protocol: u8, contents: &[u8], random: &mut Random) -> Vec<u8> {
    let ip = header4(from, to.1, protocol, TTL, contents.len(), random);
    Writer::to(to.0, stranger(random)).u16(0x0800).put(&ip).put(contents).0
}

/// The bytes of data that fit after `headers` bytes of headers.
fn room(bytes: usize, headers: usize) -> usize {
    bytes.saturating_sub(headers)
}

fn udp_to(to: ([u8; 6], [u8; 4]), bytes: usize, random: &mut Random) -> Vec<u8> {
    let from = host(random);
    let segment = udp_segment((port(random), DISCARD), room(bytes, 42), |length| pseudo_v4(from, to.1, UDP, length));
    packet4(to, from, UDP, &segment, random)
}

pub(super) fn udp(bytes: usize, random: &mut Random) -> Vec<u8> {
    let to = (stranger(random), host(random));
    udp_to(to, bytes, random)
}

pub(super) fn broadcast(bytes: usize, random: &mut Random) -> Vec<u8> {
    udp_to(([0xff; 6], [255; 4]), bytes, random)
}

pub(super) fn multicast(bytes: usize, random: &mut Random) -> Vec<u8> {
    let [a, b, c] = random.bytes();
    let group = [239, 192 | a & 3, b, c];
    udp_to((group_mac(group), group), bytes, random)
}

/// RFC 1112 §6.4.
fn group_mac(group: [u8; 4]) -> [u8; 6] {
    [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]]
}

/// The stream's datagram, its probe header all zero: numbers are written later.
pub(super) fn stream(bytes: usize, random: &mut Random, target: &Target) -> Vec<u8> {
    let headers = if target.address.is_ipv4() { 42 } else { 62 };
    let data = room(bytes, headers).max(probe::HEADER_LEN);
    let length = (udp::HEADER_LEN + data) as u16;
    let mut segment = Writer(Vec::new())
        .u16(target.source_port)
        .u16(target.port)
        .u16(length)
        .u16(0)
        .zeros(probe::HEADER_LEN)
        .data(data - probe::HEADER_LEN);
    let pseudo = match (target.source, target.address) {
        (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_v4(from.octets(), to.octets(), UDP, u32::from(length)),
        (from, to) => pseudo_v6(octets6(from), octets6(to), UDP, u32::from(length)),
    };
    segment.set16(udp::CHECKSUM_OFFSET, not_zero(pseudo.add_bytes(&segment.0).checksum()));
    match (target.source, target.address) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = header4(from.octets(), to.octets(), UDP, TTL, segment.len(), random);
            Writer::to(target.mac, stranger(random)).u16(0x0800).put(&ip).put(&segment.0).0
        }
        (from, to) => packet6((target.mac, octets6(to)), octets6(from), UDP, TTL, &segment.0, random),
    }
}

/// An address as IPv6 has it.
fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub(super) fn tcp(bytes: usize, random: &mut Random) -> Vec<u8> {
    let (mac, from, to) = (stranger(random), host(random), host(random));
    let segment = tcp_segment(room(bytes, 54), random, |length| pseudo_v4(from, to, TCP, length));
    packet4((mac, to), from, TCP, &segment, random)
}

fn echo(kind: u8, data: usize, random: &mut Random, pseudo: impl Fn(u32) -> Sum) -> Vec<u8> {
    let mut message = Writer(vec![kind, 0]).u16(0).u16(random.next() as u16).u16(random.next() as u16).data(data);
    message.set16(2, pseudo(message.len() as u32).add_bytes(&message.0).checksum());
    message.0
}

pub(super) fn icmp(bytes: usize, random: &mut Random) -> Vec<u8> {
    let (mac, from, to) = (stranger(random), host(random), host(random));
    let message = echo(8, room(bytes, 42), random, |_| Sum::ZERO);
    packet4((mac, to), from, ICMP, &message, random)
}

/// RFC 2236 §2: with the router alert option (RFC 2113), TTL 1.
pub(super) fn igmp(random: &mut Random) -> Vec<u8> {
    let [a, b, c] = random.bytes();
    let group = [239, 192 | a & 3, b, c];
    let mut report = Writer(vec![0x16, 0]).u16(0).put(&group);
    report.set16(2, Sum::ZERO.add_bytes(&report.0).checksum());
    let mut ip = header4(host(random), group, IGMP, 1, report.len() + 4, random);
    ip[0] = 0x46;
    ip.extend([0x94, 4, 0, 0]);
    ip[10..12].fill(0);
    let checksum = Sum::ZERO.add_bytes(&ip).checksum();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    Writer::to(group_mac(group), stranger(random)).u16(0x0800).put(&ip).put(&report.0).0
}

pub(super) fn vlan(bytes: usize, random: &mut Random, twice: bool) -> Vec<u8> {
    let tags = if twice { 2 } else { 1 };
    let plain = udp(room(bytes, 4 * tags), random);
    let mut frame = Writer(plain[..12].to_vec());
    if twice {
        frame = frame.u16(0x88a8).u16(2 + random.below(4_000) as u16);
    }
    frame.u16(0x8100).u16(2 + random.below(4_000) as u16).put(&plain[12..]).0
}

/// Ethernet and IPv6 around `contents`.
fn packet6(
    to: ([u8; 6], [u8; 16]),
    from: [u8; 16],
    next: u8,
    hops: u8,
    contents: &[u8],
    random: &mut Random,
) -> Vec<u8> {
    Writer::to(to.0, stranger(random))
        .u16(0x86dd)
        .u32(6 << 28)
        .u16(contents.len() as u16)
        .u8(next)
        .u8(hops)
        .put(&from)
        .put(&to.1)
        .put(contents)
        .0
}

pub(super) fn udp6(bytes: usize, random: &mut Random) -> Vec<u8> {
    let (mac, from, to) = (stranger(random), host6(random), host6(random));
    let ports = (port(random), DISCARD);
    let segment = udp_segment(ports, room(bytes, 62), |length| pseudo_v6(from, to, UDP, length));
    packet6((mac, to), from, UDP, TTL, &segment, random)
}

pub(super) fn tcp6(bytes: usize, random: &mut Random) -> Vec<u8> {
    let (mac, from, to) = (stranger(random), host6(random), host6(random));
    let segment = tcp_segment(room(bytes, 74), random, |length| pseudo_v6(from, to, TCP, length));
    packet6((mac, to), from, TCP, TTL, &segment, random)
}

pub(super) fn icmp6(bytes: usize, random: &mut Random) -> Vec<u8> {
    let (mac, from, to) = (stranger(random), host6(random), host6(random));
    let message = echo(128, room(bytes, 62), random, |length| pseudo_v6(from, to, ICMP6, length));
    packet6((mac, to), from, ICMP6, TTL, &message, random)
}

/// RFC 4861 §4.3, for `target` or another host, to the group of RFC 4291 §2.7.1.
pub(super) fn neighbour_solicitation(random: &mut Random, target: Option<&Target>) -> Vec<u8> {
    let (from, other) = (host6(random), host6(random));
    let wanted = target.map_or(other, |target| octets6(target.address));
    let [.., a, b, c] = wanted;
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c];
    let own = stranger(random);
    let mut message = Writer(vec![135, 0]).u16(0).u32(0).put(&wanted).put(&[1, 1]).put(&own);
    let sum = pseudo_v6(from, group, ICMP6, message.len() as u32).add_bytes(&message.0);
    message.set16(2, sum.checksum());
    let mut frame = packet6(([0x33, 0x33, 0xff, a, b, c], group), from, ICMP6, 255, &message.0, random);
    frame[6..12].copy_from_slice(&own);
    frame
}
