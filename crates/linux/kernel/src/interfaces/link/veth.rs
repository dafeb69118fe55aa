//! Virtual cables: veth(4), two links that are each other's far end.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage};

use super::{LinkError, Netlink};
use crate::namespace::NetNamespace;

/// One end of a cable to be made.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Its name, up to 15 bytes.
    pub name: &'a str,
    /// Where it lies; `None` for the namespace of the [`Netlink`].
    pub namespace: Option<&'a NetNamespace>,
    /// The largest IP packet it takes; `None` for the kernel's 1500.
    pub mtu_bytes: Option<u32>,
    /// Its MAC address; `None` for a random one.
    pub mac: Option<[u8; 6]>,
}

impl VethEnd<'_> {
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(self.name.into()));
        message.attributes.extend(self.mtu_bytes.map(LinkAttribute::Mtu));
        message.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
        let descriptor = self.namespace.map(|namespace| namespace.as_fd().as_raw_fd());
        message.attributes.extend(descriptor.map(LinkAttribute::NetNsFd));
        message
    }
}

impl Netlink {
    /// Makes a cable between `left` and `right`, each in its namespace from the start, both down. Deleting either end, or
    /// the last holder of either namespace leaving it, takes both away.
    ///
    /// An end can be set up only once the other exists, so a request that asks for it here fails with `ENOTCONN`: see
    /// [`Netlink::set_up`].
    ///
    /// # Errors
    /// [`LinkError::Exists`] where a name is taken, [`LinkError::Denied`], [`LinkError::Refused`] where the kernel has no
    /// veth (`CONFIG_VETH`).
    pub fn create_veth(&mut self, left: &VethEnd<'_>, right: &VethEnd<'_>) -> Result<(), LinkError> {
        let mut message = left.message();
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(right.message()))),
        ]));
        let action = format!("make a veth pair {} – {}", left.name, right.name);
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, &action)
    }
}
