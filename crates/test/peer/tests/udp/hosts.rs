//! Labs, servers and clients on them, and what all results must satisfy.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::{ChildStdout, Command, Stdio};

use longhaul_channel::Key;
use longhaul_kernel::capability;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::signals::Stop;
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_peer::client::{self, Live, Target};
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_result::{Caveat, Location};
use longhaul_session::{SessionError, TestEnd, TestParameters};
use longhaul_terms::Amount;
use longhaul_testing::program::Program;
pub(crate) use longhaul_testing::waiting::until;
use longhaul_testing::waiting::wait_for;
use longhaul_udp::{Pace, UdpParameters, UdpResult};

/// Whether labs can be made; prints why not.
pub(crate) fn able() -> bool {
    let able = capability::is_root_in_namespace();
    if !able {
        longhaul_testing::no_judge!("it takes root (CAP_NET_ADMIN, CAP_SYS_ADMIN) to make a lab");
    }
    able
}

/// A lab with this path.
pub(crate) fn lab(path: &str) -> Lab {
    lab_with(LabSpec::default(), path)
}

/// A lab made so.
pub(crate) fn lab_with(spec: LabSpec, path: &str) -> Lab {
    let path = PathSpec::parse(path, &no_files).unwrap();
    Lab::up(LabSpec { name: "udp-test".into(), ..spec }, path).unwrap()
}

/// So many packets of 500 bytes, one by one, slowly enough for a busy machine to lose nothing by itself.
pub(crate) fn parameters(packets: u64) -> UdpParameters {
    UdpParameters {
        amount: Amount::Packets(packets),
        pace: Pace::RateBps(20_000_000),
        payload_bytes: 500,
        sockbuf_bytes: Some(8 << 20),
        wire: true,
        ..UdpParameters::default()
    }
}

/// For anyone who has `key`, one test at a time.
pub(crate) fn options(key: Option<Key>) -> ServeOptions {
    ServeOptions { key, ..ServeOptions::default() }
}

/// A server on a host of the lab, in a thread that ends with its first test.
pub(crate) fn serve(lab: &Lab, address: IpAddr, key: Option<Key>) -> (SocketAddr, std::thread::JoinHandle<()>) {
    serve_with(lab, SocketAddr::from((address, 0)), options(key))
}

/// The same with these options.
pub(crate) fn serve_with(
    lab: &Lab,
    address: SocketAddr,
    options: ServeOptions,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let namespace = lab.host("server").unwrap().namespace.try_clone().unwrap();
    let stop = Stop::install().unwrap();
    let (ready, bound) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        namespace.enter_for_good().unwrap();
        let server = Server::bind(address, options).unwrap();
        ready.send(server.address().unwrap()).unwrap();
        server.run(Some(stop), true, |_| {}).unwrap();
    });
    (bound.recv().unwrap(), thread)
}

/// A client on the lab's client.
pub(crate) fn test(
    lab: &Lab,
    address: SocketAddr,
    parameters: impl Into<TestParameters> + Send,
    live: impl FnMut(&Live) + Send,
) -> Result<TestEnd, SessionError> {
    let client = &lab.host("client").unwrap().namespace;
    client.enter(|| client::run(&Target::at(address, None), parameters, None, live)).unwrap()
}

/// A test over IPv4 from its beginning to its end.
pub(crate) fn run(lab: &Lab, parameters: impl Into<TestParameters> + Send) -> TestEnd {
    run_to(lab, lab.host("server").unwrap().plan.ipv4.into(), parameters)
}

/// A test with the server's `address`.
pub(crate) fn run_to(lab: &Lab, address: IpAddr, parameters: impl Into<TestParameters> + Send) -> TestEnd {
    let (address, server) = serve(lab, address, None);
    let end = test(lab, address, parameters, |_| {}).unwrap();
    server.join().unwrap();
    end
}

