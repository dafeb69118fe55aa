//! Running an experiment: a lab for each run, the runs in random order, and what came of them.

mod calibration;
mod captured;
mod exact;
mod hosts;
mod mix;
pub(crate) mod netem;
pub(crate) mod plan;
mod program;
mod steps;
mod tcp;
#[cfg(test)]
mod tests;
mod tries;
mod udp;

use crate::caveats;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_lab::{Lab, LabSpec};
use longhaul_mix::caveats::RATE_NOT_ACHIEVED;
use longhaul_path::spec::PathSpec;
use longhaul_peer::caveats::{CLOCK_STEPPED, PACING_NOT_ACHIEVED};
use longhaul_peer::client::{self, Live, Target};
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_report::html::findings::JudgedFinding;
use longhaul_report::html::points::{Point, Repeat, Run};
use longhaul_report::html::series::Series;
use longhaul_report::html::{mix as mix_report, tcp_goodput, udp_loss};
use longhaul_result::caveats::SENDER_STOPPED;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_session::{SessionError, TestEnd, TestParameters};
use longhaul_tcp::caveats::IMPOSSIBLE_WINDOW;
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::Amount;
use longhaul_udp::UdpParameters;
use longhaul_udp::locate::Loss;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::calibration::{FACTORS, calibration_time};
use self::plan::{Plan, Planned};
pub use self::tries::TRIES_MOST;
use self::tries::Tries;
use crate::faults::Programs;
use crate::machine::Machine;
use crate::spec::finding::name;
use crate::spec::{Emulator, Experiment, MixSeries, PaperFinding, Setting, TcpTest, UdpTest};

/// What happens while an experiment runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine is warmed up by a run that does not count.
    WarmsUp,
    /// A run begins.
    Begins {
        /// Which.
        run: Planned,
        /// Runs that count so far.
        done: usize,
        /// Runs in all.
        of: usize,
        /// About how long the rest takes, without runs that are rejected.
        left: Nanos,
    },
    /// A run was made.
    Made {
        /// Which.
        run: Planned,
        /// Its result.
        made: &'a Made,
        /// All so far.
        ran: &'a Ran,
    },
    /// What is left of a series cannot be measured: why.
    NotMeasured(String),
}

/// A run with its place in the experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MadeAt<R> {
    /// The series, from 0.
    pub series: usize,
    /// The point of the series, from 0.
    pub point: usize,
    /// Why it does not count; `None` if it does.
    pub rejected: Option<Caveat>,
    /// The run.
    pub run: Repeat<R>,
}

/// A run of any kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Made {
    /// Of UDP.
    Udp(Box<MadeAt<udp_loss::Run>>),
    /// Of TCP.
    Tcp(Box<MadeAt<tcp_goodput::Run>>),
    /// Of background traffic.
    Mix(Box<MadeAt<mix_report::Run>>),
}

impl Made {
    /// Why it does not count; `None` if it does.
    pub fn rejected(&self) -> Option<&Caveat> {
        match self {
            Self::Udp(made) => made.rejected.as_ref(),
            Self::Tcp(made) => made.rejected.as_ref(),
            Self::Mix(made) => made.rejected.as_ref(),
        }
    }

    /// Whether there is a result. A run without one is made again when an experiment goes on.
    pub fn has_result(&self) -> bool {
        match self {
            Self::Udp(made) => made.run.run.has_result(),
            Self::Tcp(made) => made.run.run.has_result(),
            Self::Mix(made) => made.run.run.has_result(),
        }
    }
}

/// Writes every loss of a UDP test to a file: gets the beginning of the file's name and the losses, returns the name, or why the file
/// could not be written.
pub type SaveLosses<'a> = dyn Fn(&str, &mut dyn Iterator<Item = Loss>) -> Result<String, String> + 'a;

