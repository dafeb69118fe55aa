//! `longhaul emulate`.

use std::io::IsTerminal;
use std::process::ExitCode;

use longhaul_emulator::{Attachment, HopStatus, OwnFault, PortStatus, Running, Status};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_kernel::wait::readable_until;
use longhaul_kernel::{stderr_line, stderr_text};
use longhaul_path::preset;
use longhaul_path::spec::{PathEnd, PathSpec};
use longhaul_units::{Nanos, Quantiles};
use serde::Serialize;

use crate::args::engine::EngineArgs;
use crate::args::quantity::seconds;
use crate::output::live::Stamp;
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::status;
use crate::output::{Envelope, Failure, Outcome, OutputFile, ended_by, print_result, say};

/// How often the status file and the progress line are updated.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Longest name of an interface (`IFNAMSIZ` less its zero, netdevice(7)).
const INTERFACE_BYTES_MOST: usize = 15;

/// Emulate a path between two interfaces
///
/// Frames that arrive at one interface leave through the other as the path describes. Ctrl-C ends it and prints the status.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul emulate --left eth1 --right eth2 --path nlr-small --stats run.json")]
pub(crate) struct Args {
    /// Use this interface towards the client; give one per client, in the path's order
    #[arg(long, value_name = "IF", required = true, value_delimiter = ',')]
    left: Vec<String>,
    /// Use this interface towards the server; give one per server, in the path's order
    #[arg(long, value_name = "IF", required = true, value_delimiter = ',')]
    right: Vec<String>,
    /// Emulate this path: a name from `longhaul paths`, or a path file
    #[arg(long, value_name = "FILE|PRESET")]
    path: String,
    /// Write the status to this file every second
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    stats: Option<OutputFile>,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
    /// End after this time
    #[arg(short = 't', long, value_name = "TIME", allow_hyphen_values = true, value_parser = seconds)]
    time: Option<Nanos>,
    /// Print JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// The path as the text of a path file that names no other file (docs/reference/path-files.md).
    path: String,
    /// Interfaces towards the clients.
    #[cfg_attr(test, schemars(length(min = 1)))]
    left: &'a [String],
    /// Interfaces towards the servers.
    #[cfg_attr(test, schemars(length(min = 1)))]
    right: &'a [String],
    /// How the emulator was set up.
    emulator: &'a EngineArgs,
}

pub(crate) fn run(args: Args) -> Outcome {
    let path = preset::load(&args.path).map_err(Failure::usage)?;
    let attachments = attachments(&args, &path)?;
    let spec = args.engine.spec();
    args.overwrite.file(args.stats.as_deref())?;
    let mut metrics = args.prometheus.open(args.overwrite)?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let started_at = jiff::Timestamp::now().to_string();
    let running = Running::start(path.clone(), attachments, spec.engine_options(), spec.schedule(), None)
        .map_err(|error| Failure::new("emulator", error))?;
    say(format_args!(
        "{} between {} and {}, {} round trip; Ctrl-C ends",
        path.name,
        args.left.join(","),
        args.right.join(","),
        path.round_trip()
    ));

    let envelope = |status: Status| {
        let caveats = status.caveats(spec.lateness_bound);
        let parameters =
            Parameters { path: path.to_toml(), left: &args.left, right: &args.right, emulator: &args.engine };
        Envelope::new("longhaul.emulate/1", started_at.clone(), parameters, status, caveats)
    };
    if let Some(file) = &args.stats {
        // At once, so that a file that cannot be written ends the command before the run.
        let status = running.status().map_err(|error| Failure::new("emulator", error))?;
        write_status(file, &envelope(status), args.overwrite)?;
    }
    // From now on the file is this command's.
    let own = Overwrite::by(true);
    let began = monotonic();
    let end = args.time.map_or(Nanos::MAX, |time| began.saturating_add(time));
    let (mut away, mut told) = (Vec::new(), false);
    while stop.requested().is_none() && monotonic() < end {
        let until = monotonic().saturating_add(INTERVAL).min(end);
        readable_until(stop, Some(until)).map_err(|error| Failure::new("wait", error))?;
        let status = running.status().map_err(|error| Failure::new("emulator", error))?;
        progress(&status);
        tell_of_ports(&status, &mut away);
        if let Some(metrics) = &mut metrics {
            metrics.write(&Interval::of(&status));
        }
        // The path stays: programs use it, and the disk may have room again.
        if let Some(file) = &args.stats
            && let Err(failure) = write_status(file, &envelope(status), own)
            && !std::mem::replace(&mut told, true)
        {
            say(format_args!("{}; the emulator goes on, and tries again every second", failure.message()));
        }
    }
    let status = running.stop().map_err(|error| Failure::new("emulator", error))?;
    tell_of_ports(&status, &mut away);
    let envelope = envelope(status);
    let saved = args.stats.as_ref().map_or(Ok(()), |file| write_status(file, &envelope, own));
    if std::io::stderr().is_terminal() {
        stderr_line!();
    }
    print_result(&envelope, args.json, status::text);
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    let signal = stop.requested();
    Ok(if away.is_empty() || signal == Some(StopSignal::Interrupt) { ended_by(signal) } else { ExitCode::FAILURE })
}

