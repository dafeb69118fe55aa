//! What held back a run that neither a window of a host nor a program limited: loss with the congestion control's answer, reordering, a short
//! queue, one bad link of several, or the congestion control alone.
//!
//! UDP tells them apart: random loss comes at any rate, a short queue loses bursts alone, a bad link loses on some ports.

use longhaul_result::Location;
use longhaul_units::Nanos;

use super::capacity::{is_overloaded, place_host};
use super::{Kind, Known, LATE, WORTH_NAMING, about, hosts, marks, measured};
use crate::diagnosis::{Basis, Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, TcpFacts, UdpFacts, word};

/// Losses that a price needs: Reno's window is a mean over ten cycles, CUBIC's over twenty (its cycles differ more in length).
const RENO_EVENTS: u64 = 10;
const OTHER_EVENTS: u64 = 20;
/// So many losses or none are not told apart by chance: three expected and none seen happens in 5 % of all cases.
pub(super) const NOT_BY_CHANCE: f64 = 3.0;

/// The limit of a run that its congestion window held back; nothing where the path's rate explains it.
pub(super) fn limit(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    if known.capacity.as_ref().is_some_and(|capacity| matches!(capacity.kind, Kind::Policer | Kind::Competing)) {
        return None;
    }
    let lost = run.retransmits.saturating_sub(run.spurious_retransmits);
    let spurious = run.spurious_retransmits.saturating_mul(2) > run.retransmits;
    let passed = passed(known, run, lost);
    if reordered(known) > LATE && (spurious || passed.is_some()) {
        return Some(reordering(known, run, passed));
    }
    if let Some(bound) = marks::early(run, lost) {
        return Some(bound);
    }
    if lost == 0 {
        if let Some(dropped) = dropped_at_sender(run) {
            return Some(random(known, run, dropped));
        }
        return Some(slow_acks(known, run).unwrap_or_else(|| control_alone(known, run)));
    }
    if uneven_streams(known).is_some() {
        // The bad member's bound is that of a flow that meets it.
        return None;
    }
    if let Some(waits) = known.capacity.as_ref().and_then(|capacity| capacity.others_wait_ns) {
        return Some(shared_queue(known, run, waits));
    }
    if let Some(bound) = crowded(known, run) {
        return Some(bound);
    }
    if let Some(burst) = burst_loss(known) {
        return Some(short_queue(run, burst));
    }
    Some(random(known, run, lost))
}

/// Packets of a flow without retransmissions that the sender's own stack dropped as they left, if that is no chance. TCP hears of it at once: it
/// cuts its window and sends them anew, and does not count that as a retransmission (`tcp_transmit_skb` of the kernel).
pub(super) fn dropped_at_sender(run: &TcpFacts) -> Option<u64> {
    let dropped = run.loss_reasons.iter().map(|(_, packets)| *packets).fold(0, u64::saturating_add);
    (dropped as f64 >= NOT_BY_CHANCE).then_some(dropped)
}

pub(super) fn rates<'a>(known: &Known<'a>) -> impl Iterator<Item = &'a UdpFacts> + use<'a> {
    known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.sent_packets > 0 && !hosts::is_void(run))
}

/// The greatest share of late packets.
pub(super) fn reordered(known: &Known<'_>) -> f64 {
    rates(known).map(|run| run.reordered_packets as f64 / run.sent_packets as f64).fold(0.0, f64::max)
}

/// What comes late is taken for lost: the receiver says so of each retransmission that was not needed, or UDP at that rate loses nothing.
fn reordering(known: &Known<'_>, run: &TcpFacts, passed: Option<u64>) -> Bound {
    let mut text = format!(
        "{} of {} retransmissions were not needed, and {:.2} % of the UDP packets were reordered",
        run.spurious_retransmits,
        run.retransmits,
        reordered(known) * 100.0
    );
    if let Some(sent) = passed {
        text += &format!("; of {sent} at TCP's rate and above none was lost");
    }
    Bound {
        code: Code::Reordering,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "nstat -az TcpExtTCPDSACKRecv TcpExtTCPSACKReorder")],
        remedies: vec![one_link()],
    }
}

/// What fixes reordering.
pub(super) fn one_link() -> Remedy {
    let text = "find the parallel links or queues that one flow is spread over, and keep a flow on one of them";
    Remedy::new(None, text, "")
}

