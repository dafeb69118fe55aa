//! What happened to packets, hop by hop.

use serde::{Deserialize, Serialize};

use super::train::Count;

/// Wire packets at one hop, since the path was made.
///
/// `arrived + duplicated + fragmented = departed + dropped_loss + dropped_outage + dropped_mtu + dropped_policer + dropped_queue + held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopCounters {
    /// Arrived at the hop.
    pub arrived: Count,
    /// Left for the next hop or the host.
    pub departed: Count,
    /// Dropped by the loss law.
    pub dropped_loss: Count,
    /// Dropped in an outage.
    pub dropped_outage: Count,
    /// Dropped as longer than the MTU.
    pub dropped_mtu: Count,
    /// What cutting packets longer than the MTU added: packets beyond the first fragment of each, and bytes of their headers.
    #[serde(default)]
    pub fragmented: Count,
    /// Dropped by the policer, as it exceeded rate and burst.
    pub dropped_policer: Count,
    /// Dropped because the queue was full.
    pub dropped_queue: Count,
    /// Duplicates made.
    pub duplicated: Count,
    /// Corrupted: one bit flipped.
    pub corrupted: Count,
}

impl HopCounters {
    /// All packets that this hop dropped.
    pub fn dropped(&self) -> Count {
        let mut all = self.dropped_loss;
        all += self.dropped_outage;
        all += self.dropped_mtu;
        all += self.dropped_policer;
        all += self.dropped_queue;
        all
    }

    /// Packets that are in the hop now.
    pub fn held_packets(&self) -> u64 {
        self.arrived.packets + self.duplicated.packets + self.fragmented.packets
            - self.departed.packets
            - self.dropped().packets
    }
}
