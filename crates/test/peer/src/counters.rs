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

/// What a host sends in a UDP test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Of each packet.
    pub(crate) payload_bytes: u64,
    pub(crate) is_ipv6: bool,
    /// Packets that the kernel took.
    pub(crate) packets: u64,
    /// In how many pieces it took them: a super-packet is one.
    pub(crate) units: u64,
    /// Packets that the kernel may handle as one.
    pub(crate) unit_packets_most: u64,
}

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
    /// Packets that the host's IP or UDP discarded because of their headers, which may be damaged.
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

/// Packets that IP handed to neighbours and interfaces, and their bytes (`ip_finish_output2`).
const HANDED_OVER: [&str; 2] = ["Ip.OutTransmits", "Ip6OutTransmits"];
const HANDED_OVER_BYTES: [&str; 2] = ["IpExt.OutOctets", "Ip6OutOctets"];
/// Headers of a UDP packet over IPv4 where it is handed over, and in an interface. One over IPv6 has [`IPV6_MORE`] bytes more at both.
const HANDED_HEADERS: u64 = 20 + UDP_HEADER;
const FRAME_HEADERS: u64 = 14 + HANDED_HEADERS;
/// Fragments behind the first one have none.
const UDP_HEADER: u64 = 8;
const IPV6_MORE: u64 = 20;
/// What these leave out of the headers of a segment over IPv6, or of TCP with its options, at most.
const SEGMENT_MORE: u64 = 72;
/// Segments of TCP, over IPv4 and IPv6.
const TCP_SEGMENTS: [&str; 1] = ["Tcp.OutSegs"];
/// Fragments over IPv4, and packets that were cut into them.
const FRAGMENTS: [&str; 1] = ["Ip.FragCreates"];
const FRAGMENTED: [&str; 1] = ["Ip.FragOKs"];
/// What an end says to the other one beside the test's packets, about: messages, acknowledgments, and the proof of the data path.
const CONVERSATION_BYTES: u64 = 4_096;
/// Packets that found the queue of a neighbour full, over IPv4 and IPv6.
const UNANSWERED: [&str; 2] = ["arp_cache.unresolved_discards", "ndisc_cache.unresolved_discards"];
/// Neighbours that did not answer. What waited for one is dropped, and is counted nowhere.
const FAILED: [&str; 2] = ["arp_cache.res_failed", "ndisc_cache.res_failed"];
/// Packets that wait for a neighbour at most: they take 768 bytes each at least (`skb->truesize`), and together what `unres_qlen_bytes` says.
const WAITING_MOST: u64 = 212_992 / 768;

impl Before {
    pub(crate) fn take() -> Self {
        Self(Snapshot::take())
    }

    /// What changed since, at a host that receives.
    pub(crate) fn received(&self) -> Changed {
        self.changes(true)
    }

    /// What changed since, at a host that sends. Packets without a neighbour are placed where `sent` says which can be the test's; `None`: not known.
    pub(crate) fn sent(&self, sent: Option<Sent>) -> Changed {
        let mut changed = self.changes(false);
        let unanswered = sent.map(|sent| changed.unanswered(sent));
        changed.totals.extend(unanswered.into_iter().flatten());
        changed
    }

