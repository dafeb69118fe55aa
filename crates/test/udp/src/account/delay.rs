//! One-way delay over its least (RFC 5481 §4.2, packet delay variation).

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// No packet is so much longer or shorter on its way than the others: it has a time that its sender did not give it. Nanoseconds.
const BEYOND_BELIEF_NS: u64 = 60_000_000_000;
/// Packets that choose one of them, with which all are compared: two of them may be forged.
const CHOOSING: usize = 5;
/// Most samples that are kept; then every second one goes.
const KEPT: usize = 4096;

/// How much longer packets of a stream took than the fastest one.
///
/// The clocks of the two hosts need not be synchronised, but they must run at the same rate: their drift during the test is included.
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
    /// Arrival less departure, each by its own clock, of the first packets; empty from the choice of `base_ns` on.
    choosing_ns: Vec<i64>,
    /// Of the packet with which all are compared.
    base_ns: Option<i64>,
    /// By how much others were longer on their way than that one, or (negative) shorter.
    over_base_ns: Vec<i64>,
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
        match self.base_ns {
            Some(base_ns) => self.compare(transit_ns, base_ns),
            None => self.wait(transit_ns),
        }
    }

    #[cold]
    fn wait(&mut self, transit_ns: i64) {
        self.choosing_ns.push(transit_ns);
        if self.choosing_ns.len() == CHOOSING {
            self.choose();
        }
    }

    /// Compares the first packets with that of them which is nearest to most of them.
    fn choose(&mut self) {
        let first = std::mem::take(&mut self.choosing_ns);
        let to_most_ns = |one: &i64| {
            // Wrapping: a forged one can be as far from the others as there is.
            let mut to_each: Vec<u64> = first.iter().map(|other| other.wrapping_sub(*one).unsigned_abs()).collect();
            to_each.sort_unstable();
            to_each[to_each.len() / 2]
        };
        self.base_ns = first.iter().copied().min_by_key(to_most_ns);
        if let Some(base_ns) = self.base_ns {
            first.iter().for_each(|transit_ns| self.compare(*transit_ns, base_ns));
        }
    }

    #[inline]
    fn compare(&mut self, transit_ns: i64, base_ns: i64) {
        let over_base_ns = transit_ns.wrapping_sub(base_ns);
        if over_base_ns.unsigned_abs() > BEYOND_BELIEF_NS {
            return;
        }
        self.least_ns = Some(self.least_ns.map_or(over_base_ns, |least| least.min(over_base_ns)));
        if self.seen & self.stride == 0 {
            self.keep(over_base_ns);
        }
        self.seen += 1;
    }

    fn keep(&mut self, over_base_ns: i64) {
        if self.over_base_ns.len() == KEPT {
            let mut number = 0;
            self.over_base_ns.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride = self.stride * 2 + 1;
            if self.seen & self.stride != 0 {
                return;
            }
        }
        self.over_base_ns.push(over_base_ns);
    }

    /// The quantiles; `None` without a packet.
    pub(super) fn over_least(mut self) -> Option<DelayOverLeast> {
        // Fewer came than choose.
        if self.base_ns.is_none() {
            self.choose();
        }
        let least = self.least_ns?;
        self.over_base_ns.sort_unstable();
        let at = |part: f64| {
            let index = ((self.over_base_ns.len() - 1) as f64 * part).round() as usize;
            self.over_base_ns.get(index).map_or(0, |over| u64::try_from(over.saturating_sub(least)).unwrap_or(0))
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
            assert!(delays.over_base_ns.len() <= KEPT && delays.over_base_ns.len() > KEPT / 4);
            // Somebody forged these.
            delays.take(Nanos(origin), Nanos(1 << 63));
            delays.take(Nanos(origin), Nanos(BEYOND_BELIEF_NS * 2));
            let found = delays.over_least().unwrap();
            assert!((45_000..55_000).contains(&found.p50_ns) && (85_000..=96_000).contains(&found.p90_ns), "{found:?}");
        }
        assert_eq!(Delays::default().over_least(), None);
    }

    #[test]
    fn two_forged_packets_of_the_first_take_no_delay_from_the_others() {
        for (forged, first) in [([0, 1], 2), ([0, 4], 1), ([2, 3], 0), ([3, 4], 0)] {
            // Two minutes, and as far away as there is, which lies in the middle of the others where it wraps.
            for by_ns in [BEYOND_BELIEF_NS * 2, 1 << 63] {
                let mut delays = Delays::default();
                for packet in 0..20_u64 {
                    let sent_ns = if forged.contains(&packet) { by_ns } else { 0 };
                    delays.take(Nanos(7_000 + packet * 100), Nanos(sent_ns));
                }
                assert_eq!(delays.over_base_ns.len(), 18, "{forged:?} by {by_ns}: {delays:?}");
                let found = delays.over_least().unwrap();
                assert_eq!(found.max_ns, (19 - first) * 100, "{forged:?} by {by_ns}: {found:?}");
            }
        }
    }

    #[test]
    fn few_packets_have_delays_too() {
        for packets in 1..=2 * CHOOSING as u64 {
            let mut delays = Delays::default();
            (0..packets).for_each(|packet| delays.take(Nanos(packet * 11_000), Nanos(packet * 10_000)));
            assert_eq!(delays.over_least().unwrap().max_ns, (packets - 1) * 1_000);
        }
        // One of three is forged.
        let mut delays = Delays::default();
        [(9, 1 << 62), (20, 10), (35, 20)].into_iter().for_each(|(to, from)| delays.take(Nanos(to), Nanos(from)));
        assert_eq!(delays.over_least().unwrap().max_ns, 5);
    }
}