/// The round trip grows with TCP and not with UDP of as much: what waits is in the reverse direction, where the acknowledgments go.
fn slow_acks(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    let (mean, base) = (run.mean_rtt_ns?, known.base_rtt_ns?);
    let grows = mean.saturating_sub(base);
    let passes =
        rates(known).filter(|step| step.arrived_bps() >= run.steady_bps).filter_map(|step| step.delay_p50_ns).max()?;
    if mean < 2 * base.min(u64::MAX / 2) || passes > grows / 4 {
        return None;
    }
    let text = format!(
        "the round trip grew from {} to {} under TCP, and UDP of as much waited {}: acknowledgments are queued in the reverse direction",
        Nanos(base).rounded(),
        Nanos(mean).rounded(),
        Nanos(passes).rounded()
    );
    Some(Bound {
        code: Code::Shaper,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "longhaul udp HOST -R shows what the reverse direction carries")],
        remedies: vec![Remedy::new(
            None,
            "find the slow queue in the other direction, and let acknowledgments pass before other packets",
            "",
        )],
    })
}

/// Packets wait in a queue before the test fills one: other flows do, and they take their share of the rate. They may give way to UDP.
fn shared_queue(known: &Known<'_>, run: &TcpFacts, waits_ns: u64) -> Bound {
    let steps = || rates(known).filter(|step| step.delay_p50_ns.is_some());
    let low = steps().map(|step| step.sent_bps).min().unwrap_or(0);
    let mut evidence = vec![Line::new(
        format!("UDP at {} waited {} in the median: others fill a queue", about(low), Nanos(waits_ns).rounded()),
        format!("longhaul udp HOST -b {} -t 10s; ping HOST", about(low)),
    )];
    if let Some(step) = steps().max_by_key(|step| step.sent_bps).filter(|step| step.sent_bps > low) {
        let text = format!(
            "UDP sent at {} arrived at {}, and TCP carried {}: they share the queue with TCP and yield to UDP",
            about(step.sent_bps),
            about(step.arrived_bps()),
            about(run.steady_bps)
        );
        evidence.push(Line::new(text, ""));
    }
    others(run, evidence)
}

/// The flow waits in a queue that it does not fill: a link is full while packets wait for it, so that a mean wait of half of the longest shows
/// that half of what it carries passed, at least.
fn crowded(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    let capacity = known.capacity.as_ref().filter(|capacity| capacity.limited && capacity.kind == Kind::Shaper)?;
    let (mean, longest) = (run.mean_rtt_ns?.saturating_sub(known.base_rtt_ns?), capacity.waits_ns?);
    let busy = (mean as f64 / longest.max(1) as f64).min(1.0);
    if busy * (capacity.tcp_bps as f64) < WORTH_NAMING * run.steady_bps as f64 {
        return None;
    }
    let text = format!(
        "packets waited {} in the mean and {} in a full queue, so the link was busy for {:.0} % of the time at least; TCP carried {} of its {}",
        Nanos(mean).rounded(),
        Nanos(longest).rounded(),
        busy * 100.0,
        about(run.steady_bps),
        about(capacity.tcp_bps)
    );
    Some(others(run, vec![Line::new(text, "ss -tni: rtt, minrtt, delivery_rate")]))
}

fn others(run: &TcpFacts, evidence: Vec<Line>) -> Bound {
    Bound {
        code: Code::CompetingTraffic,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence,
        remedies: vec![Remedy::new(
            None,
            "find who sends, by a capture on the path or by the router's counters: each flow gets its share of the queue",
            "longhaul capture IF -o DIR",
        )],
    }
}

pub(super) fn control_alone(known: &Known<'_>, run: &TcpFacts) -> Bound {
    let control = &run.congestion_control;
    let mut evidence = vec![Line::new(
        format!(
            "{control} held back the flow for {:.0} % of the time, and nothing was lost",
            run.limited_by.congestion_window * 100.0
        ),
        "ss -tni: cwnd, ssthresh",
    )];
    if let (Some(mean), Some(base)) = (run.mean_rtt_ns, known.base_rtt_ns) {
        evidence.push(Line::new(
            format!("the round trip was {} in the mean and {} at least", Nanos(mean).rounded(), Nanos(base).rounded()),
            "",
        ));
    }
    Bound {
        code: Code::CongestionControl,
        place: None,
        host: Some(Role::Sender),
        bound_bps: measured(run),
        evidence,
        remedies: vec![other_control(known, run)],
    }
}

