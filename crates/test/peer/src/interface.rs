//! Interfaces of a test.

use std::net::IpAddr;

use longhaul_kernel::link::{LinkError, Netlink};

/// The interface by which packets from `peer` to `own` come in.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn receiving_interface(own: IpAddr, peer: IpAddr) -> Result<String, LinkError> {
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let of = |ip: IpAddr| addresses.iter().find(|address| address.ip == ip).map(|address| address.ifindex);
    match of(own) {
        // Between addresses of one host everything passes loopback.
        Some(index) if of(peer).is_none() => Ok(netlink.link_by_index(index)?.name),
        _ => Ok("lo".into()),
    }
}
