//! Both ends without any right: losses placed by counters, as far as those see.

use longhaul_session::control::UdpParameters;
use longhaul_session::locate::{Location, LocationMethod};
use longhaul_session::result::{UdpResult, Warning};

use crate::capture::Capture;
use crate::hosts::*;
use crate::receiver::{Stopped, hooked, sevens, waits_for_a_thread};

const PATH: &str = "[[both]]\ndelay = '1ms'\n";

/// A test on `path` between hosts that `prepare` has changed; `None` where it could not.
fn unprivileged(
    path: &str,
    asked: &UdpParameters,
    prepare: impl FnOnce(&longhaul_lab::Lab) -> bool,
    meddle: impl FnOnce(&longhaul_lab::Lab, &Process, &Capture),
) -> Option<(UdpResult, Vec<Warning>)> {
    if !able() {
        return None;
    }
    let lab = lab(path);
    if !prepare(&lab) {
        return None;
    }
    let (server, address) = serving_process(&lab, UNPRIVILEGED);
    let reached = Capture::reaching(&lab, "server");
    let client = testing_process(&lab, UNPRIVILEGED, address, asked);
    meddle(&lab, &server, &reached);
    let (result, warnings) = client.outcome().unwrap();
    assert_eq!(result.location_method, LocationMethod::Counters);
    let told = warnings.iter().filter(|warning| warning.code == "no_drop_events").count();
    assert_eq!(told, 2, "both ends say so: {warnings:?}");
    Some((result, warnings))
}

/// Within what the kernel gives without a right.
fn asked(packets: u64) -> UdpParameters {
    UdpParameters { sockbuf_bytes: None, ..parameters(packets) }
}

fn nothing(_: &longhaul_lab::Lab, _: &Process, _: &Capture) {}

#[test]
fn the_path() {
    let path = "[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 100 }\n";
    let large = UdpParameters { sockbuf_bytes: Some(1 << 30), ..parameters(2_000) };
    let Some((result, warnings)) = unprivileged(path, &large, |_| true, nothing) else { return };
    for (end, which) in [("client", "send"), ("server", "receive")] {
        let said = format!("{end}: of 1073741824 bytes of {which} buffer the kernel gave ");
        let told = |warning: &&Warning| warning.code == "buffer_not_granted" && warning.message.starts_with(&said);
        assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
    }
    assert_eq!(lost_at(&result), [(Location::Network, result.lost_packets)], "{:?} {warnings:?}", result.counters);
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

#[test]
fn damaged_packets() {
    let path = "[[both]]\ndelay = '1ms'\n[[forward]]\ncorrupt = '3%'\n";
    let Some((result, _)) = unprivileged(path, &asked(3_000), |_| true, nothing) else { return };
    // A bit of the Ethernet header is nobody's checksum: of some 80 packets one or two.
    let (stack, lost) = (result.loss_by_location[&Location::ReceiverStack], result.lost_packets);
    assert!(lost > 40 && stack <= lost && stack + 6 >= lost, "{stack} of {lost}: {:?}", result.counters);
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
    let Some((result, warnings)) = outcome else { return };
    assert!(result.lost_packets > 500, "{}", result.lost_packets);
    assert_eq!(lost_at(&result), [(Location::SenderQdisc, result.lost_packets)], "{:?}", result.counters);
    assert!(warnings.iter().all(|warning| warning.code != "counters_exceed_losses"), "{warnings:?}");
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
