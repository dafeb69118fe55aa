//! Loss by counters: which of the kernel's, before and after, stands for which place.

use longhaul_kernel::counters::{Change, Interfaces, Scope, Snapshot};
use longhaul_session::locate::{Location, Total, TotalScope};
use longhaul_session::result::ChangedCounters;

/// Counters of this host at one moment.
#[derive(Debug)]
pub(crate) struct Before(Snapshot);

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) totals: Vec<Total>,
    pub(crate) all: ChangedCounters,
}

/// Which counter stands for which place. Names are the kernel's: RFC 4113 and `net/ipv4/proc.c` for `Udp.*`, `if_link.h`
/// for interfaces, `net/core/net-procfs.c` for softnet.
const PLACES: [(&str, Location); 6] = [
    ("Udp.InCsumErrors", Location::ReceiverStack),
    ("Udp6InCsumErrors", Location::ReceiverStack),
    ("dropped", Location::ReceiverBacklog),
    ("rx_missed_errors", Location::ReceiverRing),
    ("rx_fifo_errors", Location::ReceiverRing),
    ("rx_over_errors", Location::ReceiverRing),
];

impl Before {
    pub(crate) fn take() -> Self {
        Self(Snapshot::take(Interfaces::All))
    }

    /// What changed since, at a host that receives or one that sends.
    pub(crate) fn changes(&self, receives: bool) -> Changed {
        let mut changed = Changed::default();
        for change in Snapshot::take(Interfaces::All).since(&self.0) {
            let name = format!("{}: {}", change.scope, change.name);
            if let Some(location) = place(&change, receives)
                && let Ok(packets @ 1..) = u64::try_from(change.by)
            {
                changed.totals.push(Total { location, reason: name.clone(), packets, scope: TotalScope::Host });
            }
            changed.all.insert(name, change.by);
        }
        changed
    }
}

fn place(change: &Change, receives: bool) -> Option<Location> {
    match (&change.scope, change.name.as_str()) {
        (Scope::Qdisc { .. }, "drops") if !receives => Some(Location::SenderQdisc),
        (Scope::Interface { .. }, "tx_dropped" | "tx_errors") if !receives => Some(Location::SenderDevice),
        (Scope::Driver { driver, .. }, name) if receives && driver == "veth" && name.starts_with("rx_queue_") => {
            name.ends_with("_drops").then_some(Location::ReceiverRing)
        }
        (_, name) if receives => PLACES.iter().find(|(known, _)| *known == name).map(|(_, location)| *location),
        _ => None,
    }
}
