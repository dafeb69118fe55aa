//! How the hosts of a point differ from a lab's, and the axes that several values of a key make.
//!
//! Every setting lives in the lab: in the network namespace of a host, or on its interface. Nothing of the machine itself changes.

use std::fmt;
use std::marker::PhantomData;

use longhaul_path::spec::PathSpec;
use longhaul_profile::Netem;
use longhaul_terms::SoftirqPlacement;
use longhaul_units::Nanos;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, SeqAccess, Visitor};

use super::TESTS_MOST;
use super::error::{ExperimentError, takes};

/// How seldom and how often a ring can be polled.
pub(super) const POLL_INTERVALS: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(1)..=Nanos::from_secs(1);
/// Longest name of a queueing discipline (`IFNAMSIZ`).
const QDISC_LETTERS_MOST: usize = 15;

/// What the hosts of a point are like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// How both hosts differ from a lab's.
    pub hosts: HostSettings,
    /// How often a ring is polled; `None`: each frame as it comes.
    pub poll_interval: Option<Nanos>,
    /// Whose ring that is.
    pub poll_at: PollAt,
    /// The receiver beside its softirq; `None`: the scheduler decides.
    pub softirq: Option<SoftirqPlacement>,
    /// Over IPv6 in place of IPv4.
    pub ipv6: bool,
    /// Each packet travels alone through the emulator.
    pub wire: bool,
    /// What emulates the path.
    pub emulator: Emulator,
    /// A host whose network card is faulty.
    pub faulty: Option<Faulty>,
}

/// A host that drops datagrams which reach it, as a faulty network card does: by a rule of nftables where they enter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faulty {
    /// Its name.
    pub host: String,
    /// Of so many datagrams of UDP it drops one.
    pub drops_one_in: u32,
}

/// Whose receive ring is polled at intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollAt {
    /// The server's: data waits in it.
    #[default]
    Server,
    /// The first client's: acknowledgments wait in it.
    Client,
    /// Both.
    Both,
}

impl PollAt {
    /// The hosts, by the names that they have in every lab.
    pub fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Server => &["server"],
            Self::Client => &["client"],
            Self::Both => &["server", "client"],
        }
    }

    /// Of rings that are polled: whose they are, where it is not the server's alone.
    pub fn words(self) -> &'static str {
        match self {
            Self::Server => "",
            Self::Client => " at the client",
            Self::Both => " at both hosts",
        }
    }
}

/// What emulates a path between the hosts of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Emulator {
    /// longhaul's own.
    #[default]
    Longhaul,
    /// Linux's netem, at the two ports of a bridge (`run/netem.rs`).
    Netem,
}

impl Emulator {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::Netem => "netem",
        }
    }
}

/// Settings of both hosts; what is not said is as in any lab.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSettings {
    /// MTU of their interfaces, bytes.
    pub mtu: Option<u32>,
    /// Packets that a queue of an interface holds.
    pub txqueuelen: Option<u32>,
    /// Queueing discipline of their interfaces.
    pub qdisc: Option<String>,
    /// Segmentation offloads and coalescing of their interfaces.
    pub offloads: Option<bool>,
    /// Selective acknowledgments.
    pub sack: Option<bool>,
    /// TCP time stamps.
    pub timestamps: Option<bool>,
}

impl HostSettings {
    /// Each as it is written.
    pub fn words(&self) -> Vec<String> {
        let Self { mtu, txqueuelen, qdisc, offloads, sack, timestamps } = self;
        let words = [
            mtu.map(|bytes| format!("MTU {bytes}")),
            txqueuelen.map(|packets| format!("txqueuelen {packets}")),
            qdisc.as_ref().map(|kind| format!("qdisc {kind}")),
            offloads.map(|is| format!("offloads {}", on(is))),
            sack.map(|is| format!("SACK {}", on(is))),
            timestamps.map(|is| format!("time stamps {}", on(is))),
        ];
        words.into_iter().flatten().collect()
    }
}

impl Setting {
    /// Each as it is written; a label has those that its series has several of.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.hosts.words();
        words.extend(self.ipv6.then(|| "IPv6".to_owned()));
        words.extend(self.poll_interval.map(|interval| polled(interval) + self.poll_at.words()));
        words.extend(self.softirq.map(placed));
        words.extend((self.emulator == Emulator::Netem).then(|| "netem".to_owned()));
        words.extend(self.faulty.as_ref().map(Faulty::words));
        words
    }
}

impl Faulty {
    /// In words.
    pub fn words(&self) -> String {
        format!("{} drops one in {} datagrams that reach it", self.host, self.drops_one_in)
    }
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn polled(interval: Nanos) -> String {
    format!("polled every {interval}")
}

fn placed(placement: SoftirqPlacement) -> String {
    match placement {
        SoftirqPlacement::Same => "softirq on the same CPU",
        SoftirqPlacement::Split => "softirq on another CPU",
    }
    .to_owned()
}

/// The keys of a series that say it.
pub(super) struct SettingText {
    pub(super) hosts: HostsText,
    pub(super) poll_interval: Axis<PollText>,
    pub(super) poll_at: Option<PollAt>,
    pub(super) softirq: Axis<SoftirqPlacement>,
    pub(super) ip: Axis<u8>,
    pub(super) emulator: Axis<Emulator>,
}

/// `hosts = { … }`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostsText {
    mtu: Axis<u32>,
    txqueuelen: Axis<u32>,
    qdisc: Axis<String>,
    offloads: Axis<bool>,
    sack: Axis<bool>,
    timestamps: Axis<bool>,
}

