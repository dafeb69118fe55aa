//! The slowest queue of a path, for a copy of that path.

use longhaul_result::Location;

use crate::diagnosis::about;
use crate::evidence::{Evidence, Purpose};
use crate::rules::{IPV6_MORE, Kind, Known, UDP_OVERHEAD, scaled};

/// A queue in the network that UDP filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    /// Its rate on the wire (L1), bits per second.
    pub rate_bps: u64,
    /// How long a packet waits when it is full, nanoseconds; `None` where no delay was seen.
    pub waits_ns: Option<u64>,
    /// What was sent to fill it, payload bits per second.
    pub sent_bps: u64,
    /// What arrived of that at the host.
    pub received_bps: u64,
}

/// Why a diagnosis does not tell the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoBottleneck {
    /// UDP was not tested.
    #[error("the diagnosis did not test UDP")]
    NotTested,
    /// No test met a limit.
    #[error("UDP met no limit up to {} of payload (see longhaul diagnose --rate)", about(*.0))]
    NotMet(u64),
    /// It is at a host.
    #[error("it is at a host ({0}), not on the path")]
    AtHost(Location),
    /// Nothing waits.
    #[error("a policer drops above {} of payload, which a path file cannot say", about(*.0))]
    Policer(u64),
    /// Others fill the queue, too.
    #[error("others filled the queue in the tests")]
    Competing,
}

/// The queue that the tests of a diagnosis met, which used IPv6 or IPv4.
///
/// # Errors
/// Why it is not known.
pub fn bottleneck(evidence: &Evidence, ipv6: bool) -> Result<Bottleneck, NoBottleneck> {
    let known = Known::of(evidence);
    let capacity = known.capacity.as_ref().ok_or(NoBottleneck::NotTested)?;
    match capacity.kind {
        Kind::NotMet => return Err(NoBottleneck::NotMet(capacity.udp_bps)),
        Kind::Sender => return Err(NoBottleneck::AtHost(Location::SenderQdisc)),
        Kind::Policer => return Err(NoBottleneck::Policer(capacity.udp_bps)),
        Kind::Competing => return Err(NoBottleneck::Competing),
        Kind::Shaper => {}
    }
    let runs = known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.sent_bps > capacity.udp_bps);
    let full = runs.max_by_key(|run| run.arrived_bps()).ok_or(NoBottleneck::NotTested)?;
    match full.main_place() {
        Some(place) if place != Location::Network => Err(NoBottleneck::AtHost(place)),
        _ => Ok(Bottleneck {
            rate_bps: scaled(
                capacity.udp_bps,
                if ipv6 { UDP_OVERHEAD + IPV6_MORE } else { UDP_OVERHEAD },
                capacity.payload_bytes,
            ),
            waits_ns: capacity.waits_ns,
            sent_bps: full.sent_bps,
            received_bps: full.arrived_bps(),
        }),
    }
}
