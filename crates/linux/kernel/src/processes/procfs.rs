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

/// Whether TCP has more memory than `tcp_mem` lets it have without pressure: on the whole machine, in all namespaces. `false` where the
/// kernel does not say.
///
/// `TCPMemoryPressuresChrono` counts such time when it is over, which may be after the next test has begun.
pub fn tcp_memory_pressure() -> bool {
    fs::read_to_string("/proc/thread-self/net/protocols").is_ok_and(|text| parse_pressure(&text))
}

/// A line of `/proc/net/protocols`: `TCP 2368 2 549 yes …`, where the first line names the columns.
fn parse_pressure(text: &str) -> bool {
    let column = text.lines().next().and_then(|names| names.split_ascii_whitespace().position(|name| name == "press"));
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some("TCP"));
    column.zip(line).is_some_and(|(column, line)| line.split_ascii_whitespace().nth(column) == Some("yes"))
}

/// How long the calling thread was ready to run and had no CPU, since it began (`run_delay`). [`crate::clock::thread_cpu_time`] has how long
/// it ran.
///
/// # Errors
/// Where `/proc` is not mounted, or the kernel counts no such times (`CONFIG_SCHED_INFO`).
pub fn thread_run_delay() -> io::Result<Nanos> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    parse_schedstat(&text).map(|times| times.waited).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// What a thread did with its time since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Time on a CPU.
    pub ran: Nanos,
    /// Time ready to run without a CPU.
    pub waited: Nanos,
}

/// The times of up to `most` threads of a process, by their numbers (`/proc/PID/task/TID/schedstat`). Those that end meanwhile are left out.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where the process does not exist.
pub fn thread_times(pid: u32, most: usize) -> io::Result<Vec<(u32, ThreadTimes)>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().take(most);
    let times = threads.filter_map(|folder| {
        let text = fs::read_to_string(folder.path().join("schedstat")).ok()?;
        Some((folder.file_name().to_str()?.parse().ok()?, parse_schedstat(&text)?))
    });
    Ok(times.collect())
}

/// Time on a CPU, time without one, time slices.
fn parse_schedstat(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok().map(Nanos));
    Some(ThreadTimes { ran: numbers.next()??, waited: numbers.next()?? })
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
    fn a_thread_ran_and_waited() {
        let times = ThreadTimes { ran: Nanos(478_092), waited: Nanos(1_175_583) };
        assert_eq!(parse_schedstat("478092 1175583 2\n"), Some(times));
        assert_eq!(parse_schedstat("478092"), None);
        thread_run_delay().unwrap();
        let own = thread_times(std::process::id(), 1_000).unwrap();
        assert!(own.iter().any(|(_, times)| times.ran > Nanos::ZERO), "{own:?}");
        assert_eq!(thread_times(std::process::id(), 1).unwrap().len(), 1);
        assert!(thread_times(u32::MAX, 1).is_err());
    }

    #[test]
    fn softnet_is_hexadecimal() {
        let rows = "0000000a 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    00000000 00000005 00000000 00000000\n";
        assert_eq!(parse_softnet(rows), [Softnet { cpu: 5, processed: 10, dropped: 1, time_squeezed: 2 }]);
        assert_eq!(parse_softnet("nonsense\n"), []);
    }

    #[test]
    fn pressure_is_a_column_of_tcp() {
        let names = "protocol  size sockets  memory press maxhdr  slab module\n";
        let lines = |pressed: &str| {
            format!("{names}UDP 1 2 3 yes 0\nTCP       2368      2     549   {pressed}    256   yes  kernel\n")
        };
        assert!(parse_pressure(&lines("yes")) && !parse_pressure(&lines("no ")));
        assert!(!parse_pressure("") && !parse_pressure(names) && !parse_pressure("TCP"));
        // What this kernel writes has the column.
        assert!(
            fs::read_to_string("/proc/thread-self/net/protocols").unwrap().lines().next().unwrap().contains(" press ")
        );
    }
}
