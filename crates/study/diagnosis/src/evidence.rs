//! What is known of one direction: both hosts, the path, and what each test or observation saw.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use longhaul_result::Location;
use longhaul_tcp::{LimitedBy, ReceiverLimitedBy};
use serde::{Deserialize, Deserializer, Serialize};

use crate::before::Before;
use crate::diagnosis::{Diagnosis, Role, TargetBasis};
use crate::events::{HostEvents, ShapingQdisc};

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
    /// How fast disks were that the user named.
    pub disks: Vec<DiskFacts>,
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
    /// Netfilter's table of connections; `null` if it has none.
    pub conntrack: Option<ConntrackFacts>,
    /// The CPU time that control groups allow the program; `null` if they do not limit it.
    pub cpu_limit: Option<CpuLimitFacts>,
    /// The memory that control groups allow the program; `null` if they do not limit it.
    pub memory_limit: Option<MemoryLimitFacts>,
}

/// Netfilter's table of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConntrackFacts {
    /// Connections in it.
    pub entries: u64,
    /// Connections that it may hold.
    pub most_entries: u64,
}

/// CPU time that a control group allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuLimitFacts {
    /// The group's folder.
    #[serde(deserialize_with = "folder")]
    pub folder: String,
    /// CPU time in each period, microseconds.
    pub quota_us: u64,
    /// The period, microseconds.
    pub period_us: u64,
}

/// Memory that a control group allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryLimitFacts {
    /// The group's folder.
    #[serde(deserialize_with = "folder")]
    pub folder: String,
    /// Memory, bytes; that of sockets is part of it.
    pub limit_bytes: u64,
}

/// Whether a shell reads this as words alone. What a host says of itself may be a lie, and stands in commands that people copy.
pub(crate) fn is_plain(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._:@+,- \t".contains(letter))
}

/// A word of a host; `placeholder` for what is none.
pub(crate) fn word<'a>(text: &'a str, placeholder: &'a str) -> &'a str {
    if is_plain(text) && !text.contains(char::is_whitespace) { text } else { placeholder }
}

fn folder<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(word(&String::deserialize(from)?, "/sys/fs/cgroup/GROUP").to_owned())
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
    /// Its link rate, bits per second; `null` for virtual ones.
    pub speed_bps: Option<u64>,
    /// Its MTU, bytes.
    pub mtu_bytes: Option<u64>,
}

/// How fast a disk was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskFacts {
    /// The host: the sender reads, the receiver writes.
    pub host: Role,
    /// The file that was read, or the folder that was written into.
    pub path: String,
    /// Bytes that were moved.
    pub bytes: u64,
    /// In this time.
    pub elapsed_ns: u64,
    /// Whether the page cache was left out.
    pub past_cache: bool,
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
    /// Such transfers over one connection, with pauses between them.
    Intervals,
    /// UDP at a rate.
    Rate,
    /// UDP in bursts.
    Burst,
    /// UDP packets of a size that must not be cut.
    Mtu,
    /// UDP packets with DSCP and ECN.
    Marks,
    /// No test: a connection of another program.
    Observed,
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
            Self::Intervals => "intervals",
            Self::Rate => "rate",
            Self::Burst => "burst",
            Self::Mtu => "mtu",
            Self::Marks => "marks",
            Self::Observed => "observed",
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

impl Run {
    /// The share of a host's CPU time that its hypervisor gave to others, if that makes the test void: a tenth or more.
    pub fn stolen(&self) -> Option<f64> {
        let ends = match self {
            Self::Tcp(run) => [run.sender_events, run.receiver_events],
            Self::Udp(run) => [run.sender_events, run.receiver_events],
            Self::Failed { .. } => return None,
        };
        ends.into_iter().filter_map(HostEvents::stolen).reduce(f64::max)
    }
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
    /// Bytes lost at each location.
    pub loss_bytes: BTreeMap<Location, u64>,
    /// The kernel's reasons at that location, each with its packets, the most first.
    pub loss_reasons: Vec<(String, u64)>,
    /// Payload bytes of a segment.
    pub mss_bytes: u64,
    /// What both ends agreed on.
    pub handshake: Box<Handshake>,
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
    /// Packets that arrived with a mark of congestion (CE); `null` if it was not seen.
    #[serde(default)]
    pub marked_packets: Option<u64>,
    /// Payload of each of several transfers over one connection; `null` if the test was one flow.
    #[serde(default)]
    pub transfer_bytes: Option<u64>,
    /// How long each of them took to arrive, from its first byte to its last; 0: not known, as the receiver read all of it at once.
    #[serde(default)]
    pub transfers_ns: Vec<u64>,
    /// What happened at the sender.
    #[serde(default)]
    pub sender_events: HostEvents,
    /// What happened at the receiver.
    #[serde(default)]
    pub receiver_events: HostEvents,
    /// The sender's own shaper, if it held back packets; `null` where it was not looked for.
    #[serde(default)]
    pub sender_shaper: Option<Box<ShapingQdisc>>,
    /// Of a connection that no test made; `null` of a test.
    #[serde(default)]
    pub observed: Option<Box<Observed>>,
}

