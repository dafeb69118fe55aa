//! `[[udp]]`: tests that differ in their rate or spacing, the length of their packets, their hosts, and settings of the hosts.

use std::collections::BTreeMap;

use longhaul_lab::plan::{self, DEFAULT_MTU};
use longhaul_path::spec::{PathEnd, PathSpec};
use longhaul_report::html::udp_loss::{Pair, mbit};
use longhaul_terms::{Affinity, Amount, SOCKBUF_LEAST, SoftirqPlacement};
use longhaul_udp::{Pace, Timestamps, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Deserialize;
use toml::Table;

use super::change::apply;
use super::error::ExperimentError;
use super::setting::{
    Axis, Emulator, Faulty, HostsText, POLL_INTERVALS, PollAt, PollText, Setting, SettingText, product,
};
use super::{PaperValues, Repeats, TESTS_MOST, name_of, paper_values, times};

/// UDP tests from client to server.
#[derive(Debug, Clone, PartialEq)]
pub struct UdpSeries {
    /// What sets it apart from the others.
    pub name: String,
    /// What the source has there.
    pub paper: String,
    /// The same as numbers.
    pub paper_values: PaperValues,
    /// What was changed of the path, as it was written.
    pub changes: Vec<String>,
    /// The path with those changes.
    pub path: PathSpec,
    /// Each a point.
    pub tests: Vec<UdpTest>,
    /// How often.
    pub repeats: Repeats,
}

/// One test.
#[derive(Debug, Clone, PartialEq)]
pub struct UdpTest {
    /// What it is called: its hosts where they are given, its rate in Mb/s or its spacing, and what else sets it apart.
    pub label: String,
    /// What sets it apart beside its rate.
    words: Vec<String>,
    /// What the hosts are like.
    pub setting: Setting,
    /// How it is sent.
    pub parameters: UdpParameters,
    /// Delay and loss of each packet are compared with what the path asks.
    pub exact: bool,
    /// Who sends to whom.
    pub between: Between,
}

/// Who sends to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Between {
    /// The first client to the first server.
    ClientAndServer,
    /// A client to a server, each by its name.
    Named(Pair),
}

impl Between {
    /// The hosts by name.
    pub fn hosts(&self) -> (&str, &str) {
        match self {
            Self::ClientAndServer => ("client", "server"),
            Self::Named(Pair { from, to }) => (from, to),
        }
    }

    /// Those that the experiment names.
    pub fn pair(&self) -> Option<&Pair> {
        match self {
            Self::ClientAndServer => None,
            Self::Named(pair) => Some(pair),
        }
    }
}

impl UdpTest {
    fn name(&mut self) {
        let pace = match self.parameters.pace {
            Pace::SpacingNs(ns) => format!("every {}", Nanos(ns)),
            _ => mbit(self.rate().0),
        };
        let pair = self.between.pair().map(Pair::words);
        self.label = pair.into_iter().chain([pace]).chain(self.words.iter().cloned()).collect::<Vec<_>>().join(", ");
    }

    /// Payload bits a second.
    pub fn rate(&self) -> BitRate {
        self.parameters.rate().unwrap_or_default()
    }
}

impl UdpSeries {
    /// Sets rates and buffers to `factor` times what they are; the ring is polled as much more seldom.
    pub(super) fn scale(&mut self, factor: f64) {
        for test in &mut self.tests {
            test.parameters.pace = match test.parameters.pace {
                Pace::SpacingNs(ns) => Pace::SpacingNs(times(ns, 1.0 / factor).max(1)),
                _ => Pace::RateBps(times(test.rate().0, factor).max(1_000)),
            };
            let buffers = test.parameters.sockbuf_bytes;
            test.parameters.sockbuf_bytes = buffers.map(|bytes| times(bytes, factor).max(SOCKBUF_LEAST.0));
            let slower = |interval: Nanos| Nanos(times(interval.0, 1.0 / factor)).min(*POLL_INTERVALS.end());
            test.setting.poll_interval = test.setting.poll_interval.map(slower);
            test.name();
        }
    }
}

