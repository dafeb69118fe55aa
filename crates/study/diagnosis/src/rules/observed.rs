//! What held back a connection that no test made, where no window of a host and no program did. No UDP tells its causes apart: the round trip
//! and the packets do, and what they leave open is said.

use longhaul_result::Location;
use longhaul_units::{Bytes, Nanos};

use super::{Known, about, loss, marks, measured};
use crate::diagnosis::{Basis, Bound, Code, Line, Remedy, Role, Unknown};
use crate::events::ShapingQdisc;
use crate::evidence::{Observed, PacketShares, Purpose, TcpFacts, Vantage};

/// Segments of the first round trip (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// A transfer that takes up to this many times what slow start needs ends in slow start: HyStart (RFC 9406) leaves it early, and then a round
/// trip adds less than it had.
const SLOW_START_TIMES: u64 = 2;
/// A flow that makes a queue keeps it filled to a good part: the round trip grows by a quarter or more on the mean. A queue of one
/// bandwidth-delay product grows it by 70 % (CUBIC's mean window is 0.85 of its greatest one, RFC 9438 §4.6).
const QUEUE_GROWS: f64 = 0.25;
/// Below this the hosts' own delays make the round trip vary: interrupt moderation, schedulers.
const HOSTS_VARY: Nanos = Nanos::from_millis(1);
/// So many events have a cause that lasts: three where none is expected come by chance in less than 5 % of all cases.
const NOT_BY_CHANCE: u64 = 3;
/// Congestion controls that send at a rate they measure, and not by a window that a loss cuts (BBR: draft-ietf-ccwg-bbr).
const RATE_BASED: &str = "bbr";

/// The observed connection.
pub(super) fn run<'a>(known: &Known<'a>) -> Option<(&'a TcpFacts, Observed)> {
    let run = known.tcp(Purpose::Observed)?;
    Some((run, *run.observed.as_deref()?))
}

/// The limit of a connection that its congestion window, or what looks like it, held back.
pub(super) fn limit(known: &Known<'_>, run: &TcpFacts, observed: Observed) -> Option<Bound> {
    let lost = run.retransmits.saturating_sub(run.spurious_retransmits);
    let shares = observed.packets.unwrap_or_default();
    if lost == 0 && observed.out_of_order_packets == 0 && is_slow_start(known, run, observed, shares) {
        return Some(slow_start(known, run, observed));
    }
    if run.spurious_retransmits > lost && run.spurious_retransmits >= NOT_BY_CHANCE {
        return Some(reordering(run));
    }
    if let Some(grows) = queue(known, run, observed) {
        return Some(bottleneck(run, grows, lost));
    }
    if let Some(bound) = marks::early(run, lost) {
        return Some(bound);
    }
    let rate_based_control = run.congestion_control.starts_with(RATE_BASED);
    match observed.from {
        // Why the sender sends no more is not seen from here.
        Vantage::Receiver => None,
        Vantage::Sender if lost == 0 || rate_based_control => {
            let at_this_host = shaper(run, observed).map(|qdisc| own_shaper(run, qdisc));
            Some(at_this_host.unwrap_or_else(|| match loss::dropped_at_sender(run) {
                _ if rate_based_control => rate_based(run, lost),
                Some(dropped) => loss::random(known, run, dropped),
                None => loss::control_alone(known, run),
            }))
        }
        _ if lost > 0 => Some(lossy(known, run, lost)),
        _ => None,
    }
}

fn is_slow_start(known: &Known<'_>, run: &TcpFacts, observed: Observed, shares: PacketShares) -> bool {
    let others = [shares.congestion, shares.path_rate, shares.sender_window, shares.unclear];
    if observed.packets.is_some() {
        return shares.slow_start > others.into_iter().fold(0.0, f64::max);
    }
    let ideal = ideal_ns(known, run, observed).map(|(_, ns)| ns);
    observed.began && ideal.is_some_and(|ideal| run.duration_ns <= ideal.saturating_mul(SLOW_START_TIMES))
}

