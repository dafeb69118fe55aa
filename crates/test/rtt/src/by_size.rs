//! Round trips by the size of probes: a line through the medians of the sizes, and steps between neighbours.
//!
//! A link adds a time for each byte in each direction, 8 bits over its rate (store and forward), and so do hosts that copy. What comes
//! whole, whatever the size, is a step: a packet more above the MTU, another path through a driver.

use std::collections::BTreeMap;

use longhaul_units::{BitRate, Thinned};
use serde::{Deserialize, Serialize};

/// Most sizes of a measurement.
pub const MOST_SIZES: usize = 64;
/// Round trips of a size that are kept.
const KEPT: usize = 8_192;
/// Fewer sizes tell no line from a curve, and Sen's interval has no bounds.
const LINE_SIZES_LEAST: usize = 5;
/// Two-sided, 95 % of a normal distribution.
const Z_95: f64 = 1.959_964;
/// A step is so many standard errors high: 64 sizes without one show one in 250 measurements.
const STEP_ERRORS: f64 = 4.0;
/// A step is at least so high, nanoseconds: what the kernel's stamps at both ends tell apart.
const STEP_LEAST_NS: f64 = 2_000.0;
/// The median of absolute deviations of a normal distribution, times this, is its standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// How round trips depend on the size of probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BySize {
    /// The sizes in rising order.
    pub sizes: Vec<OfSize>,
    /// A line through their medians, less what steps add (Theil and Sen's slope); `None` where fewer than five sizes were answered.
    pub line: Option<SizeLine>,
    /// Where medians change by more than the line and chance explain.
    pub steps: Vec<SizeStep>,
    /// The link of each host whose rate is known, the client's first, bits per second.
    #[serde(default)]
    pub host_links_bps: Vec<u64>,
    /// What these links add to a round trip for each byte, nanoseconds. The path and the hosts add the rest of the slope.
    #[serde(default)]
    pub host_links_ns_per_byte: f64,
}

impl BySize {
    /// With the rates of the hosts' links: a message passes each once in each direction.
    pub fn explain(&mut self, host_links: impl IntoIterator<Item = BitRate>) {
        self.host_links_bps = host_links.into_iter().map(|link| link.0).filter(|bps| *bps > 0).collect();
        self.host_links_ns_per_byte = self.host_links_bps.iter().map(|bps| 16.0 * 1e9 / *bps as f64).sum();
    }
}

/// Round trips of the probes of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfSize {
    /// Payload of a probe and of its answer, bytes.
    pub payload_bytes: u32,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered before the time-out.
    pub received: u64,
    /// Round trips, nanoseconds; `None` without an answer.
    pub rtt: Option<SizeRtt>,
}

/// Round trips of one size, nanoseconds, of at most 8,192 probes spread over the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeRtt {
    /// The least, of all probes.
    pub min_ns: i64,
    /// Half are at most this.
    pub p50_ns: i64,
    /// Lower end of the median's 95 % interval, by the ranks of probes, which it takes for independent.
    pub p50_least_ns: i64,
    /// Upper end of it.
    pub p50_most_ns: i64,
    /// 99 % are at most this.
    pub p99_ns: i64,
}

/// A line through the medians of all sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeLine {
    /// Time of a message without payload, nanoseconds.
    pub intercept_ns: f64,
    /// Time that each byte of payload adds to a round trip, nanoseconds.
    pub slope_ns_per_byte: f64,
    /// Lower end of the slope's 95 % interval (Sen 1968).
    pub slope_least_ns_per_byte: f64,
    /// Upper end of it.
    pub slope_most_ns_per_byte: f64,
}

impl SizeLine {
    /// The rate of a link that each direction passes once, which would give this slope by itself. `None` where the slope may be zero.
    pub fn link(&self) -> Option<BitRate> {
        (self.slope_least_ns_per_byte > 0.0).then(|| BitRate((16.0 * 1e9 / self.slope_ns_per_byte) as u64))
    }
}

/// A step between two neighbouring sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeStep {
    /// The greatest size before it, bytes of payload.
    pub from_bytes: u32,
    /// The least size after it.
    pub to_bytes: u32,
    /// How much it adds to a round trip, nanoseconds.
    pub ns: f64,
}

/// Takes round trips size by size.
#[derive(Debug, Default)]
pub(crate) struct Sizes(BTreeMap<u32, Size>);

#[derive(Debug)]
struct Size {
    sent: u64,
    received: u64,
    least: i64,
    kept: Thinned<i64>,
}

