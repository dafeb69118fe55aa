//! What every kind of test is asked to do.

use std::fmt::Display;
use std::ops::RangeInclusive;

use longhaul_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Most streams of a direction: this bounds the size of a report.
pub const MAX_STREAMS: u8 = 64;
/// Longest test.
pub const MAX_DURATION: Nanos = Nanos::from_secs(24 * 3600);
/// Rates of a stream.
pub const RATES: RangeInclusive<BitRate> = BitRate(1_000)..=BitRate(10_000_000_000_000);
/// Highest CPU number that is accepted.
const MAX_CPU: u16 = 8191;

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// For this time, nanoseconds.
    DurationNs(u64),
    /// This many payload bytes over all streams of a direction; the last packet is sent whole.
    Bytes(u64),
    /// This many packets over all streams of a direction.
    Packets(u64),
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestDirection {
    /// Client to server.
    Forward,
    /// Server to client.
    Reverse,
    /// Both at once.
    Bidirectional,
}

/// CPUs of a test's threads; an empty list leaves the choice to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Affinity {
    /// The sender's threads.
    pub sender_cpus: Vec<u16>,
    /// The receiver's threads.
    pub receiver_cpus: Vec<u16>,
    /// The softirq of the receiver (by RPS).
    pub softirq_cpus: Vec<u16>,
    /// Receiver and softirq on the same CPU, or on different ones.
    pub softirq: Option<SoftirqPlacement>,
}

/// Where the receiver runs with respect to its softirq (the NLR paper's "bound" and "balanced").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SoftirqPlacement {
    /// On the same CPU.
    Same,
    /// On different CPUs.
    Split,
}

/// How lost packets are located.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Collect {
    /// With BPF where possible, else with counters.
    #[default]
    Auto,
    /// With BPF; without BPF there is no test.
    Bpf,
    /// With counters.
    Counters,
    /// Not at all: a loss is unexplained, except where a send call failed.
    Off,
}

/// A parameter that is out of range: which one, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {given}: {allowed}")]
pub struct ParameterError {
    /// The field, as JSON names it.
    pub field: &'static str,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
}

impl ParameterError {
    /// Creates an error.
    pub fn new(field: &'static str, given: impl ToString, allowed: impl Into<String>) -> Self {
        Self { field, given: given.to_string(), allowed: allowed.into() }
    }
}

/// Checks that `value`, if there is one, is within `range`.
///
/// # Errors
/// It is not; `allowed` says what is.
pub fn check_range<T: PartialOrd + Display>(
    field: &'static str,
    value: impl Into<Option<T>>,
    range: RangeInclusive<T>,
    allowed: impl Into<String>,
) -> Result<(), ParameterError> {
    match value.into() {
        Some(value) if !range.contains(&value) => Err(ParameterError::new(field, value, allowed)),
        _ => Ok(()),
    }
}

/// Checks the time between interim reports.
///
/// # Errors
/// It is out of range.
pub fn check_interval(interval_ns: Option<u64>) -> Result<(), ParameterError> {
    let range = Nanos::from_millis(100)..=Nanos::from_secs(3600);
    check_range("interval_ns", interval_ns.map(Nanos), range, "100ms to 1h, or 0 for none")
}

/// The smallest socket buffer that can be asked for.
pub const SOCKBUF_LEAST: Bytes = Bytes(2048);

/// Checks the size of a socket buffer, the parameter `field`.
///
/// # Errors
/// It is out of range.
pub fn check_sockbuf(field: &'static str, bytes: Option<u64>) -> Result<(), ParameterError> {
    check_range(field, bytes.map(Bytes), SOCKBUF_LEAST..=Bytes(1 << 31), "2K to 2G")
}

impl Amount {
    /// Checks the limits that every longhaul has.
    ///
    /// # Errors
    /// It is out of range.
    pub fn validate(self) -> Result<(), ParameterError> {
        match self {
            Self::DurationNs(ns) => {
                check_range("duration_ns", Nanos(ns), Nanos::from_millis(1)..=MAX_DURATION, "1ms to 24h")
            }
            Self::Bytes(bytes) => check_range("bytes", bytes, 1..=u64::MAX, "at least 1 byte"),
            Self::Packets(packets) => check_range("packets", packets, 1..=u64::MAX, "at least 1 packet"),
        }
    }
}

impl Affinity {
    /// Checks the limits that every longhaul has.
    ///
    /// # Errors
    /// A list is too long, or has a CPU that is out of range.
    pub fn validate(&self) -> Result<(), ParameterError> {
        for cpus in [&self.sender_cpus, &self.receiver_cpus, &self.softirq_cpus] {
            if cpus.len() > usize::from(MAX_STREAMS) || cpus.iter().any(|cpu| *cpu > MAX_CPU) {
                // It can be as long as a message.
                let shown = cpus.iter().take(usize::from(MAX_STREAMS) + 1);
                let given = shown.map(u16::to_string).collect::<Vec<_>>().join(",");
                let allowed = format!("at most {MAX_STREAMS} CPUs, each 0 to {MAX_CPU}");
                return Err(ParameterError::new("affinity", given, allowed));
            }
        }
        Ok(())
    }
}

impl TestDirection {
    /// Whether the client sends.
    pub const fn client_sends(self) -> bool {
        !matches!(self, Self::Reverse)
    }

    /// Whether the server sends.
    pub const fn server_sends(self) -> bool {
        !matches!(self, Self::Forward)
    }
}