/// Round trips that slow start needs for the payload, with the one of the handshake, and their time.
fn ideal_ns(known: &Known<'_>, run: &TcpFacts, observed: Observed) -> Option<(u32, u64)> {
    let segments = observed.payload_bytes / run.mss_bytes.max(1);
    let rounds = segments.div_ceil(INITIAL_WINDOW).saturating_add(1).ilog2() + 2;
    Some((rounds, known.base_rtt_ns?.saturating_mul(u64::from(rounds))))
}

fn slow_start(known: &Known<'_>, run: &TcpFacts, observed: Observed) -> Bound {
    let mut evidence = Vec::new();
    if let Some((rounds, ideal)) = ideal_ns(known, run, observed) {
        evidence.push(Line::new(
            format!(
                "{} took {}; handshake and slow start need {rounds} round trips for it, {} (RFC 6928, RFC 5681 §3.1)",
                Bytes(observed.payload_bytes).rounded(),
                Nanos(run.duration_ns).rounded(),
                Nanos(ideal).rounded()
            ),
            "ss -tni: ssthresh is shown where slow start has ended",
        ));
    }
    if let Some(shares) = observed.packets {
        let text = format!("the data in flight still grew for {:.0} % of the time", shares.slow_start * 100.0);
        evidence.push(Line::new(text, "Wireshark: Statistics, TCP Stream Graphs, Window Scaling"));
    }
    Bound {
        code: Code::SlowStart,
        place: None,
        host: Some(Role::Sender),
        bound_bps: measured(run),
        evidence,
        remedies: super::transfer::remedies(),
    }
}

fn reordering(run: &TcpFacts) -> Bound {
    let text = format!("{} of {} retransmissions were not needed", run.spurious_retransmits, run.retransmits);
    Bound {
        code: Code::Reordering,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "ss -tni: reord_seen, dsack_dups; nstat -az TcpExtTCPDSACKRecv")],
        remedies: vec![loss::one_link()],
    }
}

/// The shortest and the grown round trip, if a queue made it grow: on average, or at the time of the few losses.
fn queue(known: &Known<'_>, run: &TcpFacts, observed: Observed) -> Option<(u64, u64)> {
    let (base, mean) = (known.base_rtt_ns?, run.mean_rtt_ns?);
    let least = ((base as f64 * QUEUE_GROWS) as u64).max(HOSTS_VARY.0);
    let grew = |to: &u64| to.saturating_sub(base) > least;
    let few = (1..NOT_BY_CHANCE).contains(&run.loss_events.unwrap_or(run.retransmits));
    let to = Some(mean).filter(grew).or(observed.max_rtt_ns.filter(|max| few && grew(max)))?;
    Some((base, to))
}

/// The sender finds the path's rate by itself.
fn rate_based(run: &TcpFacts, lost: u64) -> Bound {
    let control = &run.congestion_control;
    let mut text = format!("{control} sends at the rate that it measures on the path");
    if lost > 0 {
        text += &format!("; {lost} of {} packets were lost, which slow it down little", run.sent_packets);
    }
    Bound {
        code: Code::Shaper,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "ss -tni: bbr:(bw:...), delivery_rate")],
        remedies: vec![find_bottleneck()],
    }
}

/// The sender's own shaper, if it held back packets and most of the flow's bytes can have gone by it.
fn shaper(run: &TcpFacts, observed: Observed) -> Option<&ShapingQdisc> {
    let qdisc = run.sender_shaper.as_deref()?;
    (qdisc.overlimits >= NOT_BY_CHANCE && qdisc.passed_bytes >= observed.payload_bytes / 2).then_some(qdisc)
}

