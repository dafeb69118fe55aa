//! The message of a router that a packet is longer than its next link carries (RFC 792, RFC 1191 §4, RFC 4443 §3.2).
//!
//! ```text
//!  0                   1                   2                   3
//! ┌───────────────┬───────────────┬───────────────────────────────┐
//! │   type 3, 2   │   code 4, 0   │           checksum            │  0
//! ├───────────────┴───────────────┼───────────────────────────────┤
//! │  IPv4: unused                 │  IPv4: MTU; IPv6: 32 bits     │  4
//! ├───────────────────────────────┴───────────────────────────────┤
//! │  the packet, as much of it as fits                            │  8
//! └───────────────────────────────────────────────────────────────┘
//! ```

use crate::checksum::{self, Sum};
use crate::ethernet::{self, Frame, ether_type};
use crate::{ipv4, ipv6, put16, put32};

/// IPv4's protocol number of ICMP, and IPv6's next header of ICMPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Bytes before the quoted packet.
const HEADER_LEN: usize = 8;
/// The longest message with its IP header (RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c)).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;
/// Hops that a message may pass (RFC 1700).
const TIME_TO_LIVE: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;
/// ICMPv6 types below this are errors (RFC 4443 §2.1); of ICMP, types that ask or answer, which alone may be answered with an error.
const INFORMATIONAL_V6: u8 = 128;
const INFORMATIONAL_V4: [u8; 8] = [0, 8, 9, 10, 13, 14, 15, 16];

/// The frame that tells the sender of `frame` that a link carries packets of `mtu_bytes` only. It comes from the address that the packet
/// was for, and has the same VLAN tags.
///
/// `None` where a router sends none: for what is neither IPv4 nor IPv6, for IPv4 packets that may be fragmented, for later fragments, for
/// ICMP errors, and from or to multicast and broadcast addresses (RFC 1122 §3.2.2, RFC 4443 §2.4 (e)).
pub fn packet_too_big(frame: &[u8], mtu_bytes: u32) -> Option<Vec<u8>> {
    let link = Frame::new_checked(frame)?;
    let network = link.network()?;
    // The group bit of either address.
    if (link.source()[0] | link.destination()[0]) & 1 != 0 {
        return None;
    }
    let mut answer = [&link.source()[..], &link.destination(), frame.get(12..network.offset)?].concat();
    debug_assert_eq!(answer.len(), network.offset.max(ethernet::HEADER_LEN));
    let packet = frame.get(network.offset..)?;
    match network.ether_type {
        ether_type::IPV4 => answer_v4(&mut answer, packet, mtu_bytes)?,
        ether_type::IPV6 => answer_v6(&mut answer, packet, mtu_bytes)?,
        _ => return None,
    }
    Some(answer)
}

fn answer_v4(answer: &mut Vec<u8>, packet: &[u8], mtu_bytes: u32) -> Option<()> {
    let header = ipv4::Packet::new_checked(packet)?;
    let whole = packet.get(..usize::from(header.total_len()))?;
    let upper = whole.get(header.header_len()..)?;
    let (source, destination) = (header.source(), header.destination());
    let silent = packet[6] & DONT_FRAGMENT == 0
        || header.is_fragment()
        || [source, destination].iter().any(|address| matches!(address[0], 0 | 127 | 224..))
        || (header.protocol() == ICMP && !upper.first().is_some_and(|kind| INFORMATIONAL_V4.contains(kind)));
    if silent {
        return None;
    }
    let quoted = &whole[..whole.len().min(LONGEST_V4 - ipv4::MIN_HEADER_LEN - HEADER_LEN)];
    let start = answer.len();
    answer.resize(start + ipv4::MIN_HEADER_LEN + HEADER_LEN, 0);
    answer.extend_from_slice(quoted);
    let total = (answer.len() - start) as u16;
    let ip = &mut answer[start..];
    (ip[0], ip[8], ip[9]) = (0x45, TIME_TO_LIVE, ICMP);
    put16(ip, 2, total);
    ip[12..16].copy_from_slice(&destination);
    ip[16..20].copy_from_slice(&source);
    ipv4::Packet::new_checked(&mut *ip)?.fill_checksum();
    let message = &mut ip[ipv4::MIN_HEADER_LEN..];
    (message[0], message[1]) = (3, 4);
    put16(message, 6, u16::try_from(mtu_bytes).unwrap_or(u16::MAX));
    let sum = Sum::ZERO.add_bytes(message).checksum();
    put16(message, 2, sum);
    Some(())
}

