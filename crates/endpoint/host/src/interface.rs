//! An interface: its driver, speed, bus, rings, offloads, queues and interrupts.
//!
//! Source: `Documentation/ABI/testing/sysfs-class-net`, `sysfs-class-net-queues`, `Documentation/networking/scaling.rst`,
//! `Documentation/networking/napi.rst`, `Documentation/core-api/irq/irq-affinity.rst`.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_kernel::driver_settings::{self, Channels, Coalescing, Pause, Rings};
use longhaul_kernel::ethtool::{Ethtool, EthtoolError, Feature};
use longhaul_kernel::link::{Link, Netlink};
use longhaul_kernel::nic_stamps::nic_stamps_support;
use longhaul_kernel::sysfs::{self, Sysfs, mask_list, number_list, read, read_number};
use serde::{Deserialize, Serialize};

use super::pcie::{self, PciePath};
use super::{Reasons, cpu};

/// An interface as it is now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The kind of a virtual interface: `veth`, `bridge`, `bond`.
    pub kind: Option<String>,
    /// A device of the machine or of its hypervisor belongs to it.
    pub hardware: bool,
    /// It is set up.
    pub up: bool,
    /// It has a carrier.
    pub carrier: bool,
    /// The largest IP packet that it sends.
    pub mtu_bytes: u32,
    /// The link speed that the driver reports; `None` where it has none. That of a veth means nothing.
    pub link_speed_bps: Option<u64>,
    /// The driver's name.
    pub driver: Option<String>,
    /// The driver's version, or the kernel's.
    pub driver_version: Option<String>,
    /// The firmware's version.
    pub firmware: Option<String>,
    /// The device's PCI address: `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// The PCIe links between it and the processor; `None` for virtual devices.
    pub pcie: Option<PciePath>,
    /// The memory node next to it.
    pub numa_node: Option<u32>,
    /// Its rings.
    pub rings: Option<Rings>,
    /// When it interrupts.
    pub coalescing: Option<Coalescing>,
    /// Its channels.
    pub channels: Option<Channels>,
    /// Ethernet flow control.
    pub pause: Option<Pause>,
    /// It can stamp every received packet by a clock of its own.
    pub stamps_in_hardware: bool,
    /// Offloads and other features that are on or can be turned on.
    pub offloads: Vec<Offload>,
    /// Its queues; where all interfaces together have more than 16,384, those of the first ones.
    pub queues: Vec<Queue>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Polls that NAPI makes before it turns interrupts on again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// How long NAPI holds back GRO packets meanwhile.
    pub gro_flush_timeout_ns: Option<u64>,
    /// NAPI runs in a kernel thread of its own.
    pub napi_threaded: Option<bool>,
    /// The queueing discipline at its root.
    pub qdisc: Option<String>,
    /// Packets that a pfifo holds at its egress.
    pub transmit_queue_packets: Option<u64>,
    /// The largest super-packet that it takes to send.
    pub gso_max_bytes: Option<u32>,
    /// The largest super-packet that GRO makes.
    pub gro_max_bytes: Option<u32>,
}

/// A feature of an interface (`ethtool -k`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offload {
    /// As the kernel names it: `rx-gro`, `tx-udp-segmentation`.
    pub name: String,
    /// It is on.
    pub active: bool,
    /// It can be changed.
    pub changeable: bool,
}

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueDirection {
    /// From the wire.
    Receive,
    /// To the wire.
    Transmit,
}

/// One queue of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    /// What it is for.
    pub direction: QueueDirection,
    /// Its number.
    pub index: u32,
    /// Receive: the CPUs to which RPS hands packets; empty where RPS is off. Transmit: the CPUs that use this queue by XPS; empty where
    /// XPS is off. `None` where the interface has no such setting.
    pub cpus: Option<Vec<u32>>,
    /// Receive: flows that RFS remembers.
    pub rfs_flows: Option<u64>,
}

/// An interrupt line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interrupt {
    /// Its number, as in `/proc/interrupts`.
    pub irq: u32,
    /// The name that the driver gave it, mostly that of a queue: `eth0-TxRx-3`.
    pub name: Option<String>,
    /// The CPUs to which it may go.
    pub allowed_cpus: Option<Vec<u32>>,
    /// The CPUs to which it goes.
    pub effective_cpus: Option<Vec<u32>>,
}

/// Interfaces that are read. Each takes some 50 kB and a millisecond, and a user can have tens of thousands in a network namespace of his own.
pub(super) const MOST: usize = 1_024;

/// Queues that are read, of all interfaces together. Each takes some 400 bytes and two or three files; a NIC has some hundreds at most, and an
/// interface that a user makes, thousands.
const QUEUES_MOST: usize = 16_384;

