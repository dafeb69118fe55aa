//! Datagrams longer than a packet: a loss is where one of its fragments was dropped, whichever that was.
//!
//! Captures on both sides of the path tell which datagrams left whole and which came whole, by the identification of their fragments.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use longhaul_lab::Lab;
use longhaul_result::{Location, LocationMethod};
use longhaul_terms::Collect;
use longhaul_udp::{Pace, UdpParameters};
use longhaul_wire::probe::{FIRST_RESERVED, Probe};

use crate::capture::{Capture, Wire};
use crate::hosts::*;
use crate::receiver::hooked_on;

const PACKETS: u64 = 800;
/// Four fragments over IPv4 and IPv6.
const BYTES: u32 = 5_000;

/// A fragment of a frame: its datagram, place, bytes, and the sequence number in the first.
fn fragment(frame: &[u8]) -> Option<(u32, usize, usize, Option<u64>)> {
    let ip = frame.get(14..)?;
    let be16 = |bytes: &[u8], at: usize| Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
    let (id, offset, payload) = match ip.first()? >> 4 {
        4 if ip[9] == 17 => (be16(ip, 4)? as u32, (be16(ip, 6)? & 0x1fff) * 8, ip.get(20..be16(ip, 2)?)?),
        6 if ip[6] == 44 => {
            (u32::from_be_bytes(*ip.get(44..)?.first_chunk()?), be16(ip, 42)? & !7, ip.get(48..40 + be16(ip, 4)?)?)
        }
        _ => return None,
    };
    let probe = if offset == 0 { Probe::parse(payload.get(8..)?) } else { None };
    Some((id, offset, payload.len(), probe.map(|probe| probe.sequence).filter(|sequence| *sequence < FIRST_RESERVED)))
}

/// By identification: the bytes of each datagram that are there.
fn datagrams(packets: &[Wire]) -> BTreeMap<u32, usize> {
    let mut parts: BTreeMap<u32, BTreeMap<usize, usize>> = BTreeMap::new();
    for (id, offset, bytes, _) in packets.iter().filter_map(|packet| fragment(&packet.frame)) {
        parts.entry(id).or_default().insert(offset, bytes);
    }
    parts.into_iter().map(|(id, parts)| (id, parts.values().sum())).collect()
}

/// The sequence numbers of datagrams that are whole on one side, and of those of which anything is there.
struct Side {
    whole: BTreeSet<u64>,
    any: BTreeSet<u64>,
}

/// `numbers` has the sequence number of each identification.
fn side(packets: &[Wire], numbers: &BTreeMap<u32, u64>) -> Side {
    let datagrams = datagrams(packets);
    let of = |least: usize| {
        datagrams.iter().filter(|(_, bytes)| **bytes >= least).filter_map(|(id, _)| numbers.get(id).copied()).collect()
    };
    Side { whole: of(BYTES as usize + 8), any: of(1) }
}

fn asked(wire: bool, collect: Collect) -> UdpParameters {
    UdpParameters { payload_bytes: BYTES, pace: Pace::RateBps(60_000_000), wire, collect, ..parameters(PACKETS) }
}

fn address(lab: &Lab, ipv6: bool) -> IpAddr {
    let plan = &lab.host("server").unwrap().plan;
    if ipv6 { plan.ipv6.into() } else { plan.ipv4.into() }
}