/// What another congestion control reached, if one was tried.
fn other_control(known: &Known<'_>, run: &TcpFacts) -> Remedy {
    let other = known.tcp(Purpose::OtherControl).filter(|other| other.steady_bps > run.steady_bps);
    match other {
        Some(other) => {
            let name = word(&other.congestion_control, "NAME");
            let text = format!("use {name}: it carried {} over this path", about(other.steady_bps));
            Remedy::new(Some(Role::Sender), text, format!("sysctl -w net.ipv4.tcp_congestion_control={name}"))
        }
        None => {
            let text = "use a congestion control that bears this loss, such as bbr";
            Remedy::new(Some(Role::Sender), text, "longhaul cc table; longhaul cc use NAME -- COMMAND")
        }
    }
}

/// Streams that lose packets beside others that lose none, by port: how many of how many, and the greatest share of loss. Losses that fall
/// on each stream alike hit so few of them in less than 1 % of all cases. What hosts lose does not count: a busy one starves single sockets.
pub(super) fn uneven_streams(known: &Known<'_>) -> Option<(usize, usize, f64)> {
    let not_at_hosts = |run: &UdpFacts| {
        let away = [Location::Network, Location::Unexplained];
        let away =
            away.iter().filter_map(|place| run.loss_packets.get(place)).fold(0, |sum: u64, n| sum.saturating_add(*n));
        away > run.lost_packets / 2
    };
    rates(known).filter(|run| run.streams.len() > 1 && not_at_hosts(run)).find_map(|run| {
        let all = run.streams.len();
        let bad = run.streams.iter().filter(|(_, lost)| *lost > 0).count();
        let lost = run.streams.iter().map(|(_, lost)| *lost).fold(0, u64::saturating_add);
        let choices = (1..=bad).map(|k| (all - bad + k) as f64 / k as f64).product::<f64>();
        let chance = choices * (bad as f64 / all as f64).powf(lost as f64);
        let worst = run.streams.iter().map(|(sent, lost)| *lost as f64 / (*sent as f64).max(1.0)).fold(0.0, f64::max);
        (bad > 0 && bad < all && chance < 0.01).then_some((bad, all, worst))
    })
}

/// What a flow carries that meets a bad link of several, whether or not the tested one met it: Mathis' formula at that link's loss, within a
/// factor of two for the congestion controls that differ from Reno.
pub(super) fn bad_member(known: &Known<'_>) -> Option<Bound> {
    let (bad, all, worst) = uneven_streams(known)?;
    let rtt = known.base_rtt_ns? as f64 / 1e9;
    let window = (1.5 / worst.max(1e-9)).sqrt() * known.mss_bytes() as f64 * 8.0;
    let rate = (window / rtt.max(1e-6)) as u64;
    let text = format!(
        "{bad} of {all} UDP streams lost up to {:.2} %, and others lost nothing: it depends on the port",
        worst * 100.0
    );
    Some(Bound {
        code: Code::EcmpMember,
        place: Some(Location::Network),
        host: None,
        bound_bps: Interval::derived(rate, rate.saturating_mul(2)),
        evidence: vec![Line::new(text, "longhaul udp HOST -P 8; paris-traceroute by port")],
        remedies: vec![Remedy::new(None, "find the bad link of a group (ECMP, LAG) by its error counters", "")],
    })
}

/// Bursts that lose what the same rate without bursts does not.
fn burst_loss<'a>(known: &Known<'a>) -> Option<&'a UdpFacts> {
    let burst = known.udp_runs().filter(|run| run.purpose == Purpose::Burst && run.sent_packets > 0).last()?;
    let smooth = rates(known).filter(|run| run.sent_bps <= burst.sent_bps.saturating_mul(2)).map(UdpFacts::loss_share);
    let smooth = smooth.fold(0.0, f64::max);
    let expected = smooth * burst.sent_packets as f64;
    // As many again as smooth packets would have lost, and not by chance.
    (burst.lost_on_the_way() as f64 > 2.0 * expected + NOT_BY_CHANCE).then_some(burst)
}

