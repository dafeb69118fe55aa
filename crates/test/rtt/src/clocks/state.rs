//! What each host says of its clock, and the delay of each direction where both may be believed.
//!
//! An exchange alone cannot tell a constant asymmetry from an offset of the clocks (RFC 5905 §8). Where something else keeps both clocks to
//! UTC within a bound, the raw differences are delays, within the sum of both bounds.

use serde::{Deserialize, Serialize};

/// The state of a host's realtime clock, as its kernel has it from whoever disciplines it (ntp_adjtime(3)).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockState {
    /// Whether it is synchronised: a program disciplines it and has told the kernel.
    pub synchronised: bool,
    /// Its largest error, nanoseconds, as the program that disciplines it says. It grows by 500 ppm until the next update.
    pub max_error_ns: u64,
    /// About how much it is off, nanoseconds, by the same source.
    pub estimated_error_ns: u64,
    /// Programs of this host that discipline clocks: chronyd, ntpd, systemd-timesyncd, ptp4l, phc2sys.
    pub daemons: Vec<String>,
}

impl ClockState {
    /// As a peer may say it: few names, which are short.
    #[must_use]
    pub fn of_peer(mut self) -> Self {
        self.daemons.retain(|name| name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        self.daemons.truncate(8);
        self
    }
}

/// Delays of both directions by two clocks that are synchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWayDelays {
    /// From this host to the other.
    pub forward: OneWayDelay,
    /// From the other host to this one.
    pub backward: OneWayDelay,
    /// All may be off by so much, one direction by as much as the other in the opposite sense, nanoseconds: the sum of what both
    /// clocks may be off.
    pub bound_ns: u64,
}

/// The delay of a direction, nanoseconds: of at most 65,536 probes spread over the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWayDelay {
    /// The least.
    pub min_ns: i64,
    /// Half are at most this.
    pub p50_ns: i64,
    /// 99 % are at most this.
    pub p99_ns: i64,
}

/// What both clocks may be apart, nanoseconds; `None` unless both are synchronised.
pub(crate) fn bound_ns(client: Option<&ClockState>, server: Option<&ClockState>) -> Option<u64> {
    let of = |clock: &ClockState| clock.synchronised.then_some(clock.max_error_ns);
    Some(of(client?)?.saturating_add(of(server?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_clocks_that_are_synchronised_have_a_bound() {
        let clock = |synchronised, max_error_ns| ClockState { synchronised, max_error_ns, ..ClockState::default() };
        let (good, bad) = (clock(true, 3_000), clock(false, 5));
        assert_eq!(bound_ns(Some(&good), Some(&clock(true, 4_000))), Some(7_000));
        assert_eq!(bound_ns(Some(&good), Some(&bad)), None);
        assert_eq!(bound_ns(Some(&good), None), None);
    }
}
