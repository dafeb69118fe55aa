//! Whether this machine's CPUs were free for a run.

use longhaul_kernel::clock::{monotonic, process_cpu_time};
use longhaul_kernel::procfs::cpu_times;
use longhaul_units::Nanos;

/// Shares of the machine's time that may go to others: a tenth by a hypervisor, a twentieth to other programs, of which not all is seen. A test
/// that lacks more measures the machine.
const STEAL_SHARE: f64 = 0.1;
const PROGRAMS_SHARE: f64 = 0.05;

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

    /// One that began a second ago, since when other programs had all the time that programs have had since the kernel started.
    #[cfg(test)]
    pub(crate) fn of_others() -> Self {
        let spent = Spent::now().map(|now| Spent { programs: Nanos::ZERO, ..now });
        Self { began: monotonic() - Nanos::from_secs(1), own: process_cpu_time(), spent }
    }

    /// Why the run is void, if a hypervisor gave the machine's time to others.
    pub(crate) fn taken(&self) -> Option<String> {
        let share = self.share(self.since(|spent| spent.steal)?);
        (share > STEAL_SHARE)
            .then(|| format!("a hypervisor gave {:.0} % of the machine's time to others", share * 100.0))
    }

    /// Why the run is void, if other programs used the CPUs. It sees the least that they used: the kernel counts softirq on top of a process both
    /// as softirq and as time of the process.
    pub(crate) fn used(&self) -> Option<String> {
        let own = process_cpu_time() - self.own;
        let share = self.share(Nanos(self.since(|spent| spent.programs)?.0.saturating_sub(own.0)));
        (share > PROGRAMS_SHARE).then(|| format!("other programs used {:.0} % of the machine's time", share * 100.0))
    }

    fn since(&self, of: impl Fn(Spent) -> Nanos) -> Option<Nanos> {
        Some(Nanos(of(Spent::now()?).0.saturating_sub(of(self.spent?).0)))
    }

    /// How much `part` is of the time of all CPUs since the run began.
    fn share(&self, part: Nanos) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        part.0 as f64 / ((monotonic() - self.began).0.max(1) as f64 * cpus as f64)
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
