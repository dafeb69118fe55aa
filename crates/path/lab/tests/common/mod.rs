//! What the tests of labs share: hosts to run things on, numbered datagrams, transfers, captures.
//!
//! Nothing here waits for a fixed time: it waits for an event, and gives up with a panic when that does not come.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod capture;
pub(crate) mod datagrams;
pub(crate) mod transfer;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_emulator::{HopStatus, Status};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{Change, PathSpec, no_files};
use longhaul_testing::program::Program;
use longhaul_testing::waiting::wait_for;

pub(crate) const CLIENT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 1, 1));
pub(crate) const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 2, 1));
pub(crate) const CLIENT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, 1));
pub(crate) const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 2, 1));

/// After this, what was waited for does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the test must be skipped; says why.
pub(crate) fn unprivileged() -> bool {
    let skip = !is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
    }
    skip
}

/// Whether the test must be skipped for want of a program; says why.
pub(crate) fn missing(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).exists())
    });
    if !found {
        longhaul_testing::no_judge!("{program} is not installed (make deps)");
    }
    !found
}

/// Held by tests that load the machine or measure time, so that they do not measure each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of this file.
pub(crate) fn path(toml: &str) -> PathSpec {
    PathSpec::parse(toml, &no_files).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// A lab with everything at its default.
pub(crate) fn lab(toml: &str) -> Lab {
    lab_with(LabSpec::default(), toml)
}

/// A lab that moves single packets.
pub(crate) fn wire_lab(toml: &str) -> Lab {
    lab_with(LabSpec { wire: true, ..LabSpec::default() }, toml)
}

/// A lab.
pub(crate) fn lab_with(spec: LabSpec, toml: &str) -> Lab {
    let lab = Lab::up(spec, path(toml)).unwrap_or_else(|error| panic!("{error}"));
    let mut before = sent_before();
    for host in lab.hosts() {
        before.insert(host.namespace.inode().unwrap(), frames_sent(&lab, &host.plan.name));
    }
    drop(before);
    lab
}

/// Frames that hosts, by their namespaces, sent before the emulator looked.
fn sent_before() -> MutexGuard<'static, HashMap<u64, u64>> {
    static BEFORE: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a host. Sockets that it opens stay there.
pub(crate) fn on<T: Send>(lab: &Lab, host: &str, work: impl FnOnce() -> T + Send) -> T {
    lab.host(host).unwrap().namespace.enter(work).unwrap()
}

/// Runs a program on a host to its end and gives what it printed.
pub(crate) fn run(lab: &Lab, host: &str, command: &[&str]) -> String {
    let (text, success) = attempt(lab, host, command);
    assert!(success, "{command:?} on {host}:\n{text}");
    text
}

/// Runs a program on a host to its end; gives what it printed, and whether it succeeded.
pub(crate) fn attempt(lab: &Lab, host: &str, command: &[&str]) -> (String, bool) {
    on(lab, host, || output(command))
}

/// Runs a program where the emulator's interfaces are.
pub(crate) fn run_in_core(lab: &Lab, command: &[&str]) -> String {
    let (text, success) = lab.core().enter(|| output(command)).unwrap();
    assert!(success, "{command:?}:\n{text}");
    text
}

fn output(command: &[&str]) -> (String, bool) {
    let output = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.success())
}

/// Starts a program on a host; what it says goes to `stderr`.
pub(crate) fn start(lab: &Lab, host: &str, command: &[&str], stderr: impl Into<Stdio>) -> Program {
    let stderr = stderr.into();
    let spawn = || {
        Command::new(command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
    };
    Program(on(lab, host, spawn))
}

/// A congestion control that losses do not slow down much, where the kernel has it.
pub(crate) fn brisk() -> &'static str {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if known.split_whitespace().any(|name| name == "bbr") { "bbr" } else { "cubic" }
}

