//! What the maps of the programs hold, as `intf.h` lays it out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use longhaul_units::Nanos;

use crate::tcp_owner::{Owner, OwnerEvent};

/// `MAX_ANCESTORS` in `intf.h`.
const ANCESTORS: usize = 16;

/// The datagrams between a socket and a peer so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFlow {
    /// The socket's cookie, as sock_diag(7) has it.
    pub cookie: u64,
    /// This end's address; `None` as for `peer`.
    pub local: Option<IpAddr>,
    /// The other end; `None` for all peers for which there was no room.
    pub peer: Option<SocketAddr>,
    /// Datagrams that UDP gave to IP.
    pub sent_packets: u64,
    /// Their payload.
    pub sent_bytes: u64,
    /// Datagrams that IP gave to the socket, before it looks for room.
    pub arrived_packets: u64,
    /// Their payload.
    pub arrived_bytes: u64,
}

/// What a socket's programs did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpUse {
    /// The socket's cookie.
    pub cookie: u64,
    /// Its port; 0 where it had it before the programs were attached.
    pub local_port: u16,
    /// Who opened it, and when; `None` where that was before the programs were attached.
    pub opened: Option<OwnerEvent>,
    /// When it was closed, on `CLOCK_MONOTONIC`.
    pub ended_at: Option<Nanos>,
    /// Datagrams that were read.
    pub read_packets: u64,
    /// Their payload.
    pub read_bytes: u64,
}

/// Datagrams of a socket or port that were dropped for one reason at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpDropSum {
    /// The socket's cookie; `None` where only its port is known.
    pub cookie: Option<u64>,
    /// The socket's port.
    pub local_port: u16,
    /// The other end; `None` where there was no room to tell peers apart.
    pub peer: Option<SocketAddr>,
    /// Whether the socket sent them.
    pub from_here: bool,
    /// The kernel's number for why; [`ReasonNames`](crate::drops::ReasonNames) has the name.
    pub reason: u32,
    /// The address in the kernel from which they were freed; [`Symbols`](crate::symbols::Symbols) has the function.
    pub location: u64,
    /// Datagrams.
    pub packets: u64,
    /// Their payload.
    pub bytes: u64,
}

/// Numbers at their places; 0 where the bytes are too few.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u64(&self, at: usize) -> u64 {
        self.bytes(at).map_or(0, u64::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> u32 {
        self.bytes(at).map_or(0, u32::from_ne_bytes)
    }

    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn address(&self, at: usize) -> Option<IpAddr> {
        let address = Ipv6Addr::from(self.bytes::<16>(at)?);
        (!address.is_unspecified()).then(|| IpAddr::from(address).to_canonical())
    }

    fn peer(&self, address: usize, port: usize) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address(address)?, u16::from_be_bytes(self.bytes(port)?)))
    }
}

impl UdpFlow {
    /// `struct flow_key` and `struct flow_sum`.
    pub(super) fn parse(key: &[u8], value: &[u8]) -> Self {
        let (key, value) = (Words(key), Words(value));
        Self {
            cookie: key.u64(0),
            local: key.address(8),
            peer: key.peer(24, 40),
            sent_packets: value.u64(0),
            sent_bytes: value.u64(8),
            arrived_packets: value.u64(16),
            arrived_bytes: value.u64(24),
        }
    }
}

impl UdpUse {
    /// A cookie and `struct socket_sum`.
    pub(super) fn parse(key: &[u8], value: &[u8]) -> Self {
        let (key, words) = (Words(key), Words(value));
        let nonzero = |number: u64| (number != 0).then_some(number);
        let cookie = key.u64(0);
        let name = value.get(108..124).and_then(|comm| comm.split(|byte| *byte == 0).next()).unwrap_or_default();
        let owner = || Owner {
            pid: words.u32(40),
            name: String::from_utf8_lossy(name).into_owned(),
            cgroup_id: words.u64(32),
            ancestors: (0..ANCESTORS).map(|number| words.u32(44 + 4 * number)).take_while(|pid| *pid > 0).collect(),
        };
        // The number of the process comes last.
        let began = nonzero(words.u64(0)).filter(|_| words.u32(40) != 0);
        Self {
            cookie,
            local_port: u16::try_from(words.u32(124)).unwrap_or(0),
            opened: began.map(|at_ns| OwnerEvent { at_ns, cookie, by: Some(owner()), begins: true }),
            ended_at: nonzero(words.u64(8)).map(Nanos),
            read_packets: words.u64(16),
            read_bytes: words.u64(24),
        }
    }
}

