//! How packets of one direction follow each other: rates, intervals, bursts, silence.

use serde::{Deserialize, Serialize};

use crate::gaps::Lost;

const MILLISECOND_NS: i64 = 1_000_000;
const TENTH_NS: i64 = 100_000_000;
const TENTHS: usize = 10;

/// Counts of intervals in bins of a quarter of an octave: bin *i* from 2^(i/4) ns on; the first has 0 as well, the last all
/// from 2^39 ns (9 min) on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals(pub Box<[u32; INTERVAL_BINS]>);

/// Bins of [`Intervals`].
pub const INTERVAL_BINS: usize = 40 * 4;

impl Default for Intervals {
    fn default() -> Self {
        Self(Box::new([0; INTERVAL_BINS]))
    }
}

impl Intervals {
    /// The bin of an interval.
    #[inline]
    pub fn bin(interval_ns: i64) -> usize {
        let value = interval_ns.max(1) as u64;
        let octave = value.ilog2();
        // Thresholds of 2^(1/4), 2^(2/4), 2^(3/4) in 1/65536.
        let mantissa = if octave >= 16 { value >> (octave - 16) } else { value << (16 - octave) } as u32;
        let quarter =
            usize::from(mantissa >= 77_936) + usize::from(mantissa >= 92_682) + usize::from(mantissa >= 110_218);
        (octave as usize * 4 + quarter).min(INTERVAL_BINS - 1)
    }

    /// Where bin `index` begins, nanoseconds.
    pub fn lower_ns(index: usize) -> f64 {
        (index as f64 / 4.0).exp2()
    }

    #[inline]
    pub(crate) fn add(&mut self, interval_ns: i64) {
        let count = &mut self.0[Self::bin(interval_ns)];
        *count = count.saturating_add(1);
    }
}

/// Bursts: data packets that follow each other at intervals shorter than a quarter of the shortest round trip; where none is known,
/// shorter than eight mean intervals.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bursts {
    /// How many, of two packets and more.
    pub count: u64,
    /// Packets of the longest.
    pub max_packets: u64,
    /// Payload bytes of the largest.
    pub max_bytes: u64,
    /// Mean payload bytes.
    pub mean_bytes: f64,
    /// The highest rate in one of eight packets or more, payload bits a second; 0 without such.
    pub max_rate_bps: u64,
}

/// A burst that goes on.
#[derive(Debug, Default)]
struct Burst {
    packets: u64,
    bytes: u64,
    first_bytes: u64,
    start_ns: i64,
    total_bytes: u64,
}

/// One millisecond of one direction: what is drawn over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Millisecond {
    /// Payload bytes that went by.
    pub payload_bytes: u64,
    /// Packets as captured that carried them.
    pub packets: u32,
    /// Payload bytes in retransmissions.
    pub retransmitted_bytes: u64,
    /// The most bytes in flight; `None` where acknowledgments are not seen.
    pub in_flight_bytes: Option<u64>,
    /// The highest byte's number from the first that was seen, at the end of the millisecond.
    pub sequence: u64,
    /// The number up to which all is acknowledged, at the end of the millisecond.
    pub acknowledged: Option<u64>,
    /// The receive window beyond that.
    pub window_bytes: Option<u64>,
    /// The last round-trip sample from here to the receiver.
    pub rtt_ns: Option<i64>,
    /// The capture lost packets in it, or between it and the row before or behind it.
    pub in_gap: bool,
    /// Payload bytes of its tenth of a second up to its end, and of the nine before; `None` where the capture lost packets meanwhile.
    pub second_bytes: Option<u64>,
}

impl Millisecond {
    /// The moving average over the last second (0.9 s at least, as it goes on in tenths) up to the end of the millisecond, which began
    /// at `at_ns`: payload bits a second.
    pub fn rate_1s_bps(&self, at_ns: i64) -> Option<u64> {
        let span_ns = 9 * TENTH_NS + at_ns.rem_euclid(TENTH_NS) + MILLISECOND_NS;
        self.second_bytes.map(|bytes| (bytes as f64 * 8e9 / span_ns as f64) as u64)
    }
}

