//! The sizes of probes on the command line.

use std::str::FromStr;

use crate::args::quantity::length;

/// Sizes of a range.
const OF_RANGE: u32 = 32;

/// Payloads in rising order, bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u32>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| length(text.trim()).map_err(|_| format!("{text:?}: give bytes as 64,512,1472 or 64-1472"));
        let mut sizes: Vec<u32> = match text.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                let span = last.checked_sub(first).filter(|span| *span > 0);
                let span = span.ok_or_else(|| format!("{text}: the first size is the smaller"))?;
                let steps = span.min(OF_RANGE - 1);
                (0..=steps).map(|step| first + (u64::from(span) * u64::from(step) / u64::from(steps)) as u32).collect()
            }
            None => text.split(',').map(number).collect::<Result<_, _>>()?,
        };
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("1472, 64,512,64"), Ok(vec![64, 512, 1472]));
        assert_eq!(sizes("64-67"), Ok(vec![64, 65, 66, 67]));
        let range = sizes("64-1472").unwrap();
        assert_eq!((range.len(), range[0], range[1], range[31]), (32, 64, 109, 1472));
        assert_eq!(sizes("0-4294967295").unwrap().len(), 32);
        assert_eq!(sizes("64"), Ok(vec![64]));
        for wrong in ["1472-64", "64-64", "64-", "-", "", "64,x", "4294967296,1", "64,,128"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
