//! A distribution as a table of quantiles, and netem's `.dist` files.
//!
//! A `.dist` file is what `tc qdisc … netem delay … distribution NAME` loads: signed integers between white space, in
//! units of 1/8192 standard deviation (`NETEM_DIST_SCALE`), `#` beginning a comment. Format and method: iproute2
//! `tc/q_netem.c` (`get_distribution`) and `netem/maketable.c`.

use std::fmt::Write as _;

/// What 1 standard deviation is in a `.dist` file: `NETEM_DIST_SCALE` of `linux/pkt_sched.h`.
pub const DIST_SCALE: f64 = 8192.0;

/// The most quantiles a table holds: 64 times what the kernel takes (`NETEM_DIST_MAX`, 16384), 8 MiB.
const ENTRIES_MAX: usize = 1 << 20;

/// Entries that [`Table::from_samples`] makes at most, as `maketable` does.
const SAMPLED_ENTRIES: usize = 4096;

/// An inverse distribution function as evenly spaced quantiles.
///
/// Entry i of n stands for the share (i + ½)/n of all values; between entries the quantile is interpolated, before
/// the first and behind the last it stays. So the mean is that of the entries, which is what netem draws from.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    quantiles: Vec<f64>,
}

/// Why numbers are no table.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// A word of a `.dist` file is no 16-bit integer.
    #[error("line {line}: `{text}` is not an integer from -32768 to 32767 (standard deviations × 8192)")]
    Number {
        /// The line, counted from 1.
        line: usize,
        /// The word, shortened.
        text: String,
    },
    /// A value is NaN or infinite.
    #[error("a value is not a finite number")]
    NotFinite,
    /// There is nothing in it.
    #[error("no values, at least {least} needed")]
    TooFew {
        /// How many are needed.
        least: usize,
    },
    /// There is too much in it.
    #[error("more than {ENTRIES_MAX} values")]
    TooMany,
    /// All samples are equal, so there is nothing to measure them by.
    #[error("all samples are equal: their standard deviation is 0")]
    NoSpread,
}

impl Table {
    /// A table of these quantiles, in standard deviations from the mean, in any order.
    ///
    /// # Errors
    /// None or more than 2²⁰ values, or one that is not finite.
    pub fn new(mut quantiles: Vec<f64>) -> Result<Self, TableError> {
        if quantiles.is_empty() {
            return Err(TableError::TooFew { least: 1 });
        }
        if quantiles.len() > ENTRIES_MAX {
            return Err(TableError::TooMany);
        }
        if !quantiles.iter().all(|value| value.is_finite()) {
            return Err(TableError::NotFinite);
        }
        quantiles.sort_by(f64::total_cmp);
        Ok(Self { quantiles })
    }

    /// Reads a `.dist` file.
    ///
    /// # Errors
    /// A word that is no 16-bit integer, none, or more than 2²⁰ of them.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut quantiles = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let numbers = line.split('#').next().unwrap_or_default();
            for word in numbers.split_ascii_whitespace() {
                let value: i16 = word.parse().map_err(|_| TableError::Number {
                    line: index + 1,
                    text: word.escape_debug().take(24).collect(),
                })?;
                if quantiles.len() == ENTRIES_MAX {
                    return Err(TableError::TooMany);
                }
                quantiles.push(f64::from(value) / DIST_SCALE);
            }
        }
        Self::new(quantiles)
    }

    /// The distribution of measured values: standardized by their mean and standard deviation (n − 1), then inverted.
    ///
    /// At most 4096 entries; they are Hyndman and Fan's quantiles of type 5, which fit
    /// [`Table::quantile`]. Differences from `maketable`: no rounding to 1/50,000, and what it makes up beyond the
    /// largest sample (it runs on to 32767) is not there.
    ///
    /// # Errors
    /// Fewer than two samples, one that is not finite, or no spread.
    pub fn from_samples(samples: &[f64]) -> Result<Self, TableError> {
        if samples.len() < 2 {
            return Err(TableError::TooFew { least: 2 });
        }
        if !samples.iter().all(|value| value.is_finite()) {
            return Err(TableError::NotFinite);
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = (squares / (count - 1.0)).sqrt();
        if !(stddev.is_finite() && stddev > 0.0) {
            return Err(TableError::NoSpread);
        }
        let mut standardized: Vec<f64> = samples.iter().map(|value| (value - mean) / stddev).collect();
        standardized.sort_by(f64::total_cmp);
        let all = Self { quantiles: standardized };
        let entries = samples.len().min(SAMPLED_ENTRIES);
        Self::new(all.resampled(entries).collect())
    }

    /// Writes a `.dist` file of `entries` values (at least 1; netem's own have 4096, the kernel takes up to 16384),
    /// in the layout of iproute2's own files. What lies beyond ±4 standard deviations is cut there, as the format has
    /// 16 bits.
    pub fn to_dist(&self, entries: usize) -> String {
        let mut text = String::from("# This is the distribution table for the experimental distribution.\n");
        for (index, value) in self.resampled(entries.clamp(1, ENTRIES_MAX)).enumerate() {
            // The cast saturates at the bounds of the format.
            let _ = write!(text, " {}", (value * DIST_SCALE).round() as i16);
            if index % 8 == 7 {
                text.push('\n');
            }
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// The quantiles, ascending.
    pub fn quantiles(&self) -> &[f64] {
        &self.quantiles
    }

    /// The value below which a share `u` (0…1) of all values lies.
    pub fn quantile(&self, u: f64) -> f64 {
        let last = self.quantiles.len() - 1;
        let place = (u * self.quantiles.len() as f64 - 0.5).clamp(0.0, last as f64);
        let below = place as usize;
        let (low, high) = (self.quantiles[below], self.quantiles[(below + 1).min(last)]);
        low + (high - low) * (place - below as f64)
    }

    /// The mean of what [`Table::quantile`] gives for uniform shares; 0 for a standardized table.
    pub fn mean(&self) -> f64 {
        self.quantiles.iter().sum::<f64>() / self.quantiles.len() as f64
    }

    /// The standard deviation of what [`Table::quantile`] gives for uniform shares; 1 for a standardized table.
    pub fn stddev(&self) -> f64 {
        let mean = self.mean();
        let square = |value: f64| (value - mean).powi(2);
        // ∫ of the square over a straight piece from a to b is (a² + ab + b²)/3 of its width.
        let between: f64 = (self.quantiles.windows(2))
            .map(|pair| (square(pair[0]) + (pair[0] - mean) * (pair[1] - mean) + square(pair[1])) / 3.0)
            .sum();
        let ends = square(self.quantiles[0]) / 2.0 + square(self.quantiles[self.quantiles.len() - 1]) / 2.0;
        ((between + ends) / self.quantiles.len() as f64).sqrt()
    }

    fn resampled(&self, entries: usize) -> impl Iterator<Item = f64> {
        (0..entries).map(move |index| self.quantile((index as f64 + 0.5) / entries as f64))
    }
}
