//! Both ends without any right: losses placed by counters, as far as counters tell.

use std::collections::BTreeSet;

use longhaul_result::{Caveat, Location, LocationMethod};
use longhaul_udp::{Pace, UdpParameters, UdpResult};

use crate::capture::Capture;
use crate::hosts::*;
use crate::receiver::{
    Backlog, Stopped, hooked, lab_with_a_steered_server, sevens, waits_for_a_thread, with_a_sleeping_ring,
};

const PATH: &str = "[[both]]\ndelay = '1ms'\n";

/// A test on `path` between hosts that `prepare` has changed; `None` where it could not.
fn unprivileged(
    path: &str,
    asked: &UdpParameters,
    prepare: impl FnOnce(&longhaul_lab::Lab) -> bool,
    meddle: impl FnOnce(&longhaul_lab::Lab, &Process, &Capture),
) -> Option<(UdpResult, Vec<Caveat>)> {
    if !able() {
        return None;
    }
    let lab = lab(path);
    prepare(&lab).then(|| between(&lab, asked, meddle))
}

/// A test between hosts of `lab`.
fn between(
    lab: &longhaul_lab::Lab,
    asked: &UdpParameters,
    meddle: impl FnOnce(&longhaul_lab::Lab, &Process, &Capture),
) -> (UdpResult, Vec<Caveat>) {
    let (server, address) = serving_process(lab, UNPRIVILEGED);
    let reached = Capture::reaching(lab, "server");
    let client = testing_process(lab, UNPRIVILEGED, address, asked);
    meddle(lab, &server, &reached);
    let (result, caveats) = client.outcome().unwrap();
    assert_eq!(result.location_method, LocationMethod::Counters);
    let told = caveats.iter().filter(|caveat| caveat.code == "no_drop_events").count();
    assert_eq!(told, 2, "both ends say so: {caveats:?}");
    (result, caveats)
}

/// Within the buffers that the kernel gives to any user.
fn asked(packets: u64) -> UdpParameters {
    UdpParameters { sockbuf_bytes: None, ..parameters(packets) }
}

fn nothing(_: &longhaul_lab::Lab, _: &Process, _: &Capture) {}

#[test]
fn the_path() {
    let path = "[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 100 }\n";
    let large = UdpParameters { sockbuf_bytes: Some(1 << 30), ..parameters(2_000) };
    let Some((result, caveats)) = unprivileged(path, &large, |_| true, nothing) else { return };
    for (end, which) in [("client", "send"), ("server", "receive")] {
        let said = format!("{end}: 1073741824 bytes of {which} buffer were asked for, and the kernel gave ");
        let told = |caveat: &&Caveat| caveat.code == "buffer_not_granted" && caveat.message.starts_with(&said);
        assert_eq!(caveats.iter().filter(told).count(), 1, "{caveats:?}");
    }
    assert_eq!(lost_at(&result), [(Location::Network, result.lost_packets)], "{:?} {caveats:?}", result.counters);
    assert!((19..=21).contains(&result.lost_packets));
}

#[test]
fn the_socket_buffer() {
    let small = UdpParameters { sockbuf_bytes: Some(16 << 10), ..parameters(4_000) };
    let outcome = unprivileged(
        PATH,
        &small,
        |_| true,
        |lab, server, reached| {
            until("packets", || reached.bulk() > 100);
            let stopped = Stopped::new(server.thread("receive 0"));
            until("drops", || counter(lab, "server", "Udp", "RcvbufErrors") >= 300);
            drop(stopped);
        },
    );
    let Some((result, _)) = outcome else { return };
    assert!(result.lost_packets >= 300);
    assert_eq!(lost_at(&result), [(Location::ReceiverSocketBuffer, result.lost_packets)]);
    assert!(result.losses.iter().all(|loss| loss.location == Location::ReceiverSocketBuffer), "{:?}", reasons(&result));
}

#[test]
fn the_application() {
    let large = UdpParameters { sockbuf_bytes: Some(4 << 20), ..parameters(2_000) };
    let outcome = unprivileged(
        PATH,
        &large,
        |_| true,
        |_, server, reached| {
            until("packets", || reached.bulk() > 100);
            let stopped = Stopped::new(server.thread("receive 0"));
            until("the rest", || reached.bulk() == 2_000);
            until("the session to end the reader", || waits_for_a_thread(server, "session"));
            drop(stopped);
        },
    );
    let Some((result, _)) = outcome else { return };
    let rest = (result.received_packets..2_000).collect();
    assert_lost(&result, Location::ReceiverApplication, &rest);
}

