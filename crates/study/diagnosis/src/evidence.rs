//! What is known of one direction: both hosts, the path, and what each test or observation saw.

use std::collections::BTreeMap;

use longhaul_result::Location;
use longhaul_tcp::{LimitedBy, ReceiverLimitedBy};
use serde::{Deserialize, Serialize};

use crate::before::Before;
use crate::diagnosis::{Diagnosis, TargetBasis};

/// The evidence of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Evidence {
    /// What the user named with `--rate`, bits per second on the wire.
    pub named_target_bps: Option<u64>,
    /// Whether the tests run over IPv6.
    pub ipv6: bool,
    /// The host that sends the data.
    pub sender: HostFacts,
    /// The host that receives it.
    pub receiver: HostFacts,
    /// The tests, in the order in which they ran.
    pub runs: Vec<Run>,
}

impl Evidence {
    /// IP and UDP headers of a packet without options, bytes.
    pub(crate) fn udp_headers(&self) -> u64 {
        if self.ipv6 { 48 } else { 28 }
    }
}

/// What is known of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// Kernel parameters by name, as sysctl(8) prints them.
    pub sysctls: BTreeMap<String, String>,
    /// The interface that the test used, or the only one; `null` if none is known.
    pub link: Option<LinkFacts>,
    /// What `longhaul host` says of it: code, message, remedy.
    pub caveats: Vec<[String; 3]>,
}

impl HostFacts {
    /// The last number of a kernel parameter: the number itself, or the maximum of minimum, default, maximum.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.sysctls.get(key)?.split_ascii_whitespace().last()?.parse().ok()
    }
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LinkFacts {
    /// Its name.
    pub name: String,
    /// Its speed, bits per second; `null` for virtual ones.
    pub speed_bps: Option<u64>,
    /// Its MTU, bytes.
    pub mtu_bytes: Option<u64>,
}

/// What a test was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The path without load: a flow far below the target.
    Idle,
    /// One flow as an application gets it.
    Default,
    /// One flow with buffers as large as the path needs.
    LargeBuffers,
    /// One flow with another congestion control, and large buffers.
    OtherControl,
    /// Several flows.
    SeveralFlows,
    /// A transfer of the size that the user named.
    Transfer,
    /// UDP at a rate.
    Rate,
    /// UDP in bursts.
    Burst,
    /// UDP packets of a size that must not be cut.
    Mtu,
}

impl Purpose {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Default => "default",
            Self::LargeBuffers => "large_buffers",
            Self::OtherControl => "other_control",
            Self::SeveralFlows => "several_flows",
            Self::Transfer => "transfer",
            Self::Rate => "rate",
            Self::Burst => "burst",
            Self::Mtu => "mtu",
        }
    }
}

/// A test, or an observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Run {
    /// TCP.
    Tcp(TcpFacts),
    /// UDP.
    Udp(UdpFacts),
    /// It did not come to its end.
    Failed {
        /// What it was for.
        purpose: Purpose,
        /// Why it ended.
        why: String,
    },
}

/// What a TCP test, or an observed connection, saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpFacts {
    /// What it was for.
    pub purpose: Purpose,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// The socket buffers that were asked for, bytes; `null` for the kernel's autotuning.
    pub window_bytes: Option<u64>,
    /// Payload bits per second over the whole test.
    pub goodput_bps: u64,
    /// Payload bits per second in the second half of the test.
    pub steady_bps: u64,
    /// Its time.
    pub duration_ns: u64,
    /// Least round-trip time.
    pub min_rtt_ns: Option<u64>,
    /// Mean of the smoothed round-trip time.
    pub mean_rtt_ns: Option<u64>,
    /// What limited the sender: shares of the time.
    pub limited_by: LimitedBy,
    /// What limited the receiver: shares of the time; `null` if it was not seen.
    pub receiver_limited_by: Option<ReceiverLimitedBy>,
    /// Greatest data in flight, bytes, over all flows; `null` if it was not seen.
    pub max_in_flight_bytes: Option<u64>,
    /// Packets sent, retransmissions included.
    pub sent_packets: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Of these, what the receiver had already.
    pub spurious_retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times that the window was cut, at least; `null` if it was not seen.
    pub loss_events: Option<u64>,
    /// Bytes lost at each place.
    pub loss_bytes: BTreeMap<Location, u64>,
    /// The place's reason in the kernel's words, with its packets, the most first.
    pub loss_reasons: Vec<(String, u64)>,
    /// Payload bytes of a segment.
    pub mss_bytes: u64,
    /// What both ends agreed on.
    pub handshake: Handshake,
    /// The sending threads.
    pub sender_cpu: Option<CpuFacts>,
    /// The receiving threads.
    pub receiver_cpu: Option<CpuFacts>,
    /// Each flow.
    pub flows: Vec<FlowFacts>,
    /// What the receiver's TCP dropped or shrank for lack of memory.
    pub receiver_memory_drops: u64,
    /// Packets with a wrong checksum at the receiver (`InCsumErrors`).
    pub checksum_errors: u64,
}

