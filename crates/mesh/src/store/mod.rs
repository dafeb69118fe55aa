//! Results on disk: what a site keeps until the coordinator has confirmed it, and what the coordinator keeps.
//!
//! Both are SQLite in WAL mode, written through to the disk. A result has an id of its own, so it can be delivered any number of times and is
//! there once. Each step is one transaction: after `kill -9` and after a loss of power it is there or it is not.

mod archive;
mod database;
mod outbox;
mod reader;
mod summary;

pub use archive::{Archive, Hour};
pub use database::StoreError;
pub use outbox::Outbox;
pub use reader::{PairSum, Point, Reader, Span, Tested};
pub(crate) use summary::{BUCKETS_A_DECADE, DAY_NS};

use serde::{Deserialize, Serialize};

/// The result of one test in one direction.
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
        let word = |text: &String| !text.is_empty() && text.len() <= 40;
        let counts = [Some(self.lost), self.at_sender, self.at_receiver];
        self.id.len() == 32
            && self.id.bytes().all(|byte| byte.is_ascii_hexdigit())
            && [&self.test, &self.sender, &self.receiver].into_iter().all(word)
            && self.at_ns >= 0
            && (0..=i64::from(u32::MAX)).contains(&self.sent)
            && counts.into_iter().flatten().all(|count| (0..=self.sent).contains(&count))
            && self.received_rate_bps >= 0
    }
}
