//! `longhaul capture --to` beside `tcpdump -w - | socat`: the same flood, with its header snippets sent to another host over a second cable.
//!
//! Here the two hosts and the flood share the CPUs, so what one flood costs all of them together shows in what is lost; what each end
//! costs by itself shows in its CPU time, and at a rate that both can take nothing may be lost. *Link* is what the cable carried, all
//! headers of Ethernet, IP and UDP or TCP included.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_units::Nanos;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::{Pid, sync};
use serde_json::Value;

use super::flood::{Cable, packets_of_pcap};
use super::{LONGHAUL, target};

const FLOOD: Nanos = Nanos::from_secs(4);
const ROUNDS: usize = 2;
/// What the two ends take on one CPU together.
const EASY_PACKETS_PER_SECOND: f64 = 300_000.0;
/// The logging host.
const FAR: &str = "10.78.0.2";

/// How snippets get to the logging host.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    /// Into files of the capturing host.
    Disk,
    /// `capture --to`, with these options and those of `log`.
    Link { capture: &'static [&'static str], encrypted: bool },
    /// `tcpdump -w -` into a TCP connection.
    Tcpdump,
}

const DELIVERIES: [(&str, Delivery); 5] = [
    ("longhaul to its own disk", Delivery::Disk),
    ("longhaul --to", Delivery::Link { capture: &[], encrypted: false }),
    ("longhaul --to, encrypted", Delivery::Link { capture: &[], encrypted: true }),
    ("longhaul --to, MTU 1500", Delivery::Link { capture: &["--datagram", "1472"], encrypted: true }),
    ("tcpdump -w - | socat", Delivery::Tcpdump),
];

/// What became of a flood.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    arrived: u64,
    kept: u64,
    near_cpu_s: f64,
    far_cpu_s: f64,
    link_bytes: u64,
    /// Lost before it was sent, on the way, and at the logging host's disk.
    at_ring: u64,
    at_link: u64,
    at_disk: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.arrived += other.arrived;
        self.kept += other.kept;
        self.near_cpu_s += other.near_cpu_s;
        self.far_cpu_s += other.far_cpu_s;
        self.link_bytes += other.link_bytes;
        self.at_ring += other.at_ring;
        self.at_link += other.at_link;
        self.at_disk += other.at_disk;
    }

    /// Packets stored per CPU second of both ends.
    fn per_cpu_s(&self) -> f64 {
        self.kept as f64 / (self.near_cpu_s + self.far_cpu_s)
    }
}

/// The capturing host and the logging one, with a cable between them.
struct Ends<'a> {
    cable: &'a Cable,
    far: NetNamespace,
    folder: &'a Path,
}

impl<'a> Ends<'a> {
    fn new(cable: &'a Cable, folder: &'a Path) -> Self {
        let far = NetNamespace::create().unwrap();
        let near = &cable.receiver;
        let end = |name, namespace| VethEnd { name, namespace: Some(namespace), mtu_bytes: Some(9000), mac: None };
        let mut here = near.enter(|| Netlink::open().unwrap()).unwrap();
        let mut there = far.enter(|| Netlink::open().unwrap()).unwrap();
        here.create_veth(&end("link", near), &end("link", &far)).unwrap();
        for (netlink, ip) in [(&mut here, "10.78.0.1"), (&mut there, FAR)] {
            let ifindex = netlink.index_of("link").unwrap();
            netlink.add_address(&Address { ifindex, ip: ip.parse().unwrap(), prefix_bits: 24 }).unwrap();
            netlink.set_up(ifindex, true).unwrap();
        }
        Self { cable, far, folder }
    }

    fn on(&self, host: &NetNamespace, command: &mut Command) -> Child {
        command.stderr(Stdio::null());
        host.enter(|| command.spawn().unwrap()).unwrap()
    }

    fn link_bytes(&self) -> u64 {
        let mut netlink = self.cable.receiver.enter(|| Netlink::open().unwrap()).unwrap();
        let stats = netlink.link_by_name("link").unwrap().stats.unwrap();
        stats.tx_bytes + stats.rx_bytes
    }

