//! Drops by the kernel's counters, before and after a test: which counter means which place.

use crate::caveats;
use longhaul_kernel::counters::{Change, Scope, Snapshot};
use longhaul_kernel::driver_statistics::{Meaning, row};
use longhaul_result::Caveat;
use longhaul_result::Location;
use longhaul_terms::ChangedCounters;
use longhaul_udp::locate::{Total, TotalScope};

/// Counters of this host at one moment.
#[derive(Debug)]
pub(crate) struct Before(Snapshot);

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) totals: Vec<Total>,
    pub(crate) all: ChangedCounters,
    /// Counters that could not be read, and why.
    pub(crate) unread: Vec<String>,
    /// Whether, as far as is known, every place that drops packets here has a counter.
    pub(crate) complete: bool,
    /// Datagrams for which a socket of the host had no room.
    pub(crate) buffer_full_packets: u64,
    /// Packets whose header or checksum was wrong.
    pub(crate) damaged_packets: u64,
    /// Packets that the host's IP or UDP discarded for what their headers say, some of which may be damaged.
    pub(crate) strange_packets: u64,
}

/// Which of the kernel's own counters means which place; drivers' are in [`longhaul_kernel::driver_statistics`]. Names are
/// the kernel's: `if_link.h` for interfaces, `net/core/net-procfs.c` for softnet.
const PLACES: [(&str, Location); 4] = [
    ("dropped", Location::ReceiverBacklog),
    ("rx_missed_errors", Location::ReceiverRing),
    ("rx_fifo_errors", Location::ReceiverRing),
    ("rx_over_errors", Location::ReceiverRing),
];
/// UDP sockets had no room (RFC 4113 and `net/ipv4/proc.c`).
const BUFFER_FULL: [&str; 4] = ["Udp.RcvbufErrors", "Udp.MemErrors", "Udp6RcvbufErrors", "Udp6MemErrors"];
/// Packets were damaged. `InHdrErrors` counts wrong checksums of IP headers, too (`ip_rcv_core`).
const DAMAGED: [&str; 4] = ["Udp.InCsumErrors", "Udp6InCsumErrors", "Ip.InHdrErrors", "Ip6InHdrErrors"];
/// Packets to an address, protocol or port that is not there, or shorter than they say: so are damaged ones where no checksum covers the
/// header, as over IPv6.
const STRANGE: [&str; 10] = [
    "Ip.InAddrErrors",
    "Ip.InUnknownProtos",
    "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts",
    "Udp.NoPorts",
    "Ip6InAddrErrors",
    "Ip6InUnknownProtos",
    "Ip6InNoRoutes",
    "Ip6InTruncatedPkts",
    "Udp6NoPorts",
];
const UDP_ERRORS: [&str; 2] = ["Udp.InErrors", "Udp6InErrors"];
/// What of them is counted by its cause, too.
const UDP_ERRORS_KNOWN: [&str; 6] =
    ["Udp.RcvbufErrors", "Udp.MemErrors", "Udp.InCsumErrors", "Udp6RcvbufErrors", "Udp6MemErrors", "Udp6InCsumErrors"];
/// Packets that IP took in, and below everything that can happen to them but a filter: netfilter at prerouting and input counts nothing
/// (`ip_rcv_core`, `ip_rcv_finish_core`, `ip_local_deliver`). Fragments that are joined come in once more, as one.
const IP_IN: [&str; 4] = ["Ip.InReceives", "Ip6InReceives", "Ip.ReasmOKs", "Ip6ReasmOKs"];
const IP_OUT: [&str; 23] = [
    "Ip.InDelivers",
    "Ip.InHdrErrors",
    "Ip.InAddrErrors",
    "Ip.InDiscards",
    "Ip.InUnknownProtos",
    "Ip.ForwDatagrams",
    "Ip.ReasmReqds",
    "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts",
    "IpExt.InMcastPkts",
    "IpExt.InBcastPkts",
    "TcpExt.IPReversePathFilter",
    "Ip6InDelivers",
    "Ip6InHdrErrors",
    "Ip6InAddrErrors",
    "Ip6InDiscards",
    "Ip6InUnknownProtos",
    "Ip6OutForwDatagrams",
    "Ip6ReasmReqds",
    "Ip6InNoRoutes",
    "Ip6InTruncatedPkts",
    "Ip6InTooBigErrors",
    "Ip6InMcastPkts",
];

