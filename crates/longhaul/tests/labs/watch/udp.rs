//! `longhaul watch --udp`: the losses of a program that knows nothing of longhaul, held against `/proc/net/udp`, nft and the lab.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_testing::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{TestLab, longhaul, object};
use crate::schemas::assert_valid;
use crate::watch::on;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// One datagram in 50 is lost in the network.
const PATH: &str = "[[both]]\nrate = '200Mbit'\nqueue = '4MiB'\ndelay = '5ms'\n[[forward]]\nloss = { every = 50 }\n";
const SENT: u64 = 3_000;
/// Reads slowly with a small buffer; says at its end what it read and what the kernel says its socket dropped.
const RECEIVER: &str = r#"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
s.bind(("0.0.0.0", 5000))
s.settimeout(5)
print("ready", flush=True)
read = 0
try:
    while True:
        s.recv(2000)
        read += 1
        if read % 50 == 0: time.sleep(0.05)
except socket.timeout: pass
drops = [line.split()[-1] for line in open("/proc/net/udp") if line.split()[1].endswith(":1388")]
print(read, drops[0])
"#;
const SENDER: &str = r#"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(3000):
    s.sendto(b"x" * 500, ("server", 5000))
    if i % 20 == 0: time.sleep(0.005)
"#;

fn at(socket: &Value, location: &str) -> u64 {
    let drops = socket["drops"].as_array().unwrap().iter().filter(|drop| drop["location"] == location);
    drops.map(|drop| drop["packets"].as_u64().unwrap()).sum()
}

#[test]
fn each_datagram_of_a_program_is_accounted_for_as_kernel_filter_and_path_count_them() {
    if Command::new("python3").arg("--version").output().is_err() || Command::new("nft").arg("-v").output().is_err() {
        longhaul_testing::no_judge!("python3 or nft is not installed (make deps)");
        return;
    }
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("drop events take root");
        return;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("longhaul-watch-udp-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(file("path.toml"), PATH).unwrap();
    let Some(lab) = TestLab::up("watch-udp", &file("path.toml")) else { return };
    for rule in [
        "add table ip t",
        "add chain ip t c { type filter hook input priority 0; }",
        "add rule ip t c udp dport 5000 numgen inc mod 100 0 counter drop",
    ] {
        let output = on(&lab, "server", &["nft", rule]).output().unwrap();
        assert!(output.status.success(), "{rule}: {output:?}");
    }
    let (near, far) = (file("near"), file("far"));
    let mut receiver = on(&lab, "server", &[LONGHAUL, "watch", "--udp", "-o", &far, "--", "python3", "-c", RECEIVER])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let sender = on(&lab, "client", &[LONGHAUL, "watch", "--udp", "-J", "-o", &near, "--", "python3", "-c", SENDER])
        .output()
        .unwrap();
    let mut counted = String::new();
    said.read_to_string(&mut counted).unwrap();
    let output = receiver.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted: Vec<u64> = counted.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [read, socket_drops] = counted[..] else { panic!("{counted:?} {text}") };

    // The sender's end.
    let sent = object(&sender.stdout);
    assert_valid(&sent, "longhaul.watch.udp/1");
    assert_eq!(sent["result"]["location_method"], "bpf", "{sent:#}");
    let own = &sent["result"]["sockets"][0];
    assert_eq!((own["sent_packets"].as_u64(), own["dropped_packets"].as_u64()), (Some(SENT), Some(0)), "{sent:#}");
    assert_eq!((own["program"].as_str(), own["sent_bytes"].as_u64()), (Some("python3"), Some(SENT * 500)), "{sent:#}");

    // The receiver's: what it read, what its socket and nft dropped, each by its own count.
    let received = object(&longhaul(&["show", "-J", &far]).stdout);
    assert_valid(&received, "longhaul.watch.udp/1");
    let [socket] = &received["result"]["sockets"].as_array().unwrap()[..] else { panic!("{received:#}") };
    let nft =
        String::from_utf8(on(&lab, "server", &["nft", "list", "table", "ip", "t"]).output().unwrap().stdout).unwrap();
    let filtered: u64 = nft.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(socket_drops > 100 && filtered > 10, "{socket_drops} {filtered}");
    assert_eq!(at(socket, "receiver_socket_buffer"), socket_drops, "{received:#}");
    assert_eq!(at(socket, "receiver_filter"), filtered, "{received:#}");
    assert_eq!(socket["received_packets"].as_u64(), Some(read), "{received:#}");
    assert_eq!(socket["read_packets"].as_u64(), Some(read), "{received:#}");
    assert_eq!(socket["unread_packets"].as_u64(), Some(0), "{received:#}");
    assert!(text.contains("receiver_socket_buffer, received by this host: SOCKET_RCVBUFF"), "{text}");

    // Both: the rest was lost in the network, as the lab itself counts it.
    let both = object(&longhaul(&["compare", "-J", &near, &far]).stdout);
    assert_valid(&both, "longhaul.compare.udp/1");
    let [account] = &both["result"]["accounts"].as_array().unwrap()[..] else { panic!("{both:#}") };
    let places = account["loss_by_location"].as_object().unwrap();
    assert_eq!(places["network"], SENT / 50, "{both:#}");
    let lost: u64 = places.values().map(|packets| packets.as_u64().unwrap()).sum();
    assert_eq!(
        (account["lost_packets"].as_u64(), account["sent_packets"].as_u64()),
        (Some(lost), Some(SENT)),
        "{both:#}"
    );
    assert_eq!(SENT, read + lost, "{both:#}");
    let said = String::from_utf8(longhaul(&["compare", &near, &far]).stdout).unwrap();
    assert!(said.contains("60 network: neither host dropped them"), "{said}");
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_socket_is_chosen_by_the_port_that_it_sends_to_and_intervals_are_objects() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("datagrams are counted as root");
        return;
    }
    // Nobody listens there, so each datagram is dropped for want of a socket: by the host's other end of loopback.
    let sender = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nfor i in range(40):\n s.sendto(b'x',('127.0.0.1',54321)); time.sleep(0.05)";
    let mut program = Command::new("python3").args(["-c", sender]).spawn().unwrap();
    let output = longhaul(&["watch", "--udp", "--port", "54321", "--json-stream", "-i", "500ms", "-t", "1500ms"]);
    program.wait().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, intervals) = objects.split_last().unwrap();
    assert!(intervals.len() >= 2, "{text}");
    for interval in intervals {
        assert_valid(interval, "longhaul.watch.udp.interval/1");
        assert!(!interval["host"].as_str().unwrap().is_empty() && interval["at"].is_string(), "{interval:#}");
    }
    assert_valid(result, "longhaul.watch.udp/1");
    let one = &result["result"]["sockets"][0];
    assert!(one["sent_packets"].as_u64() > Some(5), "{result:#}");
    assert_eq!(one["flows"][0]["remote"], "127.0.0.1:54321", "{result:#}");
}

