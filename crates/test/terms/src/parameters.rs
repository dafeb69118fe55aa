//! What every kind of test is asked to do.

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

/// Most streams of a direction: what a 2-digit `-P` needs, and what keeps a report's size in bounds.
pub const MAX_STREAMS: u8 = 64;
/// Longest test.
pub const MAX_DURATION: Nanos = Nanos::from_secs(24 * 3600);
/// Highest CPU number that is believed.
pub const MAX_CPU: u16 = 8191;

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// For this long.
    DurationNs(u64),
    /// So many payload bytes, all streams of a direction together, the last packet whole.
    Bytes(u64),
    /// So many packets, all streams of a direction together.
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

/// CPUs; empty leaves it to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Affinity {
    /// The sender's threads.
    pub sender_cpus: Vec<u16>,
    /// The receiver's threads.
    pub receiver_cpus: Vec<u16>,
    /// The receiver's softirq (by RPS).
    pub softirq_cpus: Vec<u16>,
    /// Receiver and softirq on one CPU, or on two: `--softirq`.
    pub softirq: Option<SoftirqPlacement>,
}

/// Where the receiver runs with respect to its softirq (the NLR paper's "bound" and "balanced").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoftirqPlacement {
    /// On the same CPU.
    Same,
    /// On another.
    Split,
}

/// How losses shall be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collect {
    /// By BPF where it can be had, else by counters.
    #[default]
    Auto,
    /// By BPF, or there is no test.
    Bpf,
    /// By counters.
    Counters,
    /// Not at all: a loss is unexplained, but for what a call that sends was refused.
    Off,
}

/// A parameter that is out of range: which flag, and what is allowed.
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
    /// An error.
    pub fn new(flag: &'static str, given: impl ToString, allowed: impl Into<String>) -> Self {
        Self { flag, given: given.to_string(), allowed: allowed.into() }
    }
}

impl TestDirection {
    /// The direction that `-R` and `--bidir` ask for.
    ///
    /// # Errors
    /// Both at once.
    pub fn from_flags(reverse: bool, bidirectional: bool) -> Result<Self, ParameterError> {
        match (reverse, bidirectional) {
            (false, false) => Ok(Self::Forward),
            (true, false) => Ok(Self::Reverse),
            (false, true) => Ok(Self::Bidirectional),
            (true, true) => Err(ParameterError::new("-R", "with --bidir", "give one of them: --bidir sends both ways")),
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
