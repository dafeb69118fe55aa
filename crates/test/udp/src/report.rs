//! What one end of a UDP test knows when it is over: what it sends to the other, who joins the two into a result.

use longhaul_result::LocationMethod;
use longhaul_terms::{ChangedCounters, MAX_STREAMS, SocketBuffer, StreamSent, bounded_list};
use serde::{Deserialize, Serialize};

use crate::account::{Spacing, StreamReceived};
use crate::locate::evidence::of_message;
use crate::locate::{Evidence, Total};

/// Longest list of streams in a report.
const MAX_LIST: usize = MAX_STREAMS as usize;

/// Where a receiver ran: `-A`, `--softirq`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Binding {
    /// CPUs of its threads; empty where the kernel chose.
    pub receiver_cpus: Vec<u32>,
    /// CPUs that RPS had its packets go up the stack on; empty where it was left as it was.
    pub softirq_cpus: Vec<u32>,
    /// The interfaces whose RPS was set for the test.
    pub interfaces: Vec<String>,
}

/// What a sender knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamSent>,
    /// Inter-departure times of all of them.
    pub spacing: Spacing,
    /// Drop events at this end, each stream.
    #[serde(deserialize_with = "of_message")]
    pub evidence: Vec<Evidence>,
    /// Counters of drops at this end that no event covers.
    pub totals: Vec<Total>,
    /// Whether every place of this end was seen.
    pub complete: bool,
    /// Packets that may have been dropped here all the same, at most.
    #[serde(default)]
    pub doubtful_packets: u64,
    /// How this end looked.
    pub method: LocationMethod,
    /// Every counter that changed.
    pub counters: ChangedCounters,
    /// The send buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
}

/// What a receiver knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamReceived>,
    /// Drop events at this end, each stream.
    #[serde(deserialize_with = "of_message")]
    pub evidence: Vec<Evidence>,
    /// Counters of drops at this end that no event covers.
    pub totals: Vec<Total>,
    /// Whether every place of this end was seen.
    pub complete: bool,
    /// Packets that may have been dropped here all the same, at most.
    #[serde(default)]
    pub doubtful_packets: u64,
    /// How this end looked.
    pub method: LocationMethod,
    /// Every counter that changed.
    pub counters: ChangedCounters,
    /// The receive buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
    /// The CPUs that its threads and their softirq were bound to.
    #[serde(default)]
    pub binding: Option<Binding>,
}

/// What one end knows of a UDP test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpEndReport {
    /// Where it sent.
    pub sender: Option<SenderReport>,
    /// Where it received.
    pub receiver: Option<ReceiverReport>,
}
