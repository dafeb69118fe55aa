//! `longhaul capture` beside `tcpdump -s 96 -w` and dumpcap: the same flood of packets over a veth for each in turn; then what
//! becomes of its spool; then all that once more, to another host instead of the disk (`log_link.rs`).
//!
//! The flood is the strongest that one CPU makes: frames written in the kernel, which arrive as from a NIC's driver (XDP live frames),
//! are seen by the capture and thrown away behind it, as they are for nobody. One CPU makes and receives them, the other is left to
//! the program.
//!
//! Two figures tell what a capture costs. *Own* is the CPU time of its process from the flood's beginning to half a second behind it:
//! what it reads, packs and writes, and not what it takes to begin and to end. *All* is what the whole machine worked beyond the same flood without a capture, until the files are on the disk: with it the kernel's copy into the
//! ring, which falls to whoever runs the softirq, and the writing back of pages, which falls to a kernel thread. Ratios count, not the
//! figures.

mod flood;
mod log_link;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_captures::header_log::{About, HeaderLogReader};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_units::Nanos;
use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, sync};

use flood::{Cable, children_cpu_s, machine_cpu_s, packets_of_pcap};

pub(crate) const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// Each program sees the flood for so long, in each round.
const FLOOD: Nanos = Nanos::from_secs(6);
/// Programs take turns, as this machine's speed changes over time.
const ROUNDS: usize = 2;
/// What a program did with the flood, in all rounds.
#[derive(Default)]
struct Run {
    arrived: u64,
    kept: u64,
    cpu_s: f64,
    machine_s: f64,
    bytes: f64,
}

impl Run {
    fn packets_per_cpu_s(&self) -> f64 {
        self.kept as f64 / self.cpu_s
    }

    fn lost(&self) -> f64 {
        self.arrived.saturating_sub(self.kept) as f64 / self.arrived.max(1) as f64
    }

    /// Nanoseconds of all CPUs a packet that arrived, beyond those of `bare`, the flood without a capture.
    fn all_ns(&self, bare: &Self) -> f64 {
        (self.machine_s / self.arrived as f64 - bare.machine_s / bare.arrived as f64) * 1e9
    }
}

/// Adds to `run` the flood that `command` saw, or that nobody saw; what it kept is counted later.
fn measure(cable: &Cable, run: &mut Run, command: Option<&mut Command>) {
    sync();
    let child = command.map(|command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        cable.receiver.enter(|| command.spawn().unwrap()).unwrap()
    });
    sleep(Duration::from_millis(800));
    let own_clock = child.as_ref().map(|child| clock_getcpuclockid(Pid::from_raw(child.id() as i32)).unwrap());
    let own_s = || own_clock.map_or(0.0, |clock| Duration::from(clock.now().unwrap()).as_secs_f64());
    let (own, all) = (own_s(), machine_cpu_s());
    run.arrived += cable.flood(FLOOD, None);
    sleep(Duration::from_millis(500));
    run.cpu_s += own_s() - own;
    if let Some(mut child) = child {
        // SIGINT, as Ctrl-C: the tools then write what they still have.
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap();
    }
    sync();
    run.machine_s += machine_cpu_s() - all;
}

/// CPU time of a conversion.
fn convert(from: &Path, to: &Path) -> f64 {
    let before = children_cpu_s();
    let status = Command::new(LONGHAUL).arg("convert").args([from, to]).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    children_cpu_s() - before
}

/// Packets of a header log, how long it took to read them, and what it says of itself.
fn read_log(log: &Path) -> (u64, f64, About) {
    let mut reader = HeaderLogReader::new(File::open(log).unwrap()).unwrap();
    let (mut batch, mut packets) = (Vec::new(), 0);
    let began = Instant::now();
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        packets += batch.len() as u64;
    }
    (packets, began.elapsed().as_secs_f64(), reader.about().unwrap())
}

fn bytes_of(path: &Path) -> f64 {
    fs::metadata(path).unwrap().len() as f64
}

pub(crate) fn target(what: &str, value: f64, wanted: f64, at_most: bool) {
    let met = if at_most { value <= wanted } else { value >= wanted };
    let sign = if at_most { "<=" } else { ">=" };
    println!("{what:<56} {value:>9.3}   target {sign} {wanted}: {}", if met { "met" } else { "MISSED" });
}

/// What became of our own spool: as a header log, and as a pcap.
struct Converted {
    packets: u64,
    cpu_s: f64,
    read_s: f64,
    about: About,
    log_bytes: f64,
    pcap_bytes: f64,
}

