//! Experiments: a path and the tests to run over it, as a TOML file (`docs/reference/experiments.md` has every key).
//!
//! ```toml
//! title = "UDP loss against rate"
//! path = "nlr-small"
//! change = ["forward.loss=every(30000)"]
//! [[udp]]
//! name = "1 MiB socket buffer"
//! rates = ["200M", "400M"]
//! sockbuf = "1M"
//! ```
//!
//! Or, in place of `[[udp]]`, series of TCP tests (`tcp.rs`); or, with the key `mix`, a receiver under background traffic (`mix.rs`). `[[finding]]` says what should
//! come of it (`finding.rs`).
//!
//! What is not here: running one (`run/`).

mod change;
mod error;
pub(crate) mod finding;
mod full;
mod mix;
mod program;
mod setting;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::path::{Component, Path};

use longhaul_path::preset;
use longhaul_path::spec::{Direction, PathSpec, QueueLimit};
use longhaul_units::{BitRate, Bytes, TOML_CROWDED, toml_crowded_at};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Table;

use change::apply;
pub use error::ExperimentError;
pub use finding::PaperFinding;
pub use mix::{MixSeries, ReceiverKind};
pub use program::{Parser, Program};
pub use setting::{Emulator, Faulty, HostSettings, PollAt, Setting};
pub use tcp::{TcpFlows, TcpSeries, TcpTest};
pub use udp::{UdpSeries, UdpTest};

/// A file that is longer is none.
pub(crate) const FILE_BYTES_MOST: u64 = 1 << 20;
/// Series of an experiment at most.
const SERIES_MOST: usize = 64;
/// Tests of a series at most, and so values of a list.
const TESTS_MOST: usize = 64;
/// Letters of a title or a name at most: they stand over figures and in tables.
const NAME_LETTERS_MOST: usize = 100;
/// A queue holds at least one frame of Ethernet as hosts send it (L1).
const LONGEST_FRAME_BYTES: u64 = 1538;

/// Experiments that come with longhaul: name and text.
const KNOWN: &[(&str, &str)] = &[
    ("nlr-udp-loss", include_str!("../../../../../experiments/nlr-udp-loss.toml")),
    ("nlr-udp-rings", include_str!("../../../../../experiments/nlr-udp-rings.toml")),
    ("nlr-tcp", include_str!("../../../../../experiments/nlr-tcp.toml")),
    ("nlr-tcp-loss", include_str!("../../../../../experiments/nlr-tcp-loss.toml")),
    ("nlr-batching", include_str!("../../../../../experiments/nlr-batching.toml")),
    ("nlr-batching-tcp", include_str!("../../../../../experiments/nlr-batching-tcp.toml")),
    ("teragrid", include_str!("../../../../../experiments/teragrid.toml")),
    ("datatag-aimd", include_str!("../../../../../experiments/datatag-aimd.toml")),
    ("datatag-loss", include_str!("../../../../../experiments/datatag-loss.toml")),
    ("datatag-switch", include_str!("../../../../../experiments/datatag-switch.toml")),
    ("datatag-transfers", include_str!("../../../../../experiments/datatag-transfers.toml")),
    ("datatag-fairness", include_str!("../../../../../experiments/datatag-fairness.toml")),
    ("datatag-one-against-n", include_str!("../../../../../experiments/datatag-one-against-n.toml")),
    ("datatag-end-systems", include_str!("../../../../../experiments/datatag-end-systems.toml")),
    ("datatag-record", include_str!("../../../../../experiments/datatag-record.toml")),
    ("tapee", include_str!("../../../../../experiments/tapee.toml")),
    ("emulation-matrix", include_str!("../../../../../experiments/emulation-matrix.toml")),
    ("emulators", include_str!("../../../../../experiments/emulators.toml")),
    ("emulators-tcp", include_str!("../../../../../experiments/emulators-tcp.toml")),
    ("nima", include_str!("../../../../../experiments/nima.toml")),
];

