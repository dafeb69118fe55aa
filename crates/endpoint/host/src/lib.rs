//! How a host is set up for its network: NICs, PCIe, rings, offloads, queues, interrupts, sysctls, CPU, clock.
//!
//! A [`HostSnapshot`] describes the machine and the network namespace of the calling thread. It serializes to JSON with
//! the unit of each number in its name. What could not be read is `null`, and [`HostSnapshot::unreadable`] says why.
//! [`HostSnapshot::caveats`] says what is likely to cost throughput, and what to do.
//!
//! Nothing here changes a setting.
//!
//! Source: `Documentation/ABI/testing/sysfs-class-net*`, `sysfs-bus-pci`, `Documentation/networking/scaling.rst`,
//! `<linux/ethtool.h>`, proc(5).

mod caveats;
mod conntrack;
mod cpu;
mod disk;
mod interface;
mod judge;
mod pcie;
mod sysctls;

pub use conntrack::Conntrack;
pub use cpu::{Cpu, NumaNode};
pub use disk::{DiskRate, read_rate, write_rate};
pub use interface::{Interface, Interrupt, Offload, Queue, QueueDirection};
pub use judge::LONG_PATH_RTT;
pub use longhaul_kernel::driver_settings::{Channels, Coalescing, Pause, Rings};
pub use longhaul_kernel::group_limits::{CpuLimit, GroupLimits, MemoryLimit};
pub use pcie::{PcieLink, PciePath};
pub use sysctls::SysctlValue;

use std::collections::BTreeMap;
use std::fmt;

use longhaul_kernel::clock::realtime;
use longhaul_kernel::memory::page_bytes;
use serde::{Deserialize, Serialize};

/// A host at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostSnapshot {
    /// When the snapshot was taken: `CLOCK_REALTIME`, since 1970.
    pub taken_at_realtime_ns: u64,
    /// The host's name.
    pub hostname: Option<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// The processors.
    pub cpu: Cpu,
    /// The interfaces of the network namespace, loopback included; of more than 1,024 the first ones.
    pub interfaces: Vec<Interface>,
    /// Kernel parameters by name, as in sysctl(8); `tcp_mem` and `udp_mem` count pages (`page_bytes` of `kernel`),
    /// every other buffer bytes.
    pub sysctls: BTreeMap<String, SysctlValue>,
    /// The table of connections of netfilter; `None` where the kernel has none.
    pub conntrack: Option<Conntrack>,
    /// What the control groups of this process allow it.
    pub group_limits: GroupLimits,
    /// What could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// The kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kernel {
    /// Its release: `6.18.44`.
    pub release: Option<String>,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The clock source in use: `tsc`, `kvm-clock`, `hpet`.
    pub clocksource: Option<String>,
    /// The clock sources that the kernel offers.
    pub clocksources_available: Option<Vec<String>>,
    /// The hypervisor or virtual machine that the kernel runs on; `None` where nothing hints at one.
    pub virtualization: Option<String>,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unreadable {
    /// A file, a sysctl, or an interface and the setting that its driver was asked for.
    pub what: String,
    /// Why, in the kernel's words.
    pub reason: String,
}

/// Collects what could not be read.
#[derive(Debug, Default)]
struct Reasons(Vec<Unreadable>);

impl Reasons {
    /// Gives the value; or notes the reason and gives `None`.
    fn keep<T>(&mut self, what: impl fmt::Display, result: Result<T, impl fmt::Display>) -> Option<T> {
        result.map_err(|error| self.note(what, error)).ok()
    }

    fn note(&mut self, what: impl fmt::Display, reason: impl fmt::Display) {
        self.0.push(Unreadable { what: what.to_string(), reason: reason.to_string() });
    }
}

impl HostSnapshot {
    /// Reads the set-up of the machine and of the calling thread's network namespace. Needs no rights; without them some values stay
    /// unread.
    pub fn take() -> Self {
        let mut reasons = Reasons::default();
        let taken_at_realtime_ns = realtime().0;
        let interfaces = interface::read_first(interface::MOST, &mut reasons);
        Self {
            taken_at_realtime_ns,
            hostname: read_line("/proc/sys/kernel/hostname", &mut reasons),
            kernel: kernel(&mut reasons),
            cpu: cpu::read(&mut reasons),
            interfaces,
            sysctls: sysctls::read(&mut reasons),
            conntrack: Conntrack::read(),
            group_limits: GroupLimits::read(),
            unreadable: reasons.0,
        }
    }
}

fn kernel(reasons: &mut Reasons) -> Kernel {
    let clock = "/sys/devices/system/clocksource/clocksource0";
    Kernel {
        release: read_line("/proc/sys/kernel/osrelease", reasons),
        architecture: std::env::consts::ARCH.into(),
        page_bytes: page_bytes() as u64,
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