fn answer_v6(answer: &mut Vec<u8>, packet: &[u8], mtu_bytes: u32) -> Option<()> {
    let header = ipv6::Packet::new_checked(packet)?;
    let whole = packet.get(..ipv6::HEADER_LEN + usize::from(header.payload_len()))?;
    let (source, destination) = (header.source(), header.destination());
    let upper = header.upper_layer()?;
    let error = upper.protocol == ICMPV6
        && (upper.later_fragment || whole.get(upper.offset).is_none_or(|kind| *kind < INFORMATIONAL_V6));
    // Multicast ff00::/8, and the unspecified address.
    if error || source[0] == 0xff || destination[0] == 0xff || source == [0; 16] {
        return None;
    }
    let quoted = &whole[..whole.len().min(LONGEST_V6 - ipv6::HEADER_LEN - HEADER_LEN)];
    let start = answer.len();
    answer.resize(start + ipv6::HEADER_LEN + HEADER_LEN, 0);
    answer.extend_from_slice(quoted);
    let ip = &mut answer[start..];
    let length = (ip.len() - ipv6::HEADER_LEN) as u16;
    (ip[0], ip[6], ip[7]) = (0x60, ICMPV6, TIME_TO_LIVE);
    put16(ip, 4, length);
    ip[8..24].copy_from_slice(&destination);
    ip[24..40].copy_from_slice(&source);
    let pseudo = checksum::pseudo_v6(destination, source, ICMPV6, length.into());
    let message = &mut ip[ipv6::HEADER_LEN..];
    message[0] = 2;
    put32(message, 4, mtu_bytes);
    let sum = pseudo.add_bytes(message).checksum();
    put16(message, 2, sum);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// A frame of `types` with `packet`, from the client to the server.
    fn frame(types: &[u8], packet: &[u8]) -> Vec<u8> {
        [&SERVER[..], &CLIENT, types, packet].concat()
    }

    /// UDP of 1400 bytes with its IPv4 header, not to be fragmented.
    fn udp_v4() -> Vec<u8> {
        let mut packet = vec![7; 1400];
        packet[..20].copy_from_slice(&[0x45, 0, 0x05, 0x78, 0, 9, 0x40, 0, 60, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ipv4::Packet::new_checked(&mut packet).unwrap().fill_checksum();
        packet
    }

    /// The same over IPv6.
    fn udp_v6() -> Vec<u8> {
        let mut packet = vec![7; 1400];
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0x05, 0x50, 17, 60]);
        packet[8..40].fill(0);
        (packet[8], packet[23], packet[24], packet[39]) = (0xfd, 1, 0xfd, 2);
        packet
    }

    /// RFC 1191 §4: type 3, code 4, the MTU in the last two bytes of the header, the packet's header and its first bytes behind it. A
    /// checksum over a message with its checksum is 0.
    #[test]
    fn ipv4_is_told_by_destination_unreachable() {
        let packet = udp_v4();
        let answer = packet_too_big(&frame(&[8, 0], &packet), 1280).unwrap();
        assert_eq!(answer[..14], [&CLIENT[..], &SERVER, &[8, 0]].concat());
        let ip = &answer[14..];
        assert_eq!((ip.len(), &ip[2..4], ip[9]), (576, &[2, 64][..], 1));
        assert_eq!(ip[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(Sum::ZERO.add_bytes(&ip[..20]).checksum(), 0);
        assert_eq!((&ip[20..22], &ip[24..28]), (&[3, 4][..], &[0, 0, 5, 0][..]));
        assert_eq!(Sum::ZERO.add_bytes(&ip[20..]).checksum(), 0);
        assert_eq!(ip[28..], packet[..548]);
    }

    /// RFC 4443 §3.2: type 2, code 0, 32 bits of MTU; no message is longer than 1280 bytes. VLAN tags stay.
    #[test]
    fn ipv6_is_told_by_packet_too_big() {
        let packet = udp_v6();
        let answer = packet_too_big(&frame(&[0x81, 0, 0, 5, 0x86, 0xdd], &packet), 1300).unwrap();
        assert_eq!(answer[12..18], [0x81, 0, 0, 5, 0x86, 0xdd]);
        let ip = &answer[18..];
        assert_eq!((ip.len(), ip[6], &ip[4..6]), (1280, 58, &[4, 0xd8][..]));
        assert_eq!((&ip[8..24], &ip[24..40]), (&packet[24..40], &packet[8..24]));
        assert_eq!((&ip[40..42], &ip[44..48]), (&[2, 0][..], &[0, 0, 5, 20][..]));
        let [from, to] = [8, 24].map(|at| core::array::from_fn(|i| ip[at + i]));
        assert_eq!(checksum::pseudo_v6(from, to, 58, 1240).add_bytes(&ip[40..]).checksum(), 0);
        assert_eq!(ip[48..], packet[..1232]);
    }

    #[test]
    fn nobody_is_told_where_a_router_is_silent() {
        let v4 = |change: fn(&mut Vec<u8>)| {
            let mut packet = udp_v4();
            change(&mut packet);
            packet_too_big(&frame(&[8, 0], &packet), 1280)
        };
        assert!(v4(|_| ()).is_some());
        assert!(v4(|packet| packet[6] = 0).is_none(), "it may be fragmented");
        assert!(v4(|packet| packet[7] = 1).is_none(), "a later fragment");
        assert!(v4(|packet| packet[16] = 224).is_none(), "to a group");
        assert!(v4(|packet| packet[12] = 0).is_none(), "from nobody");
        assert!(v4(|packet| (packet[9], packet[20]) = (1, 3)).is_none(), "an ICMP error");
        assert!(v4(|packet| (packet[9], packet[20]) = (1, 8)).is_some(), "an echo request");
        assert!(v4(|packet| packet.truncate(700)).is_none(), "cut off");
        let v6 = |change: fn(&mut Vec<u8>)| {
            let mut packet = udp_v6();
            change(&mut packet);
            packet_too_big(&frame(&[0x86, 0xdd], &packet), 1280)
        };
        assert!(v6(|_| ()).is_some());
        assert!(v6(|packet| (packet[6], packet[40]) = (58, 1)).is_none(), "an ICMPv6 error");
        assert!(v6(|packet| (packet[6], packet[40]) = (58, 128)).is_some(), "an echo request");
        assert!(v6(|packet| packet[24] = 0xff).is_none(), "to a group");
        assert!(packet_too_big(&frame(&[8, 6], &[0; 1400]), 1280).is_none(), "ARP");
    }

    proptest::proptest! {
        /// Whatever a frame holds, the answer is none or a short frame.
        #[test]
        fn any_bytes(types in proptest::sample::select(vec![[8, 0], [0x86, 0xdd], [0x81, 0]]), bytes: Vec<u8>, mtu: u32) {
            for first in [0x45, 0x4f, 0x60] {
                let packet: Vec<u8> = std::iter::once(first).chain(bytes.iter().copied()).collect();
                if let Some(answer) = packet_too_big(&frame(&types, &packet), mtu) {
                    proptest::prop_assert!(answer.len() <= 1280 + 14 + 32);
                }
            }
        }
    }
}
