//! `longhaul capture --to` and `longhaul log`: heads over a network to logging hosts, between hosts of their own.

mod common;

use std::fs;
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{TestLab, longhaul, object, printed};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
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
        Some(Self { lab, client, server, folder })
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
        let sockets = self
            .client
            .enter(|| (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind(("127.0.0.1", PORT)).unwrap()));
        let (near, far) = sockets.unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        for number in 0..count {
            assert_eq!(near.send(&number.to_be_bytes()).unwrap(), 8);
            // Not to overrun the ring: it is the link that is tried here.
            if number % 500 == 499 {
                sleep(Duration::from_millis(1));
            }
        }
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
