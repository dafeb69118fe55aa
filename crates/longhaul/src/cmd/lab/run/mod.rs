//! `longhaul lab run`.

mod command;
pub(crate) mod faults;
mod journal;
mod own_cpu;
pub(crate) mod planned;
mod progress;
mod real;

use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_experiment::faults::Programs;
use longhaul_experiment::{
    Choice, Event, Experiment, Hosts, Made, Plan, Ran, Runner, TRIES_MOST, calibration_time, netem_missing,
    remove_leftovers,
};
use longhaul_kernel::capability;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::stderr_line;
use longhaul_kernel::user_namespace;
use longhaul_lab::LabSpec;
use longhaul_mix::MixSpec;
use longhaul_report::html::findings::{self, JudgedFinding};
use longhaul_report::html::series::{Report, Series};
use longhaul_report::html::{About, Host, mix, tcp_goodput, udp_loss};
use longhaul_report::parquet::write_losses;
use longhaul_result::{Caveat, Hosts as WithHosts};
use longhaul_udp::locate::Loss;
use longhaul_units::Nanos;
use serde::Serialize;

use self::command::command;
use self::journal::{Header, Journal};
use self::planned::{PlanParameters, PlannedRuns};
use self::progress::Progress;
use crate::args::engine::EngineArgs;
use crate::output::saved::{Folder, REPORT, RUNS, is_of_experiment};
use crate::output::{
    Envelope, Failure, INTERRUPTED, Outcome, plain, print_caveats, print_json, print_text, with_flags,
};

/// Run an experiment: its labs and tests, with a table and a report
///
/// Runs each point of the experiment several times, in random order, each time in a new lab. Repeats a run that this machine disturbed (the
/// emulator was late, other programs took the CPUs, the sender did not keep its rate).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul lab run nlr-udp-loss -o results && xdg-open results/report.html
  longhaul lab run nlr-udp-loss --plan              # what would be run, and how long it takes
  longhaul lab run nlr-tcp --server far --key my.key -o real   # the same tests between real hosts
  longhaul lab run nlr-udp-loss -o results --resume # continue an interrupted run
  longhaul lab run datatag-loss                     # one packet in 30,000 is lost
  longhaul lab run nima --mix ours.toml             # under the traffic of your own network
  longhaul lab run faults --only receive-buffer     # does `longhaul diagnose` name what is wrong?

`longhaul docs experiments` describes the file format.")]
pub(crate) struct Args {
    /// Run this experiment: a name (nlr-udp-loss, nlr-udp-rings, nlr-tcp, nlr-tcp-loss, nlr-batching, nlr-batching-tcp, teragrid, datatag-aimd,
    /// datatag-loss, datatag-switch, datatag-transfers, datatag-fairness, datatag-one-against-n, datatag-end-systems, datatag-record,
    /// tapee, emulation-matrix, emulators, emulators-tcp, nima), a file, or faults
    experiment: String,
    /// Write result.json, report.html, runs.jsonl and losses into this folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Run each point this many times [default: the experiment's number, else 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Repeat a run that this machine disturbed, up to N times in all [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TRIES_MOST)))]
    tries: Option<u32>,
    /// Run a few points per series, three times each
    #[arg(long)]
    quick: bool,
    /// Run only series whose name contains this text, or one of these texts (A,B), or these faults; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Use the times, rates, windows and queues of the paper, instead of a short or scaled form; --plan says how long that takes
    #[arg(long)]
    full: bool,
    /// Print what would be run and about how long it takes, and run nothing
    #[arg(long, conflicts_with_all = ["output", "resume"])]
    plan: bool,
    /// Allow the commands in the experiment (`program`), which run as this user; read them first
    #[arg(long)]
    commands: bool,
    /// Send this mix in place of the experiment's: a name or a file, as `longhaul mix` takes it; for experiments with a mix
    #[arg(long, value_name = "MIX")]
    mix: Option<String>,
    /// Continue the experiment whose runs are in the folder of -o
    #[arg(long, requires = "output", conflicts_with = "force")]
    resume: bool,
    /// Do not reserve the last CPU for the emulator in TCP tests, nor run it at SCHED_FIFO priority 50
    #[arg(long, conflicts_with = "cpu")]
    share_cpus: bool,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    real: real::RealArgs,
    #[command(flatten)]
    faults: faults::FaultArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// How often a run is made where nobody says it.
const DEFAULT_TRIES: u32 = 3;
/// While an experiment runs, result and page are written after a run if that takes at most one in so many parts of the time since they were
/// written last, or if [`SAVE_EACH`] has passed: a run is short, and a page of many points takes its time.
const SAVE_PART: u64 = 50;
const SAVE_EACH: Nanos = Nanos::from_secs(10);

impl Args {
    fn choice(&self) -> Choice {
        let Self { repeat, quick, .. } = *self;
        Choice { repeat, quick, only: self.only.clone(), real: self.real.server().is_some(), without_netem: false }
    }

