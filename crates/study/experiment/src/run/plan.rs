//! Which points of an experiment are run, how often, and in what order.

use std::collections::BTreeSet;

use longhaul_path::spec::{Direction, PathSpec};
use longhaul_terms::Amount;
use longhaul_udp::UdpParameters;
use longhaul_units::{BitRate, Nanos};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WARM_UP;
use crate::spec::finding::name;
use crate::spec::{Emulator, Experiment, ExperimentError, Repeats, Setting, TcpTest};

/// Runs of each point of a quick look: the fewest that have an interval worth the name.
const QUICK_RUNS: u32 = 3;
/// What a run takes beside its test, before one was made: its lab, the control connection, the last packets.
const BESIDE_A_TEST: Nanos = Nanos::from_millis(700);
/// The same beside both times that a mix is sent: two hosts, the program that makes the frames, the TCP flow.
const BESIDE_A_MIX: Nanos = Nanos::from_millis(250);
/// What a TCP flow is taken to get at most, where a number of bytes is sent.
const ASSUMED_RATE: BitRate = BitRate::from_gbit(2);
/// How many times as long as at that rate a transfer of TCP is taken to last: slow start and what follows a loss are in it.
const TRANSFERS_LONGER: u64 = 2;
/// Round trips of a run beside its test.
const ROUND_TRIPS: u64 = 4;

/// What of an experiment is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// Runs of each point; `None`: as the experiment says.
    pub repeat: Option<u32>,
    /// A few points of each series, three runs each.
    pub quick: bool,
    /// Series whose name has one of these in it, whatever the case; empty: all. One with commas that is in no name is a list of them.
    pub only: Vec<String>,
    /// Between real hosts: without the points that need a lab, and each test once.
    pub real: bool,
    /// Without the points whose path netem emulates.
    pub without_netem: bool,
}

/// The points that are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the experiment.
    points: Vec<PlannedPoint>,
    /// Points that need a lab where there is none, or are the same test as another there; or that need netem.
    left_out: Vec<String>,
    seed: u64,
    warm_up: Nanos,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PlannedPoint {
    /// Its series and its place there, in the experiment.
    series: usize,
    point: usize,
    /// The same in the result, which has no other points.
    place: (usize, usize),
    label: String,
    name: String,
    runs: u32,
    /// Of one run.
    time: Nanos,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Of the experiment, from 0.
    pub series: usize,
    /// Of the series, from 0.
    pub point: usize,
    /// Its number, from 1.
    pub repeat: u32,
    /// About how long it takes.
    pub time: Nanos,
}

impl Plan {
    /// The points of `experiment` that `choice` wants. `seed` is that of the order.
    ///
    /// # Errors
    /// A name in `choice.only` is in no series' name.
    pub fn of(experiment: &Experiment, choice: &Choice, seed: u64) -> Result<Self, ExperimentError> {
        let outlines = outlines(experiment);
        let is_known = |wanted: &str| outlines.iter().any(|outline| has(outline.name, wanted));
        let mut only: Vec<&str> = Vec::new();
        for wanted in &choice.only {
            // Names of series have commas themselves.
            if is_known(wanted) { only.push(wanted) } else { only.extend(wanted.split(',')) }
        }
        if let Some(unknown) = only.iter().find(|wanted| !is_known(wanted)) {
            let names: Vec<&str> = outlines.iter().map(|outline| outline.name).collect();
            let why = format!("no series has `{}` in its name: {}", unknown.escape_debug(), names.join("; "));
            return Err(ExperimentError::at("--only", why));
        }
        let chosen = |name: &str| only.is_empty() || only.iter().any(|wanted| has(name, wanted));
        let (mut points, mut left_out, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut series_place = 0;
        for (series, outline) in outlines.iter().enumerate().filter(|(_, outline)| chosen(outline.name)) {
            let usual = if choice.quick { QUICK_RUNS.min(outline.repeats.count) } else { outline.repeats.count };
            let quick = |point: &usize| !choice.quick || outline.repeats.quick.contains(point);
            let mut taken = Vec::new();
            for (point, outlined) in outline.points.iter().enumerate().filter(|(point, _)| quick(point)) {
                let OutlinedPoint { label, time, test, netem } = outlined;
                let is_new = test.as_ref().is_some_and(|test| !seen.contains(test));
                if choice.real && !is_new || choice.without_netem && *netem {
                    left_out.push(name(outline.name, label));
                    continue;
                }
                seen.extend(test.clone());
                taken.push((point, (label, time)));
            }
            // The result has no series without a point.
            let place = series_place;
            series_place += usize::from(!taken.is_empty());
            for (point_place, (point, (label, time))) in taken.into_iter().enumerate() {
                points.push(PlannedPoint {
                    series,
                    point,
                    place: (place, point_place),
                    label: label.clone(),
                    name: outline.name.to_owned(),
                    runs: choice.repeat.unwrap_or(usual),
                    time: *time,
                });
            }
        }
        if points.is_empty() && choice.real {
            return Err(ExperimentError::at("--server", "each point of the experiment needs a lab"));
        }
        if points.is_empty() && choice.without_netem && !left_out.is_empty() {
            return Err(ExperimentError::new("each of these points needs netem, which this machine cannot use"));
        }
        if points.is_empty() {
            return Err(ExperimentError::at("--quick", "none of these series has a quick point"));
        }
        Ok(Self { points, left_out, seed, warm_up: time_with(WARM_UP, &experiment.path) })
    }

    /// About how long the run takes that warms the machine up.
    pub fn warm_up(&self) -> Nanos {
        self.warm_up
    }

    /// The points that are left out between real hosts, or without netem.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// All runs: each point once in random order, then each once more in another order, and so on. What drifts meanwhile is in all points alike.
    pub fn runs(&self) -> Vec<Planned> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut runs = Vec::new();
        for repeat in 1..=self.points.iter().map(|point| point.runs).max().unwrap_or(0) {
            let mut block: Vec<Planned> = (self.points.iter())
                .filter(|point| repeat <= point.runs)
                .map(|point| Planned { series: point.series, point: point.point, repeat, time: point.time })
                .collect();
            // Fisher and Yates.
            for last in (1..block.len()).rev() {
                block.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
            }
            runs.extend(block);
        }
        runs
    }