/// Packets that IP handed to neighbours and interfaces.
const IP_HANDED_OVER: [&str; 2] = ["Ip.OutTransmits", "Ip6OutTransmits"];
/// Packets for neighbours that did not answer, in both tables of neighbours.
const UNANSWERED: &str = "_cache.unresolved_discards";

impl Before {
    pub(crate) fn take() -> Self {
        Self(Snapshot::take())
    }

    /// What changed since, at a host that receives, or at one that sends.
    pub(crate) fn changes(&self, receives: bool) -> Changed {
        let after = Snapshot::take();
        let complete = after.generic_xdp.is_empty() && (!receives || after.unseen_rings.is_empty());
        let mut changed = Changed { complete, ..Changed::default() };
        changed.unread = after.unread.iter().map(|unread| format!("{} ({})", unread.what, unread.reason)).collect();
        for change in after.since(&self.0) {
            let name = format!("{}: {}", change.scope, change.name);
            if let Some(location) = place(&change, receives)
                && let Ok(packets @ 1..) = u64::try_from(change.by)
            {
                changed.totals.push(Total { location, reason: name.clone(), packets, scope: TotalScope::Host });
            }
            if let Some(pauses) = pause_frames(&change) {
                *changed.all.entry(pauses).or_default() += change.by;
            }
            changed.all.insert(name, change.by);
        }
        changed.bound_backlog();
        if !receives {
            changed.totals.extend(changed.neighbourless());
        }
        changed.buffer_full_packets = changed.sum(&BUFFER_FULL);
        changed.damaged_packets = changed.sum(&DAMAGED);
        // Errors of UDP that have no counter of their own: a length that is not the packet's.
        let other = changed.sum(&UDP_ERRORS).saturating_sub(changed.sum(&UDP_ERRORS_KNOWN));
        changed.strange_packets = changed.sum(&STRANGE) + other;
        let filtered = changed.sum(&IP_IN).saturating_sub(changed.sum(&IP_OUT));
        if receives && filtered > 0 {
            let reason = "taken in by IP and delivered to nobody: netfilter".into();
            let (location, scope) = (Location::ReceiverFilter, TotalScope::Host);
            changed.totals.push(Total { location, reason, packets: filtered, scope });
        }
        changed
    }
}

impl Changed {
    /// A caveat where some counters could not be read.
    pub(crate) fn unread_caveat(&self) -> Option<Caveat> {
        let [first, rest @ ..] = &self.unread[..] else { return None };
        let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        let message = format!("counters could not be read: {first}{more}");
        let remedy = "run as root; what they count may appear as `network` or `unexplained`";
        Some(Caveat::new(caveats::COUNTERS_UNREAD, message, remedy))
    }

    /// Packets dropped because their next hop did not answer. The kernel counts them for the whole machine; this host's are at most as many
    /// as its IP handed over and neither interfaces sent nor queues dropped.
    fn neighbourless(&self) -> Option<Total> {
        let all = |wanted: &dyn Fn(&str) -> bool| -> i64 {
            self.all.iter().filter(|(name, _)| wanted(name)).map(|(_, by)| by).sum()
        };
        let handed_over = self.sum(&IP_HANDED_OVER) as i64;
        let sent = all(&|name| name.ends_with(": tx_packets"));
        let queued =
            all(&|name| name.contains(" at root: ") && (name.ends_with(": drops") || name.ends_with(": qlen")));
        let discarded = all(&|name| name.ends_with(UNANSWERED));
        let packets = u64::try_from(discarded.min(handed_over - sent - queued)).unwrap_or(0);
        let (location, scope) = (Location::SenderStack, TotalScope::Host);
        let reason = "machine: unresolved_discards".into();
        (packets > 0).then_some(Total { location, reason, packets, scope })
    }

