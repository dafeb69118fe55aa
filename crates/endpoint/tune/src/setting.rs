//! Reading and writing one setting.

use std::io;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::driver_settings;
use longhaul_kernel::ethtool::Ethtool;
use longhaul_kernel::guard::Claim;
use longhaul_kernel::link::{LinkError, Netlink, RootQdisc, Route};
use longhaul_kernel::sysctl;
use longhaul_units::Nanos;

use crate::place::{DEFAULT, HostSetting, RoutePart, network_of};
use crate::reading::one_space;

/// The number of the queueing disciplines that longhaul attaches: `LH`. By it they are known again.
const MAJOR: u16 = 0x4c48;

/// While this is held, no test changes `place` or puts it back. `None` for what no test changes. Waits until `patience` is over, and for the 100 ms
/// of a [`Claim`].
///
/// # Errors
/// A test has it, in words.
pub(crate) fn claim(place: &HostSetting, patience: Nanos) -> Result<Option<Claim>, String> {
    let take = || match place {
        HostSetting::Sysctl { key } => Claim::of_sysctl(key).map(Some),
        HostSetting::Feature { link, .. } | HostSetting::Ring { link, .. } => Claim::of_receiving(link).map(Some),
        HostSetting::QueueLength { .. } | HostSetting::RootQdisc { .. } | HostSetting::Route { .. } => Ok(None),
    };
    let until = monotonic().saturating_add(patience);
    loop {
        match take() {
            Ok(claim) => return Ok(claim),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            // As where tests cannot claim it either.
            Err(_) => return Ok(None),
        }
        if monotonic() >= until {
            return Err(format!("a test has changed {place} while it runs; wait until it ends"));
        }
    }
}

/// The value of `place`.
///
/// # Errors
/// What the kernel said, in words.
pub(crate) fn read(place: &HostSetting) -> Result<String, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    if let HostSetting::Feature { link, .. }
    | HostSetting::Ring { link, .. }
    | HostSetting::QueueLength { link }
    | HostSetting::RootQdisc { link } = place
        && matches!(netlink()?.index_of(link), Err(LinkError::NoSuchLink { .. }))
    {
        return Ok(NO_LINK.into());
    }
    match place {
        HostSetting::Sysctl { key } => sysctl::read(key).map(|text| one_space(&text)).map_err(|error| words(&error)),
        HostSetting::Feature { link, feature } => {
            let features = Ethtool::open(link).and_then(|ethtool| ethtool.features()).map_err(|error| words(&error))?;
            let found = features.iter().find(|one| one.name == *feature);
            let found = found.ok_or_else(|| format!("{link} has no feature {feature}"))?;
            Ok(if found.active { "on" } else { "off" }.into())
        }
        HostSetting::Ring { link, receive } => {
            let rings = driver_settings::rings(link).map_err(|error| words(&error))?;
            let rings = rings.ok_or_else(|| format!("the driver of {link} has no rings to set"))?;
            Ok(if *receive { rings.receive_packets } else { rings.transmit_packets }.to_string())
        }
        HostSetting::QueueLength { link } => {
            let found = netlink()?.link_by_name(link).map_err(|error| words(&error))?;
            found.queue_packets.map(|packets| packets.to_string()).ok_or_else(|| format!("{link} has no queue length"))
        }
        HostSetting::RootQdisc { link } => {
            let mut netlink = netlink()?;
            let index = netlink.index_of(link).map_err(|error| words(&error))?;
            let root = netlink.root_qdisc(index).map_err(|error| words(&error))?;
            Ok(root.map_or_else(|| "none".into(), |root| with_children(&root)))
        }
        HostSetting::Route { network, part } => {
            Ok(route(network)?.map_or_else(|| NO_ROUTE.into(), |route| part.of(&route)))
        }
    }
}

/// The value of a setting whose interface is there no longer: it went with it.
const NO_LINK: &str = "no such interface";
/// The value of a route that is there no longer.
const NO_ROUTE: &str = "no such route";

/// Whether `value` is that of a setting that went with its interface or route: nobody else gave it, and there is nothing to put back.
pub fn is_gone(value: &str) -> bool {
    [NO_LINK, NO_ROUTE].contains(&value)
}

/// The route to `network` that comes first.
fn route(network: &str) -> Result<Option<Route>, String> {
    let (address, bits) = network_of(network).ok_or_else(|| format!("{network} is not a network"))?;
    let routes = netlink()?.routes_to_network(address, bits).map_err(|error| error.to_string())?;
    Ok(routes.into_iter().next())
}

