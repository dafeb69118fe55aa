//! The points of a series: each is one test that was run several times, with its means and their intervals.

use std::collections::BTreeMap;

use longhaul_result::Caveat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::html::over_time::runs::Detail;

/// The share of repeated experiments whose interval holds the true mean.
const CONFIDENCE: f64 = 0.95;
/// More degrees of freedom change an interval by less than a thousandth, and the search for the quantile might not end.
const FREEDOM_MOST: f64 = 10_000.0;

/// The columns of what the source has, beside ours; a table leaves them out where it has no number.
pub(crate) const PAPER_COLUMNS: [&str; 2] = ["paper", "here - paper"];
/// A cell without a value.
pub(crate) const NONE: &str = "–";

/// A test of a series, run several times.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point<R> {
    /// How it differs from the others of its series.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub label: String,
    /// The runs that count, by number.
    pub runs: Vec<Repeat<R>>,
    /// The runs that this machine spoiled, in the order in which they were made. Each was repeated, up to the number of tries.
    pub rejected: Vec<Rejected<R>>,
    /// A run was spoiled in each of its tries, so the point has fewer runs than were asked for, or none; or a run has more goodput than its path carries.
    pub doubtful: bool,
    /// What the source has there, in the unit of the mean that the experiment is about (bits a second of TCP's goodput, percent of UDP's packets);
    /// `None` where its text has no number.
    #[serde(default)]
    pub paper_value: Option<f64>,
    /// Each quantity over the runs that count; over the rejected runs where none counts. Empty without a result.
    pub means: BTreeMap<String, Mean>,
}

/// One run of a point.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repeat<R> {
    /// Its number, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub repeat: u32,
    /// The seed of the path's random numbers. All tries of a run have the same.
    pub seed: u64,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// The counters of the emulator of its lab, as `longhaul lab status --json` has them; `None` where there was no lab, where netem emulated the path, or where it ended badly.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub emulator: Option<Value>,
    /// The test.
    #[serde(flatten)]
    pub run: R,
}

/// A run that says something about this machine, not about the path and its hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rejected<R> {
    /// Why it does not count.
    pub why: Caveat,
    /// The run.
    #[serde(flatten)]
    pub run: Repeat<R>,
}

/// The mean of a quantity over runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of its 95 % interval by Student's t distribution; `None` for one run.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub half_width: Option<f64>,
}

/// What went wrong in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problems {
    /// Why there is no result, or only a part of one, with what to do; `None` where there is a whole one.
    pub error: Option<Caveat>,
    /// Doubts about this run.
    pub caveats: Vec<Caveat>,
}

impl Problems {
    /// There is no result, and no caveat.
    pub fn of_error(error: Caveat) -> Self {
        Self { error: Some(error), caveats: Vec::new() }
    }
}

/// What the points of an experiment are about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantity {
    /// Its name among the means of a point.
    pub name: &'static str,
    /// Its title, with the unit that people read.
    pub title: &'static str,
    /// That unit, in the unit of the mean.
    pub unit: f64,
    /// Decimals that are shown.
    pub decimals: usize,
}

/// One run of a test.
pub trait Run {
    /// What its experiments are about.
    const MAIN: Quantity;

    /// Whether there is a result.
    fn has_result(&self) -> bool {
        true
    }

    /// What went wrong.
    fn problems(&self) -> &Problems;

    /// The same, to add to it.
    fn problems_mut(&mut self) -> &mut Problems;

    /// What is averaged over runs: names with units, and values. Empty without a result.
    fn quantities(&self) -> Vec<(&'static str, f64)>;

    /// Its parameters in words, but for the label.
    fn setting(&self) -> Vec<String> {
        Vec::new()
    }

    /// The commands that make the same test, a line each.
    fn commands(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it has what it did over time.
    fn has_over_time(&self) -> bool {
        false
    }

    /// Forgets what it did over time: of each point the first run that counted keeps it, and one that was rejected before.
    fn forget_over_time(&mut self) {}

    /// The figures over time of some runs, each with the label of its point; empty where there is nothing to draw.
    fn over_time(_runs: &[(&str, &Self)], _detail: Detail) -> String
    where
        Self: Sized,
    {
        String::new()
    }

    /// What explains the mean of a point, in a few words; empty for nothing.
    fn circumstances(_point: &Point<Self>) -> String
    where
        Self: Sized,
    {
        String::new()
    }
}

impl Mean {
    /// Of `values`; `None` for none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half = || {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            half_width(count - 1.0, variance / count)
        };
        match values.len() {
            0 => None,
            1 => Some(Self { mean, half_width: None }),
            _ => Some(Self { mean, half_width: half() }),
        }
    }

