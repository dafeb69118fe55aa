//! Times of a measurement in which probes tell nothing of the path, and how clocks tell of them.
//!
//! A host that is suspended, a clock that is set and a server that ends lose no packets. What was on its way then is no row of the log.

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// A shorter suspension is none.
const SUSPENDED_LEAST: Nanos = Nanos::from_millis(20);
/// A smaller step of a clock is not told from the time that reading it takes.
const STEP_LEAST_NS: u64 = 100_000;

/// Why probes tell nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The measurement had ended, and was resumed.
    Paused,
    /// This host was suspended.
    Suspended,
    /// This host did not let the program run: it was stopped, or the host was busy.
    Stalled,
    /// This host's realtime clock, which stamps packets, was set.
    ClockStepped,
    /// The server closed the session: it ended or was started anew.
    ServerEnded,
    /// The server was silent, or could not be connected to: it or the path was down. Probes up to here count as lost.
    Unreachable,
    /// The server allows no longer session: another one began.
    SessionRenewed,
    /// This host's address towards the other one changed.
    AddressChanged,
    /// This host had no route to the other one.
    NoRoute,
}

impl GapReason {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Suspended => "this host was suspended",
            Self::Stalled => "this host did not run the program",
            Self::ClockStepped => "this host's clock was set",
            Self::ServerEnded => "the server ended",
            Self::Unreachable => "no server was reached",
            Self::SessionRenewed => "a new session",
            Self::AddressChanged => "this host's address changed",
            Self::NoRoute => "this host had no route",
        }
    }
}

/// A time in which probes tell nothing of the path. It is no loss and no outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Why.
    pub why: GapReason,
    /// From when, Unix time in nanoseconds, by this host's clock.
    pub from_ns: i64,
    /// Until when, by the same clock; where that was set, by the clock afterwards.
    pub to_ns: i64,
    /// By how much the clock was set forward, nanoseconds; below zero for back. Zero for all other reasons.
    pub step_ns: i64,
    /// Probes that had been sent and are left out.
    pub left_out: u64,
}

impl Gap {
    /// How long it lasted, nanoseconds.
    pub fn lasted_ns(&self) -> u64 {
        u64::try_from(self.to_ns.saturating_sub(self.from_ns).saturating_sub(self.step_ns)).unwrap_or(0)
    }
}

/// Three clocks of this host, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// `CLOCK_MONOTONIC`: stands still while the host is suspended, never set.
    pub monotonic: Nanos,
    /// `CLOCK_BOOTTIME`: goes on then.
    pub boottime: Nanos,
    /// `CLOCK_REALTIME`, Unix time in nanoseconds: can be set.
    pub realtime_ns: i64,
    /// The three were read within this time.
    pub error: Nanos,
}

/// Compares clocks from time to time.
#[derive(Debug)]
pub struct ClockWatch(ClockReading);

impl ClockWatch {
    /// Begins with this reading.
    pub fn new(reading: ClockReading) -> Self {
        Self(reading)
    }

    /// What happened since the last reading; `None` where clocks went on together. NTP slews all three alike.
    pub fn look(&mut self, now: ClockReading) -> Option<Gap> {
        let before = std::mem::replace(&mut self.0, now);
        let since = |now: Nanos, before: Nanos| now.saturating_sub(before);
        let error = before.error.saturating_add(now.error);
        let (ran, passed) = (since(now.monotonic, before.monotonic), since(now.boottime, before.boottime));
        let slept = passed.saturating_sub(ran);
        let shown = now.realtime_ns.saturating_sub(before.realtime_ns);
        let step_ns = shown.saturating_sub(i64::try_from(passed.0).unwrap_or(i64::MAX));
        let gap =
            |why, step_ns| Some(Gap { why, from_ns: before.realtime_ns, to_ns: now.realtime_ns, step_ns, left_out: 0 });
        let stepped = step_ns.unsigned_abs() > STEP_LEAST_NS.saturating_add(error.0);
        match slept > SUSPENDED_LEAST.saturating_add(error) {
            // A host that wakes up may set its clock by another one.
            true => gap(GapReason::Suspended, if stepped { step_ns } else { 0 }),
            false if stepped => gap(GapReason::ClockStepped, step_ns),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: ClockReading = ClockReading {
        monotonic: Nanos::from_secs(100),
        boottime: Nanos::from_secs(130),
        realtime_ns: 1_790_000_000_000_000_000,
        error: Nanos(200),
    };

    fn after(ran: Nanos, slept: Nanos, set_ns: i64) -> ClockReading {
        let passed = ran.saturating_add(slept);
        ClockReading {
            monotonic: START.monotonic + ran,
            boottime: START.boottime + passed,
            realtime_ns: START.realtime_ns + passed.0 as i64 + set_ns,
            error: Nanos(300),
        }
    }

    #[test]
    fn a_suspension_and_a_step_are_told_apart() {
        let ms = Nanos::from_millis;
        let look = |reading| ClockWatch::new(START).look(reading);
        assert_eq!(look(after(ms(100), Nanos::ZERO, 0)), None);
        assert_eq!(look(after(ms(100), ms(5), 90_000)), None);
        let slept = look(after(ms(100), Nanos::from_secs(3_600), 0)).unwrap();
        assert_eq!((slept.why, slept.step_ns, slept.lasted_ns()), (GapReason::Suspended, 0, 3_600_100_000_000));
        for set in [5_000_000_000, -3_000_000_000, 150_000] {
            let step = look(after(ms(100), Nanos::ZERO, set)).unwrap();
            assert_eq!((step.why, step.step_ns, step.lasted_ns()), (GapReason::ClockStepped, set, 100_000_000));
        }
        // A reading that was cut in two by an interrupt of a millisecond.
        let slow = ClockReading { error: ms(1), ..after(ms(100), Nanos::ZERO, 900_000) };
        assert_eq!(look(slow), None);
        let extreme =
            ClockReading { monotonic: Nanos::MAX, boottime: Nanos::ZERO, realtime_ns: i64::MIN, error: Nanos(0) };
        assert!(look(extreme).is_some());
    }
}
