//! Distributions of jitter, standardized to mean 0 and standard deviation 1.
//!
//! Each is given by its quantile function, so that a uniform random number becomes a sample ("inverse transform", as
//! netem does it with its tables). Source of the shapes: iproute2 `netem/{normal,pareto,paretonormal}.c`, after NIST Net.
//!
//! Differences from netem: its tables hold 4096 values that end at ±4 and are drawn without interpolation; these
//! functions are continuous and keep their tails. Its Pareto table is scaled by 4/3, the inverse of the *variance* of
//! a Pareto variable of shape 3, and then cut at 4, so what it gives has a standard deviation of 0.82 times what was
//! asked (0.83 for paretonormal); here it is what was asked. The scale differs, the shape does not.

mod table;

use std::fmt;
use std::sync::Arc;

use statrs::function::erf::erfc_inv;

pub(crate) use table::ENTRIES_MAX;
pub use table::{DIST_SCALE, Table, TableError};

/// A distribution of jitter with mean 0 and standard deviation 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// Gaussian.
    Normal,
    /// Uniform.
    Uniform,
    /// Pareto with shape 3, as netem's table of that name.
    Pareto,
    /// ¼ normal + ¾ Pareto, as netem's table of that name: its *quantiles* are the sum of those two quantiles, it is
    /// not the law of a sum of independent variables.
    ParetoNormal,
    /// A table of quantiles, taken as it is: netem standardizes none either, so its mean and standard deviation
    /// need not be 0 and 1.
    Table(Arc<Table>),
}

/// Mean of a Pareto variable of shape 3 and scale 1: a/(a−1).
const PARETO_MEAN: f64 = 1.5;
/// Its variance: a/((a−1)²(a−2)).
const PARETO_VARIANCE: f64 = 0.75;

/// Standard deviation of `¼ z(U) + p(U) − 3/2` for uniform U, z the normal and p the Pareto quantile (netem's
/// ¾ · 4/3 = 1 stands before p): √(1/16 + 3/4 + ½·E\[z p\]), the expectation 0.587470748478… by 40-digit quadrature.
const PARETO_NORMAL_STDDEV: f64 = 1.051_777_245_541_644;

/// The most standard deviations below the mean that count in [`Law::reach_below`].
const REACH_MAX: f64 = 3.0;

impl Law {
    /// The names that [`Law::name`] gives and path files use.
    pub const NAMES: [&str; 5] = ["normal", "uniform", "pareto", "paretonormal", "table"];

    /// The law of that name; `None` for `table`, which has data of its own, and for what is no name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "normal" => Self::Normal,
            "uniform" => Self::Uniform,
            "pareto" => Self::Pareto,
            "paretonormal" => Self::ParetoNormal,
            _ => return None,
        })
    }

    /// Its name in path files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Uniform => "uniform",
            Self::Pareto => "pareto",
            Self::ParetoNormal => "paretonormal",
            Self::Table(_) => "table",
        }
    }

    /// The value below which a share `u` (0 < u < 1) of all values lies, in standard deviations from the mean.
    ///
    /// Accurate to some 1e-14 relative for the four functions. `u` outside of its range counts as the nearest number
    /// inside; NaN gives NaN.
    pub fn quantile(&self, u: f64) -> f64 {
        let u = u.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON / 2.0);
        match self {
            Self::Normal => normal_quantile(u),
            Self::Uniform => 3f64.sqrt() * (2.0 * u - 1.0),
            Self::Pareto => (pareto_quantile(u) - PARETO_MEAN) / PARETO_VARIANCE.sqrt(),
            Self::ParetoNormal => (0.25 * normal_quantile(u) + pareto_quantile(u) - PARETO_MEAN) / PARETO_NORMAL_STDDEV,
            Self::Table(table) => table.quantile(u),
        }
    }

    /// How many standard deviations below the mean the law reaches, at most 3: a delay must leave that much room, or
    /// jitter would ask packets to leave before they came.
    ///
    /// Beyond 3 the delay is cut at zero instead; for the normal law that moves the mean by at most 0.0004 standard
    /// deviations (φ(3) − 3 Φ(−3)).
    pub fn reach_below(&self) -> f64 {
        (-self.quantile(1e-9)).clamp(0.0, REACH_MAX)
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Φ⁻¹(u). Each half is computed from its own tail, which keeps its digits.
fn normal_quantile(u: f64) -> f64 {
    let tail = |share: f64| std::f64::consts::SQRT_2 * erfc_inv(2.0 * share);
    if u <= 0.5 { -tail(u) } else { tail(1.0 - u) }
}

/// (1−u)^(−1/3): the quantile of a Pareto variable of shape 3 and scale 1.
fn pareto_quantile(u: f64) -> f64 {
    1.0 / (1.0 - u).cbrt()
}

#[cfg(test)]
pub(crate) mod tests;
