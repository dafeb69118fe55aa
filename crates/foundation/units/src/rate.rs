//! Rates in bits a second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Nanos;
use crate::quantity::{self, QuantityError};

/// What an Ethernet frame takes on the wire beyond its own bytes: preamble and start 8, FCS 4, shortest gap 12
/// (IEEE 802.3 §3.1.1, §4.4.2).
pub const LAYER1_OVERHEAD_BYTES: u32 = 24;

/// Bits a second, decimal (`1Gbit` = 10⁹ bit/s). Which bytes count (payload, L2, L1) is said where it is used.
///
/// As text: `10Gbit`, `9.28G`, `400Mbit`, `400Mbps`, `64k`; a bare number is bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(pub u64);

impl BitRate {
    /// `gigabits` × 10⁹ bit/s.
    pub const fn from_gbit(gigabits: u64) -> Self {
        Self(gigabits * 1_000_000_000)
    }

    /// As people read it: two decimals in the unit that fits, such as `18.42 Mbit/s`.
    pub fn rounded(self) -> String {
        let (divisor, unit) = match self.0 {
            0..1_000 => return format!("{} bit/s", self.0),
            1_000..1_000_000 => (1e3, "kbit/s"),
            1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
            _ => (1e9, "Gbit/s"),
        };
        format!("{:.2} {unit}", self.0 as f64 / divisor)
    }

    /// Bytes that pass in `span` at this rate, rounded down; `u64::MAX` where they are more.
    pub fn bytes_in(self, span: Nanos) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(span.0) / 8_000_000_000).unwrap_or(u64::MAX)
    }

    /// The rate at which `bytes` pass in `span`; zero for an empty span, `u64::MAX` bit/s where it is higher.
    pub fn of(bytes: u64, span: Nanos) -> Self {
        if span.0 == 0 {
            return Self(0);
        }
        Self(u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(span.0)).unwrap_or(u64::MAX))
    }
}

impl FromStr for BitRate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity::parse(text, "bit, kbit, Mbit, Gbit, Tbit (or k, M, G, T)", "9.2e18 bit/s", |unit| {
            // `bps` as well as `b/s`. A byte is `B`, and refused.
            let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
            let unit = ["bits", "bit", "b"].iter().find_map(|bits| unit.strip_suffix(bits)).unwrap_or(unit);
            Some(match unit {
                "" => 1.0,
                "k" | "K" => 1e3,
                "M" | "m" => 1e6,
                "G" | "g" => 1e9,
                "T" | "t" => 1e12,
                _ => return None,
            })
        })
        .map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0;
        let text = match bps {
            0..1_000 => format!("{bps}bit"),
            1_000..1_000_000 => format!("{}kbit", quantity::trimmed(bps as f64 / 1e3, 3)),
            1_000_000..1_000_000_000 => format!("{}Mbit", quantity::trimmed(bps as f64 / 1e6, 6)),
            _ => format!("{}Gbit", quantity::trimmed(bps as f64 / 1e9, 9)),
        };
        f.pad(&text)
    }
}

impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal() {
        for (text, bps) in [
            ("10Gbit", 10_000_000_000),
            ("9.28Gbit", 9_280_000_000),
            ("400M", 400_000_000),
            ("2.5gbit/s", 2_500_000_000),
            ("64k", 64_000),
            ("1000000", 1_000_000),
            ("2.5Gbps", 2_500_000_000),
            ("9 Mbits/s", 9_000_000),
            ("100bps", 100),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bps)), "{text}");
        }
        for wrong in ["10Gbyte", "10GBps", "10GB/s", "10Gps/s"] {
            assert!(wrong.parse::<BitRate>().is_err(), "{wrong}");
        }
        assert_eq!(BitRate(9_280_000_000).to_string(), "9.28Gbit");
    }

    /// DataTAG: 1.1 TB in 30 minutes is a mean of 4.9 Gb/s; 10 Gb/s over 500 ms is 625 MB.
    #[test]
    fn people_read_two_decimals() {
        let said = [0, 999, 1_000, 18_419_731, 12_345_678_901].map(|bps| BitRate(bps).rounded());
        assert_eq!(said, ["0 bit/s", "999 bit/s", "1.00 kbit/s", "18.42 Mbit/s", "12.35 Gbit/s"]);
    }

    #[test]
    fn bytes_and_rate_are_inverse() {
        assert_eq!(BitRate::from_gbit(10).bytes_in(Nanos::from_millis(500)), 625_000_000);
        assert_eq!(BitRate::of(625_000_000, Nanos::from_millis(500)), BitRate::from_gbit(10));
        assert_eq!(BitRate::of(1, Nanos::ZERO), BitRate(0));
    }
}