impl Sizes {
    /// `payloads`: of probes, bytes; none where all have one.
    pub(crate) fn new(payloads: &[u32]) -> Self {
        let new = |&payload_bytes: &u32| {
            (payload_bytes, Size { sent: 0, received: 0, least: i64::MAX, kept: Thinned::keeping(KEPT) })
        };
        Self(payloads.iter().map(new).collect())
    }

    pub(crate) fn take(&mut self, payload_bytes: u32, rtt_ns: Option<i64>) {
        let Some(size) = self.0.get_mut(&payload_bytes) else { return };
        size.sent += 1;
        if let Some(rtt) = rtt_ns {
            size.received += 1;
            size.least = size.least.min(rtt);
            size.kept.push(rtt);
        }
    }

    /// The figures; `None` where all probes have one size.
    pub(crate) fn finish(self) -> Option<BySize> {
        let sizes: Vec<OfSize> = self.0.into_iter().map(|(bytes, size)| size.finish(bytes)).collect();
        (!sizes.is_empty()).then(|| {
            let points: Vec<Point> = sizes.iter().filter_map(Point::of).collect();
            let (line, steps) = line_and_steps(&points);
            BySize { sizes, line, steps, host_links_bps: Vec::new(), host_links_ns_per_byte: 0.0 }
        })
    }
}

impl Size {
    fn finish(self, payload_bytes: u32) -> OfSize {
        let Self { sent, received, least, kept } = self;
        let sorted = kept.sorted();
        let count = sorted.len() as f64;
        // Ranks from 1; those of the median's interval by the normal approximation of the binomial distribution.
        let rank = |rank: f64| sorted[(rank.clamp(1.0, count) as usize) - 1];
        let apart = Z_95 * count.sqrt() / 2.0;
        let rtt = (!sorted.is_empty()).then(|| SizeRtt {
            min_ns: least,
            p50_ns: rank((count / 2.0).ceil()),
            p50_least_ns: rank((count / 2.0 - apart).floor()),
            p50_most_ns: rank((count / 2.0 + apart + 1.0).ceil()),
            p99_ns: rank((count * 0.99).ceil()),
        });
        OfSize { payload_bytes, sent, received, rtt }
    }
}

/// A size's median round trip and its standard error, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: u32,
    ns: f64,
    error: f64,
}

impl Point {
    fn of(size: &OfSize) -> Option<Self> {
        let SizeRtt { p50_ns, p50_least_ns, p50_most_ns, .. } = size.rtt?;
        let error = (p50_most_ns as f64 - p50_least_ns as f64) / (2.0 * Z_95);
        Some(Self { bytes: size.payload_bytes, ns: p50_ns as f64, error })
    }

    fn slope_to(&self, other: &Self) -> f64 {
        (other.ns - self.ns) / (f64::from(other.bytes) - f64::from(self.bytes))
    }
}

/// `points`: in rising order of sizes.
fn line_and_steps(points: &[Point]) -> (Option<SizeLine>, Vec<SizeStep>) {
    if points.len() < LINE_SIZES_LEAST {
        return (None, Vec::new());
    }
    // Steps lie between few neighbours, so most slopes between neighbours have none.
    let slopes = points.windows(2).map(|pair| pair[0].slope_to(&pair[1])).collect();
    let steps = steps(points, median(slopes));
    let mut level = points.to_vec();
    for step in &steps {
        level.iter_mut().filter(|point| point.bytes >= step.to_bytes).for_each(|point| point.ns -= step.ns);
    }
    (Some(line(&level)), steps)
}

/// What neighbours differ by beyond `slope`, where that is no chance.
fn steps(points: &[Point], slope: f64) -> Vec<SizeStep> {
    let beyond = |pair: &[Point]| pair[1].ns - pair[0].ns - slope * f64::from(pair[1].bytes - pair[0].bytes);
    let all: Vec<f64> = points.windows(2).map(beyond).collect();
    // Medians scatter by more than their errors where delays come in waves.
    let middle = median(all.clone());
    let sigma = MAD_TO_SIGMA * median(all.iter().map(|value| (value - middle).abs()).collect());
    let is_step = |(pair, ns): &(&[Point], &f64)| {
        let error = pair[0].error.hypot(pair[1].error).max(sigma);
        ns.abs() > (STEP_ERRORS * error).max(STEP_LEAST_NS)
    };
    let found = points.windows(2).zip(&all).filter(is_step);
    found.map(|(pair, &ns)| SizeStep { from_bytes: pair[0].bytes, to_bytes: pair[1].bytes, ns }).collect()
}

