//! `longhaul analyze` reads a capture of any length, with a million open connections, out of a pipe in bounded memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::captures::Folder;
use crate::common::{longhaul, object};
use longhaul_captures::pcap::Writer;
use longhaul_captures::{LinkType, Record};
use serde_json::Value;

const SEGMENT: u32 = 1_448;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Snippets of connections that are told apart by the client's address and port.
struct Snippets<W: Write> {
    writer: Writer<W>,
    at_ns: i64,
}

impl<W: Write> Snippets<W> {
    fn new(stream: W) -> Self {
        Self { writer: Writer::new(stream, LinkType::Ethernet, 96).unwrap(), at_ns: 1_700_000_000_000_000_000 }
    }

    fn packet(&mut self, connection: u32, forward: bool, flags: u8, sequence: u32, ack: u32, payload: u32) {
        self.at_ns += 250;
        let mut snippet = [0; 54];
        snippet[12] = 8;
        snippet[14] = 0x45;
        snippet[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        (snippet[22], snippet[23]) = (64, 6);
        let [_, high, low, port] = connection.to_be_bytes();
        let (client, server) = ([10, high, low, 1], [10, 255, 0, 1]);
        let ports = [10_000 + u16::from(port), 5_201];
        let ends = if forward { (client, server, ports) } else { (server, client, [ports[1], ports[0]]) };
        snippet[26..30].copy_from_slice(&ends.0);
        snippet[30..34].copy_from_slice(&ends.1);
        snippet[34..36].copy_from_slice(&ends.2[0].to_be_bytes());
        snippet[36..38].copy_from_slice(&ends.2[1].to_be_bytes());
        snippet[38..42].copy_from_slice(&sequence.to_be_bytes());
        snippet[42..46].copy_from_slice(&ack.to_be_bytes());
        snippet[46..50].copy_from_slice(&[0x50, flags, 0x20, 0]);
        let record = Record { at_ns: self.at_ns, frame_len: 54 + payload, snippet: &snippet, ..Record::default() };
        self.writer.write(&record).unwrap();
    }

    /// Five packets, and it stays open.
    fn open(&mut self, connection: u32) {
        self.packet(connection, true, SYN, 0, 0, 0);
        self.packet(connection, false, SYN | ACK, 0, 1, 0);
        self.packet(connection, true, ACK, 1, 1, 0);
        self.packet(connection, true, ACK, 1, 1, SEGMENT);
        self.packet(connection, false, ACK, 1, 1 + SEGMENT, 0);
    }

    /// Three packets of one that is open.
    fn go_on(&mut self, connection: u32, round: u32) {
        let sequence = |segment: u32| 1 + SEGMENT.wrapping_mul(1 + round * 2 + segment);
        self.packet(connection, true, ACK, sequence(0), 1, SEGMENT);
        self.packet(connection, true, ACK, sequence(1), 1, SEGMENT);
        self.packet(connection, false, ACK, 1, sequence(2), 0);
    }
}

/// Analyses what `write` sends through a pipe: the result, and the most memory that was used.
fn through_a_pipe(folder: &Folder, write: impl FnOnce(&mut Snippets<BufWriter<File>>) + Send) -> (Value, u64) {
    let pipe = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let mut child = program.args(["analyze", "--json", "--top", "2", &pipe]).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let most_bytes = thread::scope(|scope| {
        scope.spawn(|| {
            let mut snippets = Snippets::new(BufWriter::with_capacity(1 << 16, File::create(&pipe).unwrap()));
            write(&mut snippets);
            snippets.writer.into_inner().flush().unwrap();
        });
        let mut most_kb = 0;
        while child.try_wait().unwrap().is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            most_kb = most_kb.max(now.unwrap_or(0));
            thread::sleep(Duration::from_millis(5));
        }
        most_kb << 10
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    fs::remove_file(&pipe).unwrap();
    (object(&output.stdout), most_bytes)
}

#[test]
fn a_million_open_connections_take_bounded_memory() {
    let folder = Folder::new("memory");
    let connections = 1_000_000;
    let (found, most_bytes) =
        through_a_pipe(&folder, |snippets| (0..connections).for_each(|number| snippets.open(number)));
    println!(
        "{connections} open connections: {} MB, {} bytes each",
        most_bytes >> 20,
        most_bytes / u64::from(connections)
    );
    assert_eq!(found["result"]["flows_total"], connections);
    assert_eq!(found["result"]["totals"]["evicted_flows"], 0);
    assert!(most_bytes < 2_600_000_000, "{most_bytes}");
}

/// As many packets as LONGHAUL_STREAM_PACKETS says, else ten million.
#[test]
fn a_capture_of_any_length_takes_no_more() {
    let packets: u32 = std::env::var("LONGHAUL_STREAM_PACKETS").map_or(10_000_000, |text| text.parse().unwrap());
    let folder = Folder::new("stream");
    let connections = 1_000;
    let began = std::time::Instant::now();
    let (found, most_bytes) = through_a_pipe(&folder, |snippets| {
        (0..connections).for_each(|number| snippets.open(number));
        for round in 0..(packets - 5 * connections) / (3 * connections) {
            (0..connections).for_each(|number| snippets.go_on(number, round));
        }
    });
    let read = found["result"]["totals"]["packets"].as_u64().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    println!("{read} packets: {} MB, {:.1} M packets/s out of a pipe", most_bytes >> 20, read as f64 / seconds / 1e6);
    assert!(read > u64::from(packets) / 100 * 99);
    assert_eq!(found["result"]["flows_total"], connections);
    assert!(most_bytes < 64 << 20, "{most_bytes}");
}

#[test]
fn what_is_read_more_than_once_is_no_pipe() {
    let folder = Folder::new("pipes");
    let pipe = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [&["compare", "--json", &pipe, &pipe][..], &["analyze", "--json", "--html", "page.html", &pipe]] {
        let output = longhaul(arguments);
        let said = object(&output.stdout);
        assert_eq!((output.status.code(), said["error"]["code"].as_str()), (Some(1), Some("not_read")), "{said}");
    }
}