fn short_queue(run: &TcpFacts, burst: &UdpFacts) -> Bound {
    let place = burst.main_place().unwrap_or(Location::Network);
    let text = format!(
        "bursts of UDP at {} lost {:.2} % at {place}; the same rate without bursts passes: a queue is too short",
        about(burst.sent_bps),
        burst.loss_share() * 100.0
    );
    Bound {
        code: Code::Queue,
        place: Some(place),
        host: place_host(place),
        bound_bps: measured(run),
        evidence: vec![Line::new(text, reasons(&burst.loss_reasons))],
        remedies: vec![
            Remedy::new(
                Some(Role::Sender),
                "pace the flow, so that it comes without bursts",
                "longhaul pace RATE -- COMMAND; tc qdisc replace dev IF root fq",
            ),
            Remedy::new(place_host(place), "make the queue longer: at least a burst of the fastest sender", ""),
        ],
    }
}

fn reasons(reasons: &[(String, u64)]) -> String {
    reasons.first().map(|(reason, _)| format!("the kernel's reason: {reason}")).unwrap_or_default()
}

/// A share of packets: in percent, and below 0.1 % as a power of ten, as response functions have it.
pub(super) fn share_text(share: f64) -> String {
    if share >= 1e-3 { format!("{:.1} %", share * 100.0) } else { format!("{share:.1e}") }
}

/// Packets that UDP sent at the flow's rate and above, where the network lost none of them, and would have lost some if it lost `lost` of the
/// flow's at any rate.
fn passed(known: &Known<'_>, run: &TcpFacts, lost: u64) -> Option<u64> {
    let steps = rates(known).filter(|step| step.arrived_bps() >= run.steady_bps);
    let sent = steps.map(|step| step.sent_packets).fold(0, u64::saturating_add);
    let met = rates(known).any(|step| step.loss_packets.get(&Location::Network).is_some_and(|lost| *lost > 0));
    let expected = lost as f64 / run.sent_packets.max(1) as f64 * sent as f64;
    (!met && expected >= NOT_BY_CHANCE).then_some(sent)
}

/// The place where most of the losses were that the flow's own rate does not explain, how many, and what was left out: a window that grows
/// loses a burst at a full queue, as one event; UDP at that rate, which fills no queue, would have met any other loss of the network.
fn blamed(known: &Known<'_>, run: &TcpFacts, lost: u64) -> (Location, u64, Option<Line>) {
    let all = run.loss_bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let of = |bytes: u64| super::share(lost, bytes, all);
    let most = |places: &mut dyn Iterator<Item = (&Location, &u64)>| {
        places.max_by_key(|(_, bytes)| **bytes).map(|(place, bytes)| (*place, *bytes))
    };
    let Some((place, bytes)) = most(&mut run.loss_bytes.iter()) else { return (Location::Network, lost, None) };
    let other = most(&mut run.loss_bytes.iter().filter(|(place, _)| **place != Location::Network));
    match (other, passed(known, run, of(bytes))) {
        (Some((other, others_bytes)), Some(sent)) if place == Location::Network => {
            let text = format!(
                "{} more were lost in the network, and UDP of {sent} packets at that rate lost none there: TCP itself filled a queue",
                of(bytes)
            );
            (other, of(others_bytes).max(1), Some(Line::new(text, "")))
        }
        _ => (place, if run.loss_bytes.len() > 1 { of(bytes) } else { lost }, None),
    }
}