/// Theil and Sen's line: the median of the slopes of all pairs, with Sen's interval by Kendall's statistic.
fn line(points: &[Point]) -> SizeLine {
    let pairs =
        points.iter().enumerate().flat_map(|(at, one)| points[at + 1..].iter().map(|other| one.slope_to(other)));
    let mut slopes: Vec<f64> = pairs.collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let (count, pairs) = (points.len() as f64, slopes.len() as f64);
    let apart = Z_95 * (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let at = |rank: f64| slopes[rank.clamp(0.0, pairs - 1.0) as usize];
    let slope = median(slopes.clone());
    SizeLine {
        intercept_ns: median(points.iter().map(|point| point.ns - slope * f64::from(point.bytes)).collect()),
        slope_ns_per_byte: slope,
        slope_least_ns_per_byte: at(((pairs - apart) / 2.0).floor()),
        slope_most_ns_per_byte: at(((pairs + apart) / 2.0).ceil()),
    }
}

/// Of at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SIZES: [u32; 16] = [64, 160, 256, 352, 448, 544, 640, 736, 832, 928, 1024, 1120, 1216, 1312, 1408, 1504];

    /// `probes` of a path of 1 ms and 16 ns a byte, with `step` ns more from 1,000 bytes on, and an exponential jitter of 20 us that
    /// all sizes have.
    fn measured(seed: u64, probes: u64, step: i64) -> BySize {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut sizes = Sizes::new(&SIZES);
        for sequence in 0..probes {
            let payload_bytes = SIZES[sequence as usize % SIZES.len()];
            let bytes = i64::from(payload_bytes);
            let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            let jitter = (-uniform.ln() * 20_000.0) as i64;
            sizes.take(payload_bytes, Some(1_000_000 + 16 * bytes + if bytes >= 1000 { step } else { 0 } + jitter));
        }
        sizes.finish().unwrap()
    }

    #[test]
    fn the_line_is_found_and_its_interval_holds_it() {
        let mut outside = 0;
        for seed in 0..200 {
            let found = measured(seed, 16_000, 0);
            assert_eq!(found.steps, [], "seed {seed}");
            let line = found.line.unwrap();
            assert!((line.slope_ns_per_byte - 16.0).abs() < 2.0, "seed {seed}: {line:?}");
            outside += u32::from(!(line.slope_least_ns_per_byte..=line.slope_most_ns_per_byte).contains(&16.0));
            let link = line.link().unwrap().0;
            assert!((850_000_000..1_150_000_000).contains(&link), "seed {seed}: {link}");
        }
        // One in twenty.
        assert!(outside <= 20, "{outside} of 200");
    }

    #[test]
    fn a_step_is_found_and_is_no_part_of_the_line() {
        for seed in 0..200 {
            let found = measured(seed, 16_000, 30_000);
            let [step] = found.steps[..] else { panic!("seed {seed}: {:?}", found.steps) };
            assert!(
                (step.from_bytes, step.to_bytes) == (928, 1024) && (step.ns - 30_000.0).abs() < 6_000.0,
                "{step:?}"
            );
            let line = found.line.unwrap();
            assert!((line.slope_ns_per_byte - 16.0).abs() < 4.0, "seed {seed}: {line:?}");
        }
    }

    #[test]
    fn few_sizes_and_lost_ones_have_no_line() {
        let mut sizes = Sizes::new(&[64, 1000]);
        (0..100).for_each(|sequence| {
            sizes.take(if sequence % 2 == 0 { 64 } else { 1000 }, (sequence % 2 == 0).then_some(5_000))
        });
        let found = sizes.finish().unwrap();
        assert_eq!(found.sizes.iter().map(|size| (size.sent, size.received)).collect::<Vec<_>>(), [(50, 50), (50, 0)]);
        assert_eq!((found.sizes[1].rtt, found.line), (None, None));
        assert_eq!(found.sizes[0].rtt.unwrap().p50_most_ns, 5_000);
        assert_eq!(Sizes::new(&[]).finish(), None);
        // 1 Gb/s in both directions is 16 ns a byte, 10 Gb/s a tenth of it.
        let mut found = found;
        found.explain([BitRate(1_000_000_000), BitRate(0), BitRate(10_000_000_000)]);
        assert!((found.host_links_ns_per_byte - 17.6).abs() < 1e-9, "{found:?}");
    }
}