/// How experiments are run.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    /// The labs. The seed of a run is that of the labs plus the number of the run, less one.
    pub spec: &'a LabSpec,
    /// How often a run is made until it counts, at least once.
    pub tries: u32,
    /// Ends the test that runs and begins no other.
    pub stop: Stop,
    /// Where losses go that are too many for a result; `None`: nowhere, which is a caveat.
    pub save_losses: Option<&'a SaveLosses<'a>>,
    /// The command that makes the same test by hand, over IPv6 if so.
    pub command: fn(&TestParameters, bool) -> String,
    /// Starts programs on the hosts of labs.
    pub programs: &'a Programs,
    /// The server of real hosts, in place of labs.
    pub server: Option<&'a Target>,
    /// Is told what happens.
    pub tell: &'a dyn Fn(Event<'_>),
}

impl fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("spec", self.spec).finish_non_exhaustive()
    }
}

/// How long a test is sent that warms the machine up.
const WARM_UP: Nanos = Nanos::from_millis(300);

/// Client and server, as `longhaul host` shows them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hosts {
    /// The host that asked for the test.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub client: Value,
    /// The host that answered.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub server: Option<Value>,
}

/// What came of an experiment: its series as far as it got.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Series of UDP tests.
    pub udp: Vec<Series<udp_loss::Run>>,
    /// Series of TCP tests.
    pub tcp: Vec<Series<tcp_goodput::Run>>,
    /// Series of receivers under background traffic.
    pub mix: Vec<Series<mix_report::Run>>,
    /// The hosts as the first test saw them; `None` where no test ran.
    pub hosts: Option<Hosts>,
    /// Of each point that is planned, by its series and its place there, in the experiment.
    tries: BTreeMap<(usize, usize), Tries>,
}

impl Ran {
    /// The points of `plan` without a run. A point is doubtful if one of its runs is rejected `tries` times.
    pub fn new(experiment: &Experiment, plan: &Plan, tries: u32) -> Self {
        let (udp, tcp, mix) = (Vec::new(), Vec::new(), Vec::new());
        let mut ran = Self { udp, tcp, mix, hosts: None, tries: BTreeMap::new() };
        for ((number, point), place, label) in plan.points() {
            ran.tries.insert((number, point), Tries::new(tries));
            if let Some(series) = experiment.udp.get(number) {
                let paper_value = series.paper_values.get(&point).copied();
                begin(&mut ran.udp, place, Point { paper_value, ..Point::new(label) }, || udp::empty(series));
            } else if let Some(series) = experiment.tcp.get(number) {
                let paper_value = series.paper_values.get(&point).copied();
                begin(&mut ran.tcp, place, Point { paper_value, ..Point::new(label) }, || tcp::empty(series));
            } else {
                begin(&mut ran.mix, place, Point::new(label), || mix::empty(&experiment.mix[number]));
            }
        }
        ran
    }

    /// Adds a run that was made just now, and averages its point.
    fn add(&mut self, plan: &Plan, made: Made) {
        match made {
            Made::Udp(made) => put(&mut self.udp, &mut self.tries, plan, *made).into_iter().for_each(Point::average),
            Made::Tcp(made) => put(&mut self.tcp, &mut self.tries, plan, *made).into_iter().for_each(Point::average),
            Made::Mix(made) => put(&mut self.mix, &mut self.tries, plan, *made).into_iter().for_each(Point::average),
        }
    }

    /// Adds a run that was made earlier, one of many: the means are without it until [`Ran::average`]. It is left out where its point is not in
    /// `plan`, where its number is none from 1 to 1,000, and where the run of this number counts already or was rejected [`TRIES_MOST`] times.
    pub fn add_earlier(&mut self, plan: &Plan, made: Made) {
        match made {
            Made::Udp(made) => drop(put(&mut self.udp, &mut self.tries, plan, *made)),
            Made::Tcp(made) => drop(put(&mut self.tcp, &mut self.tries, plan, *made)),
            Made::Mix(made) => drop(put(&mut self.mix, &mut self.tries, plan, *made)),
        }
    }

