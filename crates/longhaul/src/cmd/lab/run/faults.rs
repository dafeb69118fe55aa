//! `longhaul lab run faults`: the catalogue of faults, and whether `longhaul diagnose` names them.

mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_experiment::faults::run::{self, Event, Price, of_evidence_name};
use longhaul_experiment::faults::score::{Cell, Summary};
use longhaul_experiment::faults::spec::Fault;
use longhaul_experiment::faults::{Programs, all, find};
use longhaul_kernel::capability;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::stderr_line;
use longhaul_kernel::user_namespace;
use longhaul_units::{Nanos, read_text};
use serde::Serialize;

use crate::output::saved::{FAULTS_SCHEMA, Folder, is_diagnosis};
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, plain, print_json, print_text};

/// The name that stands for the catalogue.
pub(super) const NAME: &str = "faults";
/// Long enough for CUBIC to settle over a long path.
const DEFAULT_TIME: Nanos = Nanos::from_secs(30);
const DEFAULT_SEEDS: u64 = 3;
/// The longest kept diagnosis that is read.
const EVIDENCE_BYTES_MOST: u64 = 64 << 20;
/// Kept diagnoses of a folder at most.
const EVIDENCE_FILES_MOST: usize = 100_000;

/// Options of the catalogue of faults.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Catalogue of faults (longhaul lab run faults)")]
pub(super) struct FaultArgs {
    /// Run each fault with this many seeds of the path's random numbers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Run each fault with these round trips, if the fault lists them [default: the first one that it lists]
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    rtt: Vec<Nanos>,
    /// Send for this time in each test [default: 30s]
    #[arg(long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Measure what each fault costs, by tests with it and without it, instead of a diagnosis
    #[arg(long, conflicts_with = "replay")]
    measure: bool,
    /// Diagnose one TCP test by what the kernels of its two hosts see, and by a capture, instead of by tests
    #[arg(long, conflicts_with_all = ["measure", "tune", "replay"])]
    observe: bool,
    /// Let `longhaul tune` fix the first cause if it is at a host, and test TCP a second time
    #[arg(long, conflicts_with_all = ["measure", "replay"])]
    tune: bool,
    /// Judge the evidence that -o wrote into this folder by the rules of this version; run nothing
    #[arg(long, value_name = "FOLDER")]
    replay: Option<PathBuf>,
}

impl FaultArgs {
    /// Whether any was given: they say nothing to an experiment.
    pub(super) fn any(&self) -> bool {
        !self.rtt.is_empty()
            || self.seeds.is_some()
            || self.time.is_some()
            || self.measure
            || self.tune
            || self.observe
            || self.replay.is_some()
    }

    /// The faults that were asked for, each with its round trips.
    fn chosen(&self, only: &[String]) -> Result<Vec<(Fault, Nanos)>, Failure> {
        let faults: Vec<Fault> = if only.is_empty() {
            all().map_err(|error| Failure::new("faults", error))?
        } else {
            let named = only.iter().map(|name| find(name).map_err(Failure::usage));
            named.collect::<Result<_, _>>()?
        };
        let mut chosen = Vec::new();
        for fault in faults {
            let has = |rtt: &&Nanos| self.rtt.contains(rtt);
            let round_trips: Vec<Nanos> = if self.rtt.is_empty() {
                fault.round_trips.first().copied().into_iter().collect()
            } else {
                fault.round_trips.iter().filter(has).copied().collect()
            };
            chosen.extend(round_trips.into_iter().map(|rtt| (fault.clone(), rtt)));
        }
        if chosen.is_empty() {
            return Err(Failure::usage("--rtt: no fault has these round trips; use 10ms, 80ms or 200ms"));
        }
        Ok(chosen)
    }
}

/// `parameters` of the result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The time of each test.
    time_ns: u64,
    /// The seeds of the paths' random numbers, from the first to the last; `null` for diagnoses made before.
    seeds: Option<[u64; 2]>,
    /// The folder of the diagnoses that were judged; `null` if they were made now.
    replay: Option<PathBuf>,
}

/// `result` of the result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ran {
    /// Ended before its end: what is missing was not run.
    interrupted: bool,
    /// Each diagnosis beside what is known.
    cells: Vec<Cell>,
    /// The same in numbers.
    summary: Summary,
    /// With `--measure`: what each fault costs. Otherwise empty.
    prices: Vec<Price>,
}