/// The result of one direction and its caveats. It checks for all tests that the figures add up.
pub(crate) fn assemble(end: &TestEnd, backward: bool) -> (UdpResult, Vec<Caveat>) {
    let (sender, receiver) = end.udp_reports(backward).unwrap();
    let assembled = UdpResult::assemble(end.parameters.udp().unwrap(), sender, receiver);
    let result = assembled.result;
    let placed: u64 = result.loss_by_location.values().sum();
    assert_eq!(result.sent_packets, result.received_packets + placed, "sent = received + what was lost at each place");
    assert_eq!(result.lost_packets, placed);
    let listed = result.losses.iter().map(|loss| loss.packets).sum::<u64>();
    assert_eq!(listed, if assembled.needs_losses_file { 0 } else { result.lost_packets });
    let mut caveats = assembled.caveats;
    caveats.extend(end.caveats.iter().chain(&end.local.caveats).cloned());
    caveats.extend(end.remote.iter().flat_map(|remote| remote.caveats.iter().cloned()));
    (result, caveats)
}

/// The result alone.
pub(crate) fn result(end: &TestEnd, backward: bool) -> UdpResult {
    assemble(end, backward).0
}

/// The places where anything was lost.
pub(crate) fn lost_at(result: &UdpResult) -> Vec<(Location, u64)> {
    result.loss_by_location.iter().map(|(at, packets)| (*at, *packets)).filter(|(_, packets)| *packets > 0).collect()
}

/// The sequence numbers lost at each place.
pub(crate) fn sequences(result: &UdpResult) -> BTreeMap<Location, BTreeSet<u64>> {
    let mut places: BTreeMap<Location, BTreeSet<u64>> = BTreeMap::new();
    for loss in &result.losses {
        places.entry(loss.location).or_default().extend(loss.first_sequence..loss.first_sequence + loss.packets);
    }
    places
}

/// Asserts that all losses are at `location`, and are exactly these packets.
#[track_caller]
pub(crate) fn assert_lost(result: &UdpResult, location: Location, expected: &BTreeSet<u64>) {
    assert!(!expected.is_empty(), "nothing was to be lost");
    assert_eq!(lost_at(result), [(location, expected.len() as u64)], "{:?}", reasons(result));
    assert_eq!(sequences(result)[&location], *expected);
}

/// Each reason with how many packets have it.
pub(crate) fn reasons(result: &UdpResult) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for loss in &result.losses {
        *reasons.entry(format!("{}: {} in units of {}", loss.location, loss.reason, loss.unit_packets)).or_default() +=
            loss.packets;
    }
    reasons
}

/// For a word in a command: the kernel feature it needs, how to see on a host whether the feature exists, and its name.
const FEATURES: [(&str, &str, &str); 7] = [
    ("nft ", "nft list tables", "nf_tables (CONFIG_NF_TABLES)"),
    ("clsact", "tc qdisc add dev lo clsact && tc qdisc del dev lo clsact", "the qdisc clsact (CONFIG_NET_SCH_INGRESS)"),
    (" htb", "tc qdisc add dev lo root htb && tc qdisc del dev lo root", "the qdisc htb (CONFIG_NET_SCH_HTB)"),
    (
        " tbf",
        "tc qdisc add dev lo root tbf rate 1mbit burst 9000 limit 9000 && tc qdisc del dev lo root",
        "the qdisc tbf (CONFIG_NET_SCH_TBF)",
    ),
    (" sec ", "test -e /proc/sys/kernel/unprivileged_bpf_disabled", "BPF programs (CONFIG_BPF_SYSCALL)"),
    ("xdpdrv", "ip link set dev eth0 xdpdrv off", "XDP in the driver veth"),
    ("xdpgeneric", "ip link set dev eth0 xdpgeneric off", "generic XDP"),
];

