//! Two clocks laid over each other by packets that passed both.
//!
//! Of a packet from A to B, B's stamp less A's is the clocks' offset plus the delay; of one from B to A it is the offset less the delay.
//! So the offset lies between the greatest of the second and the least of the first. How it changes is the slope of the line
//! below all points of the first kind, or above all of the second, that is nearest to them: an edge of their convex hull
//! (Zhang, Liu, Xia: "Clock synchronization algorithms for network measurements", INFOCOM 2002).

use serde::{Deserialize, Serialize};

/// How B's clock runs compared with A's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockFit {
    /// B's clock less A's at `at_ns`.
    pub offset_ns: f64,
    /// The offset is right to this, if delays were never shorter than here: half of the shortest round trip between the points.
    /// `None` where packets of one direction alone passed both, and offset cannot be told from delay.
    pub offset_error_ns: Option<f64>,
    /// How much faster B's clock goes: nanoseconds a second.
    pub drift_ppb: f64,
    /// How far the two directions disagree about it, halved.
    pub drift_error_ppb: Option<f64>,
    /// A's time at which the offset holds.
    pub at_ns: i64,
    /// Whether times are corrected by it: not where both stamps are taken as of one clock.
    pub corrected: bool,
}

impl ClockFit {
    /// The offset at A's time.
    pub fn offset_at(&self, at_ns: i64) -> f64 {
        if !self.corrected {
            return 0.0;
        }
        self.offset_ns + self.drift_ppb * 1e-9 * at_ns.saturating_sub(self.at_ns) as f64
    }

    /// A time of B's clock by A's.
    pub fn by_a(&self, b_ns: i64) -> i64 {
        let near_ns = if self.corrected { b_ns.saturating_sub(self.offset_ns as i64) } else { b_ns };
        b_ns.saturating_sub(self.offset_at(near_ns) as i64)
    }
}

/// Points that a line is laid below: minima of equal parts of time, so that memory is bounded.
const PARTS: usize = 1_024;

/// A line that no point lies below, but for its height.
#[derive(Debug, Clone, Copy)]
struct Line {
    slope: f64,
    /// How far the minima of parts of the time lie above it, in the mean: little where the shortest delay stayed, much where it changed.
    above: f64,
}

