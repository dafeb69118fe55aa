//! `longhaul capture`.

pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod live;
pub(crate) mod text;
pub(crate) mod to;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use longhaul_capture::{CaptureError, CaptureSpec, Counters, LogTargets, Running, SpoolSpec};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::{Nudge, Stop};
use longhaul_kernel::stderr_text;
use longhaul_kernel::wait::readable_until;
use longhaul_result::Caveat;
use longhaul_session::SessionError;
use longhaul_units::{Bytes, Nanos};
use serde::Serialize;

use crate::args::interval::{DEFAULT_INTERVAL, IntervalOrInterface, interval_or_interface};
use crate::args::quantity::{count, length, seconds};
use crate::args::roll::Roll;
use crate::caveats::NOTHING_MATCHED;
use crate::cmd::capture::file::{IntoFile, every_interface};
use crate::cmd::capture::filter::FilterArgs;
use crate::cmd::capture::live::Live;
use crate::cmd::capture::text::{caveats, text};
use crate::cmd::capture::to::ToArgs;
use crate::cmd::convert::{is_standard, standard_output};
use crate::output::live::{Lines, Show};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, ended_by, plain, print_caveats, print_result, say};

/// How often the loop looks for a signal and for the end.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);

/// Holds Ethernet, a VLAN tag, IPv6 and TCP with all options (14 + 4 + 40 + 60 bytes): without SACK blocks nobody can tell what made a sender
/// retransmit.
const DEFAULT_SNAP: u32 = 128;

/// Record packet headers at wire rate, and count every dropped packet
///
/// Keeps a header snippet of each packet: its first bytes. Writes a spool: a folder of files that stay readable even if the program or
/// the machine dies. `longhaul convert` turns a spool into a header log (Parquet) or pcap. With --to, sends the snippets to hosts that
/// run `longhaul log`, with or without a spool here. Runs until Ctrl-C. SIGUSR1 sets a mark with the current time.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul capture eth0 -o monday --keep 100G && longhaul convert monday monday.parquet\n  \
        longhaul capture -i any -c 1000 -w web.pcapng tcp port 80\n  \
        longhaul capture eth0 --to log1.example.net --to log2.example.net --key longhaul.key",
    override_usage = "longhaul capture [OPTIONS] [INTERFACE] [FILTER]...",
    group = clap::ArgGroup::new("kept").args(["output", "write", "to"]).required(true).multiple(true)
)]
pub(crate) struct Args {
    /// Capture on this interface, on several (eth0,eth1), or on all that are up (any)
    #[arg(value_name = "INTERFACE", required_unless_present = "interval")]
    interface: Option<String>,
    /// Those that it names.
    #[arg(skip)]
    interfaces: Vec<String>,
    /// Packets go to stdout as they come: `-w -`.
    #[arg(skip)]
    to_stdout: bool,
    /// Record only what this pcap filter accepts, as with tcpdump: tcp port 80 (needs tcpdump, which compiles it)
    #[arg(value_name = "FILTER")]
    expression: Vec<String>,
    /// Write the spool into this folder; create it if it is missing. A name such as x.pcapng is a file, as with -w
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write this file at the end, as its name says: .pcapng, .pcap or .parquet (until then, a spool is beside it); - writes pcapng to
    /// stdout at once
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "output")]
    write: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    to: ToArgs,
    /// Keep this many bytes of each frame, counted from the MAC addresses (0: all)
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = DEFAULT_SNAP, value_parser = length)]
    snap: u32,
    #[command(flatten)]
    filter: FilterArgs,
    /// End after this time
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    time: Option<Nanos>,
    /// End after this many packets; a super-packet counts as one
    #[arg(short = 'k', visible_short_alias = 'c', long, value_name = "N", value_parser = count)]
    packets: Option<u64>,
    /// End after this many bytes of frames
    #[arg(short = 'n', long, value_name = "BYTES")]
    bytes: Option<Bytes>,
    #[command(flatten)]
    roll: Roll,
    /// Use this much memory for the rings of each interface, where packets wait while longhaul is busy
    #[arg(long, value_name = "BYTES", default_value = "64M")]
    ring: Bytes,
    /// Open this many rings for each interface, so that CPUs receive without waiting for each other [default: one per receive queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    rings: Option<u16>,
    /// Take time stamps from the kernel, or from the NIC for received packets if it can (sent packets keep the kernel's)
    #[arg(long, value_name = "CLOCK", default_value = "kernel")]
    clock: ClockOf,
    /// Do not put the interface into promiscuous mode
    #[arg(long)]
    no_promiscuous: bool,
    /// Report rates every TIME (0: never) [default: 1s]; as with tcpdump, -i may name the interface instead, such as eth0 or any
    #[arg(short = 'i', long, value_name = "TIME", value_parser = interval_or_interface)]
    interval: Vec<IntervalOrInterface>,
    /// Print JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON lines: one per interval, then the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    #[command(flatten)]
    prometheus: PrometheusArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClockOf {
    Kernel,
    Nic,
}