    /// One flood, and what it cost the programs of the capturing host and of the logging one.
    fn flood(&self, rate: Option<f64>, near: &[&Child], far: &[&Child]) -> Sum {
        sleep(Duration::from_millis(800));
        let clocks = |children: &[&Child]| -> Vec<ClockId> {
            children.iter().map(|child| clock_getcpuclockid(Pid::from_raw(child.id() as i32)).unwrap()).collect()
        };
        let spent = |clocks: &[ClockId]| -> f64 {
            clocks.iter().map(|clock| Duration::from(clock.now().unwrap()).as_secs_f64()).sum()
        };
        let (near, far) = (clocks(near), clocks(far));
        let (near_s, far_s, bytes) = (spent(&near), spent(&far), self.link_bytes());
        let arrived = self.cable.flood(FLOOD, rate);
        // What waits in rings and buffers is taken out and written meanwhile.
        sleep(Duration::from_millis(1_000));
        Sum {
            arrived,
            near_cpu_s: spent(&near) - near_s,
            far_cpu_s: spent(&far) - far_s,
            link_bytes: self.link_bytes() - bytes,
            ..Sum::default()
        }
    }

    fn measure(&self, delivery: Delivery, rate: Option<f64>) -> Sum {
        sync();
        match delivery {
            Delivery::Disk => self.to_disk(rate),
            Delivery::Link { capture, encrypted } => self.over_link(rate, capture, encrypted),
            Delivery::Tcpdump => self.by_tcpdump(rate),
        }
    }

    fn to_disk(&self, rate: Option<f64>) -> Sum {
        let spool = self.folder.join("spool");
        let words = ["capture", "-J", "in", "--interval", "0", "-o"];
        let mut command = Command::new(LONGHAUL);
        let capture = self.on(&self.cable.receiver, command.args(words).arg(&spool).stdout(Stdio::piped()));
        let sum = self.flood(rate, &[&capture], &[]);
        let result = finish(capture);
        assert_eq!(result["unaccounted_packets"], 0, "{result}");
        fs::remove_dir_all(&spool).unwrap();
        Sum { kept: count(&result, "written_packets"), ..dropped(sum, &result) }
    }

    fn over_link(&self, rate: Option<f64>, options: &[&str], encrypted: bool) -> Sum {
        let (captures, key) = (self.folder.join("captures"), self.folder.join("key"));
        if !key.exists() {
            let made = Command::new(LONGHAUL).args(["key", "new"]).arg(&key).stdout(Stdio::null()).status().unwrap();
            assert!(made.success());
        }
        let key = key.to_str().unwrap();
        let auth: &[&str] = if encrypted { &["--key", key] } else { &["--no-auth"] };
        let mut command = Command::new(LONGHAUL);
        command.args(["log", "-J", "-1", "--bind", FAR, "-o"]).arg(&captures).args(auth).stdout(Stdio::piped());
        let log = self.on(&self.far, &mut command);
        sleep(Duration::from_millis(300));
        let mut command = Command::new(LONGHAUL);
        command.args(["capture", "-J", "in", "--interval", "0", "--to", FAR]).args(auth).args(options);
        let capture = self.on(&self.cable.receiver, command.stdout(Stdio::piped()));
        let sum = self.flood(rate, &[&capture], &[&log]);
        let here = finish(capture);
        let there = result(log)["captures"][0].clone();
        assert_eq!(
            (&here["unaccounted_packets"], &there["unaccounted_packets"]),
            (&0.into(), &0.into()),
            "{here}{there}"
        );
        let kept = count(&there, "written_packets");
        assert_eq!(count(&here, "written_packets"), kept);
        // What is in the files, not what the program says of them.
        let log = self.folder.join("log.parquet");
        let output = Command::new(LONGHAUL).args(["convert", "-J"]).args([&captures, &log]).output().unwrap();
        let converted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(count(&converted["result"], "packets"), kept);
        fs::remove_file(&log).unwrap();
        fs::remove_dir_all(&captures).unwrap();
        Sum { kept, ..dropped(sum, &here) }
    }

