//! What one end of a TCP test knows at its end.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use super::handshake::SynReceived;
use super::loss::TcpDrop;
use super::receiving::ReceiverSummary;
use super::series::MAX_SAMPLES;
use super::summary::{CountedRetransmits, FlowSummary};
use crate::proof::TcpStreamId;
use longhaul_result::LocationMethod;
use longhaul_terms::{
    ChangedCounters, MAX_STREAMS, SocketBuffer, ThreadCpu, bounded_counters, bounded_list, bounded_name, cut_words,
};

/// Most connections of an end: every stream in both directions.
const MOST_STREAMS: usize = 2 * MAX_STREAMS as usize;
/// Most kinds of drops that an end reports.
const MOST_DROPS: usize = 4096;
/// Most transfers of a flow that are reported.
pub const MOST_TRANSFERS: usize = 1024;
/// Longest name of a congestion control; the kernel's have 15 bytes.
const MOST_NAME: usize = 64;
/// Bytes of why a flow ended early that are kept.
const MOST_FAILURE: usize = 1024;
/// Most changes of the congestion control.
const MOST_CHANGES: usize = 256;
/// Time by which an end may sample longer than the other, beside twice its time: as long as a report may take.
const OTHER_END_NS: u64 = 60_000_000_000;
/// The shortest time between two samples that can be asked for.
const LEAST_INTERVAL_NS: u64 = 1_000_000;

/// What one end knows of a TCP test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TcpEndReport {
    /// Each connection.
    #[serde(deserialize_with = "bounded_list::<_, _, MOST_STREAMS>")]
    pub streams: Vec<TcpStreamReport>,
    /// Drops at this end.
    #[serde(deserialize_with = "bounded_list::<_, _, MOST_DROPS>")]
    pub drops: Vec<TcpDrop>,
    /// How this end located drops.
    pub method: LocationMethod,
    /// Whether this end saw all its drops.
    pub complete: bool,
    /// Every counter that changed.
    #[serde(deserialize_with = "bounded_counters")]
    pub counters: ChangedCounters,
    /// The cost of sampling.
    pub sampling: SamplingCost,
    /// Unix time minus this end's `CLOCK_MONOTONIC` at the end of the test, nanoseconds; `None` from older versions.
    #[serde(default)]
    pub unix_offset_ns: Option<i64>,
}

/// What one end knows of one connection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TcpStreamReport {
    /// Whether the server sends on it.
    pub backward: bool,
    /// Its number within its direction.
    pub stream: u8,
    /// Whether this end sends.
    pub sends: bool,
    /// This end's address; `null` from older versions.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// This end's port.
    pub port: u16,
    /// Payload bytes handed to the socket or read from it, without the omitted time.
    pub bytes: u64,
    /// Payload bytes in the omitted time.
    pub omitted_bytes: u64,
    /// When `bytes` began to count, on this end's `CLOCK_MONOTONIC`; 0 if there were none.
    pub first_ns: u64,
    /// When the last bytes, or the end of the stream, arrived.
    pub last_ns: u64,
    /// Congestion controls that were used, in order.
    #[serde(deserialize_with = "bounded_list::<_, _, MOST_CHANGES>")]
    pub congestion: Vec<CongestionSince>,
    /// The summary of its samples, without the omitted time.
    pub summary: FlowSummary,
    /// What was retransmitted in the omitted time, by TCP's counters.
    #[serde(default)]
    pub omitted_retransmits: CountedRetransmits,
    /// Greatest congestion window in the omitted time, bytes.
    #[serde(default)]
    pub omitted_max_cwnd_bytes: Option<u64>,
    /// What the receiving end saw; `null` at the sending end.
    #[serde(default)]
    pub receiving: Option<ReceiverSummary>,
    /// The SYN that opened it, as it arrived; `null` at the client, and without `TCP_SAVE_SYN`.
    #[serde(default)]
    pub syn_received: Option<SynReceived>,
    /// What its thread used of its CPU; `null` if no data moved.
    #[serde(default)]
    pub cpu: Option<ThreadCpu>,
    /// At the receiving end: how long each transfer took to arrive, from its first byte to its last (0: all of it was read at once); empty where the
    /// flow is one.
    #[serde(default, deserialize_with = "bounded_list::<_, _, MOST_TRANSFERS>")]
    pub transfers_ns: Vec<u64>,
    /// Retransmissions, from the kernel's events; `null` without events.
    pub retransmitted: Option<Retransmitted>,
    /// The send buffer.
    pub send_buffer: Option<SocketBuffer>,
    /// The receive buffer.
    pub receive_buffer: Option<SocketBuffer>,
    /// Why it ended early; `null` if it did not.
    #[serde(default, deserialize_with = "failure")]
    pub failure: Option<String>,
    /// The samples, if they are kept: a [`Series`](super::Series) as text.
    pub samples: Option<String>,
}

