//! What shapes the arrival of packets at an interface, to read and to change for a while: GRO, the deferral of interrupts by NAPI, the
//! receive ring, interrupt coalescing, the CPUs of its interrupts.
//!
//! The settings of before come back, whatever happens to the process that changes them ([`crate::guard`]). A driver may stop its link for
//! a moment when the ring changes.
//!
//! Source: `<linux/ethtool.h>`, `Documentation/networking/napi.rst`, `Documentation/core-api/irq/irq-affinity.rst`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::driver_settings::{coalescing, rings};
use crate::guard::{Changed, Claim, Setting};
use crate::link::{Link, Netlink};
use crate::link_ioctl::ask;
use crate::sysfs::{Sysfs, interrupts, number_list, read, read_number};

const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// Settings of an interface, as they are or as they are wanted: `None` for what is not known, or stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiveSettings {
    /// The kernel joins received packets to super-packets.
    pub gro: Option<bool>,
    /// Polls without a packet that NAPI makes before it turns interrupts on again.
    pub napi_defer_hard_irqs: Option<u32>,
    /// Time between these polls, nanoseconds.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Packets that the receive ring holds.
    pub ring_packets: Option<u32>,
    /// The longest time from a received packet to its interrupt, microseconds. Setting it turns the driver's own adaptation off.
    pub coalesce_us: Option<u32>,
    /// CPUs that take the interrupts.
    pub irq_cpus: Option<Vec<u32>>,
}

