//! `longhaul lab run`.

mod command;
pub(crate) mod faults;

use crate::caveats;
use crate::output::overwrite::Overwrite;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_experiment::{Event, Experiment, InLab, MixExperiment, Runner};
use longhaul_kernel::capability;
use longhaul_kernel::new_file;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::user_namespace;
use longhaul_lab::LabSpec;
use longhaul_report::html::series::Report;
use longhaul_report::html::{About, Host, mix, tcp_goodput, udp_loss};
use longhaul_report::parquet::write_losses;
use longhaul_report::text::experiment as text;
use longhaul_result::Caveat;
use longhaul_udp::locate::Loss;
use serde::Serialize;

use crate::args::engine::EngineArgs;
use crate::cmd::lab::run::command::command;
use crate::output::saved::Folder;
use crate::output::{
    Envelope, Failure, INTERRUPTED, Outcome, plain, print_caveats, print_json, print_text, with_flags,
};

/// Run an experiment: its labs and tests, with a table and a report
///
/// Each series of the experiment runs in its own lab. The lab ends with the series, or with this command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul lab run nlr-udp-loss -o results && xdg-open results/report.html
  longhaul lab run datatag-loss --realtime 50       # Reno, HighSpeed, Scalable at one loss in 30,000
  longhaul lab run faults --only receive-buffer     # does `longhaul diagnose` name what is wrong?

`longhaul docs experiments` describes the file format.")]
pub(crate) struct Args {
    /// Experiment: a name (nlr-udp-loss, nlr-tcp, datatag-loss, datatag-fairness, emulation-matrix, nima), a file, or faults
    experiment: String,
    /// Write result.json, report.html and losses into this folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    faults: faults::FaultArgs,
    #[command(flatten)]
    engine: EngineArgs,
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
    /// Its differences from the paper; empty if none.
    note: &'a str,
    /// The path before the changes of a series, as a path file that names no other file (docs/reference/path-files.md).
    path: String,
    /// How each lab was made.
    lab: &'a LabSpec,
}

/// `result` of the result.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ended<'a> {
    /// Ended before its end: what is missing was not measured, and the last test may be cut short.
    interrupted: bool,
    /// Series of UDP tests, in the order of the experiment; empty where it is of TCP.
    series: &'a [InLab<udp_loss::Run>],
    /// Series of TCP tests, in the order of the experiment; empty where it is of UDP.
    tcp: &'a [InLab<tcp_goodput::Run>],
}

/// `parameters` of an experiment without a path.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MixParameters<'a> {
    /// What it is about.
    title: &'a str,
    /// What it repeats.
    source: &'a str,
    /// Where it differs from that.
    note: &'a str,
    /// What is sent.
    mix: &'a str,
    /// How long each rate is sent.
    time_ns: u64,
    /// On a wire (L1).
    #[cfg_attr(test, schemars(length(min = 1), inner(range(min = 1))))]
    rates_bps: Vec<u64>,
}