fn convert_spool(folder: &Path, spool: &Path) -> Converted {
    let (log, same) = (folder.join("log.parquet"), folder.join("same.pcap"));
    let cpu_s = convert(spool, &log);
    let (packets, read_s, about) = read_log(&log);
    convert(spool, &same);
    let (log_bytes, pcap_bytes) = (bytes_of(&log), bytes_of(&same));
    for file in [log, same] {
        fs::remove_file(file).unwrap();
    }
    Converted { packets, cpu_s, read_s, about, log_bytes, pcap_bytes }
}

fn main() {
    if !is_root_in_namespace() {
        println!("skipped: takes root");
        return;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("longhaul-bench-capture-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let cable = Cable::new();
    // `cargo bench … -- log-link` for the second part alone.
    if !std::env::args().any(|argument| argument == "log-link") {
        to_disk(&cable, &folder);
    }
    log_link::run(&cable, &folder);
    fs::remove_dir_all(&folder).unwrap();
}

/// Captures to this host's own disk.
fn to_disk(cable: &Cable, folder: &Path) {
    let spool = folder.join("spool");
    let tools: [(&'static str, &[&str]); 2] = [
        ("tcpdump -s 96 -w", &["tcpdump", "-i", "in", "-s", "96", "-Z", "root", "-w"]),
        ("dumpcap -s 96 -w", &["dumpcap", "-q", "-P", "-i", "in", "-s", "96", "-w"]),
    ];
    let there = |tool: &[&str]| {
        let there = Command::new(tool[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !there {
            println!("skipped: {} is not installed (make deps)", tool[0]);
        }
        there
    };
    let tools: Vec<_> = tools.into_iter().filter(|(_, arguments)| there(arguments)).collect();

    let mut runs: Vec<(&str, Run)> = vec![("no capture", Run::default()), ("longhaul capture", Run::default())];
    runs.extend(tools.iter().map(|(name, _)| (*name, Run::default())));
    let mut converted = None;
    for round in 0..ROUNDS {
        measure(cable, &mut runs[0].1, None);
        let arguments = ["capture", "in", "--interval", "0", "-o"];
        let ours = &mut runs[1].1;
        measure(cable, ours, Some(Command::new(LONGHAUL).args(arguments).arg(&spool)));
        for file in fs::read_dir(&spool).unwrap() {
            ours.bytes += bytes_of(&file.unwrap().path());
        }
        let this = convert_spool(folder, &spool);
        ours.kept += this.packets;
        assert_eq!(this.about.ledger.unaccounted_packets(), 0, "round {round}");
        converted = Some(this);
        fs::remove_dir_all(&spool).unwrap();
        for (at, (_, arguments)) in tools.iter().enumerate() {
            let (file, run) = (folder.join("tool.pcap"), &mut runs[2 + at].1);
            measure(cable, run, Some(Command::new(arguments[0]).args(&arguments[1..]).arg(&file)));
            run.kept += packets_of_pcap(&file);
            run.bytes += bytes_of(&file);
            fs::remove_file(&file).unwrap();
        }
    }

    let seconds = ROUNDS as f64 * FLOOD.as_secs_f64();
    println!(
        "{:<18} {:>11} {:>11} {:>9} {:>7} {:>15} {:>15} {:>14}",
        "", "arrived/s", "kept", "lost", "CPU s", "packets/CPU s", "all ns/packet", "bytes/packet"
    );
    let bare = &runs[0].1;
    for (name, run) in &runs {
        let (arrived, lost) = (run.arrived as f64 / seconds, 100.0 * run.lost());
        if run.kept == 0 {
            println!("{name:<18} {arrived:>11.0}");
            continue;
        }
        let (rate, all_ns, bytes) = (run.packets_per_cpu_s(), run.all_ns(bare), run.bytes / run.kept as f64);
        println!(
            "{name:<18} {arrived:>11.0} {:>11} {lost:>8.3}% {:>7.2} {rate:>15.0} {all_ns:>15.1} {bytes:>14.1}",
            run.kept, run.cpu_s
        );
    }
    let Some(converted) = converted else { return };
    let ledger = &converted.about.ledger;
    println!("ledger: {} seen, {} unaccounted", ledger.seen_packets, ledger.unaccounted_packets());
    let ours = &runs[1].1;
    for (name, other) in &runs[2..] {
        let ratio = ours.packets_per_cpu_s() / other.packets_per_cpu_s();
        target(&format!("packets per CPU second: longhaul / {name}"), ratio, 2.0, false);
        target(&format!("share lost, less that of {name}"), ours.lost() - other.lost(), 0.0, true);
    }
    target("bytes: header log / pcap", converted.log_bytes / converted.pcap_bytes, 0.5, true);
    let converted_a_second = converted.packets as f64 / converted.cpu_s / 1e6;
    target("spool to header log, million packets per CPU second", converted_a_second, 2.0, false);
    target("header log to packets, million a second", converted.packets as f64 / converted.read_s / 1e6, 5.0, false);
}
