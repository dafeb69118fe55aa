//! The values of an axis on the command line.

use std::fmt::Display;
use std::str::FromStr;

use longhaul_units::BitRate;

/// Rates of a range.
const OF_RANGE: u32 = 8;

/// The values of an axis, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Values<T>(pub(crate) Vec<T>);

impl<T: FromStr<Err: Display> + PartialEq> FromStr for Values<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut values = Vec::new();
        for part in text.split(',') {
            let value = part.trim().parse::<T>().map_err(|error| error.to_string())?;
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Ok(Self(values))
    }
}

/// Rates: a list, or eight from one to another in equal ratios; 0 is as fast as possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rates(pub(crate) Vec<BitRate>);

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((first, last)) = text.split_once('-') else {
            return text.parse::<Values<BitRate>>().map(|all| Self(all.0));
        };
        let rate = |text: &str| text.trim().parse::<BitRate>().map_err(|error| error.to_string());
        let (first, last) = (rate(first)?, rate(last)?);
        if first.0 == 0 || last <= first {
            return Err(format!("{text}: the first rate is the smaller, and not 0"));
        }
        let ratio = last.0 as f64 / first.0 as f64;
        let at = |step: u32| match step {
            0 => first,
            step if step == OF_RANGE - 1 => last,
            step => BitRate((first.0 as f64 * ratio.powf(f64::from(step) / f64::from(OF_RANGE - 1))) as u64),
        };
        Ok(Self((0..OF_RANGE).map(at).collect()))
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Nanos;

    use super::*;

    #[test]
    fn lists_and_ranges() {
        let rates = |text: &str| text.parse::<Rates>().map(|rates| rates.0);
        assert_eq!(rates("10M,1G,0,10M"), Ok(vec![BitRate(10_000_000), BitRate(1_000_000_000), BitRate(0)]));
        let range = rates("10M-1280M").unwrap();
        assert_eq!((range.len(), range[0].0, range[7].0), (8, 10_000_000, 1_280_000_000));
        assert!(range[1].0.abs_diff(20_000_000) < 10, "{range:?}");
        for wrong in ["", "x", "10M,", "1G-1M", "0-1G", "1M-1M", "1M-"] {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
        let times: Values<Nanos> = "0us, 20us".parse().unwrap();
        assert_eq!(times.0, [Nanos(0), Nanos(20_000)]);
    }
}
