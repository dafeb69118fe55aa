//! Runs of an experiment side by side over time: how much a result keeps of a run, and how much of it a page draws.
//!
//! A page is drawn in less and less detail until its figures are short enough, however many points an experiment has, and whatever a result that
//! others made says.

use crate::html::lines::Line;

/// Windows of time, and points of a curve, that a result keeps of a run at most.
pub(crate) const KEPT: usize = 200;
/// Bytes of all figures over time of a page at most: drawings and numbers, which have about half of them each.
pub(crate) const MOST_BYTES: usize = 1_000_000;
/// Runs in a figure: each has a colour.
pub(crate) const AT_ONCE: usize = super::sampled::FLOWS;

/// How much of runs is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// Windows, and points of a line, at most.
    pub most: usize,
    /// Whether each run has figures of its own: parts of a sum, rates of single packets.
    pub has_own: bool,
    /// Of each series the first and the last point alone.
    pub ends_alone: bool,
}

impl Detail {
    /// From the finest to the coarsest.
    pub(crate) const ALL: [Self; 6] = [
        Self { most: KEPT, has_own: true, ends_alone: false },
        Self { most: 100, has_own: true, ends_alone: false },
        Self { most: 50, has_own: true, ends_alone: false },
        Self { most: 50, has_own: false, ends_alone: false },
        Self { most: 25, has_own: false, ends_alone: false },
        Self { most: 25, has_own: false, ends_alone: true },
    ];
}

/// To a tenth of a percent.
pub(super) fn percent(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Windows of equal length, several of those that a result keeps together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) step_s: f64,
    end_s: f64,
    together: usize,
}

impl Windows {
    /// At most `most` of windows of `window_ns`, the last of which ends at `end_ns`. `counts` are the lengths of a run's lists: these differ only
    /// in a result that others made.
    pub(super) fn of(window_ns: u64, end_ns: u64, counts: impl IntoIterator<Item = usize>, most: usize) -> Self {
        let count = counts.into_iter().max().unwrap_or(0);
        let together = count.div_ceil(most.max(1)).max(1);
        let step_s = (window_ns as f64 / 1e9).max(1e-9) * together as f64;
        Self { step_s, end_s: end_ns as f64 / 1e9, together }
    }

    pub(super) fn sums(&self, counts: &[u64]) -> Vec<f64> {
        counts.chunks(self.together).map(|some| some.iter().map(|count| *count as f64).sum()).collect()
    }

    pub(super) fn means(&self, values: &[f64]) -> Vec<f64> {
        values.chunks(self.together).map(|some| some.iter().sum::<f64>() / some.len() as f64).collect()
    }

    /// `factor` times what each window has, per second. A last window that is cut short says nothing of a rate.
    pub(super) fn rates(&self, counts: &[u64], factor: f64) -> Vec<f64> {
        let mut sums = self.sums(counts);
        let length = |window: usize| (self.end_s - window as f64 * self.step_s).clamp(self.step_s * 0.01, self.step_s);
        if sums.len() > 1 && length(sums.len() - 1) < self.step_s * 0.5 {
            sums.pop();
        }
        sums.iter().enumerate().map(|(window, sum)| sum * factor / length(window)).collect()
    }

    /// A line of values that hold for a window each.
    pub(super) fn line<'n>(&self, name: &'n str, colour: &'static str, values: &[f64]) -> Line<'n> {
        let at = |window: usize| window as f64 * self.step_s;
        let end = values.last().map(|last| (self.end_s.min(at(values.len())), *last));
        let points = values.iter().enumerate().map(|(window, value)| (at(window), *value)).chain(end);
        Line { name, colour, points: points.map(Some).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: windows of 10 ms, two together; the last of 5 has one of 3 ms.
    #[test]
    fn windows_together_have_the_sum_and_the_rate_of_their_time() {
        let windows = Windows::of(10_000_000, 43_000_000, [0, 5, 4], 3);
        assert_eq!(windows.sums(&[1, 2, 3, 4, 5]), [3.0, 7.0, 5.0]);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-6;
        let rates = windows.rates(&[1, 2, 3, 4, 5], 8.0);
        assert!(rates.len() == 2 && near(rates[0], 3.0 * 8.0 / 0.02) && near(rates[1], 7.0 * 8.0 / 0.02), "{rates:?}");
        let line = windows.line("x", "--blue", &rates);
        assert!(line.points.len() == 3 && near(line.points[2].unwrap().0, 0.04), "{line:?}");
        assert_eq!(windows.means(&[10.0, 30.0, 50.0, 50.0, 7.0]), [20.0, 50.0, 7.0]);
    }

    /// Of a result that others made.
    #[test]
    fn windows_of_no_length_are_no_trouble() {
        for (window_ns, end_ns) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            let windows = Windows::of(window_ns, end_ns, [3], 0);
            assert!(windows.rates(&[u64::MAX; 3], 8.0).iter().all(|rate| rate.is_finite()), "{window_ns} {end_ns}");
        }
        assert!(Windows::of(1, 1, [], 10).line("x", "--blue", &[]).points.is_empty());
    }
}
