//! What the path does to the marks in IP headers: ECN (RFC 3168), by which a queue tells of congestion before it drops, and DSCP (RFC 2474).

use longhaul_result::Location;

use super::{Known, measured};
use crate::diagnosis::{Bound, Code, Finding, Line, Remedy, Role};
use crate::evidence::{HostFacts, Purpose, TcpFacts, UdpFacts};

/// The lower two bits of the byte.
const ECN: u8 = 3;
/// ECN's mark of congestion.
const CE: u8 = 3;
/// Values of `tcp_ecn` with which a host asks for ECN: with RFC 3168, or AccECN as well (ip-sysctl.rst).
const ASKS: [u64; 3] = [1, 3, 4];

/// Packets of `all` whose class is as `is` says.
fn count(run: &UdpFacts, is: impl Fn(u8) -> bool) -> u64 {
    run.traffic_classes.iter().filter(|(class, _)| is(*class)).map(|(_, packets)| *packets).fold(0, u64::saturating_add)
}

pub(super) fn findings(known: &Known<'_>) -> Vec<Finding> {
    let test = known.udp_runs().filter(|run| run.purpose == Purpose::Marks && run.sent_packets > 0).last();
    let mut found: Vec<Finding> = test.into_iter().flat_map(|run| in_udp(known, run)).collect();
    if !found.iter().any(|finding| finding.code == ECN_CODE) {
        found.extend(in_tcp(known));
    }
    found
}

const ECN_CODE: &str = "ecn";

fn finding(code: &str, text: String, remedy: &str) -> Finding {
    Finding { code: code.into(), host: None, text, remedy: remedy.into() }
}

fn in_udp(known: &Known<'_>, run: &UdpFacts) -> Vec<Finding> {
    let sent = run.traffic_class;
    let arrived = count(run, |_| true);
    let seen = format!("tcpdump -v at both hosts; longhaul udp HOST -S {sent:#04x} --json: traffic_classes");
    let mut found = Vec::new();
    if run.lost_packets == run.sent_packets {
        // Where nothing else arrives either, it is not the marks.
        let others = known.udp_runs().any(|other| other.traffic_class == 0 && other.lost_packets < other.sent_packets);
        if others {
            let text = format!(
                "of {} packets with DSCP {} and ECN none arrived, and packets without did: something drops them",
                run.sent_packets,
                sent >> 2
            );
            found.push(finding(
                "dscp",
                text,
                "find the filter that drops packets by their TOS byte (RFC 8517, RFC 9435)",
            ));
        }
        return found;
    }
    if arrived == 0 {
        return found;
    }
    let (bleached, marked) = (count(run, |class| class & ECN == 0), count(run, |class| class & ECN == CE));
    if bleached > 0 {
        let text = format!(
            "{bleached} of {arrived} packets that left with ECN arrived without (RFC 3168 §5): a router clears the bits, and queues cannot mark \
             what they now drop; {seen}"
        );
        found.push(finding(
            ECN_CODE,
            text,
            "find the router that clears the ECN bits; often it rewrites the whole TOS byte for DSCP",
        ));
    } else if marked > 0 {
        let text = format!(
            "{marked} of {arrived} packets with ECN arrived with a mark of congestion: a queue on the path marks, without load from this test"
        );
        found.push(finding(ECN_CODE, text, ""));
    }
    let changed = run.traffic_classes.iter().filter(|(class, packets)| class >> 2 != sent >> 2 && *packets > 0);
    let mut to: Vec<u8> = changed.map(|(class, _)| class >> 2).collect();
    to.dedup();
    if !to.is_empty() {
        let to = to.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let text =
            format!("packets left with DSCP {} and arrived with {to}: the network does not keep it; {seen}", sent >> 2);
        found.push(finding(
            "dscp",
            text,
            "nothing, unless the network promises a class of service: then ask who rewrites DSCP (RFC 2474)",
        ));
    }
    found
}

/// ECN that both hosts have and a connection does not use, or uses in vain.
fn in_tcp(known: &Known<'_>) -> Option<Finding> {
    let run = known.tcp_runs().find(|run| run.handshake.ecn.is_some())?;
    let handshake = *run.handshake;
    if handshake.ecn == Some(true) {
        let text = "the connection uses ECN, and no packet of it reached the receiver that ECN could mark: a router clears the bits (RFC 3168 §5)";
        let remedy = "find the router that clears the ECN bits; often it rewrites the whole TOS byte for DSCP";
        // One run of several is enough to know that it passes.
        let seen = known.tcp_runs().any(|run| run.handshake.ecn_seen == Some(true));
        return (!seen && run.sent_packets > 0).then(|| finding(ECN_CODE, text.into(), remedy));
    }
    let (sender, receiver) = (&known.evidence.sender, &known.evidence.receiver);
    let (client, server) = if handshake.client_sends { (sender, receiver) } else { (receiver, sender) };
    let value = |host: &HostFacts| host.number("net.ipv4.tcp_ecn");
    let both = value(client).is_some_and(|value| ASKS.contains(&value)) && value(server).is_some_and(|value| value > 0);
    let gone = handshake.taken_out(|syn| syn.ecn);
    let text = format!(
        "ECN: the client asks for it and the server accepts it, but the connection does not use it: {gone} (RFC 3168 §6.1.1)"
    );
    both.then(|| finding(ECN_CODE, text, "find the firewall or load balancer that rewrites TCP flags"))
}

/// A queue that marks: TCP cuts its window for a mark as it does for a loss (RFC 3168 §6.1.2).
pub(super) fn early(run: &TcpFacts, lost: u64) -> Option<Bound> {
    let marked = run.marked_packets.filter(|marked| *marked > lost)?;
    let text = format!(
        "{marked} of {} packets arrived with a mark of congestion, and {lost} were lost: a queue marks packets, and {} cut its window for that",
        run.sent_packets, run.congestion_control
    );
    Some(Bound {
        code: Code::Queue,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "ss -tni: delivered_ce; nstat -az TcpExtTCPDeliveredCE IpExtInCEPkts")],
        remedies: vec![
            Remedy::new(
                None,
                "let the router's queue mark later: its threshold has to be a good part of rate × round trip of the longest flow",
                "tc -s -d qdisc",
            ),
            Remedy::new(
                Some(Role::Sender),
                "without ECN the same queue drops, or does nothing: compare",
                "sysctl -w net.ipv4.tcp_ecn=0",
            ),
        ],
    })
}