    /// By how much `values` are more than `others` on the mean, with the interval of Welch's t test. `None` if either has no value.
    pub(crate) fn of_difference(values: &[f64], others: &[f64]) -> Option<Self> {
        let (one, other) = (Self::of(values)?, Self::of(others)?);
        let mean = one.mean - other.mean;
        // The variance of each mean, and its degrees of freedom.
        let spread = |values: &[f64], mean: f64| {
            let free = values.len().checked_sub(1).filter(|free| *free > 0)? as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            Some((squares / free / values.len() as f64, free))
        };
        let half_width =
            spread(values, one.mean).zip(spread(others, other.mean)).and_then(|((a, a_free), (b, b_free))| {
                if a + b == 0.0 {
                    return Some(0.0);
                }
                // No less than the fewer values have, no more than both; by shares, as squares of large numbers have no room.
                let share = a / (a + b);
                let free = 1.0 / (share.powi(2) / a_free + (1.0 - share).powi(2) / b_free);
                half_width(free, a + b)
            });
        Some(Self { mean, half_width })
    }

    /// With `decimals` decimals: `12.3 ± 0.4`.
    pub(crate) fn text(&self, decimals: usize) -> String {
        let half = self.half_width.map_or_else(String::new, |half| format!(" ± {half:.decimals$}"));
        format!("{:.decimals$}{half}", self.mean)
    }
}

/// Half of the interval of a mean of this variance, with so many degrees of freedom.
fn half_width(free: f64, variance: f64) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, free.clamp(1.0, FREEDOM_MOST)).ok()?;
    Some(student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * variance.sqrt())
}

impl<R: Run> Point<R> {
    /// A point without a run.
    pub fn new(label: impl Into<String>) -> Self {
        let label = label.into();
        let (runs, rejected, means) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { label, runs, rejected, doubtful: false, paper_value: None, means }
    }

    /// Adds a run, which counts unless it was `rejected`. The means are without it until [`Point::average`].
    pub fn put(&mut self, run: Repeat<R>, rejected: Option<Caveat>) {
        match rejected {
            Some(why) => self.rejected.push(Rejected { why, run }),
            None => {
                let place = self.runs.partition_point(|other| other.repeat <= run.repeat);
                self.runs.insert(place, run);
            }
        }
    }

    /// Computes the means of all runs that there are.
    pub fn average(&mut self) {
        self.means = self.means_of(|run| run.quantities().into_iter().map(|(name, value)| (name.to_owned(), value)));
    }

    /// The mean of each quantity that `quantities` gives of a run, by name.
    pub(crate) fn means_of<K: Ord, I: IntoIterator<Item = (K, f64)>>(
        &self,
        quantities: impl Fn(&R) -> I,
    ) -> BTreeMap<K, Mean> {
        let mut values: BTreeMap<K, Vec<f64>> = BTreeMap::new();
        for (name, value) in self.shown().flat_map(quantities) {
            values.entry(name).or_default().push(value);
        }
        values.into_iter().filter_map(|(name, values)| Some((name, Mean::of(&values)?))).collect()
    }

    /// The mean of a quantity that each run has.
    pub(crate) fn mean(&self, name: &str) -> Option<Mean> {
        self.means.get(name).copied()
    }

    /// What the source has, and by how much the mean is more than that, as [`PAPER_COLUMNS`] show them.
    pub(crate) fn paper_cells(&self) -> [String; 2] {
        let Quantity { name, unit, decimals, .. } = R::MAIN;
        let none = || NONE.to_owned();
        let Some(paper) = self.paper_value else { return [none(), none()] };
        let more = self.mean(name).map(|Mean { mean, half_width }| {
            let half_width = half_width.map(|half| half / unit);
            Mean { mean: (mean - paper) / unit, half_width }.text(decimals)
        });
        [format!("{:.decimals$}", paper / unit), more.unwrap_or_else(none)]
    }

