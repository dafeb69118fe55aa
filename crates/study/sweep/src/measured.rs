//! The tests of a combination. Other programs may rely on the names (`docs/reference/sweep-results.md`).

use std::collections::BTreeMap;

use longhaul_result::Caveat;
use serde::{Deserialize, Serialize};

use crate::axes::Point;
use crate::figures::{Estimate, Figures, Metric};

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Test {
    /// The place of the test in the order in which all were run, from 0.
    pub number: u64,
    /// Its result; `null` if there is none.
    pub figures: Option<Figures>,
    /// Why there are no figures, with what to do; `null` where there are.
    pub error: Option<Caveat>,
    /// Codes of the caveats of this test.
    pub caveats: Vec<String>,
}

/// A combination and its tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointResult {
    /// The combination.
    pub point: Point,
    /// Its tests, in the order in which they ran.
    pub tests: Vec<Test>,
    /// The mean of each figure that is known; empty before the first test.
    pub means: BTreeMap<Metric, Estimate>,
}

impl PointResult {
    /// Without a test.
    pub fn new(point: Point) -> Self {
        Self { point, tests: Vec::new(), means: BTreeMap::new() }
    }

    /// Adds a test.
    pub fn add(&mut self, test: Test) {
        self.tests.push(test);
        let figures = || self.tests.iter().filter_map(|test| test.figures.as_ref());
        let mean = |metric: Metric| {
            let values: Vec<f64> = figures().filter_map(|figures| figures.get(metric)).collect();
            Some((metric, Estimate::of(&values)?))
        };
        self.means = Metric::ALL.into_iter().filter_map(mean).collect();
    }

    /// The mean of a figure; `None` where it is not known.
    pub fn mean(&self, metric: Metric) -> Option<f64> {
        self.means.get(&metric).map(|estimate| estimate.mean)
    }

    /// Its tests' figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.tests.iter().filter_map(|test| test.figures.as_ref())
    }
}
