//! What `longhaul analyze` prints for people.

use std::fmt::Write;

use longhaul_diagnosis::captured_facts;
use longhaul_flows::{AnalyzeResult, DirectionSummary, FlowSummary};
use longhaul_units::{BitRate, Nanos, utc};

use super::visible;
use crate::cause::{first_cause, first_cause_in_words};

/// Shares below this are not named.
const NAMED_SHARE: f64 = 0.05;

/// A line about the capture, then a few lines per flow.
pub fn report(result: &AnalyzeResult) -> String {
    let totals = &result.totals;
    let took_ns = totals.last_ns.unwrap_or(0).saturating_sub(totals.first_ns.unwrap_or(0));
    let mut text = format!("{} packets in {}, {}", totals.packets, time(took_ns as f64), flows(result.flows_total));
    let shown = result.flows.len() as u64;
    // Writing to a string cannot fail.
    if shown < result.flows_total {
        let _ = write!(text, ", the first {shown}");
    }
    text.push('\n');
    if totals.gaps > 0 {
        let left_out = time(totals.left_out_ns as f64);
        let _ = writeln!(
            text,
            "the capture dropped packets in {} gaps, {left_out} in all: that time is left out",
            totals.gaps
        );
    }
    for flow in &result.flows {
        let state = flow.connection.map_or(String::new(), |connection| {
            let handshake = connection.handshake_rtt_ns.map(|rtt| format!(", handshake {}", time(rtt as f64)));
            format!(" ({}{})", connection.end, handshake.unwrap_or_default())
        });
        let _ = writeln!(
            text,
            "\n{} {} - {}, {} from {}{state}",
            flow.protocol,
            flow.client,
            flow.server,
            time(flow.last_ns.saturating_sub(flow.first_ns) as f64),
            utc(flow.first_ns)
        );
        for (arrow, direction) in [("->", &flow.forward), ("<-", &flow.backward)] {
            if direction.packets > 0 {
                direction_lines(&mut text, arrow, direction);
            }
        }
        if let Some(cause) = first_cause_in_words(captured_facts(flow)) {
            let _ = writeln!(text, "  cause: {cause} (longhaul diagnose trace says more)");
        }
    }
    visible(&text)
}

/// What was found in a few words, and how sure that is: of the flow that carried most, and what was lost in those of `result`.
pub fn verdict(result: &AnalyzeResult) -> [String; 2] {
    let totals = &result.totals;
    let took_ns = totals.last_ns.unwrap_or(0).saturating_sub(totals.first_ns.unwrap_or(0));
    let mut found =
        vec![format!("{} packets of {} in {}.", totals.packets, flows(result.flows_total), time(took_ns as f64))];
    let carried = |flow: &FlowSummary| flow.forward.payload_bytes.max(flow.backward.payload_bytes);
    if let Some(most) = result.flows.iter().filter(|flow| carried(flow) > 0).max_by_key(|flow| carried(flow)) {
        let there = most.forward.payload_bytes >= most.backward.payload_bytes;
        let (from, to) = if there { (most.client, most.server) } else { (most.server, most.client) };
        let direction = if there { &most.forward } else { &most.backward };
        let rate = BitRate(direction.payload_rate_bps).rounded();
        found.push(format!("Most was carried from {from} to {to}: {} bytes, {rate}.", direction.payload_bytes));
        found.extend(first_cause_in_words(captured_facts(most)).map(|cause| format!("Cause: {cause}.")));
    }
    let packets = result.flows.iter().map(lost).fold(0, u64::saturating_add);
    let losing = result.flows.iter().filter(|flow| lost(flow) > 0).count();
    found.push(match losing {
        0 => "No loss was seen.".into(),
        _ => format!("{packets} packets were lost, in {}.", flows(losing as u64)),
    });
    let mut sure = vec![match totals.gaps {
        0 => "The capture reports no time in which it dropped packets.".to_owned(),
        gaps => format!(
            "The capture dropped packets in {gaps} gaps, {} in all: what is said holds for the rest of the time.",
            time(totals.left_out_ns as f64)
        ),
    }];
    let shown = result.flows.len() as u64;
    if shown < result.flows_total {
        sure.push(format!("Losses are those of {shown} of {}.", flows(result.flows_total)));
    }
    if losing > 0 {
        sure.push("Losses of TCP are retransmissions that were needed, as seen at the capture point.".into());
    }
    [found, sure].map(|sentences| visible(&sentences.join(" ")))
}

