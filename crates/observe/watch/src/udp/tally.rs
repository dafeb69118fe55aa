//! The sums of the kernel's maps by socket: datagrams, drops with their places, peers.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use longhaul_bpf::drops::{HostRole, place};
use longhaul_bpf::symbols::Symbols;
use longhaul_bpf::udp_flow::UdpFlows;
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
            by_port: false,
            packets,
        };
        let mut receiving = self.flows.iter_mut().filter(|flow| flow.received_packets > 0);
        if let (Some(flow), None) = (receiving.next(), receiving.next()) {
            flow.drops.push(drop.clone());
        }
        self.drops.push(drop);
    }

    fn flow(&mut self, peer: Option<SocketAddr>) -> &mut WatchedUdpFlow {
        let known = self.flows.iter().position(|flow| flow.remote == peer);
        let at = known.unwrap_or_else(|| {
            self.flows.push(WatchedUdpFlow {
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
}

/// The sums of each followed socket, by cookie. `of_port` finds the socket of a drop of which only the port is known.
pub(super) fn tally(
    flows: &UdpFlows,
    symbols: Option<&Symbols>,
    is_followed: impl Fn(u64) -> bool,
    of_port: impl Fn(u16) -> Option<u64>,
) -> HashMap<u64, Tally> {
    let mut tallies: HashMap<u64, Tally> = HashMap::new();
    for flow in flows.flows().unwrap_or_default().into_iter().filter(|flow| is_followed(flow.cookie)) {
        let tally = tallies.entry(flow.cookie).or_default();
        tally.sent_packets += flow.sent_packets;
        tally.sent_bytes += flow.sent_bytes;
        tally.received_packets += flow.arrived_packets;
        tally.received_bytes += flow.arrived_bytes;
        tally.flows.push(WatchedUdpFlow {
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
        let cookie = drop.cookie.filter(|cookie| is_followed(*cookie)).or_else(|| {
            // A drop of a socket that is not followed is nobody's.
            drop.cookie.is_none().then(|| of_port(drop.local_port)).flatten()
        });
        let Some(cookie) = cookie else { continue };
        let symbol = symbols.and_then(|symbols| symbols.name(drop.location)).unwrap_or("");
        let reason = flows.reason_names().name(drop.reason);
        let role = if drop.from_here { HostRole::Sender } else { HostRole::Receiver };
        // What a socket had when it was closed is what arrived and was not read.
        let Some(location) = place(&reason, symbol, role).filter(|place| *place != Location::ReceiverApplication) else {
            continue;
        };
        let why = if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") };
        let tally = tallies.entry(cookie).or_default();
        let flow = tally.flow(drop.peer);
        let one = UdpSocketDrop {
            location,
            reason: why,
            sent: drop.from_here,
            by_port: drop.cookie.is_none(),
            packets: drop.packets,
        };
        add(&mut flow.drops, &one);
        let has_arrived = location == Location::ReceiverSocketBuffer || is_read(symbol);
        if has_arrived && !drop.from_here {
            flow.received_packets = flow.received_packets.saturating_sub(drop.packets);
            flow.received_bytes = flow.received_bytes.saturating_sub(drop.bytes);
            tally.received_packets = tally.received_packets.saturating_sub(drop.packets);
            tally.received_bytes = tally.received_bytes.saturating_sub(drop.bytes);
        }
        add(&mut tally.drops, &one);
    }
    for tally in tallies.values_mut() {
        let all = |flow: &WatchedUdpFlow| flow.sent_packets.saturating_add(flow.received_packets);
        tally.flows.sort_by_key(|flow| (std::cmp::Reverse(all(flow)), flow.remote));
        tally.drops.sort();
    }
    tallies
}

/// Whether the function takes datagrams out of the buffer: only there a wrong checksum is found.
fn is_read(symbol: &str) -> bool {
    ["udp_recvmsg", "udpv6_recvmsg", "first_packet_length", "__first_packet_length", "udp_read_skb"].contains(&symbol)
}

fn add(drops: &mut Vec<UdpSocketDrop>, one: &UdpSocketDrop) {
    let same = |known: &&mut UdpSocketDrop| {
        (known.location, known.sent, known.by_port) == (one.location, one.sent, one.by_port)
            && known.reason == one.reason
    };
    match drops.iter_mut().find(same) {
        Some(known) => known.packets += one.packets,
        None => drops.push(one.clone()),
    }
}
