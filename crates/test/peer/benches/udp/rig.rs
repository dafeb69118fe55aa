//! Two hosts and the cable between them.

use std::net::Ipv4Addr;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_units::Nanos;

use crate::{Error, Result};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const LINK: &str = "cable";
/// A link that does not take packets after so long never will.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// A veth pair between two namespaces.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) client: NetNamespace,
    pub(crate) server: NetNamespace,
    /// The server's end.
    pub(crate) server_index: u32,
}

impl Cable {
    /// Both ends up and addressed, each other's MAC addresses known. All else is as the kernel has it.
    pub(crate) fn new() -> Result<Self> {
        let (client, server) = (NetNamespace::create()?, NetNamespace::create()?);
        let (client_mac, server_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let end = |host, mac| VethEnd { name: LINK, namespace: Some(host), mtu_bytes: None, mac: Some(mac) };
        Netlink::open()?.create_veth(&end(&client, client_mac), &end(&server, server_mac))?;
        let set_up = |host: &NetNamespace, own: Ipv4Addr, other: Ipv4Addr, other_mac| -> Result<(Netlink, u32)> {
            let mut netlink = host.enter(Netlink::open)??;
            let index = netlink.index_of(LINK)?;
            netlink.set_up(index, true)?;
            netlink.add_address(&Address { ifindex: index, ip: own.into(), prefix_bits: 24 })?;
            netlink.add_permanent_neighbour(index, other.into(), other_mac)?;
            Ok((netlink, index))
        };
        let (mut client_links, client_index) = set_up(&client, CLIENT, SERVER, server_mac)?;
        let (mut server_links, server_index) = set_up(&server, SERVER, CLIENT, client_mac)?;
        for (links, index) in [(&mut client_links, client_index), (&mut server_links, server_index)] {
            if !links.wait_until_ready(index, monotonic() + PATIENCE)? {
                return Err(Error::from("the veth pair does not come up"));
            }
        }
        Ok(Self { client, server, server_index })
    }
}
