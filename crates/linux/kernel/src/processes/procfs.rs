//! Small readers of `/proc`: softirq counters, what CPUs do, how long a thread waited for a CPU.
//!
//! Source: proc_stat(5); `Documentation/scheduler/sched-stats.rst` for schedstat; `Documentation/networking/scaling.rst` and `net/core/net-procfs.c` for softnet_stat.

use std::{fs, io};

use longhaul_units::Nanos;

/// One CPU's receive softirq since boot. It counts for the whole machine: network namespaces share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Softnet {
    /// The CPU's number.
    pub cpu: u32,
    /// Packets (super-packets count once) that softirq took off a device or the backlog.
    pub processed: u32,
    /// Packets dropped because the backlog (`net.core.netdev_max_backlog`) was full.
    pub dropped: u32,
    /// Times that softirq stopped with work left, its budget or time used up.
    pub time_squeezed: u32,
}

/// Those of `names` that processes of this host have, as far as the caller may look; the kernel cuts names to 15 bytes.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn running<'a>(names: &[&'a str]) -> io::Result<Vec<&'a str>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| name.parse::<u32>().is_err()) {
            continue;
        }
        // It may have ended since.
        let Ok(running) = fs::read_to_string(entry.path().join("comm")) else { continue };
        found.extend(names.iter().filter(|name| running.trim_end() == &name[..name.len().min(15)]));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Every online CPU's row of `/proc/net/softnet_stat`. Counters wrap at 2³².
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn softnet() -> io::Result<Vec<Softnet>> {
    Ok(parse_softnet(&fs::read_to_string("/proc/thread-self/net/softnet_stat")?))
}

/// How one CPU spent its time since boot, in steps of 10 ms (`USER_HZ`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// The CPU's number.
    pub cpu: u32,
    /// All but idle: also what a hypervisor gave to others (`steal`).
    pub busy: Nanos,
    /// In softirq, as a part of busy.
    pub softirq: Nanos,
    /// Given to others by a hypervisor, as a part of busy.
    pub steal: Nanos,
}

/// Every online CPU's row of `/proc/stat`.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn cpu_times() -> io::Result<Vec<CpuTime>> {
    let tick = Nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
    Ok(parse_cpu_times(&fs::read_to_string("/proc/stat")?, tick))
}

fn parse_cpu_times(text: &str, tick: Nanos) -> Vec<CpuTime> {
    let row = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        // The first line, without a number, is the sum.
        let cpu = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, rest @ ..] = &ticks[..] else { return None };
        let steal = rest.first().copied().unwrap_or(0);
        let busy = [*user, *nice, *system, *irq, *softirq, steal].into_iter().fold(0, u64::saturating_add);
        let time = |ticks: u64| Nanos(ticks.saturating_mul(tick.0));
        Some(CpuTime { cpu, busy: time(busy), softirq: time(*softirq), steal: time(steal) })
    };
    text.lines().filter_map(row).collect()
}

/// How long the calling thread was ready to run and had no CPU, since it began (`run_delay`). [`crate::clock::thread_cpu_time`] has how long
/// it ran.
///
/// # Errors
/// Where `/proc` is not mounted, or the kernel counts no such times (`CONFIG_SCHED_INFO`).
pub fn thread_run_delay() -> io::Result<Nanos> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    parse_run_delay(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Time on a CPU, time without one, time slices.
fn parse_run_delay(text: &str) -> Option<Nanos> {
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanos)
}

fn parse_softnet(text: &str) -> Vec<Softnet> {
    text.lines()
        .enumerate()
        .filter_map(|(row, line)| {
            let fields: Vec<u32> =
                line.split_ascii_whitespace().filter_map(|field| u32::from_str_radix(field, 16).ok()).collect();
            let (&processed, &dropped, &time_squeezed) = (fields.first()?, fields.get(1)?, fields.get(2)?);
            // The 13th field is the CPU's number since Linux 5.14; before, rows are the online CPUs in order.
            let cpu = fields.get(12).copied().unwrap_or(row as u32);
            Some(Softnet { cpu, processed, dropped, time_squeezed })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_busy_when_not_idle() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 1000 500 4 5 6 0 0\ncpu2 1 2\nintr 7\n";
        let expected = CpuTime {
            cpu: 1,
            busy: Nanos::from_millis(210),
            softirq: Nanos::from_millis(50),
            steal: Nanos::from_millis(60),
        };
        assert_eq!(parse_cpu_times(text, Nanos::from_millis(10)), [expected]);
        assert!(!cpu_times().unwrap().is_empty());
    }

    #[test]
    fn the_run_delay_is_the_second_number() {
        assert_eq!(parse_run_delay("478092 1175583 2\n"), Some(Nanos(1_175_583)));
        assert_eq!(parse_run_delay("478092"), None);
        thread_run_delay().unwrap();
    }

    #[test]
    fn softnet_is_hexadecimal() {
        let rows = "0000000a 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    00000000 00000005 00000000 00000000\n";
        assert_eq!(parse_softnet(rows), [Softnet { cpu: 5, processed: 10, dropped: 1, time_squeezed: 2 }]);
        assert_eq!(parse_softnet("nonsense\n"), []);
    }
}
