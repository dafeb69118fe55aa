//! What a receiver says while a test runs.

use serde::{Deserialize, Serialize};

/// What a receiver got so far, for live lines: sums over its streams since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the first packet arrived, by the receiver's clock.
    pub elapsed_ns: u64,
    /// Packets received, without duplicates.
    pub received_packets: u64,
    /// Packets missing so far.
    pub missing_packets: u64,
    /// Duplicates.
    pub duplicate_packets: u64,
    /// Reordered packets.
    pub reordered_packets: u64,
    /// Payload bytes received, without duplicates.
    pub payload_bytes: u64,
}
