//! What is known of connections that somebody else made: the result of watching them, in the names that programs may rely on.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::limited::LimitedBy;
use super::loss::TcpDrop;
use super::receiving::{ReceiverLimitedBy, Receiving};
use super::report::{Retransmitted, SamplingCost};
use super::summary::FlowSummary;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WatchResult {
    /// How long it was watched.
    pub duration_ns: u64,
    /// Each connection, in the order in which they were seen first.
    pub connections: Vec<WatchedConnection>,
    /// Connections that were there and not followed, as there were too many.
    pub connections_not_followed: u64,
    /// What sampling took.
    pub sampling: SamplingCost,
    /// The file with the samples, in the result's folder; `null` where none were kept.
    pub samples_file: Option<String>,
}

/// Which way most of a connection's bytes went, and so whose limits matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// From this end.
    Sending,
    /// To this end.
    Receiving,
}

/// What limits a connection in the direction in which most of its bytes went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The name of the greatest share in `limited_by` (sending) or `receiver_limited_by` (receiving).
    pub by: String,
    /// Of the time, 0 to 1; of a receiver, of the time in which data came.
    pub share: f64,
    /// What shows it.
    pub evidence: String,
}

/// A connection of somebody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedConnection {
    /// Its number: `stream` in the file with the samples.
    pub number: u32,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The kernel's own name for the socket, of which there is no second as long as the machine runs.
    pub cookie: u64,
    /// The name of the process that has it; `null` where that could not be seen.
    pub program: Option<String>,
    /// Its number.
    pub pid: Option<u32>,
    /// The user it belongs to; `null` where only its end was seen.
    pub uid: Option<u32>,
    /// The control group (version 2) it was made in.
    pub cgroup_id: Option<u64>,
    /// State at the last sample, as in RFC 9293 §3.3.2.
    pub state: String,
    /// When it was seen first, from the beginning of the watch.
    pub first_seen_ns: u64,
    /// When it was seen last.
    pub last_seen_ns: u64,
    /// Whether it began while it was watched: its numbers are those of all of its life.
    pub began: bool,
    /// Whether it ended.
    pub ended: bool,
    /// Whether its last `TCP_INFO` is that of its end.
    pub last_is_final: bool,
    /// Its congestion control; `null` where only its end was seen.
    pub congestion_control: Option<String>,
    /// Which way most bytes went.
    pub flow: Flow,
    /// Payload bytes sent while it was watched, without those sent again; `null` before Linux 4.19.
    pub sent_bytes: Option<u64>,
    /// Payload bytes received in order while it was watched (`tcpi_bytes_received`; the kernel counts the end of the stream as one).
    pub received_bytes: u64,
    /// The same as `sent_bytes`, since the connection began.
    pub total_sent_bytes: Option<u64>,
    /// The same as `received_bytes`, since the connection began.
    pub total_received_bytes: u64,
    /// Payload bits a second while it was seen, sent.
    pub sent_rate_bps: u64,
    /// The same, received.
    pub received_rate_bps: u64,
    /// What limits it; `null` where nothing moved.
    pub limit: Option<Limit>,
    /// What limited what it sent, shares of the time.
    pub limited_by: LimitedBy,
    /// What limited what it received, as far as a receiver can tell.
    pub receiver_limited_by: ReceiverLimitedBy,
    /// Packets sent again.
    pub retransmits: u64,
    /// Payload bytes sent again; `null` before Linux 4.19.
    pub retransmitted_bytes: Option<u64>,
    /// Retransmissions that the receiver did not need.
    pub spurious_retransmits: u64,
    /// Retransmission timeouts; `null` before Linux 6.7.
    pub timeouts: Option<u64>,
    /// What the kernel's events told of retransmissions; `null` where they did not.
    pub retransmitted: Option<Retransmitted>,
    /// What this host dropped of it; empty also where that could not be seen.
    pub drops: Vec<TcpDrop>,
    /// Least round-trip time.
    pub min_rtt_ns: Option<u64>,
    /// Mean of the smoothed round-trip time.
    pub mean_rtt_ns: Option<u64>,
    /// Greatest of it.
    pub max_rtt_ns: Option<u64>,
    /// Mean congestion window, bytes.
    pub mean_cwnd_bytes: Option<u64>,
    /// Greatest.
    pub max_cwnd_bytes: Option<u64>,
    /// Segment size, bytes.
    pub mss_bytes: u64,
    /// The receiver's estimate of the round-trip time; `null` where it has none.
    pub receiver_rtt_ns: Option<u64>,
    /// Mean of what lay unread, bytes.
    pub mean_unread_bytes: u64,
    /// Most that lay unread, bytes.
    pub max_unread_bytes: u64,
    /// Largest window offered, bytes.
    pub max_receive_window_bytes: u64,
    /// What its receive buffer takes, as the kernel accounts for it; `null` where only its end was seen.
    pub receive_buffer_bytes: Option<u64>,
    /// The same of its send buffer.
    pub send_buffer_bytes: Option<u64>,
    /// Samples of it.
    pub samples: u64,
}

impl Limit {
    /// The foremost limit of a flow, with what shows it.
    pub fn of(flow: Flow, summary: &FlowSummary, receiving: &Receiving) -> Option<Self> {
        match flow {
            Flow::Sending => {
                let (by, share) = summary.limited.shares().foremost()?;
                let seconds = share * summary.limited.elapsed_us as f64 / 1e6;
                let evidence = match by {
                    "receive_window" => {
                        format!("for {seconds:.2} s the peer's window was full (rwnd_limited, snd_wnd)")
                    }
                    "send_buffer" => format!("for {seconds:.2} s the send buffer was full (sndbuf_limited)"),
                    "application" => format!("for {seconds:.2} s nothing waited to be sent (busy_time, notsent_bytes)"),
                    _ => format!(
                        "for {seconds:.2} s data waited with room in window and buffer; {} packets sent again",
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
                        "{} bytes lay unread on average, the window offered no more",
                        receiving.mean_unread_bytes()
                    ),
                    "receive_window" => {
                        format!("each round trip filled the window of at most {} bytes", receiving.max_window_bytes)
                    }
                    _ => "its reader kept up and the window had room; the other end tells more".into(),
                };
                // Of the time in which there was something to limit.
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
