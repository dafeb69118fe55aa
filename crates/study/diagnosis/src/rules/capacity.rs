//! What the path carries, from UDP in steps: links, shapers, policers, and others' traffic.
//!
//! A shaper has a queue and a policer has none: above the rate, delay grows with one and not with the other. Both pass the same at
//! every rate above theirs; a queue that is shared with traffic that does not yield passes more to whom sends more.

use longhaul_result::Location;
use longhaul_units::{BitRate, Nanos};

use super::hosts::is_void;
use super::{Known, LATE, about};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, UdpFacts};

/// A step is above the path's rate if so little of it arrives, random loss apart: two runs differ by less.
const OVERLOADED: f64 = 0.9;
/// A queue in overload holds more than this many packets; the variation of a path without one is that of single packets.
const QUEUE_PACKETS: u64 = 10;
/// Nor is a shorter wait a queue of others at any rate: interrupt moderation and a busy host delay half of the packets of a quiet path by up
/// to 0.2 ms (measured, `tests/pure/evidence`), and a queue of others by 20 ms.
const OTHERS_WAIT_NS: u64 = 1_000_000;
/// Two steps above the rate of a shaper differ by less than this.
const SAME: f64 = 1.05;
/// How well the received rate of a test is known: that of repeated tests over the same path.
const SPREAD: f64 = 0.03;

/// What makes the path's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No test met it.
    NotMet,
    /// A queue with a rate.
    Shaper,
    /// No queue.
    Policer,
    /// A queue that others fill, too.
    Competing,
    /// A queue at the sender, whose socket waits for it: nothing is lost.
    Sender,
}

/// What the path carried.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    /// What makes its rate.
    pub(crate) kind: Kind,
    /// Payload of UDP, bits per second.
    pub(crate) udp_bps: u64,
    /// The same as payload of TCP.
    pub(crate) tcp_bps: u64,
    /// Whether a test met the limit; otherwise the path carries at least this.
    pub(crate) limited: bool,
    /// Payload of a packet of these tests.
    pub(crate) payload_bytes: u64,
    /// Share of packets that are lost at low rate.
    pub(crate) base_loss: f64,
    /// How much longer packets waited above the rate than below it.
    pub(crate) waits_ns: Option<u64>,
    /// How long packets waited at low rate, where others fill a queue.
    pub(crate) others_wait_ns: Option<u64>,
}

fn steps<'a>(known: &Known<'a>) -> Vec<&'a UdpFacts> {
    let mut steps: Vec<_> =
        known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.sent_packets > 0 && !is_void(run)).collect();
    steps.sort_by_key(|step| step.sent_bps);
    steps
}

/// Whether so little of a step arrived that it was above the path's rate.
pub(super) fn is_overloaded(step: &UdpFacts, base_loss: f64) -> bool {
    (step.arrived_bps() as f64) < OVERLOADED * (1.0 - base_loss) * step.sent_bps as f64
}

pub(crate) fn capacity(known: &Known<'_>) -> Option<Capacity> {
    let steps = steps(known);
    let lowest = steps.first()?;
    let alone = steps.len() == 1;
    let base_loss = if alone { 0.0 } else { lowest.loss_share() };
    let over: Vec<_> = steps.iter().filter(|step| is_overloaded(step, base_loss)).collect();
    let best = if over.is_empty() {
        steps.iter().max_by_key(|step| step.arrived_bps())?
    } else {
        over.iter().max_by_key(|step| step.arrived_bps())?
    };
    let under = steps.iter().find(|step| !is_overloaded(step, base_loss));
    let packet_ns = best.payload_bytes.saturating_mul(8_000_000_000) / best.arrived_bps().max(1);
    let quiet = under.and_then(|step| step.delay_p50_ns).unwrap_or(0);
    // At a low rate no packet of ours waits: if the queue is full half of the time, other traffic fills it. A queue keeps the order; where
    // packets are reordered, their delays differ for another reason.
    let least_ns = QUEUE_PACKETS.saturating_mul(packet_ns).max(OTHERS_WAIT_NS);
    let in_order = under.filter(|step| step.reordered_packets as f64 <= LATE * step.sent_packets as f64);
    let others_wait_ns = in_order.and_then(|step| step.delay_p50_ns).filter(|waits| *waits > least_ns);
    let waits_ns = best.delay_p50_ns.map(|delay| delay.saturating_sub(quiet));
    let queued = waits_ns.is_none_or(|waits| waits > QUEUE_PACKETS.saturating_mul(packet_ns));
    let grows = match (over.first(), over.last()) {
        (Some(first), Some(last)) => {
            first.sent_bps < last.sent_bps && last.arrived_bps() as f64 > SAME * first.arrived_bps() as f64
        }
        _ => false,
    };
    let held = held_back(known, &steps);
    let kind = match (over.is_empty(), queued, grows) {
        (true, ..) if held => Kind::Sender,
        (true, ..) => Kind::NotMet,
        (false, ..) if others_wait_ns.is_some() => Kind::Competing,
        (false, true, true) => Kind::Competing,
        (false, true, false) => Kind::Shaper,
        (false, false, _) => Kind::Policer,
    };
    // What is lost at any rate is not the shaper's.
    let udp_bps = (best.arrived_bps() as f64 / (1.0 - base_loss.min(0.9))) as u64;
    let tcp_bps = known.tcp_of_udp(udp_bps, best.payload_bytes);
    Some(Capacity {
        kind,
        udp_bps,
        tcp_bps,
        limited: !over.is_empty() || held,
        payload_bytes: best.payload_bytes,
        base_loss,
        waits_ns: waits_ns.filter(|_| !over.is_empty()),
        others_wait_ns,
    })
}