fn failure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let words = Option::<String>::deserialize(deserializer)?;
    Ok(words.map(|words| cut_words(words, MOST_FAILURE)))
}

/// A congestion control, and since when it was used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CongestionSince {
    /// Time on this end's `CLOCK_MONOTONIC`; 0 for the first one.
    pub at_ns: u64,
    /// The kernel's name.
    #[serde(deserialize_with = "bounded_name::<_, MOST_NAME>")]
    pub name: String,
}

/// Retransmissions by the tracepoint `tcp:tcp_retransmit_skb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retransmitted {
    /// Packets.
    pub packets: u64,
    /// Payload bytes.
    pub payload_bytes: u64,
    /// Bytes of the IP packets.
    pub ip_bytes: u64,
}

/// The cost of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SamplingCost {
    /// Requested time between two samples of a stream or connection.
    pub interval_ns: u64,
    /// One of this many samples was kept for the file; 0 if none are kept.
    pub kept_one_of: u32,
    /// Samples of all streams or connections.
    pub samples: u64,
    /// CPU time of the sampling thread.
    pub cpu_time_ns: u64,
    /// Sampled time.
    pub elapsed_ns: u64,
}

impl SamplingCost {
    /// Samples of a flow that the other end of this end's test can have. It may begin earlier, end later and sample at each change of the
    /// congestion control: twice the time, a minute and some more, but no more than [`MAX_SAMPLES`].
    pub fn most_of_other_end(&self) -> usize {
        if self.elapsed_ns == 0 {
            // This end took none, and knows no time.
            return MAX_SAMPLES;
        }
        let time_ns = self.elapsed_ns.saturating_mul(2).saturating_add(OTHER_END_NS);
        let samples = time_ns / self.interval_ns.max(LEAST_INTERVAL_NS);
        usize::try_from(samples).map_or(MAX_SAMPLES, |samples| samples.saturating_add(MOST_CHANGES).min(MAX_SAMPLES))
    }
}

impl TcpStreamReport {
    /// Which stream it is.
    pub fn id(&self) -> TcpStreamId {
        TcpStreamId { backward: self.backward, stream: self.stream }
    }
}

impl TcpEndReport {
    /// The connections of a direction that this end sends, or receives, in order.
    pub fn of(&self, backward: bool, sends: bool) -> impl Iterator<Item = &TcpStreamReport> {
        let mut streams: Vec<_> =
            self.streams.iter().filter(|stream| stream.backward == backward && stream.sends == sends).collect();
        streams.sort_by_key(|stream| stream.stream);
        streams.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each 10 ms of 0.5 s is 50 samples; this end knows nothing of the other's time.
    #[test]
    fn the_other_end_has_few_samples_of_a_short_test() {
        let most = |interval_ns, elapsed_ns| {
            SamplingCost { interval_ns, elapsed_ns, ..SamplingCost::default() }.most_of_other_end()
        };
        assert_eq!(most(10_000_000, 500_000_000), 2 * 50 + 6_000 + 256);
        // A test of a day, and an end that took no samples itself.
        assert_eq!(most(1_000_000, 86_400_000_000_000), MAX_SAMPLES);
        assert_eq!(most(1_000_000, u64::MAX), MAX_SAMPLES);
        assert_eq!(most(0, 0), MAX_SAMPLES);
        assert_eq!(most(0, 1), 60_000 + 256);
    }
}
