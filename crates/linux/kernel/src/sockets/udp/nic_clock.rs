//! The clock of a NIC, read beside the host's.
//!
//! Source: `Documentation/driver-api/ptp.rst`, `<linux/ptp_clock.h>` (`PTP_SYS_OFFSET_EXTENDED`, Linux 4.20).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use longhaul_units::Nanos;

/// `_IOWR('=', 9, struct ptp_sys_offset_extended)`.
const PTP_SYS_OFFSET_EXTENDED: libc::Ioctl = 0xc4c0_3d09;
/// Readings of one call, of which the best counts: an interrupt may come between.
const TRIES: u32 = 5;
/// Readings that the structure has room for.
const ROOM: usize = 25;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct ClockTime {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

/// `struct ptp_sys_offset_extended`: of each reading the host's clock before, the NIC's, and the host's after.
#[repr(C)]
struct SystemOffset {
    samples: u32,
    reserved: [u32; 3],
    readings: [[ClockTime; 3]; ROOM],
}

/// A NIC's clock and the host's at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicClockReading {
    /// The NIC's: nanoseconds since any time that its driver chose.
    pub nic: Nanos,
    /// `CLOCK_REALTIME`.
    pub realtime: Nanos,
    /// The two are at most this far from one moment.
    pub error: Nanos,
}

/// A NIC's clock.
#[derive(Debug)]
pub struct NicClock(File);

impl NicClock {
    /// Opens the clock with this number: `/dev/ptpN`.
    ///
    /// # Errors
    /// Where there is no such clock, or the caller may not open it.
    pub fn open(index: u32) -> io::Result<Self> {
        File::open(format!("/dev/ptp{index}")).map(Self)
    }

    /// Reads it beside `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// Where its driver cannot read both together.
    pub fn read(&self) -> io::Result<NicClockReading> {
        let readings = [[ClockTime::default(); 3]; ROOM];
        let mut offset = SystemOffset { samples: TRIES, reserved: [0; 3], readings };
        // SAFETY: the kernel reads and writes one structure of this layout, which outlives the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED, &raw mut offset) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let readings = offset.readings.iter().take(TRIES as usize).filter_map(reading);
        readings.min_by_key(|reading| reading.error).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn reading([before, nic, after]: &[ClockTime; 3]) -> Option<NicClockReading> {
    let [before, nic, after] = [nanos(before)?, nanos(nic)?, nanos(after)?];
    let error = Nanos(after.checked_sub(before)?.div_ceil(2));
    Some(NicClockReading { nic: Nanos(nic), realtime: Nanos(before) + error, error })
}

fn nanos(time: &ClockTime) -> Option<u64> {
    u64::try_from(time.seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(time.nanoseconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_before_and_after() {
        let time = |nanoseconds| ClockTime { seconds: 7, nanoseconds, reserved: 0 };
        let read = reading(&[time(1_000), time(5), time(1_301)]);
        let second = 7_000_000_000;
        let wanted = NicClockReading { nic: Nanos(second + 5), realtime: Nanos(second + 1_151), error: Nanos(151) };
        assert_eq!(read, Some(wanted));
        assert_eq!(reading(&[time(2), time(5), time(1)]), None, "the host's clock was set back");
        assert_eq!(reading(&[time(1), ClockTime { seconds: -1, ..time(5) }, time(2)]), None);
        assert_eq!(size_of::<SystemOffset>(), 0x4c0, "as PTP_SYS_OFFSET_EXTENDED says");
    }

    #[test]
    fn a_clock_that_is_not_there_is_an_error() {
        assert!(NicClock::open(u32::MAX).is_err());
    }
}
