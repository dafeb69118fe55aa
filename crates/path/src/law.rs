//! Distributions of jitter, standardized to mean 0 and standard deviation 1.

use std::sync::Arc;

/// A distribution of jitter with mean 0 and standard deviation 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// Gaussian.
    Normal,
    /// Uniform.
    Uniform,
    /// Pareto with shape 3, as netem's table of that name.
    Pareto,
    /// ¼ normal + ¾ Pareto, as netem's table of that name.
    ParetoNormal,
    /// A table of quantiles.
    Table(Arc<Table>),
}

/// An inverse distribution function as evenly spaced quantiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    quantiles: Vec<f64>,
}

impl Law {
    /// The value below which a share `u` (0 < u < 1) of all values lies, in standard deviations from the mean.
    pub fn quantile(&self, u: f64) -> f64 {
        let _ = u;
        0.0
    }
}
