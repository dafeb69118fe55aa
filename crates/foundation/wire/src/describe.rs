//! A name for what is in a frame, for counting.
//!
//! Numbers: IANA "IEEE 802 numbers", "protocol numbers" and "service names and port numbers".

use crate::ethernet::{Frame, Network, ether_type};
use crate::{ipv4, ipv6, udp};

/// The protocol in `frame`, the most telling name in a few words: `ipv4-tcp`, `arp`, `vxlan`. Not a verdict on its contents.
///
/// `truncated` where a header is cut off, `other` where no name is known here.
pub fn describe(frame: &[u8]) -> &'static str {
    let Some(Network { ether_type, offset }) = Frame::new_checked(frame).and_then(|view| view.network()) else {
        return "truncated";
    };
    let behind = &frame[offset..];
    match ether_type {
        ether_type::IPV4 => ipv4::Packet::new_checked(behind).map_or("truncated", |ip| {
            let upper = &behind[ip.header_len()..];
            if ip.is_fragment() { "ipv4-fragment" } else { upper_layer(ip.protocol(), upper, &V4) }
        }),
        ether_type::IPV6 => {
            let upper = ipv6::Packet::new_checked(behind).and_then(|ip| ip.upper_layer());
            upper.map_or("truncated", |upper| {
                if upper.fragment { "ipv6-fragment" } else { upper_layer(upper.protocol, &behind[upper.offset..], &V6) }
            })
        }
        ether_type::ARP => "arp",
        0x8035 => "rarp",
        0x8137 => "ipx",
        0x8808 => "pause",
        0x8809 => "lacp",
        0x8847 | 0x8848 => "mpls",
        0x8863 | 0x8864 => "pppoe",
        0x888e => "eapol",
        0x88cc => "lldp",
        0x88e5 => "macsec",
        0x88f7 => "ptp",
        0x8902 => "cfm",
        0x8915 => "roce",
        0x894f => "nsh",
        // A length: 802.2 follows (IEEE 802.3 §3.2.6). 0x42 is the spanning tree's address in it.
        0..0x600 if behind.starts_with(&[0x42, 0x42]) => "stp",
        0..0x600 => "llc",
        _ => "other",
    }
}

/// Names that differ by the version of IP.
struct Names {
    tcp: &'static str,
    udp: &'static str,
    icmp: &'static str,
    igmp: &'static str,
    other: &'static str,
}

const V4: Names = Names { tcp: "ipv4-tcp", udp: "ipv4-udp", icmp: "ipv4-icmp", igmp: "igmp", other: "ipv4-other" };
const V6: Names =
    Names { tcp: "ipv6-tcp", udp: "ipv6-udp", icmp: "ipv6-icmp", igmp: "ipv6-other", other: "ipv6-other" };

fn upper_layer(protocol: u8, bytes: &[u8], names: &Names) -> &'static str {
    match protocol {
        1 | 58 => names.icmp,
        2 => names.igmp,
        4 | 41 => "ipip",
        6 => names.tcp,
        17 => match udp::Datagram::new_checked(bytes).map(|udp| udp.destination_port()) {
            Some(4789 | 4790 | 8472) => "vxlan",
            Some(6081) => "geneve",
            _ => names.udp,
        },
        47 => "gre",
        50 => "esp",
        51 => "ah",
        89 => "ospf",
        103 => "pim",
        112 => "vrrp",
        132 => "sctp",
        _ => names.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, behind: &[u8]) -> Vec<u8> {
        [&[0; 12], &ether_type.to_be_bytes()[..], behind].concat()
    }

    fn ipv4(protocol: u8, port: u16) -> Vec<u8> {
        let mut ip = vec![0; 28];
        ip[0] = 0x45;
        ip[9] = protocol;
        ip[22..24].copy_from_slice(&port.to_be_bytes());
        ip
    }

    #[test]
    fn names() {
        for (bytes, name) in [
            (frame(0x0800, &ipv4(6, 0)), "ipv4-tcp"),
            (frame(0x0800, &ipv4(17, 53)), "ipv4-udp"),
            (frame(0x0800, &ipv4(17, 4789)), "vxlan"),
            (frame(0x0800, &ipv4(47, 0)), "gre"),
            (frame(0x0800, &ipv4(132, 0)), "sctp"),
            (frame(0x8100, &[&[0, 7, 8, 0], &ipv4(1, 0)[..]].concat()), "ipv4-icmp"),
            (frame(0x0806, &[]), "arp"),
            (frame(0x88cc, &[]), "lldp"),
            (frame(38, &[0x42, 0x42, 3]), "stp"),
            (frame(38, &[]), "llc"),
            (frame(0x1234, &[]), "other"),
            (frame(0x0800, &[0x45]), "truncated"),
            (vec![0; 13], "truncated"),
        ] {
            assert_eq!(describe(&bytes), name, "{bytes:?}");
        }
    }
}