/// The first `most` interfaces of the calling thread's network namespace, by index.
pub(super) fn read_first(most: usize, reasons: &mut Reasons) -> Vec<Interface> {
    let links = Netlink::open().and_then(|netlink| netlink.first_links(most));
    let Some((mut links, are_more)) = reasons.keep("interfaces (rtnetlink)", links) else { return Vec::new() };
    if are_more {
        reasons.note("further interfaces", format_args!("there are more than {most}"));
    }
    links.sort_by_key(|link| link.index);
    let sysfs = reasons.keep("/sys/class/net", Sysfs::of(&links));
    let mut interfaces: Vec<Interface> = links.into_iter().map(|link| one(link, sysfs.as_ref(), reasons)).collect();
    if let Some(sysfs) = &sysfs {
        read_queues(&mut interfaces, QUEUES_MOST, |name| sysfs.interface(name), reasons);
    }
    interfaces
}

fn one(link: Link, sysfs: Option<&Sysfs>, reasons: &mut Reasons) -> Interface {
    let name = link.name;
    let directory = sysfs.map(|sysfs| sysfs.interface(&name));
    let device = directory.as_ref().and_then(|own| fs::canonicalize(own.join("device")).ok());
    let pci = device.as_deref().and_then(pci_device);
    let number = |file: &str| directory.as_ref().and_then(|own| read_number(&own.join(file)).ok());
    let driver = answer(&name, "driver", Ethtool::driver, reasons).unwrap_or_default();
    let speed = answer(&name, "speed", Ethtool::speed_mbps, reasons).flatten();
    let features = answer(&name, "features", Ethtool::features, reasons);
    let offload = |f: Feature| Offload { name: f.name, active: f.active, changeable: f.changeable };
    let some = |text: String| (!text.is_empty() && text != "N/A").then_some(text);
    Interface {
        hardware: device.is_some(),
        link_speed_bps: speed.map(|mbps| u64::from(mbps) * 1_000_000),
        driver: some(driver.name),
        driver_version: some(driver.version),
        firmware: some(driver.firmware),
        pci_address: pci.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()),
        pcie: pci.as_deref().and_then(pcie::read_path),
        numa_node: pci.as_deref().and_then(cpu::node_of),
        rings: setting(&name, "ring sizes", driver_settings::rings(&name), reasons),
        coalescing: setting(&name, "coalescing", driver_settings::coalescing(&name), reasons),
        channels: setting(&name, "channels", driver_settings::channels(&name), reasons),
        pause: setting(&name, "pause frames", driver_settings::pause(&name), reasons),
        stamps_in_hardware: nic_stamps_support(&name).is_ok_and(|support| support.every_received_packet),
        offloads: features.unwrap_or_default().into_iter().filter(|f| f.active || f.changeable).map(offload).collect(),
        queues: Vec::new(),
        interrupts: pci.as_deref().map(interrupts).unwrap_or_default(),
        napi_defer_hard_irqs: number("napi_defer_hard_irqs"),
        gro_flush_timeout_ns: number("gro_flush_timeout"),
        napi_threaded: number("threaded").map(|on| on != 0),
        transmit_queue_packets: number("tx_queue_len"),
        index: link.index,
        kind: link.kind,
        up: link.up,
        carrier: link.carrier,
        mtu_bytes: link.mtu_bytes,
        qdisc: link.qdisc,
        gso_max_bytes: link.gso_max_bytes,
        gro_max_bytes: link.gro_max_bytes,
        name,
    }
}

/// What the driver answers, or `None`. Notes why, unless the driver just has no such thing.
fn answer<T>(
    link: &str,
    action: &str,
    question: impl FnOnce(&Ethtool) -> Result<T, EthtoolError>,
    reasons: &mut Reasons,
) -> Option<T> {
    match Ethtool::open(link).and_then(|ethtool| question(&ethtool)) {
        Err(EthtoolError::Unsupported { .. }) => None,
        other => reasons.keep(format_args!("{link}: {action}"), other),
    }
}

fn setting<T>(link: &str, what: &str, answer: std::io::Result<Option<T>>, reasons: &mut Reasons) -> Option<T> {
    reasons.keep(format_args!("{link}: {what}"), answer).flatten()
}

/// The PCI device that `device` is, or (as with virtio) belongs to.
fn pci_device(device: &Path) -> Option<PathBuf> {
    let is_pci = |path: &&Path| path.file_name().and_then(|name| name.to_str()).is_some_and(pcie::is_address);
    device.ancestors().find(is_pci).map(Path::to_path_buf)
}

/// Reads the queues of `interfaces`, the first `most` of them; `directory` gives an interface's in sysfs.
fn read_queues(interfaces: &mut [Interface], most: usize, directory: impl Fn(&str) -> PathBuf, reasons: &mut Reasons) {
    let mut left = most;
    for interface in interfaces {
        let own = directory(&interface.name).join("queues");
        let mut found = queue_directories(&own);
        let are_more = found.len() > left;
        found.truncate(left);
        left -= found.len();
        interface.queues = found.into_iter().map(|(direction, index, path)| queue(direction, index, &path)).collect();
        if are_more {
            reasons.note("further queues", format_args!("there are more than {most}"));
            return;
        }
    }
}