/// What any user may do: sockets that share one port, and as many peers as there is room for, each of which drops what it is sent.
const CROWD: &str = r#"
import os, socket, time
if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
def opened():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 5555))
    return s
sockets = [opened() for _ in range(900)]
end = time.monotonic() + 60
number = 0
while time.monotonic() < end:
    for _ in range(200):
        peer = number % 16000
        sockets[number % len(sockets)].sendto(b"x", (f"127.{1 + peer % 100}.{peer // 100}.1", 1000 + peer))
        if number == 16000: print("ready", flush=True)
        number += 1
    time.sleep(0.001)
"#;

#[test]
fn a_crowd_of_sockets_delays_neither_reports_nor_the_end() {
    if Command::new("python3").arg("--version").output().is_err() {
        longhaul_testing::no_judge!("python3 is not installed (make deps)");
        return;
    }
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("datagrams are counted for root");
        return;
    }
    let namespace = NetNamespace::create().unwrap();
    let mut netlink = namespace.enter(Netlink::open).unwrap().unwrap();
    let loopback = netlink.index_of("lo").unwrap();
    netlink.set_up(loopback, true).unwrap();
    let started = |command: &mut Command| {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        Program(namespace.enter(|| command.spawn()).unwrap().unwrap())
    };
    let mut watch = started(Command::new(LONGHAUL).args(["watch", "--udp", "--json-stream", "-i", "500ms"]));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let (sender, reports) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    let mut crowd = started(Command::new("python3").args(["-c", CROWD]));
    let mut said = BufReader::new(crowd.0.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    while reports.try_recv().is_ok() {}
    // So long that it forgets what is not followed, too.
    let deadline = Instant::now() + Duration::from_secs(30);
    for number in 0..14 {
        let report = reports.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let report = report.unwrap_or_else(|_| panic!("{number} reports within 30 s"));
        assert!(report.matches("\"local\"").count() >= 10, "{report}");
    }
    let asked = Instant::now();
    kill_process(Pid::from_child(&watch.0), Signal::INT).unwrap();
    while watch.0.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("ended {:?} after it was asked to", asked.elapsed());
}
