//! What `longhaul mesh status --json` and `longhaul mesh show --json` print.

use serde::Serialize;

use crate::result::{Diagnosis, RoundTrips, TcpFlow};

/// What `status` is asked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusAsked {
    /// The coordinator's folder.
    pub folder: String,
}

/// The state of a mesh.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The name of the mesh.
    pub mesh: String,
    /// Its sites, in the order of its file.
    pub sites: Vec<SiteStatus>,
    /// Who loses more than usual now.
    pub alarms: Vec<OpenAlarm>,
}

/// A site.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// Whether it has used its token.
    pub joined: bool,
    /// Tests of any kind of the last day that it was part of, as far as they were delivered.
    pub tests: u64,
    /// When the last of them began, in UTC, in the form of RFC 3339; `None` if there was none.
    pub last_at: Option<String>,
}

/// Loss above the usual.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenAlarm {
    /// Who loses packets, the most likely first. Several: the data cannot tell them apart.
    pub suspects: Vec<String>,
    /// Where, for the first suspect.
    pub place: String,
    /// Since when, in UTC, in the form of RFC 3339; `None`: since before the mesh knows.
    pub since: Option<String>,
    /// Share of the packets that is lost above the usual, from 0 to 1.
    pub loss: f64,
    /// How much more likely the losses are with this fault than without any: logarithm to base 10, at most 99.
    pub log10_odds: f64,
}

/// What `show` is asked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShowAsked {
    /// The coordinator's folder.
    pub folder: String,
    /// The site that sends; `None`: all pairs.
    pub from: Option<String>,
    /// The site that receives.
    pub to: Option<String>,
    /// Of so many days until now.
    pub days: u32,
}

/// What was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shown {
    /// The name of the mesh.
    pub mesh: String,
    /// Sums of UDP tests by test, pair and hour.
    pub hours: Vec<HourSum>,
    /// Round trips, each result. With two sites: whichever of them sent the probes.
    pub round_trips: Vec<Found<RoundTrips>>,
    /// TCP, each result. With two sites: of either direction.
    pub tcp: Vec<Found<TcpFlow>>,
    /// Diagnoses. With two sites: of either direction.
    pub diagnoses: Vec<Found<Diagnosis>>,
    /// Files beside the results, of all sites and days.
    pub files: Vec<Files>,
}

/// The files of one kind that the coordinator keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Files {
    /// `losses`: which packets UDP tests lost; `samples`: `TCP_INFO` of TCP tests over time.
    pub kind: String,
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where they are: a pattern of paths. The name of a file is the id of its test.
    pub paths: String,
}

/// What a test found.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Found<F> {
    /// The test's name.
    pub test: String,
    /// The site that sent; of round trips: the site that sent the probes.
    pub sender: String,
    /// The site that received, or answered.
    pub receiver: String,
    /// When it began, in UTC, in the form of RFC 3339.
    pub begun: String,
    /// What it found.
    pub found: F,
}

/// The sums of a pair's UDP tests over an hour.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HourSum {
    /// The test's name.
    pub test: String,
    /// The site that sent.
    pub sender: String,
    /// The site that received.
    pub receiver: String,
    /// When the hour began, in UTC, in the form of RFC 3339.
    pub begin: String,
    /// Tests that began in it.
    pub tests: u64,
    /// Packets that they sent.
    pub sent_packets: u64,
    /// Packets that they lost.
    pub lost_packets: u64,
}
