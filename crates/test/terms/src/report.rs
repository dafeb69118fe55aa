//! What every kind of test reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a stream sent, by the sender's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSent {
    /// Packets handed to the socket, with sequences from 0 to `sent_packets` - 1; 0 for a TCP flow.
    pub sent_packets: u64,
    /// Payload bytes handed to the socket; only of a TCP flow.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Departure of the first packet; 0 if none was sent.
    pub first_sent_ns: u64,
    /// Departure of the last packet.
    pub last_sent_ns: u64,
}

/// Counters that changed during the test, with the difference.
pub type ChangedCounters = BTreeMap<String, i64>;

/// Counters of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndCounters {
    /// The sender's.
    pub sender: ChangedCounters,
    /// The receiver's.
    pub receiver: ChangedCounters,
}

/// A socket's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketBuffer {
    /// Requested size, bytes; `null` for the system's default.
    pub asked_bytes: Option<u64>,
    /// Size that the kernel granted, for packets and their bookkeeping, bytes: twice the requested size if it was granted in full
    /// (socket(7)).
    pub given_bytes: u64,
    /// The test names no size, and longhaul asked for one by itself: that of a UDP receiver holds 20 ms of the rate, within 16 MiB.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_default: bool,
}

/// What the thread that writes or reads a stream used of its CPU.
///
/// A thread that needs its whole CPU has a `cpu_time_ns` near `elapsed_ns`. One that others keep from the CPU has a large `run_delay_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadCpu {
    /// Time on a CPU. Softirq that interrupts the thread may count, too.
    pub cpu_time_ns: u64,
    /// Time in which it was ready to run and had no CPU; `null` if the kernel does not count it.
    pub run_delay_ns: Option<u64>,
    /// Time from the first byte or packet to the end of the thread's work.
    pub elapsed_ns: u64,
}

/// Round trips to the other host before a test and while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Before the first byte of the test.
    pub idle: RoundTrips,
    /// From then to the end of the test.
    pub loaded: RoundTrips,
}

/// Round trips of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// Probes sent.
    pub probes: u64,
    /// Probes that were answered.
    pub answered: u64,
    /// The median, nanoseconds; like the next ones 0 if none was answered.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

impl RoundTrips {
    /// Of the round trips of `probes`, in nanoseconds; `None` for one without an answer.
    pub fn of(probes: impl IntoIterator<Item = Option<u64>>) -> Self {
        let all: Vec<Option<u64>> = probes.into_iter().collect();
        let mut answered: Vec<u64> = all.iter().copied().flatten().collect();
        answered.sort_unstable();
        // The least value that so many percent do not exceed.
        let percentile = |percent: usize| {
            let rank = (answered.len() * percent).div_ceil(100);
            answered.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            probes: all.len() as u64,
            answered: answered.len() as u64,
            p50_ns: percentile(50),
            p90_ns: percentile(90),
            p99_ns: percentile(99),
            max_ns: percentile(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let trips = RoundTrips::of((1..=10).rev().map(Some).chain([None]));
        let expected = RoundTrips { probes: 11, answered: 10, p50_ns: 5, p90_ns: 9, p99_ns: 10, max_ns: 10 };
        assert_eq!(trips, expected);
        assert_eq!(RoundTrips::of([None, None]), RoundTrips { probes: 2, ..RoundTrips::default() });
    }
}
