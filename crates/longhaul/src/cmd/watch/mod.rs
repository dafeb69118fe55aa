//! `longhaul watch`.

pub(crate) mod following;
pub(crate) mod live;
pub(crate) mod udp;

use crate::args::quantity::seconds;
use crate::caveats;
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_kernel::clock::realtime_offset;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::stderr_text;
use longhaul_report::html::over_time::Tested as Page;
use longhaul_report::html::over_time::watched::Report;
use longhaul_report::parquet::{End, FlowSamples, write_samples};
use longhaul_report::saved::WATCH_SCHEMA;
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use longhaul_watch::{Selection, UdpWatch, Watch, WatchOptions, WatchedSamples};
use serde::{Deserialize, Serialize};

use crate::args::interval::DEFAULT_INTERVAL;
use crate::cmd::watch::following::{Times, code_of, follow, namespace_of, not_watched, start};
use crate::cmd::watch::live::{Live, Watching};
use crate::output::exit_code;
use crate::output::live::Show;
use crate::output::saved::{Folder, is_of_test};
use crate::output::{
    Envelope, Failure, Outcome, OutputFile, plain, print_caveats, print_json, print_text, report_unwritten,
};

/// The shortest time between samples: one takes some 0.1 ms.
const LEAST_SAMPLE: Nanos = Nanos::from_millis(1);
/// The file with the samples, next to the result.
const SAMPLES: &str = "samples.parquet";

const EXAMPLES: &str = "\
Example:
  longhaul watch -- curl -O https://example.org/large.iso   # ends with it, and with its exit code
  longhaul watch --port 443 -t 1m -o monday                 # keep the result and all samples
  longhaul watch --port 443 -t 1m --html page.html          # drawn over time
  longhaul watch --pid 4711 -i 1s
  longhaul watch --udp --port 5000 -t 1m                    # where are datagrams lost?
  longhaul watch --udp -o at-server -- ./receiver           # the same at the sender; then:
  longhaul compare at-client at-server                      # what became of each datagram
  longhaul show monday

With a COMMAND, the report goes to stderr and stdout belongs to the command. With --json, stdout has only the result, and the \
output of the command goes to stderr. The exit code is that of the command (128 plus the signal number if a signal ended it), 127 if \
the command does not exist, 126 if it cannot be run, 130 after Ctrl-C. `longhaul docs watch-results` explains each number.";

/// Watch other programs: what limits their TCP, where their UDP is lost
///
/// Watches all connections of this network namespace, or those that you choose. It does not touch the programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Watch UDP sockets: datagrams sent, received, and dropped on this host, with location and reason
    #[arg(long)]
    udp: bool,
    /// Watch connections of this process and its descendants, in its network namespace
    #[arg(long, value_name = "PID", group = "which")]
    pid: Option<u32>,
    /// Watch connections with this port at either end
    #[arg(long, value_name = "PORT", group = "which", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Watch connections of sockets made in this control group (version 2, given as its folder) or in one below it
    #[arg(long, value_name = "DIR", group = "which")]
    cgroup: Option<PathBuf>,
    /// Run this command, and watch its connections and those of its child processes
    #[arg(last = true, value_name = "COMMAND", group = "which", conflicts_with = "time")]
    command: Vec<String>,
    /// Watch for this time [default: until Ctrl-C, or until the processes have ended]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    time: Option<Nanos>,
    /// Report every TIME (0: never) [default: 1s; with a COMMAND, never]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = seconds)]
    interval: Option<Nanos>,
    /// Take a sample of TCP_INFO every TIME
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: Nanos,
    /// Save the result in this folder: result.json, and for TCP samples.parquet with all TCP_INFO fields over time
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Draw the TCP connections over time in this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "udp")]
    html: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Print a JSON object each interval [default: every second], then the result
    #[arg(long)]
    json_stream: bool,
    #[command(flatten)]
    prometheus: PrometheusArgs,
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
            (None, false) if !self.json_stream => Show::Nothing,
            _ => Show::choose(self.interval, beside, self.json_stream),
        }
    }
}

/// The parameters of the result. At most one of `pid`, `port`, `cgroup` and `command` is set; with none, all connections are watched.
#[derive(Debug, Serialize, Deserialize)]
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

impl WatchParameters {
    /// What was watched.
    pub(crate) fn title(&self) -> String {
        let which = match self {
            Self { pid: Some(pid), .. } => format!("of process {pid}"),
            Self { port: Some(port), .. } => format!("at port {port}"),
            Self { cgroup: Some(group), .. } => format!("of {group}"),
            Self { command: Some(command), .. } => format!("of {}", command.join(" ")),
            _ => "of this host".into(),
        };
        format!("TCP connections {which}")
    }
}

/// What was asked and how it ended: all but the result.
struct Asked {
    parameters: WatchParameters,
    /// Where to draw it.
    html: Option<OutputFile>,
    overwrite: Overwrite,
    started_at: String,
    json: bool,
    /// Stdout belongs to a command.
    beside: bool,
    stop: Stop,
}