    /// Its points: series and point of the experiment, the place of the series in a result, and the point's label.
    pub(super) fn points(&self) -> impl Iterator<Item = ((usize, usize), usize, &str)> {
        self.points.iter().map(|point| ((point.series, point.point), point.place.0, point.label.as_str()))
    }

    /// The place in a result of a point of the experiment; `None` for one that is not run.
    pub(super) fn place(&self, series: usize, point: usize) -> Option<(usize, usize)> {
        self.point(series, point).map(|one| one.place)
    }

    fn point(&self, series: usize, point: usize) -> Option<&PlannedPoint> {
        let found = self.points.binary_search_by_key(&(series, point), |one| (one.series, one.point));
        self.points.get(found.ok()?)
    }

    /// A run in words: series, point, number.
    pub fn words(&self, run: &Planned) -> String {
        let (name, label) = self.point(run.series, run.point).map_or(("", ""), |point| (&point.name, &point.label));
        format!("{name}, {label}, run {}", run.repeat)
    }

    /// Each series with its points: name, labels, runs of each, time of all.
    pub fn series(&self) -> Vec<(&str, Vec<&str>, u32, Nanos)> {
        let mut series: Vec<(&str, Vec<&str>, u32, Nanos)> = Vec::new();
        for point in &self.points {
            let time = Nanos(point.time.0.saturating_mul(point.runs.into()));
            match series.last_mut() {
                Some((name, labels, _, all)) if *name == point.name => {
                    labels.push(&point.label);
                    *all = Nanos(all.0.saturating_add(time.0));
                }
                _ => series.push((&point.name, vec![&point.label], point.runs, time)),
            }
        }
        series
    }
}

fn has(name: &str, wanted: &str) -> bool {
    name.to_lowercase().contains(&wanted.trim().to_lowercase())
}

/// About how long a test of `amount` takes that gets `rate`.
fn time(amount: Amount, payload_bytes: u32, rate: BitRate, path: &PathSpec) -> Nanos {
    let at_rate = |bytes: u64| Nanos::from_secs_f64(bytes as f64 * 8.0 / rate.0.max(1) as f64);
    let test = match amount {
        Amount::DurationNs(ns) => Nanos(ns),
        Amount::Bytes(bytes) => at_rate(bytes.saturating_mul(TRANSFERS_LONGER)),
        Amount::Packets(packets) => at_rate(packets.saturating_mul(payload_bytes.into())),
    };
    time_with(test, path)
}

/// About how long a test takes with its lab.
pub(super) fn time_with(test: Nanos, path: &PathSpec) -> Nanos {
    let round_trips = Nanos(path.round_trip().0.saturating_mul(ROUND_TRIPS));
    // A file may ask for a transfer of centuries.
    test.saturating_add(BESIDE_A_TEST).saturating_add(round_trips)
}

struct Outline<'a> {
    name: &'a str,
    repeats: &'a Repeats,
    points: Vec<OutlinedPoint>,
}

struct OutlinedPoint {
    label: String,
    /// Of a run.
    time: Nanos,
    /// What it is between real hosts: `None` where it needs a lab.
    test: Option<String>,
    /// Whether netem emulates its path.
    netem: bool,
}

