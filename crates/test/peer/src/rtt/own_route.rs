//! This host's route to the one that it probes, while it probes: the kernel tells that routes and addresses changed, and is asked anew.

use std::net::{IpAddr, SocketAddr};

use longhaul_kernel::address::zone_of;
use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::link::{Changes, Netlink, NextHop};
use longhaul_rtt::{ChangedRoute, GapReason, OwnRoute, PathChange};
use longhaul_units::Nanos;

/// What became of the route since the last look.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// It leads elsewhere.
    pub(super) change: Option<PathChange>,
    /// Why no probe can get there, or no answer back, at the moment.
    pub(super) obstacle: Option<GapReason>,
}

/// Watches the route. Where the kernel tells nothing, it sees nothing.
pub(super) struct RouteWatch {
    peer: SocketAddr,
    changes: Option<Changes>,
    netlink: Option<Netlink>,
    /// The last route that there was, as the kernel looks it up.
    next_hop: Option<NextHop>,
    route: OwnRoute,
    obstacle: Option<GapReason>,
    looked: Nanos,
}

impl RouteWatch {
    /// Watches the calling thread's network namespace.
    pub(super) fn new(peer: SocketAddr) -> Self {
        let mut netlink = Netlink::open().ok();
        // It listens before it looks, to miss nothing.
        let changes = Changes::listen().ok();
        let to_peer = |netlink: &mut Netlink| netlink.next_hop_to(peer.ip(), zone_of(peer)).ok().flatten();
        let next_hop = netlink.as_mut().and_then(to_peer);
        let route = next_hop.map(|next_hop| named(netlink.as_mut(), next_hop)).unwrap_or_default();
        Self { peer, changes, netlink, next_hop, route, obstacle: None, looked: monotonic() }
    }

    /// Looks again. `own`: the address that probes are sent from; `None` where each has its own.
    pub(super) fn look(&mut self, own: Option<IpAddr>) -> Seen {
        let within = monotonic().saturating_sub(self.looked);
        self.looked = monotonic();
        let news = self.changes.as_ref().is_some_and(Changes::take);
        let Some(netlink) = self.netlink.as_mut().filter(|_| news || self.obstacle.is_some()) else {
            return Seen::default();
        };
        // Who talks to a link-local address has its own in the same zone.
        let zone = zone_of(self.peer);
        // What the kernel does not say is taken as no change.
        let Ok(now) = netlink.next_hop_to(self.peer.ip(), zone) else {
            return Seen { change: None, obstacle: self.obstacle };
        };
        let is_gone = |own: IpAddr| {
            let found = netlink.next_hop_to(own, zone);
            matches!(found, Ok(found) if !found.is_some_and(|next| next.is_local))
        };
        self.obstacle = match now {
            // A measurement that began without a route learns nothing when it has none.
            None if self.next_hop.is_some() => Some(GapReason::NoRoute),
            _ if own.is_some_and(is_gone) => Some(GapReason::AddressChanged),
            _ => None,
        };
        // Temporary addresses (RFC 8981) come and go on one route.
        let leads = |next_hop: NextHop| (next_hop.ifindex, next_hop.gateway);
        let Some(now) = now.filter(|now| Some(leads(*now)) != self.next_hop.map(leads)) else {
            return Seen { change: None, obstacle: self.obstacle };
        };
        let to = named(self.netlink.as_mut(), now);
        let from = std::mem::replace(&mut self.route, to.clone());
        let change = self.next_hop.replace(now).map(|_| PathChange {
            at_ns: i64::try_from(realtime().0).unwrap_or(i64::MAX),
            within_ns: within.0,
            route: ChangedRoute::OwnRoute { from, to },
            lost: 0,
        });
        Seen { change, obstacle: self.obstacle }
    }
}

fn named(netlink: Option<&mut Netlink>, next_hop: NextHop) -> OwnRoute {
    let link = netlink.and_then(|netlink| netlink.link_by_index(next_hop.ifindex).ok());
    let interface = link.map_or_else(|| format!("interface {}", next_hop.ifindex), |link| link.name);
    OwnRoute { interface, gateway: next_hop.gateway, source: next_hop.source }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;
    use crate::interface::tests::{host_of_twins, ip, number_of};

    #[test]
    fn the_route_to_a_link_local_address_is_by_its_interface() {
        let Some(host) = host_of_twins() else { return };
        let check = || {
            let peer = |link| SocketAddrV6::new("fe80::2".parse().unwrap(), 0, 0, number_of(link));
            let mut watches = ["l1", "l2"].map(|link| RouteWatch::new(peer(link).into()));
            assert_eq!(watches.each_ref().map(|watch| watch.route.interface.as_str()), ["l1", "l2"]);
            // The other interface keeps that address, and its network.
            ip("address del fe80::1/64 dev l2");
            let own = "fe80::1".parse().unwrap();
            let obstacles = watches.each_mut().map(|watch| watch.look(Some(own)).obstacle);
            assert_eq!(obstacles, [None, Some(GapReason::NoRoute)]);
        };
        host.enter(check).unwrap();
    }
}
