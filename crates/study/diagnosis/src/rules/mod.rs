//! From evidence to bounds, and from bounds to causes.
//!
//! Each rule looks at one part of the evidence and gives the bounds that it finds. No rule knows another; what explains away what is
//! decided by what is known of the path ([`Known`]) before the rules run.

mod capacity;
mod disk;
mod findings;
mod flow;
mod hosts;
pub(crate) mod loss;
mod marks;
pub(crate) mod masked;
mod observed;
mod path;
mod several;
mod softirq;
#[cfg(test)]
mod tests;
mod transfer;

pub(crate) use crate::diagnosis::WORTH_NAMING;
use crate::diagnosis::{Bound, Cause, Code, Diagnosis, Interval, TargetBasis, Unknown, about};
use crate::evidence::{Evidence, Purpose, Run, Target, TcpFacts, UdpFacts};
pub(crate) use capacity::{Capacity, Kind};

/// A flow that carries this share of what the path carries is limited by the path: CUBIC's mean window between two losses is 0.85 of its
/// greatest one (RFC 9438 §4.6: the window falls to 0.7, and its mean lies between).
pub(crate) const FILLS: f64 = 0.85;
/// A network keeps the order: a share of late packets beyond this makes TCP wait or send twice (RFC 4737, appendix).
const LATE: f64 = 1e-3;
/// Headers of a TCP segment on the wire beyond its payload: Ethernet 14, FCS 4, preamble and gap 20, IPv4 20, TCP 20 with time stamps 12.
const TCP_OVERHEAD: u64 = 90;
/// The same for a UDP packet: 14, 4, 20, 20 and 8.
pub(crate) const UDP_OVERHEAD: u64 = 66;
/// An IPv6 header is so much longer than one of IPv4 (RFC 8200 §3, RFC 791 §3.1).
pub(crate) const IPV6_MORE: u64 = 20;
/// Headers within a packet: IPv4 20, TCP 20 with time stamps 12.
const TCP_IP_HEADERS: u64 = 52;
/// The payload of a TCP segment in a packet of 1500 bytes with time stamps.
const USUAL_MSS: u64 = 1448;

/// What the rules share: the evidence in order.
pub(crate) struct Known<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) target: Option<Target>,
    /// The payload that TCP carries at the target.
    pub(crate) target_payload_bps: Option<u64>,
    pub(crate) base_rtt_ns: Option<u64>,
    pub(crate) capacity: Option<Capacity>,
}

impl<'a> Known<'a> {
    pub(crate) fn of(evidence: &'a Evidence) -> Self {
        let mut known = Self { evidence, target: None, target_payload_bps: None, base_rtt_ns: None, capacity: None };
        known.base_rtt_ns = known.tcp_runs().filter_map(|run| run.min_rtt_ns).filter(|rtt| *rtt > 0).min();
        known.capacity = capacity::capacity(&known);
        let links = [&evidence.sender, &evidence.receiver].into_iter().filter_map(|host| host.link.as_ref()?.speed_bps);
        let (named, link) = (evidence.named_target_bps, links.min());
        let udp = known.capacity.as_ref().map(|it| scaled(it.udp_bps, evidence.udp_overhead(), it.payload_bytes));
        let of = |rate: Option<u64>, basis| rate.map(|rate_bps| Target { rate_bps, basis });
        known.target = of(named, TargetBasis::Named).or(of(link, TargetBasis::Link)).or(of(udp, TargetBasis::Udp));
        let mss = known.mss_bytes().max(known.full_mss_bytes().unwrap_or(0));
        known.target_payload_bps =
            known.target.map(|target| share(target.rate_bps, mss, mss + evidence.tcp_overhead()));
        known
    }

    pub(crate) fn tcp_runs(&self) -> impl Iterator<Item = &'a TcpFacts> + use<'a> {
        self.evidence.runs.iter().filter_map(|run| if let Run::Tcp(facts) = run { Some(facts) } else { None })
    }

    pub(crate) fn udp_runs(&self) -> impl Iterator<Item = &'a UdpFacts> + use<'a> {
        self.evidence.runs.iter().filter_map(|run| if let Run::Udp(facts) = run { Some(facts) } else { None })
    }

