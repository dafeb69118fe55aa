//! A hop that carries shorter packets than the hosts send: senders are told and adapt, or are left in the dark.

use crate::common::transfer::Transfer;
use crate::common::{
    SERVER_V4, SERVER_V6, alone, assert_faithful, attempt, brisk, hop, lab, run, set, settled, unprivileged,
};

const TUNNEL: &str = "
    [[both]]
    rate = '1Gbit'
    delay = '1ms'
    [[forward]]
    name = 'tunnel'
    mtu = 1400
    delay = '2ms'
    [[backward]]
    delay = '2ms'";

/// What the client's kernel has learned of its path to `to`, such as "mtu 1400".
fn learned(lab: &longhaul_lab::Lab, to: std::net::IpAddr) -> String {
    run(lab, "client", &["ip", "route", "get", &to.to_string()])
}

/// The kernel of the sender takes the message, sends shorter segments, and the transfer arrives byte for byte.
#[test]
fn senders_are_told_and_send_shorter_packets() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    for server in [SERVER_V4, SERVER_V6] {
        let lab = lab(TUNNEL);
        assert!(!learned(&lab, server).contains("mtu"));
        Transfer::start(&lab, "client", "server", server, 20_000_000, brisk()).finish();
        let status = settled(&lab);
        assert_faithful(&status);
        let tunnel = &hop(&status, "forward.tunnel").counters;
        assert!(tunnel.dropped_mtu.packets > 0, "{tunnel:?}");
        assert!(tunnel.departed.bytes / tunnel.departed.packets <= 1414, "{tunnel:?}");
        let route = learned(&lab, server);
        assert!(route.contains("mtu 1400"), "{route}");
        let (text, answered) = attempt(
            &lab,
            "client",
            &["ping", "-n", "-c", "2", "-W", "1", "-M", "do", "-s", "1400", &server.to_string()],
        );
        assert!(!answered && text.contains("1400"), "{text}");
    }
}

/// A black hole: long packets are lost and no kernel learns why, until the hop begins to tell.
#[test]
fn a_silent_hop_is_a_black_hole() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let mut lab = lab(TUNNEL);
    set(&mut lab, &["forward.tunnel.mtu=1400,silent"]);
    let long = |lab: &longhaul_lab::Lab| {
        attempt(
            lab,
            "client",
            &["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", "-M", "do", "-s", "1400", "10.77.2.1"],
        )
        .0
    };
    let text = long(&lab);
    assert!(text.contains("100% packet loss") && !text.contains("mtu"), "{text}");
    assert!(!learned(&lab, SERVER_V4).contains("mtu"));
    let status = settled(&lab);
    assert_eq!(hop(&status, "forward.tunnel").counters.dropped_mtu.packets, 3);
    // 1372 bytes, ICMP and IPv4: 1400.
    run(&lab, "client", &["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", "1372", "10.77.2.1"]);
    set(&mut lab, &["forward.tunnel.mtu=1400"]);
    let text = long(&lab);
    assert!(text.contains("mtu = 1400") || text.contains("mtu=1400"), "{text}");
}

/// What may be cut is: the far kernel puts it together again, and compares each byte with what it sent. A sender's own fragments are cut again.
#[test]
fn packets_that_may_be_fragmented_are() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab(TUNNEL);
    for (payload, fragments) in [("1372", 0), ("1472", 1), ("4000", 2)] {
        let before = hop(&settled(&lab), "forward.tunnel").counters;
        let ping = ["ping", "-n", "-c", "5", "-i", "0.1", "-W", "2", "-M", "dont", "-s", payload, "10.77.2.1"];
        let text = run(&lab, "client", &ping);
        assert!(text.contains(" 0% packet loss") && !text.contains("wrong data"), "{text}");
        let status = settled(&lab);
        assert_faithful(&status);
        let tunnel = hop(&status, "forward.tunnel").counters;
        assert_eq!(tunnel.fragmented.packets - before.fragmented.packets, 5 * fragments, "{payload}: {tunnel:?}");
        assert_eq!(tunnel.dropped_mtu.packets, 0, "{tunnel:?}");
    }
}