    fn by_tcpdump(&self, rate: Option<f64>) -> Sum {
        let (file, said) = (self.folder.join("far.pcap"), self.folder.join("said"));
        let mut command = Command::new("socat");
        command.args(["-u", "TCP-LISTEN:5300"]).arg(format!("OPEN:{},creat,trunc", file.display()));
        let mut far = self.on(&self.far, &mut command);
        sleep(Duration::from_millis(300));
        let mut command = Command::new("tcpdump");
        command.args(["-i", "in", "-s", "96", "-Z", "root", "-w", "-"]).stdout(Stdio::piped());
        command.stderr(File::create(&said).unwrap());
        let mut tcpdump = self.cable.receiver.enter(|| command.spawn().unwrap()).unwrap();
        let mut command = Command::new("socat");
        command.args(["-u", "-", &format!("TCP:{FAR}:5300")]).stdin(tcpdump.stdout.take().unwrap());
        let mut socat = self.on(&self.cable.receiver, &mut command);
        let mut sum = self.flood(rate, &[&tcpdump, &socat], &[&far]);
        interrupt(&tcpdump);
        for child in [&mut tcpdump, &mut socat, &mut far] {
            child.wait().unwrap();
        }
        sum.kept = packets_of_pcap(&file);
        // "123 packets dropped by kernel"
        let said = fs::read_to_string(&said).unwrap();
        let by_kernel = said.lines().find_map(|line| line.strip_suffix(" packets dropped by kernel"));
        sum.at_ring = by_kernel.unwrap().parse().unwrap();
        fs::remove_file(&file).unwrap();
        sum
    }
}

fn dropped(sum: Sum, capture: &Value) -> Sum {
    let at = |place| count(&capture["dropped_by_place"], place);
    Sum { at_ring: at("kernel_ring") + at("writer"), at_link: at("log_link"), at_disk: at("disk"), ..sum }
}

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// SIGINT, as Ctrl-C.
fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn finish(child: Child) -> Value {
    interrupt(&child);
    result(child)
}

fn result(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    printed["result"].clone()
}

pub(crate) fn run(cable: &Cable, folder: &Path) {
    let has_socat = Command::new("socat").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !has_socat {
        println!("skipped: socat is not installed (make deps)");
    }
    let deliveries: Vec<_> =
        DELIVERIES.into_iter().filter(|(_, delivery)| has_socat || !matches!(delivery, Delivery::Tcpdump)).collect();
    let ends = Ends::new(cable, folder);
    for rate in [None, Some(EASY_PACKETS_PER_SECOND)] {
        let mut sums = vec![Sum::default(); deliveries.len()];
        for _ in 0..ROUNDS {
            for ((_, delivery), sum) in deliveries.iter().zip(&mut sums) {
                sum.add(ends.measure(*delivery, rate));
            }
        }
        print(&deliveries, &sums);
        let [.., ours, _, tcpdump] = sums.as_slice() else { continue };
        if !has_socat {
            continue;
        }
        let lost = |sum: &Sum| 1.0 - sum.kept as f64 / sum.arrived.max(1) as f64;
        let ratio = ours.per_cpu_s() / tcpdump.per_cpu_s();
        target("packets per CPU second, both ends: encrypted link / tcpdump", ratio, 1.0, false);
        target("share lost, less that of tcpdump", lost(ours) - lost(tcpdump), 0.0, true);
        let bytes = |sum: &Sum| sum.link_bytes as f64 / sum.kept.max(1) as f64;
        target("bytes on the link per packet: encrypted link / tcpdump", bytes(ours) / bytes(tcpdump), 1.0, true);
    }
}

fn print(deliveries: &[(&str, Delivery)], sums: &[Sum]) {
    let seconds = ROUNDS as f64 * FLOOD.as_secs_f64();
    println!(
        "{:<26} {:>10} {:>10} {:>8} {:>9} {:>8} {:>8} {:>9} {:>9} {:>13} {:>9}",
        "",
        "arrived/s",
        "kept/s",
        "lost",
        "at ring",
        "link",
        "disk",
        "near CPU",
        "far CPU",
        "packets/CPU s",
        "B/packet"
    );
    for ((name, _), sum) in deliveries.iter().zip(sums) {
        let share = |packets: u64| format!("{:.2}%", 100.0 * packets as f64 / sum.arrived.max(1) as f64);
        println!(
            "{name:<26} {:>10.0} {:>10.0} {:>8} {:>9} {:>8} {:>8} {:>8.2}s {:>8.2}s {:>13.0} {:>9.1}",
            sum.arrived as f64 / seconds,
            sum.kept as f64 / seconds,
            share(sum.arrived.saturating_sub(sum.kept)),
            share(sum.at_ring),
            share(sum.at_link),
            share(sum.at_disk),
            sum.near_cpu_s,
            sum.far_cpu_s,
            sum.per_cpu_s(),
            sum.link_bytes as f64 / sum.kept.max(1) as f64,
        );
    }
}