/// Whether the sender's own queue held back UDP: its socket took much less than was asked, nothing was lost, and TCP came no further. A
/// sender without CPU time does not stop both at the same rate.
fn held_back(known: &Known<'_>, steps: &[&UdpFacts]) -> bool {
    let Some(last) = steps.iter().max_by_key(|step| step.asked_bps) else { return false };
    let short = last.asked_bps.is_some_and(|asked| last.sent_bps < asked / 2) && last.lost_on_the_way() == 0;
    let sent = known.tcp_of_udp(last.sent_bps, last.payload_bytes) as f64;
    let alike = |run: &crate::evidence::TcpFacts| (0.8 * sent..1.1 * sent).contains(&(run.steady_bps as f64));
    short && known.tcp(Purpose::Default).is_some_and(alike)
}

pub(super) fn bounds(known: &Known<'_>) -> Vec<Bound> {
    let mut bounds = Vec::new();
    bounds.extend(links(known));
    bounds.extend(path(known));
    bounds
}

fn links(known: &Known<'_>) -> impl Iterator<Item = Bound> {
    let hosts = [(Role::Sender, &known.evidence.sender), (Role::Receiver, &known.evidence.receiver)];
    hosts.into_iter().filter_map(|(role, host)| {
        let link = host.link.as_ref()?;
        let speed = link.speed_bps?;
        let mss = known.mss_bytes();
        let payload = super::share(speed, mss, mss + known.evidence.tcp_overhead());
        let text = format!("{}'s link {} runs at {}", role.name(), link.name, about(speed));
        Some(Bound {
            code: Code::Link,
            place: None,
            host: Some(role),
            bound_bps: Interval::derived(payload, payload),
            evidence: vec![Line::new(text, format!("ethtool {}", link.name))],
            remedies: vec![Remedy::new(Some(role), "a faster link, or several flows over several links", "")],
        })
    })
}

fn path(known: &Known<'_>) -> Option<Bound> {
    let capacity = known.capacity.as_ref()?;
    let steps = steps(known);
    if !capacity.limited {
        // Loss at every rate is told by what TCP makes of it.
        let text = format!("UDP at {} passed", about(steps.last()?.sent_bps));
        let udp = known.tcp_of_udp(steps.last()?.arrived_bps(), capacity.payload_bytes);
        // TCP may have carried more than UDP was asked to.
        let least = known.tcp_runs().map(|run| run.steady_bps).fold(udp, u64::max);
        return Some(Bound {
            code: Code::Shaper,
            place: Some(Location::Network),
            host: None,
            bound_bps: Interval::at_least(least),
            evidence: vec![Line::new(text, "")],
            remedies: Vec::new(),
        });
    }
    if capacity.kind == Kind::Sender {
        return Some(held(capacity, steps.iter().max_by_key(|step| step.asked_bps)?));
    }
    let over: Vec<_> = steps.iter().filter(|step| is_overloaded(step, capacity.base_loss)).copied().collect();
    let (first, last) = (*over.first()?, *over.last()?);
    let place = last.main_place().unwrap_or(Location::Network);
    let host = place_host(place);
    let mut evidence = vec![Line::new(
        format!(
            "UDP sent at {} arrived at {}; {} packets were lost at {place}",
            about(last.sent_bps),
            about(last.arrived_bps()),
            last.lost_on_the_way()
        ),
        format!("longhaul udp HOST -b {} -t 5s", about(last.sent_bps)),
    )];
    if let Some(waits) = capacity.waits_ns {
        let at = if capacity.kind == Kind::Policer { "there is no queue" } else { "there is a queue" };
        evidence
            .push(Line::new(format!("packets waited {} longer than at low rate: {at}", Nanos(waits).rounded()), ""));
    }
    if over.len() > 1 {
        evidence.push(Line::new(
            format!(
                "{} arrived at {}; {} arrived at {}",
                about(first.sent_bps),
                about(first.arrived_bps()),
                about(last.sent_bps),
                about(last.arrived_bps())
            ),
            "",
        ));
    }
    let rate = about(capacity.tcp_bps);
    let (code, remedies) = match capacity.kind {
        _ if matches!(place, Location::ReceiverRing | Location::ReceiverBacklog) => {
            let text = "let the receiver take packets sooner, or hold more of them";
            let command = "ethtool -g IF; ethtool -G IF rx N; sysctl -w net.core.netdev_max_backlog=N";
            (Code::Queue, vec![Remedy::new(host, text, command)])
        }
        Kind::Competing => {
            let text = "find who sends, by a capture on the path or by the router's counters: the queue gives more to whom sends more";
            let command = "longhaul capture IF -o DIR";
            (Code::CompetingTraffic, vec![Remedy::new(host, text, command)])
        }
        Kind::Policer => {
            let text =
                format!("pace below the policer's rate: a burst beyond it is lost, or ask who polices to {rate}");
            let command = format!("longhaul pace {} -- COMMAND", slower(capacity.udp_bps));
            (Code::Policer, vec![Remedy::new(Some(Role::Sender), text, command)])
        }
        Kind::Shaper | Kind::NotMet | Kind::Sender => {
            let text = format!("ask who shapes to {rate}, or send no faster");
            (Code::Shaper, vec![Remedy::new(host, text, qdisc(place))])
        }
    };
    // What TCP makes of a policer is measured by TCP itself, and lies below.
    let carried = known.tcp(Purpose::Default).map_or(capacity.tcp_bps, |run| run.steady_bps.min(capacity.tcp_bps));
    let most = (capacity.tcp_bps as f64 * (1.0 + SPREAD)) as u64;
    let least = if code == Code::Shaper { (capacity.tcp_bps as f64 * (1.0 - SPREAD)) as u64 } else { carried };
    let most = if code == Code::Shaper || carried == capacity.tcp_bps { most } else { carried };
    Some(Bound { code, place: Some(place), host, bound_bps: Interval::measured(least, most), evidence, remedies })
}

