//! What the path carries, from UDP in steps: links, shapers, policers, and others' traffic.
//!
//! A shaper has a queue and a policer has none: above the rate, delay grows with one and not with the other. Both pass the same at
//! every rate above theirs; a queue that is shared with traffic that does not yield passes more to whom sends more.

use longhaul_result::Location;
use longhaul_units::{BitRate, Nanos};

use super::Known;
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, UdpFacts};

/// A step is above the path's rate if so little of it arrives, random loss apart: two runs differ by less.
const OVERLOADED: f64 = 0.9;
/// A queue in overload holds more than this many packets; the variation of a path without one is that of single packets.
const QUEUE_PACKETS: u64 = 10;
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
}

fn steps<'a>(known: &Known<'a>) -> Vec<&'a UdpFacts> {
    let mut steps: Vec<_> =
        known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.sent_packets > 0).collect();
    steps.sort_by_key(|step| step.sent_bps);
    steps
}

fn is_overloaded(step: &UdpFacts, base_loss: f64) -> bool {
    (step.received_bps as f64) < OVERLOADED * (1.0 - base_loss) * step.sent_bps as f64
}

pub(crate) fn capacity(known: &Known<'_>) -> Option<Capacity> {
    let steps = steps(known);
    let lowest = steps.first()?;
    let alone = steps.len() == 1;
    let base_loss = if alone { 0.0 } else { lowest.loss_share() };
    let over: Vec<_> = steps.iter().filter(|step| is_overloaded(step, base_loss)).collect();
    let best = if over.is_empty() {
        steps.iter().max_by_key(|step| step.received_bps)?
    } else {
        over.iter().max_by_key(|step| step.received_bps)?
    };
    let under = steps.iter().find(|step| !is_overloaded(step, base_loss));
    let packet_ns = best.payload_bytes.saturating_mul(8_000_000_000) / best.received_bps.max(1);
    let quiet = under.and_then(|step| step.delay_p50_ns).unwrap_or(0);
    let waits_ns = best.delay_p50_ns.map(|delay| delay.saturating_sub(quiet));
    let queued = waits_ns.is_none_or(|waits| waits > QUEUE_PACKETS.saturating_mul(packet_ns));
    let grows = match (over.first(), over.last()) {
        (Some(first), Some(last)) => {
            first.sent_bps < last.sent_bps && last.received_bps as f64 > SAME * first.received_bps as f64
        }
        _ => false,
    };
    let kind = match (over.is_empty(), queued, grows) {
        (true, ..) => Kind::NotMet,
        (false, true, true) => Kind::Competing,
        (false, true, false) => Kind::Shaper,
        (false, false, _) => Kind::Policer,
    };
    // What is lost at any rate is not the shaper's.
    let udp_bps = (best.received_bps as f64 / (1.0 - base_loss.min(0.9))) as u64;
    let tcp_bps = known.tcp_of_udp(udp_bps, best.payload_bytes);
    Some(Capacity {
        kind,
        udp_bps,
        tcp_bps,
        limited: !over.is_empty(),
        payload_bytes: best.payload_bytes,
        base_loss,
        waits_ns: waits_ns.filter(|_| !over.is_empty()),
    })
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
        let payload = super::share(speed, mss, mss + super::TCP_OVERHEAD);
        let text = format!("{}'s link {} runs at {}", role.name(), link.name, BitRate(speed));
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
        let (text, least) = (
            format!("UDP at {} passed", BitRate(steps.last()?.sent_bps)),
            known.tcp_of_udp(steps.last()?.received_bps, capacity.payload_bytes),
        );
        return Some(Bound {
            code: Code::Shaper,
            place: Some(Location::Network),
            host: None,
            bound_bps: Interval::at_least(least),
            evidence: vec![Line::new(text, "")],
            remedies: Vec::new(),
        });
    }
    let over: Vec<_> = steps.iter().filter(|step| is_overloaded(step, capacity.base_loss)).copied().collect();
    let (first, last) = (*over.first()?, *over.last()?);
    let place = last.main_place().unwrap_or(Location::Network);
    let host = place_host(place);
    let mut evidence = vec![Line::new(
        format!(
            "of UDP at {} arrived {}; {} packets were lost at {place}",
            BitRate(last.sent_bps),
            BitRate(last.received_bps),
            last.lost_packets
        ),
        format!("longhaul udp HOST -b {} -t 5s", BitRate(last.sent_bps)),
    )];
    if let Some(waits) = capacity.waits_ns {
        let at = if capacity.kind == Kind::Policer { "no queue is there" } else { "a queue is there" };
        evidence.push(Line::new(format!("packets waited {} longer than at low rate: {at}", Nanos(waits)), ""));
    }
    if over.len() > 1 {
        evidence.push(Line::new(
            format!(
                "of {} arrived {}, of {} arrived {}",
                BitRate(first.sent_bps),
                BitRate(first.received_bps),
                BitRate(last.sent_bps),
                BitRate(last.received_bps)
            ),
            "",
        ));
    }
    let rate = BitRate(capacity.tcp_bps);
    let (code, remedies) = match capacity.kind {
        Kind::Competing => {
            let text = "find who sends: the queue gives more to whom sends more";
            let command = "longhaul capture on the way, or the router's counters";
            (Code::CompetingTraffic, vec![Remedy::new(host, text, command)])
        }
        Kind::Policer => {
            let text =
                format!("pace below the policer's rate: a burst beyond it is lost, or ask who polices to {rate}");
            let command = format!("longhaul pace {} -- COMMAND", slower(capacity.udp_bps));
            (Code::Policer, vec![Remedy::new(host, text, command)])
        }
        Kind::Shaper | Kind::NotMet => {
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
    /// Share of the packets that were lost.
    pub(crate) fn loss_share(&self) -> f64 {
        self.lost_packets as f64 / self.sent_packets.max(1) as f64
    }

    /// Where most were lost.
    pub(crate) fn main_place(&self) -> Option<Location> {
        self.loss_packets.iter().max_by_key(|(_, packets)| **packets).map(|(place, _)| *place)
    }
}
