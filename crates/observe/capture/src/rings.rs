//! The rings of a capture's interfaces, and the clocks of their time stamps.

use longhaul_captures::LinkType;
use longhaul_captures::spool::Interface;
use longhaul_kernel::capture_ring::{CaptureOptions, CaptureRing};
use longhaul_kernel::driver_settings::receive_queues;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::nic_stamps::{NicStamps, NicStampsError, nic_stamps_support};
use longhaul_kernel::schedule::online_cpus;

use crate::reading::{KERNEL_BLOCK_TIMEOUT_MS, OpenRing};
use crate::spec::{CaptureError, CaptureSpec};

/// Default rings per interface, at most: with more, each has too little memory.
const RINGS_MOST_UNASKED: usize = 16;

/// Open rings and their interfaces.
#[derive(Default)]
pub(crate) struct Opened {
    /// Grouped by interface.
    pub(crate) rings: Vec<OpenRing>,
    pub(crate) interfaces: Vec<Interface>,
    /// Settings of the NICs, undone when dropped.
    pub(crate) stamps: Vec<NicStamps>,
    pub(crate) nic_refusals: Vec<String>,
}

/// Opens the rings of all interfaces. From then on, packets wait in them.
pub(crate) fn open_rings(spec: &CaptureSpec) -> Result<Opened, CaptureError> {
    let link_error = |name: &str| {
        let name = name.to_owned();
        move |source| CaptureError::Link { name, source }
    };
    let mut netlink = Netlink::open().map_err(link_error(spec.interfaces.first().map_or("", String::as_str)))?;
    let mut opened = Opened::default();
    for name in &spec.interfaces {
        let link = netlink.link_by_name(name).map_err(link_error(name))?;
        let refused = |error: NicStampsError| opened.nic_refusals.push(error.to_string());
        let nic = spec.nic_stamps.then(|| NicStamps::enable(name).map_err(refused).ok()).flatten();
        let count = spec.rings.unwrap_or_else(|| rings_of(name));
        let options = CaptureOptions {
            ring_bytes: spec.ring_bytes / count.max(1),
            block_timeout_ms: KERNEL_BLOCK_TIMEOUT_MS,
            filter: spec.filter.clone(),
            promiscuous: spec.promiscuous,
            nic_stamps: nic.is_some(),
        };
        let rings = CaptureRing::open_several(link.index, &options, count)
            .map_err(|source| CaptureError::Open { name: name.clone(), source })?;
        let link_type = match rings.first().map_or(0, CaptureRing::hardware_type) {
            1 | 772 => LinkType::Ethernet,
            65_534 => LinkType::RawIp,
            hardware_type => return Err(CaptureError::LinkType { name: name.clone(), hardware_type }),
        };
        let clock = match (&nic, nic_stamps_support(name)) {
            (Some(_), Ok(support)) => match support.clock_index {
                Some(index) => format!("received: NIC ptp{index}; sent: kernel CLOCK_REALTIME"),
                None => "received: NIC; sent: kernel CLOCK_REALTIME".into(),
            },
            _ => "kernel CLOCK_REALTIME".into(),
        };
        opened.stamps.extend(nic);
        let number = opened.interfaces.len() as u16;
        opened.interfaces.push(Interface { name: name.clone(), link: link_type, mtu_bytes: link.mtu_bytes, clock });
        let open = |ring| OpenRing::new(ring, number, name.clone(), link_type, link.index);
        opened.rings.extend(rings.into_iter().map(open));
    }
    Ok(opened)
}

/// The default number of rings of interface `name`.
fn rings_of(name: &str) -> usize {
    let cpus = online_cpus().map_or(1, |cpus| cpus.len());
    (receive_queues(name) as usize).min(cpus).min(RINGS_MOST_UNASKED)
}
