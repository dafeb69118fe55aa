//! What the threads of a process did while one of its connections was open: whether the program had the CPU that it wanted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::procfs::{ThreadTimes, thread_times};
use longhaul_terms::ThreadCpu;
use longhaul_units::Nanos;

/// How often to look: a thread's times are as of its last tick, 1 to 10 ms ago.
pub(crate) const EVERY: Nanos = Nanos::from_millis(100);
/// Over a shorter time a share would be off by more than 5 %.
const SHORTEST: Nanos = Nanos::from_millis(200);
/// Processes that are looked at, those with the lowest numbers.
const MOST_PROCESSES: usize = 64;
/// Threads of a process that are looked at: 10,000 connections that each began in another moment keep 30 MB.
const MOST_THREADS: usize = 64;

/// The times of a process's threads at one moment.
#[derive(Debug)]
pub(crate) struct Reading {
    at: Nanos,
    threads: HashMap<u32, ThreadTimes>,
}

/// Readings of these processes, as far as they run.
pub(crate) fn read(processes: &BTreeSet<u32>) -> BTreeMap<u32, Arc<Reading>> {
    let read = |pid: u32| {
        let threads = thread_times(pid, MOST_THREADS).ok()?.into_iter().collect();
        Some((pid, Arc::new(Reading { at: monotonic(), threads })))
    };
    processes.iter().take(MOST_PROCESSES).copied().filter_map(read).collect()
}

/// The first and the last reading of a connection's process.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    first: Option<Arc<Reading>>,
    last: Option<Arc<Reading>>,
}

impl Threads {
    pub(crate) fn take(&mut self, reading: &Arc<Reading>) {
        self.first.get_or_insert_with(|| Arc::clone(reading));
        self.last = Some(Arc::clone(reading));
    }

    /// The thread that wanted a CPU most in between; `None` if the time was too short.
    pub(crate) fn busiest(&self) -> Option<ThreadCpu> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let elapsed = last.at.saturating_sub(first.at);
        let used = last.threads.iter().map(|(number, now)| {
            let then = first.threads.get(number).copied().unwrap_or_default();
            (now.ran.saturating_sub(then.ran), now.waited.saturating_sub(then.waited))
        });
        let (ran, waited) = used.max_by_key(|(ran, waited)| ran.saturating_add(*waited))?;
        (elapsed >= SHORTEST).then_some(ThreadCpu {
            cpu_time_ns: ran.0,
            run_delay_ns: Some(waited.0),
            elapsed_ns: elapsed.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ms: u64, threads: &[(u32, u64, u64)]) -> Arc<Reading> {
        let times = |&(number, ran, waited): &(u32, u64, u64)| {
            (number, ThreadTimes { ran: Nanos::from_millis(ran), waited: Nanos::from_millis(waited) })
        };
        Arc::new(Reading { at: Nanos::from_millis(at_ms), threads: threads.iter().map(times).collect() })
    }

    #[test]
    fn the_busiest_thread_is_that_since_the_first_reading() {
        let mut threads = Threads::default();
        threads.take(&reading(1_000, &[(1, 5_000, 0), (2, 10, 20)]));
        assert_eq!(threads.busiest(), None);
        // The first thread worked before; the third is new.
        threads.take(&reading(2_000, &[(1, 5_100, 0), (2, 710, 320), (3, 900, 0)]));
        let expected =
            ThreadCpu { cpu_time_ns: 700_000_000, run_delay_ns: Some(300_000_000), elapsed_ns: 1_000_000_000 };
        assert_eq!(threads.busiest(), Some(expected));
    }

    #[test]
    fn a_process_that_is_gone_has_no_reading() {
        let own = std::process::id();
        let readings = read(&BTreeSet::from([own, u32::MAX]));
        assert_eq!(readings.keys().copied().collect::<Vec<_>>(), [own]);
    }
}
