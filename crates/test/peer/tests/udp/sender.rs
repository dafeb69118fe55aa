//! The sending host: losses there, each provoked by itself, and how its sender waits. Lost is what never left its interface.

use std::collections::BTreeSet;

use longhaul_lab::Lab;
use longhaul_result::Location;
use longhaul_terms::TestDirection;
use longhaul_udp::{UdpParameters, UdpResult};

use crate::capture::Capture;
use crate::hosts::*;

/// A test of `asked` from a client that `command` has prepared; its result, and what left the client.
fn prepared(command: &str, asked: UdpParameters) -> Option<(UdpResult, BTreeSet<u64>)> {
    if !able() {
        return None;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    if !on(&lab, "client", command) {
        return None;
    }
    let left = Capture::leaving(&lab, "client");
    let end = run(&lab, asked);
    Some((result(&end, false), left.sequences()))
}

fn missing(sent: u64, left: &BTreeSet<u64>) -> BTreeSet<u64> {
    (0..sent).filter(|sequence| !left.contains(sequence)).collect()
}

fn batches(packets: u64) -> UdpParameters {
    UdpParameters { wire: false, burst_packets: 8, ..parameters(packets) }
}

#[test]
fn a_full_queue_of_a_class() {
    let command = "tc qdisc add dev eth0 root handle 1: htb default 20 && \
                   tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit && \
                   tc class add dev eth0 parent 1: classid 1:20 htb rate 10mbit && \
                   tc qdisc add dev eth0 parent 1:20 pfifo limit 50 && \
                   tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 6 0xff flowid 1:10";
    for asked in [parameters(3_000), batches(3_000)] {
        let Some((result, left)) = prepared(command, asked) else { return };
        assert_lost(&result, Location::SenderQdisc, &missing(3_000, &left));
        assert!(result.lost_packets > 500, "{}", result.lost_packets);
        assert!(result.losses.iter().all(|loss| loss.reason.contains("QDISC")), "{:?}", reasons(&result));
    }
}

#[test]
fn a_token_bucket() {
    for asked in [parameters(3_000), batches(3_000)] {
        let command = "tc qdisc add dev eth0 root tbf rate 12mbit burst 20000 limit 30000";
        let Some((result, left)) = prepared(command, asked) else { return };
        assert_lost(&result, Location::SenderQdisc, &missing(3_000, &left));
        assert!(result.lost_packets > 300, "{}", result.lost_packets);
    }
}

#[test]
fn netfilter_at_output() {
    let command = "nft 'add table inet t; add chain inet t c { type filter hook output priority 0; }; \
                   add rule inet t c udp length 508 numgen inc mod 64 0 drop'";
    let Some((result, left)) = prepared(command, parameters(3_000)) else { return };
    let expected: BTreeSet<u64> = (0..3_000).step_by(64).collect();
    assert_eq!(missing(3_000, &left), expected);
    assert_lost(&result, Location::SenderStack, &expected);
    assert!(result.losses.iter().all(|loss| loss.reason.starts_with("NETFILTER_DROP")), "{:?}", reasons(&result));
}

#[test]
fn netfilter_at_output_of_a_server_that_sends_in_batches() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let command = "nft 'add table inet t; add chain inet t c { type filter hook output priority 0; }; \
                   add rule inet t c udp length > 100 numgen inc mod 20 0 drop'";
    if !on(&lab, "server", command) {
        return;
    }
    let left = Capture::leaving(&lab, "server");
    let end = run(&lab, UdpParameters { direction: TestDirection::Reverse, ..batches(3_000) });
    let result = result(&end, true);
    assert_lost(&result, Location::SenderStack, &missing(3_000, &left.sequences()));
    assert!(result.losses.iter().all(|loss| loss.unit_packets > 1), "{:?}", reasons(&result));
}

/// Runs a test, changes the client's set-up during it, and back when `long` packets were sent since.
fn meanwhile(lab: &Lab, begin: &str, end: &str) -> Option<(UdpResult, BTreeSet<u64>)> {
    let left = Capture::leaving(lab, "client");
    let (address, server) = serve(lab, lab.host("server").unwrap().plan.ipv4.into(), None);
    let (outcome, changed) = std::thread::scope(|scope| {
        let client = scope.spawn(|| test(lab, address, parameters(6_000), |_| {}));
        until("packets", || left.bulk() > 500 || client.is_finished());
        let mut changed = on(lab, "client", begin);
        std::thread::sleep(std::time::Duration::from_millis(300));
        changed &= on(lab, "client", end);
        (client.join().unwrap(), changed)
    });
    server.join().unwrap();
    changed.then(|| (result(&outcome.unwrap(), false), left.sequences()))
}

#[test]
fn nobody_answers_for_the_address() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let prepared = on(&lab, "server", "echo 8 > /proc/sys/net/ipv4/conf/eth0/arp_ignore")
        && on(&lab, "client", "echo 4000 > /proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes");
    if !prepared {
        return;
    }
    let begin = "ip neigh del 10.77.2.1 dev eth0";
    let end = "ip neigh replace 10.77.2.1 lladdr 02:6c:68:02:00:01 dev eth0 nud permanent";
    let Some((result, left)) = meanwhile(&lab, begin, end) else { return };
    assert_lost(&result, Location::SenderStack, &missing(6_000, &left));
    assert!(result.losses.iter().all(|loss| loss.reason.starts_with("NEIGH_QUEUEFULL")), "{:?}", reasons(&result));
}

#[test]
fn no_way_for_a_while() {
    if !able() {
        return;
    }
    for kind in ["unreachable", "prohibit"] {
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        let begin = format!("ip route add {kind} 10.77.2.1/32");
        let Some((result, left)) = meanwhile(&lab, &begin, "ip route del 10.77.2.1/32") else { return };
        let missing = missing(6_000, &left);
        let at_stack = &sequences(&result)[&Location::SenderStack];
        // The kernel may refuse the packet that meets the route in the moment of its change in another way.
        assert!(at_stack.is_subset(&missing) && at_stack.len() + 1 >= missing.len(), "{:?}", reasons(&result));
        assert!(lost_at(&result).iter().map(|(_, packets)| packets).sum::<u64>() == missing.len() as u64);
    }
}

#[test]
fn a_sender_that_may_not_watch_the_clock_leaves_the_cpu_to_others() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let used_ns = |no_spin| {
        let end = run(&lab, UdpParameters { no_spin, ..parameters(4_000) });
        result(&end, false).streams[0].sender_cpu.unwrap().cpu_time_ns
    };
    let (sleeping, watching) = (used_ns(true), used_ns(false));
    assert!(sleeping * 4 < watching * 3, "{sleeping} ns of {watching}");
}
