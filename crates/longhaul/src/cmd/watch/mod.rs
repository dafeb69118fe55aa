//! `longhaul watch`.

pub(crate) mod live;

use crate::caveats;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal, ended_child};
use longhaul_kernel::process_sockets::adopt_orphans;
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_kernel::wait::{readable_until, sleep_until};
use longhaul_report::parquet::{End, FlowSamples, write_samples};
use longhaul_report::saved::WATCH_SCHEMA;
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use longhaul_watch::{Selection, Watch, WatchError, WatchOptions, Watched};
use serde::Serialize;

use crate::args::interval::DEFAULT_INTERVAL;
use crate::cmd::watch::live::Live;
use crate::output::exit_code;
use crate::output::live::Show;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, plain, print_caveats, print_json, print_text};

/// The shortest time between samples: one takes some 0.1 ms.
const LEAST_SAMPLE: Nanos = Nanos::from_millis(1);
/// After the processes have ended, their connections have this long to end.
const GRACE: Nanos = Nanos::from_secs(1);
/// A signal is passed on to the command after this time. Ctrl-C on a terminal reaches the command directly, before that.
const PASS_ON: Nanos = Nanos::from_millis(500);
/// How often to check whether the processes still run.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);
/// The file with the samples, next to the result.
const SAMPLES: &str = "samples.parquet";

const EXAMPLES: &str = "\
Example:
  longhaul watch -- curl -O https://example.org/large.iso   # ends with it, and with its exit code
  longhaul watch --port 443 -t 1m -o monday                 # keep the result and all samples
  longhaul watch --pid 4711 -i 1s
  longhaul show monday

With a COMMAND, the report goes to stderr and stdout belongs to the command. With --json, stdout has only the result, and the
output of the command goes to stderr. The exit code is that of the command (128 plus the signal number if a signal ended it), 127 if
the command does not exist, 126 if it cannot be run, 130 after Ctrl-C. docs/reference/watch-results.md explains each number.";

/// Watch TCP connections of other programs: how fast, what limits them
///
/// Watches all connections of this network namespace, or those that you choose. The programs are not touched.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Watch connections of this process and its descendants, in its network namespace
    #[arg(long, value_name = "PID", group = "which")]
    pid: Option<u32>,
    /// Watch connections with this port at either end
    #[arg(long, value_name = "PORT", group = "which", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Watch connections made in this control group (version 2) or one below, given as its folder
    #[arg(long, value_name = "DIR", group = "which")]
    cgroup: Option<PathBuf>,
    /// Run this command, and watch its connections and those of its child processes
    #[arg(last = true, value_name = "COMMAND", group = "which", conflicts_with = "time")]
    command: Vec<String>,
    /// Watch for this time [default: until Ctrl-C, or until the processes have ended]
    #[arg(short = 't', long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Report every TIME (0: never) [default: 1s; with a COMMAND, never]
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Take a sample of TCP_INFO every TIME
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: Nanos,
    /// Save the result in this folder: result.json, and samples.parquet with all TCP_INFO fields over time
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

impl Args {
    fn selection(&self) -> Selection {
        match (self.pid, self.port, &self.cgroup) {
            (Some(pid), ..) => Selection::Process(pid),
            (_, Some(port), _) => Selection::Port(port),
            (.., Some(path)) => Selection::Cgroup(path.clone()),
            _ if !self.command.is_empty() => Selection::Descendants,
            _ => Selection::All,
        }
    }

    fn show(&self) -> Show {
        // The terminal belongs to the command.
        let beside = self.json || !self.command.is_empty();
        match (self.interval, self.command.is_empty()) {
            (None, false) => Show::Nothing,
            _ => Show::choose(self.interval, beside, false),
        }
    }
}