    /// How the labs of `experiment` are made, but for their name, and what there is to say of it.
    fn spec(&self, experiment: &Experiment) -> (LabSpec, Option<String>) {
        let given = self.engine.spec();
        if self.real.server().is_some() {
            return (given, None);
        }
        if let Some(spec) = (!self.share_cpus).then(|| own_cpu::with_own_cpu(&given, experiment)).flatten() {
            let said = own_cpu::said(&spec);
            return (spec, Some(said));
        }
        if let Some(spec) =
            (!self.engine.says_wake_interval()).then(|| own_cpu::with_longer_sleep(&given, experiment)).flatten()
        {
            let said = own_cpu::said_of_sleep(&spec);
            return (spec, Some(said));
        }
        (given, None)
    }

    /// Whether `experiment` is scaled to what this machine can do, which it finds out first.
    fn calibrates(&self, experiment: &Experiment) -> bool {
        experiment.calibrate && !self.full && self.real.server().is_none()
    }

    /// The first option that is for experiments with repeated runs, if one was given that is not among `allowed`.
    fn repeated(&self, allowed: &[&str]) -> Option<&'static str> {
        let given = [
            ("--repeat", self.repeat.is_some()),
            ("--tries", self.tries.is_some()),
            ("--quick", self.quick),
            ("--full", self.full),
            ("--only", !self.only.is_empty()),
            ("--plan", self.plan),
            ("--resume", self.resume),
            ("--prometheus", self.prometheus.is_given()),
            ("--commands", self.commands),
            ("--share-cpus", self.share_cpus),
            ("--server", self.real.server().is_some()),
        ];
        given.into_iter().find_map(|(name, given)| (given && !allowed.contains(&name)).then_some(name))
    }

    /// The experiment that they name, with the mix that they name.
    fn experiment(&self) -> Result<Experiment, Failure> {
        let (short, full) = Experiment::load_forms(&self.experiment).map_err(Failure::usage)?;
        if self.full && full.is_none() && !short.calibrate {
            crate::output::say("--full changes nothing here: the experiment has no other sizes");
        }
        let experiment = full.filter(|_| self.full).unwrap_or(short);
        let of_repeats = ["--repeat", "--tries", "--quick", "--full", "--only", "--plan", "--resume", "--prometheus"];
        if let Some(option) = self.repeated(&of_repeats).filter(|_| !experiment.mix.is_empty()) {
            return Err(Failure::usage(format!("{option} is not for experiments with a mix")));
        }
        let Some(mix) = &self.mix else { return Ok(experiment) };
        let mix = MixSpec::load(mix).map_err(Failure::usage)?;
        experiment.with_mix(&mix).map_err(Failure::usage)
    }
}