/// TCP keeps little in the queues of its own host (`tcp_limit_output_bytes`), so that no round trip grows and no packet is lost.
fn own_shaper(run: &TcpFacts, qdisc: &ShapingQdisc) -> Bound {
    let ShapingQdisc { interface, kind, overlimits, passed_bytes } = qdisc;
    let text = format!(
        "the sender's {kind} at {interface} held packets back {overlimits} times, and let {} pass",
        Bytes(*passed_bytes).rounded()
    );
    Bound {
        code: Code::Shaper,
        place: Some(Location::SenderQdisc),
        host: Some(Role::Sender),
        bound_bps: measured(run),
        evidence: vec![Line::new(text, format!("tc -s qdisc show dev {interface}: overlimits grows"))],
        remedies: vec![Remedy::new(
            Some(Role::Sender),
            "raise the rate of the sender's queueing discipline",
            format!("tc qdisc replace dev {interface} root fq"),
        )],
    }
}

fn find_bottleneck() -> Remedy {
    Remedy::new(
        None,
        "find the slowest link or shaper on the path, and who else uses it: where the other end runs longhaul serve, a test shows which",
        "longhaul diagnose HOST",
    )
}

/// The flow fills a queue: it has the rate that its bottleneck gives it.
fn bottleneck(run: &TcpFacts, (base, mean): (u64, u64), lost: u64) -> Bound {
    let mut text = format!(
        "the round trip grew from {} to {}: packets wait in a queue on the path",
        Nanos(base).rounded(),
        Nanos(mean).rounded()
    );
    if lost > 0 {
        text += &format!(", and {lost} were lost");
    }
    Bound {
        code: Code::Shaper,
        place: Some(Location::Network),
        host: None,
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "ss -tni: rtt beside minrtt")],
        remedies: vec![find_bottleneck()],
    }
}

fn lossy(known: &Known<'_>, run: &TcpFacts, lost: u64) -> Bound {
    let mut bound = loss::random(known, run, lost);
    bound.evidence.push(Line::new(
        "the round trip did not grow with it: no long queue overflows; random loss, a policer and a short queue look alike here",
        "longhaul diagnose HOST, with longhaul serve there, shows which",
    ));
    bound
}

/// What this vantage cannot tell, and what would.
pub(super) fn unknown(known: &Known<'_>, has_limit: bool) -> Option<Unknown> {
    let (run, observed) = run(known)?;
    let (by, shares) = (&run.limited_by, observed.packets.unwrap_or_default());
    if has_limit || by.congestion_window <= by.receive_window.max(by.application) {
        return None;
    }
    let (what, test) = match observed.from {
        Vantage::Receiver if observed.out_of_order_packets > 0 => (
            format!(
                "why the sender sent no more; {} packets came out of order here: they were reordered, or some before them were lost",
                observed.out_of_order_packets
            ),
            "longhaul diagnose --watch PID at the sender; longhaul diagnose HOST -R, with longhaul serve there",
        ),
        Vantage::Receiver => (
            "why the sender sent no more: this host's window had room, and its program read what came".into(),
            "longhaul diagnose --watch PID at the sender; longhaul diagnose HOST -R, with longhaul serve there",
        ),
        // A sender that is free sends more and more until a queue grows or packets are lost.
        Vantage::Packets if shares.path_rate > shares.sender_window.max(shares.unclear) => (
            format!(
                "what holds the sender to {}: packets came evenly, and no queue grew; its program writes at that rate, or something paces it",
                about(run.steady_bps)
            ),
            "longhaul diagnose --watch PID at the sender, or ss -tni there: app_limited, pacing_rate",
        ),
        Vantage::Packets => (
            "which of the sender's limits it was, congestion window, send buffer or program: packets do not show them"
                .into(),
            "longhaul diagnose --watch PID at the sender, or ss -tni there",
        ),
        Vantage::Sender => return None,
    };
    Some(Unknown { what, test: test.into() })
}

/// Whether a bound is the connection's own, which it ran into.
pub(super) fn ran_into(known: &Known<'_>, bound: &Bound) -> bool {
    known.target.is_none() && run(known).is_some() && bound.bound_bps.basis == Basis::Measured
}
