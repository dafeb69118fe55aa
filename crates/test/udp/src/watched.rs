//! What UDP sockets of other programs sent, received and lost, and the account of both ends together. Programs may rely on the names.
//!
//! A datagram is counted where IP hands it to an interface, and where an interface hands it to IP. A datagram that the sender dropped before the
//! first point still counts as sent; one that the receiver dropped after the second point does not count as received. With the results of both ends,
//! all other missing datagrams were lost between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use longhaul_result::{Location, LocationMethod};
use longhaul_terms::{ChangedCounters, short_words};
use serde::{Deserialize, Serialize};

/// Drops that accounts list together: each of many sockets with one port has those of the other end.
const DROPS_MOST: usize = 1 << 16;
/// Letters of a program's name in an account: the kernel's have 15.
const PROGRAM_LETTERS_MOST: usize = 64;
/// Bytes of a reason that are kept: as long as the name of a counter may be.
const REASON_BYTES_MOST: usize = 256;

/// The observed sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpWatchResult {
    /// How long they were watched.
    pub duration_ns: u64,
    /// `bpf`: the kernel's functions and drop events. `counters`: only what each socket dropped itself, and the host's counters.
    pub location_method: LocationMethod,
    /// Each socket, in the order of first observation.
    pub sockets: Vec<WatchedUdpSocket>,
    /// Sockets that were not followed because there were too many.
    pub sockets_not_followed: u64,
    /// Datagrams and drops of any socket of the host that could not be counted.
    pub uncounted_packets: u64,
    /// What the host's UDP counted meanwhile, all sockets together: every counter that changed.
    pub counters: ChangedCounters,
}

/// A UDP socket of another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedUdpSocket {
    /// Its number.
    pub number: u32,
    /// Its address and port; the address is unspecified where it takes datagrams for all of the host's.
    pub local: SocketAddr,
    /// The peer that it is connected to; `null` if it is not connected.
    pub remote: Option<SocketAddr>,
    /// The kernel's identifier for the socket, unique until the machine restarts.
    pub cookie: u64,
    /// The name of the process that owns it; `null` if not known.
    pub program: Option<String>,
    /// The process's number.
    pub pid: Option<u32>,
    /// When it was first observed, from the start of the watch.
    pub first_seen_ns: u64,
    /// When it was last observed.
    pub last_seen_ns: u64,
    /// Whether it began during the watch: then its numbers cover its whole life.
    pub began: bool,
    /// Whether it ended.
    pub ended: bool,
    /// Whether other watched sockets have its port. Datagrams are counted by port and peer, so those of such sockets may be each other's.
    pub shares_port: bool,
    /// Datagrams that it sent; `null` if they could not be counted.
    pub sent_packets: Option<u64>,
    /// Their payload.
    pub sent_bytes: Option<u64>,
    /// Datagrams that entered its buffer; `null` if they could not be counted.
    pub received_packets: Option<u64>,
    /// Their payload.
    pub received_bytes: Option<u64>,
    /// Datagrams that its program read (one for each call that received something: with `UDP_GRO` several); `null` if that is not known, as
    /// before Linux 6.3.
    pub read_packets: Option<u64>,
    /// Datagrams that were in its buffer at the end of the watch, or when it was closed: the latter are lost. `null` if not known, as for a
    /// socket that existed before the watch.
    pub unread_packets: Option<u64>,
    /// Its datagrams that this host dropped, both directions together.
    pub dropped_packets: u64,
    /// Where, and why.
    pub drops: Vec<UdpSocketDrop>,
    /// What the kernel counted as dropped by this socket during the watch (`SO_MEMINFO`): a full buffer, a wrong checksum, a filter of its
    /// own. A second opinion of `drops`; `null` if no sample was taken of the socket.
    pub socket_drops: Option<u64>,
    /// The size of its receive buffer, as the kernel counts it, bytes; `null` if no sample was taken.
    pub receive_buffer_bytes: Option<u64>,
    /// The most that a sample saw in it, as the kernel counts it (more than payload).
    pub max_receive_used_bytes: Option<u64>,
    /// The datagrams by peer.
    pub flows: Vec<WatchedUdpFlow>,
}