/// `parameters` of the result.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// Title of the experiment.
    #[cfg_attr(test, schemars(length(min = 1)))]
    title: &'a str,
    /// The paper that it repeats; empty if none.
    source: &'a str,
    /// Its differences from the paper, and by how much it was scaled; empty if none.
    note: String,
    /// The path before the changes of a series, as a path file that names no other file (docs/reference/path-files.md).
    path: String,
    /// The path of the tests in words: name, round trip, slowest hop.
    path_summary: String,
    /// The name of the mix that was sent; `null` where the experiment has none.
    mix: Option<&'a str>,
    /// The host that answered, where there was no lab; `null` for labs.
    server: Option<&'a str>,
    /// How each lab was made. The seed is that of the first run of each point; each other run has the next one.
    lab: &'a LabSpec,
    /// Runs of each point, if the command said it.
    repeat: Option<u32>,
    /// How often a run was made at most until it counted.
    tries: u32,
    /// A few points of each series, three runs each.
    quick: bool,
    /// Texts in the names of the series; empty: all series.
    only: &'a [String],
    /// By how much rates, buffers, windows and queues were scaled, so that this machine keeps up; 1 for not at all.
    factor: f64,
}

/// `result` of the result.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ended<'a> {
    /// Ended before its end: what is missing was not measured, and the last run may be cut short.
    interrupted: bool,
    /// Series of UDP tests, in the order of the experiment; empty where it is of another kind.
    udp: &'a [Series<udp_loss::Run>],
    /// Series of TCP tests, in the order of the experiment; empty where it is of another kind.
    tcp: &'a [Series<tcp_goodput::Run>],
    /// Series of receivers under background traffic, in the order of the experiment; empty where it is of another kind.
    mix: &'a [Series<mix::Run>],
    /// The verdicts of the findings that the experiment expects, in its order.
    findings: Vec<JudgedFinding>,
}