/// The parameters of the result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// Names of the interfaces.
    interfaces: &'a [String],
    /// Bytes kept of each frame.
    #[cfg_attr(test, schemars(range(min = 14, max = 65535)))]
    snap_bytes: u32,
    /// The filter; empty for all packets.
    filter: &'a str,
    /// Memory of all rings of an interface.
    ring_bytes: usize,
    /// Rings that were opened, of all interfaces.
    #[cfg_attr(test, schemars(range(min = 1)))]
    rings: usize,
    /// The folder of the spool, or the file that was made of it; - for stdout. `None` if header snippets went only to logging hosts.
    output: Option<PathBuf>,
    /// The logging hosts that header snippets were sent to.
    to: &'a [String],
}

pub(crate) fn run(mut args: Args) -> Outcome {
    args.resolve()?;
    let into = args.file()?;
    let mut spec = args.spec(into.as_ref())?;
    let signals = |error| Failure::new("signals", error);
    // Resolve names before signals are caught: a signal then ends the program at once.
    spec.logging = args.to.targets(spec.snap_bytes)?;
    let (stop, nudge) = (Stop::install().map_err(signals)?, Nudge::install().map_err(signals)?);
    spec.logging.stop = Some(stop);
    let metrics = args.prometheus.open(args.overwrite)?;
    let started_at = jiff::Timestamp::now().to_string();
    let began = monotonic();
    let running = Running::start(&spec).map_err(not_started)?;
    let end = args.time.map_or(Nanos::MAX, |time| began.saturating_add(time));
    let destination = into.as_ref().map_or_else(|| args.destination(), IntoFile::described);
    say(format_args!("capturing on {} into {destination}; Ctrl-C ends", args.interfaces.join(", ")));

    let rings = running.rings();
    let mut live = Live::new(began, args.every(), Lines::with_metrics(args.show(), metrics));
    while stop.requested().is_none() && !running.is_done() && monotonic() < end {
        let until = monotonic().saturating_add(LOOK_EVERY).min(end);
        readable_until(stop, Some(until)).map_err(|error| Failure::new("wait", error))?;
        if nudge.take() {
            say(format_args!("mark {}", running.mark().number));
        }
        live.report_if_due(running.counters());
        say_notices(running.counters());
    }
    let captured = running.stop();
    let duration = monotonic().saturating_sub(began);

    let parameters = Parameters {
        interfaces: &args.interfaces,
        snap_bytes: spec.snap_bytes,
        filter: &spec.filter_text,
        ring_bytes: spec.ring_bytes,
        rings,
        output: match &into {
            _ if args.to_stdout => Some("-".into()),
            Some(into) => Some(into.file.to_path_buf()),
            None => args.output.clone(),
        },
        to: &args.to.to,
    };
    let (result, mut caveats) = (captured.result(duration), caveats(&captured));
    if !spec.filter_text.is_empty() && captured.ledger.seen_packets == 0 {
        let message = format!("no packet matched the filter ({})", spec.filter_text);
        let remedy = "check the filter and the interface: without a filter, all packets are captured";
        caveats.push(Caveat::new(NOTHING_MATCHED, message, remedy));
    }
    let envelope = Envelope::new("longhaul.capture/1", started_at, parameters, result, caveats);
    if let Some(into) = &into {
        // What was written is the spool until here.
        into.write(args.overwrite)?;
    }
    let file = into.as_ref().map(|into| &*into.file);
    if args.to_stdout {
        stderr_text!("{}", plain(&text(&captured, Some(Path::new("stdout")), duration)));
        print_caveats(&envelope.caveats);
    } else {
        print_result(&envelope, args.json || args.json_stream, |_| text(&captured, file, duration));
    }
    Ok(match stop.requested() {
        None if captured.gone.len() == args.interfaces.len() => ExitCode::FAILURE,
        signal => ended_by(signal),
    })
}

impl Args {
    /// Finds whether packets go to stdout, and makes `interfaces` those to capture on: with `-i NAME` the words that stand at their place are the filter; `any` is all of them.
    fn resolve(&mut self) -> Result<(), Failure> {
        let named: Vec<String> = self
            .interval
            .iter()
            .filter_map(|one| match one {
                IntervalOrInterface::Interface(name) => Some(name.clone()),
                IntervalOrInterface::Interval(_) => None,
            })
            .collect();
        self.interfaces = match (named.is_empty(), self.interface.take()) {
            (false, first) => {
                self.expression.splice(0..0, first);
                named
            }
            (true, Some(first)) => {
                // A filter of pcap begins with no name of an interface.
                let is_interface =
                    |word: &&String| !word.contains('/') && Path::new("/sys/class/net").join(word).exists();
                if let Some(second) = self.expression.first().filter(is_interface) {
                    let message = format!(
                        "{second} is an interface, but this is the place of the filter; write {first},{second}"
                    );
                    return Err(Failure::usage(message).remedy("name several interfaces in one word, with commas"));
                }
                first.split(',').map(str::to_owned).collect()
            }
            (true, None) => return Err(Failure::usage("name an INTERFACE, or any for all of them")),
        };
        if self.write.as_deref().or(self.output.as_deref()).is_some_and(is_standard) {
            (self.to_stdout, self.write, self.output) = (true, None, None);
            if self.json || self.json_stream {
                return Err(Failure::usage("packets go to stdout, and so would JSON").remedy("name a file with -w"));
            }
            if self.roll.is_given() {
                return Err(Failure::usage("packets go to stdout: there are no files to roll or to keep"));
            }
        }
        if self.interfaces == ["any"] {
            self.interfaces = every_interface()?;
        }
        Ok(())
    }

