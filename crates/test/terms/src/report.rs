//! What every kind of test tells of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a stream sent, by the sender's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSent {
    /// Packets handed to the socket: sequences 0 to this less one. Of a TCP flow 0.
    pub sent_packets: u64,
    /// Of a TCP flow: payload bytes handed to the socket.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Departure of the first; 0 where none was sent.
    pub first_sent_ns: u64,
    /// Departure of the last.
    pub last_sent_ns: u64,
}

/// Counters that changed during the test, with how far they went.
pub type ChangedCounters = BTreeMap<String, i64>;

/// Counters of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndCounters {
    /// The sender's.
    pub sender: ChangedCounters,
    /// The receiver's.
    pub receiver: ChangedCounters,
}

/// A socket's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketBuffer {
    /// What was asked for, bytes; `null` where the system's default was left.
    pub asked_bytes: Option<u64>,
    /// What the kernel gave for packets and its bookkeeping: twice what was asked where it gave all (socket(7)).
    pub given_bytes: u64,
}
