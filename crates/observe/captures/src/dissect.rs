//! Captured bytes to fields: [`dissect`].
//!
//! What is not there is not guessed: a header that was clipped away leaves its part of the [`Packet`] empty. Lengths of payload
//! come from IP's header, as captured bytes end where the snap length says and frames may have padding; where IP's length is 0,
//! as in super-packets larger than 64 KB (BIG TCP) or from hosts that fill it in later, from the frame's length.
//!
//! Looked through: VLAN tags (IEEE 802.1Q §9, the first two kept), Linux cooked headers v1 and v2, the headers of null and loop interfaces and of
//! PPP, 802.11 whose data is plain, IPv4 options, IPv6 extension headers (RFC 8200 §4), jumbograms (RFC 2675). Not looked through:
//! tunnels, MPLS, PPPoE; their packets are [`Transport::Other`].

mod link;

use std::net::IpAddr;

use longhaul_wire::ethernet::ether_type;
use longhaul_wire::probe::Probe;
use longhaul_wire::tcp::flag;
use longhaul_wire::{ipv4, ipv6, tcp};

use crate::bytes::{be16, be32};
use crate::packet::{Ip, Options, Packet, Tcp, Transport, within_times};
use crate::record::Record;

/// Extension headers that are walked at most. RFC 8200 §4.1 names seven in its recommended order.
const MOST_EXTENSIONS: usize = 8;
/// Bytes of a TCP header up to and with its window: all that analysis needs, so that a snippet clipped to 54 or 64 bytes behind
/// several tags still counts.
const TCP_WITH_WINDOW: usize = 16;
const UDP: u8 = 17;

/// The fields of a captured snippet. Any bytes may be given: nothing panics, loops or allocates.
pub fn dissect(record: &Record<'_>) -> Packet {
    let mut packet = Packet::default();
    dissect_into(record, &mut packet);
    packet
}

/// The same into `packet`, whatever that was: a packet that is moved where it was just written costs as much again.
#[inline]
pub fn dissect_into(record: &Record<'_>, packet: &mut Packet) {
    let frame_len = record.frame_len.max(u32::try_from(record.snippet.len()).unwrap_or(u32::MAX));
    *packet = Packet {
        at_ns: within_times(record.at_ns),
        interface: record.interface,
        direction: record.direction,
        frame_len,
        frame_cap_len: record.snippet.len() as u32,
        gso_segs: record.gso_segs,
        gso_size: record.gso_size,
        ..Packet::default()
    };
    let Some(offset) = link::pass(record, packet) else { return };
    let behind = &record.snippet[offset..];
    let on_wire = frame_len - offset as u32;
    match packet.eth_type {
        ether_type::IPV4 => from_ipv4(behind, on_wire, packet),
        ether_type::IPV6 => from_ipv6(behind, on_wire, packet),
        _ => {}
    }
}

#[inline]
fn from_ipv4(behind: &[u8], on_wire: u32, packet: &mut Packet) {
    let Some(view) = ipv4::Packet::new_checked(behind) else { return };
    let fragment = be16(behind, 6).unwrap_or(0);
    let len = match u32::from(view.total_len()) {
        0 => on_wire,
        len => len,
    };
    let ip = Ip {
        src: IpAddr::from(view.source()),
        dst: IpAddr::from(view.destination()),
        protocol: view.protocol(),
        ttl: view.time_to_live(),
        traffic_class: behind[1],
        id: Some(view.identification().into()),
        len,
        fragment_offset: u32::from(fragment & 0x1fff) * 8,
        more_fragments: fragment & 0x2000 != 0,
    };
    transport(&ip, behind, view.header_len(), packet);
    packet.ip = Some(ip);
}

fn from_ipv6(behind: &[u8], on_wire: u32, packet: &mut Packet) {
    let Some(view) = ipv6::Packet::new_checked(behind) else { return };
    let len = match (view.payload_len(), view.jumbo_payload_len()) {
        (0, Some(jumbo)) => jumbo.saturating_add(ipv6::HEADER_LEN as u32),
        (0, None) if view.next_header() != NO_NEXT_HEADER => on_wire,
        (payload, _) => u32::from(payload) + ipv6::HEADER_LEN as u32,
    };
    let mut ip = Ip {
        src: IpAddr::from(view.source()),
        dst: IpAddr::from(view.destination()),
        protocol: view.next_header(),
        ttl: view.hop_limit(),
        traffic_class: behind[0] << 4 | behind[1] >> 4,
        id: None,
        len,
        fragment_offset: 0,
        more_fragments: false,
    };
    if let Some(offset) = walk_extensions(behind, &mut ip) {
        transport(&ip, behind, offset, packet);
    }
    packet.ip = Some(ip);
}

const NO_NEXT_HEADER: u8 = 59;