/// The text form of a series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UdpText {
    name: String,
    #[serde(default)]
    paper: String,
    #[serde(default)]
    paper_values: BTreeMap<String, f64>,
    #[serde(default)]
    rates: Vec<BitRate>,
    /// From the departure of a packet to the next, in place of rates.
    #[serde(default)]
    spacings: Vec<Nanos>,
    /// Names of a client and a server each.
    #[serde(default)]
    pairs: Vec<(String, String)>,
    faulty: Option<Faulty>,
    repeat: Option<u32>,
    quick: Option<Vec<String>>,
    /// Long enough for some 30,000 packets at 400 Mb/s, so that a loss of one in 1000 shows.
    time: Option<Nanos>,
    packets: Option<u64>,
    #[serde(default)]
    length: Axis<u32>,
    sockbuf: Option<Bytes>,
    #[serde(default)]
    softirq: Axis<SoftirqPlacement>,
    /// A drop takes one packet, as on a wire.
    #[serde(default = "yes")]
    wire: bool,
    #[serde(default)]
    poll_interval: Axis<PollText>,
    poll_at: Option<PollAt>,
    #[serde(default)]
    hosts: HostsText,
    #[serde(default)]
    ip: Axis<u8>,
    #[serde(default)]
    emulator: Axis<Emulator>,
    /// Compare each packet with what the path asks.
    #[serde(default)]
    exact: bool,
    #[serde(default)]
    change: Vec<String>,
    #[serde(rename = "full")]
    _full: Option<Table>,
}

fn yes() -> bool {
    true
}

impl UdpText {
    /// Its rates, or its spacings.
    fn paces(&self, place: &str) -> Result<Vec<Pace>, ExperimentError> {
        let at = |key: &str, why: String| ExperimentError::at(format_args!("{place}.{key}"), why);
        if !self.rates.is_empty() && !self.spacings.is_empty() {
            return Err(at("spacings", "give `rates` or `spacings`".into()));
        }
        let paces: Vec<Pace> = match self.spacings.as_slice() {
            [] => self.rates.iter().map(|rate| Pace::RateBps(rate.0)).collect(),
            spacings => spacings.iter().map(|spacing| Pace::SpacingNs(spacing.0)).collect(),
        };
        match paces.len() {
            1..=TESTS_MOST => Ok(paces),
            count => Err(at("rates", format!("{count} of them, 1 to {TESTS_MOST}"))),
        }
    }

    /// Its pairs; one of client and server if it gives none.
    fn pairs_of(&self, place: &str, path: &PathSpec) -> Result<Vec<Between>, ExperimentError> {
        if self.pairs.is_empty() {
            return Ok(vec![Between::ClientAndServer]);
        }
        let at = |key: &str, why: String| ExperimentError::at(format_args!("{place}.{key}"), why);
        // What is set at, or read from, the first client and the first server would say nothing of other hosts.
        let of_first = [
            ("exact", self.exact),
            ("poll_interval", !self.poll_interval.0.is_empty()),
            ("emulator", !self.emulator.0.is_empty()),
        ];
        if let Some((key, _)) = of_first.iter().find(|(_, given)| *given) {
            return Err(at(key, "not with `pairs`".into()));
        }
        let (clients, servers) = (path.host_names(PathEnd::Client), path.host_names(PathEnd::Server));
        let known = |name: &String, hosts: &[String], which: &str| match hosts.contains(name) {
            true => Ok(name.clone()),
            false => {
                let why = format!("`{}`: {which} of the path are {}", name.escape_debug(), hosts.join(", "));
                Err(at("pairs", why))
            }
        };
        let pair = |(from, to): &(String, String)| {
            Ok(Between::Named(Pair { from: known(from, &clients, "clients")?, to: known(to, &servers, "servers")? }))
        };
        self.pairs.iter().map(pair).collect()
    }