impl RoutePart {
    /// Its value in `route`.
    pub(crate) fn of(self, route: &Route) -> String {
        let value = match self {
            Self::FirstWindow => route.first_window.map(|packets| packets.to_string()),
            Self::ReceiveWindow => route.receive_window.map(|bytes| bytes.to_string()),
            Self::CongestionControl => route.congestion_control.clone(),
        };
        value.unwrap_or_else(|| DEFAULT.into())
    }
}

/// `fq` and `mq of fq` for longhaul's own, `pfifo_fast` for the kernel's, `htb 1:` for those of others.
fn qdisc_text(root: &RootQdisc) -> String {
    match (root.kind.as_str(), root.major) {
        ("mq", MAJOR) => "mq of fq".into(),
        (kind, MAJOR) => kind.into(),
        // Not longhaul's: the kernel attaches it by default.
        ("fq", 0) => "fq 0:".into(),
        (kind, 0) => kind.into(),
        (kind, major) => format!("{kind} {major:x}:"),
    }
}

/// The same, and whether somebody put others below it: they would go with it.
fn with_children(root: &RootQdisc) -> String {
    let text = qdisc_text(root);
    if root.has_children { format!("{text} with others below") } else { text }
}

fn netlink() -> Result<Netlink, String> {
    Netlink::open().map_err(|error| error.to_string())
}

/// What `place` also reads as, where `value` was given to it, once the machine was started again: the kernel attaches the default kind.
pub(crate) fn read_later(place: &HostSetting, value: &str) -> Option<String> {
    matches!(place, HostSetting::RootQdisc { .. }).then(|| format!("{value} 0:"))
}

/// Sets `place` to `value`. Of queueing disciplines it can set `fq` and `mq of fq`; any other value means the kernel's default one.
///
/// # Errors
/// What the kernel said, in words.
pub(crate) fn write(place: &HostSetting, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("{place}: `{value}` is not a number"));
    match place {
        HostSetting::Sysctl { key } => sysctl::write(key, value).map_err(|error| error.to_string()),
        HostSetting::Feature { link, feature } => {
            let ethtool = Ethtool::open(link).map_err(|error| error.to_string())?;
            ethtool.set_features(&[(feature, value == "on")]).map_err(|error| error.to_string())
        }
        HostSetting::Ring { link, receive } => {
            let packets = number()?;
            let (rx, tx) = if *receive { (Some(packets), None) } else { (None, Some(packets)) };
            let said = |error: io::Error| format!("{place} = {packets}: {error}");
            driver_settings::set_rings(link, rx, tx).map_err(said)
        }
        HostSetting::QueueLength { link } => {
            let (mut netlink, packets) = (netlink()?, number()?);
            let index = netlink.index_of(link).map_err(|error| error.to_string())?;
            netlink.set_queue_packets(index, packets).map_err(|error| error.to_string())
        }
        HostSetting::RootQdisc { link } => {
            let mut netlink = netlink()?;
            let index = netlink.index_of(link).map_err(|error| error.to_string())?;
            match value {
                "fq" => netlink.set_root_qdisc(index, "fq", MAJOR),
                // Its queues get the default kind.
                "mq of fq" => netlink.set_root_qdisc(index, "mq", MAJOR),
                _ => {
                    // What the kernel attached cannot be removed, only replaced.
                    if netlink.root_qdisc(index).is_ok_and(|root| root.is_some_and(|root| root.major == 0)) {
                        netlink.set_root_qdisc(index, "pfifo", MAJOR).map_err(|error| error.to_string())?;
                    }
                    netlink.remove_root_qdisc(index)
                }
            }
            .map_err(|error| error.to_string())
        }
        HostSetting::Route { network, part } => {
            let mut route = route(network)?.ok_or_else(|| format!("there is no route to {network}"))?;
            if let Some(why) = route.obstacle {
                return Err(format!("the route to {network} cannot be changed: {why}"));
            }
            let value = (value != DEFAULT).then_some(value);
            match part {
                RoutePart::FirstWindow => route.first_window = value.map(|_| number()).transpose()?,
                RoutePart::ReceiveWindow => route.receive_window = value.map(|_| number()).transpose()?,
                RoutePart::CongestionControl => route.congestion_control = value.map(str::to_owned),
            }
            netlink()?.replace_route(&route).map_err(|error| error.to_string())
        }
    }
}
