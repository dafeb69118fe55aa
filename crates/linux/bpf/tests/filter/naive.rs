//! The rules of `docs/reference/filter.md` once more, in Rust, as plainly as they can be said: what the program must agree with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use longhaul_bpf::filter::{Cast, Class, Reason};

use crate::world::World;

/// A frame taken apart.
struct Taken<'a> {
    class: Class,
    cast: Cast,
    kind: Option<u16>,
    tagged: bool,
    payload: Result<Payload<'a>, CutOff>,
}

/// It ends too early, or contradicts itself.
struct CutOff;

enum Payload<'a> {
    Arp(&'a [u8]),
    Ip { destination: IpAddr, protocol: u8, fragment: bool, transport: &'a [u8] },
    Else,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn ipv4(bytes: &[u8]) -> (Class, Result<Payload<'_>, CutOff>) {
    let cut = (Class::Ipv4Other, Err(CutOff));
    let Some(header) = bytes.first_chunk::<20>().filter(|header| header[0] >> 4 == 4 && header[0] & 15 >= 5) else {
        return cut;
    };
    // What lies behind the packet pads the frame.
    let Some(packet) = bytes.get(..usize::from(word(header, 2).unwrap())) else { return cut };
    let Some(transport) = packet.get(4 * usize::from(header[0] & 15)..) else { return cut };
    let protocol = header[9];
    let class = match protocol {
        6 => Class::Ipv4Tcp,
        17 => Class::Ipv4Udp,
        1 => Class::Ipv4Icmp,
        2 => Class::Ipv4Igmp,
        _ => Class::Ipv4Other,
    };
    let fragment = word(header, 6).unwrap() & 0x3fff != 0;
    let destination = Ipv4Addr::from(*header.last_chunk::<4>().unwrap()).into();
    (class, Ok(Payload::Ip { destination, protocol, fragment, transport }))
}

/// `offset` is that of `bytes` in the frame: extension headers that begin behind its first 1024 bytes are not followed.
fn ipv6(bytes: &[u8], offset: usize) -> (Class, Result<Payload<'_>, CutOff>) {
    let cut = (Class::Ipv6Other, Err(CutOff));
    let Some(header) = bytes.first_chunk::<40>().filter(|header| header[0] >> 4 == 6) else { return cut };
    let destination = Ipv6Addr::from(*header.last_chunk::<16>().unwrap()).into();
    // A jumbogram says its length in an option (RFC 2675).
    let payload_bytes = match (word(header, 4).unwrap(), header[6]) {
        (0, 0) => bytes.len() - 40,
        (bytes, _) => bytes.into(),
    };
    let Some(bytes) = bytes.get(..40 + payload_bytes) else { return cut };
    let (mut next, mut at, mut fragment, mut extensions) = (header[6], 40, false, 0);
    while [0, 43, 44, 51, 60].contains(&next) && !fragment {
        let Some(extension) = bytes.get(at..at + 8).filter(|_| extensions < 6 && offset + at <= 1024) else {
            return cut;
        };
        extensions += 1;
        at += match next {
            44 => 8,
            51 => 4 * (usize::from(extension[1]) + 2),
            _ => 8 * (usize::from(extension[1]) + 1),
        };
        fragment = next == 44 && word(extension, 2).unwrap() & 0xfff9 != 0;
        next = extension[0];
    }
    let Some(transport) = bytes.get(at..) else { return cut };
    let class = match next {
        6 => Class::Ipv6Tcp,
        17 => Class::Ipv6Udp,
        58 => Class::Ipv6Icmp,
        _ => Class::Ipv6Other,
    };
    (class, Ok(Payload::Ip { destination, protocol: next, fragment, transport }))
}

fn llc(bytes: &[u8]) -> Class {
    match bytes {
        [0xff, 0xff, _, ..] | [0xe0, _, _, ..] => Class::Ipx,
        [0xf0, _, _, ..] => Class::Netbeui,
        [0x42, _, _, ..] => Class::Stp,
        [0xaa, 0xaa, _, rest @ ..] => match rest {
            [0, 0, 0x0c, 0x20, 0, ..] => Class::Cdp,
            [0, 0, 0x0c, 0x20, 3, ..] => Class::Vtp,
            [0, 0, 0x0c, 0x20, 4, ..] => Class::Disl,
            [0, 0, 0x0c, 1, 0x0b, ..] => Class::Stp,
            [0, 0xe0, 0x2b, 0, 0xbb, ..] => Class::Edp,
            [8, 0, 7, 0x80, 0x9b, ..] | [0, 0, 0, 0x80, 0xf3, ..] => Class::Appletalk,
            [0, 0, 0, 0x81, 0x37 | 0x38, ..] => Class::Ipx,
            _ => Class::Other,
        },
        _ => Class::Other,
    }
}

fn take(frame: &[u8]) -> Taken<'_> {
    let cast = match frame {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..] => Cast::Broadcast,
        [first, ..] if first & 1 == 1 => Cast::Multicast,
        _ => Cast::Unicast,
    };
    let (mut at, mut kind, mut tagged) = (14, word(frame, 12).unwrap(), false);
    for _ in 0..2 {
        if [0x8100, 0x88a8, 0x9100].contains(&kind) {
            let (Some(tag), Some(inner)) = (word(frame, at), word(frame, at + 2)) else {
                return Taken { class: Class::Other, cast, kind: None, tagged, payload: Err(CutOff) };
            };
            tagged |= tag & 0xfff != 0;
            (kind, at) = (inner, at + 4);
        }
    }
    let rest = &frame[at..];
    let (class, payload) = match kind {
        0x0800 => ipv4(rest),
        0x86dd => ipv6(rest, at),
        0x0806 => (Class::Arp, Ok(Payload::Arp(rest))),
        0x8137 | 0x8138 => (Class::Ipx, Ok(Payload::Else)),
        0x809b | 0x80f3 => (Class::Appletalk, Ok(Payload::Else)),
        0x88cc => (Class::Lldp, Ok(Payload::Else)),
        ..=1500 if usize::from(kind) > rest.len() => (llc(rest), Err(CutOff)),
        ..=1500 => (llc(rest), Ok(Payload::Else)),
        _ => (Class::Other, Ok(Payload::Else)),
    };
    Taken { class, cast, kind: (kind >= 0x600).then_some(kind), tagged, payload }
}