/// Why settings are not changed. Then none is.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveSettingsError {
    /// Somebody changes them already.
    #[error("another test changes settings of {interface}; wait for its end")]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface has no such setting.
    #[error("{interface} has no {setting}")]
    Unsupported {
        /// The interface.
        interface: String,
        /// The setting.
        setting: &'static str,
    },
    /// The kernel or the driver refuses.
    #[error("cannot change {setting} of {interface}: {source}")]
    Refused {
        /// The interface.
        interface: String,
        /// The setting, or its file.
        setting: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Settings that are changed for as long as this lives.
#[derive(Debug)]
pub struct HeldSettings(#[allow(dead_code, reason = "dropping it undoes the changes")] Changed);

/// The settings of `interface` as they are; what cannot be read is `None`.
pub fn receive_settings(interface: &str) -> ReceiveSettings {
    let open = links().and_then(|links| Sysfs::of(&links).map_err(io::Error::other)).ok();
    let directory = open.as_ref().map(|sysfs| sysfs.interface(interface));
    let number = |file: &str| read_number(&directory.as_ref()?.join(file)).ok();
    let mut cpus: Vec<u32> = directory
        .iter()
        .flat_map(|directory| irq_lines(directory))
        .filter_map(|line| fs::read_to_string(irq_file(line)).ok())
        .flat_map(|text| number_list(&text))
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    ReceiveSettings {
        gro: gro(interface).ok(),
        napi_defer_hard_irqs: number("napi_defer_hard_irqs").and_then(|polls| u32::try_from(polls).ok()),
        gro_flush_timeout_ns: number("gro_flush_timeout"),
        ring_packets: rings(interface).ok().flatten().map(|rings| rings.receive_packets),
        coalesce_us: coalescing(interface).ok().flatten().map(|coalescing| coalescing.receive_us),
        irq_cpus: (!cpus.is_empty()).then_some(cpus),
    }
}

/// Changes settings of `interface` to those `wanted`.
///
/// # Errors
/// Any [`ReceiveSettingsError`]; then all is as it was before.
pub fn hold(interface: &str, wanted: &ReceiveSettings) -> Result<HeldSettings, ReceiveSettingsError> {
    let refused = |setting: String, source: io::Error| match source.raw_os_error() {
        Some(libc::EOPNOTSUPP) if setting == RING => {
            ReceiveSettingsError::Unsupported { interface: interface.into(), setting: RING }
        }
        Some(libc::EOPNOTSUPP) if setting == COALESCING => {
            ReceiveSettingsError::Unsupported { interface: interface.into(), setting: COALESCING }
        }
        _ => ReceiveSettingsError::Refused { interface: interface.into(), setting, source },
    };
    let unclaimed = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => ReceiveSettingsError::Busy { interface: interface.into() },
        _ => refused("settings".into(), error),
    };
    let mut claims = vec![Claim::of_receiving(interface).map_err(unclaimed)?];
    let sysfs = links().and_then(|links| Sysfs::writable(&links).map_err(io::Error::other));
    let sysfs = sysfs.map_err(|error| refused("settings".into(), error))?;
    let directory = sysfs.interface(interface);
    let mut settings = Vec::new();
    let mut driver = |setting: &str, before: &[u32], wanted: &[u32], by_hand: String| {
        if before != wanted {
            let told = Setting::of_driver(interface, libc::SIOCETHTOOL, before, wanted, by_hand);
            settings.push(told.map_err(|error| refused(setting.into(), error))?);
        }
        Ok(())
    };
    if let Some(packets) = wanted.ring_packets {
        let mut before = asked::<9>(interface, ETHTOOL_GRINGPARAM).map_err(|error| refused(RING.into(), error))?;
        before[0] = ETHTOOL_SRINGPARAM;
        let mut ring = before;
        ring[5] = packets;
        driver(RING, &before, &ring, format!("ethtool -G {interface} rx {}", before[5]))?;
    }
    if let Some(us) = wanted.coalesce_us {
        let mut before =
            asked::<23>(interface, ETHTOOL_GCOALESCE).map_err(|error| refused(COALESCING.into(), error))?;
        before[0] = ETHTOOL_SCOALESCE;
        let mut coalesce = before;
        (coalesce[1], coalesce[10]) = (us, 0);
        let adapts = on_or_off(before[10] != 0);
        let by_hand = format!("ethtool -C {interface} rx-usecs {} adaptive-rx {adapts}", before[1]);
        driver(COALESCING, &before, &coalesce, by_hand)?;
    }
    if let Some(on) = wanted.gro {
        let before = gro(interface).map_err(|error| refused("GRO".into(), error))?;
        let by_hand = format!("ethtool -K {interface} gro {}", on_or_off(before));
        driver("GRO", &[ETHTOOL_SGRO, before.into()], &[ETHTOOL_SGRO, on.into()], by_hand)?;
    }
    let mut file = |path: PathBuf, name: &str, wanted: String| -> Result<(), ReceiveSettingsError> {
        let before = read(&path).map_err(|error| refused(name.into(), error))?;
        if before != wanted {
            settings.push(Setting::open(path, before, wanted).map_err(|error| refused(name.into(), error))?);
        }
        Ok(())
    };
    // The timer first: deferral without one would leave packets waiting.
    if let Some(timeout) = wanted.gro_flush_timeout_ns {
        file(directory.join("gro_flush_timeout"), "gro_flush_timeout", timeout.to_string())?;
    }
    if let Some(polls) = wanted.napi_defer_hard_irqs {
        file(directory.join("napi_defer_hard_irqs"), "napi_defer_hard_irqs", polls.to_string())?;
    }
    if let Some(cpus) = &wanted.irq_cpus {
        let lines = irq_lines(&directory);
        if lines.is_empty() {
            return Err(ReceiveSettingsError::Unsupported { interface: interface.into(), setting: "interrupts" });
        }
        let list = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        for line in lines {
            // Another interface can have it, too: a port of the same device.
            claims.push(Claim::of_interrupt(line).map_err(unclaimed)?);
            file(irq_file(line), "the CPUs of interrupts", list.clone())?;
        }
    }
    let changed = Changed::apply(settings, claims);
    changed.map(HeldSettings).map_err(|(path, error)| {
        let at = path.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        refused(at.unwrap_or_else(|| "settings".into()), error)
    })
}

const RING: &str = "receive ring";
const COALESCING: &str = "interrupt coalescing";

/// As ethtool(8) takes it.
fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn links() -> io::Result<Vec<Link>> {
    Netlink::open().and_then(|mut netlink| netlink.links()).map_err(io::Error::other)
}

/// The interrupts of the interface with this folder.
fn irq_lines(directory: &Path) -> Vec<u32> {
    fs::canonicalize(directory.join("device")).map(|device| interrupts(&device)).unwrap_or_default()
}

/// The file with the CPUs that take an interrupt.
fn irq_file(line: u32) -> PathBuf {
    format!("/proc/irq/{line}/smp_affinity_list").into()
}

/// The driver's answer to `command`: `N` words, beginning with the command.
fn asked<const N: usize>(interface: &str, command: u32) -> io::Result<[u32; N]> {
    let mut words = [0; N];
    words[0] = command;
    ask(interface, libc::SIOCETHTOOL, &mut words)?;
    Ok(words)
}

/// Whether GRO is on (struct `ethtool_value`).
fn gro(interface: &str) -> io::Result<bool> {
    asked::<2>(interface, ETHTOOL_GGRO).map(|words| words[1] != 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::namespace::NetNamespace;

    #[test]
    fn settings_of_a_veth_change_for_a_while() {
        let Ok(namespace) = NetNamespace::create() else {
            println!("skipped: run as root");
            return;
        };
        let check = || {
            let add = ["link", "add", "name", "v0", "type", "veth", "peer", "name", "v1"];
            assert!(Command::new("ip").args(add).status().unwrap().success());
            let before = receive_settings("v0");
            assert_eq!(
                (before.gro, before.napi_defer_hard_irqs, before.gro_flush_timeout_ns),
                (Some(false), Some(0), Some(0))
            );
            assert_eq!((before.ring_packets, &before.irq_cpus), (None, &None));
            let wanted = ReceiveSettings {
                gro: Some(true),
                napi_defer_hard_irqs: Some(2),
                gro_flush_timeout_ns: Some(200_000),
                ..ReceiveSettings::default()
            };
            let held = hold("v0", &wanted).unwrap();
            let now = receive_settings("v0");
            assert_eq!(
                (now.gro, now.napi_defer_hard_irqs, now.gro_flush_timeout_ns),
                (Some(true), Some(2), Some(200_000))
            );
            assert!(matches!(hold("v0", &wanted), Err(ReceiveSettingsError::Busy { .. })));
            drop(held);
            assert_eq!(receive_settings("v0"), before);
            let refused = |wanted: ReceiveSettings| hold("v0", &wanted).unwrap_err().to_string();
            let none = ReceiveSettings::default();
            assert_eq!(refused(ReceiveSettings { ring_packets: Some(64), ..none.clone() }), "v0 has no receive ring");
            assert_eq!(
                refused(ReceiveSettings { coalesce_us: Some(9), ..none.clone() }),
                "v0 has no interrupt coalescing"
            );
            assert_eq!(refused(ReceiveSettings { irq_cpus: Some(vec![0]), ..none }), "v0 has no interrupts");
            assert_eq!(receive_settings("v0"), before);
        };
        namespace.enter(check).unwrap();
    }
}
