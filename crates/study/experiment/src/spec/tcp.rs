//! `[[tcp]]`: tests that differ in their congestion control, number of flows, window, and settings of the hosts.

use std::collections::BTreeMap;

use longhaul_lab::plan::{self, DEFAULT_MTU};
use longhaul_path::spec::PathSpec;
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::{Amount, SOCKBUF_LEAST, SoftirqPlacement};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Deserialize;
use toml::Table;

use super::change::apply;
use super::error::ExperimentError;
use super::program::{Program, ProgramText};
use super::setting::{Axis, Emulator, HostsText, POLL_INTERVALS, PollAt, PollText, Setting, SettingText, product};
use super::{PaperValues, Repeats, TESTS_MOST, name_of, one_line, paper_values, times};

/// Letters of a congestion control or a schedule at most: with all that makes a label of it, it is no longer than a saved result may have one.
const CONGESTION_LETTERS_MOST: usize = 200;

/// TCP tests to the server, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpSeries {
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
    pub tests: Vec<TcpTest>,
    /// How often.
    pub repeats: Repeats,
}

/// One test, or two that share the path.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpTest {
    /// What it is called below its bar: `scalable`, `scalable × 4`.
    pub label: String,
    /// What the hosts are like.
    pub setting: Setting,
    /// Whose flows are measured.
    pub flows: TcpFlows,
    /// What runs in place of them; `None`: longhaul's own test.
    pub program: Option<Program>,
    /// Headers are captured at both ends.
    pub capture: bool,
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

impl TcpSeries {
    /// Sets rates, windows and transfers to `factor` times what they are; the ring is polled as much more seldom. The source's goodput is then no
    /// longer that of these tests.
    pub(super) fn scale(&mut self, factor: f64) {
        if factor != 1.0 {
            self.paper_values.clear();
        }
        for test in &mut self.tests {
            let slower = |interval: Nanos| Nanos(times(interval.0, 1.0 / factor)).min(*POLL_INTERVALS.end());
            test.setting.poll_interval = test.setting.poll_interval.map(slower);
            for flows in [Some(&mut test.flows), test.beside.as_mut()].into_iter().flatten() {
                let own = &mut flows.parameters;
                let scale = |number: &mut u64, least: u64| *number = times(*number, factor).max(least);
                own.window_bytes = own.window_bytes.map(|bytes| times(bytes, factor).max(SOCKBUF_LEAST.0));
                [&mut own.pace_bps, &mut own.write_rate_bps, &mut own.read_rate_bps, &mut own.rate_goal_bps]
                    .into_iter()
                    .flatten()
                    .for_each(|rate| scale(rate, 1_000));
                if let Amount::Bytes(bytes) = &mut own.amount {
                    scale(bytes, 1);
                }
                if let Some(transfers) = &mut own.transfers {
                    scale(&mut transfers.bytes, 1);
                }
            }
        }
    }
}

/// The text form of a series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpText {
    name: String,
    #[serde(default)]
    paper: String,
    #[serde(default)]
    paper_values: BTreeMap<String, f64>,
    congestion: Vec<String>,
    repeat: Option<u32>,
    quick: Option<Vec<String>>,
    #[serde(default = "one_flow")]
    flows: Vec<u8>,
    host: Option<String>,
    #[serde(default = "ten_seconds")]
    time: Nanos,
    bytes: Option<Bytes>,
    #[serde(default)]
    omit: Nanos,
    window: Option<Bytes>,
    #[serde(default)]
    windows: Vec<Bytes>,
    #[serde(default)]
    hosts: HostsText,
    #[serde(default)]
    poll_interval: Axis<PollText>,
    poll_at: Option<PollAt>,
    #[serde(default)]
    softirq: Axis<SoftirqPlacement>,
    #[serde(default)]
    ip: Axis<u8>,
    #[serde(default)]
    emulator: Axis<Emulator>,
    pace: Option<BitRate>,
    mss: Option<u32>,
    beside: Option<BesideText>,
    program: Option<ProgramText>,
    #[serde(default)]
    capture: bool,
    /// Each packet travels alone through the path.
    #[serde(default)]
    wire: bool,
    #[serde(default)]
    change: Vec<String>,
    #[serde(rename = "full")]
    _full: Option<Table>,
}

/// The text form of what runs at the same time; what it does not say is as in the series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BesideText {
    host: Option<String>,
    congestion: Option<String>,
    #[serde(default)]
    flows: Axis<u8>,
    mss: Option<u32>,
}

