//! `[[udp]]`: tests that differ in their rate, the length of their packets, and settings of the hosts.

use longhaul_path::spec::PathSpec;
use longhaul_report::html::udp_loss::mbit;
use longhaul_terms::{Affinity, Amount, SOCKBUF_LEAST, SoftirqPlacement};
use longhaul_udp::{Pace, Timestamps, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Deserialize;

use super::error::ExperimentError;
use super::setting::{Axis, Emulator, HostsText, POLL_INTERVALS, PollText, Setting, SettingText};
use super::{Repeats, apply, check_name, times};

/// Tests of a series at most.
const TESTS_MOST: usize = 64;

/// UDP tests from client to server.
#[derive(Debug, Clone, PartialEq)]
pub struct UdpSeries {
    /// What sets it apart from the others.
    pub name: String,
    /// What the source has there.
    pub paper: String,
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
    /// What it is called: its rate in Mb/s, with what else sets it apart.
    pub label: String,
    /// What sets it apart beside its rate.
    words: Vec<String>,
    /// What the hosts are like.
    pub setting: Setting,
    /// How it is sent.
    pub parameters: UdpParameters,
    /// Delay and loss of each packet are compared with what the path asks.
    pub exact: bool,
}

impl UdpTest {
    fn name(&mut self) {
        let rate = mbit(self.rate().0);
        self.label = std::iter::once(&rate).chain(&self.words).cloned().collect::<Vec<_>>().join(", ");
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
            let rate = BitRate(times(test.rate().0, factor).max(1_000));
            test.parameters.pace = Pace::RateBps(rate.0);
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
    rates: Vec<BitRate>,
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
}

fn yes() -> bool {
    true
}

impl UdpSeries {
    pub(super) fn from_text(
        place: &str,
        written: UdpText,
        path: &PathSpec,
        repeat: Option<u32>,
    ) -> Result<Self, ExperimentError> {
        let at = |key: &str| format!("{place}.{key}");
        check_name(&at("name"), &written.name)?;
        if !(1..=TESTS_MOST).contains(&written.rates.len()) {
            let why = format!("{} of them, 1 to {TESTS_MOST}", written.rates.len());
            return Err(ExperimentError::at(at("rates"), why));
        }
        let amount = match (written.time, written.packets) {
            (Some(_), Some(_)) => return Err(ExperimentError::at(at("packets"), "give `time` or `packets`")),
            (None, Some(packets)) => Amount::Packets(packets),
            (time, None) => Amount::DurationNs(time.unwrap_or(Nanos::from_secs(1)).0),
        };
        let mut path = path.clone();
        apply(&at("change"), &written.change, &mut path)?;
        let UdpText { hosts, poll_interval, softirq, ip, emulator, exact, .. } = written;
        let settings = SettingText { hosts, poll_interval, softirq, ip, emulator }.settings(place, &path)?;
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
                for rate in &written.rates {
                    let parameters = UdpParameters {
                        pace: Pace::RateBps(rate.0),
                        affinity: Affinity { softirq: setting.softirq, ..Affinity::default() },
                        ..parameters.clone()
                    };
                    parameters.validate().map_err(|error| ExperimentError::parameter(place, &error))?;
                    let (setting, words) = (setting.clone(), words.clone());
                    let mut test = UdpTest { label: String::new(), words, setting, parameters, exact };
                    test.name();
                    tests.push(test);
                }
            }
        }
        if tests.len() > TESTS_MOST {
            let why = format!("{} tests of its rates and lists, 1 to {TESTS_MOST}", tests.len());
            return Err(ExperimentError::at(place, why));
        }
        let labels: Vec<String> = tests.iter().map(|test| test.label.clone()).collect();
        let mut changes = written.change;
        if tests.iter().all(|test| test.setting.emulator == Emulator::Netem) {
            changes.push("netem in place of longhaul's emulator".into());
        }
        let repeats = Repeats::of(place, (written.repeat, repeat), written.quick, &labels)?;
        Ok(Self { name: written.name, paper: written.paper, changes, path, tests, repeats })
    }
}
