//! Whether this machine's CPUs were free for a run.

use longhaul_kernel::clock::{monotonic, process_cpu_time};
use longhaul_kernel::procfs::cpu_times;
use longhaul_units::Nanos;

/// A tenth of the machine's time may go to others. A test that lacks more measures the machine.
const SHARE: u64 = 10;

/// What the machine's CPUs had done when a run began.
pub(crate) struct Machine {
    began: Nanos,
    own: Nanos,
    spent: Option<Spent>,
}

/// CPU time of the whole machine.
#[derive(Clone, Copy)]
struct Spent {
    /// Given to others by a hypervisor.
    steal: Nanos,
    /// By programs.
    programs: Nanos,
}

impl Machine {
    pub(crate) fn begins() -> Self {
        Self { began: monotonic(), own: process_cpu_time(), spent: Spent::now() }
    }

    /// Why the run is void, if a hypervisor gave the machine's time to others.
    pub(crate) fn taken(&self) -> Option<String> {
        let taken = self.since(|spent| spent.steal)?;
        (taken.0 > self.share()).then(|| format!("a hypervisor gave {taken} of the machine's time to others"))
    }

    /// Why the run is void, if other programs used the CPUs. It sees the least that they used: the kernel counts softirq on top of a process both
    /// as softirq and as time of the process.
    pub(crate) fn used(&self) -> Option<String> {
        let own = process_cpu_time() - self.own;
        let used = Nanos(self.since(|spent| spent.programs)?.0.saturating_sub(own.0));
        (used.0 > self.share()).then(|| format!("other programs used {used} of the machine's time"))
    }

    fn since(&self, of: impl Fn(Spent) -> Nanos) -> Option<Nanos> {
        Some(Nanos(of(Spent::now()?).0.saturating_sub(of(self.spent?).0)))
    }

    /// What others may have of the time that passed.
    fn share(&self) -> u64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        (monotonic() - self.began).0.saturating_mul(cpus) / SHARE
    }
}

impl Spent {
    fn now() -> Option<Self> {
        let times = cpu_times().ok()?;
        let sum = |of: fn(&longhaul_kernel::procfs::CpuTime) -> u64| Nanos(times.iter().map(of).sum());
        let programs = |cpu: &longhaul_kernel::procfs::CpuTime| cpu.busy.0.saturating_sub(cpu.softirq.0 + cpu.steal.0);
        Some(Self { steal: sum(|cpu| cpu.steal.0), programs: sum(programs) })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    /// A shell that counts takes a CPU for itself; a thread of this process does not count as others.
    #[test]
    fn a_program_that_takes_a_cpu_is_seen() {
        let machine = Machine::begins();
        let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        sleep(Duration::from_millis(1500));
        let used = machine.used();
        other.kill().unwrap();
        other.wait().unwrap();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if cpus <= 4 {
            assert!(used.unwrap().starts_with("other programs used "), "of {cpus} CPUs");
        }
    }
}