/// What `lab run` knows by name.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name).chain(["faults"])
}

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// What it is about, in a line.
    pub title: String,
    /// What it repeats: paper and figure.
    pub source: String,
    /// Where it differs from that, in a few sentences.
    pub note: String,
    /// Rates, buffers, windows and queues are scaled to what this machine can do ([`Experiment::scaled`]).
    pub calibrate: bool,
    /// The path of all series; one without a hop where it is of background traffic.
    pub path: PathSpec,
    /// Its series of UDP tests; empty where it is of another kind.
    pub udp: Vec<UdpSeries>,
    /// Its series of TCP tests; empty where it is of another kind.
    pub tcp: Vec<TcpSeries>,
    /// Its series of receivers under background traffic; empty where it is of another kind.
    pub mix: Vec<MixSeries>,
    /// What should come of it.
    pub findings: Vec<PaperFinding>,
}

/// How often each point of a series is run, and which are enough for a quick look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// Runs of each point, at least 1.
    pub count: u32,
    /// The numbers of the points that `--quick` runs, from 0.
    pub quick: Vec<usize>,
}

impl Repeats {
    /// Runs of each point where nobody says how many: enough for an interval that is not much wider than it could be.
    const DEFAULT: u32 = 5;
    /// Runs of each point at most.
    pub(crate) const MOST: u32 = 1000;

    /// `points` are their labels. Without a list, the first and the last are quick.
    fn of(
        place: &str,
        (own, common): (Option<u32>, Option<u32>),
        quick: Option<Vec<String>>,
        points: &[String],
    ) -> Result<Self, ExperimentError> {
        let count = own.or(common).unwrap_or(Self::DEFAULT);
        if !(1..=Self::MOST).contains(&count) {
            return Err(ExperimentError::at(format_args!("{place}.repeat"), format!("{count}: 1 to {}", Self::MOST)));
        }
        let number_of = |label: &String| number_of(&format!("{place}.quick"), label, points);
        let mut quick = match quick {
            None => vec![0, points.len() - 1],
            Some(labels) => labels.iter().map(number_of).collect::<Result<Vec<_>, _>>()?,
        };
        quick.sort_unstable();
        quick.dedup();
        Ok(Self { count, quick })
    }
}

/// The number, from 0, of the point with this label.
fn number_of(key: &str, label: &str, points: &[String]) -> Result<usize, ExperimentError> {
    points.iter().position(|point| point == label).ok_or_else(|| {
        let why = format!("`{}`: the points are {}", label.escape_debug(), points.join(", "));
        ExperimentError::at(key, why)
    })
}

/// What the source has at points of a series, by their numbers from 0, in the unit of the main mean: bits a second of TCP, percent lost of UDP.
pub type PaperValues = BTreeMap<usize, f64>;

/// The values that a series of `points` says its source has.
fn paper_values(
    place: &str,
    written: BTreeMap<String, f64>,
    points: &[String],
) -> Result<PaperValues, ExperimentError> {
    let key = format!("{place}.paper_values");
    let value = |(label, value): (String, f64)| {
        if !value.is_finite() || value < 0.0 {
            return Err(ExperimentError::at(&key, format!("{value}: a number of 0 or more")));
        }
        Ok((number_of(&key, &label, points)?, value))
    };
    written.into_iter().map(value).collect()
}

