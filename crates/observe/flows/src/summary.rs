//! What is known of a flow when it ends.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::pace::{Bursts, Intervals};

/// A flow that has ended, or that the capture left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowSummary {
    /// Its number, in the order of first packets.
    pub flow: u64,
    /// What it speaks.
    pub protocol: Protocol,
    /// Who opened it; of flows that were open before the capture, who was seen first.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// Its first packet, nanoseconds since 1970.
    pub first_ns: i64,
    /// Its last packet.
    pub last_ns: i64,
    /// What only TCP has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionSummary>,
    /// From the client.
    pub forward: DirectionSummary,
    /// From the server.
    pub backward: DirectionSummary,
}

/// What a flow speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// FIN in both directions.
    Fin,
    /// RST.
    Reset,
    /// No packet came for longer than flows are kept.
    Idle,
    /// Too many others were open.
    Evicted,
    /// It had not when the capture did.
    Open,
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Fin => "fin",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::Open => "open",
        })
    }
}

/// What a TCP connection's two directions share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionSummary {
    /// Its SYN was captured.
    pub opened: bool,
    /// `fin` in both directions, `reset`, `idle` (nothing for longer than flows are kept), `evicted` (too many others were open),
    /// or `open` at the end of the capture.
    pub end: End,
    /// From SYN to the ACK that completes the handshake, as seen here: the path's whole round trip, with the hosts' own delay.
    pub handshake_rtt_ns: Option<i64>,
    /// From SYN to SYN-ACK: the part towards the server.
    pub handshake_server_ns: Option<i64>,
}

/// One direction of a flow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionSummary {
    /// Packets as captured: a super-packet is one.
    pub packets: u64,
    /// Packets on the wire, where a super-packet's segment size is known from the capture or from the handshake.
    pub wire_packets: u64,
    /// Bytes of frames, without FCS.
    pub frame_bytes: u64,
    /// Packets as captured with payload.
    pub data_packets: u64,
    /// Payload bytes, retransmissions included.
    pub payload_bytes: u64,
    /// Payload bytes, each once.
    pub unique_bytes: u64,
    /// Time between first and last data packet in which the capture lost packets; rate, intervals, bursts and silence exclude it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub left_out_ns: i64,
    /// Payload over the time from first to last data packet, in bits a second.
    pub payload_rate_bps: u64,
    /// The highest rate in a millisecond, payload bits a second.
    pub peak_1ms_bps: u64,
    /// The highest moving average over a second, in steps of 100 ms; 0 of shorter flows.
    pub peak_1s_bps: u64,
    /// The longest time between two data packets.
    pub longest_silence_ns: i64,
    /// Packets back to back.
    pub bursts: Bursts,
    /// Intervals between data packets.
    pub interval_quantiles_ns: Option<IntervalQuantiles>,
    /// What only TCP has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Box<TcpSummary>>,
    /// What only longhaul's probes have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSummary>,
}

impl FlowSummary {
    /// The mean round-trip time of the whole path: that from the capture to each end and back, as far as it is known; `None` if neither is.
    pub fn mean_rtt_ns(&self) -> Option<u64> {
        let parts = [&self.forward, &self.backward].map(|direction| direction.tcp.as_ref()?.rtt);
        let sum: f64 = parts.iter().flatten().map(|rtt| rtt.mean_ns).sum();
        parts.iter().any(Option::is_some).then_some(sum as u64)
    }
}

impl DirectionSummary {
    /// Packets on the wire that were lost: retransmitted and not in vain; of longhaul's probes those missing.
    pub fn lost_packets(&self) -> u64 {
        let tcp = self.tcp.as_ref().map_or(0, |tcp| {
            let in_vain = tcp.spurious_by_dsack.max(tcp.spurious_by_timestamp);
            tcp.retransmitted_wire_packets.saturating_sub(in_vain)
        });
        tcp.saturating_add(self.probe.map_or(0, |probe| probe.lost_packets))
    }
}

