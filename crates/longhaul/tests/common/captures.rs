//! Captures of lab traffic, and captures made of others.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_captures::pcap::Writer;
use longhaul_captures::{CaptureReader, LinkType, Record};
use longhaul_testing::waiting::until;
use serde_json::Value;

use super::{TestLab, object, printed};

pub(crate) fn missing(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let missing = !found.is_ok_and(|status| status.success());
    if missing {
        longhaul_testing::no_judge!("there is no {program}");
    }
    missing
}

/// A folder that goes with this value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program on a host.
pub(crate) fn on(lab: &TestLab, host: &str, command: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    program.args(["lab", "exec", "--name", &lab.name, host, "--"]).args(command);
    program
}

/// tcpdump on a host, both directions, 96 bytes of each packet.
pub(crate) struct Capture {
    child: Child,
    file: String,
    /// What it says on standard error.
    said: String,
}

impl Capture {
    pub(crate) fn start(lab: &TestLab, host: &str, folder: &Folder) -> Self {
        Self::start_with(lab, host, folder, &["--immediate-mode"])
    }

    /// Where tcpdump is not woken for each packet, which delays that by microseconds.
    pub(crate) fn start_asleep(lab: &TestLab, host: &str, folder: &Folder) -> Self {
        Self::start_with(lab, host, folder, &[])
    }

    fn start_with(lab: &TestLab, host: &str, folder: &Folder, wake: &[&str]) -> Self {
        let (file, said) = (folder.file(&format!("{host}.pcap")), folder.file(&format!("{host}.said")));
        let options = ["tcpdump", "-i", "eth0", "-j", "host", "--time-stamp-precision=nano", "-s", "96", "-B", "65536"];
        let command = [&options[..], wake, &["-Z", "root", "-U", "-w", &file, "ip"]].concat();
        let stderr = fs::File::create(&said).unwrap();
        let child = on(lab, host, &command).stderr(stderr).spawn().unwrap();
        until("tcpdump", || fs::read_to_string(&said).unwrap().contains("listening on"));
        Self { child, file, said }
    }

    /// Ends it when nothing has been written for a while, and when tcpdump counts no packet that it did not read: on a busy machine it may have waited
    /// for the CPU.
    pub(crate) fn finish(mut self) -> String {
        let mut last = (0, Instant::now());
        until("the capture to be written", || {
            let len = fs::metadata(&self.file).map_or(0, |metadata| metadata.len());
            if len != last.0 {
                last = (len, Instant::now());
            }
            last.1.elapsed() > Duration::from_millis(500)
        });
        let pid = self.child.id().to_string();
        let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        until("tcpdump to read what it has", || {
            signal("-USR1");
            // "tcpdump: 4 packets captured, 4 packets received by filter, 0 packets dropped by kernel".
            let said = fs::read_to_string(&self.said).unwrap();
            let counts: Vec<u64> = said
                .lines()
                .last()
                .map_or_else(Vec::new, |line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect());
            matches!(counts[..], [captured, received, dropped] if captured + dropped >= received)
        });
        signal("-INT");
        self.child.wait().unwrap();
        self.file.clone()
    }
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    object(printed(arguments).as_bytes())
}

/// A number of all flows in both directions.
pub(crate) fn total(analysed: &Value, of: &str) -> u64 {
    let flows = analysed["result"]["flows"].as_array().unwrap().iter();
    flows.flat_map(|flow| [&flow["forward"], &flow["backward"]]).map(|way| way["tcp"][of].as_u64().unwrap()).sum()
}

/// Writes `from` anew into `to`, after `change` of each packet's time and snippet.
pub(crate) fn rewrite(from: &str, to: &str, mut change: impl FnMut(&mut i64, &mut [u8])) {
    let mut reader = CaptureReader::new(File::open(from).unwrap()).unwrap();
    let mut writer = Writer::new(BufWriter::new(File::create(to).unwrap()), LinkType::Ethernet, 96).unwrap();
    while let Some(record) = reader.next().unwrap() {
        let (mut at_ns, mut snippet) = (record.at_ns, record.snippet.to_vec());
        change(&mut at_ns, &mut snippet);
        writer.write(&Record { at_ns, snippet: &snippet, ..record }).unwrap();
    }
    writer.into_inner().flush().unwrap();
}

/// What tcptrace says of each connection of a file.
pub(crate) struct Tcptrace {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Tcptrace {
    /// `None` where it is not installed, which is printed.
    pub(crate) fn of(file: &str) -> Option<Self> {
        if missing("tcptrace") {
            return None;
        }
        let output = Command::new("tcptrace").args(["-l", "-n", "--csv", file]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let of_table = text.lines().skip_while(|line| !line.contains("total_packets_a2b"));
        let mut rows = of_table.map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
        let names = rows.next().expect("a table");
        Some(Self { names, rows: rows.filter(|row| row.len() > 50).collect() })
    }

    pub(crate) fn connections(&self) -> usize {
        self.rows.len()
    }

    /// A count of all connections in both directions.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let is = |column: &String| column.strip_suffix("_a2b").or(column.strip_suffix("_b2a")) == Some(name);
        let columns: Vec<usize> = (0..self.names.len()).filter(|at| is(&self.names[*at])).collect();
        assert_eq!(columns.len(), 2, "{name}: {:?}", self.names);
        self.rows.iter().flat_map(|row| columns.iter().map(|at| row[*at].parse::<u64>().unwrap())).sum()
    }
}

/// Packets of a file that pass Wireshark's display filter.
pub(crate) fn tshark_count(file: &str, filter: &str) -> u64 {
    let arguments = ["-r", file, "-Y", filter, "-T", "fields", "-e", "frame.number"];
    let output = Command::new("tshark").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count() as u64
}

/// The address of the lab's server.
pub(crate) fn server_address(lab: &TestLab) -> String {
    let output = on(lab, "client", &["getent", "ahostsv4", "server"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Sends numbered probes to the lab's server: `count` of them, in groups of `group`, one each `gap_ms` milliseconds.
pub(crate) fn probes(lab: &TestLab, count: u32, group: u32, gap_ms: f64) -> Command {
    const SENDER: &str = "
import socket, struct, sys, time
address, count, group, gap_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at = time.monotonic()
for n in range(count):
    s.sendto(struct.pack('>IHIQ', 77, 0, n, time.time_ns()) + bytes(100), (address, 9000))
    if n % group == group - 1:
        at += gap_ms / 1000
        time.sleep(max(0, at - time.monotonic()))
";
    let numbers = [count.to_string(), group.to_string(), gap_ms.to_string()];
    let [count, group, gap_ms] = numbers.each_ref().map(String::as_str);
    on(lab, "client", &["python3", "-c", SENDER, &server_address(lab), count, group, gap_ms])
}