fn one_flow() -> Vec<u8> {
    vec![1]
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
        listed_packets: &mut usize,
    ) -> Result<Self, ExperimentError> {
        let at = |key: &str| format!("{place}.{key}");
        let name = name_of(&at("name"), &written.name)?;
        if written.window.is_some() && !written.windows.is_empty() {
            return Err(ExperimentError::at(at("windows"), "give `window` or `windows`"));
        }
        let windows: Vec<Option<Bytes>> = match written.windows.as_slice() {
            [] => vec![written.window],
            several => several.iter().copied().map(Some).collect(),
        };
        let mut path = path.clone();
        apply(&at("change"), &written.change, &mut path, listed_packets)?;
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
        let (softirq, ip, emulator, poll_at) = (written.softirq, written.ip, written.emulator, written.poll_at);
        let poll_interval = written.poll_interval;
        let setting = SettingText { hosts: written.hosts, poll_interval, poll_at, softirq, ip, emulator };
        let others = written.beside.as_ref().map_or(1, |beside| beside.flows.count());
        let lists = [setting.count(), written.congestion.len(), written.flows.len(), windows.len(), others];
        let count = product(&lists);
        if !(1..=TESTS_MOST).contains(&count) {
            let why = format!("{count} tests of `congestion`, `flows`, `windows` and lists, 1 to {TESTS_MOST}");
            return Err(ExperimentError::at(place, why));
        }
        let control = |(number, control): (usize, &String)| {
            one_line(&at(&format!("congestion[{number}]")), control, CONGESTION_LETTERS_MOST)
        };
        let controls: Vec<String> = written.congestion.iter().enumerate().map(control).collect::<Result<_, _>>()?;
        let mut settings = setting.settings(place, &path)?;
        settings.iter_mut().for_each(|(_, setting)| setting.wire = written.wire);
        let program = written.program.map(|program| Program::from_text(&at("program"), program)).transpose()?;
        if program.is_some() {
            let mine = [
                ("beside", written.beside.is_some()),
                ("capture", written.capture),
                ("bytes", written.bytes.is_some()),
                ("window", windows != [None]),
                ("pace", written.pace.is_some()),
                ("mss", written.mss.is_some()),
                ("softirq", !setting.softirq.0.is_empty()),
            ];
            if let Some((key, _)) = mine.iter().find(|(_, given)| *given) {
                return Err(ExperimentError::at(at(key), "not with `program`: say it in the program's own arguments"));
            }
        }
        let (capture, program) = (written.capture, &program);
        let time = Amount::DurationNs(written.time.0);
        let amount = written.bytes.map_or(time, |size| Amount::Bytes(size.0));
        let common = TcpParameters {
            omit_ns: written.omit.0,
            pace_bps: written.pace.map(|rate| rate.0),
            // The receiver says five times a second what its host dropped.
            interval_ns: Some(200_000_000),
            // What a page draws over time is in the samples, and what each step of a schedule got.
            keep_samples: true,
            ..TcpParameters::default()
        };
        let schedule = |control: &str| {
            let steps = control.split(',').map(|step| step.trim().parse::<CongestionStep>());
            steps.collect::<Result<Vec<_>, _>>().map_err(|error| ExperimentError::at(at("congestion"), error))
        };
        let checked = |parameters: TcpParameters| {
            parameters.validate().map_err(|error| ExperimentError::parameter(place, &error))?;
            Ok::<_, ExperimentError>(parameters)
        };
        let mut tests = Vec::new();
        // From the outermost axis to the innermost, as they stand in the figure.
        for (words, setting) in settings {
            for (control, streams) in
                controls.iter().flat_map(|control| written.flows.iter().map(move |flows| (control, *flows)))
            {
                for window in &windows {
                    let window_bytes = window.map(|size| size.0);
                    let congestion = schedule(control)?;
                    let of = |congestion: Vec<CongestionStep>, streams, mss_bytes, amount| {
                        checked(TcpParameters {
                            amount,
                            congestion,
                            streams,
                            window_bytes,
                            mss_bytes,
                            ..common.clone()
                        })
                    };
                    let own_flows = of(congestion.clone(), streams, written.mss, amount)?;
                    let flows = TcpFlows { host: own.clone(), parameters: own_flows };
                    let mut label = match (written.flows.len() > 1, window.filter(|_| windows.len() > 1)) {
                        (false, None) => control.clone(),
                        (true, None) => format!("{control} × {streams}"),
                        (false, Some(window)) if controls.len() == 1 => window.to_string(),
                        (false, Some(window)) => format!("{control} {window}"),
                        (true, Some(window)) => format!("{control} × {streams} {window}"),
                    };
                    words.iter().for_each(|word| label += &format!(", {word}"));
                    let Some((beside, host)) = written.beside.as_ref().zip(other.as_ref()) else {
                        let (setting, program) = (setting.clone(), program.clone());
                        tests.push(TcpTest { label, setting, flows, program, capture, beside: None });
                        continue;
                    };
                    let theirs = beside.congestion.as_deref().map_or(Ok(congestion), schedule)?;
                    let counts: &[u8] = if beside.flows.0.is_empty() { &[1] } else { &beside.flows.0 };
                    for count in counts {
                        // Nothing shows over time what was dropped of flows beside.
                        let parameters = TcpParameters {
                            interval_ns: None,
                            ..of(theirs.clone(), *count, beside.mss.or(written.mss), time)?
                        };
                        let beside = Some(TcpFlows { host: host.clone(), parameters });
                        let many = if counts.len() > 1 { format!(", beside {count}") } else { String::new() };
                        let (label, setting, flows) = (label.clone() + &many, setting.clone(), flows.clone());
                        tests.push(TcpTest { label, setting, flows, program: None, capture, beside });
                    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_path::spec::QueueLimit;
    use longhaul_tcp::Transfers;

    use super::super::Experiment;
    use super::*;

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

    /// Each test, each table and each line of a result has the label.
    #[test]
    fn blanks_and_zeros_make_no_label_long() {
        let labels = |text: &str| -> Vec<String> {
            let experiment = Experiment::parse(text, Path::new("")).unwrap();
            experiment.tcp[0].tests.iter().map(|test| test.label.clone()).collect()
        };
        let blanks = " ".repeat(70_000);
        let around = GOOD.replace("['reno', 'scalable']", &format!("['reno{blanks}', '{blanks}scalable']"));
        assert_eq!(labels(&around), labels(GOOD));
        for inside in [format!("reno:{}2s,cubic:3s", "0".repeat(200)), format!("reno:2s,{blanks}cubic:3s")] {
            let text = GOOD.replace("'reno', 'scalable'", &format!("'{inside}'"));
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert_eq!(error, "5:tcp[0].congestion[0]: 1 to 200 letters in a line");
        }
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
        assert_eq!(series.tests[0].setting.words(), ["MTU 9000", "SACK off"]);
        assert_eq!(series.tests[1].beside.as_ref().unwrap().parameters.window_bytes, large);
    }

    /// What takes a time takes the same time, with fewer packets: rates, windows, transfers and queues shrink alike, the ring is polled as much more
    /// seldom.
    #[test]
    fn a_series_is_scaled_as_a_whole() {
        let with = "window = '1M'\nbytes = '8M'\npace = '2G'\npoll_interval = '4ms'\nchange = ['delay=10ms']";
        let mut whole = Experiment::parse(&GOOD.replace("flows = [1, 4]", with), Path::new("")).unwrap();
        // No key of a file sets these.
        let own = &mut whole.tcp[0].tests[0].flows.parameters;
        (own.write_rate_bps, own.read_rate_bps, own.rate_goal_bps) = (Some(400_000), Some(1_500), Some(800_000));
        own.transfers = Some(Transfers { bytes: 3_000, every_ns: 5_000_000 });
        let scaled = whole.scaled(0.5);
        let (whole, half) = (&whole.tcp[0], &scaled.tcp[0]);
        let test = &half.tests[0];
        let own = &test.flows.parameters;
        assert_eq!((own.window_bytes, own.amount), (Some(512 << 10), Amount::Bytes(4 << 20)));
        // Not below 1 kb/s, which is the least that a test takes.
        let rates = [own.pace_bps, own.write_rate_bps, own.read_rate_bps, own.rate_goal_bps];
        assert_eq!(rates, [Some(1_000_000_000), Some(200_000), Some(1_000), Some(400_000)]);
        assert_eq!(own.transfers, Some(Transfers { bytes: 1_500, every_ns: 5_000_000 }));
        assert_eq!(test.setting.poll_interval, Some(Nanos::from_millis(8)));
        let beside = &test.beside.as_ref().unwrap().parameters;
        assert_eq!((beside.window_bytes, beside.pace_bps), (Some(512 << 10), Some(1_000_000_000)));
        assert_eq!((beside.amount, own.streams, own.omit_ns), (Amount::DurationNs(5_000_000_000), 1, 1_000_000_000));
        for path in [&half.path, &scaled.path] {
            assert_eq!(path.forward[0].rate, Some(BitRate::from_gbit(5)));
            assert_eq!(path.backward[0].queue, QueueLimit::Bytes(Bytes(1 << 20)));
        }
        assert_eq!((half.path.round_trip(), &half.repeats), (whole.path.round_trip(), &whole.repeats));
        assert_eq!(half.changes, ["delay=10ms", "and 0.5 times all rates and queues"]);
        // A socket buffer cannot be as small as that.
        let least = scaled.scaled(1e-6);
        assert_eq!(least.tcp[0].tests[0].flows.parameters.window_bytes, Some(SOCKBUF_LEAST.0));
    }

    /// Each key with several values is an axis; those with one say nothing in a label.
    #[test]
    fn settings_of_the_hosts_are_axes() {
        let text = GOOD
            .replace("['reno', 'scalable']", "['reno:2s,cubic:3s']")
            .replace(
                "flows = [1, 4]",
                "hosts = { mtu = [1500, 9000], offloads = false }\nip = [4, 6]\npoll_interval = ['none', '1ms']",
            )
            .replace("mss = 536", "flows = [1, 16]");
        let tests = &Experiment::parse(&text, Path::new("")).unwrap().tcp[0].tests;
        assert_eq!(tests.len(), 16);
        assert_eq!(tests[0].label, "reno:2s,cubic:3s, MTU 1500, IPv4, not polled, beside 1");
        let last = &tests[15];
        assert_eq!(last.label, "reno:2s,cubic:3s, MTU 9000, IPv6, polled every 1ms, beside 16");
        assert_eq!(
            (last.setting.hosts.mtu, last.setting.hosts.offloads, last.setting.ipv6),
            (Some(9000), Some(false), true)
        );
        assert_eq!(last.setting.poll_interval, Some(longhaul_units::Nanos::from_millis(1)));
        assert_eq!(last.beside.as_ref().unwrap().parameters.streams, 16);
        let steps: Vec<_> = last.flows.parameters.congestion_starts().map(|(at, name)| (at.0, name)).collect();
        assert_eq!(steps, [(0, "reno"), (2_000_000_000, "cubic")]);
        assert!(last.flows.parameters.keep_samples, "what each step got is in the samples");
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (from, to, said) in [
            ("flows = [1, 4]", "flows = []", "tcp[0]: 0 tests of `congestion`, `flows`, `windows` and lists, 1 to 64"),
            ("omit = '1s'", "hosts = { mtu = 60 }", "tcp[0].hosts.mtu: 60: 68 to 65535"),
            ("omit = '1s'", "bytes = '0'", "8:tcp[0].bytes: 0"),
            (
                "congestion = ['reno', 'scalable']",
                "congestion = ['reno:5s,scalable']",
                "tcp[0].congestion: scalable from 5s on",
            ),
            ("congestion = ['reno', 'scalable']", "congestion = ['reno:5,scalable']", "tcp[0].congestion: reno: "),
            ("mss = 536 }", "flows = [1, 65] }", "tcp[0].flows: 65"),
            (
                "omit = '1s'",
                "program = { client = 'iperf3', parse = 'iperf3' }",
                "tcp[0].beside: not with `program`: say it in the program's own arguments",
            ),
            (
                "omit = '1s'",
                "program = { client = 'x', parse = 'scp' }",
                "unknown variant `scp`, expected one of `iperf3`, `curl`, `rsync`",
            ),
            ("omit = '1s'", "softirq = 'both'", "unknown variant `both`, expected `same` or `split`"),
            ("omit = '1s'", "window = '1M'\nwindows = ['2M']", "tcp[0].windows: give `window` or `windows`"),
            ("flows = [1, 4]", "flows = [0]", "tcp[0].flows: 0"),
            ("'reno'", "'../x'", "tcp[0].congestion:"),
            ("host = 'client'", "host = 'far'", "tcp[0].beside.host: `far`: the path has client, server"),
            ("omit =", "omitt =", "unknown field `omitt`"),
            ("mss = 1000", "mss = 1", "9:tcp[0].mss: 1"),
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
