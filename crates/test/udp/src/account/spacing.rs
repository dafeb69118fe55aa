//! The times between departures, requested and achieved.

use longhaul_units::{Nanos, Quantiles, TimeHistogram};
use serde::{Deserialize, Serialize};

use super::loss_pattern::{Collector, Distribution};

/// Inter-departure times of a sender, as seen in user space.
///
/// To the sender, all packets of one system call depart together: it measures the time between batches, and `batch_packets` has
/// their sizes. On the wire the packets of a batch follow each other at the link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spacing {
    /// Requested time between single packets; `None` if no rate was requested.
    pub requested_ns: Option<u64>,
    /// Time from the departure of one batch to the next.
    pub achieved: Quantiles,
    /// Mean time between single packets: the time from first to last departure, divided by the packets after the first batch.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub achieved_mean_ns: f64,
    /// Packets in a batch.
    pub batch_packets: Distribution,
}

/// Records departures of one stream for its [`Spacing`].
#[derive(Debug, Clone, Default)]
pub struct SpacingRecorder {
    gaps: TimeHistogram,
    batches: Collector,
    span: Option<(Nanos, Nanos)>,
    packets_after_first_batch: u64,
    packets: u64,
}

impl SpacingRecorder {
    /// `packets` packets departed together at `departure`, by a clock that does not run backwards.
    #[inline]
    pub fn record(&mut self, departure: Nanos, packets: u32) {
        match &mut self.span {
            None => self.span = Some((departure, departure)),
            Some((_, last)) => {
                self.gaps.record(departure.saturating_sub(*last), 1);
                *last = departure;
                self.packets_after_first_batch += u64::from(packets);
            }
        }
        self.packets += u64::from(packets);
        self.batches.record(u64::from(packets), 1);
    }

    /// Packets recorded.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// First and last departure; `None` before the first.
    pub fn span(&self) -> Option<(Nanos, Nanos)> {
        self.span
    }

    /// Adds the departures of another stream; times between packets are those within each stream.
    pub fn merge(&mut self, other: &Self) {
        self.gaps.merge(&other.gaps);
        self.batches.merge(&other.batches);
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.packets_after_first_batch += other.packets_after_first_batch;
        self.packets += other.packets;
    }

    /// The result; `requested` is the requested time between packets.
    pub fn spacing(&self, requested: Option<Nanos>) -> Spacing {
        let span = self.span.map_or(0, |(first, last)| last.saturating_sub(first).0);
        let after = self.packets_after_first_batch;
        Spacing {
            requested_ns: requested.map(|gap| gap.0),
            achieved: self.gaps.quantiles(),
            achieved_mean_ns: if after == 0 { 0.0 } else { span as f64 / after as f64 },
            batch_packets: self.batches.distribution(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten packets 1 µs apart, then a batch of four after 4 µs: 13 packets after the first in 13 µs.
    #[test]
    fn gaps_and_batches() {
        let mut recorder = SpacingRecorder::default();
        assert_eq!(recorder.spacing(None), Spacing::default());
        for packet in 0..10 {
            recorder.record(Nanos::from_micros(packet), 1);
        }
        recorder.record(Nanos::from_micros(13), 4);
        let spacing = recorder.spacing(Some(Nanos(1_000)));
        assert_eq!((spacing.requested_ns, spacing.achieved.count, recorder.packets()), (Some(1_000), 10, 14));
        assert!(spacing.achieved.p50_ns.abs_diff(1_000) <= 10 && spacing.achieved.max_ns.abs_diff(4_000) <= 40);
        assert!((spacing.achieved_mean_ns - 1_000.0).abs() < 1e-9);
        assert_eq!((spacing.batch_packets.count, spacing.batch_packets.p50, spacing.batch_packets.max), (11, 1, 4));
    }
}
