//! What hands expect that know iperf3: one port, an own address and port, DSCP, units, intervals, a server in the background.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use longhaul_kernel::capability::is_root_in_namespace;

use crate::common::{TestLab, object};
use crate::schemas::assert_valid;
use crate::watch::on;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
const PATH: &str = "[[both]]\nrate = '100Mbit'\nqueue = '1MiB'\ndelay = '2ms'\n";

/// A folder of files; gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("path.toml"), PATH).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server in the background of the lab's other host; ended when dropped.
struct Background(String);

impl Background {
    fn start(lab: &TestLab, arguments: &[&str]) -> Self {
        let output = on(lab, "server", &[&[LONGHAUL, "serve", "-D"], arguments].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        let (listening, pid) = said.split_once("; kill ").unwrap_or_else(|| panic!("{said}"));
        assert!(listening.contains("listening at "), "{said}");
        Self(pid.split(' ').next().unwrap().to_owned())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.0).status();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn client(lab: &TestLab, arguments: &[&str]) -> Output {
    let output = on(lab, "client", &[&[LONGHAUL], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn result(lab: &TestLab, arguments: &[&str]) -> Value {
    object(&client(lab, &[arguments, &["--json"]].concat()).stdout)
}

/// A firewall lets only port 5210 in: TCP with streams in both directions, UDP with several streams, round trips.
#[test]
fn one_port_in_the_firewall_is_enough() {
    if Command::new("nft").arg("-v").output().is_err() {
        longhaul_testing::no_judge!("nft is not installed (make deps)");
        return;
    }
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("a firewall takes root");
        return;
    }
    let folder = Folder::new("one-port");
    let Some(lab) = TestLab::up("one-port", &folder.file("path.toml")) else { return };
    for rule in [
        "add table inet t",
        "add chain inet t c { type filter hook input priority 0; policy drop; }",
        "add rule inet t c meta l4proto { icmp, ipv6-icmp } accept",
        "add rule inet t c ip dscp ef tcp dport 5210 counter accept",
        "add rule inet t c tcp dport 5210 accept",
        "add rule inet t c udp dport 5210 accept",
    ] {
        let output = on(&lab, "server", &["nft", rule]).output().unwrap();
        assert!(output.status.success(), "{rule}: {output:?}");
    }
    let log = folder.file("log");
    let server = Background::start(&lab, &["--data-port", "5210", "--logfile", &log]);
    for family in ["-4", "-6"] {
        let tcp = result(&lab, &["tcp", "server", family, "-t", "1s", "-P", "3", "--bidir", "-w", "300K"]);
        for direction in ["forward", "backward"] {
            let streams = tcp["result"][direction]["streams"].as_array().unwrap();
            let all = |key: &str| streams.iter().map(|stream| stream[key].as_u64().unwrap()).collect::<Vec<_>>();
            let (at_server, buffer) =
                if direction == "forward" { ("receiver_port", "receiver") } else { ("sender_port", "sender") };
            assert_eq!(all(at_server), [5210; 3], "{direction}");
            assert!(all("bytes").iter().all(|bytes| *bytes > 100_000), "{tcp:#}");
            let asked = &streams[0]["socket_buffers"][buffer];
            assert_eq!(
                (asked["asked_bytes"].as_u64(), asked["given_bytes"].as_u64()),
                (Some(300 << 10), Some(600 << 10))
            );
        }
        let udp = result(&lab, &["udp", "server", family, "-k", "4000", "-b", "5M", "-P", "4"]);
        let udp = &udp["result"];
        assert_eq!(
            (udp["received_packets"].as_u64(), udp["duplicate_packets"].as_u64()),
            (Some(4_000), Some(0)),
            "{udp:#}"
        );
        let streams = udp["streams"].as_array().unwrap();
        assert!(
            streams
                .iter()
                .all(|stream| (stream["sent_packets"].as_u64(), stream["lost_packets"].as_u64())
                    == (Some(1_000), Some(0)))
        );
        let rtt = result(&lab, &["rtt", "server", family, "--count", "20", "--interval", "10ms"]);
        assert_eq!(rtt["result"]["received"].as_u64(), Some(20), "{rtt:#}");
    }

    // An own address, port (below those that the kernel gives to connections) and DSCP, by the server's own count.
    let tcp =
        result(&lab, &["tcp", "server", "-n", "3M", "-B", "10.77.1.1", "--cport", "30000", "-P", "2", "--dscp", "ef"]);
    let streams = tcp["result"]["streams"].as_array().unwrap();
    assert_eq!([&streams[0]["sender_port"], &streams[1]["sender_port"]], [30_000, 30_001]);
    assert_eq!(streams[0]["sender_address"], "10.77.1.1");
    let rules = text(&on(&lab, "server", &["nft", "list", "table", "inet", "t"]).output().unwrap().stdout);
    let marked: u64 =
        rules.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(marked > 20, "{rules}");
    let udp = result(&lab, &["udp", "server", "-6", "-k", "100", "-b", "10M", "--cport", "30000", "--dscp", "af11"]);
    let class = &udp["result"]["traffic_classes"][0];
    assert_eq!((class["traffic_class"].as_u64(), class["packets"].as_u64()), (Some(0x28), Some(100)), "{udp:#}");

    drop(server);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("test done") && !said.contains("control_lost"), "{said}");
}

/// The lab's name of the server has an address of each family, and the server listens at one of them.
#[test]
fn every_address_of_a_name_is_tried() {
    let folder = Folder::new("addresses");
    let Some(lab) = TestLab::up("addresses", &folder.file("path.toml")) else { return };
    let refused = on(&lab, "client", &[LONGHAUL, "udp", "server", "-k", "10"]).output().unwrap();
    let said = text(&refused.stderr);
    assert!(said.contains("10.77.2.1:5210 refuses") && said.contains("[fd77::2:1]:5210 refuses"), "{said}");
    assert!(said.contains("--bind 0.0.0.0"), "who listens on loopback alone is told: {said}");
    // The remedy fits the addresses and the command.
    for (command, address, remedy) in [
        (&["udp", "server", "-6"][..], "[fd77::2:1]:5210", "--bind :: --key"),
        (&["udp", "server", "-4"], "10.77.2.1:5210", "--bind 0.0.0.0 --key"),
        (
            &["rtt", "server", "-6"],
            "[fd77::2:1]:5210",
            "--bind :: --key FILE` there (it listens on loopback without --bind), and open its port in the firewalls; without a server use --icmp",
        ),
        (&["udp", "::1"], "[::1]:5210", "(start `longhaul serve`)"),
        (&["rtt", "server"], "10.77.2.1:5210", "without a server use --icmp"),
        (&["capture", "eth0", "--to", "server", "-t", "1s"], "10.77.2.1", "longhaul log -o DIR --bind 0.0.0.0"),
    ] {
        let output = on(&lab, "client", &[&[LONGHAUL], command].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(address) && said.contains(remedy), "{command:?}: {said}");
    }
    for (address, family) in [("10.77.2.1", "-4"), ("fd77::2:1", "-6")] {
        let _server = Background::start(&lab, &["-B", address, "--no-auth", "-1"]);
        let udp = result(&lab, &["udp", "server", "-k", "10", "-b", "1M"]);
        assert!(udp["parameters"]["address"].as_str().unwrap().contains(address), "{family} {udp:#}");
    }
    let output = on(&lab, "client", &[LONGHAUL, "tcp", "server", "-B", "10.99.0.1"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("cannot use the local address 10.99.0.1:0") && said.contains("ip address"), "{said}");
}

#[test]
fn intervals_have_a_header_and_the_place_of_losses() {
    let folder = Folder::new("intervals");
    let Some(lab) = TestLab::up("intervals", &folder.file("path.toml")) else { return };
    let _server = Background::start(&lab, &[]);
    // By default, each second, with a header; the rate in the unit that was asked for.
    let said = text(&client(&lab, &["udp", "server", "-t", "2100ms", "-b", "1M", "-f", "k"]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].contains("received") && lines[0].contains("lost") && lines[0].ends_with("dropped where"),
        "{said}"
    );
    assert!(lines[1].starts_with("forward     1.0 s") && lines[1].contains(" kbit/s"), "{said}");
    assert!(lines[2].starts_with("forward     2.0 s"), "{said}");
    // Packets that come one by one have jitter without --wire.
    let jitter = said.lines().find(|line| line.starts_with("jitter")).unwrap();
    assert!(jitter.ends_with("us") || jitter.ends_with("ms") || jitter.ends_with("ns"), "{said}");
    let said = text(&client(&lab, &["tcp", "server", "-t", "1100ms", "-i", "500ms", "-C", "cubic"]).stdout);
    assert!(said.lines().next().unwrap().contains("retransmits"), "{said}");
    let stream = said.lines().find(|line| line.starts_with("stream ")).unwrap();
    assert!(stream.contains("1:1]:") && stream.contains(" to [fd77::2:1]:") && stream.ends_with(", cubic"), "{said}");
    assert!(text(&client(&lab, &["tcp", "server", "-t", "1s", "-i", "0"]).stdout).starts_with("forward   goodput"));

    if !is_root_in_namespace() {
        longhaul_testing::skipped!("drop events take root");
        return;
    }
    // Each host drops some of the data: the lines of both say so while the test runs, and their sum is the result's.
    for (host, hook) in [("client", "output"), ("server", "input")] {
        let rules = format!(
            "table inet lossy {{ chain some {{ type filter hook {hook} priority 0; meta length > 1000 numgen inc mod 31 == 0 drop; }}; }}"
        );
        assert!(on(&lab, host, &["nft", &rules]).status().unwrap().success());
    }
    let command = [LONGHAUL, "tcp", "server", "-t", "2s", "-b", "20M", "-i", "500ms", "-C", "cubic", "--json-stream"];
    let said = text(&on(&lab, "client", &command).output().unwrap().stdout);
    let objects: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, intervals) = objects.split_last().unwrap();
    assert_valid(&intervals[0], "longhaul.tcp.interval/1");
    for place in ["snd_txloss", "rcv_rxloss"] {
        let dropped: u64 = intervals.iter().filter_map(|one| one["dropped_packets"][place].as_u64()).sum();
        let reasons = result["result"]["loss_reasons"].as_array().unwrap();
        let packets = |reason: &&Value| reason["location"] == place;
        let all: u64 = reasons.iter().filter(packets).map(|reason| reason["packets"].as_u64().unwrap()).sum();
        assert!(dropped > 0 && dropped <= all, "{place}: {dropped} of {all} {result:#}");
    }
    for host in ["client", "server"] {
        assert!(on(&lab, host, &["nft", "delete table inet lossy"]).status().unwrap().success());
    }
    // The socket's buffer is too small for this: both places are told while the test runs, and the file is there for Prometheus.
    let metrics = folder.file("longhaul.prom");
    let script = format!(
        "{LONGHAUL} udp server -t 2500ms -b 60M -w 3K --wire --json-stream --prometheus {metrics} & sleep 2.2; cat {metrics}; wait"
    );
    let said = text(&on(&lab, "client", &["sh", "-c", &script]).output().unwrap().stdout);
    let intervals: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let dropped: u64 =
        intervals.iter().filter_map(|one| one["dropped_packets"]["receiver_socket_buffer"].as_u64()).sum();
    let result = intervals.iter().find(|one| one["schema"] == "longhaul.udp/1").unwrap();
    let lost = result["result"]["loss_by_location"]["receiver_socket_buffer"].as_u64().unwrap();
    assert!(dropped > 0 && dropped <= lost, "{dropped} of {lost} {said}");
    let gauge = "longhaul_udp_received_rate_bits_per_second{direction=\"forward\",host=";
    assert!(said.contains(gauge), "{said}");
    assert!(said.contains("longhaul_udp_timestamp_seconds{direction=\"forward\",host="), "{said}");
    assert!(!fs::exists(&metrics).unwrap(), "old figures are not left");
}

/// Commands that last write a file for node_exporter, and take it away when they end.
#[test]
fn lasting_commands_write_metrics() {
    let folder = Folder::new("metrics");
    let Some(lab) = TestLab::up("metrics", &folder.file("path.toml")) else { return };
    let [serving, sweeping, emulating] = ["serve.prom", "sweep.prom", "emulate.prom"].map(|name| folder.file(name));
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let until = |file: &str, gauge: &str| {
        for _ in 0..200 {
            if read(file).contains(gauge) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{gauge} is not in {file}: {}", read(file));
    };
    let host = |lab_host: &str| text(&on(&lab, lab_host, &["hostname"]).output().unwrap().stdout).trim().to_owned();
    let server = Background::start(&lab, &["--prometheus", &serving]);
    until(&serving, &format!("longhaul_serve_running_tests{{host=\"{}\"}} 0\n", host("server")));
    let sweep = format!(
        "{LONGHAUL} sweep server -l 512 -b 5M -t 300ms --repeat 2 --prometheus {sweeping} & \
         while kill -0 $!; do cat {sweeping} >> {sweeping}.seen; sleep 0.1; done"
    );
    assert!(on(&lab, "client", &["sh", "-c", &sweep]).output().unwrap().status.success());
    let seen = read(&format!("{sweeping}.seen"));
    let all = format!("longhaul_sweep_all_tests{{host=\"{}\"}} 2\n", host("client"));
    assert!(seen.contains(&all) && seen.contains("longhaul_sweep_figures_sent_packets"), "{seen}");
    assert!(!fs::exists(&sweeping).unwrap(), "old figures are not left");
    let refused = on(&lab, "client", &[LONGHAUL, "udp", "server", "-t", "2h"]).output().unwrap();
    assert!(!refused.status.success());
    until(&serving, "longhaul_serve_done_tests{host=");
    until(&serving, "code=\"test_too_long\"} 1\n");
    assert!(read(&serving).lines().any(|line| line.starts_with("longhaul_serve_done_tests") && line.ends_with(" 2")));
    drop(server);
    for _ in 0..100 {
        if !fs::exists(&serving).unwrap() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!fs::exists(&serving).unwrap(), "old figures are not left");

    let cables = "for one in va vb; do ip link add ${one}0 type veth peer name ${one}1; ip link set ${one}0 up; done";
    assert!(on(&lab, "client", &["sh", "-c", cables]).status().unwrap().success());
    let emulate = format!(
        "{LONGHAUL} emulate --left va0 --right vb0 --path lan -t 60s --prometheus {emulating} & \
         for try in $(seq 200); do grep -qs ^longhaul_emulate_lateness {emulating} && break; sleep 0.1; done; \
         cat {emulating}; kill -TERM $!; wait"
    );
    let said = text(&on(&lab, "client", &["sh", "-c", &emulate]).output().unwrap().stdout);
    let names: Vec<&str> = said.lines().filter(|line| line.starts_with("longhaul_emulate")).collect();
    let series: std::collections::BTreeSet<&str> =
        names.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert!(series.iter().any(|name| name.starts_with("longhaul_emulate_lateness_p99_seconds{")), "{said}");
    assert_eq!(series.len(), names.len(), "no series is there twice: {said}");
    assert!(!fs::exists(&emulating).unwrap(), "old figures are not left");
}

/// A full queue of 1 MiB at 100 Mbit/s takes 84 ms; the path's round trip is 4 ms.
#[test]
fn latency_under_load_is_that_of_the_queue() {
    let folder = Folder::new("latency");
    let Some(lab) = TestLab::up("latency", &folder.file("path.toml")) else { return };
    let _server = Background::start(&lab, &[]);
    let output = on(&lab, "client", &[LONGHAUL, "tcp", "server", "-t", "4s", "-C", "cubic", "--latency", "--json"])
        .output()
        .unwrap();
    let tcp = object(&output.stdout);
    if tcp["error"]["code"] == "no_echo_socket" {
        longhaul_testing::skipped!("no ICMP echo for this user");
        return;
    }
    assert_valid(&tcp, "longhaul.tcp/1");
    let latency = &tcp["result"]["latency"];
    let ms = |of: &str, what: &str| latency[of][what].as_u64().unwrap() as f64 / 1e6;
    assert!((4.0..20.0).contains(&ms("idle", "p50_ns")), "{latency:#}");
    assert!((30.0..150.0).contains(&ms("loaded", "p99_ns")), "{latency:#}");
    assert!(latency["loaded"]["probes"].as_u64() > Some(100), "{latency:#}");
    let said = text(&client(&lab, &["udp", "server", "-t", "1s", "--latency"]).stdout);
    assert!(said.contains("latency   ") && said.contains("p50 idle; under load"), "{said}");
}