    /// Computes the means of all points.
    pub fn average(&mut self) {
        fn all<R: Run>(series: &mut [Series<R>]) {
            series.iter_mut().flat_map(|one| &mut one.points).for_each(Point::average);
        }
        all(&mut self.udp);
        all(&mut self.tcp);
        all(&mut self.mix);
    }

    /// Has `made` forget what it did over time where another run of its point is drawn: a result is to be short.
    fn keep_one_over_time(&self, plan: &Plan, made: &mut Made) {
        fn forget<R: Run>(series: &[Series<R>], plan: &Plan, made: &mut MadeAt<R>) {
            let place = plan.place(made.series, made.point);
            let point = place.and_then(|(place, point)| series.get(place)?.points.get(point));
            if point.is_some_and(|point| point.has_over_time(made.rejected.is_none())) {
                made.run.run.forget_over_time();
            }
        }
        match made {
            Made::Udp(made) => forget(&self.udp, plan, made),
            Made::Tcp(made) => forget(&self.tcp, plan, made),
            Made::Mix(made) => forget(&self.mix, plan, made),
        }
    }

    /// The tries that a run has left; one of no plan has none.
    fn tries_left(&self, run: &Planned) -> Range<u32> {
        self.tries.get(&(run.series, run.point)).map_or(0..0, |tries| tries.left(run.repeat))
    }

    /// What came of the findings of `experiment`.
    pub fn findings(&self, experiment: &Experiment, plan: &Plan) -> Vec<JudgedFinding> {
        let judge = |finding: &PaperFinding| {
            let asked = finding.asked(|series, point| {
                let name = match (experiment.udp.get(series), experiment.tcp.get(series)) {
                    (Some(udp), _) => name(&udp.name, &udp.tests[point].label),
                    (None, Some(tcp)) => name(&tcp.name, &tcp.tests[point].label),
                    // As its file calls it.
                    (None, None) => experiment.mix[series].name.clone(),
                };
                (name, plan.place(series, point))
            });
            if !experiment.mix.is_empty() {
                asked.judge(|(series, point)| self.mix.get(series)?.points.get(point))
            } else if experiment.tcp.is_empty() {
                asked.judge(|(series, point)| self.udp.get(series)?.points.get(point))
            } else {
                asked.judge(|(series, point)| self.tcp.get(series)?.points.get(point))
            }
        };
        experiment.findings.iter().map(judge).collect()
    }

    /// Whether a run has a result.
    pub fn has_result(&self) -> bool {
        fn measured<R: Run>(series: &[Series<R>]) -> bool {
            series.iter().flat_map(|one| &one.points).any(|point| {
                let rejected = point.rejected.iter().map(|rejected| &rejected.run);
                point.runs.iter().chain(rejected).any(|run| run.run.has_result())
            })
        }
        measured(&self.udp) || measured(&self.tcp) || measured(&self.mix)
    }

    /// The first error, where there is one and no test has a result.
    pub fn failure(&self) -> Option<&Caveat> {
        if self.has_result() {
            return None;
        }
        let of_udp = self.udp.iter().find_map(Series::first_error);
        let of_tests = of_udp.or_else(|| self.tcp.iter().find_map(Series::first_error));
        of_tests.or_else(|| self.mix.iter().find_map(Series::first_error))
    }

    /// All caveats of runs that count, each with the series, the point and the run that it is about.
    pub fn caveats(&self) -> Vec<Caveat> {
        let udp = self.udp.iter().flat_map(Series::placed_caveats);
        let tests = udp.chain(self.tcp.iter().flat_map(Series::placed_caveats));
        tests.chain(self.mix.iter().flat_map(Series::placed_caveats)).collect()
    }
}

impl Hosts {
    fn of(end: &TestEnd) -> Self {
        Self { client: end.local.host.clone(), server: end.remote.as_ref().map(|end| end.host.clone()) }
    }
}

/// Adds a point to the series at `place`, which begins as `empty` if it is not there.
fn begin<R: Run>(all: &mut Vec<Series<R>>, place: usize, point: Point<R>, empty: impl FnOnce() -> Series<R>) {
    if place == all.len() {
        all.push(empty());
    }
    all[place].points.push(point);
}

