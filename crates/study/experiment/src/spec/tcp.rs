//! `[[tcp]]`: tests that differ in their congestion control and number of flows.

use longhaul_lab::plan::{self, DEFAULT_MTU};
use longhaul_path::spec::PathSpec;
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::Amount;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Deserialize;

use super::{ExperimentError, Repeats, apply, check_name};

/// Tests of a series at most.
const TESTS_MOST: usize = 64;

/// TCP tests to the server, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpSeries {
    /// What sets it apart from the others.
    pub name: String,
    /// What the source has there.
    pub paper: String,
    /// What was changed of the path, as it was written.
    pub changes: Vec<String>,
    /// The path with those changes.
    pub path: PathSpec,
    /// How the hosts differ from a lab's.
    pub hosts: HostSettings,
    /// Each a point.
    pub tests: Vec<TcpTest>,
    /// How often.
    pub repeats: Repeats,
}

/// Settings of both hosts; what is not said is as in any lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// MTU of their interfaces, bytes.
    pub mtu: Option<u32>,
    /// Packets that a queue of an interface holds.
    pub txqueuelen: Option<u32>,
    /// Selective acknowledgments.
    pub sack: Option<bool>,
    /// TCP time stamps.
    pub timestamps: Option<bool>,
}

impl HostSettings {
    /// As in any lab.
    pub(crate) const LIKE_A_LAB: Self = Self { mtu: None, txqueuelen: None, sack: None, timestamps: None };

    /// Each as it is written.
    pub fn words(&self) -> Vec<String> {
        let on = |on: bool| if on { "on" } else { "off" };
        let Self { mtu, txqueuelen, sack, timestamps } = *self;
        let words = [
            mtu.map(|bytes| format!("MTU of the hosts {bytes}")),
            txqueuelen.map(|packets| format!("txqueuelen {packets}")),
            sack.map(|is| format!("SACK {}", on(is))),
            timestamps.map(|is| format!("time stamps {}", on(is))),
        ];
        words.into_iter().flatten().collect()
    }
}

/// One test, or two that share the path.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpTest {
    /// What it is called below its bar: `scalable`, `scalable × 4`.
    pub label: String,
    /// Whose flows are measured.
    pub flows: TcpFlows,
    /// Others at the same time.
    pub beside: Option<TcpFlows>,
}

/// Flows of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpFlows {
    /// The host that sends.
    pub host: String,
    /// How.
    pub parameters: TcpParameters,
}

/// The text form of a series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpText {
    name: String,
    #[serde(default)]
    paper: String,
    congestion: Vec<String>,
    repeat: Option<u32>,
    quick: Option<Vec<String>>,
    #[serde(default = "one_flow")]
    flows: Vec<u8>,
    host: Option<String>,
    #[serde(default = "ten_seconds")]
    time: Nanos,
    #[serde(default)]
    omit: Nanos,
    window: Option<Bytes>,
    #[serde(default)]
    windows: Vec<Bytes>,
    #[serde(default)]
    hosts: HostSettings,
    pace: Option<BitRate>,
    mss: Option<u32>,
    beside: Option<BesideText>,
    #[serde(default)]
    change: Vec<String>,
}

/// The text form of what runs at the same time; what it does not say is as in the series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BesideText {
    host: Option<String>,
    congestion: Option<String>,
    #[serde(default = "one")]
    flows: u8,
    mss: Option<u32>,
}

fn one_flow() -> Vec<u8> {
    vec![1]
}

fn one() -> u8 {
    1
}

fn ten_seconds() -> Nanos {
    Nanos::from_secs(10)
}

