//! Results as `--json` prints them and `-o` saves them, read back.
//!
//! Only what is shown is kept: hosts, counters of other forms and unknown keys are read over. So a result takes at most some 16
//! bytes of memory for each byte of its text, whatever the text says.

use std::net::SocketAddr;

use longhaul_diagnosis::{Diagnosed, DiagnosedFlows, LongPathTest};
use longhaul_flows::AnalyzeResult;
use longhaul_flows::compare::CompareResult;
use longhaul_result::Caveat;
use longhaul_rtt::probe_log::ProbeKind;
use longhaul_rtt::{HopsParameters, HopsResult, RttParameters, RttResult};
use longhaul_sweep::SweepResult;
use longhaul_tcp::{TcpParameters, TcpResult, WatchResult};
use longhaul_terms::Directions;
use longhaul_udp::{UdpAccounts, UdpParameters, UdpResult, UdpWatchResult};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text;

/// The form of a UDP result.
pub const UDP_SCHEMA: &str = "longhaul.udp/1";
/// The form of a TCP result.
pub const TCP_SCHEMA: &str = "longhaul.tcp/1";
/// The form of what watching came to.
pub const WATCH_SCHEMA: &str = "longhaul.watch/1";
/// The form of what watching UDP sockets came to.
pub const WATCH_UDP_SCHEMA: &str = "longhaul.watch.udp/1";
/// The form of the account of two such results.
pub const COMPARE_UDP_SCHEMA: &str = "longhaul.compare.udp/1";

/// The form of an analysis.
pub const ANALYZE_SCHEMA: &str = "longhaul.analyze/1";
/// The form of a comparison.
pub const COMPARE_SCHEMA: &str = "longhaul.compare/1";

/// The form of a measurement of round trips.
pub const RTT_SCHEMA: &str = "longhaul.rtt/1";
/// The form of a measurement of round trips to each hop.
pub const HOPS_SCHEMA: &str = "longhaul.rtt.hops/1";
/// The form of a sweep.
pub const SWEEP_SCHEMA: &str = "longhaul.sweep/1";
/// The form of a diagnosis.
pub const DIAGNOSE_SCHEMA: &str = "longhaul.diagnose/1";

/// What was asked of a diagnosis, and of whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnoseAsked {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The server as given on the command line.
    pub host: String,
    /// Whether the direction from the server to the client was diagnosed, and only that.
    pub reverse: bool,
    /// The rate that the path should carry, bits per second on the wire; `null` if none was named.
    pub rate_bps: Option<u64>,
    /// About how long the tests of a direction may take.
    pub time_ns: u64,
    /// The size of the transfers that matter; `null` for none.
    pub size_bytes: Option<u64>,
    /// From the beginning of one transfer to that of the next over one connection; `null` if each has its own.
    #[serde(default)]
    pub every_ns: Option<u64>,
    /// The congestion control of the flows; `null` for the sender's default.
    pub congestion_control: Option<String>,
    /// Whether the path was loaded with at most a tenth of the target.
    pub gentle: bool,
}

/// The form of a diagnosis of connections that no test made.
pub const DIAGNOSE_FLOWS_SCHEMA: &str = "longhaul.diagnose.flows/1";

/// The form of a test of a short path for a long one.
pub const LONG_PATH_SCHEMA: &str = "longhaul.diagnose.long-path/1";

/// Which connections were diagnosed: those of a process, of a command, or of captures.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiagnoseFlowsAsked {
    /// The process that was watched.
    pub pid: Option<u32>,
    /// The command that was run.
    pub command: Option<Vec<String>>,
    /// The exit code of the command, 128 plus the signal number if a signal ended it; `null` without a command or if it did not end.
    pub exit_code: Option<u8>,
    /// The captures that were read.
    pub files: Vec<String>,
    /// The rate that the path should carry, bits per second on the wire; `null` if none was named.
    pub rate_bps: Option<u64>,
}

/// What was asked of a UDP test, and of whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpAsked {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The server as given on the command line.
    pub host: String,
    /// The test as the server granted it.
    pub udp: UdpParameters,
}

/// What was asked of a TCP test, and of whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpAsked {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The server as given on the command line.
    pub host: String,
    /// The test as the server granted it.
    pub tcp: TcpParameters,
}

