//! Addresses of sockets.

use std::net::SocketAddr;

/// `address` with this port. Its zone stays (RFC 4007 §6): without it the kernel neither binds nor connects to a link-local address of IPv6.
pub fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}
