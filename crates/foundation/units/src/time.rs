//! Time in nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::{self, QuantityError};

/// A span of time, or an instant counted from an origin that its owner names, in nanoseconds.
///
/// 64 bits reach 584 years. As text: `184.000071ms`, `50us`, `8.45us`, `2s`, `2sec`, `1m`, `1h`. A number other than 0 needs its unit, as 5
/// may be ms or s; options in seconds take it as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nanos(
    #[cfg_attr(feature = "schema", schemars(with = "String", regex(pattern = r"^[0-9.]+(ns|us|ms|s)$")))] pub u64,
);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// Later than any other instant.
    pub const MAX: Self = Self(u64::MAX);

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The nearest whole number of nanoseconds to `secs`; negative and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    /// This time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - earlier`, zero where `earlier` is later.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self + span`, at most [`Nanos::MAX`].
    pub const fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let number = text.trim();
        match Self::parse_seconds(number)? {
            Self(1..) if number.ends_with(|last: char| last.is_ascii_digit() || last == '.') => {
                Err(QuantityError::NoUnit { text: number.into(), likely: "ms", other: "s" })
            }
            time => Ok(time),
        }
    }
}

impl Nanos {
    /// As from any text, and a bare number is seconds, as `-t` and `-i` of iperf3 and ping have it.
    ///
    /// # Errors
    /// The text is no time.
    pub fn parse_seconds(text: &str) -> Result<Self, QuantityError> {
        quantity::parse(text, "ns, us, ms, s, m, h", "292 years", |unit| {
            Some(match unit {
                "ns" | "nsec" => 1.0,
                "us" | "µs" | "μs" | "usec" => 1e3,
                "ms" | "msec" => 1e6,
                "s" | "" | "sec" | "secs" | "second" | "seconds" => 1e9,
                "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
                "h" | "hour" | "hours" => 3600e9,
                _ => return None,
            })
        })
        .map(Self)
    }
}

/// A time since 1970 as RFC 3339 has it, in UTC, to the millisecond.
pub fn utc(ns: i64) -> String {
    let (days, of_day) = (ns.div_euclid(86_400_000_000_000), ns.rem_euclid(86_400_000_000_000));
    // Years that begin in March, in eras of 400 years with 146,097 days: then a leap day is the last of its year.
    let from_march_0000 = days + 719_468;
    let (era, day_of_era) = (from_march_0000.div_euclid(146_097), from_march_0000.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let ms = of_day / 1_000_000;
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1_000)
}

impl Nanos {
    /// For people: up to three digits.
    pub fn rounded(self) -> String {
        let ns = self.0;
        let (value, unit) = match ns {
            0..1_000 => return format!("{ns}ns"),
            1_000..1_000_000 => (ns as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
            _ => (ns as f64 / 1e9, "s"),
        };
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.digits$}{unit}")
    }
}

/// Nanoseconds in an hour.
const HOUR_NS: u64 = 3_600_000_000_000;

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        let text = match ns {
            0..1_000 => format!("{ns}ns"),
            1_000..1_000_000 => format!("{}us", quantity::trimmed(ns as f64 / 1e3, 3)),
            1_000_000..1_000_000_000 => format!("{}ms", quantity::trimmed(ns as f64 / 1e6, 6)),
            _ if ns.is_multiple_of(HOUR_NS) => format!("{}h", ns / HOUR_NS),
            _ => format!("{}s", quantity::trimmed(ns as f64 / 1e9, 9)),
        };
        f.pad(&text)
    }
}

impl Serialize for Nanos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_type() {
        for (text, ns) in [
            ("184.000071ms", 184_000_071),
            ("8.45us", 8_450),
            ("8.45 µs", 8_450),
            ("2s", 2_000_000_000),
            ("2sec", 2_000_000_000),
            ("1e-3s", 1_000_000),
            ("20m", 1_200_000_000_000),
            ("0ns", 0),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    /// A delay of 5 s for 5 ms holds gigabytes of packets.
    #[test]
    fn a_number_alone_has_two_readings() {
        assert_eq!(Nanos::parse_seconds("2"), Ok(Nanos(2_000_000_000)));
        for text in ["5", "5.", "1e3", " 0.5 "] {
            let text = text.trim();
            let refused = text.parse::<Nanos>().unwrap_err().to_string();
            assert_eq!(refused, format!("`{text}`: {text}ms or {text}s? write the unit"));
        }
    }

    /// Beside date(1).
    #[test]
    fn utc_as_date_has_it() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951782400123456789, "2000-02-29T00:00:00.123Z"),
            (951868800000000000, "2000-03-01T00:00:00.000Z"),
            (1795515330500000000, "2026-11-24T10:15:30.500Z"),
            (4107542399999999999, "2100-02-28T23:59:59.999Z"),
            (4107542400000000000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(ns), text);
        }
        let ends = [utc(i64::MIN), utc(i64::MAX)];
        assert!(ends[0].starts_with("1677-09-21") && ends[1].starts_with("2262-04-11"), "{ends:?}");
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in ["", "ms", "-1ms", "nan", "inf s", "1 fortnight", "1e300s", "1..2s", "e9"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
        assert_eq!(
            "3 days".parse::<Nanos>().unwrap_err().to_string(),
            "`3 days`: unknown unit `days`, use one of ns, us, ms, s, m, h"
        );
    }

    proptest! {
        #[test]
        fn text_form_reads_back(ns in 0u64..1_000_000_000_000_000) {
            prop_assert_eq!(Nanos(ns).to_string().parse::<Nanos>(), Ok(Nanos(ns)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = text.parse::<Nanos>();
        }
    }
}
