//! The kinds of frames that a mix has.

use std::fmt;
use std::str::FromStr;

/// The kind of a frame. Other hosts have addresses in 198.18.0.0/15 and 2001:2::/48, which are reserved for benchmarks (RFC 2544,
/// RFC 5180), and locally administered MAC addresses that no station has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Numbered UDP datagrams to the target, by IPv4 or IPv6 as its address is. The receiver counts them.
    Stream,
    /// IPv4 UDP to another host.
    Udp,
    /// IPv4 TCP to another host.
    Tcp,
    /// IPv4 ICMP echo requests to another host.
    Icmp,
    /// ARP requests for another host's address, broadcast.
    Arp,
    /// ARP requests for the target's own address, broadcast.
    ArpForTarget,
    /// IPv4 UDP to 255.255.255.255.
    Broadcast,
    /// IPv4 UDP to a group of 239.192.0.0/14 (organisation-local, RFC 2365 §6.2).
    Multicast,
    /// IGMPv2 membership reports (RFC 2236).
    Igmp,
    /// IPX in one of its four framings, every other one broadcast.
    Ipx(Framing),
    /// NetBIOS name queries in NetBEUI frames.
    Netbeui,
    /// Spanning tree: configuration BPDUs.
    Stp,
    /// Cisco Discovery Protocol.
    Cdp,
    /// Cisco VLAN Trunking Protocol: summary advertisements.
    Vtp,
    /// Cisco's Dynamic ISL, later Dynamic Trunking Protocol, which negotiates trunks.
    Disl,
    /// Extreme Discovery Protocol.
    Edp,
    /// Link Layer Discovery Protocol.
    Lldp,
    /// AppleTalk: name lookups, broadcast in the zone.
    AppleTalk,
    /// IPv6 to another host: UDP, TCP and ICMPv6 echo requests.
    Ipv6,
    /// IPv6 neighbour solicitations for another host, to its solicited-node group.
    NeighbourSolicitation,
    /// IPv6 neighbour solicitations for the target, to its solicited-node group.
    SolicitationForTarget,
    /// IPv4 UDP to another host in a VLAN (802.1Q).
    Vlan,
    /// IPv4 UDP to another host in two nested VLANs (802.1ad and 802.1Q).
    Qinq,
}

/// How a frame carries IPX. [`Framing::Any`] takes each framing in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Framing {
    /// All four.
    Any,
    /// Ethernet II, type 0x8137.
    EthernetII,
    /// "802.3 raw": a length, then the IPX header, whose checksum 0xffff no LLC header has.
    Raw,
    /// IEEE 802.2 LLC, SAP 0xe0.
    Llc,
    /// SNAP, type 0x8137.
    Snap,
}

impl Framing {
    /// The four that frames have.
    pub(crate) const EACH: [Self; 4] = [Self::EthernetII, Self::Raw, Self::Llc, Self::Snap];
}

impl Kind {
    /// All of them, with the names that a mix file has.
    pub const ALL: [(Self, &'static str); 27] = [
        (Self::Stream, "stream"),
        (Self::Udp, "udp"),
        (Self::Tcp, "tcp"),
        (Self::Icmp, "icmp"),
        (Self::Arp, "arp"),
        (Self::ArpForTarget, "arp-for-target"),
        (Self::Broadcast, "broadcast"),
        (Self::Multicast, "multicast"),
        (Self::Igmp, "igmp"),
        (Self::Ipx(Framing::Any), "ipx"),
        (Self::Ipx(Framing::EthernetII), "ipx-ethernet-ii"),
        (Self::Ipx(Framing::Raw), "ipx-raw"),
        (Self::Ipx(Framing::Llc), "ipx-llc"),
        (Self::Ipx(Framing::Snap), "ipx-snap"),
        (Self::Netbeui, "netbeui"),
        (Self::Stp, "stp"),
        (Self::Cdp, "cdp"),
        (Self::Vtp, "vtp"),
        (Self::Disl, "disl"),
        (Self::Edp, "edp"),
        (Self::Lldp, "lldp"),
        (Self::AppleTalk, "appletalk"),
        (Self::Ipv6, "ipv6"),
        (Self::NeighbourSolicitation, "neighbour-solicitation"),
        (Self::SolicitationForTarget, "solicitation-for-target"),
        (Self::Vlan, "vlan"),
        (Self::Qinq, "qinq"),
    ];

    /// The name in a mix file.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The address family that its target must have: `Some(true)` for IPv4, `Some(false)` for IPv6; `None`: either, or it needs no target.
    pub(crate) fn target_family(self) -> Option<bool> {
        match self {
            Self::ArpForTarget => Some(true),
            Self::SolicitationForTarget => Some(false),
            _ => None,
        }
    }

    /// Whether its frames need a target.
    pub fn takes_target(self) -> bool {
        self == Self::Stream || self.target_family().is_some()
    }

    /// Whether it carries data of any length. Other kinds have a fixed length. They keep it where a mix has several sizes, and are padded
    /// where it has one.
    pub fn is_elastic(self) -> bool {
        matches!(
            self,
            Self::Stream
                | Self::Udp
                | Self::Tcp
                | Self::Icmp
                | Self::Broadcast
                | Self::Multicast
                | Self::Ipx(_)
                | Self::Ipv6
                | Self::Vlan
                | Self::Qinq
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name)| *name).collect();
            format!(
                "`{}` is not a kind; use one of {}",
                text.chars().take(40).collect::<String>().escape_debug(),
                names.join(", ")
            )
        })
    }
}
