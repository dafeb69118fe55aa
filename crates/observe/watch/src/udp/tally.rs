//! The sums of the kernel's maps by socket: datagrams, drops with their places, peers.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use longhaul_bpf::drops::{HostRole, place};
use longhaul_bpf::symbols::Symbols;
use longhaul_bpf::udp_flow::{UdpDropSum, UdpFlows};
use longhaul_result::Location;
use longhaul_udp::{UdpSocketDrop, WatchedUdpFlow};

/// What was counted of one socket.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    /// That entered its buffer.
    pub(super) received_packets: u64,
    pub(super) received_bytes: u64,
    pub(super) drops: Vec<UdpSocketDrop>,
    /// Most datagrams first.
    pub(super) flows: Vec<WatchedUdpFlow>,
    /// The first flow with a peer, while they are in the order in which they came.
    by_peer: HashMap<Option<SocketAddr>, usize>,
}

impl Tally {
    pub(super) fn by_location(&self) -> BTreeMap<Location, u64> {
        let mut sums = BTreeMap::new();
        self.drops.iter().for_each(|drop| *sums.entry(drop.location).or_default() += drop.packets);
        sums
    }

    /// Adds what was in the buffer when the socket was closed. Whose datagrams they were is known where there is one peer.
    pub(super) fn add_unread(&mut self, packets: u64) {
        let drop = UdpSocketDrop {
            location: Location::ReceiverApplication,
            reason: "unread when the socket was closed".into(),
            sent: false,
            packets,
        };
        let mut receiving = self.flows.iter_mut().filter(|flow| flow.received_packets > 0);
        if let (Some(flow), None) = (receiving.next(), receiving.next()) {
            flow.drops.push(drop.clone());
        }
        self.drops.push(drop);
    }

    fn flow(&mut self, peer: Option<SocketAddr>) -> &mut WatchedUdpFlow {
        let at = self.by_peer.get(&peer).copied().unwrap_or_else(|| {
            self.push(WatchedUdpFlow {
                local: None,
                remote: peer,
                sent_packets: 0,
                sent_bytes: 0,
                received_packets: 0,
                received_bytes: 0,
                drops: Vec::new(),
            });
            self.flows.len() - 1
        });
        &mut self.flows[at]
    }

    fn push(&mut self, flow: WatchedUdpFlow) {
        self.by_peer.entry(flow.remote).or_insert(self.flows.len());
        self.flows.push(flow);
    }
}

/// The sums of each followed socket, by cookie. `socket_of` finds the socket of a port, a peer and an own address, where it is followed.
pub(super) fn tally(
    flows: &UdpFlows,
    symbols: Option<&Symbols>,
    socket_of: impl Fn(u16, Option<SocketAddr>, Option<IpAddr>) -> Option<u64>,
) -> HashMap<u64, Tally> {
    let mut tallies: HashMap<u64, Tally> = HashMap::new();
    for flow in flows.flows().unwrap_or_default() {
        let Some(cookie) = socket_of(flow.local_port, flow.peer, flow.local) else { continue };
        let tally = tallies.entry(cookie).or_default();
        tally.sent_packets += flow.sent_packets;
        tally.sent_bytes += flow.sent_bytes;
        tally.received_packets += flow.arrived_packets;
        tally.received_bytes += flow.arrived_bytes;
        tally.push(WatchedUdpFlow {
            local: flow.local,
            remote: flow.peer,
            sent_packets: flow.sent_packets,
            sent_bytes: flow.sent_bytes,
            received_packets: flow.arrived_packets,
            received_bytes: flow.arrived_bytes,
            drops: Vec::new(),
        });
    }
    for drop in flows.drops().unwrap_or_default() {
        let Some(cookie) = socket_of(drop.local_port, drop.peer, None) else { continue };
        let symbol = symbols.and_then(|symbols| symbols.name(drop.location)).unwrap_or("");
        let reason = flows.reason_names().name(drop.reason);
        let role = if drop.from_here { HostRole::Sender } else { HostRole::Receiver };
        // What a socket had when it was closed is what arrived and was not read.
        let Some(location) = place(&reason, symbol, role).filter(|place| *place != Location::ReceiverApplication)
        else {
            continue;
        };
        let tally = tallies.entry(cookie).or_default();
        let passed = Passed::of(location, &reason, symbol);
        tally.take(&drop, passed);
        let why = if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") };
        let one = UdpSocketDrop { location, reason: why, sent: drop.from_here, packets: drop.packets };
        add(&mut tally.flow(drop.peer).drops, &one);
        add(&mut tally.drops, &one);
    }
    for tally in tallies.values_mut() {
        let all = |flow: &WatchedUdpFlow| flow.sent_packets.saturating_add(flow.received_packets);
        tally.by_peer.clear();
        tally.flows.sort_by_key(|flow| (std::cmp::Reverse(all(flow)), flow.remote));
        tally.drops.sort();
    }
    tallies
}

