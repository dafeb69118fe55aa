//! Addresses of sockets.

use std::net::{AddrParseError, IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Why a text is no address of this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnAddressError {
    /// It is no address.
    #[error(transparent)]
    Syntax(#[from] AddrParseError),
    /// A link-local address of IPv6 without a zone.
    #[error("a link-local address needs its interface, as in {0}%eth0")]
    NoZone(Ipv6Addr),
    /// The zone is no interface.
    #[error("this host has no interface {0}")]
    NoInterface(String),
}

/// An address of this host, without a port. A link-local one of IPv6 says by its zone (RFC 4007 §11), the name or number of an interface,
/// where it is: `fe80::1%eth0`.
///
/// # Errors
/// [`OwnAddressError`]. Whether the host has the address is not looked at.
pub fn own_address(text: &str) -> Result<SocketAddr, OwnAddressError> {
    if let Some((ip, zone)) = text.split_once('%')
        && ip.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_unicast_link_local())
    {
        // This is no name: nobody is asked.
        let found = (text, 0).to_socket_addrs().ok().and_then(|mut found| found.next());
        return found.ok_or_else(|| OwnAddressError::NoInterface(zone.into()));
    }
    match text.parse::<IpAddr>()? {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Err(OwnAddressError::NoZone(ip)),
        ip => Ok(SocketAddr::new(ip, 0)),
    }
}

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

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;

    #[test]
    fn a_link_local_address_has_its_interface() {
        for plain in ["127.0.0.1", "0.0.0.0", "::", "2001:db8::1"] {
            assert_eq!(own_address(plain), Ok(SocketAddr::new(plain.parse().unwrap(), 0)));
        }
        // Loopback is the first interface of each network namespace.
        let on_loopback = SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, 1);
        for zoned in ["fe80::1%lo", "fe80::1%1"] {
            assert_eq!(own_address(zoned), Ok(on_loopback.into()));
        }
        for (wrong, why) in [
            ("fe80::1", "needs its interface"),
            ("fe80::1%none0", "no interface none0"),
            ("2001:db8::1%lo", "invalid IP address"),
            ("localhost", "invalid IP address"),
        ] {
            assert!(own_address(wrong).unwrap_err().to_string().contains(why), "{wrong}: {:?}", own_address(wrong));
        }
    }
}