/// What kind of ICMPv6 message, where there is one.
fn icmpv6(payload: &Result<Payload<'_>, CutOff>) -> Option<u8> {
    match payload {
        Ok(Payload::Ip { destination: IpAddr::V6(_), protocol: 58, fragment: false, transport }) => {
            transport.first().copied()
        }
        _ => None,
    }
}

/// What the program should make of `frame`, with no ports judged.
pub(crate) fn classify(world: &World, frame: &[u8]) -> (Class, Cast, Reason) {
    let taken = take(frame);
    (taken.class, taken.cast, judge(world, frame, &taken))
}

fn judge(world: &World, frame: &[u8], taken: &Taken<'_>) -> Reason {
    let to: [u8; 6] = frame[..6].try_into().unwrap();
    let asks_members = matches!(taken.payload, Ok(Payload::Ip { destination: IpAddr::V4(_), protocol: 2, .. }))
        || matches!(icmpv6(&taken.payload), Some(130..=132 | 143));
    let base = match taken.cast {
        Cast::Unicast if to == world.mac => Reason::OurUnicast,
        Cast::Unicast => return Reason::ForeignUnicast,
        Cast::Broadcast => Reason::Broadcast,
        Cast::Multicast => match taken.kind {
            Some(0x88cc) => return Reason::LinkDiscovery,
            Some(0x888e) => return Reason::Eapol,
            Some(0x88f7) => return Reason::Ptp,
            Some(0x8809) => return Reason::SlowProtocol,
            _ if world.joined.contains(&to) => Reason::MulticastJoined,
            _ if asks_members => return Reason::GroupManagement,
            _ if icmpv6(&taken.payload) == Some(135) => return Reason::SolicitationForOthers,
            _ => return Reason::MulticastNotJoined,
        },
    };
    if taken.tagged {
        return Reason::VlanNotOurs;
    }
    match &taken.payload {
        Err(CutOff) => Reason::Truncated,
        Ok(Payload::Else) => base,
        Ok(Payload::Arp(_)) if taken.cast == Cast::Unicast => base,
        Ok(Payload::Arp(arp)) => judge_arp(world, arp, base),
        Ok(Payload::Ip { destination, protocol, fragment, transport }) => {
            let ports = if *protocol == 17 && !fragment && transport.len() >= 4 { word(transport, 2) } else { None };
            let icmp = icmpv6(&taken.payload);
            match (destination, icmp) {
                (IpAddr::V4(_), _) if *protocol == 2 => return Reason::GroupManagement,
                (IpAddr::V4(_), _) if matches!(ports, Some(67 | 68)) => return Reason::Dhcp,
                (IpAddr::V6(_), _) if matches!(ports, Some(546 | 547)) => return Reason::Dhcp,
                (_, Some(130..=132 | 143)) => return Reason::GroupManagement,
                (_, Some(135)) => return judge_solicitation(world, to, transport, base),
                (_, Some(133..=137)) => return Reason::NeighbourDiscovery,
                (IpAddr::V6(_), None) if *protocol == 58 && !fragment => return Reason::Truncated,
                _ => {}
            }
            let everybody = match destination {
                IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified(),
                IpAddr::V6(ip) => ip.is_multicast(),
            };
            if everybody || world.is_local(*destination) { base } else { Reason::AddressNotOurs }
        }
    }
}

fn judge_arp(world: &World, arp: &[u8], base: Reason) -> Reason {
    let Some(arp) = arp.first_chunk::<28>() else { return Reason::Truncated };
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return base;
    }
    let (sender, target) = (&arp[14..18], *arp.last_chunk::<4>().unwrap());
    if world.is_local(Ipv4Addr::from(target).into()) {
        Reason::ArpForUs
    } else if arp[6..8] != [0, 1] || sender == target {
        Reason::ArpAnnouncement
    } else if sender == [0; 4] {
        Reason::ArpProbe
    } else {
        Reason::ArpForOthers
    }
}

fn judge_solicitation(world: &World, to: [u8; 6], icmp: &[u8], base: Reason) -> Reason {
    if base == Reason::OurUnicast || (base == Reason::MulticastJoined && to[2] == 0xff) {
        return Reason::NeighbourDiscovery;
    }
    let Some(icmp) = icmp.first_chunk::<24>() else { return Reason::Truncated };
    let target = Ipv6Addr::from(*icmp.last_chunk::<16>().unwrap());
    if world.is_local(target.into()) { Reason::NeighbourDiscovery } else { Reason::SolicitationForOthers }
}
