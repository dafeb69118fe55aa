//! Receive packet steering: which CPUs the stack's part of receiving runs on, for a while.
//!
//! RPS moves what follows the driver (IP, UDP, the socket) to the softirq of other CPUs. A NIC's interrupts stay where their
//! affinity puts them. A virtual device has no interrupt of its own: there RPS moves all of it.
//!
//! The settings of before come back, whatever happens to the process that steers ([`crate::guard`]).
//!
//! Source: `Documentation/networking/scaling.rst`, `net/core/net-sysfs.c`.

use std::path::Path;
use std::{fs, io};

use crate::guard::{Changed, Claim, Setting};
use crate::link::Netlink;
use crate::sysfs::{Sysfs, read, shown};

/// Why packets are not steered.
#[derive(Debug, thiserror::Error)]
pub enum RpsError {
    /// The caller may not.
    #[error(
        "no permission to set RPS of {interface}: this needs root and a writable /sys; run as root, or set {file} by \
         hand and do not ask for it"
    )]
    Denied {
        /// The interface.
        interface: String,
        /// The file that could not be written.
        file: String,
    },
    /// Somebody does so already.
    #[error("another test steers the packets of {interface}; wait for its end")]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface has no receive queue with RPS.
    #[error("{interface} has no RPS: the kernel is built without it (CONFIG_RPS)")]
    Unsupported {
        /// The interface.
        interface: String,
    },
    /// Something else.
    #[error("cannot set RPS of {interface}: {what}")]
    Other {
        /// The interface.
        interface: String,
        /// What was being done, and what the kernel said.
        what: String,
    },
}

/// Packets of an interface steered to some CPUs, for as long as this lives; then all is as it was before.
#[derive(Debug)]
pub struct Rps {
    interfaces: Vec<String>,
    _changed: Changed,
}

impl Rps {
    /// Has `cpus` process the packets that arrive at `interface` and at its lower interfaces. RFS, which would move
    /// packets on to the CPU of their reader, is off for the time.
    ///
    /// # Errors
    /// Any [`RpsError`]; then nothing is changed.
    pub fn steer(interface: &str, cpus: &[usize]) -> Result<Self, RpsError> {
        let other = |what: String| RpsError::Other { interface: interface.into(), what };
        let links =
            Netlink::open().and_then(|mut netlink| netlink.links()).map_err(|error| other(error.to_string()))?;
        let sysfs = Sysfs::writable(&links).map_err(other)?;
        // Each that is steered is claimed: two interfaces can have a lower one in common.
        let claim = |steered: &str| {
            Claim::of_rps(steered).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => RpsError::Busy { interface: steered.into() },
                _ => other(error.to_string()),
            })
        };
        let interfaces = sysfs.stack(interface);
        let (mut claims, mut settings) = (Vec::new(), Vec::new());
        for steered in &interfaces {
            claims.push(claim(steered)?);
            settings.extend(settings_of(interface, &sysfs.interface(steered), &mask(cpus))?);
        }
        if settings.is_empty() {
            return Err(RpsError::Unsupported { interface: interface.into() });
        }
        let changed = Changed::apply(settings, claims).map_err(|(path, error)| match path {
            Some(path) => denied(interface, &path, &error),
            None => other(error.to_string()),
        })?;
        Ok(Self { interfaces, _changed: changed })
    }

    /// The interfaces that were set, the one asked for first.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}

/// Has what arrives at `interface` taken up the stack by `cpus` from now on, as long as there is the interface.
///
/// # Errors
/// Any [`RpsError`].
pub fn steer_for_good(interface: &str, cpus: &[usize]) -> Result<(), RpsError> {
    let other = |what: String| RpsError::Other { interface: interface.into(), what };
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).map_err(|error| other(error.to_string()))?;
    let sysfs = Sysfs::writable(&links).map_err(other)?;
    let settings = settings_of(interface, &sysfs.interface(interface), &mask(cpus))?;
    if settings.is_empty() {
        return Err(RpsError::Unsupported { interface: interface.into() });
    }
    settings
        .into_iter()
        .try_for_each(|setting| setting.keep().map_err(|(path, error)| denied(interface, &path, &error)))
}

fn denied(interface: &str, path: &Path, error: &io::Error) -> RpsError {
    let (interface, file) = (interface.to_owned(), shown(path));
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => RpsError::Denied { interface, file },
        _ => RpsError::Other { interface, what: format!("{file}: {error}") },
    }
}

fn settings_of(interface: &str, directory: &Path, mask: &str) -> Result<Vec<Setting>, RpsError> {
    let mut settings = Vec::new();
    for queue in fs::read_dir(directory.join("queues")).into_iter().flatten().flatten() {
        if !queue.file_name().to_string_lossy().starts_with("rx-") {
            continue;
        }
        for (name, wanted) in [("rps_cpus", mask), ("rps_flow_cnt", "0")] {
            let path = queue.path().join(name);
            let Ok(before) = read(&path) else { continue };
            if before == wanted {
                continue;
            }
            let setting = Setting::open(path.clone(), before, wanted);
            settings.push(setting.map_err(|error| denied(interface, &path, &error))?);
        }
    }
    Ok(settings)
}

/// CPUs as a mask of 32-bit words, the highest first.
fn mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(0, |most| most / 32) + 1;
    let word =
        |index: usize| cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0_u32, |word, cpu| word | 1 << (cpu % 32));
    (0..words).rev().map(|index| format!("{:08x}", word(index))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_of_hexadecimal() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3]), "0000000a");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
        assert_eq!(mask(&[]), "00000000");
    }
}