/// Quantiles of intervals, to a quarter of an octave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalQuantiles {
    /// Half are shorter.
    pub p50: f64,
    /// Nine tenths are shorter.
    pub p90: f64,
    /// All but a hundredth are shorter.
    pub p99: f64,
}

impl IntervalQuantiles {
    /// `None` without intervals. A quantile is the geometric middle of its bin.
    pub fn of(intervals: &Intervals) -> Option<Self> {
        let total: u64 = intervals.0.iter().map(|count| u64::from(*count)).sum();
        let at = |share: f64| {
            let wanted = (total as f64 * share).ceil().max(1.0) as u64;
            let mut below = 0;
            let bin = intervals.0.iter().position(|count| {
                below += u64::from(*count);
                below >= wanted
            });
            (bin.unwrap_or(0) as f64 / 4.0 + 0.125).exp2()
        };
        (total > 0).then(|| Self { p50: at(0.5), p90: at(0.9), p99: at(0.99) })
    }
}

/// Round-trip samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttSummary {
    /// How many.
    pub samples: u64,
    /// The shortest.
    pub min_ns: i64,
    /// Their mean.
    pub mean_ns: f64,
    /// The longest.
    pub max_ns: i64,
    /// Their standard deviation.
    pub stddev_ns: f64,
}

/// One direction of a TCP connection: the data in this direction, and the acknowledgments for it in the other.
///
/// Packets are packets as captured; `..._wire_packets` counts what super-packets stand for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpSummary {
    /// Maximum segment size that the receiver announced.
    pub mss_bytes: Option<u16>,
    /// The receiver's window scale as offered; more than 14 counts as 14 (RFC 7323 §2.3). `None` if it was not seen: then windows are unknown.
    pub window_scale: Option<u8>,
    /// Packets with data that had passed before.
    pub retransmitted_packets: u64,
    /// The same, as packets on the wire.
    pub retransmitted_wire_packets: u64,
    /// Bytes that passed more than once.
    pub retransmitted_bytes: u64,
    /// Of these packets, those after duplicate acknowledgments or SACK.
    pub fast_retransmissions: u64,
    /// Those after silence: timeouts and tail loss probes.
    pub timeout_retransmissions: u64,
    /// Those with an unknown cause: the acknowledgments' options were clipped, or only one direction was captured. The sum of all three is
    /// `retransmitted_packets`.
    pub retransmissions_of_unknown_cause: u64,
    /// Retransmissions of data that was lost before this point: its original did not pass here.
    pub retransmissions_of_unseen: u64,
    /// D-SACK blocks that came back (RFC 2883): data that the receiver had already.
    pub dsack_blocks: u64,
    /// Needless retransmissions, by D-SACK.
    pub spurious_by_dsack: u64,
    /// Needless retransmissions, whose acknowledgment echoes the original's time stamp (RFC 3522, Eifel).
    pub spurious_by_timestamp: u64,
    /// Packets reordered before this point.
    pub out_of_order_packets: u64,
    /// Duplicates that the network made: by their IP identification or time stamp, or within less time than a sender takes to react.
    pub duplicate_packets: u64,
    /// Packets captured behind their own acknowledgment, as a capture of several queues has them: neither reordered nor retransmitted.
    pub captured_behind_ack_packets: u64,
    /// Retransmitted, reordered and duplicate packets that were distinguished by time alone, without a round trip of the whole path: some may
    /// be another of the three kinds.
    #[serde(default)]
    pub late_packets_judged_without_rtt: u64,
    /// Bytes that never passed here though later ones did, or were acknowledged.
    pub missing_bytes: u64,
    /// Bytes that did not come, while the capture lost packets: nothing is known of them. No part of `missing_bytes`.
    pub not_captured_bytes: u64,
    /// Probes of one byte or none below what was sent.
    pub keep_alives: u64,
    /// Duplicate acknowledgments that came back (RFC 5681 §2).
    pub duplicate_acks: u64,
    /// Acknowledgments with SACK blocks that came back.
    pub sack_acks: u64,
    /// Acknowledgments that came back with options clipped: whether they had SACK or D-SACK blocks is not known.
    pub clipped_acks: u64,
    /// Acknowledgments that came back with a window of 0.
    pub zero_window_acks: u64,
    /// Time with that window.
    pub zero_window_ns: i64,
    /// Times that the sender filled the window to the brim.
    pub window_full: u64,
    /// The smallest window that the receiver announced, scaled.
    pub min_window_bytes: Option<u64>,
    /// The largest.
    pub max_window_bytes: Option<u64>,
    /// The most bytes in flight as seen here.
    pub max_in_flight_bytes: Option<u64>,
    /// Its mean over data packets.
    pub mean_in_flight_bytes: Option<f64>,
    /// From here to the receiver and back, by sequence numbers.
    pub rtt: Option<RttSummary>,
    /// The same by time stamps.
    pub timestamp_rtt: Option<RttSummary>,
    /// What limits it; `None` if only one direction was captured, or too little.
    pub limits: Option<Limits>,
}

