//! A TCP result as text, in lines of at most 80 characters.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use longhaul_result::LocationMethod;
use longhaul_tcp::{LimitedBy, TcpParameters, TcpResult, TcpStreamResult};
use longhaul_terms::{Directions, SocketBuffer};
use longhaul_units::{BitRate, Bytes};

use super::{each_direction, rate, short};

/// Flows listed one by one; JSON has all.
const FLOWS: usize = 16;
/// Reasons printed for a location.
const REASONS: usize = 3;
/// Smaller shares are not printed.
const LEAST_SHARE: f64 = 0.005;

/// The result of each direction.
pub fn report(parameters: &TcpParameters, results: &Directions<TcpResult>) -> String {
    each_direction(results, parameters.direction.client_sends(), |name, result| one(name, parameters, result))
}

fn one(name: &str, parameters: &TcpParameters, result: &TcpResult) -> String {
    let mut text = String::new();
    let mut line = |label: &str, what: String| {
        _ = writeln!(text, "{}", format!("{label:<10}{what}").replace('\n', " "));
    };
    let streams =
        if result.streams.len() == 1 { String::new() } else { format!(" over {} streams", result.streams.len()) };
    line(
        name,
        format!(
            "goodput {}/s{streams}, {} in {}",
            rate(BitRate(result.goodput_bps)),
            Bytes(result.bytes).rounded(),
            short(result.duration_ns)
        ),
    );
    if let [stream] = result.streams.as_slice() {
        line("stream", format!("{}, {}", addresses(stream), stream.congestion_control));
    } else if let Some(first) = result.streams.first() {
        if let (Some(sender), Some(receiver)) = (first.sender_address, first.receiver_address) {
            line("streams", format!("{sender} to {receiver}"));
        }
        for stream in result.streams.iter().take(FLOWS) {
            line(
                "",
                format!(
                    "stream {:<3}{:>10}/s {:>5} retrans. rtt {:>6}  {}",
                    stream.stream,
                    rate(BitRate(stream.goodput_bps)),
                    stream.retransmits,
                    stream.mean_rtt_ns.map_or_else(|| "?".into(), short),
                    foremost(&stream.limited_by),
                ),
            );
        }
        if result.streams.len() > FLOWS {
            line("", format!("and {} more streams", result.streams.len() - FLOWS));
        }
    }
    let bytes = result.retransmitted_bytes.map_or_else(String::new, |bytes| format!(", {}", Bytes(bytes).rounded()));
    let efficiency =
        result.rfc6349.tcp_efficiency_percentage.map_or_else(String::new, |share| format!("; efficiency {share:.3} %"));
    line("retrans.", format!("{} packets{bytes}{efficiency}", result.retransmits));
    let of = |of: fn(&TcpStreamResult) -> Option<u64>| result.streams.iter().filter_map(of);
    let least = of(|stream| stream.min_rtt_ns).min().map_or_else(|| "?".into(), short);
    let means: Vec<u64> = of(|stream| stream.mean_rtt_ns).collect();
    let mean = means.iter().map(|ns| *ns as f64).sum::<f64>() / means.len().max(1) as f64;
    let delay = result.rfc6349.buffer_delay_percentage;
    line(
        "rtt",
        format!(
            "{least} min, {} mean{}",
            short(mean as u64),
            delay.map_or_else(String::new, |share| format!("; buffer delay {share:.1} %"))
        ),
    );
    if let Some(latency) = &result.latency {
        line("latency", super::latency(latency));
    }
    let cwnd = |of: fn(&TcpStreamResult) -> Option<u64>| {
        let sum = result.streams.iter().filter_map(of).fold(0, u64::saturating_add);
        Bytes(sum).rounded()
    };
    let mut controls: Vec<&str> = result.streams.iter().map(|stream| stream.congestion_control.as_str()).collect();
    controls.dedup();
    line(
        "cwnd",
        format!("{} mean, {} max ({})", cwnd(|s| s.mean_cwnd_bytes), cwnd(|s| s.max_cwnd_bytes), controls.join("; ")),
    );
    if let Some(ratio) = result.rfc6349.transfer_time_ratio {
        line("goal", format!("took {ratio:.2} times as long as at --rate-goal (RFC 6349)"));
    }
    if let Some(buffers) = result.streams.first().map(|stream| stream.socket_buffers) {
        line("buffers", format!("sender {}; receiver {}", buffer(buffers.sender), buffer(buffers.receiver)));
    }
    if let Some(auto) = parameters.window_auto {
        line(
            "",
            format!(
                "-w auto: window of {} for {}/s and a round trip of {}",
                Bytes(parameters.window_bytes.unwrap_or(0)).rounded(),
                rate(BitRate(auto.rate_goal_bps)),
                short(auto.rtt_ns)
            ),
        );
    }
    line("limited", limits(&result.limited_by));
    if let Some(advice) = advice(result) {
        line("", advice.to_owned());
    }
    losses(&mut text, result);
    if let Some(file) = &result.samples_file {
        let _ = writeln!(text, "all TCP_INFO fields over time are in {}", file.replace('\n', " "));
    }
    text
}

