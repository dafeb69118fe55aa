//! The kernel's clocks.
//!
//! Two clocks matter: `CLOCK_MONOTONIC`, which never steps and which everything is scheduled by, and `CLOCK_REALTIME`, in
//! which the kernel stamps packets. Source: clock_gettime(2), time_namespaces(7).

use std::io;

use longhaul_units::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now on `CLOCK_MONOTONIC`: nanoseconds since some instant before boot's end, never stepped, slewed by NTP.
pub fn monotonic() -> Nanos {
    from_timespec(clock_gettime(ClockId::Monotonic))
}

/// Now on `CLOCK_REALTIME`: nanoseconds since 1970-01-01 00:00 UTC. Someone may step it.
pub fn realtime() -> Nanos {
    from_timespec(clock_gettime(ClockId::Realtime))
}

/// Now on `CLOCK_BOOTTIME`: as [`monotonic`], and it goes on while the host is suspended.
pub fn boottime() -> Nanos {
    from_timespec(clock_gettime(ClockId::Boottime))
}

/// What the kernel knows of how the realtime clock is disciplined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discipline {
    /// Someone disciplines it, and has told the kernel so lately (not `STA_UNSYNC`).
    pub synchronised: bool,
    /// The most that it is off, as that one says; it grows by 500 ppm until told anew.
    pub max_error: Nanos,
    /// About how much it is off.
    pub estimated_error: Nanos,
}

/// How the realtime clock is disciplined (ntp_adjtime(3), which needs no right to read).
///
/// # Errors
/// Does not fail in practice.
pub fn discipline() -> io::Result<Discipline> {
    // SAFETY: integers, for which zero is a value; no modes: nothing is set.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes that struct alone.
    if unsafe { libc::adjtimex(&raw mut timex) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let micros = |us: i64| Nanos(u64::try_from(us).unwrap_or(0).saturating_mul(1_000));
    Ok(Discipline {
        synchronised: timex.status & libc::STA_UNSYNC == 0,
        max_error: micros(timex.maxerror),
        estimated_error: micros(timex.esterror),
    })
}

/// CPU time that the calling thread has used, in user and kernel mode together (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_time() -> Nanos {
    from_timespec(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that all threads of the process have used (`CLOCK_PROCESS_CPUTIME_ID`).
pub fn process_cpu_time() -> Nanos {
    from_timespec(clock_gettime(ClockId::ProcessCPUTime))
}

/// How `CLOCK_REALTIME` and `CLOCK_MONOTONIC` related at one moment.
///
/// It holds until somebody steps the realtime clock: take it anew every second or so. Slewing (NTP) moves both alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealtimeOffset {
    /// `CLOCK_REALTIME - CLOCK_MONOTONIC`, nanoseconds.
    pub offset_ns: i64,
    /// The offset is exact to plus or minus this.
    pub error: Nanos,
}

/// Reads both clocks, of several tries the one whose readings lie closest together.
pub fn realtime_offset() -> RealtimeOffset {
    // Three tries: one may be cut in two by an interrupt, three rarely.
    (0..3)
        .map(|_| {
            let before = monotonic();
            let realtime = realtime();
            let after = monotonic();
            let gap_ns = after.saturating_sub(before).0;
            let middle_ns = before.0 + gap_ns / 2;
            RealtimeOffset { offset_ns: realtime.0 as i64 - middle_ns as i64, error: Nanos(gap_ns.div_ceil(2)) }
        })
        .min_by_key(|sample| sample.error)
        .expect("three samples")
}

impl RealtimeOffset {
    /// The instant on `CLOCK_MONOTONIC` at which `CLOCK_REALTIME` showed `realtime`; zero for one before boot.
    pub fn monotonic_of(self, realtime: Nanos) -> Nanos {
        Nanos(realtime.0.saturating_add_signed(-self.offset_ns))
    }

    /// The instant on `CLOCK_REALTIME` at which `CLOCK_MONOTONIC` showed `monotonic`.
    pub fn realtime_of(self, monotonic: Nanos) -> Nanos {
        Nanos(monotonic.0.saturating_add_signed(self.offset_ns))
    }
}

/// A time of the kernel in nanoseconds; what is negative becomes zero.
pub(crate) fn from_timespec(time: Timespec) -> Nanos {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(secs.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

/// The kernel's form of `time`.
pub(crate) fn to_timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_converts_there_and_back() {
        let offset = realtime_offset();
        assert!(offset.error < Nanos::from_millis(10), "{offset:?}");
        let now = realtime();
        assert_eq!(offset.realtime_of(offset.monotonic_of(now)), now);
        let apart = offset.monotonic_of(realtime()).0.abs_diff(monotonic().0);
        assert!(apart < 10_000_000, "{apart} ns apart");
    }

    #[test]
    fn clocks_run_forward() {
        let (first, cpu) = (monotonic(), thread_cpu_time());
        while thread_cpu_time() == cpu {}
        assert!(monotonic() > first);
        assert!(process_cpu_time() >= thread_cpu_time());
    }

    #[test]
    fn the_discipline_is_read_without_rights() {
        // A clock that is off by more than 16 s counts as not synchronised (`kernel/time/ntp.c`).
        let found = discipline().unwrap();
        assert!(!found.synchronised || found.max_error <= Nanos::from_secs(16), "{found:?}");
        assert!(boottime() >= monotonic().saturating_sub(Nanos::from_secs(1)));
    }

    #[test]
    fn timespec_reads_back() {
        let time = Nanos(12_345_678_901);
        assert_eq!(from_timespec(to_timespec(time)), time);
    }
}