/// Lengths of loss runs that are told apart.
pub const LOSS_RUN_LENGTHS: usize = 16;

/// UDP with longhaul's probe header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeSummary {
    /// What its packets are marked with.
    pub cookie: u32,
    /// The lowest sequence number that was seen.
    pub first_sequence: u64,
    /// The highest.
    pub last_sequence: u64,
    /// Packets, each once.
    pub unique_packets: u64,
    /// Missing between the lowest and the highest number.
    pub lost_packets: u64,
    /// Packets missing in gaps of the capture; `lost_packets` excludes them.
    pub not_captured_packets: u64,
    /// Runs of missing numbers.
    pub loss_runs: u64,
    /// How many of these runs have one packet, two, and so on; the last counts all that are longer.
    pub loss_run_lengths: [u32; LOSS_RUN_LENGTHS],
    /// Duplicate packets.
    pub duplicate_packets: u64,
    /// Packets with a lower number than one before (RFC 4737).
    pub reordered_packets: u64,
}

/// Packets that belong to no flow here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// All packets of the capture.
    pub packets: u64,
    /// Bytes of their frames.
    pub frame_bytes: u64,
    /// The first packet's time.
    pub first_ns: Option<i64>,
    /// The last one's.
    pub last_ns: Option<i64>,
    /// Not IP.
    pub not_ip_packets: u64,
    /// IP, neither TCP nor UDP, or with headers clipped away.
    pub other_packets: u64,
    /// Fragments; those of one datagram count as one packet of their flow when all have come.
    pub fragments: u64,
    /// Datagrams with missing fragments.
    pub incomplete_datagrams: u64,
    /// Flows that were summed up before their end, as too many were open.
    pub evicted_flows: u64,
    /// Packets with longhaul's probe header that are in no `probe`, as those before and what they skip are more than a capture of this
    /// length can have; at least so many.
    #[serde(default)]
    pub probes_left_out: u64,
    /// Packets with a time before that of the one before.
    pub time_steps_back: u64,
    /// Times between the first and the last packet in which the capture lost some, by its own account.
    pub gaps: u64,
    /// Their total length, which rates, intervals, bursts and silence exclude.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub left_out_ns: i64,
}

/// What an analysis comes to.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AnalyzeResult {
    /// Of all packets.
    pub totals: Totals,
    /// Flows in the capture, shown here or not.
    pub flows_total: u64,
    /// Those with the most bytes, the largest first.
    pub flows: Vec<FlowSummary>,
}

/// A port and address.
pub(crate) fn socket(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

/// Why a flow is summed up now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is over, or the capture is.
    Over,
    /// It was silent for long.
    Idle,
    /// Others needed its place.
    Evicted,
}
