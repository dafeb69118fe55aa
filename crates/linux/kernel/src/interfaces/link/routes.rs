//! Routes of the main table: which one leads to an address, who set it up, and what TCP takes from it.
//!
//! Source: rtnetlink(7), ip-route(8), `net/ipv4/fib_frontend.c`, `net/ipv6/route.c`.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteType,
    RouteVia,
};

use super::addressing::family;
use super::{LinkError, Netlink};
use crate::address::{is_link_local, zone_of};

/// A route to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The network's address.
    pub network: IpAddr,
    /// Its leading bits; 0: everywhere.
    pub prefix_bits: u8,
    /// Who set it up.
    pub owner: RouteOwner,
    /// The first congestion window of its connections, packets; `None`: the kernel's.
    pub first_window: Option<u32>,
    /// The receive window that its connections offer at most, bytes; `None`: no bound.
    pub receive_window: Option<u32>,
    /// The congestion control of its connections that choose none; `None`: the default one.
    pub congestion_control: Option<String>,
    /// Why it cannot be set up again as it is; `None` where it can.
    pub obstacle: Option<&'static str>,
    message: RouteMessage,
}

/// How packets to an address leave this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// The link that they leave by.
    pub ifindex: u32,
    /// The router that they go to; `None` where the address is on the link's own network.
    pub gateway: Option<IpAddr>,
    /// The address that they are sent from, unless a program says otherwise.
    pub source: Option<IpAddr>,
    /// The address is this host's own.
    pub is_local: bool,
}

/// Who set a route up (`/etc/iproute2/rt_protos`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteOwner {
    /// The kernel, with an address.
    Kernel,
    /// A person or a script: `boot` and `static`. Managers of networks call theirs `static`, too.
    Person,
    /// A DHCP client.
    Dhcp,
    /// Router advertisements.
    RouterAdvertisement,
    /// A routing daemon, or somebody that the kernel does not know.
    Daemon,
}

impl Netlink {
    /// The route of the main table that packets to `address` take, whatever its port; `None` where they take another table's, as to the host's own
    /// addresses, or where there is none.
    ///
    /// # Errors
    /// [`LinkError::Answer`].
    pub fn route_to(&mut self, address: SocketAddr) -> Result<Option<Route>, LinkError> {
        let ip = address.ip();
        let mut message = question(ip, zone_of(address));
        // The entry of the table, and not what is made of it for this address (Linux 4.13).
        message.header.flags = RouteFlags::FibMatch;
        match self.ask(RouteNetlinkMessage::GetRoute(message), &format!("find the route to {ip}")) {
            Ok(RouteNetlinkMessage::NewRoute(message)) => Ok(Route::of(message)),
            Ok(_) => Ok(None),
            Err(LinkError::Refused { source, .. }) if source.raw_os_error() == Some(UNREACHABLE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How packets to `ip` leave this host now, by the tables that its rules name; `None` where they cannot. A link-local one is in the zone of the
    /// interface with number `zone`.
    ///
    /// # Errors
    /// [`LinkError::Denied`], [`LinkError::Answer`].
    pub fn next_hop_to(&mut self, ip: IpAddr, zone: Option<u32>) -> Result<Option<NextHop>, LinkError> {
        let message = question(ip, zone);
        match self.ask(RouteNetlinkMessage::GetRoute(message), &format!("find the route to {ip}")) {
            Ok(RouteNetlinkMessage::NewRoute(message)) => Ok(NextHop::of(&message)),
            Ok(_) => Ok(None),
            // No route, or one that says that there is none: unreachable, prohibit, blackhole.
            Err(LinkError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The routes of the main table to a network, those that come first first.
    ///
    /// # Errors
    /// [`LinkError::Answer`].
    pub fn routes_to_network(&mut self, network: IpAddr, prefix_bits: u8) -> Result<Vec<Route>, LinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(network);
        let all = self.dump(RouteNetlinkMessage::GetRoute(message), "list routes")?;
        let routes = all.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Route::of(message),
            _ => None,
        });
        Ok(routes.filter(|route| route.network == network && route.prefix_bits == prefix_bits).collect())
    }

    /// Sets `route` up again in its own place, with its windows and congestion control as they are in it now. It is never away.
    ///
    /// # Errors
    /// [`LinkError::Denied`]; [`LinkError::Refused`] where it is no longer there, or the kernel has no such control.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), LinkError> {
        let action = format!("change the route to {}/{}", route.network, route.prefix_bits);
        self.request(RouteNetlinkMessage::NewRoute(route.wanted()), NLM_F_REPLACE, &action)
    }
}

/// Asks for the route to `ip`; to a link-local one, of which other interfaces may have the same, at the interface with number `zone`.
fn question(ip: IpAddr, zone: Option<u32>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(ip);
    message.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
    message.attributes.push(RouteAttribute::Destination(ip.into()));
    message.attributes.extend(zone.filter(|_| is_link_local(ip)).map(RouteAttribute::Oif));
    message
}

/// ENETUNREACH: no route.
const UNREACHABLE: i32 = 101;

impl NextHop {
    fn of(message: &RouteMessage) -> Option<Self> {
        let is_local = message.header.kind == RouteType::Local;
        if !is_local && message.header.kind != RouteType::Unicast {
            return None;
        }
        let ip = |address: &RouteAddress| match address {
            RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
            RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
            _ => None,
        };
        let (mut ifindex, mut gateway, mut source) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => ifindex = Some(*index),
                RouteAttribute::Gateway(address) => gateway = ip(address),
                // An IPv4 destination may have its router in IPv6 (RFC 5549).
                RouteAttribute::Via(RouteVia::Inet(ip)) => gateway = Some((*ip).into()),
                RouteAttribute::Via(RouteVia::Inet6(ip)) => gateway = Some((*ip).into()),
                RouteAttribute::PrefSource(address) => source = ip(address),
                _ => {}
            }
        }
        Some(Self { ifindex: ifindex?, gateway, source, is_local })
    }
}