/// What was asked of a measurement of round trips, and of whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttAsked {
    /// The host's address, and the port that was connected to; 0 for ICMP.
    pub address: SocketAddr,
    /// The host as given on the command line.
    pub host: String,
    /// How probes were made.
    pub kind: ProbeKind,
    /// The measurement.
    pub rtt: RttParameters,
}

/// What was asked of a measurement of round trips to each hop.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopsAsked {
    /// The destination's address, and the port that probes were sent to; 0 for ICMP.
    pub address: SocketAddr,
    /// The destination as given on the command line.
    pub host: String,
    /// How probes were made.
    pub kind: ProbeKind,
    /// The measurement.
    pub hops: HopsParameters,
}

/// What was asked of a sweep, and of whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepAsked {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The server as given on the command line.
    pub host: String,
    /// Whether the server sent.
    pub reverse: bool,
    /// How often each test was run.
    pub repeat: u64,
    /// The number from which the order of the tests was drawn.
    pub seed: u64,
    /// What all tests have in common.
    pub udp: UdpParameters,
}

/// A result that was read.
#[derive(Debug)]
pub struct Saved {
    /// What it says.
    pub content: Content,
    /// Its caveats.
    pub caveats: Vec<Caveat>,
    /// The version of longhaul that it is of; empty if it does not say.
    pub longhaul: String,
    /// When its command began, RFC 3339; empty if it does not say.
    pub started_at: String,
}

/// What a result says.
#[derive(Debug)]
pub enum Content {
    /// Of `longhaul udp`.
    Udp(Box<UdpAsked>, Directions<UdpResult>),
    /// Of `longhaul tcp`.
    Tcp(Box<TcpAsked>, Directions<TcpResult>),
    /// Of `longhaul watch`.
    Watch(Box<WatchResult>),
    /// Of `longhaul watch --udp`.
    WatchUdp(Box<UdpWatchResult>),
    /// Of `longhaul compare` of two of these.
    CompareUdp(Box<UdpAccounts>),
    /// Of `longhaul analyze`.
    Analyze(Box<AnalyzeResult>),
    /// Of `longhaul compare`.
    Compare(Box<CompareResult>),
    /// Of `longhaul diagnose`.
    Diagnose(Box<DiagnoseAsked>, Directions<Diagnosed>),
    /// Of `longhaul diagnose --watch` and `longhaul diagnose trace`.
    DiagnoseFlows(Box<DiagnosedFlows>),
    /// Of `longhaul diagnose --rtt`.
    LongPath(Box<LongPathTest>),
    /// Of `longhaul rtt`.
    Rtt(Box<RttResult>),
    /// Of `longhaul rtt --to-each-hop`.
    Hops(Box<HopsResult>),
    /// Of `longhaul sweep`.
    Sweep(Box<SweepResult>),
}

/// Why a text is no result.
#[derive(Debug, Error)]
pub enum SavedError {
    /// Not of longhaul.
    #[error("no result of longhaul: {0}")]
    NoResult(serde_json::Error),
    /// Another form of JSON, or none.
    #[error("{}, not a {UDP_SCHEMA}, {TCP_SCHEMA}, {WATCH_SCHEMA}, {WATCH_UDP_SCHEMA}, {ANALYZE_SCHEMA}, {COMPARE_SCHEMA}, {COMPARE_UDP_SCHEMA}, {DIAGNOSE_SCHEMA}, {DIAGNOSE_FLOWS_SCHEMA}, {LONG_PATH_SCHEMA}, {RTT_SCHEMA}, {HOPS_SCHEMA} or {SWEEP_SCHEMA}", .0.as_ref().map_or("without a schema".into(), |it| format!("a {}", it.escape_debug())))]
    Schema(Option<String>),
    /// A part of it is not as its form has it.
    #[error("broken: {0}")]
    Broken(serde_json::Error),
}

/// What tells how to read the rest, which is read over.
#[derive(Deserialize)]
#[serde(expecting = "a result")]
struct Form {
    schema: Option<String>,
    #[serde(default)]
    longhaul: String,
    #[serde(default)]
    started_at: String,
    #[serde(default)]
    result: FormOfResult,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "what came out of a test")]
