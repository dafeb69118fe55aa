//! What a host takes for itself, and news of changes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{LinkError, Netlink};

/// `enum rtnetlink_groups` in <linux/rtnetlink.h>: links, and addresses and routes of IPv4 and of IPv6.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];

impl Netlink {
    /// The networks that this namespace takes packets for, each with its leading bits: addresses (all bits), their broadcast and
    /// anycast addresses, 127.0.0.0/8, and what somebody routed so (`ip route add local`). It is the kernel's own list, of
    /// which addresses are only a part. Multicast is not in it.
    ///
    /// # Errors
    /// [`LinkError::Answer`], where routes come and go all the time.
    pub fn local_networks(&mut self) -> Result<Vec<(IpAddr, u8)>, LinkError> {
        let mut networks = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let any: IpAddr =
                if family == AddressFamily::Inet { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            for answer in self.dump(RouteNetlinkMessage::GetRoute(message), "list local networks")? {
                let RouteNetlinkMessage::NewRoute(route) = answer else { continue };
                // A kernel without a family answers with the other's.
                let local = matches!(route.header.kind, RouteType::Local | RouteType::Broadcast | RouteType::Anycast);
                if !local || route.header.address_family != family {
                    continue;
                }
                let destination = route.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
                    RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
                    _ => None,
                });
                networks.push((destination.unwrap_or(any), route.header.destination_prefix_length));
            }
        }
        networks.sort_unstable();
        networks.dedup();
        Ok(networks)
    }
}

/// Tells that links, addresses or routes of a network namespace changed; what changed, whoever cares reads anew.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Listens to the calling thread's network namespace. Needs no rights.
    ///
    /// # Errors
    /// As socket(2) and bind(2) have them.
    pub fn listen() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Whether something changed since it was last asked. Where there was more news than the kernel had room for (`ENOBUFS`),
    /// that is a change.
    pub fn take(&self) -> bool {
        let mut changed = false;
        let mut bytes = Vec::with_capacity(1 << 16);
        loop {
            bytes.clear();
            match self.socket.recv(&mut bytes, 0) {
                Ok(_) => changed = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return changed,
            }
        }
    }
}

impl AsFd for Changes {
    /// Readable when something changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the socket's, which lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}
