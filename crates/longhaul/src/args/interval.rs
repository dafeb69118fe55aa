//! `-i`: the time between two reports, as in iperf3.

use longhaul_units::{Nanos, QuantityError};

/// The default interval.
pub(crate) const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);

/// Parses `-i TIME`. For `-i eth0` the error says where the interface goes.
///
/// # Errors
/// It is no time.
pub(crate) fn interval(text: &str) -> Result<Nanos, String> {
    Nanos::parse_seconds(text).map_err(|error: QuantityError| {
        let name_like = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if name_like { format!("-i is a time; name the interface without -i: {text}") } else { error.to_string() }
    })
}

/// What `-i` of `longhaul capture` names: a time, or an interface as with tcpdump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IntervalOrInterface {
    Interval(Nanos),
    Interface(String),
}

/// Parses `-i TIME` and `-i INTERFACE`.
///
/// # Errors
/// A number that is no time: no interface begins like that by habit.
pub(crate) fn interval_or_interface(text: &str) -> Result<IntervalOrInterface, String> {
    match Nanos::parse_seconds(text) {
        Ok(interval) => Ok(IntervalOrInterface::Interval(interval)),
        Err(_) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok(IntervalOrInterface::Interface(text.to_owned()))
        }
        Err(error) => Err(error.to_string()),
    }
}
