//! What every kind of test is asked to do.

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// Most streams of a direction: this bounds the size of a report.
pub const MAX_STREAMS: u8 = 64;
/// Longest test.
pub const MAX_DURATION: Nanos = Nanos::from_secs(24 * 3600);
/// Highest CPU number that is accepted.
pub const MAX_CPU: u16 = 8191;

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub enum SoftirqPlacement {
    /// On the same CPU.
    Same,
    /// On different CPUs.
    Split,
}

/// How lost packets are located.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[error("{flag} {given}: {allowed}")]
pub struct ParameterError {
    /// The flag.
    pub flag: &'static str,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
}

impl ParameterError {
    /// Creates an error.
    pub fn new(flag: &'static str, given: impl ToString, allowed: impl Into<String>) -> Self {
        Self { flag, given: given.to_string(), allowed: allowed.into() }
    }
}

impl TestDirection {
    /// The direction for `-R` and `--bidir`.
    ///
    /// # Errors
    /// Both flags are set.
    pub fn from_flags(reverse: bool, bidirectional: bool) -> Result<Self, ParameterError> {
        match (reverse, bidirectional) {
            (false, false) => Ok(Self::Forward),
            (true, false) => Ok(Self::Reverse),
            (false, true) => Ok(Self::Bidirectional),
            (true, true) => {
                Err(ParameterError::new("-R", "with --bidir", "use only one of them: --bidir sends in both directions"))
            }
        }
    }

    /// Whether the client sends.
    pub const fn client_sends(self) -> bool {
        !matches!(self, Self::Reverse)
    }

    /// Whether the server sends.
    pub const fn server_sends(self) -> bool {
        !matches!(self, Self::Forward)
    }
}
