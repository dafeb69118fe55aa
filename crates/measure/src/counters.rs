//! Loss by counters: which of the kernel's, before and after, stands for which place.

use longhaul_kernel::counters::{Change, Interfaces, Scope, Snapshot};
use longhaul_kernel::driver_statistics::{Meaning, row};
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
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

/// Which of the kernel's own counters stands for which place; drivers' are in [`longhaul_kernel::driver_statistics`]. Names are the kernel's: RFC 4113 and `net/ipv4/proc.c` for `Udp.*`, `if_link.h`
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
        let after = Snapshot::take(Interfaces::All);
        changed.unread = after.unread.iter().map(|unread| format!("{} ({})", unread.what, unread.reason)).collect();
        for change in after.since(&self.0) {
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
    let name = change.name.as_str();
    match &change.scope {
        Scope::Qdisc { .. } => (!receives && name == "drops").then_some(Location::SenderQdisc),
        Scope::Interface { .. } if !receives => {
            matches!(name, "tx_dropped" | "tx_errors").then_some(Location::SenderDevice)
        }
        // What is part of another counter would count twice.
        Scope::Driver { driver, .. } => row(driver, name)
            .filter(|row| row.part_of.is_none() && row.meaning.is_transmit() != receives)
            .and_then(|row| driver_place(row.meaning)),
        _ if receives => PLACES.iter().find(|(known, _)| *known == name).map(|(_, location)| *location),
        _ => None,
    }
}

/// Where a driver's statistic says that packets were dropped.
fn driver_place(meaning: Meaning) -> Option<Location> {
    Some(match meaning {
        Meaning::RingFull | Meaning::DeviceMemoryFull | Meaning::NoMemory => Location::ReceiverRing,
        Meaning::FilterDrop | Meaning::XdpDrop | Meaning::XdpError => Location::ReceiverFilter,
        Meaning::TransmitDrop | Meaning::TransmitError => Location::SenderDevice,
        // Damaged frames never were the host's; the others are no loss of packets, or say no place.
        _ => return None,
    })
}
