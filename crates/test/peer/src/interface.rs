//! Interfaces of a test.

use std::net::IpAddr;

use longhaul_kernel::address::is_link_local;
use longhaul_kernel::link::{LinkError, Netlink};

/// The interface by which packets from `peer` to `own` come in. Link-local ones are in the zone of the interface with number `zone`: others may have
/// the same addresses.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn receiving_interface(own: IpAddr, peer: IpAddr, zone: Option<u32>) -> Result<String, LinkError> {
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let of = |ip: IpAddr| {
        let zone = zone.filter(|_| is_link_local(ip));
        let mut indices = addresses.iter().filter(|address| address.ip == ip).map(|address| address.ifindex);
        indices.find(|index| zone.is_none_or(|zone| zone == *index))
    };
    match of(own) {
        // Between addresses of one host everything passes loopback.
        Some(index) if of(peer).is_none() => Ok(netlink.link_by_index(index)?.name),
        _ => Ok("lo".into()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use longhaul_kernel::capability::is_root_in_namespace;
    use longhaul_kernel::namespace::NetNamespace;

    use super::*;

    pub(crate) fn ip(words: &str) {
        let output = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    }

    /// The number of `link`, in the calling thread's network namespace.
    pub(crate) fn number_of(link: &str) -> u32 {
        Netlink::open().unwrap().index_of(link).unwrap()
    }

    /// A host with two interfaces, `l1` and `l2`, that have one address alone, the same one: fe80::1.
    pub(crate) fn host_of_twins() -> Option<NetNamespace> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("run as root");
            return None;
        }
        let host = NetNamespace::create().unwrap();
        let make = || {
            for number in [1, 2] {
                ip(&format!("link add l{number} type veth peer name r{number}"));
                ip(&format!("link set l{number} addrgenmode none"));
                ip(&format!("link set r{number} up"));
                ip(&format!("link set l{number} up"));
                ip(&format!("address add fe80::1/64 dev l{number} nodad"));
            }
        };
        host.enter(make).unwrap();
        Some(host)
    }

    #[test]
    fn a_link_local_address_is_that_of_its_interface() {
        let Some(host) = host_of_twins() else { return };
        let check = || {
            for link in ["l1", "l2"] {
                let own: IpAddr = "fe80::1".parse().unwrap();
                let from = |peer: IpAddr| receiving_interface(own, peer, Some(number_of(link))).unwrap();
                assert_eq!(from("fe80::2".parse().unwrap()), link);
                assert_eq!(from(own), "lo");
            }
        };
        host.enter(check).unwrap();
    }
}