/// How a connection was seen that no test made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observed {
    /// From where.
    pub from: Vantage,
    /// Payload bytes in this direction, without retransmissions.
    pub payload_bytes: u64,
    /// Whether its beginning was seen.
    pub began: bool,
    /// Packets that arrived out of order, where the vantage is the receiver; else 0.
    pub out_of_order_packets: u64,
    /// Greatest smoothed round-trip time, where the vantage is not the receiver; of packets the greatest sample.
    #[serde(default)]
    pub max_rtt_ns: Option<u64>,
    /// The socket's buffer at this end, for the direction of most bytes, as the kernel counts it; `null` if it was not seen.
    #[serde(default)]
    pub buffer_bytes: Option<u64>,
    /// What packets tell and the kernel's clocks do not; `null` without packets.
    pub packets: Option<PacketShares>,
}

/// Who saw a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Vantage {
    /// The kernel of the host that sends.
    Sender,
    /// The kernel of the host that receives: it sees windows and its reader, and not why the sender sends no more.
    Receiver,
    /// A capture, somewhere on the path.
    Packets,
}

/// Shares of a flow's time, inferred from packets alone, 0…1 (T-RAT, SIGCOMM 2002).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacketShares {
    /// Loss, and recovery from it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub congestion: f64,
    /// The window was still opening.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub slow_start: f64,
    /// Packets came evenly, at one rate.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub path_rate: f64,
    /// As much in each round trip, in a burst: the congestion window or the send buffer.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub sender_window: f64,
    /// Unknown.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub unclear: f64,
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
    /// Whether both ends use ECN (RFC 3168).
    pub ecn: Option<bool>,
    /// Whether packets reached the receiver of the data that ECN could mark: something takes the bits out if not.
    pub ecn_seen: Option<bool>,
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
                "the SYN arrived with the option at the server: something on the path removed it from the server's answer"
            }
            Some(_) => "the SYN arrived without the option at the server: something on the path removed it",
            None => "something on the path removed the option",
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
    /// ECN.
    pub ecn: bool,
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
    /// Packets lost at each location.
    pub loss_packets: BTreeMap<Location, u64>,
    /// The kernel's reasons at that location, each with its packets, the most first.
    pub loss_reasons: Vec<(String, u64)>,
    /// Runs of lost packets (RFC 3357's loss periods).
    pub loss_runs: u64,
    /// Duplicate packets.
    pub duplicate_packets: u64,
    /// Reordered packets (RFC 4737).
    pub reordered_packets: u64,
    /// One-way delay over the least one (RFC 5481): median; `null` if it was not seen.
    pub delay_p50_ns: Option<u64>,
    /// The same: 99 %.
    pub delay_p99_ns: Option<u64>,
    /// Each stream: packets sent and lost.
    pub streams: Vec<(u64, u64)>,
    /// The TOS byte or traffic class with which packets left.
    #[serde(default)]
    pub traffic_class: u8,
    /// With which ones packets arrived, and how many: only where one was set.
    #[serde(default)]
    pub traffic_classes: Vec<(u8, u64)>,
    /// What happened at the sender.
    #[serde(default)]
    pub sender_events: HostEvents,
    /// What happened at the receiver.
    #[serde(default)]
    pub receiver_events: HostEvents,
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
    /// An earlier diagnosis, compared with this one; `null` if none was given.
    #[serde(default)]
    pub before: Option<Before>,
    /// What each test saw.
    pub evidence: Evidence,
}

/// The diagnoses of connections that no test made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnosedFlows {
    /// Connections that were seen.
    pub connections: u64,
    /// Those that moved enough data for a diagnosis, most payload first; no more than were asked for.
    pub flows: Vec<DiagnosedFlow>,
}

/// The diagnosis of a connection, in the direction of most of its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnosedFlow {
    /// Its number in the result of `longhaul watch` or `longhaul analyze`.
    pub number: u64,
    /// The end that sends most.
    pub sender: SocketAddr,
    /// The other end.
    pub receiver: SocketAddr,
    /// The program of this host's end; `null` if not known.
    pub program: Option<String>,
    /// Payload bytes, without retransmissions.
    pub payload_bytes: u64,
    /// The answer.
    #[serde(flatten)]
    pub diagnosed: Diagnosed,
}

impl DiagnosedFlows {
    /// Puts the flows in order, most payload first.
    pub fn of(connections: u64, mut flows: Vec<DiagnosedFlow>) -> Self {
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.payload_bytes), flow.number));
        Self { connections, flows }
    }
}
