//! Link headers: what lies before the IP header. Each function passes its header, sets the type of what follows and says where
//! that begins; `None` where it was clipped, or hidden, or is no IP.

use longhaul_wire::ethernet::{self, ether_type};

use crate::bytes::{be16, le16, le32};
use crate::packet::Packet;
use crate::record::{InterfaceDirection, LinkType, Record};

/// VLAN tags that are walked at most.
const MOST_TAGS: usize = 8;

/// Passes the link header of `record`.
#[inline]
pub(super) fn pass(record: &Record<'_>, packet: &mut Packet) -> Option<usize> {
    match record.link {
        LinkType::Ethernet => from_ethernet(record.snippet, packet),
        LinkType::RawIp => from_raw_ip(record.snippet, 0, packet),
        LinkType::LinuxCooked => from_cooked(record.snippet, packet),
        LinkType::LinuxCooked2 => from_cooked2(record.snippet, packet),
        LinkType::Null | LinkType::Loop => from_null(record.snippet, packet),
        LinkType::Ppp => from_ppp(record.snippet, packet),
        LinkType::Ieee80211 => from_80211(record.snippet, 0, false, packet),
        LinkType::Radiotap => from_radiotap(record.snippet, packet),
        LinkType::Other(_) => None,
    }
}

#[inline]
fn from_ethernet(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let Some(frame) = ethernet::Frame::new_checked(snippet) else {
        // Addresses alone are still addresses.
        snippet.first_chunk().inspect(|address| packet.eth_dst = **address);
        snippet.get(6..).and_then(<[u8]>::first_chunk).inspect(|address| packet.eth_src = **address);
        return None;
    };
    packet.eth_dst = frame.destination();
    packet.eth_src = frame.source();
    walk_tags(snippet, frame.ether_type(), ethernet::HEADER_LEN, packet)
}

/// From the type before `offset` through all tags; where the network's header begins.
#[inline]
fn walk_tags(snippet: &[u8], mut kind: u16, mut offset: usize, packet: &mut Packet) -> Option<usize> {
    for depth in 0..=MOST_TAGS {
        if !ethernet::is_tag(kind) {
            packet.eth_type = kind;
            return Some(offset);
        }
        let (tci, inner) = (be16(snippet, offset)?, be16(snippet, offset + 2)?);
        if let Some(vlan) = packet.vlan.get_mut(depth) {
            *vlan = Some(tci & 0xfff);
        }
        kind = inner;
        offset += ethernet::TAG_LEN;
    }
    None
}

/// By the version of the IP header at `offset`.
fn from_raw_ip(snippet: &[u8], offset: usize, packet: &mut Packet) -> Option<usize> {
    packet.eth_type = match snippet.get(offset)? >> 4 {
        4 => ether_type::IPV4,
        6 => ether_type::IPV6,
        _ => return None,
    };
    Some(offset)
}

/// LINKTYPE_NULL, LINKTYPE_LOOP: the protocol family in four bytes, of the former in the order of the host that captured. 2 is IPv4
/// everywhere, IPv6 is 24, 28 or 30 on the BSDs and macOS, 10 on Linux and 23 on Windows.
fn from_null(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let is_ip = |family: u32| matches!(family, 2 | 10 | 23 | 24 | 28 | 30);
    let family = le32(snippet, 0)?;
    (is_ip(family) || is_ip(family.swap_bytes())).then(|| from_raw_ip(snippet, 4, packet))?
}

/// LINKTYPE_PPP, LINKTYPE_PPP_HDLC (RFC 1661 §2, RFC 1662 §3.1): address and control, which may be left out, and the protocol, of whose two
/// bytes the first may be left out where it is 0.
fn from_ppp(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let at = if snippet.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
    let first = *snippet.get(at)?;
    let (protocol, offset) = if first & 1 == 1 { (first.into(), at + 1) } else { (be16(snippet, at)?, at + 2) };
    packet.eth_type = match protocol {
        0x21 => ether_type::IPV4,
        0x57 => ether_type::IPV6,
        _ => return None,
    };
    Some(offset)
}

