//! Addresses and neighbours.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as RouteNeighbourState,
};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{LinkError, Netlink};

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The link.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Leading bits that are the same on its network.
    pub prefix_bits: u8,
}

/// Who has an IP address on a link's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The link.
    pub ifindex: u32,
    /// The IP address.
    pub ip: IpAddr,
    /// Its MAC address; `None` while nobody answered.
    pub mac: Option<[u8; 6]>,
    /// How sure that is.
    pub state: NeighbourState,
}

/// How sure a neighbour's MAC address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NeighbourState {
    /// Set by hand: never asked for.
    Permanent,
    /// Learned; true lately, or not (reachable, stale, being asked).
    Learned,
    /// Nobody answers.
    Unresolved,
}

impl Netlink {
    /// Gives a link an address. An IPv6 address is usable at once: no duplicates are looked for (`IFA_F_NODAD`).
    ///
    /// # Errors
    /// [`LinkError::Exists`], [`LinkError::NoSuchLink`], [`LinkError::Denied`], [`LinkError::Refused`] where the kernel has
    /// no IPv6.
    pub fn add_address(&mut self, address: &Address) -> Result<(), LinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.ip);
        message.header.prefix_len = address.prefix_bits;
        message.header.index = address.ifindex;
        // Local is the link's own end of a point-to-point link; on a network both are the same.
        message.attributes.push(AddressAttribute::Local(address.ip));
        message.attributes.push(AddressAttribute::Address(address.ip));
        if address.ip.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let action = format!("give interface {} the address {}/{}", address.ifindex, address.ip, address.prefix_bits);
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, &action)
    }

    /// All addresses of the namespace.
    ///
    /// # Errors
    /// [`LinkError::Answer`].
    pub fn addresses(&mut self) -> Result<Vec<Address>, LinkError> {
        let answers = self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), "list addresses")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| {
                let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
                let (mut local, mut address) = (None, None);
                for attribute in &message.attributes {
                    match attribute {
                        AddressAttribute::Local(ip) => local = Some(*ip),
                        AddressAttribute::Address(ip) => address = Some(*ip),
                        _ => {}
                    }
                }
                let ip = local.or(address)?;
                Some(Address { ifindex: message.header.index, ip, prefix_bits: message.header.prefix_len })
            })
            .collect())
    }

    /// Says for good who has `ip` on the network of link `ifindex`, so that nobody is asked (no ARP, no neighbour
    /// solicitation), in the place of what was known.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`], [`LinkError::Denied`], [`LinkError::Refused`].
    pub fn add_permanent_neighbour(&mut self, ifindex: u32, ip: IpAddr, mac: [u8; 6]) -> Result<(), LinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = ifindex;
        message.header.state = RouteNeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::from(ip)));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        let action = format!("make {ip} a permanent neighbour on interface {ifindex}");
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, &action)
    }

    /// All neighbours that the namespace knows, multicast and the like left out.
    ///
    /// # Errors
    /// [`LinkError::Answer`].
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError> {
        let answers = self.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()), "list neighbours")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| {
                let RouteNetlinkMessage::NewNeighbour(message) = answer else { return None };
                let (mut ip, mut mac) = (None, None);
                for attribute in message.attributes {
                    match attribute {
                        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(v4)),
                        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(v6)),
                        NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok(),
                        _ => {}
                    }
                }
                let state = match message.header.state {
                    RouteNeighbourState::Permanent => NeighbourState::Permanent,
                    RouteNeighbourState::Noarp => return None,
                    RouteNeighbourState::Incomplete | RouteNeighbourState::Failed | RouteNeighbourState::None => {
                        NeighbourState::Unresolved
                    }
                    _ => NeighbourState::Learned,
                };
                Some(Neighbour { ifindex: message.header.ifindex, ip: ip?, mac, state })
            })
            .collect())
    }
}

pub(super) fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