/// Which count a dropped datagram is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// None: on its way out it came to no interface, and yet it was sent.
    NotYet,
    /// That of arrivals, and yet it was not received.
    Arrival,
    /// It is as it should be: on its way out behind the count, on its way in before it.
    Rightly,
}

impl Passed {
    /// `net_dev_queue` is behind IP and tc's egress hook; `netif_receive_skb` is behind rings, backlog and a driver's XDP.
    fn of(location: Location, reason: &str, symbol: &str) -> Self {
        match location {
            Location::SenderSocket | Location::SenderStack => Self::NotYet,
            Location::SenderQdisc if reason.starts_with("TC_") => Self::NotYet,
            Location::ReceiverFilter if symbol == "veth_xdp_rcv_skb" => Self::Rightly,
            Location::ReceiverFilter | Location::ReceiverStack | Location::ReceiverSocketBuffer => Self::Arrival,
            _ => Self::Rightly,
        }
    }
}

impl Tally {
    /// Corrects what was sent or received by a drop.
    fn take(&mut self, drop: &UdpDropSum, passed: Passed) {
        let flow = self.flow(drop.peer);
        match passed {
            Passed::NotYet => {
                flow.sent_packets += drop.packets;
                flow.sent_bytes += drop.bytes;
                self.sent_packets += drop.packets;
                self.sent_bytes += drop.bytes;
            }
            Passed::Arrival => {
                flow.received_packets = flow.received_packets.saturating_sub(drop.packets);
                flow.received_bytes = flow.received_bytes.saturating_sub(drop.bytes);
                self.received_packets = self.received_packets.saturating_sub(drop.packets);
                self.received_bytes = self.received_bytes.saturating_sub(drop.bytes);
            }
            Passed::Rightly => {}
        }
    }
}

fn add(drops: &mut Vec<UdpSocketDrop>, one: &UdpSocketDrop) {
    let same = |known: &&mut UdpSocketDrop| {
        (known.location, known.sent) == (one.location, one.sent) && known.reason == one.reason
    };
    match drops.iter_mut().find(same) {
        Some(known) => known.packets += one.packets,
        None => drops.push(one.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_is_added_to_what_was_sent_or_taken_from_what_arrived() {
        let drop = UdpDropSum {
            local_port: 5000,
            peer: "10.0.0.2:9".parse().ok(),
            from_here: false,
            reason: 6,
            location: 0,
            packets: 3,
            bytes: 300,
        };
        let mut tally = Tally { received_packets: 10, received_bytes: 1_000, ..Tally::default() };
        tally.flow(drop.peer).received_packets = 10;
        tally.take(&drop, Passed::of(Location::ReceiverSocketBuffer, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb"));
        assert_eq!((tally.received_packets, tally.received_bytes, tally.flows[0].received_packets), (7, 700, 7));
        // A full ring is before the count.
        tally.take(&drop, Passed::of(Location::ReceiverRing, "NOT_SPECIFIED", "veth_xmit"));
        assert_eq!(tally.received_packets, 7);
        tally.take(&drop, Passed::of(Location::SenderStack, "NETFILTER_DROP", "nft_do_chain"));
        tally.take(&drop, Passed::of(Location::SenderQdisc, "QDISC_DROP", "__dev_queue_xmit"));
        assert_eq!((tally.sent_packets, tally.flows[0].sent_packets), (3, 3));
    }
}