fn held(capacity: &Capacity, step: &UdpFacts) -> Bound {
    let asked = about(step.asked_bps.unwrap_or(0));
    let text = format!(
        "the sender's socket accepted {} of the {asked} offered by UDP, and nothing was lost: a queue there limits the rate",
        about(step.sent_bps)
    );
    let bps = capacity.tcp_bps as f64;
    Bound {
        code: Code::Shaper,
        place: Some(Location::SenderQdisc),
        host: Some(Role::Sender),
        bound_bps: Interval::measured((bps * (1.0 - SPREAD)) as u64, (bps * (1.0 + SPREAD)) as u64),
        evidence: vec![Line::new(text, "tc -s qdisc")],
        remedies: vec![Remedy::new(
            Some(Role::Sender),
            "raise the rate of the sender's queueing discipline",
            "tc qdisc replace dev IF root fq",
        )],
    }
}

/// A twentieth below: what a policer's bucket needs to fill again.
fn slower(bps: u64) -> BitRate {
    BitRate(bps / 20 * 19 / 1_000_000 * 1_000_000)
}

fn qdisc(place: Location) -> &'static str {
    if place == Location::SenderQdisc { "tc -s qdisc" } else { "" }
}

/// The host of a place; `None` for the network.
pub(crate) fn place_host(place: Location) -> Option<Role> {
    match place {
        Location::SenderSocket | Location::SenderStack | Location::SenderQdisc | Location::SenderDevice => {
            Some(Role::Sender)
        }
        Location::Network | Location::Unexplained => None,
        _ => Some(Role::Receiver),
    }
}

impl UdpFacts {
    /// Packets lost on the way: what the test's own socket did not take says nothing of TCP.
    pub(crate) fn lost_on_the_way(&self) -> u64 {
        let own = [Location::ReceiverSocketBuffer, Location::ReceiverApplication];
        let own =
            own.iter().filter_map(|place| self.loss_packets.get(place)).fold(0, |sum: u64, n| sum.saturating_add(*n));
        self.lost_packets.saturating_sub(own)
    }

    /// Share of the packets that were lost on the way.
    pub(crate) fn loss_share(&self) -> f64 {
        self.lost_on_the_way() as f64 / self.sent_packets.max(1) as f64
    }

    /// What reached the receiving host, payload bits per second.
    pub(crate) fn arrived_bps(&self) -> u64 {
        let arrived = self.sent_packets.saturating_sub(self.lost_on_the_way());
        super::share(self.received_bps, arrived, self.sent_packets.saturating_sub(self.lost_packets))
    }

    /// Where most were lost on the way.
    pub(crate) fn main_place(&self) -> Option<Location> {
        let own = [Location::ReceiverSocketBuffer, Location::ReceiverApplication];
        let places = self.loss_packets.iter().filter(|(place, packets)| **packets > 0 && !own.contains(place));
        places.max_by_key(|(_, packets)| **packets).map(|(place, _)| *place)
    }
}
