//! This host's clocks, as a measurement of round trips asks for them.

use longhaul_kernel::clock::{boottime, discipline, monotonic, realtime};
use longhaul_kernel::procfs::running;
use longhaul_rtt::{ClockReading, ClockState};

/// Programs that discipline clocks.
const DAEMONS: [&str; 6] = ["chronyd", "ntpd", "openntpd", "systemd-timesyncd", "ptp4l", "phc2sys"];

/// Reads all clocks, of several tries that whose readings lie closest together.
pub(super) fn read_clocks() -> ClockReading {
    let read = || {
        let before = monotonic();
        let (realtime, boottime) = (realtime(), boottime());
        let monotonic = monotonic();
        let realtime_ns = i64::try_from(realtime.0).unwrap_or(i64::MAX);
        ClockReading { monotonic, boottime, realtime_ns, error: monotonic.saturating_sub(before) }
    };
    // One try may be cut in two by an interrupt, three rarely are.
    let (one, two, three) = (read(), read(), read());
    [one, two, three].into_iter().min_by_key(|reading| reading.error).unwrap_or(three)
}

/// The state of this host's realtime clock; `None` where the kernel does not say.
pub fn clock_state() -> Option<ClockState> {
    let found = discipline().ok()?;
    Some(ClockState {
        synchronised: found.synchronised,
        max_error_ns: found.max_error.0,
        estimated_error_ns: found.estimated_error.0,
        daemons: running(&DAEMONS).unwrap_or_default().into_iter().map(Into::into).collect(),
    })
}
