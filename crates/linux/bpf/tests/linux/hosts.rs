//! Two hosts with a cable between them, a flow of numbered datagrams from the one to the other, and what was seen of its drops.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use longhaul_bpf::BpfError;
use longhaul_bpf::drops::{DropEvent, DropOptions, Drops, Flow, HostRole, ReasonNames, place};
use longhaul_bpf::symbols::Symbols;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_result::Location;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, HEADER_LEN, Probe};

const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RECEIVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SENDER_IP: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
pub(crate) const RECEIVER_IP: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const SENDER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 1);
const RECEIVER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 2);
/// The devices at the ends of the cable.
pub(crate) const SENDER_LINK: &str = "lhb-s";
pub(crate) const RECEIVER_LINK: &str = "lhb-r";

/// Sender, receiver, and one flow of this test alone.
pub(crate) struct Hosts {
    pub(crate) sender: NetNamespace,
    pub(crate) receiver: NetNamespace,
    pub(crate) sender_index: u32,
    pub(crate) receiver_index: u32,
    pub(crate) flow: Flow,
}

/// Hosts, and a program that watches their flow; `None` where that cannot be, and says why.
pub(crate) fn watched_hosts() -> Option<(Hosts, Watch)> {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
        return None;
    }
    let hosts = Hosts::new();
    let watch = Watch::of(&hosts)?;
    Some((hosts, watch))
}

impl Hosts {
    pub(crate) fn new() -> Self {
        static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let cookie = std::process::id() << 16 | u32::from(port);
        let (sender, receiver) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let end = |name, namespace, mac| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: Some(mac) };
        let mut near = sender.enter(Netlink::open).unwrap().unwrap();
        let far_end = end(RECEIVER_LINK, &receiver, RECEIVER_MAC);
        near.create_veth(&end(SENDER_LINK, &sender, SENDER_MAC), &far_end).unwrap();
        let mut far = receiver.enter(Netlink::open).unwrap().unwrap();
        let (sender_index, receiver_index) =
            (near.index_of(SENDER_LINK).unwrap(), far.index_of(RECEIVER_LINK).unwrap());
        let ends = [
            (&mut near, sender_index, SENDER_IP, SENDER_IPV6, RECEIVER_IP, RECEIVER_IPV6, RECEIVER_MAC),
            (&mut far, receiver_index, RECEIVER_IP, RECEIVER_IPV6, SENDER_IP, SENDER_IPV6, SENDER_MAC),
        ];
        for (netlink, ifindex, own, own_v6, other, other_v6, mac) in ends {
            netlink.set_up(ifindex, true).unwrap();
            for (ip, prefix_bits) in [(IpAddr::V4(own), 24), (IpAddr::V6(own_v6), 64)] {
                netlink.add_address(&Address { ifindex, ip, prefix_bits }).unwrap();
            }
            for ip in [IpAddr::V4(other), IpAddr::V6(other_v6)] {
                netlink.add_permanent_neighbour(ifindex, ip, mac).unwrap();
            }
        }
        let deadline = monotonic() + Nanos::from_secs(5);
        assert!(near.wait_until_ready(sender_index, deadline).unwrap());
        assert!(far.wait_until_ready(receiver_index, deadline).unwrap());
        Self { sender, receiver, sender_index, receiver_index, flow: Flow { port, cookie } }
    }

    /// A socket of the receiver at the flow's port.
    pub(crate) fn receiving(&self, ip: impl Into<IpAddr>) -> UdpSocket {
        let address = SocketAddr::new(ip.into(), self.flow.port);
        // A fresh IPv6 address may be tentative for a moment.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match self.receiver.enter(|| UdpSocket::bind(address)).unwrap() {
                Ok(socket) => return socket,
                Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A socket of the sender that goes to the flow's port.
    pub(crate) fn sending(&self) -> UdpSocket {
        self.sending_to(RECEIVER_IP.into())
    }

    pub(crate) fn sending_to(&self, ip: IpAddr) -> UdpSocket {
        let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = self.sender.enter(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
        socket.connect((ip, self.flow.port)).unwrap();
        socket
    }

    pub(crate) fn receiver_ipv6() -> IpAddr {
        RECEIVER_IPV6.into()
    }

    /// `bytes` of payload that begin with the probe header.
    pub(crate) fn payload(&self, sequence: u64, bytes: usize) -> Vec<u8> {
        let mut payload = vec![0xa5; bytes.max(HEADER_LEN)];
        Probe { cookie: Cookie(self.flow.cookie), sequence, sent_ns: 0 }.emit(&mut payload).unwrap();
        payload
    }

    /// One payload behind another, each of `segment_bytes`: what `UDP_SEGMENT` cuts.
    pub(crate) fn batch(&self, sequences: impl IntoIterator<Item = u64>, segment_bytes: usize) -> Vec<u8> {
        sequences.into_iter().flat_map(|sequence| self.payload(sequence, segment_bytes)).collect()
    }

    /// A frame of the flow with a wrong UDP checksum.
    pub(crate) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let udp_bytes = 8 + payload.len() as u16;
        let mut ip = vec![0x45, 0];
        ip.extend((20 + udp_bytes).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        ip.extend(SENDER_IP.octets());
        ip.extend(RECEIVER_IP.octets());
        let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut frame = [&RECEIVER_MAC[..], &SENDER_MAC, &[8, 0], &ip].concat();
        for word in [9999, self.flow.port, udp_bytes, 0xbad0] {
            frame.extend(word.to_be_bytes());
        }
        frame.extend(payload);
        frame
    }

    /// Where frames seem to come from.
    pub(crate) fn frame_source(ipv6: bool) -> SocketAddr {
        SocketAddr::new(if ipv6 { SENDER_IPV6.into() } else { SENDER_IP.into() }, 9999)
    }

    /// As [`Hosts::frame`], over IPv6.
    pub(crate) fn frame_ipv6(&self, payload: &[u8]) -> Vec<u8> {
        let udp_bytes = 8 + payload.len() as u16;
        let mut frame = [&RECEIVER_MAC[..], &SENDER_MAC, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend(SENDER_IPV6.octets());
        frame.extend(RECEIVER_IPV6.octets());
        for word in [9999, self.flow.port, udp_bytes, 0xbad0] {
            frame.extend(word.to_be_bytes());
        }
        frame.extend(payload);
        frame
    }
}

/// A drop, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) reason: String,
    pub(crate) symbol: String,
    pub(crate) role: HostRole,
    pub(crate) place: Option<Location>,
    pub(crate) sequences: Vec<u64>,
    pub(crate) unidentified: Option<SocketAddr>,
    pub(crate) unit_packets: u32,
    pub(crate) super_packet: bool,
    pub(crate) continued: bool,
    pub(crate) ipv6: bool,
    pub(crate) ifindex: Option<u32>,
    pub(crate) at: Nanos,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, symbol, role, place, sequences, unit_packets, super_packet, ifindex, .. } = self;
        write!(f, "{reason} @ {symbol} ({role:?}, device {ifindex:?}) -> {place:?}: {unit_packets} packets")?;
        write!(f, "{} {sequences:?}", if *super_packet { " (super)" } else { "" })
    }
}