pub(super) fn run(args: &super::Args) -> Outcome {
    let asked = &args.faults;
    let only: Vec<String> = args.only.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
    let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let say = |line: &str| if args.json { stderr_line!("{}", plain(line)) } else { print_text(&format!("{line}\n")) };
    let mut ran = Ran { interrupted: false, cells: Vec::new(), summary: Summary::of(&[]), prices: Vec::new() };
    let time = asked.time.unwrap_or(DEFAULT_TIME);
    let mut parameters = Parameters { time_ns: time.0, seeds: None, replay: asked.replay.clone() };
    let open = |inputs: &[PathBuf], writes: fn(&str) -> bool| {
        let beside = |folder| Folder::prepare_beside(folder, args.overwrite, inputs, writes);
        args.output.clone().map(beside).transpose()
    };
    let folder = if let Some(folder) = &asked.replay {
        let saved = open(std::slice::from_ref(folder), |_| false)?;
        ran.cells = replay(folder, asked, &only)?;
        say(text::HEADING);
        for cell in &ran.cells {
            say(&text::row(cell));
        }
        saved
    } else {
        let chosen = asked.chosen(&only)?;
        let folder = open(&[], is_diagnosis)?;
        let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
        // Before there is a second thread.
        if !capability::is_root_in_namespace() {
            user_namespace::unshare_user_as_root().map_err(|error| Failure::new("lab", error))?;
        }
        let longhaul = std::env::current_exe().map_err(|error| Failure::new("exec", error))?;
        let spec = args.engine.spec();
        let seeds = spec.seed..=spec.seed.saturating_add(asked.seeds.unwrap_or(DEFAULT_SEEDS) - 1);
        parameters.seeds = Some([*seeds.start(), *seeds.end()]);
        let keep = |name: &str, json: &str| {
            let Some(folder) = &folder else { return Ok(()) };
            folder.write_text(name, json)
        };
        let tell = |event: Event<'_>| match event {
            Event::Begins(..) => {}
            Event::Diagnosed(cell) => say(&text::row(cell)),
            Event::Measured(price) => say(&text::price(price)),
        };
        let programs = Programs { longhaul, cpus: spec.host_cpus() };
        let keep = folder.as_ref().map(|_| &keep as _);
        let tune = asked.tune;
        let runner = run::Runner { programs: &programs, spec: &spec, stop, time, seeds, tune, keep, tell: &tell };
        if asked.measure {
            say(text::PRICE_HEADING);
            ran.prices = runner.measure(&chosen);
        } else {
            say(text::HEADING);
            ran.cells = if asked.observe { runner.observe(&chosen) } else { runner.diagnose(&chosen) };
        }
        ran.interrupted = stop.requested().is_some();
        folder
    };
    ran.summary = Summary::of(&ran.cells);
    if !ran.cells.is_empty() {
        say(&text::summary(&ran.summary));
    }
    let interrupted = ran.interrupted;
    let envelope = Envelope::new(FAULTS_SCHEMA, started_at, parameters, ran, Vec::new());
    let saved = folder.as_ref().map_or(Ok(()), |folder| folder.save(&envelope));
    // Whoever reads this may be slow.
    Stop::release();
    if args.json {
        print_json(&envelope);
    }
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Judges the diagnoses in `folder`.
fn replay(folder: &Path, asked: &FaultArgs, only: &[String]) -> Result<Vec<Cell>, Failure> {
    let unreadable = |error: std::io::Error| Failure::new("unreadable", format!("{}: {error}", folder.display()));
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(unreadable)?.take(EVIDENCE_FILES_MOST) {
        names.extend(entry.map_err(unreadable)?.file_name().into_string().ok());
    }
    let mut cells = Vec::new();
    for name in &names {
        let Some((fault, rtt, seed, form)) = of_evidence_name(name) else { continue };
        let Ok(fault) = find(fault) else { continue };
        let wanted =
            (only.is_empty() || only.contains(&fault.name)) && (asked.rtt.is_empty() || asked.rtt.contains(&rtt));
        if wanted {
            // A pipe there would be waited for without end.
            let unreadable = |error| Failure::new("unreadable", format!("{}: {error}", folder.join(name).display()));
            let said = read_text(&folder.join(name), EVIDENCE_BYTES_MOST).map_err(unreadable)?;
            cells.push(run::replay(&fault, rtt, seed, form, &said));
        }
    }
    if cells.is_empty() {
        return Err(Failure::usage(format!("--replay {}: there is no diagnosis of a fault", folder.display()))
            .remedy("give a folder that `longhaul lab run faults -o` wrote"));
    }
    Ok(cells)
}
