//! A token-bucket policer: what exceeds a rate by more than a burst is dropped, and nothing waits.

use longhaul_units::Nanos;

use crate::spec::PolicerSpec;

/// A bit of tokens, in the unit in which they are kept: a rate of 1 bit/s gives one unit a nanosecond, so that nothing is rounded.
const BIT: u128 = 1_000_000_000;

/// A token bucket with one rate and one colour (RFC 2697 with an excess burst of 0, counted per bit and nanosecond).
///
/// The bucket is full at first. A packet that finds as many tokens as it has bytes takes them and passes at its own time; another is
/// dropped and takes none.
#[derive(Debug, Clone)]
pub(super) struct Policer {
    rate_bits: u128,
    full: u128,
    tokens: u128,
    /// When the tokens were last counted.
    counted: Nanos,
}

impl Policer {
    pub(super) fn new(spec: PolicerSpec) -> Self {
        let full = u128::from(spec.burst.0) * 8 * BIT;
        Self { rate_bits: spec.rate.0.into(), full, tokens: full, counted: Nanos::ZERO }
    }

    /// Whether a packet that counts `bytes` and arrives at `arrival` passes. An arrival before one that was asked for already finds the
    /// tokens of that time.
    pub(super) fn admit(&mut self, arrival: Nanos, bytes: u32) -> bool {
        let elapsed = arrival.saturating_sub(self.counted);
        self.counted = self.counted.max(arrival);
        self.tokens = (self.tokens + u128::from(elapsed.0) * self.rate_bits).min(self.full);
        let needed = u128::from(bytes) * 8 * BIT;
        let passes = needed <= self.tokens;
        if passes {
            self.tokens -= needed;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::{BitRate, Bytes};
    use proptest::prelude::*;

    use super::*;

    fn policer(rate: u64, burst: u64) -> Policer {
        Policer::new(PolicerSpec { rate: BitRate(rate), burst: Bytes(burst) })
    }

    /// 8 Mb/s are a byte a microsecond. A bucket of 2500 bytes passes two packets of 1000 at once; 499 µs later 999 bytes are there.
    #[test]
    fn a_bucket_of_2500_bytes() {
        let mut policer = policer(8_000_000, 2500);
        for (us, bytes, passes) in [
            (0, 1000, true),
            (0, 1000, true),
            (0, 1000, false),
            (499, 1000, false),
            (500, 1000, true),
            (500, 1, false),
            // Long idle fills the bucket and no more; what is longer than the bucket never passes.
            (1_000_000, 2501, false),
            (1_000_000, 2500, true),
            (1_000_000, 1, false),
            // Earlier than the last: nothing has been added.
            (999_000, 1, false),
        ] {
            assert_eq!(policer.admit(Nanos::from_micros(us), bytes), passes, "{bytes} bytes at {us} us");
        }
    }

    /// No fraction of a token is lost in an hour of packets every millisecond or so: the rate and one full bucket pass.
    #[test]
    fn the_rate_does_not_drift() {
        let mut policer = policer(3_333_333, 15_380);
        let passed: u64 = (0..3_600_000).map(|n| u64::from(policer.admit(Nanos(n * 1_000_001), 1538))).sum();
        let earned = 3_600_003_600.0e-6 * 3_333_333.0 / 8.0 / 1538.0 + 10.0;
        assert!((passed as f64 - earned).abs() <= 1.0, "{passed} of {earned}");
    }

    proptest! {
        /// A packet passes exactly where no span that ends with it would pass more than rate and burst.
        #[test]
        fn no_span_passes_more_than_rate_and_burst(
            rate in 2_000u64..10_000_000_000,
            burst in 1u64..100_000,
            packets in proptest::collection::vec((0u64..200_000, 60u32..9_038), 1..200),
        ) {
            let mut policer = policer(rate, burst);
            let (mut at, mut passed) = (0u64, Vec::<(u64, u32)>::new());
            for (gap, bytes) in packets {
                at += gap;
                // Tokens before this packet: the fewest over all spans that end here and begin with a packet or a full bucket.
                let mut sum = 0u128;
                let mut room = u128::from(burst) * 8 * BIT;
                for &(then, its) in passed.iter().rev() {
                    sum += u128::from(its) * 8 * BIT;
                    let earned = u128::from(at - then) * u128::from(rate);
                    room = room.min((u128::from(burst) * 8 * BIT + earned).saturating_sub(sum));
                }
                let passes = policer.admit(Nanos(at), bytes);
                prop_assert_eq!(passes, u128::from(bytes) * 8 * BIT <= room);
                if passes {
                    passed.push((at, bytes));
                }
            }
        }
    }
}