/// What was seen, and how it is printed.
struct Watched<R> {
    schema: &'static str,
    result: R,
    caveats: Vec<Caveat>,
    text: fn(&R) -> String,
}

impl Asked {
    /// Saves, draws and prints what was seen; `page` draws it.
    fn end<R: Serialize>(
        self,
        folder: Option<Folder>,
        watched: Watched<R>,
        page: impl FnOnce(&R, Page<'_>) -> String,
    ) -> Outcome {
        let exit = self.parameters.exit_code;
        let Watched { schema, result, caveats, text } = watched;
        let envelope = Envelope::new(schema, self.started_at, self.parameters, result, Caveat::unique(caveats));
        let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
        let drawn = self.html.as_ref().map_or(Ok(()), |file| {
            let tested = Page {
                title: envelope.parameters.title(),
                longhaul: envelope.longhaul.into(),
                started_at: envelope.started_at.clone(),
                caveats: &envelope.caveats,
                text: text(&envelope.result),
                left_out: Vec::new(),
            };
            file.write(&page(&envelope.result, tested), self.overwrite)
        });
        // Whoever reads this may be slow.
        Stop::release();
        if self.json {
            print_json(&envelope);
        } else if self.beside {
            stderr_text!("{}", plain(&text(&envelope.result)));
        } else {
            print_text(&text(&envelope.result));
        }
        print_caveats(&envelope.caveats);
        if let Some(failed) = report_unwritten([saved, drawn]) {
            return Ok(failed);
        }
        Ok(match (self.stop.requested(), exit) {
            (Some(signal), _) => ExitCode::from(exit_code(signal)),
            (None, Some(code)) => ExitCode::from(code),
            (None, None) => ExitCode::SUCCESS,
        })
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.sample < LEAST_SAMPLE {
        return Err(Failure::usage(format!("--sample {}: give {LEAST_SAMPLE} or more", args.sample)));
    }
    args.overwrite.file(args.html.as_deref())?;
    let prepare = |folder| Folder::prepare_beside(folder, args.overwrite, &[], is_of_test);
    let folder = args.output.clone().map(prepare).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let options = WatchOptions {
        selection: args.selection(),
        namespace: args.pid.map(|pid| namespace_of("--pid", pid)).transpose()?,
        sample: args.sample,
        keep_samples: folder.is_some() || args.html.is_some(),
    };
    if args.udp {
        let mut watch = UdpWatch::open(options).map_err(not_watched)?;
        let asked = watched(&args, started_at, stop, &mut watch)?;
        return udp::end(asked, folder, watch);
    }
    let mut watch = Watch::open(options).map_err(not_watched)?;
    let asked = watched(&args, started_at, stop, &mut watch)?;
    let longhaul_watch::Watched { mut result, samples, mut caveats } = watch.finish();
    let ends = [End { flows: samples.iter().map(flow).collect(), unix_offset_ns: Some(realtime_offset().offset_ns) }];
    if let Some(folder) = &folder {
        match folder.write(SAMPLES, |file| write_samples(file, &ends)) {
            Ok(()) => result.samples_file = Some(SAMPLES.into()),
            Err(error) => caveats.push(Caveat::new(
                caveats::SAMPLES_NOT_SAVED,
                error,
                "free space on the disk, or give another folder, and run it again",
            )),
        }
    }
    let watched = Watched { schema: WATCH_SCHEMA, result, caveats, text: text::watch::report };
    asked.end(folder, watched, |result, tested| Report { tested, result, samples: &ends[0].flows }.html())
}

/// Runs the command, if there is one, and samples until the end.
fn watched(args: &Args, started_at: String, stop: Stop, watch: &mut impl Watching) -> Result<Asked, Failure> {
    let json = args.json || args.json_stream;
    let metrics = args.prometheus.open(args.overwrite)?;
    // The watch has begun, so that the first connection is seen from its beginning.
    let child = (!args.command.is_empty()).then(|| start(&args.command, json)).transpose()?;
    let mut live = Live::new(args.show(), metrics);
    let times = Times { whole: args.time, sample: args.sample, interval: args.interval.unwrap_or(DEFAULT_INTERVAL) };
    let ended = follow(&times, watch, child, stop, &mut live).map_err(|error| Failure::new("watch", error))?;
    live.end();
    let parameters = WatchParameters {
        pid: args.pid,
        port: args.port,
        cgroup: args.cgroup.as_ref().map(|path| path.display().to_string()),
        command: (!args.command.is_empty()).then(|| args.command.clone()),
        time_ns: args.time.map(|time| time.0),
        sample_ns: args.sample.0,
        exit_code: ended.map(code_of),
    };
    let (html, overwrite, beside) = (args.html.clone(), args.overwrite, !args.command.is_empty());
    Ok(Asked { parameters, html, overwrite, started_at, json, beside, stop })
}

fn flow(one: &WatchedSamples) -> FlowSamples<'_> {
    FlowSamples {
        end: "watched",
        direction: "both",
        stream: one.number,
        congestion: &one.congestion,
        series: one.series.clone(),
    }
}
