//! Lengths that contradict the frame or each other, whatever its addresses say.

use longhaul_bpf::filter::{Cast::Unicast, Class, FilterOptions, Mode, Reason};

use crate::branches::{Row, check};
use crate::frames::*;

/// With another word at `at`.
fn wrong(mut frame: Vec<u8>, at: usize, word: u16) -> Vec<u8> {
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
    frame
}

fn rows() -> Vec<Row> {
    let to_us = |payload: &[u8]| ipv4(OUR_MAC, OUR_IP, 17, 0, payload);
    let hop_by_hop = |next: u8, rest: Vec<u8>| [&[next, 0, 5, 2, 0, 0, 1, 0][..], &rest].concat();
    let netbeui = [0xf0, 0xf0, 3, 0, 0, 0, 0, 0, 0, 0];
    vec![
        (
            "IPv4, longer than its frame",
            wrong(to_us(&udp(9, 20)), 16, 49),
            Class::Ipv4Other,
            Unicast,
            Reason::Truncated,
        ),
        ("IPv4, as long as its frame", wrong(to_us(&udp(9, 20)), 16, 48), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        (
            "IPv4, shorter than its header",
            wrong(to_us(&udp(9, 20)), 16, 19),
            Class::Ipv4Other,
            Unicast,
            Reason::Truncated,
        ),
        ("IPv4, header longer than it", wrong(to_us(&[]), 14, 0x4600), Class::Ipv4Other, Unicast, Reason::Truncated),
        (
            "IPv4, header longer than its frame",
            wrong(to_us(&[])[..60].to_vec(), 14, 0x4f00),
            Class::Ipv4Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "his IPv4, cut off",
            ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(9, 300))[..200].to_vec(),
            Class::Ipv4Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "IPv6, longer than its frame",
            wrong(ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20)), 18, 29),
            Class::Ipv6Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "IPv6, as long as its frame",
            ipv6(OUR_MAC, OUR_IPV6, 17, &udp(9, 20)),
            Class::Ipv6Udp,
            Unicast,
            Reason::OurUnicast,
        ),
        (
            "his IPv6, cut off",
            ipv6(OUR_MAC, OTHER_IPV6, 17, &udp(9, 300))[..200].to_vec(),
            Class::Ipv6Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "IPv6, shorter than its extension",
            wrong(ipv6(OUR_MAC, OUR_IPV6, 0, &hop_by_hop(17, udp(9, 20))), 18, 7),
            Class::Ipv6Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "IPv6, extension longer than it",
            ipv6(OUR_MAC, OUR_IPV6, 60, &[17, 1, 1, 12, 0, 0, 0, 0]),
            Class::Ipv6Other,
            Unicast,
            Reason::Truncated,
        ),
        (
            "802.3, longer than its frame",
            wrong(ieee(OUR_MAC, &netbeui), 12, 47),
            Class::Netbeui,
            Unicast,
            Reason::Truncated,
        ),
        (
            "802.3, as long as its frame",
            wrong(ieee(OUR_MAC, &netbeui), 12, 46),
            Class::Netbeui,
            Unicast,
            Reason::OurUnicast,
        ),
        // Padding is no part of the packet: neither its ports nor its ICMPv6 message count.
        ("DHCP in the padding", wrong(to_us(&udp(68, 20)), 16, 22), Class::Ipv4Udp, Unicast, Reason::OurUnicast),
        (
            "MLD in the padding",
            wrong(ipv6(OUR_MAC, OUR_IPV6, 58, &icmpv6(130, OUR_IPV6)), 18, 0),
            Class::Ipv6Icmp,
            Unicast,
            Reason::Truncated,
        ),
    ]
}

#[test]
fn contradicting_lengths_are_for_the_stack_to_decide() {
    for mode in [Mode::Native, Mode::Generic] {
        check(&rows(), &FilterOptions { enforce: true, mode: Some(mode), ..FilterOptions::default() });
    }
}
