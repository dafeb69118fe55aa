//! The PCI Express links between a NIC and the processor, and how much each can carry.
//!
//! *ceiling* = transfers a second × lanes × encoding, in one direction. The encoding keeps 8 of 10 bits up to 5 GT/s, 128 of 130 from
//! 8 GT/s, and all from 64 GT/s. Packet headers and flow control on the link take some 10–20 % more of it, depending on the
//! payload a PCIe packet carries: an Ethernet link that comes near the ceiling will not be filled.
//!
//! Source: PCI Express Base Specification §4.2; `PCIE_SPEED2MBS_ENC` in the kernel's `drivers/pci/pci.h`, by which it prints
//! "available PCIe bandwidth".

use std::path::Path;

use longhaul_kernel::sysfs::{read, read_number};
use serde::{Deserialize, Serialize};

/// One PCIe link, as the device at its lower end reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieLink {
    /// The device's address: `0000:3b:00.0`.
    pub pci_address: String,
    /// Transfers a second on each lane, now.
    pub current_transfers_per_s: Option<u64>,
    /// Lanes, now.
    pub current_lanes: Option<u64>,
    /// The most transfers a second on each lane that the device can do.
    pub max_transfers_per_s: Option<u64>,
    /// The most lanes that the device can use.
    pub max_lanes: Option<u64>,
    /// What the link can carry now in one direction, in bit/s after encoding; `None` where it has no lanes (virtual).
    pub ceiling_bps: Option<u64>,
    /// What it could carry with all lanes at the highest speed.
    pub max_ceiling_bps: Option<u64>,
}

/// The links from a NIC up to the root.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PciePath {
    /// The NIC's own first.
    pub links: Vec<PcieLink>,
    /// The lowest ceiling of the links: the most that passes between NIC and memory in one direction, in bit/s.
    pub ceiling_bps: Option<u64>,
    /// The device below that link.
    pub limited_by: Option<String>,
    /// How the ceilings were computed.
    pub formula: String,
}

/// Printed in the result.
const FORMULA: &str = "transfers/s x lanes x encoding (8/10 up to 5 GT/s, 128/130 from 8 GT/s, 1 from 64 GT/s), in one direction, \
                       before PCIe packet headers";

/// The links above and including the device whose canonical directory is `device`; `None` where there is no PCIe link.
pub(super) fn read_path(device: &Path) -> Option<PciePath> {
    let links: Vec<PcieLink> = device.ancestors().filter_map(read_link).collect();
    if links.is_empty() {
        return None;
    }
    let slowest = links.iter().filter(|link| link.ceiling_bps.is_some()).min_by_key(|link| link.ceiling_bps);
    let (ceiling_bps, limited_by) = slowest.map(|link| (link.ceiling_bps, link.pci_address.clone())).unzip();
    Some(PciePath { ceiling_bps: ceiling_bps.flatten(), limited_by, links, formula: FORMULA.into() })
}

fn read_link(directory: &Path) -> Option<PcieLink> {
    let pci_address = directory.file_name()?.to_str().filter(|name| is_address(name))?.to_owned();
    let speed = |file| read(&directory.join(file)).ok().and_then(|text| transfers_per_s(&text));
    // A device without a link says 0 or 255 (unknown) lanes.
    let lanes = |file| read_number(&directory.join(file)).ok().filter(|lanes| (1..=32).contains(lanes));
    let (current_transfers_per_s, current_lanes) = (speed("current_link_speed"), lanes("current_link_width"));
    let (max_transfers_per_s, max_lanes) = (speed("max_link_speed"), lanes("max_link_width"));
    // The host bridge, or a virtual machine's device: there is no link.
    current_transfers_per_s.or(max_transfers_per_s)?;
    Some(PcieLink {
        pci_address,
        ceiling_bps: ceiling_bps(current_transfers_per_s, current_lanes),
        max_ceiling_bps: ceiling_bps(max_transfers_per_s, max_lanes),
        current_transfers_per_s,
        current_lanes,
        max_transfers_per_s,
        max_lanes,
    })
}

