//! What deserves attention and has no price.

use longhaul_units::{Bytes, Nanos};

use super::{Known, about, hosts, loss, marks, path};
use crate::diagnosis::{Cause, Code, Finding, Role};
use crate::evidence::{HostFacts, Purpose, SynFacts};

/// A queue that holds more than the path does: loaded round trips of twice the base.
const BLOATED: u64 = 2;
/// Delay below this disturbs nobody (ITU-T G.114 gives 150 ms to voice, one way).
const NOTICED: Nanos = Nanos::from_millis(50);

/// Two flows of the same kind that differ by this factor tell of something that comes and goes.
const UNSTEADY: u64 = 2;

pub(super) fn findings(known: &Known<'_>, causes: &[Cause]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = |code: Code| causes.iter().any(|cause| cause.bound.code == code);
    let mut push = |code: &str, host: Option<Role>, text: String, remedy: &str| {
        findings.push(Finding { code: code.into(), host, text, remedy: remedy.into() });
    };
    options(known, &mut push);
    if let Some(run) = known.flow() {
        if let (Some(mean), Some(base)) = (run.mean_rtt_ns, known.base_rtt_ns)
            && mean > base.saturating_mul(BLOATED)
            && mean - base > NOTICED.0
        {
            let text = format!(
                "the round trip grows from {} to {} under load: a queue is long",
                Nanos(base).rounded(),
                Nanos(mean).rounded()
            );
            push(
                Code::Queue.name(),
                None,
                text,
                "limit the queue, or let it drop early (fq_codel, CAKE) at the bottleneck",
            );
        }
        if run.checksum_errors > 0 && !named(Code::Loss) {
            let text = format!("{} packets came with a wrong checksum: bits change on the path", run.checksum_errors);
            push("checksum", Some(Role::Receiver), text, "find the device that changes bits");
        }
        let mtu = [&known.evidence.sender, &known.evidence.receiver]
            .into_iter()
            .filter_map(|host| host.link.as_ref()?.mtu_bytes);
        if let Some(mtu) = mtu.min().filter(|mtu| run.mss_bytes > 0 && run.mss_bytes + path::SMALLER_BYTES < *mtu) {
            let text = format!(
                "segments have {} of payload, and the links carry packets of {}",
                Bytes(run.mss_bytes),
                Bytes(mtu)
            );
            push(Code::Mtu.name(), None, text, "find who clamps the MSS, or the link with the smaller MTU");
        }
    }
    if let Some((lost, passed)) = path::hole(known).filter(|_| !named(Code::MtuBlackHole)) {
        let text = format!(
            "UDP payloads of {} arrive, payloads of {} do not",
            Bytes(passed.payload_bytes),
            Bytes(lost.payload_bytes)
        );
        push(Code::Mtu.name(), None, text, "send smaller datagrams, or fix the path's MTU");
    }
    if let Some(text) = unsteady(known) {
        push("unsteady", None, text, "diagnose again with a longer --time to see which of the two is normal");
    }
    let late = loss::reordered(known);
    if late > 0.0 && !named(Code::Reordering) {
        push(Code::Reordering.name(), None, format!("{:.3} % of the UDP packets were reordered", late * 100.0), "");
    }
    if let Some((bad, all, worst)) = loss::uneven_streams(known).filter(|_| !named(Code::EcmpMember)) {
        let text = format!("{bad} of {all} UDP streams lost up to {:.2} %, and others lost nothing", worst * 100.0);
        push(Code::EcmpMember.name(), None, text, "find the bad link of a group (ECMP, LAG)");
    }
    let (sent, twice) = known.udp_runs().fold((0u64, 0u64), |(sent, twice), run| {
        (sent.saturating_add(run.sent_packets), twice.saturating_add(run.duplicate_packets))
    });
    if twice > 0 {
        push("duplicates", None, format!("{twice} of {sent} UDP packets were duplicated"), "");
    }
    let quiet = known.capacity.as_ref().filter(|capacity| capacity.base_loss > 0.0);
    if let Some(capacity) = quiet.filter(|_| !named(Code::Loss) && !named(Code::EcmpMember)) {
        let text = format!("UDP loses {} of its packets at a low rate", loss::share_text(capacity.base_loss));
        push(Code::Loss.name(), None, text, "locate the loss with longhaul udp HOST");
    }
    findings.extend(marks::findings(known));
    findings.extend(hosts::findings(known, causes));
    for (role, host) in [(Role::Sender, &known.evidence.sender), (Role::Receiver, &known.evidence.receiver)] {
        for [code, message, remedy] in &host.caveats {
            let (code, text, remedy) = (code.clone(), message.clone(), remedy.clone());
            findings.push(Finding { code, host: Some(role), text, remedy });
        }
    }
    findings
}

/// One flow carried so little that it was repeated, and the next one much more.
fn unsteady(known: &Known<'_>) -> Option<String> {
    let mut runs = known.tcp_runs().filter(|run| run.purpose == Purpose::Default);
    let (first, last) = (runs.next()?, runs.last()?);
    let differ = first.retransmits > 0 && first.goodput_bps.saturating_mul(UNSTEADY) < last.goodput_bps;
    differ.then(|| {
        format!(
            "of two flows of the same kind one carried {} for {}, the other {} for {}",
            about(first.goodput_bps),
            Nanos(first.duration_ns).rounded(),
            about(last.goodput_bps),
            Nanos(last.duration_ns).rounded()
        )
    })
}

/// Options of TCP that are off at a host, or that something on the way took out.
fn options(known: &Known<'_>, push: &mut impl FnMut(&str, Option<Role>, String, &str)) {
    let Some(handshake) = known.tcp_runs().map(|run| *run.handshake).next() else { return };
    let is_off = |host: &HostFacts, key: &str| host.number(key) == Some(0);
    let (sender, receiver) = (&known.evidence.sender, &known.evidence.receiver);
    type Offered = fn(&SynFacts) -> bool;
    let all: [(_, _, _, Offered, _); 3] = [
        (
            "selective acknowledgements",
            "net.ipv4.tcp_sack",
            handshake.sack,
            |syn| syn.sack,
            "each round trip repairs one loss alone (RFC 2018)",
        ),
        (
            "time stamps",
            "net.ipv4.tcp_timestamps",
            handshake.timestamps,
            |syn| syn.timestamps,
            "round trips are measured less often, and old packets can be taken as new ones beyond 4 GiB (RFC 7323 §5)",
        ),
        (
            "window scaling",
            "net.ipv4.tcp_window_scaling",
            handshake.window_scaling,
            |syn| syn.window_scaling,
            "at most 64 KiB are in flight (RFC 7323 §2)",
        ),
    ];
    for (name, key, used, offered, cost) in all {
        if used != Some(false) {
            continue;
        }
        let off: Vec<Role> = [(Role::Sender, sender), (Role::Receiver, receiver)]
            .into_iter()
            .filter_map(|(role, host)| is_off(host, key).then_some(role))
            .collect();
        for role in &off {
            push(
                "tcp_option_off",
                Some(*role),
                format!("{name}: off ({key}=0); {cost}"),
                &format!("sysctl -w {key}=1"),
            );
        }
        let known_on = [sender, receiver].into_iter().all(|host| host.number(key).is_some());
        if off.is_empty() && known_on {
            let gone = handshake.taken_out(offered);
            let text = format!("{name}: both hosts offer it, but the connection does not use it: {gone}; {cost}");
            push(
                Code::MiddleboxOptions.name(),
                None,
                text,
                "find the firewall or load balancer that rewrites TCP options",
            );
        }
    }
}