impl Experiment {
    /// The same with `factor` times the rates, the buffers, windows and transfers, and the queues: what takes a time takes the same time, with fewer packets. `factor` is
    /// above 0, and 1 at most.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        scale_path(&mut scaled.path, factor);
        for series in &mut scaled.udp {
            scale_path(&mut series.path, factor);
            if factor != 1.0 && !series.changes.is_empty() {
                series.changes.push(format!("and {factor} times all rates and queues"));
            }
            series.scale(factor);
        }
        for series in &mut scaled.tcp {
            scale_path(&mut series.path, factor);
            if factor != 1.0 && !series.changes.is_empty() {
                series.changes.push(format!("and {factor} times all rates and queues"));
            }
            series.scale(factor);
        }
        scaled
    }

    /// All that makes a run of it what it is, as a text to compare: two with the same identity have the same tests over the same paths.
    pub fn identity(&self) -> String {
        let mut alike = self.clone();
        let once = Repeats { count: 1, quick: Vec::new() };
        // The path of a series follows from the path of all and the changes: printed for each series, what is long would be 64 times as long.
        for series in &mut alike.udp {
            (series.repeats, series.path) = (once.clone(), PathSpec::default());
            series.paper_values.clear();
        }
        for series in &mut alike.tcp {
            (series.repeats, series.path) = (once.clone(), PathSpec::default());
            series.paper_values.clear();
        }
        for series in &mut alike.mix {
            series.repeats = once.clone();
            series.paper_received.clear();
        }
        // Words about it change nothing, and neither does what should come of it.
        (alike.note, alike.source, alike.findings) = (String::new(), String::new(), Vec::new());
        format!("{alike:?}")
    }

    /// Whether netem emulates the path of a point.
    pub fn needs_netem(&self) -> bool {
        let udp = self.udp.iter().flat_map(|series| series.tests.iter().map(|test| &test.setting));
        let tcp = self.tcp.iter().flat_map(|series| series.tests.iter().map(|test| &test.setting));
        udp.chain(tcp).any(|setting| setting.emulator == Emulator::Netem)
    }

    /// The commands that it runs beside longhaul's own tests, each with its series.
    pub fn commands(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tcp.iter().flat_map(|series| {
            let program = series.tests.first().and_then(|test| test.program.as_ref());
            let commands = program.into_iter().flat_map(|program| program.server.iter().chain([&program.client]));
            commands.map(|command| (series.name.as_str(), command.as_str()))
        })
    }

    /// Its path in words: name, round trip, slowest hop.
    pub fn path_in_words(&self) -> String {
        if !self.mix.is_empty() {
            return "a cable between two hosts".into();
        }
        let path = &self.path;
        let rate = Direction::BOTH.into_iter().filter_map(|direction| path.bottleneck(direction)).min();
        let rate = rate.map_or_else(String::new, |rate| format!(", slowest hop {rate}"));
        format!("{}: {} round trip{rate}", path.name, path.round_trip())
    }
}

/// The text form of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    note: String,
    path: String,
    #[serde(default)]
    calibrate: bool,
    repeat: Option<u32>,
    #[serde(default)]
    change: Vec<String>,
    #[serde(default)]
    udp: Vec<udp::UdpText>,
    #[serde(default)]
    tcp: Vec<tcp::TcpText>,
    #[serde(default)]
    finding: Vec<finding::FindingText>,
    /// `full.rs` reads it.
    #[serde(rename = "full")]
    _full: Option<Table>,
}

impl Experiment {
    /// The experiment that comes with longhaul under that name, else the file there.
    ///
    /// # Errors
    /// Where it is neither, or the file is refused.
    pub fn load(name_or_file: &str) -> Result<Self, ExperimentError> {
        Self::load_forms(name_or_file).map(|(short, _)| short)
    }

    /// The same, and with the sizes of its source where it has others ([`Experiment::forms`]).
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn load_forms(name_or_file: &str) -> Result<(Self, Option<Self>), ExperimentError> {
        if let Some((name, text)) = KNOWN.iter().find(|(name, _)| *name == name_or_file) {
            return Self::forms(text, Path::new("")).map_err(|error| error.in_file(name));
        }
        let file = Path::new(name_or_file);
        let text = longhaul_units::read_text(file, FILE_BYTES_MOST).map_err(|error| {
            let known: Vec<&str> = names().collect();
            let meant = longhaul_units::nearest(name_or_file, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            let known = known.join(", ");
            ExperimentError::new(format!("{error}{meant}; give a file, or one of {known}")).in_file(name_or_file)
        })?;
        Self::forms(&text, file.parent().unwrap_or(Path::new(""))).map_err(|error| error.in_file(name_or_file))
    }

    /// Reads the text of an experiment. A path or mix file that it names lies in `folder` or below.
    ///
    /// # Errors
    /// The text is not TOML, lacks a key, or has an unknown key or a value that is not allowed.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ExperimentError> {
        // What is wrong in `full` is said before anybody asks for it.
        Self::forms(text, folder).map(|(short, _)| short)
    }