pub(super) fn random(known: &Known<'_>, run: &TcpFacts, lost: u64) -> Bound {
    let (place, lost, own_queue) = blamed(known, run, lost);
    let share = lost as f64 / run.sent_packets.max(1) as f64;
    let control = &run.congestion_control;
    let mut evidence = vec![Line::new(
        format!(
            "{lost} of {} packets were lost ({}) at {place}; {control} cut its window for them",
            run.sent_packets,
            share_text(share)
        ),
        "ss -tni: retrans, lost; nstat -az TcpRetransSegs",
    )];
    evidence.extend(own_queue);
    let base_loss = known.capacity.as_ref().map_or(0.0, |capacity| capacity.base_loss);
    let below = |step: &&UdpFacts| step.lost_on_the_way() > 0 && !is_overloaded(step, base_loss);
    if let Some(step) = rates(known).filter(below).min_by_key(|run| run.sent_bps) {
        evidence.push(Line::new(
            format!(
                "UDP at {} lost {}: the loss does not need a full queue",
                about(step.sent_bps),
                share_text(step.loss_share())
            ),
            "",
        ));
    }
    if run.checksum_errors > 0 {
        let text = format!("{} packets came with a wrong checksum: bits change on the path", run.checksum_errors);
        evidence.push(Line::new(text, "nstat -az TcpInCsumErrors UdpInCsumErrors"));
    }
    let fix = match place {
        Location::Network => "find the lossy link: error counters of each device, light levels, cables",
        Location::ReceiverStack => "find the device that changes bits: memory, cables, checksum offload",
        _ => "fix the cause of the loss at this host",
    };
    Bound {
        code: Code::Loss,
        place: Some(place),
        host: place_host(place),
        bound_bps: measured(run),
        evidence,
        remedies: vec![
            Remedy::new(place_host(place), fix, "ethtool -S IF; ip -s -s link; nft list ruleset"),
            other_control(known, run),
        ],
    }
}

/// Losses without selective acknowledgements: each round trip repairs one of them (RFC 6582 §1), so the end of slow start takes minutes.
/// Either a host has switched them off, or something took the option out.
pub(super) fn without_sack(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    if run.handshake.sack != Some(false) || run.retransmits == 0 {
        return None;
    }
    let key = "net.ipv4.tcp_sack";
    let hosts = [(Role::Sender, &known.evidence.sender), (Role::Receiver, &known.evidence.receiver)];
    let off = hosts.iter().find(|(_, host)| host.number(key) == Some(0)).map(|(role, _)| *role);
    let both_on = hosts.iter().all(|(_, host)| host.number(key).is_some_and(|value| value > 0));
    let (code, why, remedy) = match off {
        Some(role) => (
            Code::Loss,
            format!("the {} has {key}=0", role.name()),
            Remedy::new(Some(role), "turn selective acknowledgements on (RFC 2018)", format!("sysctl -w {key}=1")),
        ),
        None if both_on => (
            Code::MiddleboxOptions,
            format!("both hosts have them: {}", run.handshake.taken_out(|syn| syn.sack)),
            Remedy::new(
                None,
                "find the firewall or load balancer that rewrites TCP options: compare the SYNs at both hosts",
                "tcpdump -ni IF -v 'tcp[13] & 2 != 0'",
            ),
        ),
        None => (
            Code::Loss,
            "a host has them off whose settings were not seen, or something on the path removed the option".to_owned(),
            Remedy::new(
                None,
                "look at both hosts; if both have them on, compare the SYNs there",
                format!("sysctl {key}; tcpdump -ni IF -v 'tcp[13] & 2 != 0'"),
            ),
        ),
    };
    let text = format!(
        "{} packets were retransmitted without selective acknowledgements, one in a round trip: {why}",
        run.retransmits
    );
    Some(Bound {
        code,
        place: None,
        host: off,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "ss -tni shows sack where it is in use; nstat -az TcpExtTCPRenoRecovery")],
        remedies: vec![remedy],
    })
}

/// Whether too few losses were seen to state a cost.
pub(super) fn has_too_few_events(known: &Known<'_>, bound: &Bound) -> bool {
    // The flow, or the same without the limit of a host, met the losses. What UDP's losses leave is an interval already.
    let mut runs = [Purpose::Default, Purpose::LargeBuffers, Purpose::Observed]
        .map(|purpose| known.tcp(purpose))
        .into_iter()
        .flatten();
    let measured = bound.bound_bps.basis == Basis::Measured;
    matches!(bound.code, Code::Loss | Code::EcmpMember | Code::Queue) && measured && runs.all(is_no_mean_yet)
}

/// Whether the run met too few losses and marks for a mean over its cycles: its window may still be on the way down from where slow start left it.
pub(crate) fn is_no_mean_yet(run: &TcpFacts) -> bool {
    let needed = if run.congestion_control == "reno" { RENO_EVENTS } else { OTHER_EVENTS };
    run.loss_events.unwrap_or(run.retransmits).saturating_add(run.marked_packets.unwrap_or(0)) < needed
}