    /// Leaves of the drops in the machine's backlogs as many as this host's interfaces had: softnet counts for all network namespaces
    /// together, and each drop for the interface, too (`enqueue_to_backlog`).
    fn bound_backlog(&mut self) {
        let own =
            |(name, by): (&String, &i64)| if name.ends_with(": rx_dropped") { u64::try_from(*by).ok() } else { None };
        let mut left: u64 = self.all.iter().filter_map(own).sum();
        for total in self.totals.iter_mut().filter(|total| total.location == Location::ReceiverBacklog) {
            total.packets = total.packets.min(left);
            left -= total.packets;
        }
        self.totals.retain(|total| total.packets > 0);
    }

    /// By how much these counters of the host rose together.
    fn sum(&self, names: &[&str]) -> u64 {
        let of = |name: &&str| self.all.get(&format!("{}: {name}", Scope::Namespace)).copied().unwrap_or(0);
        names.iter().map(of).sum::<i64>().max(0) as u64
    }
}

/// Whether a counter of this name counts what no drop event reports: what never became a packet in the kernel's memory, in a NIC's
/// ring or at XDP in its driver.
pub(crate) fn without_event(location: Location, counter: &str) -> bool {
    location == Location::ReceiverRing || location == Location::ReceiverFilter && counter.contains(", driver ")
}

fn place(change: &Change, receives: bool) -> Option<Location> {
    let name = change.name.as_str();
    match &change.scope {
        // tc's filters are at a qdisc of their own kind, which queues nothing: of incoming packets, or (clsact) of both.
        Scope::Qdisc { kind, parent, .. } if name == "drops" => match kind.as_str() {
            "ingress" | "clsact" if receives => Some(Location::ReceiverFilter),
            "ingress" => None,
            "clsact" => Some(Location::SenderQdisc),
            // The root counts what the queues of its classes drop, too.
            _ => (!receives && parent == "root").then_some(Location::SenderQdisc),
        },
        Scope::Interface { .. } if !receives => {
            matches!(name, "tx_dropped" | "tx_errors").then_some(Location::SenderDevice)
        }
        // A counter that is part of another one would count twice.
        Scope::Driver { driver, .. } => row(driver, name)
            .filter(|row| row.part_of.is_none() && row.meaning.is_transmit() != receives)
            .and_then(|row| driver_place(row.meaning)),
        Scope::MachineCpu { .. } if name.ends_with(".unresolved_discards") => {
            (!receives).then_some(Location::SenderStack)
        }
        _ if receives => PLACES.iter().find(|(known, _)| *known == name).map(|(_, location)| *location),
        _ => None,
    }
}

/// What a driver's count of pause frames (IEEE 802.3 annex 31B) is called here, whatever the driver calls it; `None` for another counter.
fn pause_frames(change: &Change) -> Option<String> {
    let Scope::Driver { interface, driver } = &change.scope else { return None };
    let row = row(driver, &change.name).filter(|row| row.part_of.is_none())?;
    match row.meaning {
        Meaning::PauseReceived => Some(format!("{interface}: pause_frames_received")),
        Meaning::PauseSent => Some(format!("{interface}: pause_frames_sent")),
        _ => None,
    }
}

/// Where a driver's statistic says that packets were dropped.
fn driver_place(meaning: Meaning) -> Option<Location> {
    Some(match meaning {
        Meaning::RingFull | Meaning::DeviceMemoryFull | Meaning::NoMemory => Location::ReceiverRing,
        Meaning::FilterDrop | Meaning::XdpDrop | Meaning::XdpError => Location::ReceiverFilter,
        Meaning::TransmitDrop | Meaning::TransmitError => Location::SenderDevice,
        // Damaged frames were never the host's; the others are no drops of packets, or have no place.
        _ => return None,
    })
}
