//! `longhaul capture`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use longhaul_emulator::Warning;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::{Nudge, Stop, StopSignal};
use longhaul_kernel::wait::readable_until;
use longhaul_measure::capture::{CaptureError, CaptureSpec, Captured, Counters, Running, SpoolSpec};
use longhaul_trace::ledger::Place;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde_json::json;

use super::capture_filter::FilterArgs;
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, print_json, print_text, print_warnings};

/// How often a signal or the end is looked for.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);
/// Gaps that the text shows.
const GAPS_SHOWN: usize = 10;

/// Record the heads of packets at the rate of the wire, and account for every one
///
/// Writes a spool: a folder of files that each are whole up to where they were cut, whatever happens. `longhaul convert` makes a
/// header log (Parquet) or pcap of it. Takes Ctrl-C to end. SIGUSR1 marks a moment.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul capture -i eth0 -o trace --keep 100G && longhaul convert trace trace.parquet"
)]
pub(crate) struct Args {
    /// Interface, or several
    #[arg(short, long, value_name = "IF", required = true, value_delimiter = ',', num_args = 1..)]
    interface: Vec<String>,
    /// Folder for the spool; made where it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Bytes of each frame, from its MAC addresses on; 0 for all
    #[arg(long, value_name = "BYTES", default_value_t = 96, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    snap: u32,
    #[command(flatten)]
    filter: FilterArgs,
    /// End after this time
    #[arg(short = 't', long, value_name = "TIME")]
    time: Option<Nanos>,
    /// End after this many packets; super-packets count once
    #[arg(short = 'k', long, value_name = "N")]
    packets: Option<u64>,
    /// End after this many bytes of frames
    #[arg(short = 'n', long, value_name = "BYTES")]
    bytes: Option<Bytes>,
    /// Begin a new file at this length
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    roll_bytes: Bytes,
    /// Begin a new file after this time
    #[arg(long, value_name = "TIME")]
    roll_time: Option<Nanos>,
    /// Remove the oldest files when all are longer than this
    #[arg(long, value_name = "BYTES")]
    keep: Option<Bytes>,
    /// Memory of each interface's rings together, where packets wait while this program is busy
    #[arg(long, value_name = "BYTES", default_value = "64M")]
    ring: Bytes,
    /// Rings of each interface, so that CPUs which receive at the same time do not wait for each other [default: one a receive queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    rings: Option<u16>,
    /// Whose stamps: of the kernel, or of the NIC for what it receives, where it can (sent packets keep the kernel's clock)
    #[arg(long, value_name = "CLOCK", default_value = "kernel")]
    clock: ClockOf,
    /// Leave the interface out of promiscuous mode
    #[arg(long)]
    no_promiscuous: bool,
    /// Print rates this often
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Nanos,
    /// Print JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClockOf {
    Kernel,
    Nic,
}

