//! Results on disk: what a site keeps until the coordinator has confirmed it, and what the coordinator keeps.
//!
//! Both are SQLite in WAL mode, written through to the disk. A result has an id of its own, so it can be delivered any number of times and is
//! there once. Each step is one transaction: after `kill -9` and after a loss of power it is there or it is not.

mod archive;
mod database;
mod measurement;
mod measurements;
mod outbox;
mod wanted;

pub use archive::{Archive, Hour};
pub use database::StoreError;
pub use measurement::{
    CAUSES_MOST, Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TEXT_MOST, TcpFlow,
};
pub use outbox::{Kept, Outbox};
pub use wanted::Wanted;

use serde::{Deserialize, Serialize};

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
            && (0..=i64::from(u32::MAX)).contains(&self.sent)
            && counts.into_iter().flatten().all(|count| (0..=self.sent).contains(&count))
            && self.received_rate_bps >= 0
    }
}

/// What results of all kinds have: an id, the names of test and sites, a time.
fn is_head_sound(id: &str, names: [&String; 3], at_ns: i64) -> bool {
    let word = |text: &String| !text.is_empty() && text.len() <= 40 && !text.chars().any(char::is_control);
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && names.into_iter().all(word) && at_ns >= 0
}
