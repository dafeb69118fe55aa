//! The times between arrivals: whether what was spaced at the sender is still spaced at the receiver (figure 7 of the NLR Rings paper).

use longhaul_units::{Nanos, Quantiles, TimeHistogram};
use serde::{Deserialize, Serialize};

use super::loss_pattern::{Collector, Distribution};

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

impl Arrivals {
    /// The arrivals of `streams`; `None` if nothing arrived. Times between batches are those within each stream.
    pub fn of(streams: impl IntoIterator<Item = ArrivalRecorder>) -> Option<Self> {
        let (mut gaps, mut batches) = (Gaps::default(), Collector::default());
        let (mut first, mut last, mut packets_after_first) = (Nanos(u64::MAX), Nanos::ZERO, 0);
        for mut stream in streams {
            if stream.packets == 0 {
                continue;
            }
            stream.end_batch();
            let singles = stream.gaps.count() + 1 - stream.large.count();
            batches.record(1, singles);
            batches.merge(&stream.large);
            gaps.merge(&stream.gaps);
            first = first.min(stream.first);
            last = last.max(stream.last);
            packets_after_first += singles + stream.large_packets - u64::from(stream.first_packets.max(1));
        }
        let span_ns = last.0.checked_sub(first.0)?;
        Some(Self {
            between_batches: gaps.quantiles(),
            mean_ns: if packets_after_first == 0 { 0.0 } else { span_ns as f64 / packets_after_first as f64 },
            batch_packets: batches.distribution(),
        })
    }
}

/// Records arrivals of one stream for its [`Arrivals`], in a few nanoseconds for a single packet.
#[derive(Debug, Clone, Default)]
pub struct ArrivalRecorder {
    gaps: Gaps,
    /// Stamps of the first batch and of the last; the packets of the last so far, 0 before the first.
    first: Nanos,
    last: Nanos,
    packets: u32,
    /// Packets of the first batch, if more than one.
    first_packets: u32,
    /// Batches of several packets that have ended: all others had one.
    large: Collector,
    large_packets: u64,
}

impl ArrivalRecorder {
    /// `packets` packets (at least one) arrived together at `arrival`.
    #[inline]
    pub fn record(&mut self, arrival: Nanos, packets: u32) {
        if self.last == arrival {
            self.packets = self.packets.saturating_add(packets);
            return;
        }
        if self.packets != 1 && !self.end_batch() {
            self.first = arrival;
        } else {
            self.gaps.record(arrival.saturating_sub(self.last));
        }
        (self.last, self.packets) = (arrival, packets);
    }

    /// Counts the last batch; `false` if there is none.
    #[cold]
    fn end_batch(&mut self) -> bool {
        if self.packets > 1 {
            if self.last == self.first {
                self.first_packets = self.packets;
            }
            self.large.record(self.packets.into(), 1);
            self.large_packets += u64::from(self.packets);
        }
        self.packets > 0
    }
}

/// Times by their first seven binary digits, within 1 %: [`TimeHistogram`] takes ten times as long for each.
#[derive(Debug, Clone)]
struct Gaps {
    counts: Box<[u64]>,
    max: Nanos,
}

/// Significant digits of a time, and the longest: an hour has 42.
const DIGITS: u32 = 7;
const LONGEST: Nanos = Nanos::from_secs(3600);
const BUCKETS: usize = (42 - DIGITS as usize + 2) << (DIGITS - 1);

impl Default for Gaps {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), max: Nanos::ZERO }
    }
}

impl Gaps {
    #[inline]
    fn record(&mut self, time: Nanos) {
        let time = time.min(LONGEST);
        self.max = self.max.max(time);
        let shift = (u64::BITS - time.0.leading_zeros()).saturating_sub(DIGITS);
        // Times below 128 ns have a bucket each; behind these, each power of two has 64.
        let bucket = (shift as usize) << (DIGITS - 1);
        self.counts[bucket + (time.0 >> shift) as usize] += 1;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
        self.max = self.max.max(other.max);
    }

    fn quantiles(&self) -> Quantiles {
        let mut histogram = TimeHistogram::default();
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let shift = (bucket >> (DIGITS - 1)).saturating_sub(1);
            let lowest = (bucket - (shift << (DIGITS - 1))) << shift;
            histogram.record(Nanos((lowest + (1 << shift) / 2) as u64), *count);
        }
        let Quantiles { count, p50_ns, p99_ns, p99_9_ns, .. } = histogram.quantiles();
        let most = self.max.0;
        Quantiles {
            count,
            p50_ns: p50_ns.min(most),
            p99_ns: p99_ns.min(most),
            p99_9_ns: p99_9_ns.min(most),
            max_ns: most,
        }
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
        let arrivals = Arrivals::of([ArrivalRecorder::default(), recorder]).unwrap();
        assert!((arrivals.mean_ns - 10_000.0).abs() < 1e-9, "{arrivals:?}");
        assert_eq!((arrivals.batch_packets.count, arrivals.batch_packets.max), (6, 3));
        assert_eq!(arrivals.between_batches.count, 5);
        assert_eq!(Arrivals::of([ArrivalRecorder::default()]), None);
    }

    /// Every time from 0 ns to an hour falls into a bucket whose middle is within 1 % of it.
    #[test]
    fn times_keep_their_first_digits() {
        let mut times: Vec<u64> = (0..2_000).collect();
        times.extend((0..=42).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + (1 << power) / 3]));
        for time in times.into_iter().filter(|time| *time <= LONGEST.0).chain([LONGEST.0]) {
            let mut gaps = Gaps::default();
            gaps.record(Nanos(time));
            // So that the middle is not cut by the greatest.
            gaps.max = LONGEST;
            let found = gaps.quantiles();
            assert_eq!(found.count, 1);
            assert!(found.p50_ns.abs_diff(time) * 50 <= time, "{time}: {found:?}");
        }
        let mut beyond = Gaps::default();
        beyond.record(Nanos(u64::MAX));
        assert_eq!(beyond.quantiles().max_ns, LONGEST.0);
    }
}
