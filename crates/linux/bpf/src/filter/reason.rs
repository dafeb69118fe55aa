//! The reasons to accept or reject a frame, in the order of `intf.h`. `docs/reference/filter.md` explains each.

/// A reason to accept or reject a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "`meaning` says it")]
pub enum Reason {
    OurUnicast,
    SecondaryUnicast,
    ArpForUs,
    ArpAnnouncement,
    ArpProbe,
    NeighbourDiscovery,
    Broadcast,
    MulticastJoined,
    MulticastAll,
    GroupManagement,
    Dhcp,
    LinkDiscovery,
    Eapol,
    Ptp,
    SlowProtocol,
    Fragment,
    Listening,
    Connected,
    Allowed,
    Truncated,
    Doubtful,
    HandedOver,
    ForeignUnicast,
    ArpForOthers,
    SolicitationForOthers,
    MulticastNotJoined,
    VlanNotOurs,
    AddressNotOurs,
    PortClosed,
}

impl Reason {
    /// All, in the order of their numbers: reasons to accept first.
    pub const ALL: [Self; 29] = [
        Self::OurUnicast,
        Self::SecondaryUnicast,
        Self::ArpForUs,
        Self::ArpAnnouncement,
        Self::ArpProbe,
        Self::NeighbourDiscovery,
        Self::Broadcast,
        Self::MulticastJoined,
        Self::MulticastAll,
        Self::GroupManagement,
        Self::Dhcp,
        Self::LinkDiscovery,
        Self::Eapol,
        Self::Ptp,
        Self::SlowProtocol,
        Self::Fragment,
        Self::Listening,
        Self::Connected,
        Self::Allowed,
        Self::Truncated,
        Self::Doubtful,
        Self::HandedOver,
        Self::ForeignUnicast,
        Self::ArpForOthers,
        Self::SolicitationForOthers,
        Self::MulticastNotJoined,
        Self::VlanNotOurs,
        Self::AddressNotOurs,
        Self::PortClosed,
    ];

    /// The reason with this number in the program; `None` where there is none.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether it is a reason to reject.
    pub fn rejects(self) -> bool {
        self >= Self::ForeignUnicast
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::OurUnicast => "our_unicast",
            Self::SecondaryUnicast => "secondary_unicast",
            Self::ArpForUs => "arp_for_us",
            Self::ArpAnnouncement => "arp_announcement",
            Self::ArpProbe => "arp_probe",
            Self::NeighbourDiscovery => "neighbour_discovery",
            Self::Broadcast => "broadcast",
            Self::MulticastJoined => "multicast_joined",
            Self::MulticastAll => "multicast_all",
            Self::GroupManagement => "group_management",
            Self::Dhcp => "dhcp",
            Self::LinkDiscovery => "link_discovery",
            Self::Eapol => "eapol",
            Self::Ptp => "ptp",
            Self::SlowProtocol => "slow_protocol",
            Self::Fragment => "fragment",
            Self::Listening => "listening",
            Self::Connected => "connected",
            Self::Allowed => "allowed",
            Self::Truncated => "truncated",
            Self::Doubtful => "doubtful",
            Self::HandedOver => "handed_over",
            Self::ForeignUnicast => "foreign_unicast",
            Self::ArpForOthers => "arp_for_others",
            Self::SolicitationForOthers => "solicitation_for_others",
            Self::MulticastNotJoined => "multicast_not_joined",
            Self::VlanNotOurs => "vlan_not_ours",
            Self::AddressNotOurs => "address_not_ours",
            Self::PortClosed => "port_closed",
        }
    }

    /// Its meaning, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::OurUnicast => "to the interface's MAC address",
            Self::SecondaryUnicast => "to another MAC address that the interface accepts",
            Self::ArpForUs => "ARP that asks for an address of this host",
            Self::ArpAnnouncement => "ARP that announces an address",
            Self::ArpProbe => "ARP that asks whether an address is free",
            Self::NeighbourDiscovery => "IPv6 neighbours and routers",
            Self::Broadcast => "broadcast without a rule of its own",
            Self::MulticastJoined => "to a group that was joined",
            Self::MulticastAll => "multicast: the interface accepts all groups",
            Self::GroupManagement => "IGMP, MLD",
            Self::Dhcp => "DHCP, DHCPv6",
            Self::LinkDiscovery => "LLDP",
            Self::Eapol => "port authentication (802.1X)",
            Self::Ptp => "precision time (IEEE 1588)",
            Self::SlowProtocol => "LACP, OAM",
            Self::Fragment => "a fragment, which has no port to judge by",
            Self::Listening => "to a port with a listening socket",
            Self::Connected => "of a connection of this host",
            Self::Allowed => "by --allow",
            Self::Truncated => "headers that end too early or contradict their frame",
            Self::Doubtful => "addresses just changed: it may be for a new one",
            Self::HandedOver => "a bridge, bond or the like has taken the interface over",
            Self::ForeignUnicast => "to the MAC address of another station",
            Self::ArpForOthers => "ARP that asks for another host",
            Self::SolicitationForOthers => "IPv6 solicitation for another host",
            Self::MulticastNotJoined => "to a group that nobody here joined",
            Self::VlanNotOurs => "of a VLAN that has no interface here",
            Self::AddressNotOurs => "to an IP address that is not local",
            Self::PortClosed => "to a port without a socket",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_program() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            assert_eq!(reason.rejects(), number >= 22, "ACCEPTED_REASONS in intf.h");
        }
        assert_eq!(Reason::of(29), None);
    }
}