#[test]
fn filters_at_the_receiver() {
    let rule = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                add rule inet t c udp length 508 numgen inc mod 100 0 drop'";
    let tc = "tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress bpf direct-action obj OBJECT sec tc";
    let xdp = "ip link set dev eth0 xdpdrv obj OBJECT sec xdp";
    let generic = "ip link set dev eth0 xdpgeneric obj OBJECT sec xdp";
    for (command, lost) in [(rule, 20), (tc, sevens(2_000).len() as u64), (xdp, sevens(2_000).len() as u64)] {
        let outcome = unprivileged(PATH, &asked(2_000), |lab| hooked(lab, command), nothing);
        let Some((result, _)) = outcome else { continue };
        assert_eq!(lost_at(&result), [(Location::ReceiverFilter, lost)], "{command}: {:?}", result.counters);
    }
    // The kernel counts these nowhere; they must not be called the network's.
    let outcome = unprivileged(PATH, &asked(2_000), |lab| hooked(lab, generic), nothing);
    let Some((result, _)) = outcome else { return };
    assert_eq!(lost_at(&result), [(Location::Unexplained, sevens(2_000).len() as u64)], "{:?}", result.counters);
}

/// A veth's full ring is counted only at its other end, which is another host's: it must not count as the network's.
#[test]
fn a_full_ring_of_a_veth() {
    let asked = UdpParameters { pace: Pace::SpacingNs(200_000), sockbuf_bytes: Some(4 << 20), ..asked(4_000) };
    let mut left = None;
    let prepare = |lab: &longhaul_lab::Lab| {
        let able = with_a_sleeping_ring(lab);
        left = able.then(|| Capture::leaving(lab, "client"));
        able
    };
    let outcome = unprivileged(PATH, &asked, prepare, nothing);
    let (Some((result, _)), Some(left)) = (outcome, left) else { return };
    assert_eq!(left.sequences().len(), 4_000, "all left the client");
    assert!(result.lost_packets > 100, "{}", result.lost_packets);
    assert_eq!(lost_at(&result), [(Location::Unexplained, result.lost_packets)], "{:?}", result.counters);
}

/// `net.core.netdev_max_backlog` is the whole machine's: run it alone.
#[test]
#[ignore = "sets net.core.netdev_max_backlog of the whole machine: run it alone"]
fn a_full_backlog() {
    if !able() {
        return;
    }
    let Some(lab) = lab_with_a_steered_server() else { return };
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let asked = UdpParameters { wire: false, burst_packets: 32, ..asked(3_200) };
    let before = Backlog::of(20);
    let (result, _) = between(&lab, &asked, nothing);
    drop(before);
    assert_eq!(left.sequences().len(), 3_200, "all left the client");
    let missing = &(0..3_200).collect::<BTreeSet<u64>>() - &reached.sequences();
    assert_lost(&result, Location::ReceiverBacklog, &missing);
}

/// A test of 6,000 packets, in which `begin` changes the client, and `end` changes it back once `change` has come about: its result, and what
/// never left the client.
fn meanwhile(
    prepare: &[(&str, &str)],
    begin: &str,
    change: impl FnOnce(&longhaul_lab::Lab),
    end: &str,
) -> Option<(UdpResult, BTreeSet<u64>)> {
    let mut left = None;
    let outcome = unprivileged(
        PATH,
        &asked(6_000),
        |lab| {
            left = Some(Capture::leaving(lab, "client"));
            prepare.iter().all(|(host, command)| on(lab, host, command))
        },
        |lab, _, reached| {
            until("packets", || reached.bulk() > 500);
            assert!(on(lab, "client", begin));
            change(lab);
            assert!(on(lab, "client", end));
        },
    );
    let (result, left) = (outcome?.0, left?);
    let missing = &(0..6_000).collect::<BTreeSet<u64>>() - &left.sequences();
    assert!(missing.len() > 100, "{}", missing.len());
    Some((result, missing))
}

fn a_while(_: &longhaul_lab::Lab) {
    std::thread::sleep(std::time::Duration::from_millis(300));
}

/// Asserts that `missing` was lost at the sender's stack, and nothing else, but for what the receiver's small buffer did not take: what waited for the
/// neighbour comes at once.
#[track_caller]
fn assert_lost_at_stack(result: &UdpResult, missing: &BTreeSet<u64>) {
    let refused = result.lost_packets - missing.len() as u64;
    if refused == 0 {
        return assert_lost(result, Location::SenderStack, missing);
    }
    assert!(refused < 100, "{:?}", reasons(result));
    let places = [(Location::SenderStack, missing.len() as u64), (Location::ReceiverSocketBuffer, refused)];
    assert_eq!(lost_at(result), places, "{:?}", reasons(result));
    assert!(sequences(result).into_values().flatten().collect::<BTreeSet<u64>>().is_superset(missing));
}

const SILENT: (&str, &str) = ("server", "echo 8 > /proc/sys/net/ipv4/conf/eth0/arp_ignore");
const FORGET: &str = "ip neigh del 10.77.2.1 dev eth0";
const KNOW: &str = "ip neigh replace 10.77.2.1 lladdr 02:6c:68:02:00:01 dev eth0 nud permanent";

#[test]
fn nobody_answers_for_the_address() {
    let short = ("client", "echo 4000 > /proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes");
    let Some((result, missing)) = meanwhile(&[SILENT, short], FORGET, a_while, KNOW) else { return };
    assert_lost_at_stack(&result, &missing);
}