    /// The same, and with what the text has in tables `full` in place of what stands beside them: the sizes of the source. `None` where these are no
    /// others.
    ///
    /// # Errors
    /// As [`Experiment::parse`].
    pub fn forms(text: &str, folder: &Path) -> Result<(Self, Option<Self>), ExperimentError> {
        let short = Self::parse_form(text, folder).map_err(|error| error.located(text))?;
        let full = full::with_sources_sizes(text).map_err(|error| error.located(text))?;
        let full = full.map(|full| Self::of_table(full, folder).map_err(ExperimentError::in_full)).transpose()?;
        let full = full.filter(|full| *full != short);
        Ok((short, full))
    }

    fn of_table(table: Table, folder: &Path) -> Result<Self, ExperimentError> {
        let wrong = |error: toml::de::Error| ExperimentError::of_toml(&error, "");
        match table.contains_key("mix") {
            true => Self::of_mix(table.try_into().map_err(wrong)?, folder),
            false => Self::from_text(table.try_into().map_err(wrong)?, folder),
        }
    }

    fn parse_form(text: &str, folder: &Path) -> Result<Self, ExperimentError> {
        #[derive(Deserialize)]
        struct Form {
            mix: Option<IgnoredAny>,
        }
        let form: Form = read_toml(text)?;
        match form.mix {
            Some(_) => Self::of_mix(read_toml(text)?, folder),
            None => Self::from_text(read_toml(text)?, folder),
        }
    }

    fn from_text(written: Text, folder: &Path) -> Result<Self, ExperimentError> {
        let title = name_of("title", &written.title)?;
        let (udp, tcp) = (written.udp.len(), written.tcp.len());
        if udp > 0 && tcp > 0 {
            return Err(ExperimentError::at("tcp", "an experiment is of UDP or of TCP: make two files of it"));
        }
        if !(1..=SERIES_MOST).contains(&(udp + tcp)) {
            let (key, other) = if tcp > 0 { ("tcp", "udp") } else { ("udp", "tcp") };
            let why = format!("{} of them, 1 to {SERIES_MOST}; or so many of {other}", udp + tcp);
            return Err(ExperimentError::at(key, why));
        }
        let (mut path, mut listed_packets) = (load_path(&written.path, folder)?, 0);
        apply("change", &written.change, &mut path, &mut listed_packets)?;
        let series = |(number, series)| {
            UdpSeries::from_text(&format!("udp[{number}]"), series, &path, written.repeat, &mut listed_packets)
        };
        let udp: Vec<UdpSeries> = written.udp.into_iter().enumerate().map(series).collect::<Result<_, _>>()?;
        let series = |(number, series)| {
            TcpSeries::from_text(&format!("tcp[{number}]"), series, &path, written.repeat, &mut listed_packets)
        };
        let tcp: Vec<TcpSeries> = written.tcp.into_iter().enumerate().map(series).collect::<Result<_, _>>()?;
        unlike("udp", udp.iter().map(|one| &one.name))?;
        unlike("tcp", tcp.iter().map(|one| &one.name))?;
        let findings = finding::Subjects::of(&udp, &tcp).findings(written.finding)?;
        let Text { source, note, calibrate, .. } = written;
        Ok(Self { title, source, note, calibrate, path, udp, tcp, mix: Vec::new(), findings })
    }
}

/// Reads a text of TOML. It has no more tables and lists than a file of its length has: each takes a kilobyte of memory.
pub(crate) fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, ExperimentError> {
    match toml_crowded_at(text) {
        Some(at) => Err(ExperimentError::new(TOML_CROWDED).at_byte(at, text)),
        None => toml::from_str(text).map_err(|error| ExperimentError::of_toml(&error, text)),
    }
}

