//! When and where threads run: CPUs, real-time priority, timer slack, CPU sleep states.
//!
//! Source: sched(7), sched_setaffinity(2), prctl(2) `PR_SET_TIMERSLACK`, `Documentation/power/pm_qos_interface.rst`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::num::NonZeroU64;

use longhaul_units::Nanos;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread could not be scheduled as asked.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// None of the CPUs exists, is online and allowed for this process.
    #[error("CPUs {cpus:?} cannot be used; allowed here: {allowed:?} (taskset, cpuset, isolcpus)")]
    NoSuchCpu {
        /// What was asked for.
        cpus: Vec<usize>,
        /// What may be had.
        allowed: Vec<usize>,
    },
    /// Real-time priority is not allowed.
    #[error(
        "no permission to use real-time priority {priority}: run as root, give CAP_SYS_NICE, or raise RLIMIT_RTPRIO \
         (ulimit -r); in a container also check cpu.rt_runtime_us"
    )]
    RealTimeDenied {
        /// What was asked for.
        priority: u8,
    },
    /// Something else.
    #[error("{step}: {source}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The CPUs that the calling thread may run on, in order.
///
/// # Errors
/// On a machine with more than 1,024 CPUs.
pub fn allowed_cpus() -> Result<Vec<usize>, ScheduleError> {
    let set = sched_getaffinity(None)
        .map_err(|source| ScheduleError::Io { step: "sched_getaffinity", source: source.into() })?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// The CPUs that are online, in order.
///
/// # Errors
/// Where `/sys` is not mounted.
pub fn online_cpus() -> Result<Vec<usize>, ScheduleError> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|source| ScheduleError::Io { step: path, source })?;
    Ok(parse_cpu_list(&text))
}

/// Keeps the calling thread and the threads that it starts later on `cpus`.
///
/// # Errors
/// [`ScheduleError::NoSuchCpu`].
pub fn pin_to(cpus: &[usize]) -> Result<(), ScheduleError> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).map_err(|source| match source {
        rustix::io::Errno::INVAL => {
            ScheduleError::NoSuchCpu { cpus: cpus.into(), allowed: allowed_cpus().unwrap_or_default() }
        }
        _ => ScheduleError::Io { step: "sched_setaffinity", source: source.into() },
    })
}

/// Keeps the calling thread on one CPU; where it might run before, it may again when this is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<usize>,
    /// It is of the thread that it was made in.
    _thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Moves the calling thread to `cpu`.
    ///
    /// # Errors
    /// [`ScheduleError::NoSuchCpu`].
    pub fn to(cpu: usize) -> Result<Self, ScheduleError> {
        let before = allowed_cpus()?;
        pin_to(&[cpu])?;
        Ok(Self { before, _thread: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // They may have been taken away from it since; then it stays where it is.
        let _ = pin_to(&self.before);
    }
}

/// Gives the calling thread the real-time policy `SCHED_FIFO` with `priority` 1 (low) to 99: it runs before all normal
/// threads until it sleeps. Processes that it starts are normal again.
///
/// # Errors
/// [`ScheduleError::RealTimeDenied`].
pub fn set_fifo(priority: u8) -> Result<(), ScheduleError> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: the parameters live through the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
    if result == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        Some(libc::EPERM) => ScheduleError::RealTimeDenied { priority },
        _ => ScheduleError::Io { step: "sched_setscheduler SCHED_FIFO", source },
    })
}