/// Adds a run to its point, which is returned; `None` for a run that is left out.
fn put<'a, R: Run>(
    series: &'a mut [Series<R>],
    tries: &mut BTreeMap<(usize, usize), Tries>,
    plan: &Plan,
    made: MadeAt<R>,
) -> Option<&'a mut Point<R>> {
    let (place, point) = plan.place(made.series, made.point)?;
    let point = series.get_mut(place)?.points.get_mut(point)?;
    let tries = tries.get_mut(&(made.series, made.point))?;
    point.doubtful |= tries.take(made.run.repeat, made.rejected.as_ref())?;
    let mut doubts = made.run.run.problems().caveats.iter();
    point.doubtful |= made.rejected.is_none() && doubts.any(|caveat| caveat.is(caveats::MORE_THAN_CARRIED));
    point.put(made.run, made.rejected);
    Some(point)
}

/// What a test runs over.
#[derive(Clone, Copy)]
enum Ground<'a> {
    /// A lab of its own.
    Lab(&'a Lab),
    /// This host and another one.
    Real(&'a Target),
}

/// Where a run takes place.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a PathSpec,
    setting: &'a Setting,
    /// Programs that are not longhaul run there: what uses the CPUs is then no stranger.
    has_programs: bool,
}

/// Doubts about a test that spoil a run: its sender did not do what was asked, its clock was set, or the kernel lost its window.
const SPOILING: [CaveatCode; 5] =
    [PACING_NOT_ACHIEVED, RATE_NOT_ACHIEVED, SENDER_STOPPED, CLOCK_STEPPED, IMPOSSIBLE_WINDOW];

/// Why the run is void, if others had the CPUs.
fn taken(machine: &Machine, has_programs: bool) -> Option<Caveat> {
    let used = || machine.used().filter(|_| !has_programs);
    let why = machine.taken().or_else(used)?;
    Some(Caveat::new(caveats::CPU_TAKEN, why, "end what else runs on this machine"))
}

/// What of the test's own doubts spoils the run.
fn spoiling<R: Run>(done: &R) -> Option<Caveat> {
    done.problems().caveats.iter().find(|caveat| SPOILING.iter().any(|code| caveat.is(*code))).cloned()
}

/// Why `done` does not count: others had `taken` the CPUs, the emulator was `late`, or its own doubts spoil it. It gets the first two as caveats.
fn spoiled<R: Run>(done: &mut R, taken: Option<Caveat>, late: Vec<Caveat>, was_stopped: bool) -> Option<Caveat> {
    // A test that was stopped, or that failed, would not be better another time.
    let is_whole = !was_stopped && done.has_result();
    // The cause before what it does to the emulator.
    let why = taken.clone().or(late.first().cloned()).or(spoiling(done)).filter(|_| is_whole);
    done.problems_mut().caveats.extend(late.into_iter().chain(taken));
    why
}

