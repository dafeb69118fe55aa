//! The times between arrivals: whether what was spaced at the sender is still spaced at the receiver (figure 7 of the NLR Rings paper).

use longhaul_units::{Nanos, Quantiles};
use serde::{Deserialize, Serialize};

use super::loss_pattern::Distribution;
use super::spacing::SpacingRecorder;

/// Arrivals at the receiver, by the stamps of the test (`parameters.timestamps`).
///
/// Packets with the same stamp are a batch. By the application's clock that is what one call returned; by the kernel's, what GRO joined.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Arrivals {
    /// Time from the arrival of one batch to the next, within each stream.
    pub between_batches: Quantiles,
    /// Mean time between single packets: the time from first to last arrival, divided by the packets after the first batch.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub mean_ns: f64,
    /// Packets in a batch.
    pub batch_packets: Distribution,
}

/// Records arrivals of one stream for its [`Arrivals`].
#[derive(Debug, Clone, Default)]
pub struct ArrivalRecorder {
    batches: SpacingRecorder,
    /// Stamp and packets of the batch that still grows.
    batch: Option<(Nanos, u32)>,
}

impl ArrivalRecorder {
    /// `packets` packets arrived together at `arrival`.
    #[inline]
    pub fn record(&mut self, arrival: Nanos, packets: u32) {
        match &mut self.batch {
            Some((stamp, batch)) if *stamp == arrival => *batch = batch.saturating_add(packets),
            batch => {
                if let Some((stamp, packets)) = batch.replace((arrival, packets)) {
                    self.batches.record(stamp, packets);
                }
            }
        }
    }

    /// Adds the arrivals of another stream; times between batches are those within each stream.
    pub fn merge(&mut self, mut other: Self) {
        self.end_batch();
        other.end_batch();
        self.batches.merge(&other.batches);
    }

    fn end_batch(&mut self) {
        if let Some((stamp, packets)) = self.batch.take() {
            self.batches.record(stamp, packets);
        }
    }

    /// The result; `None` if nothing arrived.
    pub fn arrivals(mut self) -> Option<Arrivals> {
        self.end_batch();
        let spacing = self.batches.spacing(None);
        (self.batches.packets() > 0).then_some(Arrivals {
            between_batches: spacing.achieved,
            mean_ns: spacing.achieved_mean_ns,
            batch_packets: spacing.batch_packets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five packets 10 µs apart, then three with one stamp 30 µs later: seven packets after the first in 70 µs.
    #[test]
    fn packets_with_one_stamp_are_a_batch() {
        let mut recorder = ArrivalRecorder::default();
        for packet in 0..5 {
            recorder.record(Nanos::from_micros(10 * packet), 1);
        }
        recorder.record(Nanos::from_micros(70), 2);
        recorder.record(Nanos::from_micros(70), 1);
        let mut both = ArrivalRecorder::default();
        both.merge(recorder);
        let arrivals = both.arrivals().unwrap();
        assert!((arrivals.mean_ns - 10_000.0).abs() < 1e-9, "{arrivals:?}");
        assert_eq!((arrivals.batch_packets.count, arrivals.batch_packets.max), (6, 3));
        assert_eq!(arrivals.between_batches.count, 5);
        assert_eq!(ArrivalRecorder::default().arrivals(), None);
    }
}
