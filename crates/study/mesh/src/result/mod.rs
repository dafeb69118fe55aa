//! What tests found, as sites deliver it and the coordinator keeps it.
//!
//! It comes from other hosts: each has an `is_sound`.

mod measurement;
mod test_file;

pub use measurement::{
    CAUSES_MOST, Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TEXT_MOST, TcpFlow,
};
pub use test_file::{FILE_BYTES_MOST, FileKind, TestFile};

use serde::{Deserialize, Serialize};

use crate::file::is_name;
use measurement::COUNT_MOST;

/// A diagnosis that a site should begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The alarm that it is for.
    pub alarm: String,
    /// The test's name in the mesh.
    pub test: String,
    /// The site that sends.
    pub sender: String,
    /// The site that receives.
    pub receiver: String,
}

/// The result of one test of kind `udp` in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestResult {
    /// 32 hexadecimal digits, random.
    pub id: String,
    /// The test's name in the mesh.
    pub test: String,
    /// The site that sent.
    pub sender: String,
    /// The site that received.
    pub receiver: String,
    /// When it began: nanoseconds since 1970, by the coordinator's clock as the site knows it.
    pub at_ns: i64,
    /// Packets sent.
    pub sent: i64,
    /// Packets lost.
    pub lost: i64,
    /// Of them at the sending host; `None` where the hosts could not see their drops.
    pub at_sender: Option<i64>,
    /// Of them at the receiving host.
    pub at_receiver: Option<i64>,
    /// Payload bits a second that were received.
    pub received_rate_bps: i64,
}

impl TestResult {
    /// Whether it can be a result at all: it comes from another host.
    pub fn is_sound(&self) -> bool {
        let counts = [Some(self.lost), self.at_sender, self.at_receiver];
        is_head_sound(&self.id, [&self.test, &self.sender, &self.receiver], self.at_ns)
            && (0..=COUNT_MOST).contains(&self.sent)
            && counts.into_iter().flatten().all(|count| (0..=self.sent).contains(&count))
            && self.received_rate_bps >= 0
    }
}

/// What results of all kinds have: an id, the names of test and sites, a time.
fn is_head_sound(id: &str, names: [&String; 3], at_ns: i64) -> bool {
    id.len() == 32
        && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && names.into_iter().all(|name| is_name(name))
        && at_ns >= 0
}