impl Runner<'_> {
    /// Makes the runs of `plan` that `ran` does not have, or those before a stop.
    pub fn run(&self, experiment: &Experiment, plan: &Plan, mut ran: Ran) -> Ran {
        let runs = plan.runs();
        let goes_on = || self.stop.requested().is_none();
        // Of millions of runs this takes its time.
        let asked = runs.iter().copied().take_while(|_| goes_on());
        let mut left: Vec<Planned> = asked.filter(|run| !ran.tries_left(run).is_empty()).collect();
        left.reverse();
        if let Some(first) = left.last().filter(|_| goes_on()) {
            (self.tell)(Event::WarmsUp);
            self.warm_up(experiment, *first);
        }
        let began = monotonic();
        let (mut made, mut planned) = (0_u64, Nanos::ZERO);
        let mut broken: BTreeSet<usize> = BTreeSet::new();
        while let Some(run) = left.pop() {
            if !goes_on() {
                break;
            }
            if broken.contains(&run.series) {
                continue;
            }
            for attempt in ran.tries_left(&run) {
                // What runs took beside their plan so far, the rest will take, too.
                let rest = left.iter().chain([&run]).map(|run| run.time).fold(Nanos::ZERO, Nanos::saturating_add);
                let beside = Nanos((monotonic() - began).0.saturating_sub(planned.0) / made.max(1));
                let rest = Nanos(rest.0.saturating_add(beside.0.saturating_mul(left.len() as u64 + 1)));
                let done = runs.len() - left.len() - 1;
                (self.tell)(Event::Begins { run, done, of: runs.len(), left: rest });
                let (mut one, whole) = self.one(experiment, run, attempt, &mut ran);
                ran.keep_one_over_time(plan, &mut one);
                (made, planned) = (made + 1, planned.saturating_add(run.time));
                if !whole {
                    broken.insert(run.series);
                }
                ran.add(plan, one.clone());
                (self.tell)(Event::Made { run, made: &one, ran: &ran });
                if one.rejected().is_none() || !goes_on() {
                    break;
                }
            }
        }
        ran
    }

    /// Makes a run, the `attempt`th time. Whether its lab could be raised beside it.
    fn one(&self, experiment: &Experiment, run: Planned, attempt: u32, ran: &mut Ran) -> (Made, bool) {
        let Planned { series, point, .. } = run;
        match experiment.udp.get(series) {
            Some(udp) => {
                let again = if attempt == 0 { String::new() } else { format!("-try{}", attempt + 1) };
                let losses = format!("losses-{}-{}-{}{again}", series + 1, point + 1, run.repeat);
                let wanted = &udp.tests[point];
                let place = Place { path: &udp.path, setting: &wanted.setting, has_programs: false };
                let (rejected, run, whole) = self
                    .in_lab(place, run, |lab| self.run_udp_test(lab, wanted, &udp.path, Some(&losses), &mut ran.hosts));
                (Made::Udp(Box::new(MadeAt { series, point, rejected, run })), whole)
            }
            None if !experiment.mix.is_empty() => {
                let mix = &experiment.mix[series];
                let (rejected, run, whole) = self.between_hosts(mix, run);
                (Made::Mix(Box::new(MadeAt { series, point, rejected, run })), whole)
            }
            None => {
                let tcp = &experiment.tcp[series];
                let wanted = &tcp.tests[point];
                let place = Place { path: &tcp.path, setting: &wanted.setting, has_programs: wanted.program.is_some() };
                let (rejected, run, whole) =
                    self.in_lab(place, run, |lab| self.run_tcp_test(lab, wanted, &tcp.path, &mut ran.hosts));
                (Made::Tcp(Box::new(MadeAt { series, point, rejected, run })), whole)
            }
        }
    }

    /// Makes a run in a lab of its own. Why it does not count, and whether its lab could be raised.
    fn in_lab<R: Run>(
        &self,
        place: Place<'_>,
        run: Planned,
        test: impl FnOnce(Result<Ground<'_>, Caveat>) -> R,
    ) -> (Option<Caveat>, Repeat<R>, bool) {
        let (seed, repeat, began_at) = (self.seed(run), run.repeat, jiff::Timestamp::now().to_string());
        if let Some(target) = self.server {
            let machine = Machine::begins();
            let mut done = test(Ok(Ground::Real(target)));
            let why = self.spoiled(&mut done, taken(&machine, place.has_programs), Vec::new());
            return (why, Repeat { repeat, seed, began_at, emulator: None, run: done }, true);
        }
        let lab = match self.raise(place, seed) {
            Ok(lab) => lab,
            Err(error) => {
                (self.tell)(Event::NotMeasured(error.message.clone()));
                return (None, Repeat { repeat, seed, began_at, emulator: None, run: test(Err(error)) }, false);
            }
        };
        let machine = Machine::begins();
        let mut done = test(Ok(Ground::Lab(&lab)));
        let taken = taken(&machine, place.has_programs);
        let (emulator, late) = self.end(lab, place.setting.emulator);
        let why = self.spoiled(&mut done, taken, late);
        (why, Repeat { repeat, seed, began_at, emulator, run: done }, true)
    }

    /// Makes a run of a mix between two hosts of its own. Why it does not count, and whether its hosts could be made.
    fn between_hosts(&self, series: &MixSeries, run: Planned) -> (Option<Caveat>, Repeat<mix_report::Run>, bool) {
        let (seed, repeat, began_at) = (self.seed(run), run.repeat, jiff::Timestamp::now().to_string());
        let rate = series.rate(run.point);
        let made = |done| Repeat { repeat, seed, began_at, emulator: None, run: done };
        let rig = match mix::raise(series.receiver) {
            Ok(rig) => rig,
            Err(error) => {
                let error = lab_failed(&error);
                (self.tell)(Event::NotMeasured(format!("{}: {}", series.name, error.message)));
                return (None, made(mix::run(Err(error), series, rate, seed, self.stop)), false);
            }
        };
        let machine = Machine::begins();
        let mut done = mix::run(Ok(&rig), series, rate, seed, self.stop);
        let why = self.spoiled(&mut done, taken(&machine, false), Vec::new());
        (why, made(done), true)
    }

    /// All tries of a run have the same.
    fn seed(&self, run: Planned) -> u64 {
        self.spec.seed.wrapping_add(u64::from(run.repeat) - 1)
    }

    fn spoiled<R: Run>(&self, done: &mut R, taken: Option<Caveat>, late: Vec<Caveat>) -> Option<Caveat> {
        spoiled(done, taken, late, self.stop.requested().is_some())
    }

    fn raise(&self, place: Place<'_>, seed: u64) -> Result<Lab, Caveat> {
        let Setting { hosts, poll_interval, poll_at, .. } = place.setting;
        let mtu_bytes = hosts.mtu.unwrap_or(self.spec.mtu_bytes);
        let offload = hosts.offloads.unwrap_or(self.spec.offload);
        let wire = place.setting.wire || self.spec.wire;
        let spec = LabSpec { mtu_bytes, offload, wire, seed, ..self.spec.clone() };
        let up = match place.setting.emulator {
            Emulator::Longhaul => Lab::up,
            Emulator::Netem => Lab::without_emulator,
        };
        let lab = up(spec, place.path.clone()).and_then(|lab| {
            if let Some(interval) = poll_interval {
                poll_at.hosts().iter().try_for_each(|host| lab.poll_receiver(host, *interval))?;
            }
            Ok(lab)
        });
        let lab = lab.map_err(|error| lab_failed(&error))?;
        hosts::set(&lab, hosts)?;
        place.setting.faulty.as_ref().map_or(Ok(()), |faulty| hosts::make_faulty(&lab, faulty))?;
        if place.setting.emulator == Emulator::Netem {
            netem::connect(&lab, place.path).map_err(|error| lab_failed(&error))?;
        }
        Ok(lab)
    }

    /// Ends `lab`: the counters of longhaul's emulator, and the caveats that they give the run.
    fn end(&self, lab: Lab, emulator: Emulator) -> (Option<Value>, Vec<Caveat>) {
        let ended = match emulator {
            Emulator::Longhaul => lab.down().map(Some),
            Emulator::Netem => lab.end().map(|()| None),
        };
        match ended {
            Ok(status) => {
                let late = status.as_ref().map(|status| status.caveats(self.spec.lateness_bound));
                (status.and_then(|status| serde_json::to_value(&status).ok()), late.unwrap_or_default())
            }
            Err(error) => (None, vec![lab_failed(&error)]),
        }
    }

    /// The test of `run` for a moment: programs are then in memory, BPF programs compiled, CPUs awake.
    fn warm_up(&self, experiment: &Experiment, run: Planned) {
        if let Some(series) = experiment.mix.get(run.series) {
            return mix::warm_up(series, series.rate(run.point), self.seed(run), self.stop);
        }
        let amount = Amount::DurationNs(WARM_UP.0);
        let (place, hosts, parameters): (_, (&str, &str), TestParameters) = match experiment.udp.get(run.series) {
            Some(udp) => {
                let UdpTest { setting, parameters, between, .. } = &udp.tests[run.point];
                let parameters = UdpParameters { amount, ..parameters.clone() };
                (Place { path: &udp.path, setting, has_programs: false }, between.hosts(), parameters.into())
            }
            None => {
                let tcp = &experiment.tcp[run.series];
                let TcpTest { setting, flows, .. } = &tcp.tests[run.point];
                let congestion = flows.parameters.congestion.first().cloned();
                let congestion = congestion.map(|step| CongestionStep { duration_ns: None, ..step });
                let congestion = congestion.into_iter().collect();
                let parameters = TcpParameters { amount, congestion, omit_ns: 0, ..flows.parameters.clone() };
                let hosts = (flows.host.as_str(), "server");
                (Place { path: &tcp.path, setting, has_programs: false }, hosts, parameters.into())
            }
        };
        // What goes wrong here goes wrong again in the runs, which say it.
        if let Some(target) = self.server {
            let _ = test(Ground::Real(target), hosts, parameters, false, self.stop, |_| {});
        } else if let Ok(lab) = self.raise(place, self.spec.seed) {
            let _ = test(Ground::Lab(&lab), hosts, parameters, place.setting.ipv6, self.stop, |_| {});
            self.end(lab, place.setting.emulator);
        }
    }
}

