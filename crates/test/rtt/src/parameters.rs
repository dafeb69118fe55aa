//! What is asked of a measurement with longhaul's server, and what each end reports.

use longhaul_terms::{Amount, ParameterError, check_range};
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::exchange::LEAST_BYTES;

/// Shortest payload: the answer has the responder's time stamps, and is as long as the question.
pub const MIN_PAYLOAD_BYTES: u32 = LEAST_BYTES as u32;
/// Longest payload, as for UDP tests.
const MAX_PAYLOAD_BYTES: u32 = 65_507;
/// Probes more often than this are a test of throughput.
const INTERVALS: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(100)..=Nanos::from_secs(3600);
/// The session waits some seconds for the end of a sender.
const TIMEOUTS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(10)..=Nanos::from_secs(4);
/// Longest measurement; a server allows less unless its operator says otherwise.
const MOST_TIME: Nanos = Nanos::from_secs(366 * 24 * 3600);
/// Sequence numbers have 48 bits, the last of which are reserved.
const MOST_PROBES: u64 = 1 << 47;

/// A measurement of round trips by datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttParameters {
    /// How long probes are sent, or how many.
    pub amount: Amount,
    /// Time between probes, nanoseconds; the mean of it with `poisson`.
    pub interval_ns: u64,
    /// Probes are sent by a Poisson process (RFC 2330 §11.1.1), else periodically.
    pub poisson: bool,
    /// Payload of a probe, bytes, and of its answer.
    pub payload_bytes: u32,
    /// After this time without an answer a probe is lost, nanoseconds.
    pub timeout_ns: u64,
}

impl Default for RttParameters {
    /// Ten seconds, a probe of 64 bytes every 10 ms.
    fn default() -> Self {
        Self {
            amount: Amount::DurationNs(10_000_000_000),
            interval_ns: 10_000_000,
            poisson: false,
            payload_bytes: 64,
            timeout_ns: 3_000_000_000,
        }
    }
}

impl RttParameters {
    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let bytes = format!("{MIN_PAYLOAD_BYTES} to {MAX_PAYLOAD_BYTES} bytes");
        check_range("payload_bytes", self.payload_bytes, MIN_PAYLOAD_BYTES..=MAX_PAYLOAD_BYTES, bytes)?;
        check_range("interval_ns", Nanos(self.interval_ns), INTERVALS, "100us to 1h")?;
        check_range("timeout_ns", Nanos(self.timeout_ns), TIMEOUTS, "10ms to 4s")?;
        match self.amount {
            Amount::DurationNs(ns) => {
                check_range("duration_ns", Nanos(ns), Nanos::from_millis(1)..=MOST_TIME, "1ms to 366 days")
            }
            Amount::Packets(count) => check_range("probes", count, 1..=MOST_PROBES, "1 or more probes"),
            Amount::Bytes(bytes) => Err(ParameterError::new("bytes", bytes, "give a time or a number of probes")),
        }
    }

    /// How many probes are sent; `None` if the time decides.
    pub fn probes(&self) -> Option<u64> {
        if let Amount::Packets(count) = self.amount { Some(count) } else { None }
    }
}

/// What an end of a measurement reports. Each end has its own part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RttEndReport {
    /// Responder: probes of this measurement that arrived.
    #[serde(default)]
    pub received: u64,
    /// Responder: those that it answered.
    #[serde(default)]
    pub answered: u64,
    /// Responder: probes that it did not answer to keep to its rate.
    #[serde(default)]
    pub limited: u64,
}