/// The line below all points (x, y) that is nearest to them in sum. `None` with fewer than two points of different x.
fn line_below(points: &[(f64, f64)]) -> Option<Line> {
    let (first, last) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    if points.len() < 2 || last <= first {
        return None;
    }
    let mut least: Vec<Option<(f64, f64)>> = vec![None; PARTS];
    for (x, y) in points {
        let part = ((x - first) / (last - first) * PARTS as f64) as usize;
        let slot = &mut least[part.min(PARTS - 1)];
        if slot.is_none_or(|(_, lowest)| *y < lowest) {
            *slot = Some((*x, *y));
        }
    }
    let least: Vec<(f64, f64)> = least.into_iter().flatten().collect();
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in least.iter().copied() {
        while let [.., a, b] = hull.as_slice() {
            let turns_left = (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0) > 0.0;
            if turns_left {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    // The edge over the mean of x is the one whose summed distance is least.
    let middle = points.iter().map(|(x, _)| x).sum::<f64>() / points.len() as f64;
    let edge = hull.windows(2).find(|edge| edge[1].0 >= middle).or(hull.windows(2).next_back())?;
    let slope = (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0);
    let y = edge[0].1 - slope * edge[0].0;
    let above = least.iter().map(|point| point.1 - y - slope * point.0).sum::<f64>() / least.len() as f64;
    Some(Line { slope, above })
}

/// The fit, from pairs of A's stamp and B's stamp less A's, of either direction.
pub fn fit(forward: &[(i64, i64)], backward: &[(i64, i64)]) -> ClockFit {
    let Some(at_ns) = forward.iter().chain(backward).map(|(at_ns, _)| *at_ns).min() else { return ClockFit::default() };
    let points = |pairs: &[(i64, i64)], sign: f64| -> Vec<(f64, f64)> {
        pairs.iter().map(|(at, difference)| (at.saturating_sub(at_ns) as f64, sign * *difference as f64)).collect()
    };
    let below = line_below(&points(forward, 1.0));
    let above = line_below(&points(backward, -1.0)).map(|line| Line { slope: -line.slope, ..line });
    let (drift, drift_error) = match (below, above) {
        (Some(a), Some(b)) => {
            // A direction whose shortest delay changed, or that seldom is without a queue, tells less about the clocks.
            let [of_a, of_b] = [a, b].map(|line| 1.0 / line.above.max(1.0).powi(2));
            ((a.slope * of_a + b.slope * of_b) / (of_a + of_b), Some((a.slope - b.slope).abs() / 2.0))
        }
        (Some(line), None) | (None, Some(line)) => (line.slope, None),
        (None, None) => (0.0, None),
    };
    // Of points that the drift was taken out of, the extremes.
    let extreme = |pairs: &[(i64, i64)], sign: f64| {
        pairs
            .iter()
            .map(|(at, y)| sign * (*y as f64 - drift * at.saturating_sub(at_ns) as f64))
            .reduce(f64::min)
            .map(|y| sign * y)
    };
    let (most, least) = (extreme(forward, 1.0), extreme(backward, -1.0));
    let (offset_ns, offset_error_ns) = match (most, least) {
        (Some(most), Some(least)) => ((most + least) / 2.0, Some(((most - least) / 2.0).abs())),
        // All that can be said: not more than this, taken as no delay.
        (Some(only), None) | (None, Some(only)) => (only, None),
        (None, None) => (0.0, None),
    };
    ClockFit {
        offset_ns,
        offset_error_ns,
        drift_ppb: drift * 1e9,
        drift_error_ppb: drift_error.map(|error| error * 1e9),
        at_ns,
        corrected: true,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_captures::packet::TIMES;

    use super::*;

    /// B is 5 ms ahead and gains 20 µs a second; 10 ms there, 10 ms back, with queues of up to 3 ms.
    #[test]
    fn offset_and_drift_come_out_of_noise() {
        let mut noise = 1_u64;
        let mut pairs = |delay: i64| -> Vec<(i64, i64)> {
            let pair = |n: i64| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let queue = ((noise >> 33) % 1_000) as i64 * 3_000;
                let at_ns = n * 1_000_000;
                (at_ns, 5_000_000 + at_ns / 50_000 + delay + if delay < 0 { -queue } else { queue })
            };
            (0..20_000).map(pair).collect()
        };
        let (forward, backward) = (pairs(10_000_000), pairs(-10_000_000));
        let fit = fit(&forward, &backward);
        assert!((fit.offset_ns - 5e6).abs() < 20e3, "{fit:?}");
        assert!((fit.drift_ppb - 20_000.0).abs() < 1_000.0, "{fit:?}");
        assert!((fit.offset_error_ns.unwrap() - 10e6).abs() < 20e3, "{fit:?}");
    }

    /// Stamps of hostile captures lie as far apart as numbers reach.
    #[test]
    fn any_offset_at_any_time() {
        let (first, last) = TIMES.into_inner();
        let offset_ns = (last - first) as f64;
        let fit = ClockFit { offset_ns, drift_ppb: 1.0, at_ns: last, corrected: true, ..ClockFit::default() };
        assert!(fit.by_a(first) < first && fit.by_a(last) < first / 2);
    }

    #[test]
    fn one_direction_tells_drift_and_no_error() {
        let forward: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_000, 7_000 + n % 7 * 10)).collect();
        let fit = fit(&forward, &[]);
        assert_eq!((fit.offset_ns, fit.offset_error_ns, fit.drift_ppb), (7_000.0, None, 0.0));
        assert_eq!(super::fit(&[], &[]), ClockFit::default());
    }
}
