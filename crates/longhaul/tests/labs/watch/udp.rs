//! `longhaul watch --udp`: the losses of a program that knows nothing of longhaul, held against `/proc/net/udp`, nft and the lab.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{TestLab, longhaul, object};
use crate::schemas::assert_valid;
use crate::watch::on;
use longhaul_kernel::capability::is_root_in_namespace;

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
    assert!(text.contains("receiver_socket_buffer, on their way in: SOCKET_RCVBUFF"), "{text}");

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
