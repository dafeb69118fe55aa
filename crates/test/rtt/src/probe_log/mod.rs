//! The log of probes: a row for each probe that was sent, in Parquet segments, as docs/reference/rtt-log.md describes it.
//!
//! [`write_segment`] writes one file of rows; [`ProbeLogReader`] reads one file, or all segments of a folder, row by row, in memory that
//! does not grow with them. A segment is closed when it has [`SEGMENT_ROWS`] rows or covers [`SEGMENT_NS`]: whoever kills the measurement
//! loses no more than that.

mod read;
mod write;

use longhaul_captures::parquet_limits::Refused;
use serde::{Deserialize, Serialize};

use crate::clocks::Gap;
use crate::path_change::PathChange;

pub use read::{ProbeLogReader, next_segment, rows_of, segments};
pub use write::write_segment;

/// The key of [`About`] in a file's metadata.
pub const ABOUT_KEY: &str = "longhaul.rtt";
/// What [`About::schema`] says.
pub const SCHEMA: &str = "longhaul.rtt.probes/1";
/// Most rows of a segment that longhaul writes.
pub const SEGMENT_ROWS: usize = 65_536;
/// Longest time that a segment covers, nanoseconds.
pub const SEGMENT_NS: i64 = 60_000_000_000;
/// Numbers of segments that longhaul writes are below this: thousands of years of them.
pub const SEGMENTS_MOST: u32 = u32::MAX;
/// Probes of a measurement at most, and of its log: sequence numbers have 48 bits, the last of which are reserved.
pub(crate) const PROBES_MOST: u64 = 1 << 47;
/// When probes were sent is rounded to so many nanoseconds, 2¹⁴: it orders and spaces rows, and no delay is computed from it.
pub const SENT_QUANTUM_NS: i64 = 1 << 14;

/// A probe that was sent. Differences of two hosts' clocks are raw: they contain the clocks' offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeRow {
    /// Its number, from 0, below 2⁴⁷.
    pub sequence: u64,
    /// Its payload, bytes.
    pub payload_bytes: u32,
    /// When it was sent, Unix time in nanoseconds, by this host's clock.
    pub sent_ns: i64,
    /// Its round trip without the time inside the responder, nanoseconds. `None`: no answer came before the time-out.
    pub rtt_ns: Option<i64>,
    /// When the responder received it minus when it was sent, nanoseconds: the delay there plus the offset of the responder's clock. `None`
    /// without an answer, and where the responder does not tell its time.
    pub forward_ns: Option<i64>,
    /// When the answer was received minus when the responder sent it, nanoseconds: the delay back minus that offset. It is `rtt_ns` less
    /// `forward_ns`, and so the log has no column of it.
    pub backward_ns: Option<i64>,
    /// Answers beyond the first.
    pub copies: u32,
    /// Probes sent later that were answered before: 0 if the answer came in order (RFC 4737 §3).
    pub late_by: u32,
}

/// How probes were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// Datagrams that longhaul's server answers.
    #[default]
    Udp,
    /// ICMP echo.
    Icmp,
    /// The time that TCP takes to connect.
    Tcp,
    /// Datagrams to a UDP port where nothing listens: the host answers that it cannot be reached.
    ClosedPort,
}

/// Who took a time stamp, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StampedBy {
    /// The program, around its call of the kernel.
    #[default]
    Program,
    /// The kernel, where the packet passes between its stack and the device.
    Kernel,
    /// The NIC, when the packet passes the wire; converted to the host's clock.
    Nic,
}

/// Who stamps what one end sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndStamps {
    /// Packets that it sends.
    pub sent: StampedBy,
    /// Packets that it receives.
    pub received: StampedBy,
}

/// What a segment says of its measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct About {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of longhaul that wrote it.
    pub version: String,
    /// The host that was asked, as the user named it.
    pub host: String,
    /// How probes were made.
    pub kind: ProbeKind,
    /// Time between probes, nanoseconds; the mean of it where they are sent by a Poisson process.
    pub interval_ns: u64,
    /// Whether they are sent by a Poisson process.
    pub poisson: bool,
    /// Payload of a probe, bytes; that of the largest with `sizes`.
    pub payload_bytes: u32,
    /// Payloads that probes have, bytes, each as often; none where all have `payload_bytes`.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// After this time without an answer a probe is lost, nanoseconds.
    pub timeout_ns: u64,
    /// The port that probes are sent or connected to; `None` for longhaul's server and ICMP.
    #[serde(default)]
    pub port: Option<u16>,
    /// Times that ended since the segment before, in which probes told nothing of the path.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Route changes seen since the segment before.
    #[serde(default)]
    pub path_changes: Vec<PathChange>,
    /// Who stamps at the host that sends probes.
    pub client: EndStamps,
    /// Who stamps at the responder; `None` where it does not tell its time.
    pub server: Option<EndStamps>,
    /// What round trips of this segment are rounded to, nanoseconds: some 32nd of how much they vary from one probe to the next,
    /// at most 8,192.
    pub quantum_ns: i64,
    /// What `forward_ns` of this segment is rounded to, nanoseconds: some 16th of how much it varies.
    pub difference_quantum_ns: i64,
    /// What `sent_ns` is rounded to, nanoseconds.
    pub sent_quantum_ns: i64,
}

/// Why a log of probes cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeLogError {
    /// A file or folder cannot be opened or read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// The folder has no segment.
    #[error("{0}: there is no probes-*.parquet in this folder")]
    Empty(String),
    /// It is no Parquet, is damaged, or was made to deceive.
    #[error("the log of probes cannot be read: {0}")]
    Refused(#[from] Refused),
    /// A column is missing or of another kind.
    #[error("this Parquet file is not a log of probes: it has no column `{0}` of the right kind")]
    Column(&'static str),
    /// It says of itself that it is something else, or nothing.
    #[error(
        "this Parquet file is not a log of probes: its metadata has no `longhaul.rtt` of a version that is known here"
    )]
    About,
    /// Columns do not have as many values as rows.
    #[error("the log of probes is damaged: column `{0}` does not have as many values as it should")]
    Length(&'static str),
    /// A row's number is not above that of the row before, or no measurement gets to it.
    #[error("the log of probes is damaged: after probe {0} comes probe {1}")]
    Order(u64, u64),
    /// A segment belongs to another measurement than the one before.
    #[error("{0}: this segment belongs to another measurement than those before it")]
    Foreign(String),
    /// The log cannot go on: its last segment has the highest number.
    #[error("{0}: after {1} no number is left for another segment")]
    Full(String, String),
}

impl From<parquet::errors::ParquetError> for ProbeLogError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Refused(error.into())
    }
}

/// The columns of a segment: name, whether each row has a value, and its type in Parquet's words.
const COLUMNS: [(&str, bool, &str); 7] = [
    ("sequence", true, "int64 sequence (integer(64, false))"),
    ("payload_bytes", true, "int32 payload_bytes (integer(32, false))"),
    ("sent_ns", true, "int64 sent_ns"),
    ("rtt_ns", false, "int64 rtt_ns"),
    ("forward_ns", false, "int64 forward_ns"),
    ("copies", true, "int32 copies (integer(32, false))"),
    ("late_by", true, "int32 late_by (integer(32, false))"),
];

/// The name of the segment with this number, from 0.
pub fn segment_name(number: u32) -> String {
    format!("probes-{number:05}.parquet")
}

/// The number of the segment with this name; `None` if it is none.
fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("probes-")?.strip_suffix(".parquet")?;
    let well_formed = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
