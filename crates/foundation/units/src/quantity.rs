//! Reading "a number and a unit": the common part of every quantity's text form.

/// Why a text is not a quantity. Its message names the text and the units that are allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has no number at its start, or one that is negative, NaN or infinite.
    #[error("`{text}` is not a number of 0 or more with a unit ({units})")]
    Number {
        /// What was given.
        text: String,
        /// The units that would do.
        units: &'static str,
    },
    /// The number is good, what follows it is no unit of this quantity.
    #[error("`{text}`: unknown unit `{unit}`, use one of {units}")]
    Unit {
        /// What was given.
        text: String,
        /// The part after the number.
        unit: String,
        /// The units that would do.
        units: &'static str,
    },
    /// A number without a unit, where two are likely.
    #[error("`{text}`: {text}{likely} or {text}{other}? write the unit")]
    NoUnit {
        /// What was given.
        text: String,
        /// A unit that would do.
        likely: &'static str,
        /// Another one.
        other: &'static str,
    },
    /// The value does not fit.
    #[error("`{text}` is too large, at most {most}")]
    TooLarge {
        /// What was given.
        text: String,
        /// The largest value that is taken.
        most: &'static str,
    },
}

/// A number of things: `1000`, `1k`; prefixes are decimal.
///
/// # Errors
/// The text is no number of 0 or more, or does not fit.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    parse(text, "none, k, M, G", "9.2e18", |unit| {
        Some(match unit {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" | "m" => 1e6,
            "G" | "g" => 1e9,
            _ => return None,
        })
    })
}

/// Splits `text` into its number and its unit and returns `number × factor(unit)`, rounded to the nearest integer.
///
/// `factor` says how many base units one `unit` is, `None` where there is no such unit.
pub(crate) fn parse(
    text: &str,
    units: &'static str,
    most: &'static str,
    factor: impl Fn(&str) -> Option<f64>,
) -> Result<u64, QuantityError> {
    let trimmed = text.trim();
    let end = trimmed
        .char_indices()
        .find(|&(i, c)| !(c.is_ascii_digit() || c == '.' || is_exponent(trimmed, i)))
        .map_or(trimmed.len(), |(i, _)| i);
    let (number, unit) = trimmed.split_at(end);
    let unit = unit.trim();
    let number: f64 = number
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| QuantityError::Number { text: text.into(), units })?;
    let factor = factor(unit).ok_or_else(|| QuantityError::Unit { text: text.into(), unit: unit.into(), units })?;
    let value = (number * factor).round();
    // 2^63 rather than 2^64: what is parsed may still be added to, and no user means more.
    if value >= 9.2e18 {
        return Err(QuantityError::TooLarge { text: text.into(), most });
    }
    Ok(value as u64)
}

/// Whether the `e` (or the sign behind it) at `at` belongs to a number such as `1e9` or `5e-3`.
fn is_exponent(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    match bytes[at] {
        b'e' | b'E' => at > 0 && (digit(at + 1) || (matches!(bytes.get(at + 1), Some(b'-' | b'+')) && digit(at + 2))),
        b'-' | b'+' => at > 1 && matches!(bytes[at - 1], b'e' | b'E') && digit(at - 2) && digit(at + 1),
        _ => false,
    }
}

/// Writes `value` with up to `digits` decimals and no trailing zeros.
pub(crate) fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
