//! `longhaul capture --to` and `longhaul log`: heads over a network to logging hosts, between hosts of their own.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{TestLab, longhaul, object, printed};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_trace::CaptureReader;
use serde_json::Value;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A port that nobody else uses: what is captured goes there, over the capturing host's loopback.
const PORT: u16 = 7070;

/// A lab of two hosts: the client captures, the server logs.
struct Hosts {
    lab: TestLab,
    client: NetNamespace,
    server: NetNamespace,
    folder: PathBuf,
    /// What is captured goes from the one to the other. Made once: a program that another test starts may hold a socket for a moment
    /// after it was closed here.
    near: UdpSocket,
    _far: UdpSocket,
}

impl Hosts {
    fn new(name: &str, path: &str, options: &[&str]) -> Option<Self> {
        let lab = TestLab::up_with(name, path, options)?;
        let folder = std::env::temp_dir().join(format!("longhaul-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
        let labs = list["result"]["labs"].as_array().unwrap();
        let found = labs.iter().find(|entry| entry["name"] == lab.name.as_str()).unwrap();
        let of = |host: &str| {
            let hosts = found["hosts"].as_array().unwrap();
            let host = hosts.iter().find(|entry| entry["name"] == host).unwrap_or_else(|| panic!("{found:#}"));
            NetNamespace::open(Path::new(host["namespace"].as_str().unwrap())).unwrap()
        };
        let (client, server) = (of("client"), of("server"));
        let sockets =
            client.enter(|| (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind(("127.0.0.1", PORT)).unwrap()));
        let (near, far) = sockets.unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        Some(Self { lab, client, server, folder, near, _far: far })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Starts `longhaul` on a host, and waits until it says that it goes on until Ctrl-C.
    fn start(&self, host: &str, arguments: &[&str]) -> Program {
        match self.try_start(host, arguments) {
            Ok(program) => program,
            Err(said) => panic!("{arguments:?} ended: {said}"),
        }
    }

    /// The same; what it said where it ended instead.
    fn try_start(&self, host: &str, arguments: &[&str]) -> Result<Program, String> {
        let words = [&["lab", "exec", "--name", &self.lab.name, host, "--", LONGHAUL][..], arguments].concat();
        let mut command = Command::new(LONGHAUL);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Program(command.spawn().unwrap());
        let mut stderr = program.0.stderr.take().unwrap();
        let mut said = String::new();
        let mut byte = [0];
        while !said.contains("Ctrl-C ends\n") {
            if stderr.read(&mut byte).unwrap() == 0 {
                return Err(said);
            }
            said.push(byte[0].into());
        }
        // What it says later must not fill the pipe.
        std::thread::spawn(move || drop(std::io::copy(&mut stderr, &mut std::io::sink())));
        Ok(program)
    }

    fn log(&self, folder: &str, more: &[&str]) -> Program {
        self.start("server", &[&["log", "-J", "-o", &self.path(folder)][..], more].concat())
    }

    fn capture(&self, to: &[&str], more: &[&str]) -> Program {
        let port = PORT.to_string();
        let to: Vec<&str> = to.iter().flat_map(|to| ["--to", to]).collect();
        self.start("client", &[&["capture", "-J", "-i", "lo", "--port", &port][..], &to, more].concat())
    }

    /// Sends `count` numbered datagrams over the client's loopback.
    fn send(&self, count: u64) {
        for number in 0..count {
            assert_eq!(self.near.send(&number.to_be_bytes()).unwrap(), 8);
            // Not to overrun the ring: it is the link that is tried here.
            if number % 500 == 499 {
                sleep(Duration::from_millis(1));
            }
        }
    }

    /// Numbers and stamps of the datagrams in captures, by `convert`.
    fn packets(&self, from: &[&str]) -> Vec<(u64, i64)> {
        let to = self.path("packets.pcapng");
        let from: Vec<String> = from.iter().map(|name| self.path(name)).collect();
        let from: Vec<&str> = from.iter().map(String::as_str).collect();
        let output = longhaul(&[&["convert"][..], &from, &[&to]].concat());
        assert!(output.status.success(), "{output:?}");
        let mut reader = CaptureReader::new(fs::File::open(to).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            // Ethernet, IPv4, UDP.
            packets.push((u64::from_be_bytes(record.head[42..50].try_into().unwrap()), record.at_ns));
        }
        packets
    }

    fn convert(&self, from: &str, to: &str) -> Value {
        let output = longhaul(&["convert", "-J", &self.path(from), &self.path(to)]);
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Program(Child);

impl Program {
    fn process(&self) -> Process {
        Process::open(self.0.id()).unwrap().expect("it runs")
    }

    /// Waits for its end, and gives its result.
    fn wait(mut self) -> Value {
        let mut text = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        self.0.wait().unwrap();
        object(&text)
    }

    /// Ends it as Ctrl-C does, and gives its result.
    fn finish(self) -> Value {
        self.process().signal(Signal::INT).unwrap();
        self.wait()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value:#}"))
}

/// The only capture of a logging host's result, whose account is whole.
fn only(log: &Value) -> &Value {
    let captures = log["result"]["captures"].as_array().unwrap();
    assert_eq!(captures.len(), 1, "{log:#}");
    assert_balanced(&captures[0]);
    &captures[0]
}

/// Seen is written and dropped, and each drop is in a gap.
fn assert_balanced(capture: &Value) {
    let (seen, written, dropped) =
        (count(capture, "seen_packets"), count(capture, "written_packets"), count(capture, "dropped_packets"));
    assert_eq!(seen, written + dropped, "{capture:#}");
    assert_eq!(capture["unaccounted_packets"], 0, "{capture:#}");
    let gaps = capture["gaps"].as_array().unwrap();
    assert_eq!(gaps.iter().map(|gap| count(gap, "packets")).sum::<u64>(), dropped, "{capture:#}");
}

#[test]
fn heads_arrive_in_full_and_equal_those_captured_here() {
    let Some(hosts) = Hosts::new("log-full", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &["-o", &hosts.path("here")]);
    hosts.send(20_000);
    sleep(Duration::from_millis(300));
    capture.process().signal(Signal::USR1).unwrap();
    sleep(Duration::from_millis(300));
    let here = capture.finish();
    let there = log.wait();
    let (here, there) = (&here["result"], only(&there));
    assert_eq!((count(here, "seen_packets"), count(there, "seen_packets")), (20_000, 20_000), "{here:#}");
    assert_eq!((count(there, "written_packets"), there["end"].as_str()), (20_000, Some("finished")));
    assert_eq!(there["marks"], here["marks"]);
    assert_eq!(here["marks"].as_array().unwrap().len(), 1);
    let logger = &here["loggers"][0];
    assert_eq!((count(logger, "sent_packets"), count(logger, "written_packets")), (20_000, 20_000), "{logger:#}");
    assert!(count(logger, "sent_datagrams") < 20_000 / 5, "many heads in one: {logger:#}");

    // The folder that all captures lie in reads as the only one in it.
    for form in ["t.pcap", "t.pcapng"] {
        assert_eq!(count(&hosts.convert("log", form)["result"], "packets"), 20_000);
        let there = fs::read(hosts.path(form)).unwrap();
        hosts.convert("here", form);
        assert!(there == fs::read(hosts.path(form)).unwrap(), "{form}: the same packets at the same times");
    }
}

/// Every seventh packet on the way is lost, and the last ones.
#[test]
fn what_the_link_loses_is_counted_to_the_head() {
    let Some(hosts) = Hosts::new("log-loss", "lan", &["--set", "forward.loss=every(7)"]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &["-o", &hosts.path("here")]);
    hosts.send(20_000);
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    let log = log.wait();
    let there = only(&log);
    let (all, came) = (hosts.packets(&["here"]), hosts.packets(&["log"]));
    assert_eq!(all.len(), 20_000);
    let lost = there["dropped_by_place"]["log_link"].as_u64().unwrap();
    // Exactly what is not there, about a seventh.
    assert_eq!(came.len() as u64 + lost, 20_000, "{there:#}");
    assert_eq!((count(there, "seen_packets"), count(there, "written_packets")), (20_000, came.len() as u64));
    assert!((2_000..4_000).contains(&lost), "{lost} lost");
    assert!(log["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "link_lost"), "{log:#}");

    // Each missing head lies in a gap, and gaps hold little else.
    let numbers: std::collections::HashSet<u64> = came.iter().map(|(number, _)| *number).collect();
    let gaps = there["gaps"].as_array().unwrap();
    let within = |at_ns: i64| {
        gaps.iter().any(|gap| (gap["from_ns"].as_i64().unwrap()..=gap["to_ns"].as_i64().unwrap()).contains(&at_ns))
    };
    let missing = all.iter().filter(|(number, _)| !numbers.contains(number));
    assert!(missing.clone().all(|(_, at_ns)| within(*at_ns)));
    let inside = came.iter().filter(|(_, at_ns)| within(*at_ns)).count() as u64;
    assert!(inside <= 2 * lost, "{inside} heads that came lie in gaps of {lost}");
    // The capturing host was told as much.
    let logger = &here["result"]["loggers"][0];
    assert_eq!(logger["dropped_by_place"]["log_link"].as_u64(), Some(lost), "{logger:#}");
    assert_eq!(count(logger, "sent_packets"), count(logger, "written_packets") + lost);
    // Its own spool lacks nothing.
    assert_eq!(here["result"]["dropped_packets"], 0, "{here:#}");
}

#[test]
fn two_logging_hosts_share_a_capture_and_read_as_one() {
    let Some(hosts) = Hosts::new("log-two", "lan", &["--set", "forward.loss=every(50)"]) else { return };
    let key = hosts.path("key");
    printed(&["key", "new", &key]);
    let first = hosts.log("one", &["-1", "--key", &key]);
    let second = hosts.log("two", &["-1", "--key", &key, "-p", "5212"]);
    let capture = hosts.capture(&["server", "server:5212"], &["--key", &key]);
    hosts.send(20_000);
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    let (first, second) = (first.wait(), second.wait());
    let (first, second) = (only(&first), only(&second));
    for (part, there) in [(1, first), (2, second)] {
        let seen = count(there, "seen_packets");
        assert!((9_000..11_000).contains(&seen), "they take turns: {seen}");
        assert_eq!((&there["share"]["part"], &there["share"]["parts"]), (&part.into(), &2.into()));
    }
    assert_eq!(count(first, "seen_packets") + count(second, "seen_packets"), 20_000);
    let written = count(first, "written_packets") + count(second, "written_packets");
    let lost = count(first, "dropped_packets") + count(second, "dropped_packets");
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), count(result, "dropped_packets")), (written, lost), "{result:#}");
    assert!(lost > 0, "the path loses some");

    // In order of time, on the one interface that there was.
    let packets = hosts.packets(&["one", "two"]);
    assert_eq!(packets.len() as u64, written);
    assert!(packets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    let output = longhaul(&["analyze", "--json", &hosts.path("one"), &hosts.path("two")]);
    let analysed = object(&output.stdout);
    assert_eq!(analysed["result"]["totals"]["packets"].as_u64(), Some(written), "{analysed:#}");
    assert_eq!(analysed["result"]["flows"].as_array().unwrap().len(), 1, "{analysed:#}");
    let warned = |analysed: &Value| {
        analysed["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "parts_missing")
    };
    assert!(!warned(&analysed), "{analysed:#}");
    let half = object(&longhaul(&["analyze", "--json", &hosts.path("one")]).stdout);
    assert!(warned(&half), "{half:#}");
}

#[test]
fn who_has_another_key_or_none_is_refused() {
    let Some(hosts) = Hosts::new("log-key", "lan", &[]) else { return };
    let (key, other) = (hosts.path("key"), hosts.path("other"));
    printed(&["key", "new", &key]);
    printed(&["key", "new", &other]);
    let log = hosts.log("log", &["--key", &key]);
    let refused = |options: &[&str]| {
        let words = [&["capture", "-i", "lo", "--to", "server"][..], options].concat();
        hosts.try_start("client", &words).err().expect("it is refused")
    };
    let said = refused(&["--key", &other]);
    assert!(said.contains("logging host server: the keys of the two ends differ"), "{said}");
    let said = refused(&["--no-auth"]);
    assert!(said.contains("requires a key"), "{said}");
    assert_eq!(fs::read_dir(hosts.path("log")).unwrap().count(), 0, "nothing was written for them");

    let capture = hosts.capture(&["server"], &["--key", &key]);
    hosts.send(100);
    sleep(Duration::from_millis(300));
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 100);
    let log = log.finish();
    assert_eq!((count(only(&log), "written_packets"), &log["result"]["refused_connections"]), (100, &2.into()));
}

/// The capture goes on, with the other one.
#[test]
fn a_logging_host_that_dies_costs_no_more_than_what_it_had() {
    let Some(hosts) = Hosts::new("log-dies", "lan", &[]) else { return };
    let mut first = hosts.log("one", &[]);
    let second = hosts.log("two", &["-1", "-p", "5212"]);
    let capture = hosts.capture(&["server", "server:5212"], &[]);
    for round in 0..120 {
        hosts.send(100);
        sleep(Duration::from_millis(10));
        // Of what it got last it says nothing any more.
        if round == 80 {
            first.kill();
        }
    }
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!(count(result, "seen_packets"), 12_000, "{result:#}");
    let (dead, alive) = (&result["loggers"][0], &result["loggers"][1]);
    assert_eq!(dead["error"]["code"], "control_lost", "{dead:#}");
    assert!(here["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "logger_lost"), "{here:#}");
    // What it had said that it wrote, each half second, counts, and is there.
    let written = count(dead, "written_packets");
    assert!((1..=4_100).contains(&written), "{dead:#}");
    let kept = hosts.packets(&["one"]);
    assert!(kept.len() as u64 >= written, "{} of {written}", kept.len());
    assert!(hosts.convert("one", "cut.pcap")["result"]["was_cut"] == true);
    let second = second.wait();
    assert_eq!(only(&second)["written_packets"], alive["written_packets"]);
    assert!(count(alive, "written_packets") >= 6_000, "{alive:#}");
}

#[test]
fn a_capture_that_dies_leaves_a_readable_part() {
    let Some(hosts) = Hosts::new("log-gone", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(5_000);
    sleep(Duration::from_millis(800));
    let pid = capture.process();
    pid.signal(Signal::KILL).unwrap();
    let began = Instant::now();
    let log = log.wait();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let there = only(&log);
    assert_eq!((there["end"].as_str(), count(there, "written_packets")), (Some("vanished"), 5_000), "{there:#}");
    assert!(log["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "capture_vanished"), "{log:#}");
    let converted = hosts.convert("log", "t.pcap");
    assert_eq!((count(&converted["result"], "packets"), &converted["result"]["was_cut"]), (5_000, &true.into()));
}

/// Ctrl-C at the logging host: both ends know what was written, and the capture goes on until its own.
#[test]
fn a_logging_host_that_is_stopped_closes_its_files() {
    let Some(hosts) = Hosts::new("log-stop", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(3_000);
    sleep(Duration::from_millis(600));
    let log = log.finish();
    assert_eq!((&only(&log)["end"], count(only(&log), "written_packets")), (&"stopped".into(), 3_000));
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["was_cut"], false);
    sleep(Duration::from_millis(300));
    hosts.send(1_000);
    sleep(Duration::from_millis(300));
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), count(result, "dropped_packets")), (3_000, 1_000), "{result:#}");
    assert_eq!(result["loggers"][0]["error"]["code"], "stopped");
}

#[test]
fn garbage_and_strangers_do_not_matter_and_ipv6_does_as_well() {
    let Some(hosts) = Hosts::new("log-garbage", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
    let lab =
        list["result"]["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == hosts.lab.name.as_str()).unwrap();
    let server = lab["hosts"].as_array().unwrap().iter().find(|host| host["name"] == "server").unwrap();
    let address = server["ipv6"].as_str().unwrap_or_else(|| panic!("{server:#}"));
    let address = address.split('/').next().unwrap().to_owned();
    let to = format!("[{address}]:5211");
    // One that says nothing, one that speaks another language, and one that tests.
    let strangers = hosts.client.enter(|| {
        let silent = TcpStream::connect((address.as_str(), 5211)).unwrap();
        let mut other = TcpStream::connect((address.as_str(), 5211)).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: log\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        other.read_to_end(&mut answer).unwrap();
        assert!(answer.len() <= 16, "no more than it sent, and less: {answer:?}");
        silent
    });
    let strangers = strangers.unwrap();
    let test = longhaul(&[
        "lab",
        "exec",
        "--name",
        &hosts.lab.name,
        "client",
        "--",
        LONGHAUL,
        "udp",
        "server",
        "-p",
        "5211",
        "-t",
        "1",
    ]);
    assert!(String::from_utf8_lossy(&test.stderr).contains("this is a logging host"), "{test:?}");

    let capture = hosts.capture(&[&to], &[]);
    let sockets = [&hosts.client, &hosts.server].map(|host| host.enter(|| UdpSocket::bind("[::]:0").unwrap()).unwrap());
    for number in 0..2_000_usize {
        // Some as long as one of ours, with its first bytes.
        let garbage = [&b"LHD1"[..], &vec![number as u8; number]].concat();
        let _ = sockets[number % 2].send_to(&garbage[..garbage.len().min(1_400)], (address.as_str(), 5211));
        if number % 20 == 0 {
            hosts.send(50);
        }
    }
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    drop(strangers);
    let log = log.finish();
    let there = only(&log);
    assert_eq!((count(there, "seen_packets"), count(there, "written_packets")), (5_000, 5_000), "{there:#}");
    assert_eq!(count(there, "refused_datagrams"), 2_000, "{there:#}");
    assert_eq!((&there["wrong_datagrams"], &there["stale_datagrams"]), (&0.into(), &0.into()));
    assert_eq!(count(&here["result"], "written_packets"), 5_000);
}