/// A time, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PollText(Option<Nanos>);

impl<'de> Deserialize<'de> for PollText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "none" {
            return Ok(Self(None));
        }
        let interval: Nanos = text.parse().map_err(|error| D::Error::custom(format!("none, or a time: {error}")))?;
        Ok(Self(Some(interval)))
    }
}

impl SettingText {
    /// How many settings there are of them.
    pub(super) fn count(&self) -> usize {
        let Self { hosts, poll_interval, poll_at: _, softirq, ip, emulator } = self;
        let HostsText { mtu, txqueuelen, qdisc, offloads, sack, timestamps } = hosts;
        product(&[
            mtu.count(),
            txqueuelen.count(),
            qdisc.count(),
            offloads.count(),
            sack.count(),
            timestamps.count(),
            poll_interval.count(),
            softirq.count(),
            ip.count(),
            emulator.count(),
        ])
    }

    /// The settings of all points over `path`, each with the words that set it apart from the others.
    pub(super) fn settings(
        &self,
        place: &str,
        path: &PathSpec,
    ) -> Result<Vec<(Vec<String>, Setting)>, ExperimentError> {
        let Self { hosts, poll_interval, poll_at, softirq, ip, emulator } = self;
        let at = |key: &str, why: String| ExperimentError::at(format_args!("{place}.{key}"), why);
        let refused = |key: &str, given: String| at(key, format!("{given}: {}", takes(key).unwrap_or_default()));
        if let Some(mtu) = hosts.mtu.0.iter().find(|mtu| !(68..=65_535).contains(*mtu)) {
            return Err(refused("hosts.mtu", mtu.to_string()));
        }
        let is_name = |kind: &str| {
            (1..=QDISC_LETTERS_MOST).contains(&kind.len())
                && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if let Some(kind) = hosts.qdisc.0.iter().find(|kind| !is_name(kind)) {
            return Err(refused("hosts.qdisc", format!("`{}`", kind.escape_debug())));
        }
        if let Some(version) = ip.0.iter().find(|version| !matches!(version, 4 | 6)) {
            return Err(refused("ip", version.to_string()));
        }
        if let Some(interval) = poll_interval.0.iter().filter_map(|poll| poll.0).find(|at| !POLL_INTERVALS.contains(at))
        {
            return Err(refused("poll_interval", interval.to_string()));
        }
        if poll_at.is_some() && poll_interval.0.iter().all(|poll| poll.0.is_none()) {
            return Err(at("poll_at", "say how often by poll_interval".into()));
        }
        if emulator.0.contains(&Emulator::Netem) {
            let missing = Netem::of_path(path, None).missing;
            if !missing.is_empty() {
                return Err(at("emulator", format!("netem cannot express {}", missing.join("; "))));
            }
        }
        let all = vec![(Vec::new(), Setting { poll_at: poll_at.unwrap_or_default(), ..Setting::default() })];
        let all = hosts.mtu.each(all, |mtu| format!("MTU {mtu}"), |to, mtu| to.hosts.mtu = Some(*mtu));
        let all = hosts.txqueuelen.each(
            all,
            |packets| format!("txqueuelen {packets}"),
            |to, packets| to.hosts.txqueuelen = Some(*packets),
        );
        let all = hosts.qdisc.each(all, Clone::clone, |to, kind| to.hosts.qdisc = Some(kind.clone()));
        let all =
            hosts.offloads.each(all, |is| format!("offloads {}", on(*is)), |to, is| to.hosts.offloads = Some(*is));
        let all = hosts.sack.each(all, |is| format!("SACK {}", on(*is)), |to, is| to.hosts.sack = Some(*is));
        let all = hosts.timestamps.each(
            all,
            |is| format!("time stamps {}", on(*is)),
            |to, is| to.hosts.timestamps = Some(*is),
        );
        let all = ip.each(all, |version| format!("IPv{version}"), |to, version| to.ipv6 = *version == 6);
        let poll = |poll: &PollText| poll.0.map_or_else(|| "not polled".to_owned(), polled);
        let all = poll_interval.each(all, poll, |to, poll| to.poll_interval = poll.0);
        let all = softirq.each(all, |placement| placed(*placement), |to, placement| to.softirq = Some(*placement));
        Ok(emulator.each(all, |emulator| emulator.name().to_owned(), |to, emulator| to.emulator = *emulator))
    }
}

/// One value, or a list of several, which is an axis: a point for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axis<T>(pub(super) Vec<T>);

impl<T> Default for Axis<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// How many points lists of these lengths make, told before they are made.
pub(super) fn product(lengths: &[usize]) -> usize {
    lengths.iter().fold(1, |all, length| all.saturating_mul(*length))
}

impl<T> Axis<T> {
    /// How many points it makes of one.
    pub(super) fn count(&self) -> usize {
        self.0.len().max(1)
    }

