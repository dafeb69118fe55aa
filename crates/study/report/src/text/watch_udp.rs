//! The result of `longhaul watch --udp` as text, and the account of two of them.

use std::fmt::Write;

use longhaul_result::LocationMethod;
use longhaul_udp::{UdpAccount, UdpAccounts, UdpSocketDrop, UdpWatchResult, WatchedUdpFlow, WatchedUdpSocket};
use longhaul_units::{BitRate, Bytes, Nanos};

use super::{rate, short, visible};

/// Sockets that are shown. The JSON result has all.
const SOCKETS: usize = 20;
/// Peers that are shown of a socket.
const PEERS: usize = 5;

/// The sockets, most datagrams first.
pub fn report(result: &UdpWatchResult) -> String {
    let mut text = String::new();
    let all = |one: &WatchedUdpSocket| {
        let moved = one.sent_packets.unwrap_or(0).saturating_add(one.received_packets.unwrap_or(0));
        moved.saturating_add(one.dropped_packets)
    };
    let mut order: Vec<&WatchedUdpSocket> = result.sockets.iter().collect();
    order.sort_by_key(|one| std::cmp::Reverse(all(one)));
    order.iter().take(SOCKETS).for_each(|one| socket(&mut text, one));
    if order.len() > SOCKETS {
        _ = writeln!(text, "and {} more sockets", order.len() - SOCKETS);
    }
    let how = match result.location_method {
        LocationMethod::Bpf => "every datagram counted in the kernel, drops by their events",
        LocationMethod::Counters => "drops by the sockets' own counters",
    };
    let number = if order.len() == 1 { "1 UDP socket".into() } else { format!("{} UDP sockets", order.len()) };
    _ = writeln!(text, "watched   {number} for {}; {how}", short(result.duration_ns));
    visible(&text)
}

fn socket(text: &mut String, one: &WatchedUdpSocket) {
    let mut line = |label: &str, what: String| _ = writeln!(text, "{label:<9} {what}");
    let pid = one.pid.map_or_else(String::new, |pid| format!("{pid}, "));
    let peer = one.remote.map_or_else(String::new, |remote| format!(" > {remote}"));
    line(one.program.as_deref().unwrap_or("?"), format!("{pid}{}{peer}", one.local));
    let span = Nanos(one.last_seen_ns.saturating_sub(one.first_seen_ns));
    let moved = |packets: u64, bytes: Option<u64>| {
        let bytes = bytes.unwrap_or(0);
        let at = rate(BitRate::of(bytes, span));
        format!("{packets} datagrams, {} at {at}/s", Bytes(bytes).rounded())
    };
    if let Some(packets @ 1..) = one.sent_packets {
        line("", format!("sent {}", moved(packets, one.sent_bytes)));
    }
    if let Some(packets) = one.received_packets
        && (packets > 0 || one.sent_packets == Some(0))
    {
        line(
            "",
            format!(
                "received {}; read {}",
                moved(packets, one.received_bytes),
                one.read_packets.map_or_else(|| "?".into(), |read| read.to_string())
            ),
        );
    }
    if one.dropped_packets > 0 {
        line("", format!("dropped on this host: {} datagrams", one.dropped_packets));
        one.drops.iter().for_each(|drop| line("", dropped(drop)));
    } else {
        line("", "dropped on this host: none".into());
    }
    if let Some(buffer) = one.receive_buffer_bytes {
        let used = Bytes(one.max_receive_used_bytes.unwrap_or(0)).rounded();
        let own = one.socket_drops.unwrap_or(0);
        let buffer = Bytes(buffer).rounded();
        line(
            "",
            format!("receive buffer {buffer}, at most {used} used in a sample; the socket itself counted {own} drops"),
        );
    }
    if one.flows.len() > 1 {
        one.flows.iter().take(PEERS).for_each(|flow| line("", of_peer(flow)));
        if one.flows.len() > PEERS {
            line("", format!("  and {} more peers", one.flows.len() - PEERS));
        }
    }
}

fn dropped(drop: &UdpSocketDrop) -> String {
    let way = if drop.sent { "sent by this host" } else { "received by this host" };
    format!("  {:>8} {}, {way}: {}", drop.packets, drop.location, drop.reason)
}

fn of_peer(flow: &WatchedUdpFlow) -> String {
    let peer = flow.remote.map_or_else(|| "other peers".into(), |remote| remote.to_string());
    let lost = flow.drops.iter().map(|drop| drop.packets).fold(0, u64::saturating_add);
    format!("  {peer}: sent {}, received {}, dropped here {lost}", flow.sent_packets, flow.received_packets)
}

/// What became of the datagrams between sockets of two hosts.
pub fn accounts(result: &UdpAccounts) -> String {
    let mut text = String::new();
    for one in result.accounts.iter().take(SOCKETS) {
        account(&mut text, one);
    }
    match result.accounts.len() {
        0 => text += "no socket of the one host sent to a socket of the other\n",
        more if more > SOCKETS => _ = writeln!(text, "and {} more pairs of sockets", more - SOCKETS),
        _ => {}
    }
    visible(&text)
}

fn account(text: &mut String, one: &UdpAccount) {
    let name = |program: &Option<String>| program.clone().unwrap_or_else(|| "?".into());
    let (from, to) = (name(&one.sending_program), name(&one.receiving_program));
    _ = writeln!(text, "{from} {} > {to} {}", one.source, one.destination);
    let share = one.lost_packets as f64 * 100.0 / one.sent_packets.max(1) as f64;
    let (sent, received, lost) = (one.sent_packets, one.received_packets, one.lost_packets);
    _ = writeln!(text, "          sent {sent} datagrams, received {received}; lost {lost} ({share:.3} %)");
    for (location, packets) in one.loss_by_location.iter().filter(|(_, packets)| **packets > 0) {
        let why: Vec<&str> =
            one.drops.iter().filter(|drop| drop.location == *location).map(|drop| drop.reason.as_str()).collect();
        let why = if why.is_empty() { "neither host dropped them".into() } else { why.join(", ") };
        _ = writeln!(text, "          {packets:>10} {location}: {why}");
    }
    if one.surplus_packets > 0 {
        _ = writeln!(
            text,
            "          {} more arrived or were dropped than sent: duplicates, or sent before the sender was watched",
            one.surplus_packets
        );
    }
}
