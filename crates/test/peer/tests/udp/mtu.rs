//! Packets longer than the path's MTU, where no router says so.

use std::process::Command;

use longhaul_lab::Lab;
use longhaul_udp::{UdpParameters, UdpResult};

use crate::hosts::{able, lab, parameters, result, run};

/// IP and UDP headers.
const HEADERS: u32 = 28;

/// Packets of IP with so many bytes from the client.
fn sent(lab: &Lab, packet_bytes: u32, dont_fragment: bool) -> UdpResult {
    let asked = UdpParameters { payload_bytes: packet_bytes - HEADERS, dont_fragment, ..parameters(200) };
    result(&run(lab, asked), false)
}

#[test]
fn a_black_hole_loses_what_is_too_long_and_nothing_else() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    // Does what a router before a link of 1400 bytes does that sends no ICMP: it drops longer packets, before fragments are joined.
    let rules = "add table ip mtu; add chain ip mtu in { type filter hook prerouting priority -500; }; \
                 add rule ip mtu in ip protocol udp ip length > 1400 drop";
    let output = lab.host("server").unwrap().namespace.enter(|| Command::new("nft").arg(rules).output());
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (packet_bytes, lost) in [(1_400, 0), (1_401, 200), (1_500, 200)] {
        let result = sent(&lab, packet_bytes, true);
        assert_eq!((result.sent_packets, result.lost_packets), (200, lost), "{packet_bytes}");
    }
}

#[test]
fn what_does_not_fit_the_interface_is_refused_or_cut() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let cut = sent(&lab, 2_000, false);
    assert_eq!((cut.sent_packets, cut.lost_packets), (200, 0));
    let asked = UdpParameters { payload_bytes: 2_000 - HEADERS, dont_fragment: true, ..parameters(200) };
    let end = run(&lab, asked);
    let told = end.local.caveats.iter().find(|caveat| caveat.code == "sender_stopped");
    assert!(told.is_some_and(|caveat| caveat.message.contains("too l")), "{:?}", end.local.caveats);
}
