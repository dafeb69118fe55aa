//! A host as it matters to its network: NICs, PCIe, rings, offloads, queues, interrupts, sysctls, CPU, clock.
//!
//! A [`HostSnapshot`] is of the machine and of the network namespace that the calling thread is in. It serializes to JSON with
//! the unit of each number in its name. What could not be read is `null`, and [`HostSnapshot::unreadable`] says why.
//! [`HostSnapshot::findings`] says what of it is likely to cost throughput, and what to do.
//!
//! What is not here: setting any of it.
//!
//! Source: `Documentation/ABI/testing/sysfs-class-net*`, `sysfs-bus-pci`, `Documentation/networking/scaling.rst`,
//! `<linux/ethtool.h>`, proc(5).

mod cpu;
mod device;
mod findings;
mod interface;
mod pcie;
mod sysctls;
pub(crate) mod sysfs;

pub use cpu::{Cpu, NumaNode};
pub use device::{Channels, Coalescing, Pause, Rings, receive_queues};
pub use findings::{Finding, LONG_PATH_RTT};
pub use interface::{Interface, Interrupt, Offload, Queue, QueueDirection};
pub use pcie::{PcieLink, PciePath};
pub use sysctls::{SysctlValue, keys as sysctl_keys};

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::clock::realtime;

/// A host at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSnapshot {
    /// When it was taken: `CLOCK_REALTIME`, since 1970.
    pub taken_at_realtime_ns: u64,
    /// The host's name.
    pub hostname: Option<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// The processors.
    pub cpu: Cpu,
    /// The interfaces of the network namespace, loopback too.
    pub interfaces: Vec<Interface>,
    /// Kernel parameters by name, as in sysctl(8); `tcp_mem` and `udp_mem` count pages ([`Kernel::page_bytes`]), every other
    /// buffer bytes.
    pub sysctls: BTreeMap<String, SysctlValue>,
    /// What could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// The kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Its release: `6.18.44`.
    pub release: Option<String>,
    /// `x86_64`, `aarch64`.
    pub architecture: &'static str,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What keeps its time: `tsc`, `kvm-clock`, `hpet`.
    pub clocksource: Option<String>,
    /// What else could.
    pub clocksources_available: Option<Vec<String>>,
    /// The hypervisor or machine that it runs on, as far as it can be told; `None` where nothing hints at one.
    pub virtualization: Option<String>,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// A file, a sysctl, or what was asked of which interface's driver.
    pub what: String,
    /// Why, in the kernel's words.
    pub reason: String,
}

/// Collects what could not be read.
#[derive(Debug, Default)]
struct Reasons(Vec<Unreadable>);

impl Reasons {
    /// The value, or `None` and the reason noted.
    fn keep<T>(&mut self, what: impl fmt::Display, result: Result<T, impl fmt::Display>) -> Option<T> {
        result.map_err(|error| self.note(what, error)).ok()
    }

    fn note(&mut self, what: impl fmt::Display, reason: impl fmt::Display) {
        self.0.push(Unreadable { what: what.to_string(), reason: reason.to_string() });
    }
}

impl HostSnapshot {
    /// Looks at the machine, and at the network namespace that the calling thread is in. Needs no rights; some things stay
    /// unread without them.
    pub fn take() -> Self {
        let mut reasons = Reasons::default();
        let taken_at_realtime_ns = realtime().0;
        let interfaces = interface::read_all(&mut reasons);
        Self {
            taken_at_realtime_ns,
            hostname: read_line("/proc/sys/kernel/hostname", &mut reasons),
            kernel: kernel(&mut reasons),
            cpu: cpu::read(&mut reasons),
            interfaces,
            sysctls: sysctls::read(&mut reasons),
            unreadable: reasons.0,
        }
    }
}

fn kernel(reasons: &mut Reasons) -> Kernel {
    let clock = "/sys/devices/system/clocksource/clocksource0";
    Kernel {
        release: read_line("/proc/sys/kernel/osrelease", reasons),
        architecture: std::env::consts::ARCH,
        page_bytes: rustix::param::page_size() as u64,
        clocksource: read_line(&format!("{clock}/current_clocksource"), reasons),
        clocksources_available: read_line(&format!("{clock}/available_clocksource"), reasons)
            .map(|line| line.split_ascii_whitespace().map(str::to_owned).collect()),
        virtualization: cpu::virtualization(),
    }
}

/// A file's text without the white space around it.
fn read_line(path: &str, reasons: &mut Reasons) -> Option<String> {
    reasons.keep(path, std::fs::read_to_string(path)).map(|text| text.trim().to_owned())
}
