//! Reads the settings that a plan is made of. Needs no rights.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;

use longhaul_kernel::address::is_link_local;
use longhaul_kernel::driver_settings;
use longhaul_kernel::ethtool::{Ethtool, EthtoolError};
use longhaul_kernel::link::{Link, Netlink, Route, RouteOwner};
use longhaul_kernel::memory::page_bytes;
use longhaul_kernel::sysctl::{self, SysctlError};
use longhaul_kernel::sysfs::Sysfs;
use longhaul_units::read_text;

use crate::host::{HostState, LinkState, RouteState, Unread};
use crate::place::RoutePart;

/// The kernel parameters that plans are made of.
const KEYS: [&str; 17] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];
/// Longest list of a kernel's modules that is read.
const MODULES_BYTES: u64 = 16 << 20;

impl HostState {
    /// Reads the settings of the machine and of the calling thread's network namespace: of `interface`, or of those that are up; where there is
    /// hardware among them, of that alone. With `to` also of the route to that address, whatever its port.
    pub fn take(interface: Option<&str>, to: Option<SocketAddr>) -> Self {
        let mut host = Self {
            page_bytes: page_bytes() as u64,
            memory_bytes: memory_bytes(),
            loadable_controls: loadable_controls(),
            has_fq: has_fq(),
            ..Self::default()
        };
        for key in KEYS {
            match sysctl::read(key) {
                Ok(text) => {
                    if sysctl::is_read_only(key) == Some(true) && !key.ends_with("_available_congestion_control") {
                        host.read_only.insert(key.into());
                    }
                    host.sysctls.insert(key.into(), one_space(&text));
                }
                Err(SysctlError::Missing { .. }) => {
                    host.note(key, "this kernel or this network namespace does not have it");
                }
                Err(error) => host.note(key, error.to_string()),
            }
        }
        host.read_links(interface);
        if let Some(to) = to {
            host.read_route(to);
        }
        host
    }

    fn read_route(&mut self, to: SocketAddr) {
        let what = || format!("the route to {}", to.ip());
        match Netlink::open().and_then(|mut netlink| netlink.route_to(to)) {
            Ok(Some(route)) => {
                self.route = Some(RouteState {
                    network: format!("{}/{}", route.network, route.prefix_bits),
                    first_window: RoutePart::FirstWindow.of(&route),
                    receive_window: RoutePart::ReceiveWindow.of(&route),
                    congestion_control: RoutePart::CongestionControl.of(&route),
                    not_kept: not_kept(&route),
                });
            }
            Ok(None) => self.note(what(), "none in the main table leads there"),
            Err(error) => self.note(what(), error.to_string()),
        }
    }

    fn note(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.unread.push(Unread { what: what.into(), reason: reason.into() });
    }

    fn read_links(&mut self, interface: Option<&str>) {
        let read = Netlink::open().and_then(|mut netlink| {
            let links = netlink.links()?;
            Ok((netlink, links))
        });
        let (mut netlink, links) = match read {
            Ok(read) => read,
            Err(error) => return self.note("interfaces", error.to_string()),
        };
        let sysfs = Sysfs::of(&links);
        let is_hardware =
            |link: &Link| sysfs.as_ref().is_ok_and(|sysfs| sysfs.interface(&link.name).join("device").exists());
        let is_usable = |link: &Link| match interface {
            Some(name) => link.name == name,
            None => link.up && link.carrier && link.name != "lo",
        };
        let usable: Vec<&Link> = links.iter().filter(|link| is_usable(link)).collect();
        let any_hardware = interface.is_none() && usable.iter().any(|link| is_hardware(link));
        for link in usable.into_iter().filter(|link| !any_hardware || is_hardware(link)) {
            let state = self.read_link(&mut netlink, link);
            self.links.push(state);
        }
    }

