//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::{self, QuantityError};

/// A number of bytes. Suffixes are binary, as in iperf3: `4M` = `4MiB` = 4,194,304 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bytes(
    #[cfg_attr(feature = "schema", schemars(with = "String", regex(pattern = "^[0-9.]+(B|KiB|MiB|GiB|TiB)$")))] pub u64,
);

impl Bytes {
    /// For people, to three digits or four: `9.35GiB`, `1023KiB`, `842B`.
    pub fn rounded(self) -> String {
        let Some((size, unit)) = UNITS.iter().find(|(size, _)| self.0 >= *size) else { return format!("{}B", self.0) };
        let value = self.0 as f64 / *size as f64;
        let decimals = usize::from(value < 99.95) + usize::from(value < 9.995);
        format!("{value:.decimals$}{unit}")
    }
}

const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity::parse(text, "B, KiB, MiB, GiB (or K, M, G)", "8 EiB", |unit| {
            let unit = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
            Some(match unit {
                "" => 1.0,
                "k" | "K" => 1024.0,
                "M" | "m" => 1024.0 * 1024.0,
                "G" | "g" => 1024.0 * 1024.0 * 1024.0,
                "T" | "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
                _ => return None,
            })
        })
        .map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match UNITS.iter().find(|(size, _)| self.0 >= *size) {
            // A size that needs more decimals than one reads stays in bytes, so that the text says what is meant.
            Some((size, unit)) if (u128::from(self.0) * 1000).is_multiple_of(u128::from(*size)) => {
                format!("{}{unit}", quantity::trimmed(self.0 as f64 / *size as f64, 3))
            }
            _ => format!("{}B", self.0),
        };
        f.pad(&text)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("4M", 4 << 20), ("64MiB", 64 << 20), ("1500", 1500), ("1500B", 1500), ("2g", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!(Bytes(64 << 20).to_string(), "64MiB");
        assert_eq!(Bytes(1500).to_string(), "1500B");
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1500, "1.46KiB"),
            ((10 << 10) - 1, "10.0KiB"),
            ((100 << 10) - 1, "100KiB"),
            ((1 << 20) - 1, "1024KiB"),
            (64 << 20, "64.0MiB"),
            (10_038_656_922, "9.35GiB"),
            (u64::MAX, "16777216TiB"),
        ] {
            assert_eq!(Bytes(bytes).rounded(), text);
        }
    }
}