pub(crate) fn run(args: Args) -> Outcome {
    remove_leftovers();
    if args.experiment == faults::NAME {
        if let Some(option) = args.repeated(&["--only"]) {
            return Err(Failure::usage(format!("{option} is not for `lab run faults`; see --seeds")));
        }
        return faults::run(&args);
    }
    if args.faults.any() {
        return Err(Failure::usage(
            "--seeds, --rtt, --time, --measure, --observe, --tune and --replay are for `lab run faults`",
        ));
    }
    let experiment = args.experiment()?;
    let plan = Plan::of(&experiment, &args.choice(), args.engine.spec().seed).map_err(Failure::usage)?;
    if args.plan {
        print_plan(&args, &experiment, &plan);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((series, command)) = experiment.commands().next().filter(|_| !args.commands) {
        let message = format!("“{series}” runs a command: {command}");
        return Err(Failure::usage(message).remedy("look at the commands of the experiment, and give --commands"));
    }
    measure(&args, &experiment)
}

fn print_plan(args: &Args, experiment: &Experiment, plan: &Plan) {
    let calibrating = if args.calibrates(experiment) { calibration_time(experiment) } else { Nanos::ZERO };
    let before = plan.warm_up().saturating_add(calibrating);
    if args.json {
        let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let parameters = PlanParameters::of(experiment, args);
        let result = PlannedRuns::of(plan, before);
        print_json(&Envelope::new("longhaul.lab.run.plan/1", started_at, parameters, result, Vec::new()));
        return;
    }
    print_text(&progress::plan(&experiment.title, plan, before));
    if let (_, Some(said)) = args.spec(experiment) {
        print_text(&format!("{said}\n"));
    }
    match args.real.server() {
        Some(host) => print_text(&format!("{}\n", real::differs(experiment, plan, host))),
        None if args.calibrates(experiment) => print_text(
            "rates, buffers, windows and queues are scaled to what this machine can do, which takes up to a minute to find out\n",
        ),
        None => {}
    }
}

/// Makes the runs of `experiment` that `args` ask for.
fn measure(args: &Args, experiment: &Experiment) -> Outcome {
    let (spec, placed) = args.spec(experiment);
    let spec = LabSpec { name: format!("run-{}", std::process::id()), ..spec };
    let tries = args.tries.unwrap_or(DEFAULT_TRIES);
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut header = Header::new(experiment, 1.0, &spec, args.real.server(), &now);
    let target = args.real.target()?;
    let longhaul = std::env::current_exe().map_err(|error| Failure::new("exec", error))?;
    let programs = &Programs { longhaul, cpus: spec.host_cpus() };
    let (kept, folder) = match &args.output {
        Some(output) if args.resume => {
            let folder = Folder::open(output.clone())?;
            let (kept, there) = Journal::open(output, &folder.path(), &header)?;
            header = there;
            (Some(kept), Some(folder))
        }
        Some(output) => (None, Some(Folder::prepare_beside(output.clone(), args.overwrite, &[], is_of_experiment)?)),
        None => (None, None),
    };
    // A run that was killed left its file.
    let metrics = args.prometheus.open(Overwrite::by(args.resume || args.overwrite.allowed()))?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Before there is a second thread.
    if target.is_none() && !capability::is_root_in_namespace() {
        user_namespace::unshare_user_as_root().map_err(|error| Failure::new("lab", error))?;
    }

    let say = |line: &str| if args.json { stderr_line!("{}", plain(line)) } else { print_text(&format!("{line}\n")) };
    if kept.is_some() {
        say(&format!("going on with the runs that began at {}", header.started_at));
    }
    if let Some(placed) = placed {
        say(&placed);
    }
    let netem_missing = if experiment.needs_netem() && target.is_none() { netem_missing() } else { None };
    let choice = Choice { without_netem: netem_missing.is_some(), ..args.choice() };
    if args.calibrates(experiment) {
        if kept.is_none() {
            say("finding out what this machine can do");
            let (tell, server) = (&|_: Event<'_>| {}, None);
            let runner = Runner { spec: &spec, tries: 1, stop, save_losses: None, command, programs, server, tell };
            header.factor = runner.calibrate(experiment)?;
        }
        say(&format!(
            "rates, buffers, windows and queues: {} times what the experiment says (--full: as it says)",
            header.factor
        ));
    } else if header.factor != 1.0 {
        let why = format!("its runs were made at {} times the rates, which a calibration found", header.factor);
        return Err(Failure::new("not_resumed", why).remedy("leave out --full, or give -o another folder"));
    }
    let experiment = &experiment.scaled(header.factor);
    let plan = &Plan::of(experiment, &choice, spec.seed).map_err(Failure::usage)?;
    if let Some(missing) = &netem_missing {
        say(&without_netem(missing, plan));
    }
    let mut ran = Ran::new(experiment, plan, tries);
    let journal_file = args.output.as_deref().unwrap_or(Path::new("")).join(RUNS);
    let unwritable = |error: io::Error| Failure::unwritable(&journal_file, error);
    let journal = match (kept, &folder) {
        (Some(kept), _) => Some(kept.resume(plan, &mut ran, || stop.requested())?),
        // That of before goes with the first run.
        (None, Some(folder)) if !folder.replaces() => Some(Journal::begin(folder, header.clone()).map_err(unwritable)?),
        (None, _) => None,
    };
    let is_kept = Cell::new(folder.is_some());
    let save = |name: &str, losses: &mut dyn Iterator<Item = Loss>| {
        let folder = folder.as_ref().ok_or("there is no folder")?;
        let name = format!("{name}.parquet");
        folder.write_now(&name, |file| write_losses(file, losses)).map(|()| name)
    };
    let measured = Measured {
        args,
        folder: folder.as_ref(),
        experiment,
        plan,
        spec: &spec,
        tries,
        header: &header,
        netem_missing,
    };
    let progress = RefCell::new(Progress::new(plan, args.json, metrics));
    let journal = RefCell::new(journal);
    // When result and page were last written, and how long that took.
    let saved = Cell::new((monotonic(), Nanos::ZERO));
    let keep = |made: &Made, ran: &Ran| -> Result<(), Failure> {
        if let Some(folder) = folder.as_ref().filter(|_| is_kept.get()) {
            let mut journal = journal.borrow_mut();
            if journal.is_none() {
                *journal = Some(Journal::begin(folder, header.clone()).map_err(unwritable)?);
            }
            let Some(journal) = journal.as_mut() else { return Ok(()) };
            journal.add(made, ran).map_err(unwritable)?;
            let ((last, took), now) = (saved.get(), monotonic());
            let since = now - last;
            if since >= SAVE_EACH || since.0 >= took.0.saturating_mul(SAVE_PART) {
                measured.save(ran, true, true)?;
                let ended = monotonic();
                saved.set((ended, ended - now));
            }
        }
        Ok(())
    };
    let tell = |event: Event<'_>| {
        // A run that was stopped, or that has no result, is made again by --resume.
        if let Event::Made { made, ran, .. } = &event
            && stop.requested().is_none()
            && made.has_result()
            && let Err(failure) = keep(made, ran)
        {
            progress.borrow_mut().note(&format!("caveat: {}; what follows is in the result alone", failure.message()));
            is_kept.set(false);
        }
        progress.borrow_mut().tell(&event);
    };
    let save_losses = args.output.as_ref().map(|_| &save as _);
    let server = target.as_ref();
    let runner = Runner { spec: &spec, tries, stop, save_losses, command, programs, server, tell: &tell };
    let ran = runner.run(experiment, plan, ran);
    progress.borrow_mut().end();

    let interrupted = stop.requested().is_some();
    if let (false, Some(error)) = (interrupted, ran.failure()) {
        return Err(error.clone().into());
    }
    say(&progress::tables(experiment, &ran));
    if let Some(host) = args.real.server() {
        say(&real::differs(experiment, plan, host));
    }
    let found = findings::text(&ran.findings(experiment, plan));
    if !found.is_empty() {
        say(&found);
    }
    let keeps_old = interrupted && folder.as_ref().is_some_and(Folder::replaces);
    let saved = if keeps_old {
        say("nothing was saved: the earlier result stays");
        Ok(())
    } else {
        let new = folder.as_ref().filter(|_| is_kept.get() && journal.borrow().is_none());
        // A run began and was not finished: --resume finds its experiment.
        let begun = new.map_or(Ok(()), |folder| Journal::begin(folder, header.clone()).map(drop));
        begun.map_err(unwritable).and_then(|()| measured.save(&ran, interrupted, false))
    };
    let envelope = measured.envelope(&ran, interrupted);
    // What there is to save is saved, and whoever reads this may be slow.
    Stop::release();
    if args.json {
        print_json(&envelope);
    }
    print_caveats(&first_of_each_kind(&envelope.caveats));
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    if let Some(folder) = args.output.as_ref().filter(|_| !keeps_old) {
        say(&format!("report: {}", folder.join(REPORT).display()));
        if interrupted {
            say("--resume with the same command goes on from here");
        }
    }
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// An experiment that is run.
struct Measured<'a> {
    args: &'a Args,
    folder: Option<&'a Folder>,
    experiment: &'a Experiment,
    plan: &'a Plan,
    spec: &'a LabSpec,
    tries: u32,
    header: &'a Header,
    /// Why points that need netem are left out; `None` if there are none.
    netem_missing: Option<Caveat>,
}

impl Measured<'_> {
    fn envelope<'a>(
        &'a self,
        ran: &'a Ran,
        interrupted: bool,
    ) -> Envelope<Parameters<'a>, Ended<'a>, WithHosts<&'a Option<Hosts>>> {
        let Self { args, experiment, plan, spec, tries, header, .. } = *self;
        let parameters = Parameters {
            title: &experiment.title,
            source: &experiment.source,
            note: self.note(),
            path: experiment.path.to_toml(),
            path_summary: self.path(),
            mix: experiment.mix.first().map(|series| series.mix.name.as_str()),
            server: args.real.server(),
            lab: spec,
            repeat: args.repeat,
            tries,
            quick: args.quick,
            only: &args.only,
            factor: header.factor,
        };
        let findings = ran.findings(experiment, plan);
        let result = Ended { interrupted, udp: &ran.udp, tcp: &ran.tcp, mix: &ran.mix, findings };
        let caveats = self.netem_missing.iter().cloned().chain(ran.caveats()).collect();
        Envelope::new("longhaul.lab.run/2", header.started_at.clone(), parameters, result, caveats)
            .with_hosts(&ran.hosts)
    }

    /// The path of the tests in words.
    fn path(&self) -> String {
        let real = self.args.real.server().map(|host| format!("the path from this host to {host}"));
        real.unwrap_or_else(|| self.experiment.path_in_words())
    }

    /// How it differs from its source.
    fn note(&self) -> String {
        let note = &self.experiment.note;
        if let Some(host) = self.args.real.server() {
            return format!("{}\n\n{note}", real::differs(self.experiment, self.plan, host));
        }
        let missing = self.netem_missing.as_ref().map(|missing| without_netem(missing, self.plan) + "\n\n");
        missing.unwrap_or_default() + note
    }

    /// Writes result and page into the folder, if there is one. Where the experiment goes on, they are written again.
    fn save(&self, ran: &Ran, interrupted: bool, goes_on: bool) -> Result<(), Failure> {
        let Some(folder) = self.folder else { return Ok(()) };
        let experiment = self.experiment;
        let about = About {
            title: experiment.title.clone(),
            source: experiment.source.clone(),
            note: self.note(),
            path: self.path(),
            factor: Some(self.header.factor),
            started_at: self.header.started_at.clone(),
            longhaul: env!("CARGO_PKG_VERSION").to_owned(),
            interrupted,
            hosts: Host::of_snapshots(&serde_json::json!(ran.hosts)),
        };
        let findings = ran.findings(experiment, self.plan);
        let html = if !experiment.mix.is_empty() {
            Report { about, series: ran.mix.clone(), findings }.to_html()
        } else if experiment.tcp.is_empty() {
            Report { about, series: ran.udp.clone(), findings }.to_html()
        } else {
            Report { about, series: ran.tcp.clone(), findings }.to_html()
        };
        save_both(folder, &self.envelope(ran, interrupted), &html, goes_on)
    }
}