fn times(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).round() as u64
}

/// `factor` times the rates and the queues.
fn scale_path(path: &mut PathSpec, factor: f64) {
    let rate = |rate: &mut BitRate| *rate = BitRate(times(rate.0, factor).max(1_000));
    let queue = |queue: &mut QueueLimit| match queue {
        QueueLimit::Unlimited => {}
        QueueLimit::Bytes(bytes) => *bytes = Bytes(times(bytes.0, factor).max(LONGEST_FRAME_BYTES)),
        QueueLimit::Packets(packets) => *packets = times(*packets, factor).max(1),
    };
    for hop in path.forward.iter_mut().chain(&mut path.backward) {
        hop.rate.as_mut().map(rate);
        queue(&mut hop.queue);
    }
    for host in path.clients.iter_mut().chain(&mut path.servers) {
        host.rate.as_mut().map(rate);
        queue(&mut host.queue);
    }
}

/// No two are called alike.
fn unlike<'a>(key: &str, names: impl Iterator<Item = &'a String>) -> Result<(), ExperimentError> {
    let names: Vec<&String> = names.collect();
    match names.iter().enumerate().find(|(number, name)| names[..*number].contains(name)) {
        None => Ok(()),
        Some((number, name)) => {
            Err(ExperimentError::at(format!("{key}[{number}].name"), format!("`{name}` is another's name already")))
        }
    }
}

/// The title or name that `text` is.
pub(crate) fn name_of(key: &str, text: &str) -> Result<String, ExperimentError> {
    one_line(key, text, NAME_LETTERS_MOST)
}

/// `text` without the blanks around it, of `most` letters at most. What a table, a page or a label has of a file is read by this: each may have it for each
/// of its tests.
fn one_line(key: &str, text: &str, most: usize) -> Result<String, ExperimentError> {
    let line = text.trim();
    if line.is_empty() || line.chars().nth(most).is_some() || line.contains(char::is_control) {
        return Err(ExperimentError::at(key, format!("1 to {most} letters in a line")));
    }
    Ok(line.to_owned())
}

fn load_path(name_or_file: &str, folder: &Path) -> Result<PathSpec, ExperimentError> {
    if let Some(known) = preset::find(name_or_file) {
        return known.spec().map_err(|error| ExperimentError::at("path", error));
    }
    if !is_toml_below(name_or_file) {
        let why = "neither a preset (see longhaul paths) nor a .toml file in the experiment's folder or below it";
        return Err(ExperimentError::at("path", format!("`{}`: {why}", name_or_file.escape_debug())));
    }
    PathSpec::load(&folder.join(name_or_file)).map_err(|error| ExperimentError::at("path", error))
}

