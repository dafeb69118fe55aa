//! A distribution as a table of quantiles, and netem's `.dist` files.
//!
//! A `.dist` file is what `tc qdisc … netem delay … distribution NAME` loads: signed integers between white space, in
//! units of 1/8192 standard deviation (`NETEM_DIST_SCALE`), `#` beginning a comment. Format and method: iproute2
//! `tc/q_netem.c` (`get_distribution`).

/// What 1 standard deviation is in a `.dist` file: `NETEM_DIST_SCALE` of `linux/pkt_sched.h`.
pub const DIST_SCALE: f64 = 8192.0;

/// The most quantiles of a table, and of all tables of a path together: 16 times what the kernel takes (`NETEM_DIST_MAX`, 16384), 2 MiB. Written
/// as text they are some 5 MB.
pub(crate) const ENTRIES_MAX: usize = 1 << 18;

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
}

impl Table {
    /// A table of these quantiles, in standard deviations from the mean, in any order.
    ///
    /// # Errors
    /// None or more than 2¹⁸ values, or one that is not finite.
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
    /// A word that is no 16-bit integer, none, or more than 2¹⁸ of them.
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
}