/// Changes the running path.
pub(crate) fn set(lab: &mut Lab, changes: &[&str]) {
    let changes: Vec<Change> = changes.iter().map(|change| change.parse().unwrap()).collect();
    lab.set(&changes).unwrap();
}

/// Frames that a host has sent.
fn frames_sent(lab: &Lab, host: &str) -> u64 {
    let table = on(lab, host, || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
    // The tenth figure; an interface that is gone has sent nothing.
    line.map_or(0, |line| line.split_whitespace().nth(9).unwrap().parse().unwrap())
}

/// Waits until nothing is on the path: all that the hosts sent has been taken in, and all that came out of its last hops
/// has been handed over.
pub(crate) fn settled(lab: &Lab) -> Status {
    let before = |host: &str| sent_before()[&lab.host(host).unwrap().namespace.inode().unwrap()];
    wait_for("the path to be empty", || {
        let status = lab.status().unwrap();
        let taken = status.ports.iter().all(|port| {
            let own = port.own_fault;
            let lost = own.receive_overflow_frames + own.memory_full_frames + own.oversized_frames;
            port.received_frames + lost + before(&port.host) >= frames_sent(lab, &port.host)
        });
        let empty = status.hops.iter().all(|hop| hop.held_packets == 0);
        let handed_over = status.ports.iter().all(|port| {
            let handed = port.sent.packets
                + port.far_port_full_packets
                + port.port_down_packets
                + port.too_large_packets
                + port.own_fault.send_error_packets;
            hop(&status, &format!("{}.down", port.host)).counters.departed.packets == handed
        });
        (taken && empty && handed_over).then_some(status)
    })
}

/// The hop of that name.
pub(crate) fn hop<'a>(status: &'a Status, name: &str) -> &'a HopStatus {
    status.hops.iter().find(|hop| hop.name == name).unwrap_or_else(|| panic!("no hop {name}"))
}

/// That the emulator lost nothing by itself, and the hosts' rings took all.
pub(crate) fn assert_faithful(status: &Status) {
    assert_eq!(status.own_fault.total(), 0, "{:?}", status.own_fault);
    assert_eq!(status.far_port_full_packets, 0);
    for port in &status.ports {
        assert!(port.not_segmented_frames.is_empty(), "{}: {:?}", port.interface, port.not_segmented_frames);
        assert_eq!((port.port_down_packets, port.too_large_packets), (0, 0), "{}", port.interface);
    }
}

/// The kernel's counters on a host: `Udp.InErrors` as in /proc/net/snmp and netstat, `Udp6InErrors` as in snmp6.
pub(crate) fn counters(lab: &Lab, host: &str) -> BTreeMap<String, u64> {
    let texts = on(lab, host, || {
        // Not /proc/net: that is the namespace of the process's first thread.
        ["snmp", "netstat", "snmp6"]
            .map(|file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default())
    });
    let mut counters = BTreeMap::new();
    for text in &texts[..2] {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (group, names) = pair[0].split_once(':').unwrap();
            let values = pair[1].split_once(':').unwrap().1;
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // Some, such as MaxConn, are negative.
                counters.insert(format!("{group}.{name}"), value.parse().unwrap_or(0));
            }
        }
    }
    for line in texts[2].lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            counters.insert(name.to_owned(), value);
        }
    }
    counters
}

/// The least round trip of a few pings. `-U` would count the time in ping itself.
pub(crate) fn ping(lab: &Lab, from: &str, to: IpAddr) -> Duration {
    let text = run(lab, from, &["ping", "-n", "-c", "5", "-i", "0.02", "-W", "5", &to.to_string()]);
    let line = text.lines().find(|line| line.starts_with("rtt ")).unwrap_or_else(|| panic!("{text}"));
    let least = line.split(" = ").nth(1).and_then(|figures| figures.split('/').next()).unwrap();
    Duration::from_secs_f64(least.parse::<f64>().unwrap() / 1000.0)
}

/// A folder that goes with the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("longhaul-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