/// The series of any kind.
fn outlines(experiment: &Experiment) -> Vec<Outline<'_>> {
    let udp = experiment.udp.iter().map(|series| Outline {
        name: &series.name,
        repeats: &series.repeats,
        points: (series.tests.iter())
            .map(|test| {
                let UdpParameters { amount, payload_bytes, .. } = test.parameters;
                let of_labs = test.setting != Setting::default() || test.exact || test.between.pair().is_some();
                OutlinedPoint {
                    label: test.label.clone(),
                    time: time(amount, payload_bytes, test.rate(), &series.path),
                    test: (!of_labs).then(|| format!("{:?}", test.parameters)),
                    netem: test.setting.emulator == Emulator::Netem,
                }
            })
            .collect(),
    });
    let tcp = experiment.tcp.iter().map(|series| Outline {
        name: &series.name,
        repeats: &series.repeats,
        points: (series.tests.iter())
            .map(|test| {
                let own = series.path.clients.iter().filter_map(|host| host.rate).min();
                let shared = series.path.bottleneck(Direction::Forward);
                let rate = own.into_iter().chain(shared).min().unwrap_or(ASSUMED_RATE);
                let TcpTest { setting, flows, program, capture, beside, .. } = test;
                let of_labs = *setting != Setting::default() || program.is_some() || *capture || beside.is_some();
                OutlinedPoint {
                    label: test.label.clone(),
                    time: time(flows.parameters.amount, 0, rate.min(ASSUMED_RATE), &series.path),
                    test: (!of_labs).then(|| format!("{:?}", flows.parameters)),
                    netem: setting.emulator == Emulator::Netem,
                }
            })
            .collect(),
    });
    let mix = experiment.mix.iter().map(|series| Outline {
        name: &series.name,
        repeats: &series.repeats,
        points: (series.labels().into_iter())
            .map(|label| {
                let time = Nanos(series.time.0.saturating_mul(2)) + BESIDE_A_MIX;
                OutlinedPoint { label, time, test: None, netem: false }
            })
            .collect(),
    });
    udp.chain(tcp).chain(mix).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment() -> Experiment {
        let text = "title = 'x'\npath = 'lan'\nrepeat = 4\n[[udp]]\nname = 'Large buffer'\nrates = ['1M', '2M', '3M']\n\
                    [[udp]]\nname = 'Small buffer'\nrates = ['1M']\nrepeat = 2\n";
        Experiment::parse(text, Path::new("")).unwrap()
    }

    #[test]
    fn each_block_has_each_point_once_in_an_order_of_its_own() {
        let plan = Plan::of(&experiment(), &Choice::default(), 7).unwrap();
        let runs = plan.runs();
        assert_eq!(runs.len(), 3 * 4 + 2);
        let block = |repeat: u32| -> Vec<(usize, usize)> {
            runs.iter().filter(|run| run.repeat == repeat).map(|run| (run.series, run.point)).collect()
        };
        for (repeat, expected) in [(1, 4), (2, 4), (3, 3), (4, 3)] {
            let mut points = block(repeat);
            assert_eq!(points.len(), expected);
            points.sort_unstable();
            points.dedup();
            assert_eq!(points.len(), expected, "each once");
        }
        assert!(runs.is_sorted_by_key(|run| run.repeat), "block by block");
        let orders: Vec<_> =
            (0..20).map(|seed| Plan::of(&experiment(), &Choice::default(), seed).unwrap().runs()).collect();
        assert!(orders.iter().any(|order| *order != runs), "the order is random");
        assert_eq!(plan.runs(), runs, "and the same with the same seed");
    }

    /// What needs a lab is left out, and so is a test that another series has.
    #[test]
    fn between_real_hosts_each_test_is_made_once() {
        let text = "title = 'x'\npath = 'lan'\n[[udp]]\nname = 'Short'\nrates = ['1M', '2M']\nchange = ['delay=1ms']\n\
                    [[udp]]\nname = 'Long'\nrates = ['1M', '3M']\nchange = ['delay=9ms']\n\
                    [[udp]]\nname = 'Polled'\nrates = ['1M']\npoll_interval = '1ms'\n";
        let experiment = Experiment::parse(text, Path::new("")).unwrap();
        let plan = Plan::of(&experiment, &Choice { real: true, ..Choice::default() }, 1).unwrap();
        let series: Vec<_> = plan.series().into_iter().map(|(name, labels, ..)| (name, labels)).collect();
        assert_eq!(series, [("Short", vec!["1", "2"]), ("Long", vec!["3"])]);
        assert_eq!(plan.left_out(), ["Long, 1", "Polled, 1"]);
        assert_eq!((plan.place(1, 1), plan.place(2, 0)), (Some((1, 0)), None));
        let polled = Choice { real: true, only: vec!["polled".into()], ..Choice::default() };
        let error = Plan::of(&experiment, &polled, 1).unwrap_err().to_string();
        assert_eq!(error, "--server: each point of the experiment needs a lab");
    }

    /// A result has what the source has, of the points that are run.
    #[test]
    fn points_of_a_result_have_what_the_source_has() {
        let text = "title = 'x'\npath = 'lan'\n[[udp]]\nname = 'u'\nrates = ['1M', '2M', '3M']\nquick = ['3']\n\
                    paper_values = { 2 = 1, 3 = 12 }\n";
        let experiment = Experiment::parse(text, Path::new("")).unwrap();
        let plan = Plan::of(&experiment, &Choice { quick: true, ..Choice::default() }, 1).unwrap();
        let ran = crate::Ran::new(&experiment, &plan, 1);
        let values: Vec<_> = ran.udp[0].points.iter().map(|point| point.paper_value).collect();
        assert_eq!(values, [Some(12.0)]);
    }

    /// What is sent as fast as it goes is a point as the rates are.
    #[test]
    fn a_mix_is_repeated_in_random_order_as_well() {
        let nima = Experiment::load("nima").unwrap();
        let all = Plan::of(&nima, &Choice::default(), 1).unwrap();
        assert_eq!(all.runs().len(), 9 * 9 * 5);
        let quick = Choice { quick: true, only: vec!["1518 BYTES".into()], ..Choice::default() };
        let plan = Plan::of(&nima, &quick, 1).unwrap();
        let (name, labels, runs, time) = plan.series().swap_remove(1);
        assert_eq!((name, labels, runs), ("1518 bytes, filter", vec!["1000", "as fast as it goes"], 3));
        assert_eq!(time, Nanos::from_millis(6 * 1_250));
        let of_first_block = |seed| -> Vec<usize> {
            let runs = Plan::of(&nima, &quick, seed).unwrap().runs();
            runs[..6].iter().map(|run| run.series).collect()
        };
        assert!((0..20).any(|seed| !of_first_block(seed).is_sorted()), "not one series after the other");
        let quick = Plan::of(&nima, &Choice { quick: true, ..Choice::default() }, 1).unwrap();
        let whole: u64 = quick.series().iter().map(|(.., time)| time.0).sum();
        assert!(Nanos(whole) <= Nanos::from_secs(120), "{whole}");
    }

    /// A transfer of centuries is not told as one of seconds.
    #[test]
    fn a_time_beyond_all_numbers_is_the_longest() {
        let text = "title = 'x'\npath = 'lan'\n[[tcp]]\nname = 'a'\ncongestion = ['reno']\nbytes = '8000000000G'\n";
        let experiment = Experiment::parse(text, Path::new("")).unwrap();
        let plan = Plan::of(&experiment, &Choice::default(), 1).unwrap();
        assert_eq!((plan.runs()[0].time, plan.series()[0].3), (Nanos::MAX, Nanos::MAX));
    }

    #[test]
    fn a_choice_takes_series_and_points() {
        let quick = Choice { quick: true, only: vec!["large".into()], ..Choice::default() };
        let plan = Plan::of(&experiment(), &quick, 1).unwrap();
        let series = plan.series();
        assert_eq!((series.len(), &series[0].1, series[0].2), (1, &vec!["1", "3"], 3));
        assert_eq!(plan.place(0, 2), Some((0, 1)));
        assert_eq!(plan.place(0, 1), None);
        let only = Choice { only: vec!["huge".into()], ..Choice::default() };
        let error = Plan::of(&experiment(), &only, 1).unwrap_err().to_string();
        assert_eq!(error, "--only: no series has `huge` in its name: Large buffer; Small buffer");
        let once = Choice { repeat: Some(1), only: vec!["small".into()], ..Choice::default() };
        let plan = Plan::of(&experiment(), &once, 1).unwrap();
        assert_eq!(plan.runs().len(), 1);
        assert_eq!(plan.words(&plan.runs()[0]), "Small buffer, 1, run 1");
        assert_eq!(plan.place(1, 0), Some((0, 0)), "the result has no other series");
    }

    #[test]
    fn a_comma_parts_texts_unless_a_name_has_it() {
        let series = |name: &str| format!("[[udp]]\nname = '{name}'\nrates = ['1M']\n");
        let names = ["Tiny ring, one flow", "Tiny ring, four flows", "Large ring, one flow"];
        let text = format!("title = 'x'\npath = 'lan'\n{}", names.map(series).concat());
        let experiment = Experiment::parse(&text, Path::new("")).unwrap();
        let chosen = |only: &str| {
            let choice = Choice { only: vec![only.into()], ..Choice::default() };
            Plan::of(&experiment, &choice, 1).map(|plan| plan.series().len()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("tiny ring, one"), Ok(1), "as a whole");
        assert_eq!(chosen("four, large"), Ok(2), "a list");
        assert!(chosen("four, huge").unwrap_err().starts_with("--only: no series has ` huge` in its name"));
    }
}
