//! The text of an emulator's status.

use std::fmt::Write;

use longhaul_emulator::Status;
use longhaul_units::{Bytes, Nanos};

/// The status as a few lines and two tables.
pub(crate) fn text(status: &Status) -> String {
    let late = &status.lateness;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "up {:.1} s, emulator at {:.0} % of a CPU, lateness {} (p50), {} (p99), {} (p99.9), {} (max)",
        status.uptime_ns as f64 / 1e9,
        status.cpu_ns as f64 * 100.0 / status.uptime_ns.max(1) as f64,
        Nanos(late.p50_ns),
        Nanos(late.p99_ns),
        Nanos(late.p99_9_ns),
        Nanos(late.max_ns),
    );
    let own = status.own_fault;
    let _ = writeln!(
        text,
        "own faults: {} receive overflow, {} port ring full, {} memory full, {} too long, {} send errors; receivers' rings full: {}",
        own.receive_overflow_frames,
        own.port_ring_full_frames,
        own.memory_full_frames,
        own.oversized_frames,
        own.send_error_packets,
        status.far_port_full_packets,
    );
    let _ = writeln!(
        text,
        "\n{:<12} {:<12} {:>14} {:>10} {:>14} {:>10}",
        "host", "interface", "packets from", "bytes", "packets to", "bytes"
    );
    for port in &status.ports {
        let _ = writeln!(
            text,
            "{:<12} {:<12} {:>14} {:>10} {:>14} {:>10}{}",
            port.host,
            port.interface,
            port.received.packets,
            Bytes(port.received.bytes).rounded(),
            port.sent.packets,
            Bytes(port.sent.bytes).rounded(),
            if port.up { "" } else { "  DOWN" },
        );
    }
    let _ = writeln!(
        text,
        "\n{:<20} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "hop", "packets", "lost", "outage", "mtu", "policer", "queue full", "duplicate", "corrupted", "backlog"
    );
    for hop in &status.hops {
        let c = &hop.counters;
        let _ = writeln!(
            text,
            "{:<20} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            hop.name,
            c.arrived.packets,
            c.dropped_loss.packets,
            c.dropped_outage.packets,
            c.dropped_mtu.packets,
            c.dropped_policer.packets,
            c.dropped_queue.packets,
            c.duplicated.packets,
            c.corrupted.packets,
            Nanos(hop.backlog_ns),
        );
    }
    text
}