    fn changes(&self, receives: bool) -> Changed {
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

    /// Packets dropped because their next hop did not answer. The kernel counts them for all network namespaces together, and of all traffic: anybody
    /// who pings this host from addresses that nobody has causes answers that wait in vain. The test's are those that its host's IP handed over and
    /// its interfaces did not send, less as many as other traffic can have been. The rest may be the test's or not.
    fn unanswered(&self, sent: Sent) -> Vec<Total> {
        let of_machine = |names: [&str; 2]| {
            let units = self.sum_of(|known| names.iter().any(|name| known.ends_with(name)));
            units.saturating_mul(sent.unit_packets_most)
        };
        let (full, waited) = (of_machine(UNANSWERED), of_machine(FAILED).saturating_mul(WAITING_MOST));
        let [test, host, host_most] = self.unsent(sent);
        // What of so many packets found a queue full, and what of the others can have waited.
        let split = |packets: u64| (packets.min(full), packets.saturating_sub(full).min(waited));
        let ((test_full, test_waited), (_, host_waited)) = (split(test), split(host));
        let total = |location, reason: &str, packets| {
            let reason = format!("machine: {reason}");
            Total { location, reason, packets, scope: TotalScope::Host }
        };
        let (full_perhaps, waited_perhaps) = (host_most.min(full) - test_full, host_waited - test_waited);
        let totals = [
            total(Location::SenderStack, "unresolved_discards", test_full),
            total(Location::SenderStack, "res_failed, what waited", test_waited),
            total(Location::Unexplained, "unresolved_discards, of this test or of other traffic", full_perhaps),
            total(Location::Unexplained, "res_failed, what waited, of this test or of other traffic", waited_perhaps),
        ];
        totals.into_iter().filter(|total| total.packets > 0).collect()
    }

    /// Packets that IP handed over and no interface sent: at least of the test, at least of this host, at most of this host. By their bytes, as one
    /// packet here may be many there, and requests for a neighbour's address, which IP does not hand over, have no payload.
    fn unsent(&self, sent: Sent) -> [u64; 3] {
        let unknown = [0, 0, u64::MAX];
        // What a queue or an interface dropped is missing, too, and they do not say how many bytes it was.
        let is_drop = |name: &str| [": drops", ": tx_dropped", ": tx_errors"].iter().any(|end| name.ends_with(end));
        // Linux before 6.6 does not count them.
        if self.sum(&HANDED_OVER) == 0 || self.sum_of(is_drop) > 0 {
            return unknown;
        }
        // What passes the loopback interface needs no neighbour. No Ethernet header is counted there.
        let loopback = |counter: &str| self.sum_of(|name| name.strip_prefix("lo: ") == Some(counter));
        let interfaces = |counter: &str| {
            let all = self.sum_of(|name| name.strip_suffix(counter).is_some_and(|rest| rest.ends_with(": ")));
            all.saturating_sub(loopback(counter))
        };
        let packets = self.sum(&HANDED_OVER).saturating_sub(loopback("tx_packets"));
        let bytes = self.sum(&HANDED_OVER_BYTES).saturating_sub(loopback("tx_bytes"));
        let (sent_packets, sent_bytes) = (interfaces("tx_packets"), interfaces("tx_bytes"));
        let payload = |packets: u64, bytes: u64, headers| bytes.saturating_sub(packets.saturating_mul(headers));
        let handed_over = payload(packets, bytes, HANDED_HEADERS);
        // More is sent where a packet passes two interfaces.
        let Some(missing) = handed_over.checked_sub(payload(sent_packets, sent_bytes, FRAME_HEADERS)) else {
            return unknown;
        };
        let segments = sent_packets.saturating_sub(packets);
        // All others are of UDP over IPv4, whose headers are known.
        let segments = if self.sum(&HANDED_OVER[1..]) > 0 { segments } else { segments.min(self.sum(&TCP_SEGMENTS)) };
        let most = missing.saturating_add(segments.saturating_mul(SEGMENT_MORE));
        let more = if sent.is_ipv6 { IPV6_MORE } else { 0 };
        let test = sent.packets.saturating_mul(sent.payload_bytes).saturating_add(sent.units.saturating_mul(more));
        let later_fragments = self.sum(&FRAGMENTS).saturating_sub(self.sum(&FRAGMENTED));
        let others = handed_over
            .saturating_add(later_fragments.saturating_mul(UDP_HEADER))
            .saturating_sub(test.saturating_add(CONVERSATION_BYTES));
        let each = (sent.payload_bytes + more).max(1);
        [missing.saturating_sub(others), missing, most].map(|bytes| bytes / each)
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

    /// By how much the counters of such names rose together.
    fn sum_of(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let all = self.all.iter().filter(|(name, _)| wanted(name));
        all.map(|(_, by)| by).sum::<i64>().max(0) as u64
    }

    /// By how much these counters of the host rose together.
    fn sum(&self, names: &[&str]) -> u64 {
        let of = |name: &&str| self.all.get(&format!("{}: {name}", Scope::Namespace)).copied().unwrap_or(0);
        names.iter().map(of).sum::<i64>().max(0) as u64
    }
}

/// Whether a counter of this name counts drops that no event reports: of frames that never became a packet in the kernel's memory, in a NIC's
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

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: Sent =
        Sent { payload_bytes: 500, is_ipv6: false, packets: 1_000, units: 1_000, unit_packets_most: 1 };
    /// 50 packets in each piece.
    const TOGETHER: Sent = Sent { units: 20, unit_packets_most: 128, ..SINGLE };

    /// What is told of packets without a neighbour, the test's and perhaps the test's, of a host that handed over `[packets, bytes]` over IPv4 or
    /// IPv6, whose interfaces sent `[packets, bytes]`, and on whose machine so many had none.
    fn told(sent: Sent, ipv6: bool, handed_over: [i64; 2], interface: [i64; 2], machine: i64) -> (u64, u64) {
        told_with(sent, ipv6, handed_over, interface, machine, &[])
    }

    /// The same with more counters.
    fn told_with(
        sent: Sent,
        ipv6: bool,
        handed_over: [i64; 2],
        interface: [i64; 2],
        machine: i64,
        more: &[(&str, i64)],
    ) -> (u64, u64) {
        let [packets, bytes, cache] = match ipv6 {
            false => ["host: Ip.OutTransmits", "host: IpExt.OutOctets", "arp_cache"],
            true => ["host: Ip6OutTransmits", "host: Ip6OutOctets", "ndisc_cache"],
        };
        let all = [
            (packets.to_owned(), handed_over[0]),
            (bytes.to_owned(), handed_over[1]),
            ("eth0: tx_packets".to_owned(), interface[0]),
            ("eth0: tx_bytes".to_owned(), interface[1]),
            (format!("machine, CPU 1: {cache}.unresolved_discards"), machine),
        ];
        let more = more.iter().map(|(name, by)| ((*name).to_owned(), *by));
        let changed = Changed { all: all.into_iter().chain(more).collect(), ..Changed::default() };
        let totals = changed.unanswered(Sent { is_ipv6: ipv6, ..sent });
        let at = |location| totals.iter().filter(|total| total.location == location).map(|total| total.packets).sum();
        (at(Location::SenderStack), at(Location::Unexplained))
    }

    #[test]
    fn packets_without_a_neighbour_are_this_hosts_as_far_as_its_interfaces_did_not_send_them() {
        // 1,000 packets, of which 900 were sent, and four requests for the address.
        let (handed_over, sent) = ([1_000, 528_000], [904, 900 * 542 + 4 * 42]);
        assert_eq!(told(SINGLE, false, handed_over, sent, 100), (100, 0));
        // Another namespace's: beside these, and alone.
        assert_eq!(told(SINGLE, false, handed_over, sent, 5_000), (100, 0));
        assert_eq!(told(SINGLE, false, handed_over, [1_004, 1_000 * 542 + 4 * 42], 5_000), (0, 0));
        assert_eq!(told(SINGLE, true, [1_000, 548_000], [900, 900 * 562], 100), (100, 0));
        // 20 packets of 50 segments each, of which two were dropped, and all others were segmented before the interface counted them.
        assert_eq!(told(TOGETHER, false, [20, 20 * 25_028], [900, 900 * 542], 2), (100, 0));
        // Over IPv6 the interface counts 19 headers more for each of 18 that it sent: so some cannot be told.
        assert_eq!(told(TOGETHER, true, [20, 20 * 25_048], [900, 900 * 562], 2), (62, 122));
        // Linux before 6.6 counts other packets; and two interfaces count a packet twice.
        assert_eq!(told(SINGLE, false, [0, 528_000], sent, 100), (0, 100));
        assert_eq!(told(SINGLE, false, handed_over, [1_808, 2 * sent[1]], 100), (0, 100));
        // Ten messages to the other end beside them.
        let (handed_over, sent) = ([1_010, 528_000 + 10 * 200], [910, 900 * 542 + 10 * 214]);
        assert_eq!(told(SINGLE, false, handed_over, sent, 100), (100, 0));
    }

    #[test]
    fn what_waited_for_a_neighbour_that_did_not_answer_is_counted_nowhere() {
        let failed = |by| [("machine, CPU 0: arp_cache.res_failed", by)];
        // 1,000 packets, of which 500 were sent, and 300 found a full queue.
        let (handed_over, sent) = ([1_000, 528_000], [500, 500 * 542]);
        let of = |machine, by| told_with(SINGLE, false, handed_over, sent, machine, &failed(by));
        assert_eq!([of(300, 0), of(300, 1), of(0, 2)], [(300, 0), (500, 0), (500, 0)]);
        assert_eq!(of(0, 1), (WAITING_MOST, 0), "no more wait");
        // Another namespace's.
        let all = [1_000, 1_000 * 542];
        assert_eq!(told_with(SINGLE, false, handed_over, all, 0, &failed(50)), (0, 0));
        assert_eq!(told_with(SINGLE, false, [0, 528_000], sent, 0, &failed(50)), (0, 0), "Linux before 6.6");
        let failed = [("machine, CPU 0: ndisc_cache.res_failed", 1)];
        assert_eq!(told_with(SINGLE, true, [1_000, 548_000], [900, 900 * 562], 0, &failed), (100, 0));
    }

    /// Answers to pings from addresses that nobody has: a queue is full of them, or they wait until the kernel gives up.
    #[test]
    fn what_other_traffic_can_have_been_is_not_placed() {
        let failed = [("machine, CPU 0: arp_cache.res_failed", 50)];
        // The test's 1,000 packets were sent, and none of 100 answers of 1,000 bytes. 4,096 bytes of these count as the test's.
        let (handed_over, sent) = ([1_100, 528_000 + 100 * 1_028], [1_000, 1_000 * 542]);
        assert_eq!(told_with(SINGLE, false, handed_over, sent, 0, &failed), (8, 192));
        assert_eq!(told(SINGLE, false, handed_over, sent, 150), (8, 142));
        // Beside them 100 of the test's were not sent.
        assert_eq!(told_with(SINGLE, false, handed_over, [900, 900 * 542], 0, &failed), (108, 192));
        let failed_over_ipv6 = [("machine, CPU 0: ndisc_cache.res_failed", 50)];
        let (handed_over, sent) = ([1_100, 548_000 + 100 * 1_048], [1_000, 1_000 * 562]);
        assert_eq!(told_with(SINGLE, true, handed_over, sent, 0, &failed_over_ipv6), (7, 189));
        // The test's are longer than a packet, and were sent in seven fragments each.
        let long = Sent { payload_bytes: 9_000, ..SINGLE };
        let (handed_over, sent) = ([7_100, 9_148_000 + 100 * 1_028], [7_000, 9_148_000 + 7_000 * 14]);
        let more = [failed[0], ("host: Ip.FragCreates", 7_000), ("host: Ip.FragOKs", 1_000)];
        assert_eq!(told_with(long, false, handed_over, sent, 0, &more), (0, 11));
    }

    /// The loopback interface counts no Ethernet header.
    #[test]
    fn what_passes_the_loopback_interface_is_sent() {
        let loopback = [("lo: tx_packets", 10_000), ("lo: tx_bytes", 10_000 * 528)];
        let handed_over = [11_000, 11_000 * 528];
        assert_eq!(told_with(SINGLE, false, handed_over, [900, 900 * 542], 5_000, &loopback), (100, 0));
    }
}
