//! What is answered.

use longhaul_mesh_model::file::TestPlan;
use longhaul_units::utc;
use serde::Serialize;
use utoipa::ToSchema;

use crate::alarm::Alarm;
use crate::store::{self, DAY_NS};

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

impl From<&TestPlan> for Test {
    fn from(plan: &TestPlan) -> Self {
        Self {
            name: plan.name.clone(),
            kind: plan.kind.name(),
            pairs: plan.pairs.len(),
            every_ns: plan.every.map(|every| every.0),
            time_ns: plan.time.0,
        }
    }
}

/// A figure that pairs have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Metric {
    /// As `metric` takes it.
    pub(crate) name: &'static str,
    /// In words.
    pub(crate) title: &'static str,
    /// The kind of the tests that it comes from.
    pub(crate) kind: &'static str,
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
    /// When its last test of any kind began; null: none yet.
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

impl From<store::Span> for Span {
    fn from(span: store::Span) -> Self {
        let unit = if span.unit_ns == DAY_NS { "day" } else { "hour" };
        Self { from: utc(span.from_ns), until: utc(span.until_ns), unit }
    }
}

/// Sums of tests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sums {
    /// Tests.
    pub(crate) tests: i64,
    /// Packets that they sent, of round trips probes; 0 of TCP.
    pub(crate) sent_packets: i64,
    /// Packets that they lost.
    pub(crate) lost_packets: i64,
    /// Share of the packets that was lost, from 0 to 1; null: none was sent.
    pub(crate) loss: Option<f64>,
}

/// Round trips of a time. Those of a span are medians of its hours or days.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RoundTrip {
    /// The median of the tests' medians, nanoseconds; null: no probe was answered.
    pub(crate) median_ns: Option<i64>,
    /// The median of the tests' 99 % quantiles, nanoseconds.
    pub(crate) p99_ns: Option<i64>,
    /// Runs of lost probes that lasted a second or more.
    pub(crate) outages: i64,
    /// The longest of them, nanoseconds.
    pub(crate) longest_outage_ns: i64,
    /// What is usual, nanoseconds: the median of the days of 30 days up to the end of the span, or of the span if that is longer. Of all pairs alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usual_ns: Option<i64>,
}

/// What TCP carried in a time. Figures of a span are medians of its hours or days.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Goodput {
    /// The median of the tests' goodput: payload bits a second.
    pub(crate) median_bps: Option<i64>,
    /// The median of the rates that the flows were paced to: payload bits a second. More is not possible.
    pub(crate) paced_bps: Option<i64>,
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
    /// The site that sent; of round trips the one that sent the probes.
    pub(crate) sender: String,
    /// The site that received.
    pub(crate) receiver: String,
    /// Sums of its tests.
    #[serde(flatten)]
    pub(crate) sums: Sums,
    /// With `metric=rtt` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round_trip: Option<RoundTrip>,
    /// With `metric=goodput` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goodput: Option<Goodput>,
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
    /// With `metric=rtt` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round_trip: Option<RoundTrip>,
    /// With `metric=goodput` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goodput: Option<Goodput>,
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

/// Alarms that are open, and that were.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alarms {
    /// When they were judged; null: not yet.
    pub(crate) judged: Option<String>,
    /// The alarms.
    pub(crate) alarms: Vec<Alarm>,
    /// Alarms that ended in the last day, the latest first.
    pub(crate) over: Vec<Alarm>,
}

/// What comes next.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedule {
    /// Tests of kind `udp` and `tcp` that are due, in order of time.
    pub(crate) next: Vec<NextTest>,
    /// Tests of kind `rtt`: they go on without pause.
    pub(crate) without_pause: Vec<Test>,
    /// Diagnoses that were asked for in the last day and have not come yet, the oldest first, 100 at most.
    pub(crate) asked: Vec<AskedDiagnosis>,
}

/// A diagnosis that an alarm asks a site for. It begins as soon as both sites are idle.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AskedDiagnosis {
    /// When it was asked for.
    pub(crate) asked: String,
    /// The test plan.
    pub(crate) test: String,
    /// The site that will send.
    pub(crate) sender: String,
    /// The site that will receive.
    pub(crate) receiver: String,
}

/// A test that is due. Its site asks for it then; it begins when both are free.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NextTest {
    /// When it is due.
    pub(crate) at: String,
    /// The test plan.
    pub(crate) test: String,
    /// `udp` or `tcp`.
    pub(crate) kind: &'static str,
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