    /// The time between two reports.
    fn every(&self) -> Nanos {
        let mut times = self.interval.iter().filter_map(|one| match one {
            IntervalOrInterface::Interval(time) => Some(*time),
            IntervalOrInterface::Interface(_) => None,
        });
        times.next_back().unwrap_or(DEFAULT_INTERVAL)
    }

    /// The file to write at the end; `None` for a spool alone.
    fn file(&self) -> Result<Option<IntoFile>, Failure> {
        let meant = self.output.as_ref().filter(|output| IntoFile::is_meant(output));
        let Some(file) = self.write.as_ref().or(meant) else { return Ok(None) };
        self.overwrite.file(Some(file))?;
        IntoFile::at(file).map(Some)
    }

    /// How intervals are reported: in text beside the packets or the result, which may go to stdout.
    fn show(&self) -> Show {
        match (self.every(), self.json_stream) {
            (Nanos::ZERO, _) => Show::Nothing,
            (_, true) => Show::Objects,
            _ => Show::LinesBeside,
        }
    }

    /// Where the snippets go, for the first line.
    fn destination(&self) -> String {
        let stdout = self.to_stdout.then(|| "stdout".into());
        let folder = self.output.iter().map(|folder| folder.display().to_string()).chain(stdout);
        folder.chain(self.to.to.iter().map(|host| format!("logging host {host}"))).collect::<Vec<_>>().join(", ")
    }

    fn spec(&self, into: Option<&IntoFile>) -> Result<CaptureSpec, Failure> {
        let snap_bytes = if self.snap == 0 { 65_535 } else { self.snap };
        if !(14..=65_535).contains(&snap_bytes) {
            return Err(Failure::usage(format!(
                "--snap {snap_bytes}: give 14, the Ethernet header, to 65535, or 0 for all"
            )));
        }
        let (filter, filter_text) = self.filter.compile(&self.expression, snap_bytes)?;
        let roll_bytes = self.roll.roll_bytes()?;
        let mut interfaces = self.interfaces.clone();
        interfaces.sort();
        interfaces.dedup();
        if interfaces.len() != self.interfaces.len() {
            return Err(Failure::usage("an interface is named twice").remedy("name each interface once"));
        }
        if !(1 << 20..=16 << 30).contains(&self.ring.0) {
            return Err(Failure::usage(format!("--ring {}: give 1M to 16G", self.ring)));
        }
        Ok(CaptureSpec {
            interfaces: self.interfaces.clone(),
            snap_bytes,
            filter,
            filter_text,
            ring_bytes: self.ring.0 as usize,
            rings: self.rings.map(usize::from),
            waiting_bytes: 64 << 20,
            promiscuous: !self.no_promiscuous,
            nic_stamps: self.clock == ClockOf::Nic,
            packets_most: self.packets,
            bytes_most: self.bytes.map(|bytes| bytes.0),
            stream: self.to_stdout.then(standard_output).transpose()?.map(Arc::new),
            spool: into.map(|into| into.spool.clone()).or(self.output.clone()).map(|folder| SpoolSpec {
                folder,
                opened: into.map(|into| into.opened.clone()),
                replace: self.overwrite.allowed(),
                roll_bytes,
                roll_time: self.roll.roll_time,
                keep_bytes: self.roll.keep,
            }),
            logging: LogTargets::default(),
            captured_by: concat!("longhaul ", env!("CARGO_PKG_VERSION")).into(),
            host: longhaul_kernel::sysctl::read("kernel.hostname").unwrap_or_default(),
        })
    }
}

/// Prints what the user should know at once.
fn say_notices(counters: &Counters) {
    for notice in counters.take_notices() {
        say(format_args!("{}", notice.replace(char::is_control, " ")));
    }
}

fn not_started(error: CaptureError) -> Failure {
    let (code, remedy) = match &error {
        CaptureError::Link { .. } => ("no_interface", "`longhaul host` and `ip link` list the interfaces"),
        CaptureError::Open { .. } => ("not_captured", "run as root"),
        CaptureError::LinkType { .. } => ("unknown_link_type", "capture on an interface with Ethernet or IP frames"),
        CaptureError::Folder { .. } => ("not_written", "name a writable folder with --output"),
        CaptureError::Occupied(_) => ("occupied", "name another folder with --output, or replace its spool by --force"),
        CaptureError::InUse(_) => ("folder_in_use", "end that capture, or name another folder with --output"),
        CaptureError::Start(_) => ("not_captured", ""),
        CaptureError::Logger { source, .. } => {
            let message = error.to_string();
            let exit = if source.code == "interrupted" { INTERRUPTED } else { 1 };
            return Failure::from(SessionError { message, ..source.clone() }).exit(exit);
        }
    };
    Failure::new(code, error).remedy(remedy)
}
