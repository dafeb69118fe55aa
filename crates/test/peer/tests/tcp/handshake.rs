//! What of the client's offer arrives at the server.

use longhaul_tcp::TcpHandshake;
use longhaul_terms::TestDirection;

use crate::hosts::{able, run};
use crate::support::{millis, result, said, tcp_lab};

/// The handshake of a test, after `rules` of nftables were set at the client's output.
fn opened(name: &str, rules: &str, direction: TestDirection) -> TcpHandshake {
    let lab = tcp_lab(name, "[[both]]\ndelay = '1ms'\n");
    said(&lab, "client", "sysctl -qw net.ipv4.tcp_sack=1 net.ipv4.tcp_timestamps=1 net.ipv4.tcp_window_scaling=1");
    if !rules.is_empty() {
        let chain = "add table ip m; add chain ip m out { type filter hook output priority -300; };";
        said(&lab, "client", &format!("nft '{chain} add rule ip m out tcp flags syn {rules}'"));
    }
    let asked = longhaul_tcp::TcpParameters { direction, ..millis(300) };
    result(&run(&lab, asked), direction == TestDirection::Reverse).streams[0].handshake.unwrap()
}

#[test]
fn an_untouched_syn_has_what_the_client_offers() {
    if !able() {
        return;
    }
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let seen = opened("syn", "", direction);
        let syn = seen.syn_received.unwrap();
        assert_eq!(
            (syn.mss_bytes, syn.sack_permitted, syn.timestamps, syn.tos),
            (Some(1460), true, true, 0),
            "{syn:?}"
        );
        for end in [seen.client_options, seen.server_options] {
            assert!(end.sack && end.timestamps && end.window_scaling && end.announced_mss_bytes > 1_000, "{end:?}");
        }
        assert_eq!(syn.window_scale, Some(seen.client_options.receive_window_scale), "{seen:?}");
        assert_eq!(seen.server_options.send_window_scale, seen.client_options.receive_window_scale);
    }
}

#[test]
fn what_is_removed_on_the_way_is_missing() {
    if !able() {
        return;
    }
    let seen = opened("syn-sack", "reset tcp option sack-perm", TestDirection::Forward);
    let syn = seen.syn_received.unwrap();
    assert!(!syn.sack_permitted && syn.timestamps && syn.window_scale.is_some(), "{syn:?}");
    assert!(!seen.client_options.sack && seen.client_options.timestamps, "{seen:?}");
    let seen = opened("syn-scale", "reset tcp option window", TestDirection::Forward);
    let syn = seen.syn_received.unwrap();
    assert!(syn.sack_permitted && syn.window_scale.is_none() && !seen.client_options.window_scaling, "{seen:?}");
    let seen = opened("syn-time", "reset tcp option timestamp", TestDirection::Forward);
    assert!(!seen.syn_received.unwrap().timestamps && !seen.client_options.timestamps, "{seen:?}");
    let seen = opened("syn-mss", "tcp option maxseg size set 1000", TestDirection::Forward);
    assert_eq!(seen.syn_received.unwrap().mss_bytes, Some(1000));
}