/// What `--prometheus` has of a status: the numbers that have a name.
#[derive(Serialize)]
struct Interval<'a> {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    uptime_ns: u64,
    lateness: &'a Quantiles,
    clock_stood_ns: u64,
    own_fault: &'a OwnFault,
    cpu_ns: u64,
    ports: &'a [PortStatus],
    hops: &'a [HopStatus],
}

impl<'a> Interval<'a> {
    fn of(status: &'a Status) -> Self {
        Self {
            schema: "longhaul.emulate.interval/1",
            stamp: Stamp::now(),
            uptime_ns: status.uptime_ns,
            lateness: &status.lateness,
            clock_stood_ns: status.clock_stood_ns,
            own_fault: &status.own_fault,
            cpu_ns: status.cpu_ns,
            ports: &status.ports,
            hops: &status.hops,
        }
    }
}

fn attachments(args: &Args, path: &PathSpec) -> Result<Vec<Attachment>, Failure> {
    let mut attachments = Vec::new();
    for (end, flag, interfaces) in [(PathEnd::Client, "--left", &args.left), (PathEnd::Server, "--right", &args.right)]
    {
        let hosts = path.host_names(end);
        if hosts.len() != interfaces.len() {
            return Err(Failure::usage(format!(
                "{flag} {}: path {} has {} {end} hosts; give as many interfaces",
                interfaces.join(","),
                path.name,
                hosts.len()
            )));
        }
        for (interface, host) in interfaces.iter().zip(hosts) {
            if !(1..=INTERFACE_BYTES_MOST).contains(&interface.len()) {
                let message =
                    format!("{flag} `{interface}`: an interface's name has 1 to {INTERFACE_BYTES_MOST} bytes");
                return Err(Failure::usage(message));
            }
            if attachments.iter().any(|known: &Attachment| known.interface == *interface) {
                return Err(Failure::usage(format!("{flag} {interface}: given twice; use each interface once")));
            }
            attachments.push(Attachment { interface: interface.clone(), host, mac: None });
        }
    }
    Ok(attachments)
}

/// Says at once which interfaces were removed and which came back, and keeps the names of removed ones in `away`.
fn tell_of_ports(status: &Status, away: &mut Vec<String>) {
    for PortStatus { interface, up, .. } in &status.ports {
        let was_away = away.contains(interface);
        if !up && !was_away {
            say(format_args!("interface {interface} was removed, or is down: packets to it are lost until it is back"));
            away.push(interface.clone());
        } else if *up && was_away {
            say(format_args!("interface {interface} is back"));
            away.retain(|name| name != interface);
        }
    }
}

/// Updates the progress line on a terminal.
fn progress(status: &Status) {
    if std::io::stderr().is_terminal() {
        let packets: u64 = status.ports.iter().map(|port| port.sent.packets).sum();
        let lost: u64 = status.hops.iter().map(|hop| hop.counters.dropped().packets).sum();
        stderr_text!(
            "\r{:>6.0} s  {packets:>14} packets passed  {lost:>10} lost on the path  late {:>10} (p99)  own faults {}",
            status.uptime_ns as f64 / 1e9,
            Nanos(status.lateness.p99_ns).to_string(),
            status.own_fault.total(),
        );
    }
}

/// Readers always find a complete file.
fn write_status(file: &OutputFile, envelope: &impl serde::Serialize, overwrite: Overwrite) -> Result<(), Failure> {
    let text = serde_json::to_string(envelope).map_err(|error| Failure::unwritable(file, error))?;
    file.write(&(text + "\n"), overwrite).map_err(|failure| failure.remedy("give --stats a file in a writable folder"))
}
