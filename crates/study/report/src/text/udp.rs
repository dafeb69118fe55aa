//! A UDP result as text, in lines of at most 80 characters.

use std::fmt::Write;

use longhaul_result::{Location, LocationMethod};
use longhaul_terms::{Directions, SocketBuffer};
use longhaul_udp::account::{Capacity, NoCapacity};
use longhaul_udp::{UdpLossReason, UdpParameters, UdpResult};
use longhaul_units::{BitRate, Bytes};

use super::{each_direction, rate, short};

/// Characters of the longest bar: the rest of a line of 80.
const BAR: usize = 30;
/// Reasons printed for a location; JSON has all.
const REASONS: usize = 3;

/// The result of each direction.
pub fn report(parameters: &UdpParameters, results: &Directions<UdpResult>) -> String {
    each_direction(results, parameters.direction.client_sends(), |name, result| one(name, parameters, result))
}

/// Rates, losses, how the packets were sent, and for each location with losses a bar and the reasons.
fn one(name: &str, parameters: &UdpParameters, result: &UdpResult) -> String {
    let mut text = String::new();
    // Names are the peer's words.
    let mut line = |label: &str, what: String| {
        _ = writeln!(text, "{}", format!("{label:<10}{what}").replace('\n', " "));
    };
    line(
        name,
        format!(
            "received {}/s of {}/s payload sent, for {}",
            rate(BitRate(result.received_rate_bps)),
            rate(BitRate(result.sent_rate_bps)),
            short(result.duration_ns),
        ),
    );
    line(
        "packets",
        format!(
            "{} of {} received, {} duplicated, {} reordered",
            result.received_packets, result.sent_packets, result.duplicate_packets, result.reordered_packets,
        ),
    );
    if result.reordered_packets > 0 {
        line(
            "reordered",
            format!(
                "by up to {} packets and {}",
                result.reordering.extent_packets_max,
                short(result.reordering.late_ns_max)
            ),
        );
    }
    line("jitter", result.jitter_ns.map_or_else(|| "not known: packets shared their time stamps".into(), short));
    if let Some(delay) = &result.delay_over_least {
        let [p50, p99, max] = [delay.p50_ns, delay.p99_ns, delay.max_ns].map(short);
        line("delay", format!("{p50} p50, {p99} p99, {max} max above the least"));
    }
    if let Some(latency) = &result.latency {
        line("latency", super::latency(latency));
    }
    let spacing = &result.spacing;
    let asked =
        spacing.requested_ns.map_or_else(|| "as fast as possible".into(), |gap| format!("{} asked", short(gap)));
    line(
        "spacing",
        format!(
            "{asked}; {} p50, {} p99, {} max between batches",
            short(spacing.achieved.p50_ns),
            short(spacing.achieved.p99_ns),
            short(spacing.achieved.max_ns),
        ),
    );
    let batch = &spacing.batch_packets;
    line(
        "batches",
        format!(
            "of {} packets p50, {} p99, {} max; {} bytes a packet",
            batch.p50, batch.p99, batch.max, parameters.payload_bytes
        ),
    );
    if let Some(arrivals) = &result.arrivals {
        let between = &arrivals.between_batches;
        line(
            "arrivals",
            format!(
                "{} p50, {} p99, {} max between batches of {} packets p50",
                short(between.p50_ns),
                short(between.p99_ns),
                short(between.max_ns),
                arrivals.batch_packets.p50,
            ),
        );
    }
    if let Some(capacity) = &result.capacity {
        line("capacity", capacity_words(capacity));
    }
    if parameters.traffic_class > 0 {
        let arrived: Vec<String> = (result.traffic_classes.iter())
            .map(|class| format!("{} with {:#04x}", class.packets, class.traffic_class))
            .collect();
        let arrived = if arrived.is_empty() { "none, or not reported".into() } else { arrived.join(", ") };
        line("tos", format!("{:#04x} sent; arrived: {arrived}", parameters.traffic_class));
    }
    let (sender, receiver) = (result.socket_buffers.sender, result.socket_buffers.receiver);
    line("buffers", format!("sender {}; receiver {}", buffer(sender), buffer(receiver)));
    if let Some(binding) = &result.binding {
        let mut parts = Vec::new();
        if !binding.receiver_cpus.is_empty() {
            parts.push(format!("receiver on CPU {}", list(&binding.receiver_cpus)));
        }
        if !binding.softirq_cpus.is_empty() {
            let interfaces = binding.interfaces.join(", ");
            parts.push(format!("its softirq on CPU {} (RPS of {interfaces})", list(&binding.softirq_cpus)));
        }
        line("bound", parts.join(", "));
    }
    let share = |packets: u64| packets as f64 * 100.0 / result.sent_packets.max(1) as f64;
    line("lost", format!("{} packets ({:.4} %)", result.lost_packets, share(result.lost_packets)));
    if result.lost_packets == 0 {
        return text;
    }
    let method = match result.location_method {
        LocationMethod::Bpf => "drop events of the kernel, for each packet",
        LocationMethod::Counters => "counters of both hosts, before and after",
    };
    line("where", format!("by {method}:"));
    let most = result.loss_by_location.values().copied().max().unwrap_or(1).max(1);
    for (location, &packets) in result.loss_by_location.iter().filter(|(_, packets)| **packets > 0) {
        let width = (packets as f64 / most as f64 * BAR as f64).ceil() as usize;
        let _ = writeln!(
            text,
            "  {:<22}{:>11} {:>9.4} %  {}",
            location.name(),
            packets,
            share(packets),
            "█".repeat(width.clamp(1, BAR))
        );
        reasons(&mut text, *location, &result.loss_reasons);
    }
    if let Some(file) = &result.packets_file {
        let _ = writeln!(text, "each packet that arrived is in {}", file.replace('\n', " "));
    }
    if let Some(file) = &result.losses_file {
        let _ = writeln!(text, "all losses are in {}", file.replace('\n', " "));
    }
    text
}