/// From where to where a flow's data goes.
fn addresses(stream: &TcpStreamResult) -> String {
    let end = |address: Option<IpAddr>, port: u16| match address {
        Some(address) => SocketAddr::new(address, port).to_string(),
        // The server did not say: it was lost.
        None if port == 0 => "?".into(),
        None => format!("port {port}"),
    };
    let sender = end(stream.sender_address, stream.sender_port);
    format!("{sender} to {}", end(stream.receiver_address, stream.receiver_port))
}

/// Bytes lost at each place with losses, and the reasons.
fn losses(text: &mut String, result: &TcpResult) {
    let method = match result.location_method {
        LocationMethod::Bpf => "drop events of the kernel",
        LocationMethod::Counters => "counters of both hosts",
    };
    let places = result.loss_bytes_by_location.places();
    if places.iter().all(|(_, bytes)| *bytes == 0) {
        let _ = writeln!(text, "{:<10}nothing, by {method}", "lost");
        return;
    }
    let _ = writeln!(text, "{:<10}bytes of IP packets, % of data sent, by {method}:", "lost");
    if result.omitted_bytes > 0 {
        let _ = writeln!(text, "{:<10}(of the whole test, the omitted time included)", "");
    }
    let sent = result.sent_ip_bytes().max(1) as f64;
    for (place, bytes) in places.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let share = bytes as f64 * 100.0 / sent;
        let _ = writeln!(text, "  {place:<13}{bytes:>14} {share:>9.4} %  {}", meaning(place));
        let here = result.loss_reasons.iter().filter(|reason| reason.location == place);
        for reason in here.take(REASONS) {
            let _ = writeln!(text, "    {:>9} packets  {}", reason.packets, reason.reason.replace('\n', " "));
        }
    }
}

fn meaning(place: &str) -> &'static str {
    match place {
        "snd_tcploss" => "data, retransmitted",
        "snd_txloss" => "data, while leaving the sender",
        "network" => "data, on the path",
        "rcv_rxloss" => "data, while entering the receiver",
        "tcp_pruning" => "data, no memory for it",
        "rcv_txloss" => "ACKs, while leaving the receiver",
        "snd_rxloss" => "ACKs, while entering the sender",
        _ => "",
    }
}

fn limits(limited: &LimitedBy) -> String {
    let mut shares = [
        ("congestion window", limited.congestion_window),
        ("receive window", limited.receive_window),
        ("send buffer", limited.send_buffer),
        ("application", limited.application),
    ];
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = shares
        .iter()
        .filter(|(_, share)| *share >= LEAST_SHARE)
        .map(|(name, share)| format!("{name} {:.0} %", share * 100.0))
        .collect();
    if parts.is_empty() { "not known".into() } else { format!("by {}", parts.join(", ")) }
}

fn foremost(limited: &LimitedBy) -> String {
    limited
        .foremost()
        .map_or_else(String::new, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0))
}

/// What to do about the largest limit, if it holds for more than half of the time.
fn advice(result: &TcpResult) -> Option<&'static str> {
    match result.limited_by.foremost()? {
        ("receive_window", share) if share > 0.5 => {
            Some("use a larger receive buffer (-w, net.ipv4.tcp_rmem) or a faster reader")
        }
        ("send_buffer", share) if share > 0.5 => Some("use a larger send buffer (-w, net.ipv4.tcp_wmem)"),
        ("application", share) if share > 0.5 => Some("the sending application is the bottleneck, not the path"),
        _ => None,
    }
}

/// The kernel reports twice the size that it granted: half is for its own bookkeeping.
fn buffer(buffer: Option<SocketBuffer>) -> String {
    match buffer {
        None => "not known".into(),
        Some(SocketBuffer { asked_bytes: None, given_bytes, .. }) => {
            format!("{} (tuned)", Bytes(given_bytes).rounded())
        }
        Some(SocketBuffer { asked_bytes: Some(asked), given_bytes, .. }) => {
            format!("{} of {} asked", Bytes(asked.min(given_bytes / 2)).rounded(), Bytes(asked).rounded())
        }
    }
}
