//! How a lab is to be made.

use longhaul_emulator::{EngineOptions, Schedule};
use longhaul_path::network::{DEFAULT_BATCH_TIME, Options, Segmentation};
use longhaul_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::plan::DEFAULT_MTU;

/// Everything about a lab but its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LabSpec {
    /// The lab's name.
    pub name: String,
    /// Seed of the path's random numbers.
    pub seed: u64,
    /// MTU of hosts for which the path sets none, in bytes.
    #[cfg_attr(feature = "schema", schemars(range(min = 68, max = 65535)))]
    pub mtu_bytes: u32,
    /// Whether the hosts use segmentation offloads and coalescing of their interfaces.
    pub offload: bool,
    /// Each packet travels alone (--segmentation wire).
    pub wire: bool,
    /// Maximum difference of the release times of packets that travel together.
    pub batch_time: Nanos,
    /// Limit of payload memory; `None`: half of what is available.
    pub memory: Option<Bytes>,
    /// The emulator never sleeps.
    pub spin: bool,
    /// The emulator wakes up at most once in this time, and packets leave late by up to that and the time that waking takes; 0: as exactly as it can.
    pub wake_interval: Nanos,
    /// CPUs that the emulator may run on; empty: any.
    pub cpus: Vec<usize>,
    /// Its SCHED_FIFO priority; `None`: none.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 99)))]
    pub realtime: Option<u8>,
    /// Lateness (p99) above which the result gets a caveat.
    pub lateness_bound: Nanos,
}

impl Default for LabSpec {
    fn default() -> Self {
        Self {
            name: String::from("lab"),
            seed: 1,
            mtu_bytes: DEFAULT_MTU,
            offload: true,
            wire: false,
            batch_time: DEFAULT_BATCH_TIME,
            memory: None,
            spin: false,
            wake_interval: Nanos::ZERO,
            cpus: Vec::new(),
            realtime: None,
            lateness_bound: longhaul_emulator::DEFAULT_LATENESS_BOUND,
        }
    }
}

impl LabSpec {
    /// What of it is for the engine.
    pub fn engine_options(&self) -> EngineOptions {
        let segmentation = if self.wire { Segmentation::Wire } else { Segmentation::Auto };
        EngineOptions {
            network: Options { seed: self.seed, batch_time: self.batch_time, segmentation },
            memory_bound: self.memory,
            spin: self.spin,
            wake_interval: self.wake_interval,
        }
    }

    /// Whether single packets that belong together are put together at the ports (GRO), as they are cheaper to move as one.
    pub(crate) fn gathers(&self) -> bool {
        !self.offload && !self.wire
    }

    /// CPUs for the hosts where the emulator has some of its own: all others on which the calling thread may run (taskset, cpuset). Empty: any.
    pub fn host_cpus(&self) -> Vec<usize> {
        if self.cpus.is_empty() {
            return Vec::new();
        }
        let allowed = longhaul_kernel::schedule::allowed_cpus().unwrap_or_default();
        allowed.into_iter().filter(|cpu| !self.cpus.contains(cpu)).collect()
    }

    /// Keeps the calling thread and the threads that it starts later on the hosts' CPUs, if they may run there.
    pub fn keep_off_the_emulator(&self) {
        let cpus = self.host_cpus();
        if !cpus.is_empty() {
            let _ = longhaul_kernel::schedule::pin_to(&cpus);
        }
    }

    /// What of it is for the emulating thread.
    pub fn schedule(&self) -> Schedule {
        Schedule { cpus: self.cpus.clone(), realtime: self.realtime }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_kernel::schedule::{allowed_cpus, pin_to};

    use super::*;

    /// `taskset` and a cpuset hold for the hosts of a lab, too.
    #[test]
    fn hosts_have_no_cpu_that_is_not_allowed() {
        std::thread::spawn(|| {
            let allowed = allowed_cpus().unwrap();
            let of_emulator = |cpu: usize| LabSpec { cpus: vec![cpu], ..LabSpec::default() };
            assert_eq!(of_emulator(allowed[0]).host_cpus(), allowed[1..]);
            pin_to(&allowed[..1]).unwrap();
            assert!(of_emulator(allowed[0]).host_cpus().is_empty(), "of {allowed:?}");
            assert!(LabSpec::default().host_cpus().is_empty());
        })
        .join()
        .unwrap();
    }
}
