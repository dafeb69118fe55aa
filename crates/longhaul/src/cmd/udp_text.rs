//! A UDP result as people read it.

use std::fmt::Write;

use longhaul_session::control::{Progress, UdpParameters};
use longhaul_session::locate::LocationMethod;
use longhaul_session::result::UdpResult;
use longhaul_units::{BitRate, Nanos};

/// Characters of the longest bar.
const BAR: usize = 40;

/// A line while the test runs: what came since `before`.
pub(crate) fn live(before: &Progress, now: &Progress) -> String {
    let span = Nanos(now.elapsed_ns.saturating_sub(before.elapsed_ns));
    let bytes = now.payload_bytes.saturating_sub(before.payload_bytes);
    format!(
        "{:>8.1} s  {:>12}/s received  {:>10} missing  {:>8} doubled  {:>8} reordered",
        now.elapsed_ns as f64 / 1e9,
        rate(BitRate::of(bytes, span)),
        now.missing_packets,
        now.duplicate_packets,
        now.reordered_packets,
    )
}

/// The result of one direction: the rate, the loss, and a bar for each location that lost something.
pub(crate) fn result(name: &str, parameters: &UdpParameters, result: &UdpResult) -> String {
    let mut text = String::new();
    let share = |packets: u64| packets as f64 * 100.0 / result.sent_packets.max(1) as f64;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{name}: received {}/s of {}/s payload sent, {} packets of {} bytes in {}",
        rate(BitRate(result.received_rate_bps)),
        rate(BitRate(result.sent_rate_bps)),
        result.received_packets,
        parameters.payload_bytes,
        Nanos(result.duration_ns),
    );
    let _ = writeln!(
        text,
        "lost {} of {} packets ({:.4} %), {} doubled, {} reordered{}",
        result.lost_packets,
        result.sent_packets,
        share(result.lost_packets),
        result.duplicate_packets,
        result.reordered_packets,
        result.jitter_ns.map_or_else(String::new, |jitter| format!(", jitter {}", Nanos(jitter))),
    );
    let method = match result.location_method {
        LocationMethod::Bpf => "drop events of the kernel, packet by packet",
        LocationMethod::Counters => "counters of both hosts, before and after",
    };
    if result.lost_packets > 0 {
        let _ = writeln!(text, "where, by {method}:");
        let most = result.loss_by_location.values().copied().max().unwrap_or(1).max(1);
        for (location, &packets) in result.loss_by_location.iter().filter(|(_, packets)| **packets > 0) {
            let width = (packets as usize * BAR).div_ceil(most as usize).max(1);
            let _ = writeln!(
                text,
                "  {:<24} {:>12} {:>9.4} %  {}",
                location.name(),
                packets,
                share(packets),
                "█".repeat(width)
            );
        }
    }
    text
}

/// A rate with three digits behind the point, as rates are compared by eye.
fn rate(rate: BitRate) -> String {
    let bps = rate.0 as f64;
    match rate.0 {
        0..1_000_000 => format!("{:.1} kbit", bps / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit", bps / 1e6),
        _ => format!("{:.3} Gbit", bps / 1e9),
    }
}
