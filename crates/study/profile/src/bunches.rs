//! Packets that leave a path in bunches, as interrupt moderation or a framer lets them (TAPEE's acknowledgments: 0, 2 and 4 µs apart at one
//! end, ≈ 0 at the other).
//!
//! A hop's `coalesce` holds packets until a time after the first of a batch. So packets that left apart arrive together, and the first of them
//! has waited for all of that time: its delay less that of one which came last tells it.

use serde::Serialize;

use crate::probes::Passage;

/// Arrivals this near are one bunch: what a host takes to hand over packets one by one.
const TOGETHER_NS: f64 = 10_000.0;
/// A bunch whose packets left within less than this says nothing.
const APART_LEAST_NS: i64 = 20_000;
/// Bunches that a direction must have, and the share of its packets in them.
const LEAST: usize = 50;
const SHARE_LEAST: f64 = 0.5;

/// Packets of a direction arrive in bunches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bunches {
    /// How long a packet that comes first waits for others, nanoseconds.
    pub time_ns: u64,
    /// Share of the packets that arrive in bunches.
    pub share: f64,
    /// Packets of a bunch, on average.
    pub packets: f64,
}

/// A delay without the waiting: when its packet was sent, how long it took and its resolution, nanoseconds.
type Unbunched = (i64, f64, u32);

impl Bunches {
    /// Where most packets of `way` arrive in bunches: how, and the delays without the waiting.
    pub(crate) fn of(way: &[Passage]) -> Option<(Self, Vec<Unbunched>)> {
        let reached: Vec<(i64, f64)> =
            way.iter().filter_map(|passage| Some((passage.sent_ns, passage.delay_ns?))).collect();
        let arrived = |packet: &(i64, f64)| packet.0 as f64 + packet.1;
        let all: Vec<&[(i64, f64)]> = reached.chunk_by(|a, b| (arrived(b) - arrived(a)).abs() <= TOGETHER_NS).collect();
        let spread = |bunch: &[(i64, f64)]| bunch[bunch.len() - 1].0 - bunch[0].0;
        let bunches: Vec<&[(i64, f64)]> = all.iter().copied().filter(|bunch| spread(bunch) >= APART_LEAST_NS).collect();
        let packets: usize = bunches.iter().map(|bunch| bunch.len()).sum();
        let share = packets as f64 / reached.len().max(1) as f64;
        if bunches.len() < LEAST || share < SHARE_LEAST {
            return None;
        }
        let level = |mut values: Vec<f64>, share: f64| {
            values.sort_by(f64::total_cmp);
            values[((share * values.len() as f64) as usize).min(values.len() - 1)]
        };
        let first = level(bunches.iter().map(|bunch| bunch[0].1).collect(), 0.5);
        let last = level(bunches.iter().map(|bunch| bunch[bunch.len() - 1].1).collect(), 0.01);
        let waited = first - last;
        let delays = all.iter().map(|bunch| (bunch[0].0, (bunch[0].1 - waited).max(0.0), 1)).collect();
        let found = Self { time_ns: waited.max(1.0) as u64, share, packets: packets as f64 / bunches.len() as f64 };
        Some((found, delays))
    }
}
