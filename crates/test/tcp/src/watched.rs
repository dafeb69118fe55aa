//! The result of watching connections of other programs. Programs may rely on the names.

use std::net::SocketAddr;

use longhaul_terms::ThreadCpu;
use serde::{Deserialize, Serialize};

use super::handshake::TcpEndOptions;
use super::limited::LimitedBy;
use super::loss::TcpDrop;
use super::receiving::{ReceiverLimitedBy, Receiving};
use super::report::{Retransmitted, SamplingCost};
use super::summary::FlowSummary;

/// The observed connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchResult {
    /// How long they were watched.
    pub duration_ns: u64,
    /// Each connection, in the order of first observation.
    pub connections: Vec<WatchedConnection>,
    /// Connections that were not followed because there were too many.
    pub connections_not_followed: u64,
    /// The cost of sampling.
    pub sampling: SamplingCost,
    /// The file with the samples, in the result's folder; `null` if none were kept.
    pub samples_file: Option<String>,
}

/// The direction of most of a connection's bytes, whose limits matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// From this end.
    Sending,
    /// To this end.
    Receiving,
}

/// What limits a connection in the direction of most of its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// The name of the greatest share in `limited_by` (sending) or `receiver_limited_by` (receiving).
    pub by: String,
    /// Share of the time, 0 to 1; for a receiver, of the time in which data arrived.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub share: f64,
    /// The evidence for it.
    pub evidence: String,
}

/// A connection of another program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedConnection {
    /// Its number: `stream` in the file with the samples.
    pub number: u32,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The kernel's identifier for the socket, unique until the machine restarts.
    pub cookie: u64,
    /// The name of the process that owns it; `null` if not known.
    pub program: Option<String>,
    /// The process's number.
    pub pid: Option<u32>,
    /// The user who owns it; `null` if only its end was observed.
    pub uid: Option<u32>,
    /// The control group (version 2) in which it was created.
    pub cgroup_id: Option<u64>,
    /// State at the last sample, as in RFC 9293 §3.3.2.
    pub state: String,
    /// When it was first observed, from the start of the watch.
    pub first_seen_ns: u64,
    /// When it was last observed.
    pub last_seen_ns: u64,
    /// Whether it began during the watch: then its numbers cover its whole life.
    pub began: bool,
    /// Whether it ended.
    pub ended: bool,
    /// Whether its last `TCP_INFO` is that of its end.
    pub last_is_final: bool,
    /// Its congestion control; `null` if only its end was observed.
    pub congestion_control: Option<String>,
    /// The direction of most of its bytes.
    pub flow: Flow,
    /// Payload bytes sent during the watch, without retransmissions; `null` before Linux 4.19.
    pub sent_bytes: Option<u64>,
    /// Payload bytes received in order during the watch (`tcpi_bytes_received`; the kernel counts the end of the stream as one).
    pub received_bytes: u64,
    /// Like `sent_bytes`, but since the connection began.
    pub total_sent_bytes: Option<u64>,
    /// Like `received_bytes`, but since the connection began.
    pub total_received_bytes: u64,
    /// Payload bits per second sent while it was observed.
    pub sent_rate_bps: u64,
    /// Payload bits per second received while it was observed.
    pub received_rate_bps: u64,
    /// What limits it; `null` if no data moved.
    pub limit: Option<Limit>,
    /// What limited its sending: shares of the time.
    pub limited_by: LimitedBy,
    /// What limited its receiving, as far as a receiver knows: shares of the time.
    pub receiver_limited_by: ReceiverLimitedBy,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Retransmitted payload bytes; `null` before Linux 4.19.
    pub retransmitted_bytes: Option<u64>,
    /// Retransmissions that the receiver did not need.
    pub spurious_retransmits: u64,
    /// Retransmission timeouts; `null` before Linux 6.7.
    pub timeouts: Option<u64>,
    /// Retransmissions, from the kernel's events; `null` without events.
    pub retransmitted: Option<Retransmitted>,
    /// Its packets that this host dropped; also empty if drops could not be observed.
    pub drops: Vec<TcpDrop>,
    /// Least round-trip time.
    pub min_rtt_ns: Option<u64>,
    /// Mean of the smoothed round-trip time.
    pub mean_rtt_ns: Option<u64>,
    /// Greatest smoothed round-trip time.
    pub max_rtt_ns: Option<u64>,
    /// Mean congestion window, bytes.
    pub mean_cwnd_bytes: Option<u64>,
    /// Greatest congestion window, bytes.
    pub max_cwnd_bytes: Option<u64>,
    /// Segment size, bytes.
    pub mss_bytes: u64,
    /// The receiver's estimate of the round-trip time; `null` if it has none.
    pub receiver_rtt_ns: Option<u64>,
    /// Mean of the unread data, bytes.
    pub mean_unread_bytes: u64,
    /// Most unread data, bytes.
    pub max_unread_bytes: u64,
    /// Largest window offered, bytes.
    pub max_receive_window_bytes: u64,
    /// Size of its receive buffer, as the kernel counts it, bytes; `null` if only its end was observed.
    pub receive_buffer_bytes: Option<u64>,
    /// Size of its send buffer, as the kernel counts it, bytes; `null` if only its end was observed.
    pub send_buffer_bytes: Option<u64>,
    /// Number of samples.
    pub samples: u64,
    /// The options that both ends agreed on.
    #[serde(default)]
    pub options: TcpEndOptions,
    /// Greatest data in flight, bytes.
    #[serde(default)]
    pub max_in_flight_bytes: u64,
    /// Times that its congestion window was cut, at least.
    #[serde(default)]
    pub loss_events: u64,
    /// Packets that arrived out of order: reordered, or behind a lost one (`tcpi_rcv_ooopack`, Linux 5.4).
    #[serde(default)]
    pub out_of_order_packets: u64,
    /// Packets that arrived at the other end with a mark of congestion (CE, RFC 3168), as it told (`tcpi_delivered_ce`); `null` before Linux 4.18.
    #[serde(default)]
    pub marked_packets: Option<u64>,
    /// The thread of its process that needed a CPU most while it was open; `null` if it was open for less than 0.2 s, or if this could not be
    /// read.
    #[serde(default)]
    pub busiest_thread: Option<ThreadCpu>,
}