    /// The runs that means and figures are made of: those that count, or the rejected ones where none does; those with a result.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &R> {
        let counted = self.runs.iter().map(|run| &run.run);
        let rejected = self.rejected.iter().map(|rejected| &rejected.run.run);
        let instead = if self.counts() { 0 } else { usize::MAX };
        counted.chain(rejected.take(instead)).filter(|run| run.has_result())
    }

    /// The run that is drawn over time: the first that counts, or the first rejected one where none does.
    pub(crate) fn drawn_over_time(&self) -> Option<&R> {
        self.shown().find(|run| run.has_over_time())
    }

    /// Whether a run is there that is drawn in place of a new one, which counts or does not.
    pub fn has_over_time(&self, counts: bool) -> bool {
        let counted = self.runs.iter().any(|run| run.run.has_over_time());
        counted || !counts && self.rejected.iter().any(|rejected| rejected.run.run.has_over_time())
    }

    /// Whether a run with a result counts.
    pub(crate) fn counts(&self) -> bool {
        self.runs.iter().any(|run| run.run.has_result())
    }

    /// How many runs it has: `5`, and how many were rejected: `5 (2 rejected)`.
    pub(crate) fn runs_text(&self) -> String {
        let rejected = self.rejected.len();
        let rejected = if rejected == 0 { String::new() } else { format!(" ({rejected} rejected)") };
        format!("{}{rejected}", self.runs.len())
    }

    /// The first error of a run.
    pub fn first_error(&self) -> Option<&Caveat> {
        self.runs.iter().find_map(|run| run.run.problems().error.as_ref())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn repeat<R>(repeat: u32, run: R) -> Repeat<R> {
        Repeat { repeat, seed: 0, began_at: String::new(), emulator: None, run }
    }

    pub(crate) static NO_PROBLEMS: Problems = Problems { error: None, caveats: Vec::new() };

    impl<R: Run> Point<R> {
        /// Adds a run that counts.
        pub(crate) fn add(&mut self, run: Repeat<R>) {
            self.put(run, None);
            self.average();
        }

        /// Adds a run that does not count.
        pub(crate) fn reject(&mut self, why: Caveat, run: Repeat<R>) {
            self.put(run, Some(why));
            self.average();
        }
    }

    /// A run that has a size.
    #[derive(Clone)]
    pub(crate) struct Small(pub(crate) f64);

    impl Run for Small {
        const MAIN: Quantity = Quantity { name: "size", title: "size", unit: 1.0, decimals: 1 };

        fn quantities(&self) -> Vec<(&'static str, f64)> {
            vec![("size", self.0)]
        }

        fn problems(&self) -> &Problems {
            &NO_PROBLEMS
        }

        fn problems_mut(&mut self) -> &mut Problems {
            unreachable!("only an experiment that runs adds some")
        }
    }

    /// By hand: 1, 2, 3, 4 have a variance of 5/3, and t of 3 degrees of freedom is 3.1824.
    #[test]
    fn a_mean_has_its_interval() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((mean.half_width.unwrap() - 3.1824 * (5.0_f64 / 12.0).sqrt()).abs() < 1e-3, "{mean:?}");
        assert_eq!(mean.mean, 2.5);
        assert_eq!(Mean::of(&[7.0]), Some(Mean { mean: 7.0, half_width: None }));
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(mean.text(1), "2.5 ± 2.1");
        // By hand: variances of the means 5/12 and 5/12, six degrees of freedom, t of 2.4469.
        let difference = Mean::of_difference(&[1.0, 2.0, 3.0, 4.0], &[11.0, 12.0, 13.0, 14.0]).unwrap();
        assert!((difference.half_width.unwrap() - 2.4469 * (10.0_f64 / 12.0).sqrt()).abs() < 1e-3, "{difference:?}");
        assert_eq!(difference.mean, -10.0);
        // Squares of these have no room in a number.
        let large = Mean::of_difference(&[1e90, 2e90, 3e90], &[4e90, 5e90, 6e90]).unwrap();
        assert!((large.half_width.unwrap() - 2.7764e90 * (2.0_f64 / 3.0).sqrt()).abs() < 1e87, "{large:?}");
        assert!(half_width(1e300, 1.0).unwrap() - 1.96 < 1e-3);
        assert_eq!(half_width(f64::NAN, 1.0), None);
    }

    /// Of 2,000 points with as many normal runs as `--quick` makes, and as many as are usual, the 95 % intervals hold the true mean of 93 to 97 %.
    #[test]
    fn intervals_hold_the_true_mean_as_often_as_they_say() {
        let mut state = 7_u64;
        let mut uniform = || {
            // Knuth's multiplier: good enough in its upper bits.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // Box and Muller: of mean 10 and standard deviation 2.
        let mut normal = || {
            let (radius, turn) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), uniform());
            10.0 + 2.0 * radius * (std::f64::consts::TAU * turn).cos()
        };
        for runs in [3, 5] {
            let mut holds = || {
                let values: Vec<f64> = (0..runs).map(|_| normal()).collect();
                let mean = Mean::of(&values).unwrap();
                (mean.mean - 10.0).abs() <= mean.half_width.unwrap()
            };
            let held = (0..2000).filter(|_| holds()).count();
            assert!((1860..=1940).contains(&held), "{held} of 2000 with {runs} runs each");
        }
    }

    #[test]
    fn rejected_runs_count_for_nothing_unless_there_is_no_other() {
        let mut point = Point::new("x");
        point.reject(Caveat::of_error("emulator_late", "late", ""), repeat(1, Small(90.0)));
        assert_eq!(point.mean("size").unwrap().mean, 90.0);
        point.add(repeat(2, Small(20.0)));
        point.add(repeat(1, Small(10.0)));
        assert_eq!(point.mean("size").unwrap().mean, 15.0);
        let numbers: Vec<u32> = point.runs.iter().map(|run| run.repeat).collect();
        assert_eq!((numbers, point.runs_text().as_str()), (vec![1, 2], "2 (1 rejected)"));
    }
}
