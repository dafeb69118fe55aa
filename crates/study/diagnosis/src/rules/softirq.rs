//! A CPU that has no more time for packets: in softirq the kernel receives them, passes them through its firewall and to TCP, one CPU for each
//! receive queue. Such a CPU drops what it has no time for at the ring or at the backlog, so longer ones do not help.
//!
//! Source: `Documentation/networking/scaling.rst`; the time of each CPU in `/proc/stat` (proc_stat(5)).

use longhaul_result::Location;

use super::flow::{BUSY, MOST_OF_THE_TIME};
use super::{Known, SPREAD, measured};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::events::{HostEvents, SoftirqCpu};

/// The receiver's CPU that has no time for packets: it is saturated in the flow, or in UDP, and packets
/// were lost where they wait for it.
pub(super) fn receiver(known: &Known<'_>) -> Option<Bound> {
    let flow = known.flow()?;
    let of_flow = places(flow.loss_bytes.iter()).zip(saturated(flow.receiver_events));
    let of_flow = of_flow.map(|(place, cpu)| (place, cpu, measured(flow)));
    // TCP may not have come so far. What reached the host is what the CPU had time for.
    let of_udp = known.udp_runs().filter_map(|run| {
        let (place, cpu) = places(run.loss_packets.iter()).zip(saturated(run.receiver_events))?;
        let bps = known.tcp_of_udp(run.arrived_bps(), run.payload_bytes).max(flow.steady_bps) as f64;
        Some((place, cpu, Interval::measured((bps * (1.0 - SPREAD)) as u64, (bps * (1.0 + SPREAD)) as u64)))
    });
    let (place, cpu, bound_bps) = of_flow.or_else(|| of_udp.min_by_key(|(.., bound)| bound.middle()))?;
    let share = |ns: u64| ns as f64 * 100.0 / cpu.watched_ns.max(1) as f64;
    let text = format!(
        "CPU {} of the receiver was busy for {:.0} % of the time, {:.0} % in softirq, where the kernel receives packets, and packets were lost at {place}",
        cpu.cpu,
        share(cpu.busy_ns),
        share(cpu.softirq_ns)
    );
    let command = "mpstat -P ALL 1: %soft; column 2 of /proc/net/softnet_stat; perf top -C CPU";
    let remedy = |text: &str, command: &str| Remedy::new(Some(Role::Receiver), text, command);
    Some(Bound {
        code: Code::Cpu,
        place: Some(place),
        host: Some(Role::Receiver),
        bound_bps,
        evidence: vec![Line::new(text, command)],
        remedies: vec![
            remedy(
                "find what each packet costs: a long list of firewall rules, tunnels, captures",
                "perf top -C CPU; nft list ruleset",
            ),
            remedy(
                "let the kernel handle packets together, and larger ones",
                "ethtool -K IF gro on; ip link set IF mtu 9000",
            ),
            remedy("spread flows over more CPUs; one flow stays on one CPU", "ethtool -L IF combined N; longhaul host"),
        ],
    })
}

/// What `cpu` explains: losses at its ring and backlog.
pub(super) fn explains(cpu: &Bound, bound: &Bound) -> bool {
    matches!(bound.code, Code::Queue | Code::Loss) && bound.host == cpu.host && bound.place.is_some_and(waits_for_a_cpu)
}

fn waits_for_a_cpu(place: Location) -> bool {
    matches!(place, Location::ReceiverRing | Location::ReceiverBacklog)
}

fn places<'a>(lost: impl Iterator<Item = (&'a Location, &'a u64)>) -> Option<Location> {
    let there = lost.filter(|(place, lost)| waits_for_a_cpu(**place) && **lost > 0);
    there.max_by_key(|(_, lost)| **lost).map(|(place, _)| *place)
}

/// The CPU if it had as little time left as a thread that is a limit, and was in softirq for most of it.
fn saturated(events: HostEvents) -> Option<SoftirqCpu> {
    let share = |ns: u64, cpu: &SoftirqCpu| ns as f64 / cpu.watched_ns.max(1) as f64;
    let full = |cpu: &SoftirqCpu| share(cpu.busy_ns, cpu) >= BUSY && share(cpu.softirq_ns, cpu) >= MOST_OF_THE_TIME;
    events.softirq_cpu.filter(full)
}