/// The datagrams between a socket and a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedUdpFlow {
    /// The address that the socket used; `null` if none arrived, or for the peers that were too many.
    pub local: Option<IpAddr>,
    /// The peer; `null` for the sum of those that were too many to be listed.
    pub remote: Option<SocketAddr>,
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Their payload.
    pub sent_bytes: u64,
    /// Datagrams that entered the socket's buffer.
    pub received_packets: u64,
    /// Their payload.
    pub received_bytes: u64,
    /// Datagrams of the two that this host dropped.
    pub drops: Vec<UdpSocketDrop>,
}

/// Datagrams that were dropped at one location for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpSocketDrop {
    /// Where.
    pub location: Location,
    /// The kernel's drop reason and the function that dropped, or the counter.
    #[serde(deserialize_with = "short_words::<_, REASON_BYTES_MOST>")]
    pub reason: String,
    /// Whether the socket sent them; else they were sent to it.
    pub sent: bool,
    /// Datagrams.
    pub packets: u64,
}

/// What became of the datagrams of programs at two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpAccounts {
    /// One for each pair of sockets and direction, most datagrams first.
    pub accounts: Vec<UdpAccount>,
}

/// What became of the datagrams from one socket to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpAccount {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's.
    pub destination: SocketAddr,
    /// The sending program; `null` if not known.
    pub sending_program: Option<String>,
    /// The receiving program; `null` if not known.
    pub receiving_program: Option<String>,
    /// Datagrams that the sender sent.
    pub sent_packets: u64,
    /// Datagrams that entered the receiver's buffer, without those that were unread when it closed its socket.
    pub received_packets: u64,
    /// Lost datagrams: sent minus received. Datagrams that were received more often than sent are in `surplus_packets`.
    pub lost_packets: u64,
    /// Datagrams at each location, every location; `network` is what neither host dropped.
    pub loss_by_location: BTreeMap<Location, u64>,
    /// The drops of both hosts.
    pub drops: Vec<UdpSocketDrop>,
    /// Datagrams that arrived or were dropped more often than they were sent: duplicated, or sent before the sender was watched.
    pub surplus_packets: u64,
}

/// What a flow brought to a socket.
struct Arrived<'a> {
    socket: &'a WatchedUdpSocket,
    flow: &'a WatchedUdpFlow,
    /// Its drops on their way in.
    drops: Vec<&'a UdpSocketDrop>,
    /// Their datagrams at each location.
    places: BTreeMap<Location, u64>,
}

impl<'a> Arrived<'a> {
    fn of(socket: &'a WatchedUdpSocket, flow: &'a WatchedUdpFlow) -> Self {
        let drops: Vec<&UdpSocketDrop> = flow.drops.iter().filter(|drop| !drop.sent).collect();
        let mut places = Location::ALL.into_iter().map(|location| (location, 0)).collect();
        add(&mut places, &drops);
        Self { socket, flow, drops, places }
    }
}

/// Room for the drops that accounts list.
struct Room {
    left: usize,
    left_out: u64,
}

impl UdpWatchResult {
    /// What became of the datagrams that sockets of `self` sent to sockets of `receiver`.
    ///
    /// The two are joined by addresses and ports as IP has them, so address translation in between leaves none.
    fn account_at(&self, receiver: &Self, room: &mut Room) -> Vec<UdpAccount> {
        let mut arrived: BTreeMap<(SocketAddr, u16), Arrived> = BTreeMap::new();
        for socket in &receiver.sockets {
            for flow in &socket.flows {
                if let Some(remote) = flow.remote {
                    arrived.entry((remote, socket.local.port())).or_insert_with(|| Arrived::of(socket, flow));
                }
            }
        }
        let mut accounts = Vec::new();
        for socket in &self.sockets {
            for flow in &socket.flows {
                let (Some(local), Some(destination)) = (flow.local, flow.remote) else { continue };
                let source = SocketAddr::new(local, socket.local.port());
                let Some(theirs) = arrived.get(&(source, destination.port())) else { continue };
                // Another host of the same peer's ports.
                let is_there = theirs.flow.local.is_none_or(|address| address == destination.ip());
                if flow.sent_packets > 0 && is_there {
                    accounts.push(account(source, destination, (socket, flow), theirs, room));
                }
            }
        }
        accounts
    }
}