struct FormOfResult {
    forward: Option<IgnoredAny>,
}

/// What is shown of an envelope.
#[derive(Deserialize)]
#[serde(expecting = "a result")]
struct Shown<P, R> {
    parameters: P,
    result: R,
    caveats: Vec<Caveat>,
}

#[derive(Deserialize)]
struct Both<R> {
    forward: Box<R>,
    backward: Box<R>,
}

impl Saved {
    /// Reads what was printed.
    ///
    /// # Errors
    /// What it is instead, or which part of it is broken.
    pub fn parse(text: &str) -> Result<Self, SavedError> {
        let form: Form = serde_json::from_str(text).map_err(SavedError::NoResult)?;
        let both = form.result.forward.is_some();
        let (content, caveats) = match form.schema.as_deref() {
            Some(UDP_SCHEMA) => {
                let (asked, results, caveats) = of_test(text, both)?;
                (Content::Udp(Box::new(asked), results), caveats)
            }
            Some(TCP_SCHEMA) => {
                let (asked, results, caveats) = of_test(text, both)?;
                (Content::Tcp(Box::new(asked), results), caveats)
            }
            Some(WATCH_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, WatchResult>(text)?;
                (Content::Watch(Box::new(result)), caveats)
            }
            Some(WATCH_UDP_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, UdpWatchResult>(text)?;
                (Content::WatchUdp(Box::new(result)), caveats)
            }
            Some(COMPARE_UDP_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, UdpAccounts>(text)?;
                (Content::CompareUdp(Box::new(result)), caveats)
            }
            Some(ANALYZE_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, AnalyzeResult>(text)?;
                (Content::Analyze(Box::new(result)), caveats)
            }
            Some(COMPARE_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, CompareResult>(text)?;
                (Content::Compare(Box::new(result)), caveats)
            }
            Some(DIAGNOSE_SCHEMA) => {
                let (asked, results, caveats) = of_test(text, both)?;
                (Content::Diagnose(Box::new(asked), results), caveats)
            }
            Some(DIAGNOSE_FLOWS_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, DiagnosedFlows>(text)?;
                (Content::DiagnoseFlows(Box::new(result)), caveats)
            }
            Some(LONG_PATH_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, LongPathTest>(text)?;
                (Content::LongPath(Box::new(result)), caveats)
            }
            Some(RTT_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, RttResult>(text)?;
                (Content::Rtt(Box::new(result)), caveats)
            }
            Some(HOPS_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, HopsResult>(text)?;
                (Content::Hops(Box::new(result)), caveats)
            }
            Some(SWEEP_SCHEMA) => {
                let Shown { result, caveats, .. } = read::<IgnoredAny, SweepResult>(text)?;
                (Content::Sweep(Box::new(result)), caveats)
            }
            _ => return Err(SavedError::Schema(form.schema)),
        };
        Ok(Self { content, caveats, longhaul: form.longhaul, started_at: form.started_at })
    }

    /// As the test printed it.
    pub fn text(&self) -> String {
        match &self.content {
            Content::Udp(asked, results) => text::udp::report(&asked.udp, results),
            Content::Tcp(asked, results) => text::tcp::report(&asked.tcp, results),
            Content::Watch(result) => text::watch::report(result),
            Content::WatchUdp(result) => text::watch_udp::report(result),
            Content::CompareUdp(result) => text::watch_udp::accounts(result),
            Content::Analyze(result) => text::analyze::report(result),
            Content::Compare(result) => text::compare::report(result),
            Content::Diagnose(asked, results) => text::diagnose::report(asked.reverse, results),
            Content::DiagnoseFlows(result) => text::diagnose::flows(result),
            Content::LongPath(result) => text::long_path::report(result),
            Content::Rtt(result) => text::rtt::report(result),
            Content::Hops(result) => text::hops::report(result),
            Content::Sweep(result) => text::sweep::report(result),
        }
    }
}

fn read<P: DeserializeOwned, R: DeserializeOwned>(text: &str) -> Result<Shown<P, R>, SavedError> {
    serde_json::from_str(text).map_err(SavedError::Broken)
}

