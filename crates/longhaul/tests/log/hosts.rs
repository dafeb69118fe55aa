//! Two hosts of a lab, one of which captures while the other logs, and what both say.

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use longhaul_captures::CaptureReader;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program;
use serde_json::Value;

use crate::common::{TestLab, longhaul, object};

pub(crate) const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A port that nobody else uses: what is captured goes there, over the capturing host's loopback.
pub(crate) const PORT: u16 = 7070;
pub(crate) const PORT_TEXT: &str = "7070";

/// Numbered datagrams over a host's loopback: what is captured.
pub(crate) struct Traffic {
    /// Made once: a program that another test starts may hold a socket for a moment after it was closed here.
    near: UdpSocket,
    _far: UdpSocket,
}

impl Traffic {
    pub(crate) fn of(host: &NetNamespace) -> Self {
        let sockets =
            host.enter(|| (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind(("127.0.0.1", PORT)).unwrap()));
        let (near, far) = sockets.unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        Self { near, _far: far }
    }

    /// Sends `count` of them, numbered from 0 on.
    pub(crate) fn send(&self, count: u64) {
        self.send_from(0, count);
    }

    pub(crate) fn send_from(&self, first: u64, count: u64) {
        for number in 0..count {
            assert_eq!(self.near.send(&(first + number).to_be_bytes()).unwrap(), 8);
            // Not to overrun the ring: it is the link that is tried here.
            if number % 500 == 499 {
                sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A folder that goes with this value, and what captures in it hold.
pub(crate) struct Captures(pub(crate) PathBuf);

/// A lab of two hosts: the client captures, the server logs.
pub(crate) struct Hosts {
    pub(crate) lab: TestLab,
    pub(crate) client: NetNamespace,
    pub(crate) server: NetNamespace,
    pub(crate) captures: Captures,
    traffic: Traffic,
}

impl Hosts {
    pub(crate) fn new(name: &str, path: &str, options: &[&str]) -> Option<Self> {
        let lab = TestLab::up_with(name, path, options)?;
        let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
        let labs = list["result"]["labs"].as_array().unwrap();
        let found = labs.iter().find(|entry| entry["name"] == lab.name.as_str()).unwrap();
        let of = |host: &str| {
            let hosts = found["hosts"].as_array().unwrap();
            let host = hosts.iter().find(|entry| entry["name"] == host).unwrap_or_else(|| panic!("{found:#}"));
            NetNamespace::open(Path::new(host["namespace"].as_str().unwrap())).unwrap()
        };
        let (client, server) = (of("client"), of("server"));
        let traffic = Traffic::of(&client);
        Some(Self { lab, client, server, captures: Captures::new(name), traffic })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.captures.path(name)
    }

    /// A program on a host.
    pub(crate) fn on(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(LONGHAUL);
        command.args(["lab", "exec", "--name", &self.lab.name, host, "--"]).args(words);
        command
    }

    /// Starts `longhaul` on a host, and waits until it says that it goes on until Ctrl-C.
    pub(crate) fn start(&self, host: &str, arguments: &[&str]) -> Program {
        Program::start(&mut self.on(host, &[&[LONGHAUL], arguments].concat()))
    }

    pub(crate) fn log(&self, folder: &str, more: &[&str]) -> Program {
        self.start("server", &[&["log", "-J", "-o", &self.path(folder)][..], more].concat())
    }

    pub(crate) fn capture(&self, to: &[&str], more: &[&str]) -> Program {
        self.start("client", &Self::capture_words(to, more))
    }

    pub(crate) fn capture_words<'a>(to: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        let to: Vec<&str> = to.iter().flat_map(|to| ["--to", to]).collect();
        [&["capture", "-J", "lo", "--port", PORT_TEXT][..], &to, more].concat()
    }

    /// Sends `count` numbered datagrams over the client's loopback.
    pub(crate) fn send(&self, count: u64) {
        self.traffic.send(count);
    }

    pub(crate) fn send_from(&self, first: u64, count: u64) {
        self.traffic.send_from(first, count);
    }

    pub(crate) fn packets(&self, from: &[&str]) -> Vec<(u64, i64)> {
        self.captures.packets(from)
    }

    pub(crate) fn convert(&self, from: &str, to: &str) -> Value {
        self.captures.convert(from, to)
    }
}

impl Captures {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Folders that a logging host made in `name`.
    pub(crate) fn folders(&self, name: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(self.path(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    }

    /// Numbers and stamps of the datagrams in captures, by `convert`.
    pub(crate) fn packets(&self, from: &[&str]) -> Vec<(u64, i64)> {
        let to = self.path("packets.pcapng");
        let from: Vec<String> = from.iter().map(|name| self.path(name)).collect();
        let from: Vec<&str> = from.iter().map(String::as_str).collect();
        let output = longhaul(&[&["convert", "--force"][..], &from, &[&to]].concat());
        assert!(output.status.success(), "{output:?}");
        let mut reader = CaptureReader::new(fs::File::open(to).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            // Ethernet, IPv4, UDP.
            packets.push((u64::from_be_bytes(record.snippet[42..50].try_into().unwrap()), record.at_ns));
        }
        packets
    }

    pub(crate) fn convert(&self, from: &str, to: &str) -> Value {
        let output = longhaul(&["convert", "--force", "-J", &self.path(from), &self.path(to)]);
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A capture or a logging host that runs.
pub(crate) struct Program(program::Program);

impl Program {
    /// Starts it, and waits until it says that it goes on until Ctrl-C.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap_or_else(|said| panic!("it ended: {said}"))
    }

    /// The same; what it said where it ended instead.
    pub(crate) fn try_start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program::Program(command.spawn().unwrap());
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
        Ok(Self(program))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal).unwrap();
    }

    pub(crate) fn process(&self) -> Process {
        Process::open(self.0.0.id()).unwrap().expect("it runs")
    }

    /// Waits for its end, and gives its result.
    pub(crate) fn wait(mut self) -> Value {
        let mut text = Vec::new();
        self.0.0.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        self.0.0.wait().unwrap();
        object(&text)
    }

    /// Ends it as Ctrl-C does, and gives its result.
    pub(crate) fn finish(self) -> Value {
        self.signal(Signal::INT);
        self.wait()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }
}

pub(crate) fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value:#}"))
}

/// The only capture of a logging host's result, whose account is whole.
pub(crate) fn only(log: &Value) -> &Value {
    let captures = log["result"]["captures"].as_array().unwrap();
    assert_eq!(captures.len(), 1, "{log:#}");
    assert_balanced(&captures[0]);
    &captures[0]
}

/// Seen is written and dropped, and each drop is in a gap.
pub(crate) fn assert_balanced(capture: &Value) {
    let (seen, written, dropped) =
        (count(capture, "seen_packets"), count(capture, "written_packets"), count(capture, "dropped_packets"));
    assert_eq!(seen, written + dropped, "{capture:#}");
    assert_eq!(capture["unaccounted_packets"], 0, "{capture:#}");
    let gaps = capture["gaps"].as_array().unwrap();
    assert_eq!(gaps.iter().map(|gap| count(gap, "packets")).sum::<u64>(), dropped, "{capture:#}");
}

/// How many packets were dropped at a place.
pub(crate) fn dropped_at(capture: &Value, place: &str) -> u64 {
    count(&capture["dropped_by_place"], place)
}

/// Whether `at_ns` lies in a gap.
pub(crate) fn is_in_gap(capture: &Value, at_ns: i64) -> bool {
    let bounds = |gap: &Value| gap["from_ns"].as_i64().unwrap()..=gap["to_ns"].as_i64().unwrap();
    capture["gaps"].as_array().unwrap().iter().any(|gap| bounds(gap).contains(&at_ns))
}

pub(crate) fn has_caveat(result: &Value, code: &str) -> bool {
    result["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == code)
}