pub(crate) fn run(args: Args) -> Outcome {
    let spec = args.spec()?;
    let signals = |error| Failure::new("signals", error);
    let (stop, nudge) = (Stop::install().map_err(signals)?, Nudge::install().map_err(signals)?);
    let started_at = jiff::Timestamp::now().to_string();
    let began = monotonic();
    let running = Running::start(&spec).map_err(not_started)?;
    let end = args.time.map_or(Nanos::MAX, |time| began.saturating_add(time));
    eprintln!("longhaul: capturing on {} into {}; Ctrl-C ends", args.interface.join(", "), args.output.display());

    let rings = running.rings();
    let mut live = Live::new(began, args.interval);
    while stop.requested().is_none() && !running.is_done() && monotonic() < end {
        let until = monotonic().saturating_add(LOOK_EVERY).min(end);
        readable_until(stop, Some(until)).map_err(|error| Failure::new("wait", error))?;
        if nudge.take() {
            eprintln!("longhaul: mark {}", running.mark().number);
        }
        live.print_if_due(running.counters());
    }
    let captured = running.stop();
    let duration = monotonic().saturating_sub(began);

    let warnings = warnings(&captured);
    if args.json {
        let parameters = json!({
            "interfaces": args.interface, "snap_bytes": spec.snap_bytes, "filter": spec.filter_text,
            "ring_bytes": spec.ring_bytes, "rings": rings, "output": args.output,
        });
        let result = result(&captured, duration);
        print_json(&Envelope::new("longhaul.capture/1", started_at, parameters, result, warnings.clone()));
    } else {
        print_text(&text(&captured, duration));
    }
    print_warnings(&warnings);
    Ok(match stop.requested() {
        Some(StopSignal::Interrupt) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

impl Args {
    fn spec(&self) -> Result<CaptureSpec, Failure> {
        let snap_bytes = if self.snap == 0 { 65_535 } else { self.snap };
        if snap_bytes < 14 {
            return Err(Failure::usage(format!("--snap {snap_bytes}: 14 at least, the header of Ethernet; 0 for all")));
        }
        let (filter, filter_text) = self.filter.compile(snap_bytes)?;
        if let Some(keep) = self.keep.filter(|keep| keep.0 < 2 * self.roll_bytes.0) {
            return Err(Failure::usage(format!(
                "--keep {keep}: two files of --roll-bytes {} at least",
                self.roll_bytes
            )));
        }
        let mut interfaces = self.interface.clone();
        interfaces.sort();
        interfaces.dedup();
        if interfaces.len() != self.interface.len() {
            return Err(Failure::usage("--interface: one is named twice"));
        }
        if !(1 << 20..=16 << 30).contains(&self.ring.0) {
            return Err(Failure::usage(format!("--ring {}: 1M to 16G", self.ring)));
        }
        Ok(CaptureSpec {
            interfaces: self.interface.clone(),
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
            spool: SpoolSpec {
                folder: self.output.clone(),
                roll_bytes: self.roll_bytes,
                roll_time: self.roll_time,
                keep_bytes: self.keep,
            },
            captured_by: concat!("longhaul ", env!("CARGO_PKG_VERSION")).into(),
            host: longhaul_kernel::sysctl::read("kernel.hostname").unwrap_or_default(),
        })
    }
}

fn not_started(error: CaptureError) -> Failure {
    let (code, remedy) = match &error {
        CaptureError::Link { .. } => ("no_interface", "see `longhaul host` or `ip link` for those that there are"),
        CaptureError::Open { .. } => ("not_captured", "run as root"),
        CaptureError::LinkType { .. } => ("link_type", "capture on an Ethernet or IP interface"),
        CaptureError::Folder { .. } => ("not_written", "name a folder that can be written with --output"),
        CaptureError::Occupied(_) => ("occupied", "name another folder with --output, or remove that one"),
        CaptureError::Start(_) => ("not_captured", ""),
    };
    Failure::new(code, error).remedy(remedy)
}

/// Lines of rates, as a test prints them.
struct Live {
    began: Nanos,
    every: Nanos,
    printed: Nanos,
    packets: u64,
    bytes: u64,
    dropped: u64,
}

impl Live {
    fn new(began: Nanos, every: Nanos) -> Self {
        Self { began, every, printed: began, packets: 0, bytes: 0, dropped: 0 }
    }

    fn print_if_due(&mut self, counters: &Counters) {
        let now = monotonic();
        let span = now.saturating_sub(self.printed);
        if self.every == Nanos::ZERO || span < self.every {
            return;
        }
        let packets = counters.read_packets.load(Ordering::Relaxed);
        let bytes = counters.frame_bytes.load(Ordering::Relaxed);
        let dropped = counters.dropped_packets();
        let rate = BitRate::of(bytes - self.bytes, span);
        let full = if counters.disk_full.load(Ordering::Relaxed) { "  the disk is full" } else { "" };
        eprintln!(
            "[{:>7.1}-{:<7.1} s] {:>10.0} packets/s  {rate:>10} L2  {:>8} dropped{full}",
            self.printed.saturating_sub(self.began).as_secs_f64(),
            now.saturating_sub(self.began).as_secs_f64(),
            (packets - self.packets) as f64 / span.as_secs_f64(),
            dropped - self.dropped,
        );
        (self.printed, self.packets, self.bytes, self.dropped) = (now, packets, bytes, dropped);
    }
}

fn result(captured: &Captured, duration: Nanos) -> serde_json::Value {
    let by_place: serde_json::Map<String, serde_json::Value> = Place::ALL
        .iter()
        .map(|place| (place.name().into(), captured.ledger.dropped_packets.get(place).copied().unwrap_or(0).into()))
        .collect();
    json!({
        "duration_ns": duration.0,
        "interfaces": captured.meta.interfaces,
        "seen_packets": captured.ledger.seen_packets,
        "written_packets": captured.ledger.written_packets,
        "dropped_packets": captured.ledger.dropped(),
        "dropped_by_place": by_place,
        "unaccounted_packets": captured.ledger.unaccounted_packets(),
        "gaps": captured.ledger.gaps,
        "super_packets": captured.super_packets,
        "frame_bytes": captured.frame_bytes,
        "written_bytes": captured.written_bytes,
        "files": captured.files,
        "files_removed": captured.files_removed,
        "marks": captured.marks,
        "cpu_ns": captured.cpu.0,
    })
}

fn warnings(captured: &Captured) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String, remedy: &str| {
        warnings.push(Warning { code: code.into(), message, remedy: remedy.into() });
    };
    let dropped = |place| captured.ledger.dropped_packets.get(&place).copied().unwrap_or(0);
    for (place, remedy) in [
        (Place::Nic, "give the NIC more descriptors (ethtool -G), or spread its queues"),
        (Place::KernelRing, "give it a larger --ring, a smaller --snap, or a CPU of its own"),
        (Place::Writer, "write to a faster disk"),
    ] {
        if dropped(place) > 0 {
            warn("packets_dropped", format!("{} packets were dropped at {}", dropped(place), place.name()), remedy);
        }
    }
    if let Some(error) = &captured.disk_error {
        let packets = dropped(Place::Disk);
        warn("disk", format!("{error}; {packets} packets were not written"), "make room, or use --keep");
    }
    if captured.ledger.unaccounted_packets() != 0 {
        let message = format!("{} packets are not accounted for", captured.ledger.unaccounted_packets());
        warn("unaccounted", message, "report this as an error of longhaul");
    }
    for refusal in &captured.nic_refusals {
        warn("no_nic_clock", format!("{refusal}; its packets have the kernel's stamps"), "");
    }
    if captured.super_packets > 0 {
        let message =
            format!("{} of the packets are super-packets, which were never on a wire", captured.super_packets);
        warn("super_packets", message, "turn offloads off (ethtool -K IF gro off tso off) to see wire packets");
    }
    warnings
}

fn text(captured: &Captured, duration: Nanos) -> String {
    let ledger = &captured.ledger;
    let seconds = duration.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{} packets in {:.1} s ({:.0} a second), {} of frames\n\n  seen      {:>14}\n  written   {:>14}  {}\n",
        captured.read_packets,
        seconds,
        captured.read_packets as f64 / seconds,
        Bytes(captured.frame_bytes).rounded(),
        ledger.seen_packets,
        ledger.written_packets,
        Bytes(captured.written_bytes).rounded(),
    );
    for place in Place::ALL {
        let packets = ledger.dropped_packets.get(&place).copied().unwrap_or(0);
        if packets > 0 {
            text += &format!("  dropped   {packets:>14}  at {}\n", place.name());
        }
    }
    let began_ns = captured.meta.started_ns;
    let since = |at_ns: i64| (at_ns - began_ns) as f64 / 1e9;
    for gap in ledger.gaps.iter().take(GAPS_SHOWN) {
        text += &format!(
            "  gap       {:>14}  at {}, from {:.3} to {:.3} s\n",
            gap.packets,
            gap.place.name(),
            since(gap.from_ns),
            since(gap.to_ns)
        );
    }
    if ledger.gaps.len() > GAPS_SHOWN {
        text += &format!("  … and {} gaps more\n", ledger.gaps.len() - GAPS_SHOWN);
    }
    for mark in &captured.marks {
        text += &format!("  mark {}    at {:.3} s\n", mark.number, since(mark.at_ns));
    }
    let removed = match captured.files_removed {
        0 => String::new(),
        removed => format!(", {removed} older ones removed"),
    };
    if let Some(folder) = captured.files.first().and_then(|file| file.parent()) {
        text += &format!("  {} files in {}{removed}\n", captured.files.len(), folder.display());
    }
    if std::io::stdout().is_terminal() { text } else { text.replace('…', "...") }
}