/// There is no lab, or it ended badly.
fn lab_failed(error: &dyn fmt::Display) -> Caveat {
    Caveat::new(caveats::LAB_FAILED, error.to_string(), "run as root, if you do not")
}

/// One test from `client` to `server`; between real hosts from this one. Calls `live` at the end of each interval, where the test has any.
fn test(
    ground: Ground<'_>,
    (client, server): (&str, &str),
    parameters: impl Into<TestParameters> + Send,
    ipv6: bool,
    stop: Stop,
    live: impl FnMut(&Live) + Send,
) -> Result<TestEnd, SessionError> {
    let lab = match ground {
        Ground::Lab(lab) => lab,
        Ground::Real(target) => return client::run(target, parameters, Some(stop), live),
    };
    let failed = |error: &dyn fmt::Display| SessionError::new(caveats::LAB_FAILED.as_str(), error.to_string(), "");
    let server = lab.host(server).map_err(|error| failed(&error))?;
    let client = lab.host(client).map_err(|error| failed(&error))?;
    let options = ServeOptions::default();
    let ip: IpAddr = if ipv6 { server.plan.ipv6.into() } else { server.plan.ipv4.into() };
    let address = SocketAddr::from((ip, 0));
    let namespace = server.namespace.try_clone().map_err(|error| failed(&error))?;
    let (ready, bound) = mpsc::channel();
    let spec = lab.spec().clone();
    let serving = thread::Builder::new()
        .name("serve".into())
        .spawn(move || {
            spec.keep_off_the_emulator();
            let entered = namespace.enter_for_good().map_err(|error| error.to_string());
            let server = entered.and_then(|()| Server::bind(address, options).map_err(|error| error.to_string()));
            let address = server.as_ref().map_err(Clone::clone).and_then(|s| s.address().map_err(|e| e.to_string()));
            let _ = ready.send(address);
            // It says what went wrong to the client, too. Ctrl-C is the client's, which ends the test and has a result.
            server.map(|server| server.run(None, true, |_| {}))
        })
        .map_err(|error| failed(&error))?;
    let address = bound.recv().map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let target = Target::at(address, None);
    let end = client
        .namespace
        .enter(|| {
            lab.spec().keep_off_the_emulator();
            client::run(&target, parameters, Some(stop), live)
        })
        .map_err(|error| failed(&error))??;
    // Where the client failed it may wait for another for ever; it ends with this process.
    let _ = serving.join();
    Ok(end)
}

/// The server said that the test ended, but not how.
fn no_report() -> Caveat {
    Caveat::new(caveats::NO_REPORT, "the server's report has no result", "")
}
