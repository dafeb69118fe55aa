//! A UDP socket and its two addresses.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getpeername, getsockname, socket_with};

use super::UdpOpenError;

/// A blocking socket of the family of `address`.
pub(super) fn open(address: SocketAddr) -> Result<OwnedFd, UdpOpenError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|source| UdpOpenError::Step { step: "socket(SOCK_DGRAM)", source: source.into() })
}

/// Where it is bound.
pub(super) fn local_address(fd: &OwnedFd) -> Result<SocketAddr, UdpOpenError> {
    address_of(getsockname(fd), "getsockname")
}

/// Where it is connected to.
pub(super) fn peer_address(fd: &OwnedFd) -> Result<SocketAddr, UdpOpenError> {
    address_of(getpeername(fd).and_then(|peer| peer.ok_or(Errno::NOTCONN)), "getpeername")
}

fn address_of(
    answer: rustix::io::Result<rustix::net::SocketAddrAny>,
    step: &'static str,
) -> Result<SocketAddr, UdpOpenError> {
    answer.and_then(SocketAddr::try_from).map_err(|source| UdpOpenError::Step { step, source: source.into() })
}
