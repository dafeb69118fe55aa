//! Quantities on the command line that are not read as everywhere else.

use longhaul_units::{Bytes, Nanos, QuantityError, parse_count};

/// A time of `-t` or `-i`: a number alone is seconds, as in iperf3 and ping. Elsewhere a time needs its unit.
pub(crate) fn seconds(text: &str) -> Result<Nanos, QuantityError> {
    Nanos::parse_seconds(text)
}

/// A number of packets or probes: `1000`, `1k`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("give 1 or more".into()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

/// A length of a packet or a part of it in bytes: `9000`, `9K`.
pub(crate) fn length(text: &str) -> Result<u32, String> {
    let bytes: Bytes = text.parse().map_err(|error: QuantityError| error.to_string())?;
    u32::try_from(bytes.0).map_err(|_| format!("{bytes} is too long for a packet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_of_other_tools_type() {
        assert_eq!((length("9K"), length("1400"), length("1400B")), (Ok(9216), Ok(1400), Ok(1400)));
        assert!(length("9T").is_err() && length("long").is_err());
        assert_eq!((count("1k"), count("250"), count("2M")), (Ok(1_000), Ok(250), Ok(2_000_000)));
        assert!(count("1ms").is_err() && count("0").is_err());
        assert_eq!(seconds("0.5"), Ok(Nanos::from_millis(500)));
    }
}