/// The options of a connection; `null` where it was not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Handshake {
    /// Whether both ends use window scaling (RFC 7323).
    pub window_scaling: Option<bool>,
    /// Whether both ends use selective acknowledgements (RFC 2018).
    pub sack: Option<bool>,
    /// Whether both ends use time stamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// The options of the SYN as the server received it; `null` if the server cannot tell.
    pub syn: Option<SynFacts>,
    /// Whether the client sent the data, and so the SYN.
    pub client_sends: bool,
}

impl Handshake {
    /// Where an option went that both hosts have switched on and the connection does not use, by the SYN that arrived.
    pub(crate) fn taken_out(&self, offered: fn(&SynFacts) -> bool) -> &'static str {
        match self.syn {
            Some(syn) if offered(&syn) => {
                "the SYN arrived with the option at the server: something took it out of the server's answer"
            }
            Some(_) => "the SYN arrived without the option at the server: something took it out on the way there",
            None => "something took the option out of the handshake",
        }
    }
}

/// The options of a SYN as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SynFacts {
    /// Window scaling.
    pub window_scaling: bool,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Time stamps.
    pub timestamps: bool,
    /// The largest segment that it allows, bytes.
    pub mss_bytes: Option<u64>,
}

/// What threads did with their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuFacts {
    /// Time on a CPU, of the busiest thread.
    pub cpu_time_ns: u64,
    /// Time ready to run without a CPU, of that thread.
    pub run_delay_ns: u64,
    /// Time of the test.
    pub elapsed_ns: u64,
}

/// One flow of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowFacts {
    /// Payload bits per second.
    pub goodput_bps: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// The sender's port.
    pub sender_port: u16,
}

/// What a UDP test saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpFacts {
    /// What it was for.
    pub purpose: Purpose,
    /// Payload of a packet, bytes.
    pub payload_bytes: u64,
    /// Payload bits per second that were asked for; `null` for as fast as possible.
    pub asked_bps: Option<u64>,
    /// Payload bits per second handed to the socket.
    pub sent_bps: u64,
    /// Payload bits per second received.
    pub received_bps: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets lost.
    pub lost_packets: u64,
    /// Packets lost at each place.
    pub loss_packets: BTreeMap<Location, u64>,
    /// The place's reason in the kernel's words, with its packets, the most first.
    pub loss_reasons: Vec<(String, u64)>,
    /// Runs of lost packets (RFC 3357's loss periods).
    pub loss_runs: u64,
    /// Packets that came twice.
    pub duplicate_packets: u64,
    /// Packets that came late (RFC 4737).
    pub reordered_packets: u64,
    /// One-way delay over the least one (RFC 5481): median; `null` if it was not seen.
    pub delay_p50_ns: Option<u64>,
    /// The same: 99 %.
    pub delay_p99_ns: Option<u64>,
    /// Each stream: packets sent and lost.
    pub streams: Vec<(u64, u64)>,
    /// The sending thread.
    pub sender_cpu: Option<CpuFacts>,
    /// The receiving thread.
    pub receiver_cpu: Option<CpuFacts>,
}

/// The rate that a flow should reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Bits per second on the wire (L1).
    pub rate_bps: u64,
    /// Where it comes from.
    pub basis: TargetBasis,
}

/// The diagnosis of one direction, with what it was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosed {
    /// The answer.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
    /// An earlier diagnosis beside this one; `null` if none was given.
    #[serde(default)]
    pub before: Option<Before>,
    /// What each test saw.
    pub evidence: Evidence,
}