impl UdpAccounts {
    /// Of what both ends saw, in both directions, and how many drops the accounts count but do not list: together they list 65,536.
    pub fn of(a: &UdpWatchResult, b: &UdpWatchResult) -> (Self, u64) {
        let mut room = Room { left: DROPS_MOST, left_out: 0 };
        let mut accounts = a.account_at(b, &mut room);
        accounts.extend(b.account_at(a, &mut room));
        accounts.sort_by_key(|one| (std::cmp::Reverse(one.sent_packets), one.source, one.destination));
        (Self { accounts }, room.left_out)
    }
}

fn account(
    source: SocketAddr,
    destination: SocketAddr,
    (from, sent): (&WatchedUdpSocket, &WatchedUdpFlow),
    theirs: &Arrived,
    room: &mut Room,
) -> UdpAccount {
    let going: Vec<&UdpSocketDrop> = sent.drops.iter().filter(|drop| drop.sent).collect();
    let drops: Vec<UdpSocketDrop> = going.iter().chain(&theirs.drops).copied().take(room.left).cloned().collect();
    room.left -= drops.len();
    room.left_out += (going.len() + theirs.drops.len() - drops.len()) as u64;
    let mut places = theirs.places.clone();
    add(&mut places, &going);
    let dropped = places.values().fold(0_u64, |sum, packets| sum.saturating_add(*packets));
    // What lay in the buffer of a socket that was closed is lost after all.
    let received_packets = theirs.flow.received_packets.saturating_sub(places[&Location::ReceiverApplication]);
    let accounted = received_packets.saturating_add(dropped);
    places.insert(Location::Network, sent.sent_packets.saturating_sub(accounted));
    let name = |socket: &WatchedUdpSocket| {
        socket.program.as_ref().map(|program| program.chars().take(PROGRAM_LETTERS_MOST).collect())
    };
    UdpAccount {
        source,
        destination,
        sending_program: name(from),
        receiving_program: name(theirs.socket),
        sent_packets: sent.sent_packets,
        received_packets,
        lost_packets: sent.sent_packets.saturating_sub(received_packets),
        loss_by_location: places,
        drops,
        surplus_packets: accounted.saturating_sub(sent.sent_packets),
    }
}