/// Runs a command on a host. Where the kernel lacks a feature for it, prints `skipped` with its name and returns `false`.
///
/// # Panics
/// Where it fails and no feature is missing.
#[track_caller]
pub(crate) fn on(lab: &Lab, host: &str, command: &str) -> bool {
    let run = |command: &str| {
        let shell = || Command::new("sh").args(["-c", command]).output();
        let output = lab.host(host).unwrap().namespace.enter(shell).unwrap().unwrap();
        assert_ne!(output.status.code(), Some(127), "`{command}`: no such program; scripts/deps.sh gets it");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    let (done, said) = run(command);
    if done {
        return true;
    }
    for (_, probe, feature) in FEATURES.iter().filter(|(word, ..)| command.contains(word)) {
        if let (false, why) = run(probe) {
            longhaul_testing::skipped!("this kernel lacks {feature}: {why}");
            return false;
        }
    }
    panic!("`{command}`: {said}");
}

/// Reads a counter of a host's `/proc/net/snmp`, such as `("Udp", "RcvbufErrors")`.
pub(crate) fn counter(lab: &Lab, host: &str, group: &str, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = lab.host(host).unwrap().namespace.enter(read).unwrap();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with(&format!("{group}:")))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let column = lines[0].iter().position(|known| *known == name).unwrap();
    lines[1][column].parse().unwrap()
}

/// A server or client that is a process of its own; killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Program,
    lines: Option<BufReader<ChildStdout>>,
}

/// Without any right: the user `nobody`, with no capability and no way to gain one.
pub(crate) const UNPRIVILEGED: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--no-new-privs",
];

impl Process {
    /// Runs the ignored test `name` of this program in `namespace` behind the words `before`.
    fn start(namespace: &NetNamespace, before: &[&str], name: &str, environment: &[(&str, String)]) -> Self {
        // By descriptor, as an unprivileged user may not come to where it lies.
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        rustix_keep(&own);
        let program = format!("/proc/self/fd/{}", own.as_raw_fd());
        let words: Vec<&str> = before.iter().copied().chain([program.as_str()]).collect();
        let spawn = || {
            Command::new(words[0])
                .args(&words[1..])
                .args(["--exact", name, "--ignored", "--nocapture"])
                .envs(environment.iter().map(|(key, value)| (*key, value.clone())))
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| panic!("{words:?}: {error}"))
        };
        let mut child = namespace.enter(spawn).unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child: Program(child), lines }
    }

    /// What follows `key` on the next line that has it; fails where the process ends without.
    pub(crate) fn says(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.as_mut().expect("not taken").read_line(&mut line);
            assert!(read.unwrap() > 0, "the process ended without saying `{key}`");
            // The harness may have begun the line.
            if let Some((_, value)) = line.split_once(key) {
                return value.trim().to_owned();
            }
        }
    }

    /// Its output, for another thread.
    pub(crate) fn take_lines(&mut self) -> BufReader<ChildStdout> {
        self.lines.take().expect("not taken")
    }

    /// Threads, open descriptors and resident memory in KiB now.
    pub(crate) fn holds(&self) -> (usize, usize, usize) {
        let folder = format!("/proc/{}", self.child.0.id());
        let count = |name: &str| std::fs::read_dir(format!("{folder}/{name}")).unwrap().count();
        let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        (count("task"), count("fd"), resident.trim().trim_end_matches(" kB").parse().unwrap())
    }

    /// The thread of that name, once there is one.
    pub(crate) fn thread(&self, name: &str) -> i32 {
        let tasks = format!("/proc/{}/task", self.child.0.id());
        wait_for(name, || {
            std::fs::read_dir(&tasks).unwrap().flatten().find_map(|task| {
                let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
                (comm.trim() == name).then(|| task.file_name().to_str().unwrap().parse().unwrap())
            })
        })
    }
}

