//! What captures at both ends of a TCP test say of single packets: whether a sender's packets come in bursts, and whether a path bunches
//! acknowledgments (TAPEE, figures 5 to 7, 10 and 11).

use serde::{Deserialize, Serialize};

/// Of the flow with the most data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Packets {
    /// Its payload as it left the sender, by milliseconds, without the time that was omitted.
    pub sent: Rates,
    /// The same by tens of milliseconds.
    pub sent_10ms: Rates,
    /// Acknowledgments as they left the receiver.
    pub acks_at_receiver: AckIntervals,
    /// The same acknowledgments as they came to the sender.
    pub acks_at_sender: AckIntervals,
    /// Packets that the two captures lost themselves.
    pub not_captured: u64,
}

/// Rates of payload in intervals of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rates {
    /// Intervals that count.
    pub intervals: u64,
    /// The mean, payload bits a second.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub mean_bps: f64,
    /// The highest in an interval.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub peak_bps: f64,
    /// Standard deviation by mean: 0 where each interval has the same.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub variation: f64,
    /// Intervals in which nothing was sent, percent.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub silent_percent: f64,
}

/// Times from an acknowledgment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AckIntervals {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// Shorter than a quarter of their mean, percent: those of packets that were bunched.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub bunched_percent: f64,
}

impl Rates {
    /// Of payload by intervals of `milliseconds`, those without any included.
    pub fn of(payload_bytes: &[u64], milliseconds: u32) -> Self {
        let count = payload_bytes.len();
        if count == 0 {
            return Self::default();
        }
        let bps = |bytes: f64| bytes * 8.0 * 1e3 / f64::from(milliseconds.max(1));
        let mean = payload_bytes.iter().sum::<u64>() as f64 / count as f64;
        let variance = payload_bytes.iter().map(|bytes| (*bytes as f64 - mean).powi(2)).sum::<f64>() / count as f64;
        let silent = payload_bytes.iter().filter(|bytes| **bytes == 0).count();
        Self {
            intervals: count as u64,
            mean_bps: bps(mean),
            peak_bps: bps(payload_bytes.iter().max().copied().unwrap_or_default() as f64),
            variation: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            silent_percent: silent as f64 * 100.0 / count as f64,
        }
    }
}

impl AckIntervals {
    /// Of intervals in any order.
    pub fn of(mut intervals_ns: Vec<i64>) -> Self {
        intervals_ns.sort_unstable();
        let count = intervals_ns.len();
        if count == 0 {
            return Self::default();
        }
        let at = |share: f64| intervals_ns[((count - 1) as f64 * share) as usize].max(0) as u64;
        let mean = intervals_ns.iter().map(|ns| *ns as f64).sum::<f64>() / count as f64;
        let bunched = intervals_ns.partition_point(|ns| (*ns as f64) < mean / 4.0);
        Self {
            count: count as u64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            bunched_percent: bunched as f64 * 100.0 / count as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 1000 bytes in each second millisecond are 4 Mb/s on the mean, 8 at most, and vary as much as their mean.
    #[test]
    fn bursts_show_in_milliseconds() {
        let even = Rates::of(&[500; 10], 1);
        assert_eq!((even.mean_bps, even.peak_bps, even.variation, even.silent_percent), (4e6, 4e6, 0.0, 0.0));
        let bursts = Rates::of(&[1000, 0, 1000, 0], 1);
        assert_eq!((bursts.mean_bps, bursts.peak_bps, bursts.variation, bursts.silent_percent), (4e6, 8e6, 1.0, 50.0));
        assert_eq!(Rates::of(&[5000, 5000], 10).mean_bps, 4e6);
        assert_eq!(Rates::of(&[], 1), Rates::default());
    }

    #[test]
    fn acknowledgments_that_are_bunched_show() {
        let even = AckIntervals::of(vec![2_000; 100]);
        assert_eq!((even.p50_ns, even.bunched_percent), (2_000, 0.0));
        let bunched: Vec<i64> = (0..100).map(|number| if number % 10 == 0 { 19_000 } else { 100 }).collect();
        let bunched = AckIntervals::of(bunched);
        assert_eq!((bunched.p50_ns, bunched.p90_ns, bunched.bunched_percent), (100, 100, 90.0));
    }
}
