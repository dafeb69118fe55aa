//! What the figures were measured on.

use std::fs;

use longhaul_kernel::clock::process_cpu_time;
use longhaul_kernel::schedule::online_cpus;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;

use crate::{Error, Result};

/// The machine as far as it explains figures.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
    /// Whether a hypervisor is below.
    pub(crate) is_virtual: bool,
    /// Runnable threads over the last minute, as the run began: what else went on.
    pub(crate) load_average: f64,
}

/// This machine.
pub(crate) fn describe() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Machine {
        cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into()),
        cpus: online_cpus().map_or(0, |cpus| cpus.len()),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim_end().to_owned(),
        memory_bytes: kib.unwrap_or(0) * 1024,
        is_virtual: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        load_average: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
    }
}

/// CPU time that was used until one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuUse {
    all_s: f64,
    own_s: f64,
}

impl CpuUse {
    /// Until now. Endpoints count once they have ended.
    pub(crate) fn now() -> Result<Self> {
        // proc_stat(5), in units of USER_HZ, which is 100 on every architecture here:
        // cpu user nice system idle iowait irq softirq steal …
        let text = fs::read_to_string("/proc/stat")?;
        let fields: Vec<f64> =
            text.lines().next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = &fields[..] else {
            return Err(Error::from("/proc/stat does not begin with the CPUs' times"));
        };
        let children = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let children_us = children.user_time().num_microseconds() + children.system_time().num_microseconds();
        Ok(Self {
            all_s: (user + nice + system + irq + softirq + steal) / 100.0,
            own_s: process_cpu_time().as_secs_f64() + children_us as f64 / 1e6,
        })
    }

    /// Seconds of CPU that others have used since `before`. Interrupts on an idle CPU count as others'.
    pub(crate) fn others_since(&self, before: &Self) -> f64 {
        ((self.all_s - before.all_s) - (self.own_s - before.own_s)).max(0.0)
    }
}