/// Passes IPv6's extension headers; where the upper layer begins, which may be beyond what was captured. `None` where one of
/// them was clipped or they do not end.
#[inline]
fn walk_extensions(behind: &[u8], ip: &mut Ip) -> Option<usize> {
    let mut offset = ipv6::HEADER_LEN;
    for _ in 0..=MOST_EXTENSIONS {
        let length = match ip.protocol {
            // Hop-by-hop, routing, destination, mobility, HIP, Shim6: in units of eight bytes, the first not counted.
            0 | 43 | 60 | 135 | 139 | 140 => (usize::from(*behind.get(offset + 1)?) + 1) * 8,
            // Authentication: in units of four, the first two not counted (RFC 4302 §2.2).
            51 => (usize::from(*behind.get(offset + 1)?) + 2) * 4,
            44 => {
                let place = be16(behind, offset + 2)?;
                ip.fragment_offset = u32::from(place & 0xfff8);
                ip.more_fragments = place & 1 != 0;
                ip.id = Some(be32(behind, offset + 4)?);
                8
            }
            _ => return Some(offset),
        };
        ip.protocol = *behind.get(offset)?;
        offset += length;
        if ip.fragment_offset != 0 {
            return Some(offset);
        }
    }
    None
}

/// `offset` is where it begins in `behind`, which starts with the IP header.
#[inline]
fn transport(ip: &Ip, behind: &[u8], offset: usize, packet: &mut Packet) {
    if ip.fragment_offset != 0 {
        return;
    }
    let Some(segment) = behind.get(offset..) else { return };
    let segment_len = ip.len.saturating_sub(offset as u32);
    match ip.protocol {
        tcp::PROTOCOL => from_tcp(segment, segment_len, &mut packet.transport),
        UDP => from_udp(segment, segment_len, packet.gso_size > 0, &mut packet.transport),
        _ => {}
    }
}

#[inline]
fn from_tcp(segment: &[u8], segment_len: u32, into: &mut Transport) {
    let Some(header) = segment.first_chunk::<TCP_WITH_WINDOW>() else { return };
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < tcp::MIN_HEADER_LEN {
        return;
    }
    let flags = u16::from(header[12] & 1) << 8 | u16::from(header[13]);
    let whole = segment.get(tcp::MIN_HEADER_LEN..header_len);
    *into = Transport::Tcp(Tcp {
        src_port: u16::from_be_bytes([header[0], header[1]]),
        dst_port: u16::from_be_bytes([header[2], header[3]]),
        seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        flags,
        window: u16::from_be_bytes([header[14], header[15]]),
        payload_len: segment_len.saturating_sub(header_len as u32),
        options: Options { clipped: whole.is_none(), ..Options::default() },
    });
    if let Transport::Tcp(tcp) = into {
        let bytes = whole.or(segment.get(tcp::MIN_HEADER_LEN..)).unwrap_or(&[]);
        options(bytes, flags, &mut tcp.options);
    }
}

/// Of a super-packet the UDP header may have the length of one datagram; IP's is that of all.
#[inline]
fn from_udp(segment: &[u8], segment_len: u32, super_packet: bool, into: &mut Transport) {
    let Some(header) = segment.first_chunk::<8>() else { return };
    let said = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let len = if super_packet || said < 8 { segment_len } else { said.min(segment_len) };
    *into = Transport::Udp {
        src_port: u16::from_be_bytes([header[0], header[1]]),
        dst_port: u16::from_be_bytes([header[2], header[3]]),
        payload_len: len.saturating_sub(8),
        probe: Probe::parse(&segment[8..]).filter(|_| len as usize >= 8 + longhaul_wire::probe::HEADER_LEN),
    };
}

/// TCP's options (RFC 9293 §3.2; RFC 7323, RFC 2018), into those that have none yet. What is malformed ends the walk.
#[inline]
fn options(mut bytes: &[u8], flags: u16, found: &mut Options) {
    let syn = flags & u16::from(flag::SYN) != 0;
    // Nearly all data segments: two fillers and time stamps (RFC 7323 appendix A).
    if let Some([1, 1, 8, 10, a, b, c, d, e, f, g, h]) = bytes.first_chunk() {
        found.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
        bytes = &bytes[12..];
    }
    while let [kind, rest @ ..] = bytes {
        match kind {
            0 => break,
            1 => {
                bytes = rest;
                continue;
            }
            _ => {}
        }
        let Some(length) = rest.first().map(|length| usize::from(*length)) else { break };
        let Some(value) = bytes.get(2..length) else { break };
        match (kind, value.len()) {
            (2, 2) if syn => found.mss = be16(value, 0),
            (3, 1) if syn => found.window_scale = Some(value[0]),
            (4, 0) if syn => found.sack_permitted = true,
            (5, 8 | 16 | 24 | 32) => {
                found.sack_blocks = 0;
                for (block, edges) in found.sack.iter_mut().zip(value.chunks_exact(8)) {
                    *block = (be32(edges, 0).unwrap_or(0), be32(edges, 4).unwrap_or(0));
                    found.sack_blocks += 1;
                }
            }
            (8, 8) => found.timestamps = be32(value, 0).zip(be32(value, 4)),
            _ => {}
        }
        bytes = &bytes[length..];
    }
}

#[cfg(test)]
mod tests;