    /// Each of `all` with each value: `set` puts it there, `word` names it where there are several.
    pub(super) fn each<S: Clone>(
        &self,
        all: Vec<(Vec<String>, S)>,
        word: impl Fn(&T) -> String,
        set: impl Fn(&mut S, &T),
    ) -> Vec<(Vec<String>, S)> {
        if self.0.is_empty() {
            return all;
        }
        let mut more = Vec::new();
        for (words, setting) in all {
            for value in &self.0 {
                let (mut words, mut setting) = (words.clone(), setting.clone());
                words.extend((self.0.len() > 1).then(|| word(value)));
                set(&mut setting, value);
                more.push((words, setting));
            }
        }
        more
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Axis<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrSeveral<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrSeveral<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a list of values")
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Vec<T>, E> {
                T::deserialize(value.into_deserializer()).map(|one| vec![one])
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Vec<T>, E> {
                T::deserialize(value.into_deserializer()).map(|one| vec![one])
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Vec<T>, E> {
                T::deserialize(value.into_deserializer()).map(|one| vec![one])
            }
            fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Vec<T>, A::Error> {
                let values = Vec::<T>::deserialize(SeqAccessDeserializer::new(values))?;
                match values.len() {
                    0 => Err(A::Error::custom("an empty list: give a value, or several")),
                    1..=TESTS_MOST => Ok(values),
                    count => Err(A::Error::custom(format!("a list of {count} values: 1 to {TESTS_MOST}"))),
                }
            }
        }
        from.deserialize_any(OneOrSeveral(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::super::Experiment;
    use super::{POLL_INTERVALS, takes};

    /// Line and column, the key, and what it takes.
    #[test]
    fn a_value_of_another_type_is_refused_with_its_key_and_what_that_takes() {
        for (line, said) in [
            ("hosts = { mtu = 'big' }", "6:17:udp.hosts.mtu: string \"big\": 68 to 65535"),
            ("hosts = { mtu = [1500, 'big'] }", "6:24:udp.hosts.mtu: string \"big\": 68 to 65535"),
            ("hosts = { mtu = -5 }", "6:17:udp.hosts.mtu: integer `-5`: 68 to 65535"),
            ("hosts.sack = 'yes'", "6:14:udp.hosts.sack: string \"yes\": true or false"),
            ("ip = 'six'", "6:6:udp.ip: string \"six\": 4 or 6"),
            ("poll_interval = 5", "6:17:udp.poll_interval: integer `5`: 1us to 1s, or none"),
            ("softirq = 3", "6:11:udp.softirq: integer `3`: same or split"),
            ("length = 1.5", "6:10:udp.length: floating point `1.5`: 18 to 65507"),
            ("repeat = 'x'", "6:10:udp.repeat: invalid type: string \"x\", expected u32"),
        ] {
            let text = format!("title = 'x'\npath = 'lan'\n[[udp]]\nname = 'u'\nrates = ['1M']\n{line}\n");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert_eq!(error, said, "{line}");
        }
        let intervals = format!("{} to {}, or none", POLL_INTERVALS.start(), POLL_INTERVALS.end());
        assert_eq!(takes("poll_interval"), Some(intervals.as_str()));
    }

    fn list(first: u32, count: u32) -> String {
        format!("{:?}", (first..first + count).collect::<Vec<_>>())
    }

    /// A kilobyte that stands for thousands of millions of tests: their number is told before they are made.
    #[test]
    fn lists_that_make_too_many_tests_are_refused_at_once() {
        let hosts = format!(
            "hosts = {{ mtu = {}, txqueuelen = {}, offloads = [true, false], sack = [true, false] }}\nip = [4, 6]\n",
            list(1000, 64),
            list(10, 64)
        );
        let udp = format!("[[udp]]\nname = 'u'\nrates = ['1M']\nlength = {}\n{hosts}", list(100, 64));
        let flows = list(1, 64);
        let tcp = format!("[[tcp]]\nname = 't'\ncongestion = ['reno']\nflows = {flows}\n{hosts}");
        let beside = format!("{tcp}beside = {{ flows = {flows} }}\n");
        for (series, said) in [
            (udp, "udp[0]: 2097152 tests of its rates and lists, 1 to 64"),
            (tcp, "tcp[0]: 2097152 tests of `congestion`, `flows`, `windows` and lists, 1 to 64"),
            (beside, "tcp[0]: 134217728 tests of `congestion`, `flows`, `windows` and lists, 1 to 64"),
        ] {
            let start = Instant::now();
            let text = format!("title = 'x'\npath = 'lan'\n{series}");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.ends_with(said), "{error}");
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
    }

    #[test]
    fn a_list_is_no_longer_than_its_tests_may_be() {
        let text =
            format!("title = 'x'\npath = 'lan'\n[[udp]]\nname = 'u'\nrates = ['1M']\nlength = {}\n", list(100, 65));
        let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
        assert!(error.contains("a list of 65 values: 1 to 64"), "{error}");
    }
}
