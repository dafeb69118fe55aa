//! What in a host's set-up makes dropping frames break something, or do nothing.

use crate::caveats;
use longhaul_kernel::link::{Link, LinkError, Netlink};
use longhaul_kernel::sysctl;
use longhaul_result::Caveat;

/// Something that needs frames which are not addressed to this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The interface is a part of a bridge, bond, team or VRF.
    PartOf {
        /// Its name.
        master: String,
        /// Its kind: `bridge`.
        kind: String,
    },
    /// It is a bridge itself.
    Bridge,
    /// Other interfaces share it: macvlan, macvtap, ipvlan.
    Shared {
        /// Their names.
        names: Vec<String>,
    },
    /// The host forwards packets.
    Forwarding {
        /// `IPv4`, `IPv6` or both.
        families: String,
    },
    /// Something reads all frames: a capture, a virtual machine, an emulator, or an interface of another namespace on top (a container's
    /// macvlan) where the driver cannot filter by address.
    Promiscuous,
}

impl Obstacle {
    /// The obstacles to dropping frames at `interface`, and what to do.
    pub fn caveat(&self, interface: &str) -> Caveat {
        match self {
            Self::PartOf { master, kind } => Caveat::new(
                caveats::PART_OF,
                format!("{interface} is a part of {master} ({kind}), which accepts frames for others"),
                match kind.as_str() {
                    "bond" | "team" => format!("filter {master} itself"),
                    _ => format!("take {interface} out of {master}, or filter where the frames leave it"),
                },
            ),
            Self::Bridge => Caveat::new(
                caveats::BRIDGE,
                format!("{interface} is a bridge, which accepts frames for the MAC addresses of its ports, too"),
                "filter where the frames leave it; with --force it drops those, as hosts send them for some time after the bridge's address changed",
            ),
            Self::Shared { names } => Caveat::new(
                caveats::SHARED,
                format!("{} on {interface}: the filter judges their frames by MAC address alone", names.join(", ")),
                "with --force it judges MAC addresses and groups, but neither IP addresses nor ports",
            ),
            Self::Forwarding { families } => Caveat::new(
                caveats::FORWARDING,
                format!("{interface} forwards {families}: packets for others may have to pass"),
                "turn forwarding off; with --force the filter judges MAC addresses and groups, but no IP addresses, ARP or ports",
            ),
            Self::Promiscuous => Caveat::new(
                caveats::PROMISCUOUS,
                format!("{interface} is promiscuous: something on it reads frames for others"),
                "stop the program that reads there (a capture, a virtual machine, a container's macvlan), or use --force: it will not see \
                 rejected frames",
            ),
        }
    }
}

/// The current obstacles to dropping frames at `link`.
///
/// # Errors
/// [`LinkError`], where the kernel does not list its links.
pub fn obstacles(netlink: &mut Netlink, link: &Link) -> Result<Vec<Obstacle>, LinkError> {
    let links = netlink.links()?;
    let mut found = Vec::new();
    if let Some(master) = link.master {
        let master = links.iter().find(|other| other.index == master);
        let (name, kind) = master.map(|master| (master.name.clone(), master.kind.clone())).unwrap_or_default();
        found.push(Obstacle::PartOf { master: name, kind: kind.unwrap_or_else(|| "unknown kind".into()) });
    }
    if link.kind.as_deref() == Some("bridge") {
        found.push(Obstacle::Bridge);
    }
    let shares = |other: &&Link| {
        let kind = other.kind.as_deref().unwrap_or_default();
        other.peer == Some(link.index)
            && other.peer_namespace.is_none()
            && ["macvlan", "macvtap", "ipvlan", "ipvtap"].contains(&kind)
    };
    let names: Vec<String> = links.iter().filter(shares).map(|other| other.name.clone()).collect();
    if !names.is_empty() {
        found.push(Obstacle::Shared { names });
    }
    let families: Vec<&str> =
        [forwards_ipv4(&link.name).then_some("IPv4"), forwards_ipv6(&link.name).then_some("IPv6")]
            .into_iter()
            .flatten()
            .collect();
    if !families.is_empty() {
        found.push(Obstacle::Forwarding { families: families.join(" and ") });
    }
    // An interface that shares this one may have made it promiscuous.
    if link.promiscuous && found.is_empty() {
        found.push(Obstacle::Promiscuous);
    }
    Ok(found)
}

/// Whether the host forwards IPv4 that arrives at an interface. A kernel without a family does not forward it.
///
/// Source: Linux Documentation/networking/ip-sysctl.rst.
pub(crate) fn forwards_ipv4(interface: &str) -> bool {
    is_on(&format!("net/ipv4/conf/{interface}/forwarding"))
}

/// The same of IPv6, for which `all` decides, or `force_forwarding` of the interface (Linux 6.17). Where the interface alone is set, the host is a
/// router there by its own word.
pub(crate) fn forwards_ipv6(interface: &str) -> bool {
    let keys = ["all/forwarding".into(), format!("{interface}/forwarding"), format!("{interface}/force_forwarding")];
    keys.iter().any(|key| is_on(&format!("net/ipv6/conf/{key}")))
}

fn is_on(key: &str) -> bool {
    sysctl::read(key).is_ok_and(|value| value != "0")
}