/// Watches a flow.
pub(crate) struct Watch {
    pub(crate) drops: Drops,
    pub(crate) seen: Vec<Seen>,
    words: Words,
}

/// What puts an event in words.
struct Words {
    reasons: ReasonNames,
    symbols: Symbols,
    sender: u64,
    receiver: u64,
}

impl Words {
    fn of(&self, event: &DropEvent<'_>) -> Seen {
        let reason = self.reasons.name(event.reason).into_owned();
        let symbol = self.symbols.name(event.location).unwrap_or_default().to_owned();
        let role = match event.namespace_cookie {
            Some(cookie) if cookie == self.sender => HostRole::Sender,
            Some(cookie) if cookie != self.receiver => HostRole::Other,
            _ => HostRole::Receiver,
        };
        Seen {
            place: place(&reason, &symbol, role),
            reason,
            symbol,
            role,
            sequences: event.sequences().collect(),
            unidentified: event.unidentified,
            unit_packets: event.unit_packets,
            super_packet: event.super_packet,
            continued: event.continued,
            ipv6: event.ipv6,
            ifindex: event.ifindex,
            at: event.at,
        }
    }
}

impl Watch {
    pub(crate) fn of(hosts: &Hosts) -> Option<Self> {
        Self::with(hosts, &DropOptions::default())
    }

    pub(crate) fn with(hosts: &Hosts, options: &DropOptions) -> Option<Self> {
        let drops = match Drops::attach(&[hosts.flow], options) {
            Ok(drops) => drops,
            Err(error @ BpfError::Load { .. }) => panic!("{error}"),
            Err(error) => {
                longhaul_testing::skipped!("{error}");
                return None;
            }
        };
        let words = Words {
            reasons: drops.reason_names().clone(),
            symbols: Symbols::read().unwrap(),
            sender: hosts.sender.cookie().unwrap(),
            receiver: hosts.receiver.cookie().unwrap(),
        };
        Some(Self { drops, seen: Vec::new(), words })
    }

    /// Takes in what has happened until now.
    pub(crate) fn look(&mut self) -> &[Seen] {
        let Self { drops, seen, words } = self;
        drops.drain(|event| seen.push(words.of(&event)));
        seen
    }

    /// Waits until the drops list as many packets as `packets`, at most five seconds; gives all that was seen.
    pub(crate) fn until(&mut self, packets: usize) -> &[Seen] {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.look().iter().map(|seen| seen.sequences.len()).sum::<usize>() < packets && Instant::now() < deadline
        {
            self.drops.wait(Duration::from_millis(20)).unwrap();
        }
        self.look()
    }

    /// The sequence numbers dropped at `place`, and fails where one is listed twice.
    pub(crate) fn at(&self, place: Location) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for seen in self.seen.iter().filter(|seen| seen.place == Some(place)) {
            for sequence in &seen.sequences {
                assert!(all.insert(*sequence), "{sequence} twice: {seen}");
            }
        }
        all
    }

    /// Prints what was seen once of each kind, for people: `cargo test -- --nocapture`.
    pub(crate) fn print(&self, what: &str) {
        let mut kinds = BTreeSet::new();
        for seen in &self.seen {
            if kinds.insert((seen.reason.clone(), seen.symbol.clone(), seen.super_packet)) {
                println!("{what}: {seen}");
            }
        }
    }
}
