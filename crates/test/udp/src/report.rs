//! What one end of a UDP test knows at its end. An end sends this to the other, which joins the two into a result.

use longhaul_result::LocationMethod;
use longhaul_terms::{
    ChangedCounters, MAX_STREAMS, SocketBuffer, StreamSent, ThreadCpu, bounded_counters, bounded_list, bounded_name,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::account::{Arrivals, Spacing, StreamReceived};
use crate::locate::{Evidence, Total};
use crate::receive_settings::ReceiveSettings;

/// Longest list of streams in a report.
const MAX_LIST: usize = MAX_STREAMS as usize;
/// Most counters that tell of drops: some 10 of each queue of a large NIC.
const MAX_TOTALS: usize = 4096;

/// Most CPUs of a receiver, and most interfaces that it steers: more than machines have.
const MAX_CPUS: usize = 8192;
const MAX_INTERFACES: usize = 256;
/// Longest name of an interface (`ALTIFNAMSIZ` of Linux).
const MAX_NAME: usize = 128;

fn interface_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Name(#[serde(deserialize_with = "bounded_name::<_, MAX_NAME>")] String);
    let names: Vec<Name> = bounded_list::<_, _, MAX_INTERFACES>(deserializer)?;
    Ok(names.into_iter().map(|Name(name)| name).collect())
}

/// Where a receiver ran: its CPUs and those of its softirq.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Binding {
    /// CPUs of the receiver's threads; empty if the kernel chose.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_CPUS>")]
    pub receiver_cpus: Vec<u32>,
    /// CPUs that RPS used for the test's packets; empty if RPS was not changed.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_CPUS>")]
    pub softirq_cpus: Vec<u32>,
    /// The interfaces whose RPS was changed for the test.
    #[serde(deserialize_with = "interface_names")]
    pub interfaces: Vec<String>,
}

/// What a sender knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpSenderReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamSent>,
    /// What the thread of each stream used of its CPU.
    #[serde(default, deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub cpus: Vec<Option<ThreadCpu>>,
    /// Inter-departure times of all streams.
    pub spacing: Spacing,
    /// Median of the time that a packet took in a system call that sent several; `None` where none did, or where packets left as one.
    #[serde(default)]
    pub back_to_back_ns: Option<u64>,
    /// Drop events at this end, for each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub evidence: Vec<Evidence>,
    /// Drops at this end that only counters show.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_TOTALS>")]
    pub totals: Vec<Total>,
    /// Whether this end saw all its drops.
    pub complete: bool,
    /// Most packets that may have been dropped here without an event.
    #[serde(default)]
    pub unseen_packets: u64,
    /// How this end located drops.
    pub method: LocationMethod,
    /// Every counter that changed.
    #[serde(deserialize_with = "bounded_counters")]
    pub counters: ChangedCounters,
    /// The send buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
}

/// What a receiver knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpReceiverReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamReceived>,
    /// What the thread of each stream used of its CPU.
    #[serde(default, deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub cpus: Vec<Option<ThreadCpu>>,
    /// Drop events at this end, for each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub evidence: Vec<Evidence>,
    /// Drops at this end that only counters show.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_TOTALS>")]
    pub totals: Vec<Total>,
    /// Whether this end saw all its drops.
    pub complete: bool,
    /// Most packets that may have been dropped here without an event.
    #[serde(default)]
    pub unseen_packets: u64,
    /// How this end located drops.
    pub method: LocationMethod,
    /// Every counter that changed.
    #[serde(deserialize_with = "bounded_counters")]
    pub counters: ChangedCounters,
    /// The receive buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
    /// Inter-arrival times of all streams.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
    /// Settings of the interface by which the packets arrived.
    #[serde(default)]
    pub settings: Option<ReceiveSettings>,
    /// The CPUs that its threads and their softirq were bound to.
    #[serde(default)]
    pub binding: Option<Binding>,
}

/// What one end knows of a UDP test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpEndReport {
    /// If this end sent.
    pub sender: Option<UdpSenderReport>,
    /// If this end received.
    pub receiver: Option<UdpReceiverReport>,
}
