//! The status of an emulator: packets passed, packets dropped by the path at each hop, and how exact the emulation was.

use crate::caveats;
use std::collections::BTreeMap;

use longhaul_path::network::{Count, HopCounters};
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::{Nanos, Quantiles};
use serde::{Deserialize, Serialize};

/// Default bound of lateness (p99). Beyond it a run is not trustworthy.
pub const DEFAULT_LATENESS_BOUND: Nanos = Nanos::from_micros(500);

/// An emulator at one instant. Counts are of wire packets since its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Time since the start.
    pub uptime_ns: u64,
    /// From the time when a run of packets was due until it was handed to the kernel, over all runs.
    pub lateness: Quantiles,
    /// Packets that the emulator lost itself.
    pub own_fault: OwnFault,
    /// Dropped by receivers whose ring was full. Neither the emulator nor the path lost these.
    pub far_port_full_packets: u64,
    /// Ports: clients, then servers.
    pub ports: Vec<PortStatus>,
    /// Hops of the path.
    pub hops: Vec<HopStatus>,
    /// Payload memory of each side.
    pub memory: Vec<MemoryStatus>,
    /// CPU time of the emulating thread.
    pub cpu_ns: u64,
    /// How often the thread slept.
    pub sleeps: u64,
    /// Rounds of its loop.
    pub rounds: u64,
}

/// Packets lost by the emulator and not by the path it emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnFault {
    /// The kernel's receive buffer was full, so these were never seen (frames; a super-packet is one).
    pub receive_overflow_frames: u64,
    /// Dropped between a host's interface and its port, whose ring or whose CPU's backlog was full, so these were never seen (frames).
    /// Known in labs only, as the host's interface counts them (`tx_dropped`), which does the same while the port is set down.
    #[serde(default)]
    pub port_ring_full_frames: u64,
    /// The payload memory was full (frames).
    pub memory_full_frames: u64,
    /// The frame was longer than the emulator takes (frames).
    pub oversized_frames: u64,
    /// The kernel refused to send (wire packets).
    pub send_error_packets: u64,
}

impl OwnFault {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.receive_overflow_frames
            + self.port_ring_full_frames
            + self.memory_full_frames
            + self.oversized_frames
            + self.send_error_packets
    }
}

/// One port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its interface.
    pub interface: String,
    /// The host behind it.
    pub host: String,
    /// Whether the interface is there and up.
    pub up: bool,
    /// Received from the host.
    pub received: Count,
    /// Frames among them.
    pub received_frames: u64,
    /// Sent to the host.
    pub sent: Count,
    /// Frames among them.
    pub sent_frames: u64,
    /// Dropped as the host's ring was full.
    pub far_port_full_packets: u64,
    /// Could not be sent because the interface was down or removed.
    pub port_down_packets: u64,
    /// Larger than the interface's MTU.
    pub too_large_packets: u64,
    /// This port's share of the emulator's own faults.
    pub own_fault: OwnFault,
    /// Frames that could not be cut into wire packets and passed whole, or could not be passed, by protocol.
    pub not_segmented_frames: BTreeMap<String, u64>,
}

/// One hop.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HopStatus {
    /// Its name, such as `forward.hop1` or `client.up`.
    pub name: String,
    /// How long a packet that arrives now would wait in its queue.
    pub backlog_ns: u64,
    /// Packets in it.
    pub held_packets: u64,
    /// What it did.
    #[serde(flatten)]
    pub counters: HopCounters,
}

/// Payload memory of one side.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Its size.
    pub capacity_bytes: u64,
    /// What frames use now.
    pub used_bytes: u64,
    /// The most that they used since the start.
    pub peak_bytes: u64,
}

impl Status {
    /// Caveats about the run. `lateness_bound` applies to the 99th percentile of lateness.
    pub fn caveats(&self, lateness_bound: Nanos) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let mut warn = |code: CaveatCode, message: String, remedy: &str| {
            caveats.push(Caveat::new(code, message, remedy));
        };
        if self.lateness.p99_ns > lateness_bound.0 {
            warn(
                caveats::EMULATOR_LATE,
                format!(
                    "1 % of packet runs left {} or more late; the bound is {lateness_bound}",
                    Nanos(self.lateness.p99_ns)
                ),
                "give the emulator its own CPU (`cpus`, `spin`, `realtime`), or send less",
            );
        }
        let own = self.own_fault;
        let overrun = own.receive_overflow_frames + own.port_ring_full_frames;
        if overrun > 0 {
            warn(
                caveats::EMULATOR_OVERRUN,
                format!("{overrun} frames arrived faster than the emulator could receive them"),
                "give the emulator its own CPU (`cpus`), or send less",
            );
        }
        if own.memory_full_frames > 0 {
            warn(
                caveats::EMULATOR_MEMORY_FULL,
                format!("{} frames found the payload memory full", own.memory_full_frames),
                "give the path a queue limit, or more memory (`memory`)",
            );
        }
        if own.send_error_packets + own.oversized_frames > 0 {
            warn(
                caveats::EMULATOR_NOT_PASSED,
                format!(
                    "the kernel refused to send {} packets, and {} frames were too long",
                    own.send_error_packets, own.oversized_frames
                ),
                "see not_segmented_frames of the ports, and make the MTUs of the path's interfaces equal",
            );
        }
        for port in self.ports.iter().filter(|port| !port.up) {
            warn(
                caveats::PORT_DOWN,
                format!("interface {} of {} is down or removed", port.interface, port.host),
                "set it up again; the emulator then uses it again",
            );
        }
        caveats
    }
}