/// `result` of an experiment without a path.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MixEnded<'a> {
    /// Ctrl-C ended it.
    interrupted: bool,
    /// In the order of the experiment.
    series: &'a [mix::Series],
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.experiment == faults::NAME {
        return faults::run(&args);
    }
    if args.faults.any() {
        return Err(Failure::usage("--only, --seeds, --rtt, --time, --measure and --replay are for `lab run faults`"));
    }
    if let Some(experiment) = MixExperiment::load(&args.experiment).map_err(Failure::usage)? {
        return run_mix(&args, &experiment);
    }
    let experiment = Experiment::load(&args.experiment).map_err(Failure::usage)?;
    let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Before there is a second thread.
    if !capability::is_root_in_namespace() {
        user_namespace::unshare_user_as_root().map_err(|error| Failure::new("lab", error))?;
    }

    let say = |line: &str| if args.json { eprintln!("{}", plain(line)) } else { print_text(&format!("{line}\n")) };
    let lost = if experiment.tcp.is_empty() { "losses" } else { "windows" };
    say(&format!("{}; rates in Mb/s of payload, {lost} in packets", experiment.title));
    let spec = LabSpec { name: format!("run-{}", std::process::id()), ..args.engine.spec() };
    let save = |name: &str, losses: &mut dyn Iterator<Item = Loss>| {
        let folder = folder.as_ref().ok_or("there is no folder")?;
        let name = format!("{name}.parquet");
        folder.write(&name, |file| write_losses(file, losses)).map(|()| name)
    };
    let tell = |event: Event<'_>| tell(event, &say);
    let save_losses = args.output.as_ref().map(|_| &save as _);
    let ran = Runner { spec: &spec, stop, save_losses, command, tell: &tell }.run(&experiment);

    let interrupted = stop.requested().is_some();
    if let (false, Some(error)) = (interrupted, ran.failure()) {
        return Err(error.clone().into());
    }
    let parameters = Parameters {
        title: &experiment.title,
        source: &experiment.source,
        note: &experiment.note,
        path: experiment.path.to_toml(),
        lab: &spec,
    };
    let result = Ended { interrupted, series: &ran.udp, tcp: &ran.tcp };
    let caveats = ran.caveats();
    let envelope =
        Envelope::new("longhaul.lab.run/1", started_at.clone(), parameters, result, caveats).with_hosts(&ran.hosts);
    if let Some(folder) = &args.output {
        let about = About {
            title: experiment.title.clone(),
            source: experiment.source.clone(),
            note: experiment.note.clone(),
            path: experiment.path_in_words(),
            started_at,
            longhaul: env!("CARGO_PKG_VERSION").to_owned(),
            interrupted,
            hosts: Host::of_snapshots(&serde_json::json!(ran.hosts)),
        };
        let html = if experiment.tcp.is_empty() {
            Report { about, series: ran.udp.iter().map(|one| one.series.clone()).collect() }.to_html()
        } else {
            Report { about, series: ran.tcp.iter().map(|one| one.series.clone()).collect() }.to_html()
        };
        save_both(folder, &envelope, html)?;
    }
    if args.json {
        print_json(&envelope);
    }
    print_caveats(&first_of_each_kind(&envelope.caveats));
    if let Some(folder) = &args.output {
        say(&format!("\nreport: {}", folder.join("report.html").display()));
    }
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// An experiment without a path: two hosts and a cable.
fn run_mix(args: &Args, experiment: &MixExperiment) -> Outcome {
    let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let say = |line: &str| if args.json { eprintln!("{}", plain(line)) } else { print_text(&format!("{line}\n")) };
    say(&experiment.title);
    let report = Runner::run_mix(experiment, stop, &|event| tell(event, &say));
    let interrupted = stop.requested().is_some();
    if let (true, Some(error)) = (
        !interrupted && report.series.iter().all(|series| series.runs.is_empty()),
        report.series.iter().find_map(|series| series.error.as_ref()),
    ) {
        return Err(Failure::new("not_measured", error).remedy("run as root, if you do not"));
    }
    let caveats = report.series.iter().filter_map(|series| {
        let error = series.error.as_ref()?;
        Some(Caveat::new(caveats::NOT_MEASURED, format!("{}: {error}", series.name), ""))
    });
    let caveats: Vec<_> = caveats.collect();
    let parameters = MixParameters {
        title: &experiment.title,
        source: &experiment.source,
        note: &experiment.note,
        mix: &experiment.mix.name,
        time_ns: experiment.time.0,
        rates_bps: experiment.rates.iter().map(|rate| rate.0).collect(),
    };
    let result = MixEnded { interrupted, series: &report.series };
    let envelope = Envelope::new("longhaul.lab.run.mix/1", started_at, parameters, result, caveats);
    if let Some(folder) = &args.output {
        save_both(folder, &envelope, report.to_html())?;
        say(&format!("\nreport: {}", folder.join("report.html").display()));
    }
    if args.json {
        print_json(&envelope);
    }
    print_caveats(&envelope.caveats);
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Prints what happens while an experiment runs, each time by `say`.
fn tell(event: Event<'_>, say: &dyn Fn(&str)) {
    match event {
        Event::UdpSeries(name) => say(&format!("\n{}", text::udp_heading(name))),
        // The row takes its place.
        Event::UdpBegins(rate) if std::io::stderr().is_terminal() => eprint!("{:>9.1} …\r", rate.0 as f64 / 1e6),
        Event::UdpBegins(_) => {}
        Event::Udp(run) => say(&text::udp_row(run)),
        Event::TcpSeries(name) => say(&format!("\n{}", text::tcp_heading(name))),
        Event::Tcp(run) => say(&text::tcp_row(run)),
        Event::MixSeries(name) => say(&format!("\n{name}\n{}", mix::Run::heading())),
        Event::Mix(run) => say(&run.row()),
        Event::MixMost(most) => say(&most.row()),
        Event::NotMeasured(why) => say(&format!("{:>9}  not measured: {why}", "")),
    }
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
fn save_both(folder: &Path, envelope: &impl Serialize, page: String) -> Result<(), Failure> {
    let object = serde_json::to_string(envelope).map_err(|error| Failure::new("json", error))?;
    for (name, contents) in [("result.json", object + "\n"), ("report.html", with_flags(&page))] {
        let file = folder.join(name);
        new_file::write(&file, contents).map_err(|error| not_written(&file, error))?;
    }
    Ok(())
}

fn not_written(path: &Path, error: std::io::Error) -> Failure {
    Failure::new("not_written", format!("cannot write {}: {error}", path.display()))
}
