//! One-way delay over its least (RFC 5481 §4.2, packet delay variation).

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// No packet is so much longer or shorter on its way than the first one: it has a time that its sender did not give it. Nanoseconds.
const BEYOND_BELIEF_NS: u64 = 60_000_000_000;
/// Most samples that are kept; then every second one goes.
const KEPT: usize = 4096;

/// How much longer packets of a stream were on their way than the quickest one.
///
/// The clocks of the two hosts need not agree. They must run at the same rate: what they drift apart in the test is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DelayOverLeast {
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The greatest of those that were kept.
    pub max_ns: u64,
}

impl DelayOverLeast {
    /// The greater of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            p50_ns: self.p50_ns.max(other.p50_ns),
            p90_ns: self.p90_ns.max(other.p90_ns),
            p99_ns: self.p99_ns.max(other.p99_ns),
            max_ns: self.max_ns.max(other.max_ns),
        }
    }
}

/// Collects delays in bounded memory: at most 4,096, evenly spread over the stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Delays {
    /// Arrival less departure, each by its own clock.
    transits_ns: Vec<i64>,
    first_ns: Option<i64>,
    least_ns: Option<i64>,
    /// One of this many is kept, as a power of two.
    stride: u64,
    seen: u64,
}

impl Delays {
    /// What was sent at `sent` (sender's clock) arrived at `arrival` (receiver's clock).
    #[inline]
    pub(super) fn take(&mut self, arrival: Nanos, sent: Nanos) {
        // Wrapping: the clocks can have any origin.
        let transit_ns = arrival.0.wrapping_sub(sent.0) as i64;
        if transit_ns.wrapping_sub(*self.first_ns.get_or_insert(transit_ns)).unsigned_abs() > BEYOND_BELIEF_NS {
            return;
        }
        self.least_ns = Some(self.least_ns.map_or(transit_ns, |least| least.min(transit_ns)));
        if self.seen & self.stride == 0 {
            self.keep(transit_ns);
        }
        self.seen += 1;
    }

    fn keep(&mut self, transit_ns: i64) {
        if self.transits_ns.len() == KEPT {
            let mut number = 0;
            self.transits_ns.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride = self.stride * 2 + 1;
            if self.seen & self.stride != 0 {
                return;
            }
        }
        self.transits_ns.push(transit_ns);
    }

    /// The quantiles; `None` without a packet.
    pub(super) fn over_least(mut self) -> Option<DelayOverLeast> {
        let least = self.least_ns?;
        self.transits_ns.sort_unstable();
        let at = |part: f64| {
            let index = ((self.transits_ns.len() - 1) as f64 * part).round() as usize;
            self.transits_ns.get(index).map_or(0, |transit| u64::try_from(transit.saturating_sub(least)).unwrap_or(0))
        };
        Some(DelayOverLeast { p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), max_ns: at(1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_origin_of_the_clocks_gives_the_same() {
        for origin in [0, 5, u64::MAX / 2, u64::MAX - 3] {
            let mut delays = Delays::default();
            for packet in 0..100_000_u64 {
                // Delays of 0 to 99 µs, in turn.
                delays.take(
                    Nanos((packet * 1_000_000).wrapping_add(origin)),
                    Nanos(packet * 1_000_000 - packet % 100 * 1_000 + 7),
                );
            }
            assert!(delays.transits_ns.len() <= KEPT && delays.transits_ns.len() > KEPT / 4);
            // Somebody forged these.
            delays.take(Nanos(origin), Nanos(1 << 63));
            delays.take(Nanos(origin), Nanos(BEYOND_BELIEF_NS * 2));
            let found = delays.over_least().unwrap();
            assert!((45_000..55_000).contains(&found.p50_ns) && (85_000..=96_000).contains(&found.p90_ns), "{found:?}");
        }
        assert_eq!(Delays::default().over_least(), None);
    }
}