/// What packet trains say of the slowest link.
fn capacity_words(capacity: &Capacity) -> String {
    let trains = &capacity.trains;
    match (capacity.payload_bps, capacity.why_not) {
        (Some(found), _) if capacity.at_least => {
            format!("at least {}/s of payload, as fast as the sender sent trains", rate(BitRate(found.least)))
        }
        (Some(found), _) => format!(
            "{}/s of payload ({} to {}), by {} packet trains",
            rate(BitRate(found.value)),
            rate(BitRate(found.least)),
            rate(BitRate(found.most)),
            trains.trains
        ),
        (None, Some(NoCapacity::TooFew)) => {
            format!("not known: {} pairs of packets in trains, it takes 200", trains.gaps)
        }
        (None, Some(NoCapacity::SharedStamps)) => {
            let share = trains.shared_stamps as f64 * 100.0 / trains.gaps.max(1) as f64;
            format!("not known: {share:.0} % of packets share the stamp of the one before")
        }
        (None, _) => "not known: packets arrived in batches, with pauses between them".into(),
    }
}

/// The reasons of the losses at `location`.
fn reasons(text: &mut String, location: Location, all: &[UdpLossReason]) {
    let here: Vec<&UdpLossReason> = all.iter().filter(|reason| reason.location == location).collect();
    for reason in here.iter().take(REASONS) {
        let _ = writeln!(text, "    {:>9}  {}", reason.packets, reason.reason.replace('\n', " "));
    }
    if here.len() > REASONS {
        let _ = writeln!(text, "    and {} more reasons", here.len() - REASONS);
    }
}

/// The kernel reports twice the size that it granted: half is for its own bookkeeping.
fn buffer(buffer: Option<SocketBuffer>) -> String {
    match buffer {
        None => "not known".into(),
        Some(SocketBuffer { asked_bytes: None, given_bytes, .. }) => format!("{} (default)", Bytes(given_bytes / 2)),
        Some(SocketBuffer { asked_bytes: Some(asked), given_bytes, by_default }) => {
            let default = if by_default { " by default" } else { "" };
            format!("{} of {} asked{default}", Bytes(asked.min(given_bytes / 2)), Bytes(asked))
        }
    }
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