/// The descriptor stays open in programs that are started.
fn rustix_keep(file: &std::fs::File) {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    fcntl(file, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
}

/// A server on the lab's server that is a process, and where it listens.
pub(crate) fn serving_process(lab: &Lab, before: &[&str]) -> (Process, SocketAddr) {
    let host = lab.host("server").unwrap();
    serving_process_at(&host.namespace, before, host.plan.ipv4.into(), None)
}

/// A server in `namespace`, at `address`, for all or for those who have the key made of `key`.
pub(crate) fn serving_process_at(
    namespace: &NetNamespace,
    before: &[&str],
    address: IpAddr,
    key: Option<u8>,
) -> (Process, SocketAddr) {
    let mut environment = vec![("LONGHAUL_TEST_SERVE", address.to_string())];
    environment.extend(key.map(|key| ("LONGHAUL_TEST_KEY", key.to_string())));
    let mut process = Process::start(namespace, before, "hosts::serves", &environment);
    let address = process.says("listening at ").parse().unwrap();
    (process, address)
}

/// The key made of `seed`.
pub(crate) fn key(seed: u8) -> Key {
    Key::from_random(std::array::from_fn(|index| index as u8 ^ seed)).unwrap()
}

/// A client on the lab's client that is a process.
pub(crate) fn testing_process(lab: &Lab, before: &[&str], to: SocketAddr, parameters: &UdpParameters) -> Process {
    let parameters = serde_json::to_string(parameters).unwrap();
    let environment = [("LONGHAUL_TEST_TO", to.to_string()), ("LONGHAUL_TEST_PARAMETERS", parameters)];
    Process::start(&lab.host("client").unwrap().namespace, before, "hosts::tests", &environment)
}

/// A client in `namespace`.
#[allow(dead_code, reason = "tests of UDP use it")]
pub(crate) fn testing_process_at(namespace: &NetNamespace, to: SocketAddr, parameters: &UdpParameters) -> Process {
    let parameters = serde_json::to_string(parameters).unwrap();
    let environment = [("LONGHAUL_TEST_TO", to.to_string()), ("LONGHAUL_TEST_PARAMETERS", parameters)];
    Process::start(namespace, &[], "hosts::tests", &environment)
}

/// The same of any kind of test.
#[allow(dead_code, reason = "tests of TCP use it")]
pub(crate) fn testing_process_of(lab: &Lab, to: SocketAddr, parameters: &TestParameters) -> Process {
    let parameters = serde_json::to_string(parameters).unwrap();
    let environment = [("LONGHAUL_TEST_TO", to.to_string()), ("LONGHAUL_TEST_PARAMETERS", parameters)];
    Process::start(&lab.host("client").unwrap().namespace, &[], "hosts::tests", &environment)
}

impl Process {
    /// The result of a client.
    pub(crate) fn outcome(mut self) -> Result<(UdpResult, Vec<Caveat>), String> {
        let text = self.says("outcome ");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

#[test]
#[ignore = "the process of a test"]
fn serves() {
    let Ok(address) = std::env::var("LONGHAUL_TEST_SERVE") else { return };
    let address: IpAddr = address.parse().unwrap();
    let key = std::env::var("LONGHAUL_TEST_KEY").ok().map(|seed| key(seed.parse().unwrap()));
    let server = Server::bind(SocketAddr::new(address, 0), options(key)).unwrap();
    println!("listening at {}", server.address().unwrap());
    let log = |ended: &longhaul_peer::server::Ended| match &ended.result {
        Ok(_) => println!("ended well"),
        Err(error) => println!("ended {}", error.code),
    };
    server.run(Some(Stop::install().unwrap()), false, log).unwrap();
}

#[test]
#[ignore = "the process of a test"]
fn tests() {
    let (Ok(to), Ok(parameters)) = (std::env::var("LONGHAUL_TEST_TO"), std::env::var("LONGHAUL_TEST_PARAMETERS"))
    else {
        return;
    };
    let target = Target::at(to.parse().unwrap(), None);
    let end = client::run(&target, serde_json::from_str::<TestParameters>(&parameters).unwrap(), None, |_| {
        println!("going on")
    });
    let outcome = end
        .map(|end| end.parameters.udp().map(|udp| assemble(&end, udp.direction.server_sends())))
        .map_err(|error| error.code);
    println!("outcome {}", serde_json::to_string(&outcome).unwrap());
}
