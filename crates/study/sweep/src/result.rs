//! The result of a sweep. Other programs may rely on the names (`docs/reference/sweep-results.md`).

use serde::{Deserialize, Serialize};

use crate::knee::{Knee, knees};
use crate::measured::PointResult;

/// All combinations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepResult {
    /// Each combination, the pace changing first, then the size, then the settings.
    pub points: Vec<PointResult>,
    /// Where losses begin, for each size and setting.
    pub knees: Vec<Knee>,
}

impl SweepResult {
    /// Of `points`, with their knees.
    pub fn new(points: Vec<PointResult>) -> Self {
        let knees = knees(&points);
        Self { points, knees }
    }
}