/// The parameters of the result. At most one of `pid`, `port`, `cgroup` and `command` is set; with none, all connections are watched.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct WatchParameters {
    /// The chosen process.
    pid: Option<u32>,
    /// The chosen port.
    #[cfg_attr(test, schemars(range(min = 1)))]
    port: Option<u16>,
    /// The folder of the chosen control group.
    cgroup: Option<String>,
    /// The command that was run.
    command: Option<Vec<String>>,
    /// The requested duration; `None`: until the end.
    time_ns: Option<u64>,
    /// The requested time between two samples.
    sample_ns: u64,
    /// The exit code of the command, 128 plus the signal number if a signal ended it; `None` without a command or if it did not
    /// end.
    exit_code: Option<u8>,
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.sample < LEAST_SAMPLE {
        return Err(Failure::usage(format!("--sample {}: give {LEAST_SAMPLE} or more", args.sample)));
    }
    let folder = args.output.clone().map(Folder::prepare).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let namespace = args.pid.map(NetNamespace::of_process).transpose();
    let namespace = namespace.map_err(|error| {
        Failure::new("no_process", format!("--pid {}: {error}", args.pid.unwrap_or(0)))
            .remedy("name a running process, and run longhaul as its user or as root")
    })?;
    let options =
        WatchOptions { selection: args.selection(), namespace, sample: args.sample, keep_samples: folder.is_some() };
    let mut watch = Watch::open(options).map_err(not_watched)?;
    // Start to watch first, so that its first connection is seen from its beginning.
    let child = (!args.command.is_empty()).then(|| start(&args.command, args.json)).transpose()?;
    let mut live = Live::new(args.show());
    let ended = follow(&args, &mut watch, child, stop, &mut live).map_err(|error| Failure::new("watch", error))?;
    live.end();
    let Watched { mut result, samples, mut caveats } = watch.finish();

    if let Some(folder) = &folder {
        let flow = |one: longhaul_watch::WatchedSamples| (one.number, one.congestion, one.series);
        let owned: Vec<_> = samples.into_iter().map(flow).collect();
        let flows = owned.iter().map(|(number, congestion, series)| FlowSamples {
            end: "watched",
            direction: "both",
            stream: *number,
            congestion,
            series: series.clone(),
        });
        let end = End { flows: flows.collect() };
        match folder.write(SAMPLES, |file| write_samples(file, &[end])) {
            Ok(()) => result.samples_file = Some(SAMPLES.into()),
            Err(error) => {
                caveats.push(Caveat::new(caveats::SAMPLES_NOT_SAVED, error, "free space on the disk, and run it again"))
            }
        }
    }
    let exit = ended.map(code_of);
    let parameters = WatchParameters {
        pid: args.pid,
        port: args.port,
        cgroup: args.cgroup.as_ref().map(|path| path.display().to_string()),
        command: (!args.command.is_empty()).then(|| args.command.clone()),
        time_ns: args.time.map(|time| time.0),
        sample_ns: args.sample.0,
        exit_code: exit,
    };
    let envelope = Envelope::new(WATCH_SCHEMA, started_at, parameters, result, Caveat::unique(caveats));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    if args.json {
        print_json(&envelope);
    } else if args.command.is_empty() {
        print_text(&text::watch::report(&envelope.result));
    } else {
        eprint!("{}", plain(&text::watch::report(&envelope.result)));
    }
    print_caveats(&envelope.caveats);
    if let Err(failure) = saved {
        return Ok(failure.report_beside());
    }
    Ok(match (stop.requested(), exit) {
        (Some(signal), _) => ExitCode::from(exit_code(signal)),
        (None, Some(code)) => ExitCode::from(code),
        (None, None) => ExitCode::SUCCESS,
    })
}

/// Samples until the end. Returns how the command ended.
fn follow(
    args: &Args,
    watch: &mut Watch,
    mut child: Option<u32>,
    stop: Stop,
    live: &mut Live,
) -> io::Result<Option<ExitStatus>> {
    let start = monotonic();
    let interval = args.interval.unwrap_or(DEFAULT_INTERVAL);
    let end = args.time.map_or(Nanos::MAX, |time| start.saturating_add(time));
    let (mut tick, mut table, mut look) = (start, start.saturating_add(interval), start);
    let mut ended = None;
    let mut leave = Nanos::MAX;
    let mut asked: Option<Nanos> = None;
    loop {
        let now = monotonic();
        if now >= tick {
            watch.sample();
            while tick <= now {
                tick += args.sample;
            }
        }
        if live.is_shown() && now >= table {
            live.take(now.saturating_sub(start), &watch.now());
            while table <= now {
                table += interval;
            }
        }
        // Others are those that the command left behind.
        while let Some((pid, status)) = ended_child()? {
            if child == Some(pid) {
                (ended, child) = (Some(status), None);
                leave = now.saturating_add(GRACE);
            }
        }
        if let Some(running) = child {
            if let Some(signal) = stop.requested() {
                pass_on(running, signal, *asked.get_or_insert(now), now)?;
            }
        } else if stop.requested().is_some() {
            return Ok(ended);
        }
        if now >= look {
            look = now.saturating_add(LOOK_AGAIN);
            if leave == Nanos::MAX && watch.is_over() {
                leave = now.saturating_add(GRACE);
            }
        }
        let all_ended = leave < Nanos::MAX && watch.open_connections() == 0;
        if now >= end || now >= leave || all_ended || stop.count() > 1 {
            return Ok(ended);
        }
        let next = tick.min(end).min(leave);
        // After a signal, the descriptor stays readable.
        match stop.requested() {
            None => _ = readable_until(stop, Some(next))?,
            Some(_) => sleep_until(next),
        }
    }
}

/// Passes a signal on to the command. Ctrl-C on a terminal has reached it already.
fn pass_on(child: u32, signal: StopSignal, asked: Nanos, now: Nanos) -> io::Result<()> {
    let (signal, due) = match signal {
        StopSignal::Interrupt => (Signal::INT, asked.saturating_add(PASS_ON)),
        StopSignal::Terminate => (Signal::TERM, asked),
        StopSignal::HangUp => (Signal::HUP, asked),
    };
    if now >= due
        && let Some(process) = Process::open(child)?
    {
        process.signal(signal)?;
    }
    Ok(())
}

/// Starts the command; the number of its process.
fn start(command: &[String], json: bool) -> Result<u32, Failure> {
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::usage("COMMAND is empty"))?;
    adopt_orphans().map_err(|error| Failure::new("watch", error))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if json {
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(|error| Failure::new("watch", error))?;
        command.stdout(Stdio::from(stderr));
    }
    command.spawn().map(|child| child.id()).map_err(|error| {
        let exit = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::new("not_run", format!("{program}: {error}")).remedy("name an executable program").exit(exit)
    })
}

/// The exit code, as a shell computes it.
fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn not_watched(error: WatchError) -> Failure {
    match error {
        WatchError::Namespace(error) => Failure::new("no_namespace", error),
        WatchError::SockDiag(_) => Failure::new("no_sock_diag", error),
        WatchError::Cgroup { .. } => Failure::new("no_cgroup", format!("--cgroup {error}")),
        WatchError::Process { .. } => Failure::new("no_process", format!("--pid: {error}"))
            .remedy("name a running process, and run longhaul as its user or as root"),
    }
}
