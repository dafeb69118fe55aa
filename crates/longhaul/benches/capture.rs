//! `longhaul capture` beside `tcpdump -s 96 -w` and dumpcap: the same flood of small packets over a veth for each in turn; then what
//! becomes of its spool.
//!
//! The flood is UDP of 64 bytes a packet from super-packets that the kernel cuts before the veth, as that has no such offload here, as
//! fast as one thread can. Ratios count, not the figures: everything shares this machine's CPUs.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::ethtool;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_trace::CaptureReader;
use longhaul_trace::header_log::{About, HeaderLogReader};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// Each program sees the flood for so long.
const FLOOD: Duration = Duration::from_secs(4);
const PAYLOAD_BYTES: usize = 64;
const SEGMENTS: usize = 60;

/// Two hosts and a cable that carries single packets.
struct Cable {
    sender: NetNamespace,
    receiver: NetNamespace,
}

impl Cable {
    fn new() -> Self {
        let (sender, receiver) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let end = |name, namespace, mac| VethEnd {
            name,
            namespace: Some(namespace),
            mtu_bytes: None,
            mac: Some([2, 0, 0, 0, 0, mac]),
        };
        let mut near = sender.enter(|| Netlink::open().unwrap()).unwrap();
        let mut far = receiver.enter(|| Netlink::open().unwrap()).unwrap();
        near.create_veth(&end("out", &sender, 1), &end("in", &receiver, 2)).unwrap();
        for (netlink, name, own, other, mac) in [(&mut near, "out", 1, 2, 2), (&mut far, "in", 2, 1, 1)] {
            let ifindex = netlink.index_of(name).unwrap();
            netlink.set_up(ifindex, true).unwrap();
            netlink.add_address(&Address { ifindex, ip: [10, 98, 0, own].into(), prefix_bits: 24 }).unwrap();
            netlink.add_permanent_neighbour(ifindex, [10, 98, 0, other].into(), [2, 0, 0, 0, 0, mac]).unwrap();
        }
        sender.enter(|| ethtool::set_features("out", &[("tx-udp-segmentation", false)]).unwrap()).unwrap();
        sleep(Duration::from_millis(200));
        Self { sender, receiver }
    }

    /// Floods for [`FLOOD`]; how many packets arrived at the far interface.
    fn flood(&self) -> u64 {
        // Nobody reads it: what arrives is dropped by the socket, after the taps have seen it.
        let _sink = self.receiver.enter(|| UdpSocket::bind("10.98.0.2:9").unwrap()).unwrap();
        let socket = self.sender.enter(|| UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
        socket.connect("10.98.0.2:9").unwrap();
        setsockopt(&socket, UdpGsoSegment, &(PAYLOAD_BYTES as i32)).unwrap();
        let before = self.received();
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let sending = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // A full queue is part of a flood.
                let _ = socket.send(&[7; PAYLOAD_BYTES * SEGMENTS]);
            }
        });
        sleep(FLOOD);
        over.store(true, Ordering::Relaxed);
        sending.join().unwrap();
        sleep(Duration::from_millis(300));
        self.received() - before
    }

    fn received(&self) -> u64 {
        let link = self.receiver.enter(|| Netlink::open().unwrap().link_by_name("in").unwrap()).unwrap();
        link.stats.unwrap().rx_packets
    }
}

/// What a program did with the flood.
struct Run {
    name: &'static str,
    arrived: u64,
    kept: u64,
    cpu_s: f64,
}

impl Run {
    fn packets_per_cpu_s(&self) -> f64 {
        self.kept as f64 / self.cpu_s
    }

    fn lost(&self) -> f64 {
        self.arrived.saturating_sub(self.kept) as f64 / self.arrived.max(1) as f64
    }
}

/// CPU time of children that have ended.
fn children_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Runs `command` over the flood; what it kept is counted later.
fn measure(cable: &Cable, name: &'static str, command: &mut Command) -> Run {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let before = children_cpu_s();
    let mut child = cable.receiver.enter(|| command.spawn().unwrap()).unwrap();
    sleep(Duration::from_millis(800));
    let arrived = cable.flood();
    sleep(Duration::from_millis(500));
    // SIGINT, as Ctrl-C: the tools then write what they still have.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
    Run { name, arrived, kept: 0, cpu_s: children_cpu_s() - before }
}

/// Packets of a pcap file.
fn packets_of_pcap(path: &Path) -> u64 {
    let mut reader = CaptureReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = 0;
    while reader.next().unwrap().is_some() {
        packets += 1;
    }
    packets
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

fn target(what: &str, value: f64, wanted: f64, at_most: bool) {
    let met = if at_most { value <= wanted } else { value >= wanted };
    let sign = if at_most { "<=" } else { ">=" };
    println!("{what:<56} {value:>9.3}   target {sign} {wanted}: {}", if met { "met" } else { "MISSED" });
}

fn main() {
    if !is_root_in_namespace() {
        println!("skipped: takes root");
        return;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("longhaul-bench-capture-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let cable = Cable::new();
    let (spool, log, same) = (folder.join("spool"), folder.join("log.parquet"), folder.join("same.pcap"));
    let arguments = ["capture", "-i", "in", "--interval", "0", "-o"];
    let mut ours = measure(&cable, "longhaul capture", Command::new(LONGHAUL).args(arguments).arg(&spool));
    let convert_cpu_s = convert(&spool, &log);
    let (packets, read_s, about) = read_log(&log);
    ours.kept = packets;
    convert(&spool, &same);
    let mut runs = vec![ours];

    let tools: [(&'static str, &[&str]); 2] = [
        ("tcpdump -s 96 -w", &["tcpdump", "-i", "in", "-s", "96", "-Z", "root", "-w"]),
        ("dumpcap -s 96 -w", &["dumpcap", "-q", "-P", "-i", "in", "-s", "96", "-w"]),
    ];
    for (name, arguments) in tools {
        if Command::new(arguments[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            println!("skipped: {} is not installed (make deps)", arguments[0]);
            continue;
        }
        let file = folder.join(arguments[0]);
        let mut run = measure(&cable, name, Command::new(arguments[0]).args(&arguments[1..]).arg(&file));
        run.kept = packets_of_pcap(&file);
        runs.push(run);
    }

    println!("{:<18} {:>11} {:>11} {:>9} {:>7} {:>15}", "", "arrived", "kept", "lost", "CPU s", "packets/CPU s");
    for run in &runs {
        let (lost, rate) = (100.0 * run.lost(), run.packets_per_cpu_s());
        println!("{:<18} {:>11} {:>11} {lost:>8.3}% {:>7.2} {rate:>15.0}", run.name, run.arrived, run.kept, run.cpu_s);
    }
    println!("ledger: {} seen, {} unaccounted", about.ledger.seen_packets, about.ledger.unaccounted_packets());
    for other in &runs[1..] {
        let ratio = runs[0].packets_per_cpu_s() / other.packets_per_cpu_s();
        target(&format!("packets a CPU second: longhaul / {}", other.name), ratio, 2.0, false);
        target(&format!("share lost, less that of {}", other.name), runs[0].lost() - other.lost(), 0.0, true);
    }
    target("bytes: header log / pcap", bytes_of(&log) / bytes_of(&same), 0.5, true);
    target("spool to header log, million packets a CPU second", packets as f64 / convert_cpu_s / 1e6, 2.0, false);
    target("header log to packets, million a second", packets as f64 / read_s / 1e6, 5.0, false);
    fs::remove_dir_all(&folder).unwrap();
}
