//! An experiment while it runs: a table for each series.

use std::fmt::Write;

use longhaul_result::Location;
use longhaul_udp::UdpResult;

use crate::html::{tcp_goodput, udp_loss};

/// Places that have a column of their own in the table: those of the NLR Rings paper.
const COLUMNS: [(Location, &str); 3] = [
    (Location::Network, "network"),
    (Location::ReceiverRing, "receive ring"),
    (Location::ReceiverSocketBuffer, "socket buffer"),
];

/// The heading of a series.
pub fn udp_heading(name: &str) -> String {
    let columns: String = COLUMNS.iter().map(|(_, title)| format!(" {title:>14}")).collect();
    let head = format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>8}{columns}",
        "offered", "sent", "received", "packets", "lost", "lost %"
    );
    format!("{name}\n{head}")
}

/// One test, in a line. Rates are Mb/s of payload; each place has the packets that it lost.
pub fn udp_row(run: &udp_loss::Run) -> String {
    let mbit = |bps: u64| format!("{:.1}", bps as f64 / 1e6);
    let Some(result) = &run.result else {
        let why = run.error.as_ref().map_or("", |error| &error.message);
        return format!("{:>9}  not measured: {why}", mbit(run.rate_bps));
    };
    let columns: String = COLUMNS.iter().map(|(location, _)| format!(" {:>14}", lost(result, *location))).collect();
    let others: String = (Location::ALL.into_iter())
        .filter(|location| COLUMNS.iter().all(|(known, _)| known != location) && lost(result, *location) > 0)
        .map(|location| format!("  {location} {}", lost(result, location)))
        .collect();
    format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>8.3}{columns}{others}",
        mbit(run.rate_bps),
        mbit(result.sent_rate_bps),
        mbit(result.received_rate_bps),
        result.sent_packets,
        result.lost_packets,
        result.lost_packets as f64 * 100.0 / result.sent_packets.max(1) as f64,
    )
}

fn lost(result: &UdpResult, location: Location) -> u64 {
    result.loss_by_location.get(&location).copied().unwrap_or(0)
}

/// The heading of a series.
pub fn tcp_heading(name: &str) -> String {
    format!(
        "{name}\n{:<16} {:>10} {:>10} {:>10} {:>9} {:>12} {:>9} {:>9}  limited by",
        "test", "goodput", "expected", "other", "retrans.", "mean window", "RTT asked", "seen, ms"
    )
}

/// One test, in a line. Rates are Mb/s of payload, windows packets.
pub fn tcp_row(run: &tcp_goodput::Run) -> String {
    let none = || "–".to_owned();
    let mbit = |bps: Option<u64>| bps.map_or_else(none, |bps| format!("{:.1}", bps as f64 / 1e6));
    let Some(result) = &run.flows.result else {
        let why = run.error.as_ref().map_or("", |error| &error.message);
        return format!("{:<16} not measured: {why}", run.label);
    };
    let count = result.streams.len().max(1) as f64;
    let window: f64 = (result.streams.iter())
        .filter_map(|stream| Some(stream.mean_cwnd_bytes? as f64 / stream.mss_bytes.max(1) as f64))
        .sum();
    let rtt: f64 = result.streams.iter().filter_map(|stream| Some(stream.mean_rtt_ns? as f64 / 1e6)).sum();
    let beside = run.beside.as_ref().and_then(|beside| beside.result.as_ref()).map(|result| result.goodput_bps);
    let limit = result
        .limited_by
        .foremost()
        .map_or_else(String::new, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0));
    let mut line = format!(
        "{:<16} {:>10} {:>10} {:>10} {:>9} {:>12.0} {:>9.1} {:>9.1}  {limit}",
        run.label,
        mbit(Some(result.goodput_bps)),
        mbit(run.expected_bps),
        mbit(beside),
        result.retransmits,
        window / count,
        run.path_rtt_ns as f64 / 1e6,
        rtt / count,
    );
    if let Some(error) = &run.error {
        let _ = write!(line, "; other flow: {}", error.message);
    }
    line
}
