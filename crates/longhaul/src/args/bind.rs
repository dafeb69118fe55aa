//! An address of this host.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// An address of this host, without a port. A link-local one of IPv6 says by its zone (RFC 4007 §11), the name or number of an interface,
/// where it is: `fe80::1%eth0`.
pub(crate) fn own_address(text: &str) -> Result<SocketAddr, String> {
    if let Some((ip, zone)) = text.split_once('%')
        && ip.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_unicast_link_local())
    {
        // This is no name: nobody is asked.
        let found = (text, 0).to_socket_addrs().ok().and_then(|mut found| found.next());
        return found.ok_or_else(|| format!("this host has no interface {zone}"));
    }
    match text.parse::<IpAddr>().map_err(|error| error.to_string())? {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Err(format!("a link-local address needs its interface, as in {ip}%eth0"))
        }
        ip => Ok(SocketAddr::new(ip, 0)),
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
            assert!(own_address(wrong).unwrap_err().contains(why), "{wrong}: {:?}", own_address(wrong));
        }
    }
}