impl TcpSeries {
    pub(super) fn from_text(
        place: &str,
        written: TcpText,
        path: &PathSpec,
        repeat: Option<u32>,
    ) -> Result<Self, ExperimentError> {
        let at = |key: &str| format!("{place}.{key}");
        check_name(&at("name"), &written.name)?;
        if written.window.is_some() && !written.windows.is_empty() {
            return Err(ExperimentError::at(at("windows"), "give `window` or `windows`"));
        }
        let windows: Vec<Option<Bytes>> = match written.windows.as_slice() {
            [] => vec![written.window],
            several => several.iter().copied().map(Some).collect(),
        };
        let count = written.congestion.len() * written.flows.len() * windows.len();
        if !(1..=TESTS_MOST).contains(&count) {
            let why = format!("{count} tests of `congestion`, `flows` and `windows`, 1 to {TESTS_MOST}");
            return Err(ExperimentError::at(place, why));
        }
        let mtus = 68..=65_535;
        if let Some(mtu) = written.hosts.mtu.filter(|mtu| !mtus.contains(mtu)) {
            return Err(ExperimentError::at(at("hosts.mtu"), format!("{mtu}: 68 to 65535")));
        }
        let mut path = path.clone();
        apply(&at("change"), &written.change, &mut path)?;
        let clients: Vec<String> = plan::hosts(&path, DEFAULT_MTU).into_iter().map(|host| host.name).collect();
        let host = |key: &str, wanted: &Option<String>| match wanted {
            None => Ok(clients[0].clone()),
            Some(name) if clients.contains(name) => Ok(name.clone()),
            Some(name) => {
                let why = format!("`{}`: the path has {}", name.escape_debug(), clients.join(", "));
                Err(ExperimentError::at(at(key), why))
            }
        };
        let own = host("host", &written.host)?;
        let other = written.beside.as_ref().map(|beside| host("beside.host", &beside.host)).transpose()?;
        let parameters = |control: &str, streams: u8, window: Option<Bytes>, mss_bytes: Option<u32>| {
            let parameters = TcpParameters {
                amount: Amount::DurationNs(written.time.0),
                omit_ns: written.omit.0,
                streams,
                congestion: vec![CongestionStep { name: control.to_owned(), duration_ns: None }],
                window_bytes: window.map(|size| size.0),
                pace_bps: written.pace.map(|rate| rate.0),
                mss_bytes,
                interval_ns: None,
                ..TcpParameters::default()
            };
            parameters.validate().map_err(|error| ExperimentError::parameter(place, &error))?;
            Ok::<_, ExperimentError>(parameters)
        };
        let mut tests = Vec::new();
        let axes =
            written.congestion.iter().flat_map(|control| written.flows.iter().map(move |flows| (control, *flows)));
        for ((control, streams), window) in axes.flat_map(|axis| windows.iter().map(move |window| (axis, *window))) {
            let own_flows = parameters(control, streams, window, written.mss)?;
            let flows = TcpFlows { host: own.clone(), parameters: own_flows };
            let beside = match (&written.beside, &other) {
                (Some(beside), Some(host)) => {
                    let control = beside.congestion.as_ref().unwrap_or(control);
                    let parameters = parameters(control, beside.flows, window, beside.mss.or(written.mss))?;
                    Some(TcpFlows { host: host.clone(), parameters })
                }
                _ => None,
            };
            let of_window = window.filter(|_| windows.len() > 1).map(|window| window.to_string());
            let of_flows = (written.flows.len() > 1).then(|| format!("{control} × {streams}"));
            let label = match (of_flows, of_window) {
                (None, None) => control.clone(),
                (Some(flows), None) => flows,
                (None, Some(window)) if written.congestion.len() == 1 => window,
                (flows, Some(window)) => format!("{} {window}", flows.as_ref().unwrap_or(control)),
            };
            tests.push(TcpTest { label, flows, beside });
        }
        let labels: Vec<String> = tests.iter().map(|test| test.label.clone()).collect();
        let repeats = Repeats::of(place, (written.repeat, repeat), written.quick, &labels)?;
        let hosts = written.hosts;
        Ok(Self { name: written.name, paper: written.paper, changes: written.change, path, hosts, tests, repeats })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Experiment;

    const GOOD: &str = "title = 'x'\npath = 'lan'\n[[tcp]]\nname = 'both'\ncongestion = ['reno', 'scalable']\nflows = [1, 4]\n\
                        time = '5s'\nomit = '1s'\nmss = 1000\nbeside = { host = 'client', congestion = 'cubic', mss = 536 }\n";

    #[test]
    fn each_control_runs_with_each_number_of_flows() {
        let experiment = Experiment::parse(GOOD, Path::new("")).unwrap();
        let tests = &experiment.tcp[0].tests;
        let labels: Vec<&str> = tests.iter().map(|test| test.label.as_str()).collect();
        assert_eq!(labels, ["reno × 1", "reno × 4", "scalable × 1", "scalable × 4"]);
        let (flows, beside) = (&tests[3].flows, tests[3].beside.as_ref().unwrap());
        assert_eq!(
            (flows.host.as_str(), flows.parameters.streams, flows.parameters.mss_bytes),
            ("client", 4, Some(1000))
        );
        assert_eq!(beside.parameters.congestion[0].name, "cubic");
        assert_eq!((beside.parameters.streams, beside.parameters.mss_bytes), (1, Some(536)));
        assert_eq!(beside.parameters.omit_ns, 1_000_000_000);
    }

    #[test]
    fn windows_are_an_axis_and_hosts_have_settings() {
        let text = GOOD.replace("flows = [1, 4]", "windows = ['1M', '64M']\nhosts = { mtu = 9000, sack = false }");
        let series = &Experiment::parse(&text, Path::new("")).unwrap().tcp[0];
        let seen: Vec<_> =
            series.tests.iter().map(|test| (test.label.as_str(), test.flows.parameters.window_bytes)).collect();
        let [small, large] = [Some(1 << 20), Some(64 << 20)];
        assert_eq!(seen.iter().map(|(_, window)| *window).collect::<Vec<_>>(), [small, large, small, large]);
        assert!(seen[0].0.starts_with("reno ") && seen[3].0.starts_with("scalable "), "{seen:?}");
        assert_eq!(series.hosts.words(), ["MTU of the hosts 9000", "SACK off"]);
        assert_eq!(series.tests[1].beside.as_ref().unwrap().parameters.window_bytes, large);
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (from, to, said) in [
            ("flows = [1, 4]", "flows = []", "tcp[0]: 0 tests of `congestion`, `flows` and `windows`, 1 to 64"),
            ("omit = '1s'", "hosts = { mtu = 60 }", "tcp[0].hosts.mtu: 60: 68 to 65535"),
            ("omit = '1s'", "window = '1M'\nwindows = ['2M']", "tcp[0].windows: give `window` or `windows`"),
            ("flows = [1, 4]", "flows = [0]", "tcp[0].streams: 0"),
            ("'reno'", "'../x'", "tcp[0].congestion:"),
            ("host = 'client'", "host = 'far'", "tcp[0].beside.host: `far`: the path has client, server"),
            ("omit =", "omitt =", "unknown field `omitt`"),
            ("mss = 1000", "mss = 1", "tcp[0].mss_bytes: 1"),
            ("'both'", "''", "tcp[0].name: 1 to 100 letters"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{to}: {error}");
        }
        let both = format!("{GOOD}[[udp]]\nname = 'u'\nrates = ['1M']\n");
        let error = Experiment::parse(&both, Path::new("")).unwrap_err().to_string();
        assert_eq!(error, "tcp: an experiment is of UDP or of TCP: make two files of it");
        let none = "title = 'x'\npath = 'lan'\n";
        let error = Experiment::parse(none, Path::new("")).unwrap_err().to_string();
        assert_eq!(error, "udp: 0 of them, 1 to 64; or so many of tcp");
    }
}