/// `0000:3b:00.0`: domain, bus, device, function.
pub(super) fn is_address(name: &str) -> bool {
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(rest), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    rest.split_once('.').is_some_and(|(device, function)| hex(device, 2..=2) && hex(function, 1..=1))
        && hex(domain, 4..=8)
        && hex(bus, 2..=2)
}

/// The speed in `8.0 GT/s PCIe`; `None` for `Unknown`.
fn transfers_per_s(text: &str) -> Option<u64> {
    let (number, rest) = text.split_once(' ')?;
    let giga: f64 = number.parse().ok()?;
    (rest.starts_with("GT/s") && giga > 0.0 && giga < 1000.0).then(|| (giga * 1e9).round() as u64)
}

fn ceiling_bps(transfers_per_s: Option<u64>, lanes: Option<u64>) -> Option<u64> {
    let raw = transfers_per_s?.checked_mul(lanes?)?;
    Some(match transfers_per_s? {
        0..=5_000_000_000 => raw / 10 * 8,
        5_000_000_001..64_000_000_000 => (u128::from(raw) * 128 / 130) as u64,
        _ => raw,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ceilings_as_the_kernel_has_them() {
        // lspci and the kernel's log: 8 GT/s x8 = 63.008 Gb/s, 5 GT/s x8 = 32 Gb/s, 16 GT/s x16 = 252.048 Gb/s (rounded
        // down a lane there).
        assert_eq!(ceiling_bps(Some(8_000_000_000), Some(8)), Some(63_015_384_615));
        assert_eq!(ceiling_bps(Some(5_000_000_000), Some(8)), Some(32_000_000_000));
        assert_eq!(ceiling_bps(Some(2_500_000_000), Some(1)), Some(2_000_000_000));
        assert_eq!(ceiling_bps(Some(16_000_000_000), Some(16)), Some(252_061_538_461));
        assert_eq!(ceiling_bps(Some(64_000_000_000), Some(16)), Some(1_024_000_000_000));
        assert_eq!(ceiling_bps(None, Some(16)), None);
    }

    #[test]
    fn speeds_and_addresses_are_read() {
        assert_eq!(transfers_per_s("8.0 GT/s PCIe"), Some(8_000_000_000));
        assert_eq!(transfers_per_s("2.5 GT/s"), Some(2_500_000_000));
        assert_eq!(transfers_per_s("Unknown"), None);
        assert!(is_address("0000:3b:00.0") && is_address("10000:e1:00.0"));
        for name in ["virtio2", "pci0000:00", "0000:3b:00", "0000:3b:00.0:1", "", "0000:3b:000.0"] {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn the_narrowest_link_on_the_way_counts() {
        let root = std::env::temp_dir().join(format!("lhk-pcie-{}", std::process::id()));
        let device = root.join("pci0000:00/0000:00:01.0/0000:3b:00.0");
        std::fs::create_dir_all(&device).unwrap();
        let write = |directory: &Path, speed: &str, width: &str| {
            std::fs::write(directory.join("current_link_speed"), speed).unwrap();
            std::fs::write(directory.join("current_link_width"), width).unwrap();
        };
        write(&device, "16.0 GT/s PCIe\n", "16\n");
        write(device.parent().unwrap(), "8.0 GT/s PCIe\n", "4\n");
        let path = read_path(&device).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(path.links.len(), 2);
        assert_eq!((path.ceiling_bps, path.limited_by.as_deref()), (Some(31_507_692_307), Some("0000:00:01.0")));
        assert_eq!(path.links[0].max_ceiling_bps, None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-fA-F:. GT/s\\-e]{0,20}", lanes: u64) {
            let _ = is_address(&text);
            let _ = ceiling_bps(transfers_per_s(&text), Some(lanes));
        }
    }
}