/// The folders of an interface's queues, in order.
fn queue_directories(directory: &Path) -> Vec<(QueueDirection, u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(QueueDirection, u32, PathBuf)> = entries
        .filter_map(|entry| {
            let (direction, index) = queue_name(entry.file_name().to_str()?)?;
            Some((direction, index, entry.path()))
        })
        .collect();
    found.sort();
    found
}

fn queue(direction: QueueDirection, index: u32, directory: &Path) -> Queue {
    let mask = if direction == QueueDirection::Receive { "rps_cpus" } else { "xps_cpus" };
    Queue {
        direction,
        index,
        cpus: read(&directory.join(mask)).ok().as_deref().and_then(mask_list),
        rfs_flows: read_number(&directory.join("rps_flow_cnt")).ok(),
    }
}

/// `rx-0`, `tx-12`.
fn queue_name(name: &str) -> Option<(QueueDirection, u32)> {
    let (direction, index) = name.split_once('-')?;
    let direction = match direction {
        "rx" => QueueDirection::Receive,
        "tx" => QueueDirection::Transmit,
        _ => return None,
    };
    Some((direction, index.parse().ok()?))
}

fn interrupts(device: &Path) -> Vec<Interrupt> {
    let cpus = |irq: u32, file: &str| {
        fs::read_to_string(format!("/proc/irq/{irq}/{file}")).ok().map(|text| number_list(&text))
    };
    sysfs::interrupts(device)
        .into_iter()
        .map(|irq| Interrupt {
            irq,
            name: interrupt_name(irq),
            allowed_cpus: cpus(irq, "smp_affinity_list"),
            effective_cpus: cpus(irq, "effective_affinity_list"),
        })
        .collect()
}

/// The name of the line is that of its directory below /proc/irq. Without one no driver has requested the line.
fn interrupt_name(irq: u32) -> Option<String> {
    let mut names = fs::read_dir(format!("/proc/irq/{irq}")).ok()?.flatten().filter(|entry| entry.path().is_dir());
    names.next().map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_beyond_the_limit_are_named_as_unread() {
        let mut reasons = Reasons::default();
        assert!(read_first(0, &mut reasons).is_empty());
        let said: Vec<&str> = reasons.0.iter().map(|one| one.what.as_str()).collect();
        assert!(said.contains(&"further interfaces"), "{said:?}");
        let mut reasons = Reasons::default();
        assert!(!read_first(MOST, &mut reasons).is_empty());
        assert!(reasons.0.iter().all(|one| one.what != "further interfaces"));
    }

    #[test]
    fn queues_beyond_the_limit_are_named_as_unread() {
        let root = std::env::temp_dir().join(format!("lhk-queues-{}", std::process::id()));
        for queue in
            ["eth0/queues/rx-10", "eth0/queues/rx-2", "eth0/queues/tx-0", "eth1/queues/rx-0", "eth1/queues/tx-0"]
        {
            fs::create_dir_all(root.join(queue)).unwrap();
        }
        fs::write(root.join("eth0/queues/rx-2/rps_cpus"), "5\n").unwrap();
        let read_at_most = |most: usize| {
            let named = |name: &str| Interface { name: name.into(), ..Interface::default() };
            let mut interfaces = [named("eth0"), named("eth1"), named("none")];
            let mut reasons = Reasons::default();
            read_queues(&mut interfaces, most, |name| root.join(name), &mut reasons);
            let said: Vec<String> = reasons.0.into_iter().map(|one| one.what).collect();
            (interfaces.map(|interface| interface.queues), said)
        };
        let ([first, second, none], said) = read_at_most(5);
        assert_eq!((first.len(), second.len(), none.len()), (3, 2, 0));
        assert!(said.is_empty(), "{said:?}");
        assert_eq!((first[0].direction, first[0].index), (QueueDirection::Receive, 2));
        assert_eq!(first[0].cpus, Some(vec![0, 2]));
        for (most, kept) in [(4, (3, 1)), (3, (3, 0)), (1, (1, 0))] {
            let ([first, second, _], said) = read_at_most(most);
            assert_eq!((first.len(), second.len()), kept);
            assert_eq!(first[0].index, 2);
            assert_eq!(said, ["further queues"]);
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn queue_names() {
        assert_eq!(queue_name("rx-0"), Some((QueueDirection::Receive, 0)));
        assert_eq!(queue_name("tx-12"), Some((QueueDirection::Transmit, 12)));
        for name in ["rx", "xx-1", "rx-", ""] {
            assert_eq!(queue_name(name), None);
        }
    }

    #[test]
    fn a_virtio_device_sits_on_a_pci_device() {
        let device = Path::new("/sys/devices/pci0000:00/0000:00:03.0/virtio2");
        assert_eq!(pci_device(device).unwrap(), Path::new("/sys/devices/pci0000:00/0000:00:03.0"));
        assert_eq!(pci_device(Path::new("/sys/devices/virtual/net/lo")), None);
    }
}