impl UdpDropSum {
    /// `struct drop_kind` and `struct drop_sum`.
    pub(super) fn parse(key: &[u8], value: &[u8]) -> Self {
        let (key, value) = (Words(key), Words(value));
        Self {
            cookie: Some(key.u64(8)).filter(|cookie| *cookie != 0),
            local_port: key.bytes(42).map_or(0, u16::from_ne_bytes),
            peer: key.peer(16, 40),
            from_here: key.u32(36) & 1 != 0,
            reason: key.u32(32),
            location: key.u64(0),
            packets: value.u64(0),
            bytes: value.u64(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.`last` as the maps have it.
    fn mapped(last: u8) -> [u8; 16] {
        std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets()
    }

    #[test]
    fn a_flow_reads_back_and_one_without_room_has_no_peer() {
        let mut key = 7_u64.to_ne_bytes().to_vec();
        key.extend(mapped(1));
        key.extend(mapped(2));
        key.extend(5000_u16.to_be_bytes());
        key.resize(48, 0);
        let value: Vec<u8> = [3_u64, 300, 4, 400].iter().flat_map(|number| number.to_ne_bytes()).collect();
        let flow = UdpFlow::parse(&key, &value);
        assert_eq!((flow.local, flow.peer), ("10.0.0.1".parse().ok(), "10.0.0.2:5000".parse().ok()));
        assert_eq!((flow.sent_packets, flow.sent_bytes, flow.arrived_packets, flow.arrived_bytes), (3, 300, 4, 400));
        key[8..].fill(0);
        assert_eq!(UdpFlow::parse(&key, &value).peer, None);
        // Cut off, but no panic.
        assert_eq!(UdpFlow::parse(&key[..20], &[]).sent_packets, 0);
    }

    #[test]
    fn a_socket_is_open_until_it_ends_and_has_its_owner() {
        let mut value = vec![0; 128];
        let read = UdpUse::parse(&9_u64.to_ne_bytes(), &value);
        assert_eq!((read.cookie, read.opened, read.ended_at), (9, None, None));
        value[..8].copy_from_slice(&11_u64.to_ne_bytes());
        value[8..16].copy_from_slice(&12_u64.to_ne_bytes());
        value[40..44].copy_from_slice(&4711_u32.to_ne_bytes());
        value[44..48].copy_from_slice(&1_u32.to_ne_bytes());
        value[108..112].copy_from_slice(b"dig\0");
        value[124..126].copy_from_slice(&53_u16.to_ne_bytes());
        let read = UdpUse::parse(&9_u64.to_ne_bytes(), &value);
        let opened = read.opened.unwrap();
        let owner = opened.by.unwrap();
        assert_eq!((opened.at_ns, owner.pid, owner.name.as_str(), owner.ancestors), (11, 4711, "dig", vec![1]));
        assert_eq!((read.local_port, read.ended_at), (53, Some(Nanos(12))));
    }

    #[test]
    fn a_drop_of_a_port_has_no_socket() {
        let mut key = vec![0; 48];
        key[..8].copy_from_slice(&0xffff_ffff_8100_0010_u64.to_ne_bytes());
        key[16..32].copy_from_slice(&mapped(2));
        key[32..36].copy_from_slice(&6_u32.to_ne_bytes());
        key[36..40].copy_from_slice(&3_u32.to_ne_bytes());
        key[40..42].copy_from_slice(&9_u16.to_be_bytes());
        key[42..44].copy_from_slice(&5000_u16.to_ne_bytes());
        let value: Vec<u8> = [2_u64, 200].iter().flat_map(|number| number.to_ne_bytes()).collect();
        let drop = UdpDropSum::parse(&key, &value);
        assert_eq!((drop.cookie, drop.local_port, drop.peer), (None, 5000, "10.0.0.2:9".parse().ok()));
        assert_eq!((drop.from_here, drop.reason, drop.packets, drop.bytes), (true, 6, 2, 200));
    }
}