    /// The last TCP run of a kind: one that was repeated counts.
    pub(crate) fn tcp(&self, purpose: Purpose) -> Option<&'a TcpFacts> {
        self.tcp_runs().filter(|run| run.purpose == purpose).last()
    }

    /// The flow that is diagnosed: as an application gets it in a test, or of an application itself.
    pub(crate) fn flow(&self) -> Option<&'a TcpFacts> {
        self.tcp(Purpose::Default).or_else(|| self.tcp(Purpose::Observed))
    }

    /// Payload of a segment: that of the test, or the usual one.
    pub(crate) fn mss_bytes(&self) -> u64 {
        let mss = self.tcp_runs().map(|run| run.mss_bytes).max().unwrap_or(0);
        // No segment is longer (RFC 791 section 3.1), whatever a result says.
        if mss > 0 { mss.min(u16::MAX.into()) } else { USUAL_MSS }
    }

    /// Payload of a segment that fills a packet of the links, with time stamps; `None` where their MTU is not known.
    pub(crate) fn full_mss_bytes(&self) -> Option<u64> {
        let links = [&self.evidence.sender, &self.evidence.receiver];
        let mtu = links.into_iter().filter_map(|host| host.link.as_ref()?.mtu_bytes).min()?;
        mtu.min(u32::MAX.into()).checked_sub(TCP_IP_HEADERS + if self.evidence.ipv6 { IPV6_MORE } else { 0 })
    }

    /// What TCP carries where UDP carries `udp_bps` of payload in packets of `payload_bytes`.
    pub(crate) fn tcp_of_udp(&self, udp_bps: u64, payload_bytes: u64) -> u64 {
        let mss = self.mss_bytes();
        let (udp, tcp) = (self.evidence.udp_overhead(), self.evidence.tcp_overhead());
        share(scaled(udp_bps, udp, payload_bytes), mss, mss + tcp)
    }

    /// What a flow could carry at most: the target, or the path's capacity if that is less.
    pub(crate) fn reachable_bps(&self) -> Option<u64> {
        let capacity = self.capacity.as_ref().filter(|capacity| capacity.limited).map(|capacity| capacity.tcp_bps);
        self.target_payload_bps.into_iter().chain(capacity).min()
    }

    /// Whether a rate is so far below the target that fixing it is worth naming.
    pub(crate) fn is_below_target(&self, bps: u64) -> bool {
        self.target_payload_bps.is_some_and(|target| bps as f64 * WORTH_NAMING <= target as f64)
    }
}

impl Evidence {
    /// Bytes of a TCP segment on the wire beyond its payload.
    pub(crate) fn tcp_overhead(&self) -> u64 {
        TCP_OVERHEAD + if self.ipv6 { IPV6_MORE } else { 0 }
    }

    /// Bytes of a UDP packet on the wire beyond its payload.
    pub(crate) fn udp_overhead(&self) -> u64 {
        UDP_OVERHEAD + if self.ipv6 { IPV6_MORE } else { 0 }
    }
}

/// Two runs of the same limit differ by less than this share.
const SPREAD: f64 = 0.05;

/// The rate of a run whose limit held all the time.
fn measured(run: &TcpFacts) -> Interval {
    let bps = run.steady_bps as f64;
    Interval::measured((bps * (1.0 - SPREAD)) as u64, (bps * (1.0 + SPREAD)) as u64)
}

/// `value × part / whole`.
pub(crate) fn share(value: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

/// Bits on the wire of payload in packets of `payload_bytes`, each with `overhead`.
pub(crate) fn scaled(bps: u64, overhead: u64, payload_bytes: u64) -> u64 {
    let payload = payload_bytes.max(1);
    share(bps, payload.saturating_add(overhead), payload)
}

/// Whether the path loses large packets.
pub(crate) fn has_hole(known: &Known<'_>) -> bool {
    path::hole(known).is_some()
}

/// What limits the flow of `evidence`, and what each limit costs.
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let known = Known::of(evidence);
    let goodput = known.flow().map(|run| run.steady_bps);
    let failed = |purpose| {
        evidence.runs.iter().any(|run| matches!(run, Run::Failed { purpose: failed, .. } if *failed == purpose))
    };
    let goodput = goodput.or_else(|| failed(Purpose::Default).then_some(0));
    let mut bounds = Vec::new();
    bounds.extend(path::black_hole(&known));
    bounds.extend(path::small_segments(&known));
    bounds.extend(capacity::bounds(&known));
    bounds.extend(flow::bounds(&known));
    bounds.extend(transfer::bounds(&known));
    bounds.extend(disk::bounds(&known));
    if let Some(cpu) = softirq::receiver(&known) {
        bounds.retain(|bound| !softirq::explains(&cpu, bound));
        bounds.push(cpu);
    }
    let mut unknown = unknowns(&known);
    let reached = known.target.is_some() && goodput.is_some_and(|goodput| !known.is_below_target(goodput));
    // These concern other flows than the one that was tested.
    let of_others = |bound: &Bound| matches!(bound.code, Code::SlowStart | Code::EcmpMember | Code::Disk);
    let (mut causes, mut others): (Vec<Bound>, Vec<Bound>) = bounds.into_iter().partition(|bound| {
        let below = known.is_below_target(bound.bound_bps.middle()) || observed::ran_into(&known, bound);
        below && bound.bound_bps.most.is_some() && (!reached || of_others(bound))
    });
    causes.sort_by_key(|bound| bound.bound_bps.middle());
    others.sort_by_key(|bound| bound.bound_bps.middle());
    once(&mut causes);
    let untold = observed::unknown(&known, !causes.is_empty() || reached);
    let told = untold.is_none();
    unknown.extend(untold);
    if told && causes.is_empty() && goodput.is_some_and(|goodput| known.is_below_target(goodput)) {
        unknown.push(Unknown {
            what: "why the goodput is below the target: no rule explains it".into(),
            test: "run again with more --time; longhaul tcp -o DIR and longhaul capture show each round trip".into(),
        });
    }
    let mut causes = priced(&known, causes, &others);
    several::explain(&known, &mut causes);
    hosts::explain(&known, &mut causes);
    Diagnosis {
        target_bps: known.target.map(|target| target.rate_bps),
        target_basis: known.target.map(|target| target.basis),
        target_payload_bps: known.target_payload_bps,
        goodput_bps: goodput,
        base_rtt_ns: known.base_rtt_ns,
        findings: findings::findings(&known, &causes),
        causes,
        bounds: others,
        unknown,
    }
}