/// Rates and intervals of one direction's data.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) bin: i64,
    pub(crate) now: Millisecond,
    tenth: i64,
    tenths: [u64; TENTHS],
    window_bytes: u64,
    tenths_passed: u64,
    pub(crate) peak_ms_bytes: u64,
    pub(crate) peak_second_bytes: u64,
    pub(crate) last_ns: Option<i64>,
    /// None as long as there was one packet: of a million open connections most have no more.
    pub(crate) intervals: Option<Intervals>,
    interval_count: u64,
    interval_sum_ns: f64,
    burst: Burst,
    pub(crate) bursts: Bursts,
    pub(crate) longest_silence_ns: i64,
    /// The tenth in which the capture lost packets last.
    gap_tenth: Option<i64>,
    /// Time in gaps of the capture up to the millisecond's beginning.
    bin_gap_ns: i64,
    /// Time in gaps of the capture up to the last data packet.
    gap_ns: i64,
    /// Time in gaps since the first.
    pub(crate) left_out_ns: i64,
    /// Payload captured within gaps; the capture may have lost more of it.
    pub(crate) left_out_bytes: u64,
}

impl Pace {
    /// Memory beside its own place, bytes.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.intervals.is_some() { INTERVAL_BINS * size_of::<u32>() } else { 0 }
    }

    /// Before anything of `at_ns` is added: whether a millisecond ended, and which.
    #[inline]
    pub(crate) fn advance(&mut self, at_ns: i64, lost: Lost) -> Option<(i64, Millisecond)> {
        let bin = at_ns.div_euclid(MILLISECOND_NS);
        if bin == self.bin {
            return None;
        }
        self.next_bin(bin, lost)
    }

    #[inline]
    fn next_bin(&mut self, bin: i64, lost: Lost) -> Option<(i64, Millisecond)> {
        let in_gap = lost.since(self.bin_gap_ns);
        self.bin_gap_ns = lost.gap_ns;
        self.now.in_gap |= in_gap;
        let had = self.now.packets > 0 || self.now.acknowledged.is_some() || self.now.rtt_ns.is_some();
        if had {
            self.now.second_bytes = self.second_bytes();
        }
        if in_gap {
            self.gap_tenth = Some(bin / (TENTH_NS / MILLISECOND_NS));
        }
        let ended = (self.bin, self.now);
        self.peak_ms_bytes = self.peak_ms_bytes.max(if ended.1.in_gap { 0 } else { ended.1.payload_bytes });
        self.bin = bin;
        self.now = Millisecond { sequence: ended.1.sequence, in_gap, ..Millisecond::default() };
        had.then_some((ended.0 * MILLISECOND_NS, ended.1))
    }

    /// What [`Millisecond::second_bytes`] is of the millisecond that ends.
    fn second_bytes(&mut self) -> Option<u64> {
        self.roll_tenths((self.bin * MILLISECOND_NS).div_euclid(TENTH_NS));
        let lost = self.now.in_gap || self.gap_tenth.is_some_and(|tenth| self.tenth - tenth < TENTHS as i64);
        (!lost).then_some(self.window_bytes)
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> Option<(i64, Millisecond)> {
        self.end_burst(self.last_ns.unwrap_or(0));
        let ended = self.next_bin(i64::MAX, Lost { gap_ns: self.bin_gap_ns, inside: false });
        // Behind the last millisecond, whose average goes back over a second.
        self.roll_tenths(i64::MAX);
        ended
    }

    /// A data packet; the interval since the one before, if all that passed meanwhile was captured.
    #[inline]
    pub(crate) fn add(&mut self, at_ns: i64, payload: u64, min_rtt_ns: Option<i64>, lost: Lost) -> Option<i64> {
        if self.last_ns.is_none() {
            // Of a direction without data nothing was kept, so that no millisecond began before.
            self.bin = at_ns.div_euclid(MILLISECOND_NS);
        }
        self.now.payload_bytes += payload;
        self.now.packets += 1;
        self.roll_tenths(at_ns.div_euclid(TENTH_NS));
        self.window_bytes += payload;
        self.tenths[self.tenth.rem_euclid(TENTHS as i64) as usize] += payload;
        let after_gap = self.look_for_gap(payload, lost);
        let interval = self.last_ns.filter(|_| !after_gap).map(|last| (at_ns - last).max(0));
        if let Some(interval) = interval {
            self.intervals.get_or_insert_default().add(interval);
            self.longest_silence_ns = self.longest_silence_ns.max(interval);
            let limit = match min_rtt_ns {
                Some(rtt) => rtt as f64 / 4.0,
                None if self.interval_count == 0 => f64::INFINITY,
                None => 8.0 * self.interval_sum_ns / self.interval_count as f64,
            };
            self.interval_count += 1;
            self.interval_sum_ns += interval as f64;
            if interval as f64 >= limit {
                self.end_burst(self.last_ns.unwrap_or(at_ns));
            }
        }
        if self.burst.packets == 0 {
            self.burst.start_ns = at_ns;
            self.burst.first_bytes = payload;
        }
        self.burst.packets += 1;
        self.burst.bytes += payload;
        self.last_ns = Some(at_ns);
        interval
    }

    /// Time in gaps of the capture up to the last data packet.
    pub(crate) fn gap_ns(&self) -> i64 {
        self.gap_ns
    }

    /// Whether packets may be missing since the data packet before.
    #[inline]
    fn look_for_gap(&mut self, payload: u64, lost: Lost) -> bool {
        let after_gap = lost.since(self.gap_ns);
        if after_gap {
            if let Some(last_ns) = self.last_ns {
                self.left_out_ns += lost.gap_ns - self.gap_ns;
                self.end_burst(last_ns);
            }
            self.left_out_bytes += if lost.inside { payload } else { 0 };
            self.gap_ns = lost.gap_ns;
            self.gap_tenth = Some(self.tenth);
            self.now.in_gap |= lost.since(self.bin_gap_ns);
        }
        after_gap
    }

    fn end_burst(&mut self, end_ns: i64) {
        let burst = std::mem::take(&mut self.burst);
        self.burst.total_bytes = burst.total_bytes;
        if burst.packets < 2 {
            return;
        }
        self.bursts.count += 1;
        self.burst.total_bytes += burst.bytes;
        self.bursts.mean_bytes = self.burst.total_bytes as f64 / self.bursts.count as f64;
        self.bursts.max_packets = self.bursts.max_packets.max(burst.packets);
        self.bursts.max_bytes = self.bursts.max_bytes.max(burst.bytes);
        let took_ns = end_ns - burst.start_ns;
        if burst.packets >= 8 && took_ns > 0 {
            let bits = (burst.bytes - burst.first_bytes) as f64 * 8.0;
            self.bursts.max_rate_bps = self.bursts.max_rate_bps.max((bits * 1e9 / took_ns as f64) as u64);
        }
    }

    /// The moving sum of ten tenths of a second.
    #[inline]
    fn roll_tenths(&mut self, tenth: i64) {
        if tenth != self.tenth {
            self.roll_tenths_to(tenth);
        }
    }

    fn roll_tenths_to(&mut self, tenth: i64) {
        if self.tenths_passed == 0 && self.window_bytes == 0 {
            self.tenth = tenth;
            self.tenths_passed = 1;
            return;
        }
        let steps = tenth.saturating_sub(self.tenth).clamp(0, TENTHS as i64 + 1);
        for step in 1..=steps {
            self.peak_second_bytes = self.peak_second_bytes.max(self.window_bytes);
            let slot = &mut self.tenths[(self.tenth.saturating_add(step)).rem_euclid(TENTHS as i64) as usize];
            self.window_bytes -= *slot;
            *slot = 0;
        }
        self.tenth = self.tenth.max(tenth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_of_intervals_are_quarters_of_octaves() {
        assert_eq!([0, 1, 2, 1024, i64::MAX].map(Intervals::bin), [0, 0, 4, 40, INTERVAL_BINS - 1]);
        for index in 8..INTERVAL_BINS - 1 {
            let lower = Intervals::lower_ns(index);
            assert_eq!(Intervals::bin((lower * 1.002 + 0.99) as i64), index, "{index}");
        }
    }

    /// 1,000 bytes each 10 ms for 3 s: 100,000 bytes in any second, 1,000 in a millisecond.
    #[test]
    fn moving_averages() {
        let mut pace = Pace::default();
        let mut rates = Vec::new();
        for step in 0..300 {
            let at_ns = 5_000_000_000 + step * 10 * MILLISECOND_NS;
            rates.extend(pace.advance(at_ns, Lost::default()).map(|(at_ns, row)| row.rate_1s_bps(at_ns).unwrap()));
            pace.add(at_ns, 1_000, Some(8 * MILLISECOND_NS), Lost::default());
        }
        rates.extend(pace.finish().map(|(at_ns, row)| row.rate_1s_bps(at_ns).unwrap()));
        assert_eq!(rates.len(), 300);
        assert!(rates[50] < 500_000, "half a second of silence before counts");
        assert!(rates[100..].iter().all(|rate| rate.abs_diff(800_000) < 10_000), "{rates:?}");
        assert_eq!((pace.peak_ms_bytes, pace.peak_second_bytes), (1_000, 100_000));
        assert_eq!(pace.bursts.count, 0, "10 ms is more than a quarter of the round trip");
    }

    /// A gap of 10 ms after 2 s: no average reaches over it.
    #[test]
    fn no_average_reaches_over_a_gap() {
        let mut pace = Pace::default();
        let mut without = Vec::new();
        for step in 0..400 {
            let at_ns = 5_000_000_000 + step * 10 * MILLISECOND_NS;
            let lost = Lost { gap_ns: if step < 200 { 0 } else { 10 * MILLISECOND_NS }, inside: false };
            let ended = pace.advance(at_ns, lost);
            without.extend(ended.filter(|(at_ns, row)| row.rate_1s_bps(*at_ns).is_none()).map(|(at_ns, _)| at_ns));
            pace.add(at_ns, 1_000, None, lost);
        }
        let (first, last) = (without[0], without[without.len() - 1]);
        assert_eq!((first, last), (6_990 * MILLISECOND_NS, 7_990 * MILLISECOND_NS));
        assert_eq!(without.len(), 101);
    }

    /// A gap before 1970 is a long time before the end.
    #[test]
    fn a_gap_before_1970() {
        let mut pace = Pace::default();
        let lost = Lost { gap_ns: 1, inside: false };
        for (at_ns, lost) in [(-3 * TENTH_NS, Lost::default()), (-2 * TENTH_NS, lost), (-TENTH_NS, lost)] {
            pace.advance(at_ns, lost);
            pace.add(at_ns, 1_000, None, lost);
        }
        let ended = pace.finish().map(|(at_ns, row)| (at_ns, row.second_bytes));
        assert_eq!(ended, Some((-TENTH_NS, None)), "the gap lies within the second before");
    }

    /// Ten packets of 1,000 bytes 1 µs apart, each 100 ms: 9,000 bytes in 9 µs are 8 Gb/s.
    #[test]
    fn bursts_have_length_and_rate() {
        let mut pace = Pace::default();
        for burst in 0..5 {
            for packet in 0..10 {
                pace.add(burst * TENTH_NS + packet * 1_000, 1_000, Some(MILLISECOND_NS), Lost::default());
            }
        }
        pace.finish();
        let expected =
            Bursts { count: 5, max_packets: 10, max_bytes: 10_000, mean_bytes: 10_000.0, max_rate_bps: 8_000_000_000 };
        assert_eq!(pace.bursts, expected);
    }
}