    fn read_link(&mut self, netlink: &mut Netlink, link: &Link) -> LinkState {
        let name = link.name.clone();
        let features = match Ethtool::open(&name).and_then(|ethtool| ethtool.features()) {
            Ok(features) => features,
            Err(EthtoolError::Unsupported { .. }) => Vec::new(),
            Err(error) => {
                self.note(format!("{name}: features"), error.to_string());
                Vec::new()
            }
        };
        let rings = driver_settings::rings(&name).unwrap_or_else(|error| {
            self.note(format!("{name}: rings"), error.to_string());
            None
        });
        let root = netlink.root_qdisc(link.index).unwrap_or_else(|error| {
            self.note(format!("{name}: queueing discipline"), error.to_string());
            None
        });
        LinkState {
            features: features.into_iter().filter(|one| one.changeable).map(|one| (one.name, one.active)).collect(),
            receive_ring: rings.map(|rings| (rings.receive_packets, rings.receive_max_packets)),
            transmit_ring: rings.map(|rings| (rings.transmit_packets, rings.transmit_max_packets)),
            queue_packets: link.queue_packets,
            qdisc_has_children: root.as_ref().is_some_and(|root| root.has_children),
            root_qdisc: root.map(|root| (root.kind, root.major)),
            transmit_queues: link.transmit_queues.unwrap_or(1),
            name,
        }
    }
}

/// Who sets up again what it set up, as its process is named, and whose routes look like a person's.
const NETWORK_MANAGERS: [&str; 3] = ["NetworkManager", "systemd-networkd", "systemd-network"];

/// Why a change of `route` would go by itself, or cannot be made.
fn not_kept(route: &Route) -> Option<String> {
    if is_link_local(route.network) {
        return Some("other interfaces may have a route to the same network".to_owned());
    }
    let owner = match route.owner {
        RouteOwner::Kernel => None,
        RouteOwner::Person => {
            let found = running().find_map(|name| NETWORK_MANAGERS.into_iter().find(|manager| *manager == name));
            found.map(|name| format!("{name} runs and may set it up again"))
        }
        RouteOwner::Dhcp => Some("a DHCP client sets it up again".to_owned()),
        RouteOwner::RouterAdvertisement => Some("router advertisements set it up again".to_owned()),
        RouteOwner::Daemon => Some("a routing daemon sets it up again".to_owned()),
    };
    route.obstacle.map(str::to_owned).or(owner)
}

/// `text` with one space between its words: the kernel separates numbers by tabs.
pub(crate) fn one_space(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Of `/proc/meminfo` (proc_meminfo(5)): `MemTotal:  16314520 kB`.
fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether the kernel has `fq` built in or loaded, by its symbols, or as a module. Where neither can be known it may have it.
fn has_fq() -> bool {
    let symbols =
        File::open("/proc/kallsyms").map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok);
    let mut any = false;
    for symbol in symbols {
        any = true;
        if symbol.split_whitespace().nth(2) == Some("fq_dequeue") {
            return true;
        }
    }
    !any || modules().any(|module| module == "sch_fq")
}

/// The modules of the running kernel.
fn modules() -> impl Iterator<Item = String> {
    let release = sysctl::read("kernel.osrelease").unwrap_or_default();
    let list = Path::new("/lib/modules").join(release).join("modules.dep");
    let text = read_text(&list, MODULES_BYTES).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next()?.split(".ko").next());
    names.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Controls that are modules of the running kernel: it loads one when it is selected.
fn loadable_controls() -> BTreeSet<String> {
    let names = modules().filter_map(|module| module.strip_prefix("tcp_").map(str::to_owned));
    names.filter(|name| ["bbr", "bbr3"].contains(&name.as_str())).collect()
}

/// Services that change such settings by themselves, as their processes are named, and what they do.
const TUNERS: [(&str, &str); 4] = [
    ("bpftune", "it raises and lowers TCP's buffers and chooses congestion controls as it sees fit"),
    ("tuned", "its profile sets kernel parameters and settings of NICs, again at each start"),
    ("irqbalance", "it moves interrupts between CPUs; nothing of this plan, but figures change with it"),
    ("NetworkManager", "it sets interfaces up again with its own rings, offloads, queues and routes"),
];

/// Those of them that run, and what they do.
pub(crate) fn running_tuners() -> Vec<(&'static str, &'static str)> {
    let found: BTreeSet<_> =
        running().flat_map(|name| TUNERS.into_iter().filter(move |(tuner, _)| *tuner == name)).collect();
    // tuned is a Python program, named `tuned` by itself where it can.
    found.into_iter().collect()
}

/// The names of the processes of this machine.
fn running() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(longhaul_kernel::process::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_read_without_rights() {
        let host = HostState::take(None, None);
        assert!(host.numbers("net.ipv4.tcp_rmem").is_some_and(|numbers| numbers.len() == 3), "{host:?}");
        assert!(host.page_bytes >= 4096 && host.memory_bytes > Some(1 << 20), "{host:?}");
        assert_eq!(one_space("4096\t131072  6291456\n"), "4096 131072 6291456");
    }
}
