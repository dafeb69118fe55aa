//! Protocol, destination and length of a frame, in the order of `intf.h`.

/// A protocol, as the program distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the protocols")]
pub enum Class {
    Ipv4Tcp,
    Ipv4Udp,
    Ipv4Icmp,
    Ipv4Igmp,
    Ipv4Other,
    Ipv6Tcp,
    Ipv6Udp,
    Ipv6Icmp,
    Ipv6Other,
    Arp,
    Ipx,
    Netbeui,
    Stp,
    Cdp,
    Vtp,
    Disl,
    Edp,
    Lldp,
    Appletalk,
    Other,
}

impl Class {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::Ipv4Tcp,
        Self::Ipv4Udp,
        Self::Ipv4Icmp,
        Self::Ipv4Igmp,
        Self::Ipv4Other,
        Self::Ipv6Tcp,
        Self::Ipv6Udp,
        Self::Ipv6Icmp,
        Self::Ipv6Other,
        Self::Arp,
        Self::Ipx,
        Self::Netbeui,
        Self::Stp,
        Self::Cdp,
        Self::Vtp,
        Self::Disl,
        Self::Edp,
        Self::Lldp,
        Self::Appletalk,
        Self::Other,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4Tcp => "ipv4_tcp",
            Self::Ipv4Udp => "ipv4_udp",
            Self::Ipv4Icmp => "ipv4_icmp",
            Self::Ipv4Igmp => "ipv4_igmp",
            Self::Ipv4Other => "ipv4_other",
            Self::Ipv6Tcp => "ipv6_tcp",
            Self::Ipv6Udp => "ipv6_udp",
            Self::Ipv6Icmp => "ipv6_icmp",
            Self::Ipv6Other => "ipv6_other",
            Self::Arp => "arp",
            Self::Ipx => "ipx",
            Self::Netbeui => "netbeui",
            Self::Stp => "stp",
            Self::Cdp => "cdp",
            Self::Vtp => "vtp",
            Self::Disl => "disl",
            Self::Edp => "edp",
            Self::Lldp => "lldp",
            Self::Appletalk => "appletalk",
            Self::Other => "other",
        }
    }

    /// The name in texts.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ipv4Tcp => "IPv4 TCP",
            Self::Ipv4Udp => "IPv4 UDP",
            Self::Ipv4Icmp => "IPv4 ICMP",
            Self::Ipv4Igmp => "IPv4 IGMP",
            Self::Ipv4Other => "IPv4 other",
            Self::Ipv6Tcp => "IPv6 TCP",
            Self::Ipv6Udp => "IPv6 UDP",
            Self::Ipv6Icmp => "IPv6 ICMP",
            Self::Ipv6Other => "IPv6 other",
            Self::Arp => "ARP",
            Self::Ipx => "IPX",
            Self::Netbeui => "NetBEUI",
            Self::Stp => "Spanning Tree",
            Self::Cdp => "CDP",
            Self::Vtp => "Cisco VTP",
            Self::Disl => "DISL",
            Self::Edp => "EDP",
            Self::Lldp => "LLDP",
            Self::Appletalk => "AppleTalk",
            Self::Other => "other",
        }
    }
}

/// The kind of destination MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cast {
    /// One station.
    Unicast,
    /// A group.
    Multicast,
    /// All stations.
    Broadcast,
}

impl Cast {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Unicast, Self::Multicast, Self::Broadcast];

    /// The name in results and texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
        }
    }
}

/// A range of frame lengths on the wire, FCS included (RFC 2819, etherStatsPkts64Octets and on).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRange {
    /// The shortest, in bytes.
    pub least_bytes: u32,
    /// The longest, in bytes; `None`: no bound.
    pub most_bytes: Option<u32>,
}

impl SizeRange {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self { least_bytes: 0, most_bytes: Some(64) },
        Self { least_bytes: 65, most_bytes: Some(127) },
        Self { least_bytes: 128, most_bytes: Some(255) },
        Self { least_bytes: 256, most_bytes: Some(511) },
        Self { least_bytes: 512, most_bytes: Some(1023) },
        Self { least_bytes: 1024, most_bytes: Some(1518) },
        Self { least_bytes: 1519, most_bytes: None },
    ];
}