/// What is left out of an experiment on a machine without netem, and why.
fn without_netem(missing: &Caveat, plan: &Plan) -> String {
    format!("Left out are {}: {}. To have them: {}.", plan.left_out().join("; "), missing.message, missing.remedy)
}

/// The first caveat of each kind, with how many more there are: a terminal is no place for one of each test.
fn first_of_each_kind(caveats: &[Caveat]) -> Vec<Caveat> {
    let mut kinds: Vec<(Caveat, usize)> = Vec::new();
    for caveat in caveats {
        match kinds.iter_mut().find(|(first, _)| first.code == caveat.code) {
            Some((_, more)) => *more += 1,
            None => kinds.push((caveat.clone(), 0)),
        }
    }
    let said = |(mut first, more): (Caveat, usize)| {
        if more > 0 {
            first.message += &format!("; {more} more of this kind");
        }
        first
    };
    kinds.into_iter().map(said).collect()
}

/// Writes result and page into `folder`.
fn save_both(folder: &Folder, envelope: &impl Serialize, page: &str, goes_on: bool) -> Result<(), Failure> {
    if goes_on { folder.save_meanwhile(envelope) } else { folder.save(envelope) }?;
    folder.write_text(REPORT, &with_flags(page)).map_err(|error| Failure::new("not_written", error))
}
