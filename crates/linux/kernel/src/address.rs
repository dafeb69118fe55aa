//! Addresses of sockets.

use std::net::{IpAddr, SocketAddr};

/// `address` with this port. Its zone stays (RFC 4007 §6): without it the kernel neither binds nor connects to a link-local address of IPv6.
pub fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Whether `ip` is a link-local address of IPv6: each interface may have the same.
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The number of the interface in whose zone a link-local `address` is (RFC 4007 §6); `None` of any other address.
pub fn zone_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(of) if is_link_local(address.ip()) && of.scope_id() > 0 => Some(of.scope_id()),
        _ => None,
    }
}