/// LINKTYPE_IEEE802_11 (IEEE 802.11-2020 §9.2.4.1, §9.3.2.1): frame control 2, duration 2, three addresses, sequence control 2, a fourth address
/// between access points, QoS 2, HT control 4; then LLC and SNAP (RFC 1042). Only data that is neither encrypted nor aggregated.
fn from_80211(snippet: &[u8], at: usize, is_padded: bool, packet: &mut Packet) -> Option<usize> {
    let control = le16(snippet, at)?;
    let (kind, subtype) = (control >> 2 & 3, control >> 4 & 15);
    let (to_ds, from_ds, is_qos) = (control & 0x100 != 0, control & 0x200 != 0, subtype & 8 != 0);
    let later_fragment = le16(snippet, at + 22)? & 15 != 0;
    if kind != 2 || subtype & 4 != 0 || control & 0x4000 != 0 || later_fragment {
        return None;
    }
    let (destination, source) = match (to_ds, from_ds) {
        (false, false) => (4, 10),
        (false, true) => (4, 16),
        (true, false) => (16, 10),
        (true, true) => (16, 24),
    };
    packet.eth_dst = *snippet.get(at + destination..)?.first_chunk()?;
    packet.eth_src = *snippet.get(at + source..)?.first_chunk()?;
    let mut len = if to_ds && from_ds { 30 } else { 24 };
    if is_qos {
        let is_aggregate = le16(snippet, at + len)? & 0x80 != 0;
        if is_aggregate {
            return None;
        }
        len += if control & 0x8000 != 0 { 6 } else { 2 };
    }
    let offset = at + if is_padded { len.next_multiple_of(4) } else { len };
    let is_snap = snippet.get(offset..)?.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]);
    walk_tags(snippet, be16(snippet, offset + 6).filter(|_| is_snap)?, offset + 8, packet)
}

/// LINKTYPE_IEEE802_11_RADIOTAP (radiotap.org): version 1, pad 1, length 2, words that say which fields follow; of these the flags, behind a time
/// of eight bytes, say whether the 802.11 header is padded to a multiple of four.
fn from_radiotap(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let (len, present) = (le16(snippet, 2)?, le32(snippet, 4)?);
    let mut fields = 8;
    let mut word = present;
    while word >> 31 == 1 {
        word = le32(snippet, fields)?;
        fields += 4;
    }
    let flags_at = if present & 1 == 1 { usize::next_multiple_of(fields, 8) + 8 } else { fields };
    let flags = if present & 2 == 2 { *snippet.get(flags_at)? } else { 0 };
    from_80211(snippet, len.into(), flags & 0x20 != 0, packet)
}

/// LINKTYPE_LINUX_SLL: packet type 2, ARPHRD 2, address length 2, address 8, protocol 2.
fn from_cooked(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let kind = be16(snippet, 0)?;
    cooked_sender(kind.into(), be16(snippet, 4)?, snippet.get(6..)?, packet);
    walk_tags(snippet, be16(snippet, 14)?, 16, packet)
}

/// LINKTYPE_LINUX_SLL2: protocol 2, reserved 2, interface 4, ARPHRD 2, packet type 1, address length 1, address 8.
fn from_cooked2(snippet: &[u8], packet: &mut Packet) -> Option<usize> {
    let protocol = be16(snippet, 0)?;
    cooked_sender((*snippet.get(10)?).into(), (*snippet.get(11)?).into(), snippet.get(12..)?, packet);
    (snippet.len() >= 20).then(|| walk_tags(snippet, protocol, 20, packet))?
}

/// `PACKET_OUTGOING` is 4 (linux/if_packet.h); what is below was received.
fn cooked_sender(kind: u32, address_len: u16, address: &[u8], packet: &mut Packet) {
    if packet.direction == InterfaceDirection::Unknown && kind <= 4 {
        packet.direction = if kind == 4 { InterfaceDirection::Outbound } else { InterfaceDirection::Inbound };
    }
    if let (6, Some(address)) = (address_len, address.first_chunk()) {
        packet.eth_src = *address;
    }
}
