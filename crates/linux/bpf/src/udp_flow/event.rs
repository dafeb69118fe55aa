//! What the maps of the programs hold, as `intf.h` lays it out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::tcp_owner::{Owner, OwnerEvent};

/// `MAX_ANCESTORS` in `intf.h`.
const ANCESTORS: usize = 16;

/// The datagrams between a port and a peer so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFlow {
    /// This end's port.
    pub local_port: u16,
    /// This end's address; `None` as for `peer`.
    pub local: Option<IpAddr>,
    /// The other end; `None` for all peers for which there was no room.
    pub peer: Option<SocketAddr>,
    /// Datagrams that IP gave to an interface.
    pub sent_packets: u64,
    /// Their payload.
    pub sent_bytes: u64,
    /// Datagrams that an interface gave to the stack: before filters, IP and the socket.
    pub arrived_packets: u64,
    /// Their payload.
    pub arrived_bytes: u64,
}

/// What a socket's programs did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpUse {
    /// The socket's cookie.
    pub cookie: u64,
    /// Its port.
    pub local_port: u16,
    /// Who first sent or received by it, and when.
    pub used: OwnerEvent,
    /// Datagrams that were read; super-packets with `UDP_GRO`.
    pub read_packets: u64,
    /// Their payload.
    pub read_bytes: u64,
}

/// Datagrams of a port that were dropped for one reason at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpDropSum {
    /// The port.
    pub local_port: u16,
    /// The other end; `None` where there was no room to tell peers apart.
    pub peer: Option<SocketAddr>,
    /// Whether they were sent from here.
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
            local_port: key.bytes(34).map_or(0, u16::from_ne_bytes),
            local: key.address(0),
            peer: key.peer(16, 32),
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
        let cookie = key.u64(0);
        let name = value.get(100..116).and_then(|comm| comm.split(|byte| *byte == 0).next()).unwrap_or_default();
        let owner = Owner {
            pid: words.u32(32),
            name: String::from_utf8_lossy(name).into_owned(),
            cgroup_id: words.u64(24),
            ancestors: (0..ANCESTORS).map(|number| words.u32(36 + 4 * number)).take_while(|pid| *pid > 0).collect(),
        };
        Self {
            cookie,
            local_port: u16::try_from(words.u32(116)).unwrap_or(0),
            used: OwnerEvent { at_ns: words.u64(0), cookie, by: Some(owner), begins: false },
            read_packets: words.u64(8),
            read_bytes: words.u64(16),
        }
    }
}

impl UdpDropSum {
    /// `struct drop_kind` and `struct drop_sum`.
    pub(super) fn parse(key: &[u8], value: &[u8]) -> Self {
        let (key, value) = (Words(key), Words(value));
        Self {
            local_port: key.bytes(34).map_or(0, u16::from_ne_bytes),
            peer: key.peer(8, 32),
            from_here: key.u32(28) & 1 != 0,
            reason: key.u32(24),
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

    fn words<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn a_flow_reads_back_and_one_without_room_has_no_peer() {
        let mut key = [mapped(1), mapped(2)].concat();
        key.extend(9_u16.to_be_bytes());
        key.extend(5000_u16.to_ne_bytes());
        let value = words([3, 300, 4, 400]);
        let flow = UdpFlow::parse(&key, &value);
        assert_eq!((flow.local, flow.peer), ("10.0.0.1".parse().ok(), "10.0.0.2:9".parse().ok()));
        assert_eq!((flow.local_port, flow.sent_packets, flow.sent_bytes), (5000, 3, 300));
        assert_eq!((flow.arrived_packets, flow.arrived_bytes), (4, 400));
        key[..34].fill(0);
        assert_eq!(UdpFlow::parse(&key, &value).peer, None);
        // Cut off, but no panic.
        assert_eq!(UdpFlow::parse(&key[..20], &[]).sent_packets, 0);
    }

    #[test]
    fn a_socket_has_the_process_that_uses_it() {
        let mut value = words([11, 2, 200, 7]);
        value.resize(120, 0);
        value[32..36].copy_from_slice(&4711_u32.to_ne_bytes());
        value[36..40].copy_from_slice(&1_u32.to_ne_bytes());
        value[100..104].copy_from_slice(b"dig\0");
        value[116..118].copy_from_slice(&53_u16.to_ne_bytes());
        let read = UdpUse::parse(&9_u64.to_ne_bytes(), &value);
        let owner = read.used.by.unwrap();
        assert_eq!((read.used.at_ns, owner.pid, owner.name.as_str(), owner.ancestors), (11, 4711, "dig", vec![1]));
        assert_eq!((read.cookie, read.local_port, read.read_packets, read.read_bytes), (9, 53, 2, 200));
    }

    #[test]
    fn a_drop_has_its_port_and_direction() {
        let mut key = words([0xffff_ffff_8100_0010]);
        key.extend(mapped(2));
        key.extend(6_u32.to_ne_bytes());
        key.extend(3_u32.to_ne_bytes());
        key.extend(9_u16.to_be_bytes());
        key.extend(5000_u16.to_ne_bytes());
        key.extend([0; 4]);
        let drop = UdpDropSum::parse(&key, &words([2, 200]));
        assert_eq!((drop.local_port, drop.peer), (5000, "10.0.0.2:9".parse().ok()));
        assert_eq!((drop.from_here, drop.reason, drop.packets, drop.bytes), (true, 6, 2, 200));
    }
}