/// Whether threads of this process may have [`set_fifo`] with `priority` 1 to 99. A thread tries it and ends, so that nothing is left of it.
/// Not right before `unshare(2)` of a user namespace, which is refused as long as the kernel counts a second thread.
pub fn may_set_fifo(priority: u8) -> bool {
    let tried = std::thread::Builder::new().name("try-fifo".into()).spawn(move || set_fifo(priority).is_ok());
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// The share of a CPU's time that the kernel lets real-time threads have, 0 to 1: `sched_rt_runtime_us` of each
/// `sched_rt_period_us` (sched(7), "Limiting the CPU usage of real-time and deadline processes"). 1 where it is all of it, or not
/// to be learnt.
pub fn realtime_share() -> f64 {
    let read = |name: &str| -> Option<f64> {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
    };
    match (read("sched_rt_runtime_us"), read("sched_rt_period_us")) {
        // -1 stands for no limit.
        (Some(runtime), Some(period)) if runtime >= 0.0 && period > 0.0 => (runtime / period).min(1.0),
        _ => 1.0,
    }
}

/// Has the calling thread run soon after it wakes, among normal threads: the highest niceness that is allowed, and the
/// shortest slice (Linux 6.12, `Documentation/scheduler/sched-eevdf.rst`: of two threads that wait, the one whose slice ends
/// earlier runs first). Returns whether the niceness was had; nothing is lost without.
pub fn be_prompt() -> bool {
    // The least that the kernel takes for a slice.
    let slice = Nanos::from_micros(100);
    let set = |nice: i32| {
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: libc::SCHED_OTHER as u32,
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
            sched_nice: nice,
            sched_priority: 0,
            sched_runtime: slice.0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the attributes live through the call and say their size; 0 is the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
    };
    // Less than 0 takes CAP_SYS_NICE; the slice does not.
    let favoured = set(-20);
    if !favoured {
        set(0);
    }
    favoured
}

/// Has the session that the calling process leads run before others, where the kernel shares CPUs out among sessions first
/// (`sched_autogroup_enabled`, sched(7)): niceness then only counts within one. Returns whether that was to be had.
pub fn favour_session() -> bool {
    std::fs::write("/proc/self/autogroup", "-20").is_ok()
}

/// Has the calling thread woken as exactly as the kernel can: 1 ns of timer slack rather than 50 µs.
///
/// # Errors
/// Does not fail in practice.
pub fn set_least_timer_slack() -> Result<(), ScheduleError> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|source| ScheduleError::Io { step: "prctl PR_SET_TIMERSLACK", source: source.into() })
}

/// Keeps all CPUs out of sleep states that take longer to leave than asked; ends when dropped.
#[derive(Debug)]
pub struct CpuDmaLatency(#[allow(dead_code)] File);

impl CpuDmaLatency {
    /// Asks for at most `latency_us` microseconds; 0 has idle CPUs spin.
    ///
    /// # Errors
    /// Without root, and on kernels or machines without CPU sleep states (a virtual machine has none): nothing is lost there.
    pub fn hold(latency_us: i32) -> io::Result<Self> {
        let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
        file.write_all(&latency_us.to_ne_bytes())?;
        Ok(Self(file))
    }
}

/// `0-3,7` as `[0, 1, 2, 3, 7]`; what is no number is left out.
fn parse_cpu_list(list: &str) -> Vec<usize> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flat_map(|range: std::ops::RangeInclusive<usize>| range.take(CpuSet::MAX_CPU))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_free_again() {
        let before = allowed_cpus().unwrap();
        let last = *before.last().unwrap();
        let pinned = Pinned::to(last).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [last]);
        drop(pinned);
        assert_eq!(allowed_cpus().unwrap(), before);
        assert!(matches!(Pinned::to(CpuSet::MAX_CPU - 1), Err(ScheduleError::NoSuchCpu { .. })));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-3,7\n"), [0, 1, 2, 3, 7]);
        assert_eq!(parse_cpu_list("0"), [0]);
        assert!(parse_cpu_list("\n").is_empty());
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        std::thread::spawn(|| {
            let last = *online_cpus().unwrap().last().unwrap();
            pin_to(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            assert_eq!(rustix::thread::sched_getcpu(), last);
            let error = pin_to(&[1000]).unwrap_err();
            assert!(matches!(&error, ScheduleError::NoSuchCpu { allowed, .. } if allowed == &[last]), "{error}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn timer_slack_becomes_one() {
        std::thread::spawn(|| {
            set_least_timer_slack().unwrap();
            assert_eq!(rustix::thread::current_timer_slack(), Ok(1));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn real_time_is_given_or_explained() {
        // SAFETY: no pointers.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        std::thread::spawn(move || {
            let before = policy();
            let may = may_set_fifo(1);
            assert_eq!(policy(), before, "nothing is left of the trial");
            match set_fifo(1) {
                Ok(()) => assert_eq!((policy() & 0xff, may), (libc::SCHED_FIFO, true)),
                Err(error) => assert!(!may && error.to_string().contains("CAP_SYS_NICE"), "{error}"),
            }
        })
        .join()
        .unwrap();
    }

    proptest::proptest! {
        #[test]
        fn no_list_panics(list in "[0-9,\\- ]{0,40}") {
            let _ = parse_cpu_list(&list);
        }
    }
}
