//! `-i`: the time between two reports, as in iperf3. An interface is a positional argument.

use longhaul_units::{Nanos, QuantityError};

/// The default interval.
pub(crate) const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);

/// Parses `-i TIME`. For `-i eth0`, as with tcpdump, the error says where the interface goes.
pub(crate) fn interval(text: &str) -> Result<Nanos, String> {
    Nanos::parse_seconds(text).map_err(|error: QuantityError| {
        let name_like = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if name_like { format!("-i is a time; name the interface without -i: {text}") } else { error.to_string() }
    })
}