impl Limit {
    /// The greatest limit of a flow, with its evidence.
    pub fn of(flow: Flow, summary: &FlowSummary, receiving: &Receiving) -> Option<Self> {
        match flow {
            Flow::Sending => {
                let (by, share) = summary.limited.shares().foremost()?;
                let seconds = share * summary.limited.elapsed_us as f64 / 1e6;
                let evidence = match by {
                    "receive_window" => {
                        format!("for {seconds:.2} s the peer's window was full (rwnd_limited, snd_wnd)")
                    }
                    "send_buffer" => format!(
                        "for {seconds:.2} s the send buffer was full, or all it held fitted the congestion window \
                         (sndbuf_limited, notsent_bytes)"
                    ),
                    "application" => format!("for {seconds:.2} s nothing waited to be sent (busy_time, notsent_bytes)"),
                    _ => format!(
                        "for {seconds:.2} s data waited with room in window and buffer; {} packets retransmitted",
                        summary.retransmits
                    ),
                };
                Some(Self { by: by.into(), share, evidence })
            }
            Flow::Receiving => {
                let shares = receiving.times.shares();
                let (by, share) = shares.foremost()?;
                let evidence = match by {
                    "application" => format!(
                        "{} bytes were unread on average, and the window offered no more",
                        receiving.mean_unread_bytes()
                    ),
                    "receive_window" => {
                        format!("each round trip filled the window of at most {} bytes", receiving.max_window_bytes)
                    }
                    _ => "its reader kept up and the window had room; the other end shows the cause".into(),
                };
                // Share of the time in which there was something to limit.
                let share = if shares.idle < 1.0 { share / (1.0 - shares.idle) } else { share };
                Some(Self { by: by.into(), share, evidence })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_that_of_the_direction_in_which_bytes_went() {
        let mut summary = FlowSummary::default();
        summary.limited.elapsed_us = 4_000_000;
        summary.limited.busy_us = 3_000_000;
        summary.limited.receive_window_us = 3_000_000;
        let mut receiving = Receiving::default();
        receiving.times.application_us = 1_000_000;
        receiving.times.idle_us = 3_000_000;
        let sending = Limit::of(Flow::Sending, &summary, &receiving).unwrap();
        assert_eq!((sending.by.as_str(), sending.share), ("receive_window", 0.75));
        assert_eq!(sending.evidence, "for 3.00 s the peer's window was full (rwnd_limited, snd_wnd)");
        let received = Limit::of(Flow::Receiving, &summary, &receiving).unwrap();
        assert_eq!((received.by.as_str(), received.share), ("application", 1.0));
        assert_eq!(Limit::of(Flow::Receiving, &summary, &Receiving::default()), None);
    }
}