/// Whether it can be a TOML file in the experiment's folder or below it: an experiment from elsewhere must not make root show parts of any file of the
/// machine.
fn is_toml_below(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    name.ends_with(".toml") && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use longhaul_terms::SoftirqPlacement;
    use longhaul_units::Nanos;

    use super::*;

    const GOOD: &str = r#"
title = "loss"
path = "nlr-small"
change = ["forward.loss=every(30000)"]
[[udp]]
name = "small"
rates = ["200M", "1.2G"]
sockbuf = "64K"
softirq = "same"
poll_interval = "4ms"
change = ["rate=1Gbit"]
"#;

    #[test]
    fn the_known_ones_are_read() {
        for (name, _) in KNOWN {
            let (experiment, full) = Experiment::load_forms(name).unwrap();
            assert!(!experiment.source.is_empty() && !experiment.note.is_empty(), "{name}");
            for form in [Some(experiment), full].into_iter().flatten() {
                let udp = form.udp.iter().map(|series| &series.repeats);
                let tcp = form.tcp.iter().map(|series| &series.repeats);
                let mut all = udp.chain(tcp).chain(form.mix.iter().map(|series| &series.repeats));
                assert!(all.all(|repeats| repeats.count >= 3), "{name}: an interval of three runs at least");
            }
        }
        // That of `make demo` is read from its file.
        let demo =
            Experiment::load(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments/demo-tcp.toml")).unwrap();
        let about: Vec<&str> = demo.findings.iter().map(|finding| finding.quantity.as_str()).collect();
        assert_eq!(about, ["goodput_bps", "share_of_expected"]);
    }

    /// Section 3.3 of the paper has a window for 1 Gb/s on each ring; hosts on a patch cable have that of the tiny ring.
    #[test]
    fn the_rings_have_the_papers_windows_in_both_experiments() {
        for name in ["nlr-tcp", "nlr-tcp-loss"] {
            let (_, full) = Experiment::load_forms(name).unwrap();
            for series in full.unwrap().tcp {
                let papers = match series.name.split(' ').next() {
                    Some("Patch" | "Tiny") => "2M",
                    Some("Small") => "9.4M",
                    Some("Medium") => "17.3M",
                    Some("Large") => "24.4M",
                    other => panic!("{name}: {other:?} is none of the rings"),
                };
                let papers = Some(papers.parse::<Bytes>().unwrap().0);
                let mut windows = series.tests.iter().map(|test| test.flows.parameters.window_bytes);
                assert!(windows.all(|window| window == papers), "{name}, {}: not {papers:?}", series.name);
            }
        }
    }

    #[test]
    fn a_series_has_its_own_path_and_parameters() {
        let experiment = Experiment::parse(GOOD, Path::new("")).unwrap();
        let series = &experiment.udp[0];
        let parameters = &series.tests[1].parameters;
        assert_eq!(parameters.rate(), Some(BitRate(1_200_000_000)));
        assert_eq!((parameters.sockbuf_bytes, parameters.wire), (Some(64 << 10), true));
        assert_eq!(parameters.affinity.softirq, Some(SoftirqPlacement::Same));
        assert_eq!(series.path.forward[0].rate, Some(BitRate::from_gbit(1)));
        assert_eq!((series.repeats.count, series.repeats.quick.as_slice()), (5, [0, 1].as_slice()));
        assert_eq!(experiment.path.forward[0].rate, Some(BitRate::from_gbit(10)));
        assert_eq!(series.path.forward[0].loss, experiment.path.forward[0].loss);
    }

    /// Spacings are an axis as rates are, and so are pairs of hosts; a host with a faulty card is the same in all.
    #[test]
    fn spacings_and_pairs_are_axes() {
        let text = "title = 'x'\npath = 'teragrid'\n[[udp]]\nname = 'p'\nspacings = ['10us', '20us']\nlength = [100, 1000]\n\
                    pairs = [['west1', 'east2'], ['east1', 'indiana2']]\nfaulty = { host = 'indiana2', drops_one_in = 227 }\n";
        let experiment = Experiment::parse(text, Path::new("")).unwrap();
        let tests = &experiment.udp[0].tests;
        assert_eq!(tests.len(), 8);
        let last = &tests[7];
        assert_eq!(last.label, "east1 → indiana2, every 20us, 1000 bytes");
        // By hand: 8000 bits each 20 us.
        assert_eq!((last.rate(), last.between.hosts()), (BitRate(400_000_000), ("east1", "indiana2")));
        assert_eq!(last.setting.faulty.as_ref().map(|faulty| faulty.drops_one_in), Some(227));
        let half = &experiment.scaled(0.5).udp[0].tests[7];
        assert_eq!(
            (half.label.as_str(), half.rate()),
            ("east1 → indiana2, every 40us, 1000 bytes", BitRate(200_000_000))
        );
    }

    /// What fills in a time fills in the same time: rates, buffers and queues shrink alike, the ring is polled as much more seldom.
    #[test]
    fn an_experiment_is_scaled_as_a_whole() {
        let whole = Experiment::parse(GOOD, Path::new("")).unwrap();
        let (whole, half) = (&whole.udp[0], &whole.scaled(0.5).udp[0]);
        let seen: Vec<_> = half.tests.iter().map(|test| (test.label.as_str(), test.rate())).collect();
        assert_eq!(seen, [("100", BitRate(100_000_000)), ("600", BitRate(600_000_000))]);
        assert_eq!(
            (half.tests[0].parameters.sockbuf_bytes, half.tests[0].setting.poll_interval),
            (Some(32 << 10), Some(Nanos::from_millis(8)))
        );
        assert_eq!(half.path.forward[0].rate, Some(BitRate(500_000_000)));
        assert_eq!(half.path.round_trip(), whole.path.round_trip());
        let bytes = |series: &UdpSeries| match series.path.forward[0].queue {
            QueueLimit::Bytes(bytes) => bytes.0,
            _ => 0,
        };
        assert!(bytes(half) > 0 && bytes(half) * 2 == bytes(whole));
    }

    /// Where rates are scaled, the source's loss stands beside ours, but not its goodput.
    #[test]
    fn points_have_what_the_source_has() {
        let text = GOOD.replace("sockbuf = \"64K\"", "paper_values = { 1200 = 12 }");
        let udp = Experiment::parse(&text, Path::new("")).unwrap();
        let text =
            "title = 'x'\npath = 'lan'\n[[tcp]]\nname = 't'\ncongestion = ['reno']\npaper_values = { reno = 1.9e9 }\n";
        let tcp = Experiment::parse(text, Path::new("")).unwrap();
        assert_eq!(udp.udp[0].paper_values, BTreeMap::from([(1, 12.0)]));
        assert_eq!(tcp.tcp[0].paper_values, BTreeMap::from([(0, 1.9e9)]));
        assert_eq!(udp.scaled(0.5).udp[0].paper_values.len(), 1);
        assert_eq!((tcp.scaled(1.0).tcp[0].paper_values.len(), tcp.scaled(0.5).tcp[0].paper_values.len()), (1, 0));
    }

    /// By hand: 66 transfers of 2 GB are 132 GB, 1.056e12 bits, in 1200 s. A fiftieth of the rate has other numbers, of which the talk has none.
    #[test]
    fn the_talks_transfers_are_goodput_at_its_sizes() {
        let (short, full) = Experiment::load_forms("datatag-transfers").unwrap();
        assert!(short.tcp.iter().all(|series| series.paper_values.is_empty()));
        let full = full.unwrap();
        assert_eq!(full.tcp[0].paper_values[&4], 880e6);
        let transfers = |series: &TcpSeries| -> Vec<f64> {
            series.paper_values.values().map(|bps| (bps * 1200.0 / 16e9).round()).collect()
        };
        let talks = [[7.0, 14.0, 27.0, 47.0, 66.0], [16.0, 39.0, 60.0, 86.0, 106.0], [44.0, 93.0, 135.0, 140.0, 142.0]];
        assert_eq!(full.tcp.iter().map(transfers).collect::<Vec<_>>(), talks);
    }

    /// One line each: where, the key, and what is allowed.
    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (from, to, said) in [
            (
                "sockbuf",
                "sokbuf",
                "8:1: unknown field `sokbuf`, expected one of `name`, `paper`, `paper_values`, `rates`, `spacings`, `pairs`",
            ),
            ("\"same\"", "\"both\"", "unknown variant `both`, expected `same` or `split`"),
            ("\"200M\"", "\"fast\"", "is not a number of 0 or more with a unit (bit, kbit"),
            ("\"64K\"", "\"1\"", "8: udp[0].sockbuf: 1B: 2K to 2G"),
            ("sockbuf = \"64K\"", "repeat = 0", "8: udp[0].repeat: 0: 1 to 1000"),
            ("sockbuf = \"64K\"", "quick = ['300']", "udp[0].quick: `300`: the points are 200, 1200"),
            (
                "sockbuf = \"64K\"",
                "paper_values = { 300 = 1 }",
                "8: udp[0].paper_values: `300`: the points are 200, 1200",
            ),
            ("sockbuf = \"64K\"", "paper_values = { 200 = -1 }", "udp[0].paper_values: -1: a number of 0 or more"),
            ("\"4ms\"", "\"4s\"", "udp[0].poll_interval: 4s: 1us to 1s, or none"),
            ("poll_interval = \"4ms\"", "poll_at = \"both\"", "udp[0].poll_at: say how often by poll_interval"),
            ("\"4ms\"", "\"often\"", "10:17: udp.poll_interval: none, or a time: "),
            ("sockbuf = \"64K\"", "hosts = { mtu = [60, 1500] }", "udp[0].hosts.mtu: 60: 68 to 65535"),
            (
                "sockbuf = \"64K\"",
                "hosts = { mtu = [] }",
                "8:17: udp.hosts.mtu: an empty list: give a value, or several",
            ),
            ("sockbuf = \"64K\"", "hosts = { mut = 1500 }", "unknown field `mut`, expected one of `mtu`, `txqueuelen`"),
            ("sockbuf = \"64K\"", "hosts = { qdisc = 'a b' }", "udp[0].hosts.qdisc: `a b`: a queueing discipline"),
            ("sockbuf = \"64K\"", "ip = 5", "udp[0].ip: 5: 4 or 6"),
            ("sockbuf = \"64K\"", "time = '1s'\npackets = 3", "udp[0].packets: give `time` or `packets`"),
            ("rate=1Gbit", "rat=1Gbit", "udp[0].change[0]: `rat`: no such key, did you mean rate? use"),
            ("every(30000)", "every(0)", "change[0]: loss: "),
            ("\"nlr-small\"", "\"/etc/shadow\"", "path: `/etc/shadow`: neither a preset"),
            ("\"nlr-small\"", "\"../x.toml\"", "path: `../x.toml`: neither a preset"),
            ("[\"200M\", \"1.2G\"]", "[]", "udp[0].rates: 0 of them, 1 to 64"),
            ("sockbuf = \"64K\"", "spacings = [\"10us\"]", "udp[0].spacings: give `rates` or `spacings`"),
            (
                "poll_interval = \"4ms\"",
                "pairs = [[\"client\", \"far\"]]",
                "udp[0].pairs: `far`: servers of the path are server",
            ),
            ("sockbuf = \"64K\"", "pairs = [[\"client\", \"server\"]]", "udp[0].poll_interval: not with `pairs`"),
            (
                "sockbuf = \"64K\"",
                "faulty = { host = \"far\", drops_one_in = 9 }",
                "udp[0].faulty.host: `far`: the path has client, server",
            ),
            (
                "sockbuf = \"64K\"",
                "faulty = { host = \"server\", drops_one_in = 0 }",
                "udp[0].faulty.drops_one_in: 0: 1 or more",
            ),
            ("\"small\"", "\"\"", "udp[0].name: 1 to 100 letters in a line"),
            ("title = \"loss\"", "", "missing field `title`"),
            (
                "[[udp]]",
                "[[tcp]]",
                "unknown field `rates`, expected one of `name`, `paper`, `paper_values`, `congestion`",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().in_file("x.toml").to_string();
            assert!(error.contains(said), "{to}: {error}");
            assert!(error.starts_with("x.toml:") && error.lines().count() == 1, "{error}");
        }
        // Two bytes of a key are a table.
        let dotted = "a.b.b.b.b.b.b.b.b = 1\n".repeat(50_000);
        let error = Experiment::parse(&dotted, Path::new("")).unwrap_err().to_string();
        assert_eq!(error, "9844:16:more tables, lists and dots in keys than a file of this length has");
        let (_, series) = GOOD.split_once("[[udp]]").unwrap();
        for name in ["\"small\"", "\" small  \""] {
            let twice = format!("{GOOD}[[udp]]{}", series.replace("\"small\"", name));
            let error = Experiment::parse(&twice, Path::new("")).unwrap_err().to_string();
            assert_eq!(error, "13:udp[1].name: `small` is another's name already", "{name}");
        }
    }
}