/// Runs a test on a lab whose `host` has done `command` and holds the result against captures: what left, what came, what was received.
fn judged(path: &str, host: &str, command: &str, at: Location, ipv6: bool, asked: &UdpParameters) {
    let name = format!("{command}, IPv6 {ipv6}, wire {}, {:?}", asked.wire, asked.collect);
    let lab = lab(path);
    if !hooked_on(&lab, host, command) {
        return;
    }
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let end = run_to(&lab, address(&lab, ipv6), asked.clone());
    let (left, reached) = (left.finish(), reached.finish());
    let numbers =
        left.iter().filter_map(|packet| fragment(&packet.frame)).filter_map(|(id, _, _, number)| Some((id, number?)));
    let numbers: BTreeMap<u32, u64> = numbers.collect();
    let (left, reached) = (side(&left, &numbers).whole, side(&reached, &numbers));
    let (result, caveats) = assemble(&end, false);
    assert_eq!(result.sent_packets, PACKETS, "{name} {caveats:?}");
    let counters = asked.collect == Collect::Counters;
    assert_eq!(result.location_method == LocationMethod::Counters, counters, "{name}");
    let said = format!("{name}: {:?} {caveats:?}", result.loss_reasons);
    let by_filter = if at < Location::Network {
        PACKETS - left.len() as u64
    } else {
        reached.whole.len() as u64 - result.received_packets
    };
    assert!(by_filter > 20, "{by_filter} {said}");
    if counters {
        assert_eq!(lost_at(&result), [(at, by_filter)], "{said}");
        return;
    }
    let mut lost = sequences(&result);
    let mut told = |at| lost.remove(&at).unwrap_or_default();
    let (here, network, unexplained) = (told(at), told(Location::Network), told(Location::Unexplained));
    assert!(lost.is_empty(), "{said}");
    // One CPU in the midst of a drop does not see that of an interrupt.
    let unseen = if asked.wire { 8 } else { 4 * (65_536 / u64::from(BYTES)) };
    assert!(result.loss_by_location[&Location::Unexplained] <= unseen, "{said}");
    let lost_on_path = &left - &reached.whole;
    assert!(network.is_subset(&lost_on_path), "{said}");
    if at < Location::Network {
        let missing: BTreeSet<u64> = &(0..PACKETS).collect::<BTreeSet<_>>() - &left;
        assert!(here.is_subset(&missing) && missing.is_subset(&(&here | &unexplained)), "{said}");
    } else {
        // What lost a fragment on the path may have lost another here.
        let candidates = &reached.any - &network;
        assert!(here.is_subset(&candidates), "{said}");
        assert_eq!((&here - &lost_on_path).len() + (&unexplained - &lost_on_path).len(), by_filter as usize, "{said}");
    }
}

const LOSSY: &str = "[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 97 }\n";
const CLEAN: &str = "[[both]]\ndelay = '1ms'\n";

fn everywhere(host: &str, commands: [&str; 2], at: Location) {
    if !able() {
        return;
    }
    for (ipv6, command) in [false, true].into_iter().zip(commands) {
        // What is sent together otherwise is no different: it cannot be cut into packets.
        judged(LOSSY, host, command, at, ipv6, &asked(!ipv6, Collect::Bpf));
        // Counters have totals of fragments, which on a path without losses of its own are this place's alone.
        judged(CLEAN, host, command, at, ipv6, &asked(true, Collect::Counters));
    }
}

#[test]
fn a_queue_at_the_sender() {
    // The control connection has a class of its own.
    let queue = "tc qdisc add dev eth0 root handle 1: htb default 20 && \
                 tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit && \
                 tc class add dev eth0 parent 1: classid 1:20 htb rate 1gbit && \
                 tc qdisc add dev eth0 parent 1:20 tbf rate 50mbit burst 20000 limit 30000 && \
                 tc filter add dev eth0 parent 1: protocol ";
    let (ipv4, ipv6) =
        ("ip u32 match ip protocol 6 0xff flowid 1:10", "ipv6 u32 match ip6 protocol 6 0xff flowid 1:10");
    everywhere("client", [&format!("{queue}{ipv4}"), &format!("{queue}{ipv6}")], Location::SenderQdisc);
}

#[test]
fn a_filter_at_the_senders_interface() {
    let filter = "tc qdisc add dev eth0 clsact && tc filter add dev eth0 egress bpf direct-action obj OBJECT sec parts";
    everywhere("client", [filter; 2], Location::SenderQdisc);
}

#[test]
fn a_filter_at_the_receivers_interface() {
    let filter =
        "tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress bpf direct-action obj OBJECT sec parts";
    everywhere("server", [filter; 2], Location::ReceiverFilter);
}

#[test]
fn the_receivers_netfilter() {
    let table = "nft 'add table inet t; add chain inet t c { type filter hook HOOK priority -450; }; \
                 add rule inet t c RULE numgen random mod 40 0 drop'";
    // Before fragments are joined: over IPv4 that is at prerouting, over IPv6 as late as at input.
    let ipv4 = table.replace("HOOK", "prerouting").replace("RULE", "ip frag-off & 0x3fff != 0");
    let ipv6 = table.replace("HOOK", "input").replace("RULE", "exthdr frag exists");
    everywhere("server", [&ipv4, &ipv6], Location::ReceiverFilter);
}