impl Route {
    fn of(message: RouteMessage) -> Option<Self> {
        let header = &message.header;
        let mut network = match family_of(header)? {
            4 => IpAddr::from([0; 4]),
            _ => IpAddr::from([0; 16]),
        };
        let (mut table, mut obstacle) = (u32::from(header.table), None);
        let (mut first_window, mut receive_window, mut congestion_control) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(ip)) => network = (*ip).into(),
                RouteAttribute::Destination(RouteAddress::Inet6(ip)) => network = (*ip).into(),
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::MultiPath(_) => obstacle = Some("it has several next hops"),
                RouteAttribute::NhId(_) => obstacle = Some("it uses a nexthop object"),
                RouteAttribute::Encap(_) => obstacle = Some("it encapsulates"),
                RouteAttribute::Metrics(metrics) => {
                    for metric in metrics {
                        match metric {
                            RouteMetric::InitCwnd(packets) => first_window = Some(*packets),
                            RouteMetric::Window(bytes) => receive_window = Some(*bytes),
                            RouteMetric::CcAlgo(name) => congestion_control = Some(name.clone()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let owner = match header.protocol {
            RouteProtocol::Kernel => RouteOwner::Kernel,
            RouteProtocol::Boot | RouteProtocol::Static => RouteOwner::Person,
            RouteProtocol::Dhcp => RouteOwner::Dhcp,
            RouteProtocol::Ra | RouteProtocol::IcmpRedirect => RouteOwner::RouterAdvertisement,
            _ => RouteOwner::Daemon,
        };
        let is_main = table == u32::from(RouteHeader::RT_TABLE_MAIN) && header.kind == RouteType::Unicast;
        let prefix_bits = header.destination_prefix_length;
        is_main.then_some(Self {
            network,
            prefix_bits,
            owner,
            first_window,
            receive_window,
            congestion_control,
            obstacle,
            message,
        })
    }

    /// The message that sets it up as it should be.
    fn wanted(&self) -> RouteMessage {
        let mut message = self.message.clone();
        // What the kernel says of it (linkdown, offload), and does not take back.
        message.header.flags &= RouteFlags::Onlink;
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
        let at = message.attributes.iter().position(|attribute| matches!(attribute, RouteAttribute::Metrics(_)));
        let mut metrics = match at.map(|at| message.attributes.remove(at)) {
            Some(RouteAttribute::Metrics(metrics)) => metrics,
            _ => Vec::new(),
        };
        let is_ours = |metric: &RouteMetric| {
            matches!(metric, RouteMetric::InitCwnd(_) | RouteMetric::Window(_) | RouteMetric::CcAlgo(_))
        };
        metrics.retain(|metric| !is_ours(metric));
        metrics.extend(self.first_window.map(RouteMetric::InitCwnd));
        metrics.extend(self.receive_window.map(RouteMetric::Window));
        metrics.extend(self.congestion_control.clone().map(RouteMetric::CcAlgo));
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }
}

fn family_of(header: &RouteHeader) -> Option<u8> {
    match header.address_family {
        netlink_packet_route::AddressFamily::Inet => Some(4),
        netlink_packet_route::AddressFamily::Inet6 => Some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcp_does_not_take_from_a_route_stays_as_it_is() {
        let mut message = RouteMessage::default();
        message.header.address_family = netlink_packet_route::AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::Static;
        message.header.flags = RouteFlags::Onlink | RouteFlags::Linkdown;
        message.attributes = vec![
            RouteAttribute::Priority(7),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400), RouteMetric::InitCwnd(20)]),
        ];
        let mut route = Route::of(message).unwrap();
        assert_eq!((route.owner, route.first_window, route.obstacle), (RouteOwner::Person, Some(20), None));
        route.first_window = None;
        route.congestion_control = Some("reno".into());
        let wanted = route.wanted();
        let metrics = vec![RouteMetric::Mtu(1400), RouteMetric::CcAlgo("reno".into())];
        assert_eq!(wanted.attributes, [RouteAttribute::Priority(7), RouteAttribute::Metrics(metrics)]);
        assert_eq!(wanted.header.flags, RouteFlags::Onlink);
    }
}
