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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Time since the start, in nanoseconds.
    pub uptime_ns: u64,
    /// Lateness: from the time at which a run of packets was due until it was handed to the kernel, over all runs.
    pub lateness: Quantiles,
    /// How long the path's clock stood still, in nanoseconds, because packets were due faster than the emulator could send them. The path
    /// was slower by as much, and its queues fuller.
    pub clock_stood_ns: u64,
    /// Sum over all ports.
    pub own_fault: OwnFault,
    /// Wire packets dropped because a receiving host's ring was full: caused by neither the emulator nor the path.
    pub far_port_full_packets: u64,
    /// Clients, then servers.
    #[cfg_attr(feature = "schema", schemars(length(min = 2)))]
    pub ports: Vec<PortStatus>,
    /// Each host's access hops, then the shared hops forward, then those backward.
    #[cfg_attr(feature = "schema", schemars(length(min = 4)))]
    pub hops: Vec<HopStatus>,
    /// For packets from clients, and for packets from servers.
    #[cfg_attr(feature = "schema", schemars(length(equal = 2)))]
    pub memory: Vec<MemoryStatus>,
    /// CPU time of the emulating thread, in nanoseconds.
    pub cpu_ns: u64,
    /// How often the thread went to sleep.
    pub sleeps: u64,
    /// Rounds of the main loop.
    pub rounds: u64,
}

/// Drops by the emulator itself, not by the emulated path. A count other than 0 makes a measurement of loss invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnFault {
    /// Frames (a super-packet is one) dropped because the kernel's receive buffer was full.
    pub receive_overflow_frames: u64,
    /// Frames dropped between a lab's host and its port, whose ring or backlog was full: `tx_dropped` of the host's interface. 0
    /// without a lab.
    #[serde(default)]
    pub port_ring_full_frames: u64,
    /// Frames dropped because the payload memory was full.
    pub memory_full_frames: u64,
    /// Frames dropped because they were too long for the emulator.
    pub oversized_frames: u64,
    /// Wire packets that the kernel refused to send.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortStatus {
    /// Its interface.
    pub interface: String,
    /// The host at this interface.
    pub host: String,
    /// Whether the interface exists and is up.
    pub up: bool,
    /// From the host.
    pub received: Count,
    /// Frames among them; a super-packet is one.
    pub received_frames: u64,
    /// To the host.
    pub sent: Count,
    /// Frames among them; a super-packet is one.
    pub sent_frames: u64,
    /// Wire packets dropped because the host's receive ring was full.
    pub far_port_full_packets: u64,
    /// Wire packets that could not be sent because the interface was down or removed.
    pub port_down_packets: u64,
    /// Wire packets larger than the interface's MTU.
    pub too_large_packets: u64,
    /// This port's share of the emulator's own faults.
    pub own_fault: OwnFault,
    /// Frames that could not be segmented into wire packets, by protocol.
    pub not_segmented_frames: BTreeMap<String, u64>,
}

/// One hop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopStatus {
    /// Name of the hop, such as client.up (from the host to the path), client.down, forward.ring, backward.hop2.
    pub name: String,
    /// How long a packet that arrives now would wait in the queue, in nanoseconds.
    pub backlog_ns: u64,
    /// Wire packets in the hop: waiting, being sent, or in flight.
    pub held_packets: u64,
    /// What it did.
    #[serde(flatten)]
    pub counters: HopCounters,
}

/// Payload memory of one end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStatus {
    /// Size, in bytes.
    pub capacity_bytes: u64,
    /// In use now, in bytes.
    pub used_bytes: u64,
    /// Maximum in use so far, in bytes.
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
                    "1 % of the packets left {} or more late (packets that travel together count as one); the bound is {lateness_bound}",
                    Nanos(self.lateness.p99_ns).rounded()
                ),
                "give the emulator its own CPU (`cpus`, `spin`, `realtime`), end other programs, or send less",
            );
        }
        if self.clock_stood_ns > 0 {
            warn(
                caveats::EMULATOR_SLOWED,
                format!(
                    "packets were due faster than the emulator could send them: the path's clock stood still for {} of {}, so \
                     that the path was slower than its file says, and its queues dropped more",
                    Nanos(self.clock_stood_ns),
                    Nanos(self.uptime_ns)
                ),
                "give the emulator its own CPU (`cpus`, `realtime`), end other programs, or send less",
            );
        }
        let own = self.own_fault;
        let overrun = own.receive_overflow_frames + own.port_ring_full_frames;
        if overrun > 0 {
            warn(
                caveats::EMULATOR_OVERRUN,
                format!("{overrun} frames arrived faster than the emulator could receive them"),
                "give the emulator its own CPU (`cpus`), end other programs, or send less",
            );
        }
        if own.memory_full_frames > 0 {
            warn(
                caveats::EMULATOR_MEMORY_FULL,
                format!("{} frames found the payload memory full", own.memory_full_frames),
                "send less, or give each queue of the path a limit; where the emulator is late, give it its own CPU (`cpus`), or end other programs",
            );
        }
        if own.send_error_packets + own.oversized_frames > 0 {
            warn(
                caveats::EMULATOR_SEND_FAILED,
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
