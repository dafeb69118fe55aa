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