    /// The host with a faulty card, which the path has.
    fn faulty_of(&self, place: &str, path: &PathSpec) -> Result<Option<Faulty>, ExperimentError> {
        let Some(faulty) = &self.faulty else { return Ok(None) };
        let at = |key: &str, why: String| ExperimentError::at(format_args!("{place}.{key}"), why);
        let hosts = plan::hosts(path, DEFAULT_MTU);
        if !hosts.iter().any(|host| host.is(&faulty.host)) {
            let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
            let why = format!("`{}`: the path has {}", faulty.host.escape_debug(), names.join(", "));
            return Err(at("faulty.host", why));
        }
        if faulty.drops_one_in == 0 {
            return Err(at("faulty.drops_one_in", "0: 1 or more".into()));
        }
        Ok(Some(faulty.clone()))
    }
}

impl UdpSeries {
    pub(super) fn from_text(
        place: &str,
        written: UdpText,
        path: &PathSpec,
        repeat: Option<u32>,
        listed_packets: &mut usize,
    ) -> Result<Self, ExperimentError> {
        let at = |key: &str| format!("{place}.{key}");
        let name = name_of(&at("name"), &written.name)?;
        let paces = written.paces(place)?;
        let amount = match (written.time, written.packets) {
            (Some(_), Some(_)) => return Err(ExperimentError::at(at("packets"), "give `time` or `packets`")),
            (None, Some(packets)) => Amount::Packets(packets),
            (time, None) => Amount::DurationNs(time.unwrap_or(Nanos::from_secs(1)).0),
        };
        let mut path = path.clone();
        apply(&at("change"), &written.change, &mut path, listed_packets)?;
        let pairs = written.pairs_of(place, &path)?;
        let faulty = written.faulty_of(place, &path)?;
        let UdpText { hosts, poll_interval, poll_at, softirq, ip, emulator, exact, .. } = written;
        let setting = SettingText { hosts, poll_interval, poll_at, softirq, ip, emulator };
        let count = product(&[setting.count(), written.length.count(), paces.len(), pairs.len()]);
        if count > TESTS_MOST {
            let why = format!("{count} tests of its rates and lists, 1 to {TESTS_MOST}");
            return Err(ExperimentError::at(place, why));
        }
        let settings = setting.settings(place, &path)?;
        let common = UdpParameters {
            amount,
            sockbuf_bytes: written.sockbuf.map(|size| size.0),
            wire: written.wire,
            interval_ns: None,
            each_packet: exact,
            timestamps: if exact { Timestamps::Kernel } else { Timestamps::default() },
            ..UdpParameters::default()
        };
        let mut tests = Vec::new();
        for (words, setting) in settings {
            let setting = Setting { faulty: faulty.clone(), ..setting };
            let with_length = |mut parameters: UdpParameters, bytes: u32| {
                parameters.payload_bytes = bytes;
                parameters
            };
            let lengths = written.length.each(
                vec![(words, common.clone())],
                |bytes| format!("{bytes} bytes"),
                |parameters, bytes| *parameters = with_length(parameters.clone(), *bytes),
            );
            for (words, parameters) in lengths {
                for (pace, between) in paces.iter().flat_map(|pace| pairs.iter().map(move |pair| (pace, pair))) {
                    let parameters = UdpParameters {
                        pace: *pace,
                        affinity: Affinity { softirq: setting.softirq, ..Affinity::default() },
                        ..parameters.clone()
                    };
                    parameters.validate().map_err(|error| ExperimentError::parameter(place, &error))?;
                    let (setting, words, between) = (setting.clone(), words.clone(), between.clone());
                    let mut test = UdpTest { label: String::new(), words, setting, parameters, exact, between };
                    test.name();
                    tests.push(test);
                }
            }
        }
        let labels: Vec<String> = tests.iter().map(|test| test.label.clone()).collect();
        let mut changes = written.change;
        if tests.iter().all(|test| test.setting.emulator == Emulator::Netem) {
            changes.push("netem in place of longhaul's emulator".into());
        }
        let repeats = Repeats::of(place, (written.repeat, repeat), written.quick, &labels)?;
        let paper_values = paper_values(place, written.paper_values, &labels)?;
        Ok(Self { name, paper: written.paper, paper_values, changes, path, tests, repeats })
    }
}