/// The kernel gives up: it drops what has waited, counts none of it, and has ICMP of the own host say so to the socket.
#[test]
fn the_neighbour_does_not_answer_in_time() {
    let soon = ("client", "cd /proc/sys/net/ipv4/neigh/eth0 && echo 1 > mcast_solicit && echo 20 > retrans_time_ms");
    let given_up = |lab: &longhaul_lab::Lab| {
        // Fifty at once at most (`net.ipv4.icmp_msgs_burst`).
        until("ICMP about two queues", || counter(lab, "client", "Icmp", "OutDestUnreachs") > 60);
    };
    let Some((result, missing)) = meanwhile(&[SILENT, soon], FORGET, given_up, KNOW) else { return };
    assert_lost_at_stack(&result, &missing);
}

/// The send says so, packet by packet, again and again.
#[test]
fn no_way_for_a_while() {
    for kind in ["unreachable", "prohibit"] {
        let begin = format!("ip route add {kind} 10.77.2.1/32");
        let Some((result, missing)) = meanwhile(&[], &begin, a_while, "ip route del 10.77.2.1/32") else { return };
        let at_stack = &sequences(&result)[&Location::SenderStack];
        // The kernel may refuse the packet that meets the route in the moment of its change in another way.
        assert!(at_stack.is_subset(&missing) && at_stack.len() + 1 >= missing.len(), "{:?}", reasons(&result));
        assert_eq!(result.lost_packets, missing.len() as u64, "{:?}", reasons(&result));
    }
}

/// The kernel counts these drops for all network namespaces together.
#[test]
fn neighbours_of_another_host() {
    if !able() {
        return;
    }
    let other = lab(PATH);
    assert!(on(&other, "server", "echo 8 > /proc/sys/net/ipv4/conf/eth0/arp_ignore"));
    let prepare = "echo 4000 > /proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes && ip neigh del 10.77.2.1 dev eth0";
    assert!(on(&other, "client", prepare));
    let path = "[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 100 }\n";
    let send = "bash -c 'for i in {1..300}; do echo > /dev/udp/10.77.2.1/9; done'";
    let outcome = unprivileged(
        path,
        &asked(3_000),
        |_| true,
        |_, _, reached| {
            until("packets", || reached.bulk() > 300);
            assert!(on(&other, "client", send));
        },
    );
    let Some((result, _)) = outcome else { return };
    let of_machine = |(name, by): (&String, &i64)| if name.contains("unresolved_discards") { *by } else { 0 };
    let unanswered: i64 = result.counters.sender.iter().map(of_machine).sum();
    assert!(unanswered > 200, "{:?}", result.counters);
    assert_eq!(lost_at(&result), [(Location::Network, result.lost_packets)], "{:?}", reasons(&result));
    assert!(result.lost_packets >= 28, "{}", result.lost_packets);
}

#[test]
fn damaged_packets() {
    let path = "[[both]]\ndelay = '1ms'\n[[forward]]\ncorrupt = '3%'\n";
    let Some((result, _)) = unprivileged(path, &asked(3_000), |_| true, nothing) else { return };
    // A bit of the Ethernet header is nobody's checksum: of some 80 packets one or two. Where a port, an address or the IP header was hit,
    // the socket did not count the packet, and the host's counters may be another's: of some 80 packets five.
    let at = |location| result.loss_by_location[&location];
    let (stack, lost) = (at(Location::ReceiverStack), result.lost_packets);
    let known = stack + at(Location::Unexplained);
    assert!(
        lost > 40 && known + 6 >= lost && stack * 3 >= lost * 2,
        "{stack}, {known} of {lost}: {:?}",
        result.counters
    );
    assert_eq!(result.loss_by_location[&Location::ReceiverSocketBuffer], 0);
}

#[test]
fn the_senders_queue() {
    let command = "tc qdisc add dev eth0 root handle 1: htb default 20 && \
                   tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit && \
                   tc class add dev eth0 parent 1: classid 1:20 htb rate 10mbit && \
                   tc qdisc add dev eth0 parent 1:20 pfifo limit 50 && \
                   tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 6 0xff flowid 1:10";
    let outcome = unprivileged(PATH, &asked(3_000), |lab| on(lab, "client", command), nothing);
    let Some((result, caveats)) = outcome else { return };
    assert!(result.lost_packets > 500, "{}", result.lost_packets);
    assert_eq!(lost_at(&result), [(Location::SenderQdisc, result.lost_packets)], "{:?}", result.counters);
    assert!(caveats.iter().all(|caveat| caveat.code != "counters_exceed_losses"), "{caveats:?}");
}

#[test]
fn a_filter_at_the_sender() {
    let command = "nft 'add table inet t; add chain inet t c { type filter hook output priority 0; }; \
                   add rule inet t c udp length 508 numgen inc mod 64 0 drop'";
    let outcome = unprivileged(PATH, &asked(2_000), |lab| on(lab, "client", command), nothing);
    let Some((result, _)) = outcome else { return };
    // The send says so, packet by packet.
    assert_lost(&result, Location::SenderStack, &(0..2_000).step_by(64).collect());
}
