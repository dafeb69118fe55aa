//! The time stamps of a NIC, told by the host's clock.

use std::collections::VecDeque;

/// Readings that tell how fast the NIC's clock goes.
const READINGS: usize = 16;
/// A NIC's clock and the host's differ by less: parts of a whole. More is a clock that was set.
const RATE_MOST: f64 = 1e-3;
/// A NIC keeps a packet no longer before the kernel stamps it, nanoseconds.
const KEPT_MOST: i64 = 1_000_000_000;
/// What readings of the two clocks may be wrong by, nanoseconds.
const READ_WRONG_MOST: i64 = 100_000;

/// A NIC's clock and `CLOCK_REALTIME` at one moment, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicReading {
    /// The NIC's, which counts from any time.
    pub nic_ns: i64,
    /// Unix time.
    pub realtime_ns: i64,
}

/// What a NIC's clock says, in the host's time. It is read now and then; between readings it goes as fast as it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicTime {
    readings: VecDeque<NicReading>,
}

impl NicTime {
    /// Takes a reading. Where either clock was set since the last one, those before count no more.
    pub fn take(&mut self, reading: NicReading) {
        if self.readings.back().is_some_and(|last| rate(last, &reading).is_none()) {
            self.readings.clear();
        }
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// Unix time of the stamp `nic_ns`, nanoseconds; `None` before the first reading.
    pub fn realtime_of(&self, nic_ns: i64) -> Option<i64> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let since = nic_ns.saturating_sub(last.nic_ns);
        // With one reading it goes as the host's does.
        let gained = rate(first, last).map_or(0.0, |rate| rate * since as f64);
        Some(last.realtime_ns.saturating_add(since).saturating_add(gained as i64))
    }

    /// When a packet arrived that the NIC stamped with `nic_ns` and the kernel with `kernel_ns`: the NIC's time where that can be, as
    /// Unix time. No packet reaches the kernel before the NIC.
    pub fn arrival(&self, nic_ns: i64, kernel_ns: i64) -> Option<i64> {
        let at = self.realtime_of(nic_ns)?;
        let kept = kernel_ns.saturating_sub(at);
        (-READ_WRONG_MOST..=KEPT_MOST).contains(&kept).then(|| at.min(kernel_ns))
    }

    /// When a packet left that the program sent at `program_ns` and the NIC stamped with `nic_ns`, as Unix time. None leaves before it is
    /// sent.
    pub fn departure(&self, nic_ns: i64, program_ns: i64) -> Option<i64> {
        let at = self.realtime_of(nic_ns)?;
        (at.saturating_sub(program_ns) >= -READ_WRONG_MOST).then(|| at.max(program_ns))
    }
}

/// How much the host's clock gained on the NIC's from `first` to `last`, parts of a whole; `None` where one was set, or stood still.
fn rate(first: &NicReading, last: &NicReading) -> Option<f64> {
    let nic = last.nic_ns.saturating_sub(first.nic_ns);
    let realtime = last.realtime_ns.saturating_sub(first.realtime_ns);
    let gained = realtime.saturating_sub(nic) as f64 / nic as f64;
    (nic > 0 && gained.abs() < RATE_MOST).then_some(gained)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    /// When the NIC's clock began.
    const BEGAN: i64 = 1_700_000_000 * SECOND;

    /// Read every 100 ms for `seconds`; it goes 50 ppm too fast.
    fn read(seconds: i64) -> NicTime {
        let mut time = NicTime::default();
        (0..seconds * 10).for_each(|nth| time.take(reading(nth * SECOND / 10)));
        time
    }

    fn reading(since: i64) -> NicReading {
        NicReading { nic_ns: fast(since), realtime_ns: BEGAN + since }
    }

    fn fast(since: i64) -> i64 {
        since + since / 1_000_000 * 50
    }

    #[test]
    fn a_clock_that_drifts_is_told_by_the_hosts() {
        let time = read(20);
        for since in [19 * SECOND, 20 * SECOND, 21 * SECOND] {
            let wrong = time.realtime_of(fast(since)).unwrap() - BEGAN - since;
            assert!(wrong.abs() <= 100, "{wrong}");
        }
        assert_eq!(NicTime::default().realtime_of(5), None);
        let mut once = NicTime::default();
        once.take(reading(0));
        assert_eq!(once.realtime_of(7), Some(BEGAN + 7));
    }

    #[test]
    fn after_a_step_of_either_clock_it_is_told_by_readings_since() {
        for (nic, host) in [(5 * SECOND, 0), (-SECOND, 0), (0, SECOND / 2), (0, -SECOND)] {
            let mut time = read(20);
            let set = |since| {
                let NicReading { nic_ns, realtime_ns } = reading(since);
                NicReading { nic_ns: nic_ns + nic, realtime_ns: realtime_ns + host }
            };
            time.take(set(20 * SECOND));
            time.take(set(21 * SECOND));
            let after = set(21 * SECOND + 1_000_000);
            let wrong = time.realtime_of(after.nic_ns).unwrap() - after.realtime_ns;
            assert!(wrong.abs() <= 100, "{nic} {host}: {wrong}");
        }
    }

    #[test]
    fn what_cannot_be_is_none() {
        let time = read(20);
        let (now, stamp) = (BEGAN + 20 * SECOND, fast(20 * SECOND));
        // Kept for half a millisecond; stamped by the kernel a little early, as the clocks' readings are not exact.
        let arrived = time.arrival(stamp, now + 500_000).unwrap();
        assert!((arrived - now).abs() <= 100, "{}", arrived - now);
        assert_eq!(time.arrival(stamp, now - 9_000), Some(now - 9_000));
        assert_eq!((time.arrival(stamp, now - 200_000), time.arrival(stamp, now + 2 * SECOND)), (None, None));
        assert_eq!(time.departure(stamp, now + 9_000), Some(now + 9_000));
        assert_eq!(time.departure(stamp, now + 200_000), None);
        for hostile in [i64::MIN, i64::MAX, 0] {
            let _ = (time.arrival(hostile, now), time.departure(hostile, now), time.arrival(stamp, hostile));
        }
    }
}
