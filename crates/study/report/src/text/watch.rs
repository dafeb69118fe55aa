//! The result of `longhaul watch` as text, in lines of at most 80 characters.

use std::fmt::Write;

use longhaul_diagnosis::watched_facts;
use longhaul_tcp::{Flow, Segment, TcpDrop, WatchResult, WatchedConnection};
use longhaul_units::{BitRate, Bytes};

use super::{rate, short, visible};
use crate::cause::first_cause_in_words;

/// Connections that are shown. The JSON result has all.
const CONNECTIONS: usize = 20;
/// Drop reasons that are shown per connection.
const DROPS: usize = 3;

/// The connections, most bytes first, and what watching cost.
pub fn report(result: &WatchResult) -> String {
    let mut text = String::new();
    let mut order: Vec<&WatchedConnection> = result.connections.iter().collect();
    order.sort_by_key(|one| std::cmp::Reverse(bytes(one)));
    for connection in order.iter().take(CONNECTIONS) {
        one(&mut text, connection);
    }
    if order.len() > CONNECTIONS {
        let rest = order[CONNECTIONS..].iter().map(|one| bytes(one)).fold(0, u64::saturating_add);
        _ = writeln!(text, "and {} more connections with {}", order.len() - CONNECTIONS, Bytes(rest).rounded());
    }
    let cost = &result.sampling;
    _ = writeln!(
        text,
        "watched   {} for {}, one sample every {}; used {:.1} % of a CPU",
        if result.connections.len() == 1 {
            "1 connection".into()
        } else {
            format!("{} connections", result.connections.len())
        },
        short(result.duration_ns),
        short(cost.interval_ns),
        cost.cpu_time_ns as f64 * 100.0 / cost.elapsed_ns.max(1) as f64
    );
    if let Some(file) = &result.samples_file {
        _ = writeln!(text, "all TCP_INFO fields over time are in {file}");
    }
    visible(&text)
}

fn bytes(connection: &WatchedConnection) -> u64 {
    connection.received_bytes.saturating_add(connection.sent_bytes.unwrap_or(0))
}

fn one(text: &mut String, connection: &WatchedConnection) {
    let mut line = |label: &str, what: String| {
        _ = writeln!(text, "{}", format!("{label:<10}{what}").replace('\n', " "));
    };
    let program = connection.program.as_deref().unwrap_or("?");
    let pid = connection.pid.map_or_else(String::new, |pid| format!("{pid}, "));
    let span = connection.last_seen_ns.saturating_sub(connection.first_seen_ns);
    let life = match (connection.began, connection.ended) {
        (true, true) => "lived",
        (true, false) => "began, seen for",
        (false, true) => "ended, seen for",
        (false, false) => "seen for",
    };
    line(program, format!("{pid}{} > {}", connection.local, connection.remote));
    line("", format!("{life} {}; {}", short(span), connection.state));
    let (main, other) = (
        |what: &str, bytes: u64, bps: u64| format!("{what} {} at {}/s", Bytes(bytes).rounded(), rate(BitRate(bps))),
        |what: &str, bytes: u64| format!("{what} {}", Bytes(bytes).rounded()),
    );
    let sent = connection.sent_bytes.unwrap_or(0);
    line(
        "",
        match connection.flow {
            Flow::Receiving => format!(
                "{}, {}",
                main("received", connection.received_bytes, connection.received_rate_bps),
                other("sent", sent)
            ),
            Flow::Sending => format!(
                "{}, {}",
                main("sent", sent, connection.sent_rate_bps),
                other("received", connection.received_bytes)
            ),
        },
    );
    if let Some(limit) = &connection.limit {
        line("", format!("limited by {} {:.0} % of the time:", limit.by.replace('_', " "), limit.share * 100.0));
        line("", format!("  {}", limit.evidence));
    }
    if let Some(cause) = first_cause_in_words(watched_facts(connection)) {
        line("", format!("cause: {cause}"));
    }
    let known = |ns: Option<u64>| ns.map_or_else(|| "?".into(), short);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".into(), |bytes| Bytes(bytes).rounded());
    line(
        "",
        format!(
            "rtt {} min, {} mean; cwnd {} mean; {} retransmitted",
            known(connection.min_rtt_ns),
            known(connection.mean_rtt_ns),
            size(connection.mean_cwnd_bytes),
            connection.retransmits
        ),
    );
    for drop in connection.drops.iter().take(DROPS) {
        line("", dropped(drop));
    }
}

fn dropped(drop: &TcpDrop) -> String {
    let what = if drop.segment == Segment::Data { "data" } else { "ACKs" };
    let place = match drop.location {
        longhaul_result::TcpLocation::Transmit => "while leaving this host",
        longhaul_result::TcpLocation::Receive => "while entering this host",
        longhaul_result::TcpLocation::Pruned => "no memory for them",
    };
    format!("dropped here: {} packets of {what}, {place}: {}", drop.packets, drop.reason)
}
