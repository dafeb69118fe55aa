//! What a receiver says while a test runs.

use longhaul_result::Location;
use serde::{Deserialize, Serialize};

/// Packets by the location of their loss, in the order of [`Location::ALL`].
pub type PacketsByLocation = [u64; Location::ALL.len()];

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
    /// Packets that this end's kernel dropped, as far as its drop events were read; zeros without such events.
    #[serde(default)]
    pub dropped_packets: PacketsByLocation,
    /// The same of a TCP test.
    #[serde(default)]
    pub dropped_data: DroppedData,
}

/// Packets with data that an end of a TCP test dropped, by the locations of a result; zeros without drop events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DroppedData {
    /// At the sender, between TCP and the wire.
    pub snd_txloss: u64,
    /// At the receiver, before its TCP.
    pub rcv_rxloss: u64,
    /// In the receiver's TCP, for lack of memory.
    pub tcp_pruning: u64,
}