/// A line for each flow, and what limited it by the rules of `longhaul diagnose`.
pub fn worst(result: &AnalyzeResult) -> String {
    let losing: Vec<_> = result.flows.iter().filter(|flow| lost(flow) > 0).collect();
    let mut text =
        format!("{} packets, {} flows; those that lost most first\n", result.totals.packets, result.flows_total);
    if losing.is_empty() {
        text.push_str("no flow lost a packet\n");
        return text;
    }
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "\n{:>8} {:>8} {:>12} {:>9}  {:<20} began", "lost", "share", "goodput", "rtt", "first cause");
    for flow in losing {
        let cause = first_cause(captured_facts(flow));
        let packets =
            [&flow.forward, &flow.backward].map(|direction| (direction.lost_packets(), direction.wire_packets));
        let (_, packets) = packets.into_iter().max().unwrap_or_default();
        let goodput = flow.forward.payload_rate_bps.max(flow.backward.payload_rate_bps);
        let _ = writeln!(
            text,
            "{:>8} {:>8} {:>12} {:>9}  {:<20} {}\n         {} {} - {}",
            lost(flow),
            format!("{:.3} %", lost(flow) as f64 * 100.0 / packets.max(1) as f64),
            BitRate(goodput).rounded(),
            flow.mean_rtt_ns().map_or_else(|| "?".into(), |ns| Nanos(ns).rounded()),
            cause.as_ref().map_or("-", |cause| cause.bound.code.name()),
            utc(flow.first_ns),
            flow.protocol,
            flow.client,
            flow.server,
        );
    }
    visible(&text)
}

fn flows(count: u64) -> String {
    if count == 1 { "1 flow".into() } else { format!("{count} flows") }
}

fn lost(flow: &FlowSummary) -> u64 {
    flow.forward.lost_packets().saturating_add(flow.backward.lost_packets())
}

fn direction_lines(text: &mut String, arrow: &str, direction: &DirectionSummary) {
    let wire = if direction.wire_packets > direction.packets {
        format!(" ({} on the wire)", direction.wire_packets)
    } else {
        String::new()
    };
    let _ = write!(text, "  {arrow} {} packets{wire}", direction.packets);
    if direction.payload_bytes == 0 {
        text.push_str(", no data\n");
        return;
    }
    let _ = write!(text, ", {} bytes, {}", direction.payload_bytes, BitRate(direction.payload_rate_bps).rounded());
    if direction.peak_1s_bps > 0 {
        let _ = write!(text, ", peak {} in 1 s", BitRate(direction.peak_1s_bps).rounded());
    }
    let _ = writeln!(text, ", {} in 1 ms", BitRate(direction.peak_1ms_bps).rounded());
    if let Some(tcp) = &direction.tcp {
        let mut parts = Vec::new();
        let mut part = |count: u64, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        let on_the_wire = if tcp.retransmitted_wire_packets > tcp.retransmitted_packets {
            format!("retransmitted ({} on the wire)", tcp.retransmitted_wire_packets)
        } else {
            "retransmitted".into()
        };
        part(tcp.retransmitted_packets, &on_the_wire);
        part(tcp.fast_retransmissions, "of them fast");
        part(tcp.timeout_retransmissions, "by timeout");
        part(tcp.retransmissions_of_unknown_cause, "of unknown cause");
        part(tcp.spurious_by_dsack.max(tcp.spurious_by_timestamp), "unnecessary");
        part(tcp.out_of_order_packets, "out of order");
        part(tcp.duplicate_packets, "duplicates");
        part(tcp.missing_bytes, "bytes never seen");
        part(tcp.not_captured_bytes, "bytes not captured");
        part(tcp.duplicate_acks, "duplicate ACKs");
        part(tcp.zero_window_acks, "zero windows");
        if !parts.is_empty() {
            let _ = writeln!(text, "     {}", parts.join(", "));
        }
        let mut parts = Vec::new();
        if let Some(rtt) = tcp.rtt.or(tcp.timestamp_rtt) {
            let spread = [rtt.min_ns as f64, rtt.mean_ns, rtt.max_ns as f64].map(time).join("/");
            parts.push(format!("RTT from here min/mean/max {spread}"));
        }
        if let Some(bytes) = tcp.max_in_flight_bytes {
            parts.push(format!("at most {bytes} bytes in flight"));
        }
        if !parts.is_empty() {
            let _ = writeln!(text, "     {}", parts.join(", "));
        }
        if let Some(limits) = &tcp.limits {
            let named = limits.limited_by.largest_first();
            let named = named.iter().filter(|(_, share)| *share >= NAMED_SHARE);
            let named: Vec<_> =
                named.map(|(name, share)| format!("{name} {:.0} %", share.clamp(0.0, 1.0) * 100.0)).collect();
            let _ = writeln!(text, "     limited by {}", named.join(", ").replace('_', " "));
        }
    }
    if let Some(probe) = &direction.probe {
        let numbered = probe.last_sequence.saturating_sub(probe.first_sequence).saturating_add(1);
        let sent = numbered.saturating_sub(probe.not_captured_packets);
        let not_captured = match probe.not_captured_packets {
            0 => String::new(),
            packets => format!(", {packets} more not captured"),
        };
        let _ = writeln!(
            text,
            "     longhaul's probes: {} of {sent} lost ({:.4} %) in {} runs, {} reordered, {} duplicates{not_captured}",
            probe.lost_packets,
            probe.lost_packets as f64 * 100.0 / sent as f64,
            probe.loss_runs,
            probe.reordered_packets,
            probe.duplicate_packets
        );
    }
}