fn of_test<P, R>(text: &str, both: bool) -> Result<(P, Directions<R>, Vec<Caveat>), SavedError>
where
    P: DeserializeOwned,
    R: DeserializeOwned,
{
    if both {
        let Shown { parameters, result: Both { forward, backward }, caveats } = read(text)?;
        Ok((parameters, Directions::Both { forward, backward }, caveats))
    } else {
        let Shown { parameters, result, caveats } = read(text)?;
        Ok((parameters, Directions::One(result), caveats))
    }
}

/// `text`, a JSON value, on one line. A line break is never in a string of JSON, so what is around it says nothing.
pub fn on_one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_terms::{Latency, RoundTrips};
    use serde_json::{Value, json};

    use super::*;

    /// Pointers (RFC 6901) to every value in `value`.
    fn pointers(value: &Value, at: String, all: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), all)),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(index, value)| pointers(value, format!("{at}/{index}"), all))
            }
            _ => {}
        }
        all.push(at);
    }

    /// Each value of a result in turn is made the worst that it can be: it is refused, or shown.
    fn no_value_panics(good: &str) {
        let good: Value = serde_json::from_str(good).unwrap();
        let mut all = Vec::new();
        pointers(&good, String::new(), &mut all);
        let worst = [
            Value::Null,
            json!(0),
            json!(u64::MAX),
            json!(-1),
            json!(1e308),
            json!("\u{1b}[2J\nx"),
            json!("x".repeat(10_000)),
            json!([]),
            json!([u32::MAX, u32::MAX]),
            json!({}),
        ];
        let mut shown = 0;
        for pointer in &all {
            for value in &worst {
                let mut bad = good.clone();
                // Keys with a slash are none of ours.
                let Some(place) = bad.pointer_mut(pointer) else { continue };
                *place = value.clone();
                if let Ok(saved) = Saved::parse(&bad.to_string()) {
                    let text = saved.text();
                    assert!(!text.contains('\u{1b}'), "{pointer} = {value}");
                    shown += 1;
                }
            }
        }
        assert!(all.len() > 100 && shown > 100, "{shown} of {}", all.len());
    }

    #[test]
    fn no_value_of_a_result_panics() {
        no_value_panics(include_str!("../../../longhaul/tests/udp-result.json"));
        no_value_panics(include_str!("../../../../fuzz/corpus/saved_result/analyze"));
        no_value_panics(include_str!("../../../../fuzz/corpus/saved_result/compare"));
        no_value_panics(include_str!("../../../../fuzz/corpus/saved_result/rtt"));
        no_value_panics(include_str!("../../../../fuzz/corpus/saved_result/sweep"));
    }

    /// Two counters at their end at a time.
    #[test]
    fn no_sum_of_counters_panics() {
        let shown = |good: &str, changes: &[(&str, Value)]| {
            let mut all: Value = serde_json::from_str(good).unwrap();
            changes.iter().for_each(|(key, value)| all["result"][*key] = value.clone());
            Saved::parse(&all.to_string()).unwrap().text()
        };
        let rtt = include_str!("../../../../fuzz/corpus/saved_result/rtt");
        let text = shown(rtt, &[("duplicates", json!(u64::MAX)), ("reordered", json!(u64::MAX))]);
        assert!(text.contains("18446744073709551615 duplicates, 18446744073709551615 reordered"), "{text}");
        let silent = RoundTrips { probes: u64::MAX, ..RoundTrips::default() };
        let latency = serde_json::to_value(Latency { idle: silent, loaded: silent }).unwrap();
        let text = shown(include_str!("../../../longhaul/tests/udp-result.json"), &[("latency", latency)]);
        assert!(text.contains("0 of 18446744073709551615 ICMP echoes were answered"), "{text}");
    }

    #[test]
    fn line_breaks_between_values_go_and_those_in_strings_stay() {
        let text = "{\n  \"a\": \"x\\n y\",\r\n\t\"b\": [ 1,\n2 ]\n}\n";
        assert_eq!(on_one_line(text), r#"{"a": "x\n y","b": [ 1,2 ]}"#);
        assert_eq!(serde_json::from_str::<Value>(&on_one_line(text)).unwrap(), json!({ "a": "x\n y", "b": [1, 2] }));
    }
}