/// Each code and host once: the lowest.
fn once(bounds: &mut Vec<Bound>) {
    let mut seen = Vec::new();
    bounds.retain(|bound| {
        let key = (bound.code, bound.host);
        let new = !seen.contains(&key);
        seen.push(key);
        new
    });
}

/// What each cause costs: the way to the next bound, at most to the target. Without a target nobody knows what the path has.
fn priced(known: &Known<'_>, causes: Vec<Bound>, others: &[Bound]) -> Vec<Cause> {
    if known.target.is_none() {
        let worth_bps = Interval::at_least(0);
        return causes.into_iter().map(|bound| Cause { bound, worth_bps, worth_is_upper_end: false }).collect();
    }
    let target = known.target_payload_bps.unwrap_or(u64::MAX);
    let above = others.iter().filter_map(|bound| Some((bound.bound_bps.least, bound.bound_bps.most?)));
    let above = above.min_by_key(|(least, most)| least / 2 + most / 2).unwrap_or((target, target));
    let mut next = (above.0.min(target), above.1.min(target));
    // A flow that has met few losses of the next cause goes on to fall.
    let mut next_is_upper_end = false;
    let mut priced = Vec::with_capacity(causes.len());
    for bound in causes.into_iter().rev() {
        let most = bound.bound_bps.most.unwrap_or(bound.bound_bps.least);
        let worth_bps = Interval {
            least: next.0.saturating_sub(most),
            most: Some(next.1.saturating_sub(bound.bound_bps.least)),
            basis: bound.bound_bps.basis,
        };
        next = (bound.bound_bps.least, most);
        let is_upper_end = loss::has_too_few_events(known, &bound);
        priced.push(Cause { bound, worth_bps, worth_is_upper_end: is_upper_end || next_is_upper_end });
        next_is_upper_end = is_upper_end;
    }
    priced.reverse();
    priced
}

fn unknowns(known: &Known<'_>) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    let mut push = |what: &str, test: &str| unknown.push(Unknown { what: what.into(), test: test.into() });
    match known.target.map(|target| target.basis) {
        None => push("the rate that the path should carry", "name it with --rate"),
        Some(TargetBasis::Udp) => {
            push("the rate of the path's links: the target is what UDP carried", "name it with --rate");
        }
        Some(_) => {}
    }
    if known.udp_runs().any(hosts::is_void) {
        push(
            "what the path carries: the quota of a control group kept UDP's tests from their CPU",
            "run again without the quota",
        );
    }
    if let Some(share) = known.evidence.runs.iter().filter_map(Run::stolen).reduce(f64::max) {
        push(
            &format!(
                "what the hosts carry: a hypervisor gave {:.0} % of the CPU time of one to others during a test",
                share * 100.0
            ),
            "run again when the machine has its CPUs; vmstat 1: st",
        );
    }
    for run in &known.evidence.runs {
        if let Run::Failed { purpose, why } = run {
            push(&format!("the result of the test `{}`: {why}", purpose.name()), "run it again");
        }
    }
    unknown
}
