//! What is answered.

use serde::Serialize;
use utoipa::ToSchema;

use crate::alarm::Alarm;

/// The mesh.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Mesh {
    /// Its name.
    pub(crate) name: String,
    /// The coordinator's time.
    pub(crate) now: String,
    /// The version of longhaul.
    pub(crate) longhaul: &'static str,
    /// What is tested.
    pub(crate) tests: Vec<Test>,
    /// What can be asked of pairs with `metric`.
    pub(crate) metrics: Vec<Metric>,
}

/// A test plan.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Test {
    /// Its name.
    pub(crate) name: String,
    /// `udp`, `rtt`, `tcp` or `diagnose`.
    pub(crate) kind: &'static str,
    /// Pairs that it tests, each in one direction.
    pub(crate) pairs: usize,
    /// How often a round begins, in nanoseconds; null: not repeated.
    pub(crate) every_ns: Option<u64>,
    /// How long a test takes, in nanoseconds.
    pub(crate) time_ns: u64,
}

/// A figure that pairs have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Metric {
    /// As `metric` takes it.
    pub(crate) name: &'static str,
    /// In words.
    pub(crate) title: &'static str,
}

/// All sites.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sites {
    /// In the order of the mesh.
    pub(crate) sites: Vec<Site>,
}

/// A site.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Site {
    /// Its name.
    pub(crate) name: String,
    /// Whether it has joined.
    pub(crate) joined: bool,
    /// The rate of its link (L1), bits a second.
    pub(crate) rate_bps: u64,
    /// Its tags.
    pub(crate) tags: Vec<String>,
    /// Whether nobody can connect to it.
    pub(crate) nat: bool,
    /// When its last test began; null: none yet.
    pub(crate) last_test: Option<String>,
}

/// A span of time, cut to whole hours or days.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Span {
    /// Its first moment.
    pub(crate) from: String,
    /// The first moment after it.
    pub(crate) until: String,
    /// `hour` or `day`: what it is made of.
    pub(crate) unit: &'static str,
}

/// Sums of tests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sums {
    /// Tests.
    pub(crate) tests: i64,
    /// Packets that they sent.
    pub(crate) sent_packets: i64,
    /// Packets that they lost.
    pub(crate) lost_packets: i64,
    /// Share of the packets that was lost, from 0 to 1; null: none was sent.
    pub(crate) loss: Option<f64>,
}

/// All pairs that were tested in a span.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Pairs {
    /// When.
    pub(crate) span: Span,
    /// What is asked for.
    pub(crate) metric: &'static str,
    /// By sender and receiver.
    pub(crate) pairs: Vec<Pair>,
}

/// A pair in one direction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Pair {
    /// The site that sent.
    pub(crate) sender: String,
    /// The site that received.
    pub(crate) receiver: String,
    /// Sums of its tests.
    #[serde(flatten)]
    pub(crate) sums: Sums,
}

/// A pair over time, in one direction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PairOverTime {
    /// The site that sent.
    pub(crate) sender: String,
    /// The site that received.
    pub(crate) receiver: String,
    /// When.
    pub(crate) span: Span,
    /// Hours or days that have tests, in order of time.
    pub(crate) points: Vec<Point>,
}

/// An hour or a day of a pair.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Point {
    /// When it began.
    pub(crate) begin: String,
    /// Sums of its tests.
    #[serde(flatten)]
    pub(crate) sums: Sums,
}

/// Tests of a pair.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tests {
    /// When.
    pub(crate) span: Span,
    /// The latest first, 1000 at most.
    pub(crate) tests: Vec<OneTest>,
}

/// One test.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OneTest {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// The test plan.
    pub(crate) test: String,
    /// When it began.
    pub(crate) at: String,
    /// Packets sent.
    pub(crate) sent_packets: i64,
    /// Packets lost.
    pub(crate) lost_packets: i64,
    /// Of them at the sending host; null where the hosts could not see their drops.
    pub(crate) lost_at_sender_packets: Option<i64>,
    /// Of them at the receiving host.
    pub(crate) lost_at_receiver_packets: Option<i64>,
    /// Payload bits a second that were received.
    pub(crate) received_rate_bps: i64,
}

/// How the loss of tests is spread: the histogram that TeraGrid drew of 100 days.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Losses {
    /// When.
    pub(crate) span: Span,
    /// All tests.
    pub(crate) tests: i64,
    /// Tests that lost nothing.
    pub(crate) without_loss: i64,
    /// Tests that lost packets, by the share that they lost, four buckets a decade. The first one has all that is less, too.
    pub(crate) buckets: Vec<Bucket>,
}

/// Tests that lost about as much.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Bucket {
    /// Share of loss from which on, from 0 to 1.
    pub(crate) from: f64,
    /// Share of loss below which.
    pub(crate) below: f64,
    /// So many tests.
    pub(crate) tests: i64,
}

/// Alarms that are open.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alarms {
    /// When they were judged; null: not yet.
    pub(crate) judged: Option<String>,
    /// The alarms.
    pub(crate) alarms: Vec<Alarm>,
}

/// What comes next.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedule {
    /// In order of time.
    pub(crate) next: Vec<NextTest>,
}

/// A test that is due. Its site asks for it then; it begins when both are free.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NextTest {
    /// When it is due.
    pub(crate) at: String,
    /// The test plan.
    pub(crate) test: String,
    /// The site that will send.
    pub(crate) sender: String,
    /// The site that will receive.
    pub(crate) receiver: String,
}

/// Why there is no answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Refused {
    /// What is wrong, and what is allowed.
    pub(crate) error: String,
}
