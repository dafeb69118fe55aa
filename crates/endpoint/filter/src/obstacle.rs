//! How a host is set up so that dropping frames by the filter's rules would break something, or do nothing.

use longhaul_kernel::link::{Link, LinkError, Netlink};
use longhaul_kernel::sysctl;

/// Something that wants frames which are not for this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The interface is a part of a bridge, bond, team or VRF.
    PartOf {
        /// Its name.
        master: String,
        /// Its kind: `bridge`.
        kind: String,
    },
    /// Interfaces of others on top: macvlan, macvtap, ipvlan.
    Shared {
        /// Their names.
        names: Vec<String>,
    },
    /// Packets are forwarded.
    Forwarding {
        /// `IPv4`, `IPv6` or both.
        families: String,
    },
    /// Somebody reads all frames: a capture, a virtual machine, an emulator, or what lies on top in another namespace, as a container's
    /// macvlan, where the driver cannot tell addresses apart.
    Promiscuous,
}

impl Obstacle {
    /// For programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PartOf { .. } => "part_of",
            Self::Shared { .. } => "shared",
            Self::Forwarding { .. } => "forwarding",
            Self::Promiscuous => "promiscuous",
        }
    }

    /// What is the matter.
    pub fn message(&self, interface: &str) -> String {
        match self {
            Self::PartOf { master, kind } => {
                format!("{interface} is a part of {master} ({kind}), which takes frames for others")
            }
            Self::Shared { names } => {
                format!("{} on {interface}: frames for them are judged by MAC address alone", names.join(", "))
            }
            Self::Forwarding { families } => {
                format!("{interface} forwards {families}: packets for others may be meant to pass")
            }
            Self::Promiscuous => format!("{interface} is promiscuous: somebody there reads frames that are for others"),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::PartOf { master, kind } if kind == "bond" || kind == "team" => format!("filter {master} itself"),
            Self::PartOf { .. } => "take it out of there, or filter where frames come out".into(),
            Self::Shared { .. } => "with --force MAC addresses and groups are judged, IP addresses and ports are not".into(),
            Self::Forwarding { .. } => {
                "turn forwarding off; with --force MAC addresses and groups are judged, IP addresses, ARP and ports are not".into()
            }
            Self::Promiscuous => "end what reads there (a capture, a virtual machine, a container's macvlan), or use --force: it will not see what is rejected".into(),
        }
    }
}

/// What stands against dropping frames at `link`, as it is set up now.
///
/// # Errors
/// [`LinkError`], where links cannot be listed.
pub fn obstacles(netlink: &mut Netlink, link: &Link) -> Result<Vec<Obstacle>, LinkError> {
    let links = netlink.links()?;
    let mut found = Vec::new();
    if let Some(master) = link.master {
        let master = links.iter().find(|other| other.index == master);
        let (name, kind) = master.map(|master| (master.name.clone(), master.kind.clone())).unwrap_or_default();
        found.push(Obstacle::PartOf { master: name, kind: kind.unwrap_or_else(|| "unknown kind".into()) });
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
    let forwards = |family: &&(&str, &str)| {
        let key = format!("net/{}/conf/{}/forwarding", family.0, link.name);
        sysctl::read(&key).is_ok_and(|value| value != "0")
    };
    let families: Vec<&str> =
        [("ipv4", "IPv4"), ("ipv6", "IPv6")].iter().filter(forwards).map(|family| family.1).collect();
    if !families.is_empty() {
        found.push(Obstacle::Forwarding { families: families.join(" and ") });
    }
    // What shares an interface may make it promiscuous by itself.
    if link.promiscuous && found.is_empty() {
        found.push(Obstacle::Promiscuous);
    }
    Ok(found)
}
