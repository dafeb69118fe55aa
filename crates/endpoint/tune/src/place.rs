//! What can be set, and the values that it has, as text.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A setting of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HostSetting {
    /// A kernel parameter; its value is its text, numbers being separated by one space.
    Sysctl {
        /// Its name, as in sysctl(8).
        key: String,
    },
    /// A feature of an interface (`ethtool -k`): `on` or `off`.
    Feature {
        /// The interface.
        link: String,
        /// As the kernel names it: `rx-gro`.
        feature: String,
    },
    /// A ring of an interface (`ethtool -g`), in packets.
    Ring {
        /// The interface.
        link: String,
        /// The ring for packets that it receives; otherwise for those that it sends.
        receive: bool,
    },
    /// How many packets a queueing discipline without a limit of its own holds.
    QueueLength {
        /// The interface.
        link: String,
    },
    /// The queueing discipline at the root of an interface: its kind, and `KIND MAJOR:` where the kernel did not attach it.
    RootQdisc {
        /// The interface.
        link: String,
    },
    /// What connections take from the route to a network.
    Route {
        /// The network: `192.0.2.0/24`.
        network: String,
        /// What they take.
        part: RoutePart,
    },
}

/// The value of what a route does not say.
pub(crate) const DEFAULT: &str = "default";

/// What connections take from a route; `default` where the route does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoutePart {
    /// The first congestion window, in packets (`initcwnd`).
    FirstWindow,
    /// The receive window that is offered at most, in bytes (`window`).
    ReceiveWindow,
    /// The congestion control (`congctl`).
    CongestionControl,
}

impl HostSetting {
    /// The kernel parameter `key`.
    pub fn sysctl(key: &str) -> Self {
        Self::Sysctl { key: key.into() }
    }

    /// It is one that longhaul sets: a stored state may have been written by anybody who could write there.
    pub(crate) fn is_known(&self) -> bool {
        let is_word = |text: &str, more: &str| {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
            !text.is_empty() && text.len() < 64 && text.chars().all(fits)
        };
        match self {
            Self::Sysctl { key } => {
                (key.starts_with("net.core.") || key.starts_with("net.ipv4.tcp_"))
                    && !key.contains("..")
                    && is_word(key, "._")
            }
            Self::Feature { link, feature } => is_link(link) && is_word(feature, "-"),
            Self::Ring { link, .. } | Self::QueueLength { link } | Self::RootQdisc { link } => is_link(link),
            Self::Route { network, .. } => network_of(network).is_some(),
        }
    }
}

/// The address and the leading bits of a network's text.
pub(crate) fn network_of(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// What the kernel takes for the name of an interface (dev_valid_name): no less, or what was set could not be put back.
pub(crate) fn is_link(name: &str) -> bool {
    let is_plain = |letter: char| !matches!(letter, '/' | ':' | ' ' | '\t'..='\r' | '\0');
    !["", ".", ".."].contains(&name) && name.len() < 16 && name.chars().all(is_plain)
}

impl fmt::Display for HostSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl { key } => f.pad(key),
            Self::Feature { link, feature } => f.pad(&format!("{link} {feature}")),
            Self::Ring { link, receive } => {
                f.pad(&format!("{link} {} ring", if *receive { "receive" } else { "transmit" }))
            }
            Self::QueueLength { link } => f.pad(&format!("{link} txqueuelen")),
            Self::RootQdisc { link } => f.pad(&format!("{link} root qdisc")),
            Self::Route { network, part: RoutePart::FirstWindow } => f.pad(&format!("route {network} initcwnd")),
            Self::Route { network, part: RoutePart::ReceiveWindow } => f.pad(&format!("route {network} window")),
            Self::Route { network, part: RoutePart::CongestionControl } => f.pad(&format!("route {network} congctl")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_tuned_can_be_undone() {
        for key in ["net.core.rmem_max", "net.ipv4.tcp_rmem"] {
            assert!(HostSetting::sysctl(key).is_known(), "{key}");
        }
        for key in ["kernel.core_pattern", "net/core/rmem_max", "net.core...", "net.core./x", "net.ipv4.ip_forward", ""]
        {
            assert!(!HostSetting::sysctl(key).is_known(), "{key}");
        }
        let ring = |link: &str| HostSetting::Ring { link: link.into(), receive: true };
        assert!(ring("eth0.7").is_known() && ring("a\u{1b}[31m").is_known() && ring("a\u{3000}b").is_known());
        let route = |network: &str| HostSetting::Route { network: network.into(), part: RoutePart::FirstWindow };
        assert!(route("0.0.0.0/0").is_known() && route("2001:db8::/32").is_known());
        assert!(!route("10.0.0.0/33").is_known() && !route("10.0.0.0").is_known() && !route("x/8").is_known());
        assert!(!ring("../x").is_known() && !ring("").is_known() && !ring("a name").is_known());
    }
}