/// Adds datagrams to those at each location.
fn add(places: &mut BTreeMap<Location, u64>, drops: &[&UdpSocketDrop]) {
    for drop in drops {
        let sum = places.entry(drop.location).or_default();
        *sum = sum.saturating_add(drop.packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(local: &str, flow: WatchedUdpFlow) -> WatchedUdpSocket {
        WatchedUdpSocket {
            number: 0,
            local: local.parse().unwrap(),
            remote: None,
            cookie: 1,
            program: Some("socat".into()),
            pid: Some(1),
            first_seen_ns: 0,
            last_seen_ns: 1,
            began: true,
            ended: false,
            shares_port: false,
            sent_packets: Some(flow.sent_packets),
            sent_bytes: None,
            received_packets: Some(flow.received_packets),
            received_bytes: None,
            read_packets: None,
            unread_packets: None,
            dropped_packets: 0,
            drops: Vec::new(),
            socket_drops: None,
            receive_buffer_bytes: None,
            max_receive_used_bytes: None,
            flows: vec![flow],
        }
    }

    fn flow(local: &str, remote: &str, sent: u64, received: u64, drops: &[(Location, bool, u64)]) -> WatchedUdpFlow {
        let drop = |(location, sent, packets): &(Location, bool, u64)| UdpSocketDrop {
            location: *location,
            reason: "why".into(),
            sent: *sent,
            packets: *packets,
        };
        WatchedUdpFlow {
            local: local.parse().ok(),
            remote: remote.parse().ok(),
            sent_packets: sent,
            sent_bytes: 0,
            received_packets: received,
            received_bytes: 0,
            drops: drops.iter().map(drop).collect(),
        }
    }

    fn watched(socket: WatchedUdpSocket) -> UdpWatchResult {
        UdpWatchResult { sockets: vec![socket], ..UdpWatchResult::default() }
    }

    #[test]
    fn what_no_host_dropped_was_lost_in_the_network() {
        let going = flow("10.0.0.1", "10.0.0.2:53", 100, 0, &[(Location::SenderQdisc, true, 5)]);
        let coming = flow("10.0.0.2", "10.0.0.1:4000", 0, 80, &[(Location::ReceiverSocketBuffer, false, 12)]);
        let (near, far) = (watched(socket("0.0.0.0:4000", going)), watched(socket("0.0.0.0:53", coming)));
        for (a, b) in [(&near, &far), (&far, &near)] {
            let (UdpAccounts { accounts }, left_out) = UdpAccounts::of(a, b);
            assert_eq!(left_out, 0);
            let [one] = &accounts[..] else { panic!("{accounts:?}") };
            assert_eq!(
                (one.source.to_string(), one.destination.to_string()),
                ("10.0.0.1:4000".into(), "10.0.0.2:53".into())
            );
            assert_eq!((one.sent_packets, one.received_packets, one.lost_packets), (100, 80, 20));
            assert_eq!(one.loss_by_location[&Location::SenderQdisc], 5);
            assert_eq!(one.loss_by_location[&Location::ReceiverSocketBuffer], 12);
            assert_eq!((one.loss_by_location[&Location::Network], one.surplus_packets), (3, 0));
            assert_eq!(one.loss_by_location.values().sum::<u64>(), one.lost_packets);
        }
    }

    #[test]
    fn more_than_was_sent_is_said_and_others_flows_are_not_joined() {
        let going = flow("10.0.0.1", "10.0.0.2:53", 10, 0, &[]);
        let coming = flow("10.0.0.2", "10.0.0.1:4000", 0, 12, &[]);
        let near = watched(socket("0.0.0.0:4000", going));
        let accounts = UdpAccounts::of(&near, &watched(socket("0.0.0.0:53", coming.clone()))).0.accounts;
        assert_eq!((accounts[0].lost_packets, accounts[0].surplus_packets), (0, 2));
        let elsewhere = WatchedUdpFlow { local: "10.0.0.3".parse().ok(), ..coming };
        assert!(UdpAccounts::of(&near, &watched(socket("0.0.0.0:53", elsewhere))).0.accounts.is_empty());
    }

    /// Two files of some kilobytes can name each drop of the one for each flow of the other.
    #[test]
    fn all_accounts_together_list_so_many_drops() {
        let going = flow("10.0.0.1", "10.0.0.2:53", 1_000, 0, &[]);
        let coming = flow("10.0.0.2", "10.0.0.1:4000", 0, 0, &[(Location::ReceiverSocketBuffer, false, 2); 300]);
        let program = Some("é".repeat(1_000));
        let near = WatchedUdpSocket {
            flows: vec![going.clone(); 300],
            program: program.clone(),
            ..socket("0.0.0.0:4000", going)
        };
        let far = WatchedUdpSocket { program, ..socket("0.0.0.0:53", coming) };
        let (UdpAccounts { accounts }, left_out) = UdpAccounts::of(&watched(near), &watched(far));
        let listed: usize = accounts.iter().map(|one| one.drops.len()).sum();
        assert_eq!((accounts.len(), listed, left_out), (300, 65_536, 300 * 300 - 65_536));
        for one in &accounts {
            assert_eq!(one.loss_by_location[&Location::ReceiverSocketBuffer], 600);
            for name in [&one.sending_program, &one.receiving_program] {
                assert_eq!(name.as_deref(), Some("é".repeat(64).as_str()));
            }
        }
    }

    #[test]
    fn a_reason_in_a_file_is_short() {
        let location = Location::SenderQdisc;
        let sent = |reason: String| UdpSocketDrop { location, reason, sent: true, packets: 1 };
        let read = |drop: &UdpSocketDrop| {
            serde_json::from_str::<UdpSocketDrop>(&serde_json::to_string(drop).unwrap()).unwrap()
        };
        let usual = sent("SOCKET_RCVBUFF @ udp_queue_rcv_one_skb".into());
        assert_eq!(read(&usual), usual);
        assert_eq!(read(&sent("x".repeat(1 << 20))).reason.len(), REASON_BYTES_MOST + '…'.len_utf8());
    }
}