pub(super) fn time(ns: f64) -> String {
    // A saved result may hold any number: this keeps the text short.
    let ns = ns.clamp(0.0, 1e18);
    let (value, unit) = match ns {
        _ if ns < 1e3 => return format!("{ns:.0} ns"),
        _ if ns < 1e6 => (ns / 1e3, "us"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{value:.3} {unit}")
}

#[cfg(test)]
mod tests {
    use longhaul_flows::{Protocol, TcpSummary, Totals};

    use super::*;

    #[test]
    fn a_verdict_is_of_the_largest_flow_and_counts_gaps() {
        let flow = |port: u16, payload_bytes, retransmitted_wire_packets| FlowSummary {
            flow: port.into(),
            protocol: Protocol::Udp,
            client: ([10, 0, 0, 1], port).into(),
            server: ([10, 0, 0, 2], 80).into(),
            first_ns: 0,
            last_ns: 2_000_000_000,
            connection: None,
            forward: DirectionSummary { payload_bytes: 1, ..DirectionSummary::default() },
            backward: DirectionSummary {
                payload_bytes,
                payload_rate_bps: 4_000_000,
                tcp: Some(Box::new(TcpSummary { retransmitted_wire_packets, ..TcpSummary::default() })),
                ..DirectionSummary::default()
            },
        };
        let totals = Totals {
            packets: 1_000,
            first_ns: Some(0),
            last_ns: Some(2_000_000_000),
            gaps: 2,
            left_out_ns: 5_000_000,
            ..Totals::default()
        };
        let result = AnalyzeResult { totals, flows_total: 3, flows: vec![flow(1, 10, 0), flow(2, 1_000_000, 7)] };
        let [found, sure] = verdict(&result);
        let expected = "1000 packets of 3 flows in 2.000 s. Most was carried from 10.0.0.2:80 to 10.0.0.1:2: 1000000 bytes, 4.00 Mbit/s. \
                        7 packets were lost, in 1 flow.";
        assert_eq!(found, expected);
        assert!(sure.starts_with("The capture dropped packets in 2 gaps, 5.000 ms in all: "), "{sure}");
        assert!(sure.contains("Losses are those of 2 of 3 flows."), "{sure}");
        let empty = AnalyzeResult { totals: Totals::default(), flows_total: 0, flows: Vec::new() };
        assert_eq!(verdict(&empty)[0], "0 packets of 0 flows in 0 ns. No loss was seen.");
    }
}
