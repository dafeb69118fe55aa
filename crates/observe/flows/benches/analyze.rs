//! How fast captures are analysed, beside tcptrace and tshark in the same run, on one core each.
//!
//! `cargo bench -p longhaul-flows --bench analyze`. The capture is made once, into `target/bench`: 200 connections that take turns,
//! data with acknowledgments of every second segment, one segment in 2,000 lost behind the capture point and retransmitted.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use longhaul_captures::header_log::{About, HeaderLogReader, HeaderLogWriter, WriterOptions};
use longhaul_captures::pcap::Writer;
use longhaul_captures::{CaptureReader, LinkType, Packet, Record, dissect, dissect_into};
use longhaul_flows::{FlowOptions, Flows};

const PACKETS: usize = 4_000_000;
/// tshark is some fifty times slower, so it gets a part.
const TSHARK_PACKETS: usize = 200_000;
const CONNECTIONS: usize = 200;
const SEGMENT: u32 = 1_448;
const HEADERS: usize = 14 + 20 + 32;

/// What is to be reached: packets a second from a header log, and the ratios to the others.
const FROM_HEADER_LOG: f64 = 5e6;
const BESIDE_TCPTRACE: f64 = 1.0;
const BESIDE_TSHARK: f64 = 40.0;

#[derive(Clone, Copy, Default)]
struct Connection {
    sequence: u32,
    acknowledged: u32,
    id: [u16; 2],
    segments: u32,
}

/// A snippet of 66 bytes: Ethernet, IPv4, TCP with time stamps.
fn snippet(number: usize, forward: bool, sequence: u32, ack: u32, id: u16, stamp: u32, payload: u32) -> [u8; HEADERS] {
    let mut snippet = [0; HEADERS];
    snippet[12] = 8;
    snippet[14] = 0x45;
    snippet[16..18].copy_from_slice(&((52 + payload) as u16).to_be_bytes());
    snippet[18..20].copy_from_slice(&id.to_be_bytes());
    snippet[20] = 0x40;
    (snippet[22], snippet[23]) = (64, 6);
    let (client, server) = ([10, 0, (number >> 8) as u8, number as u8], [10, 1, 0, 1]);
    let ports = [40_000_u16 + number as u16, 5_201];
    let (src, dst, sport, dport) =
        if forward { (client, server, ports[0], ports[1]) } else { (server, client, ports[1], ports[0]) };
    snippet[26..30].copy_from_slice(&src);
    snippet[30..34].copy_from_slice(&dst);
    snippet[34..36].copy_from_slice(&sport.to_be_bytes());
    snippet[36..38].copy_from_slice(&dport.to_be_bytes());
    snippet[38..42].copy_from_slice(&sequence.to_be_bytes());
    snippet[42..46].copy_from_slice(&ack.to_be_bytes());
    snippet[46..50].copy_from_slice(&[0x80, 0x10, 0x20, 0]);
    snippet[54..58].copy_from_slice(&[1, 1, 8, 10]);
    snippet[58..62].copy_from_slice(&stamp.to_be_bytes());
    snippet[62..66].copy_from_slice(&stamp.wrapping_sub(1).to_be_bytes());
    snippet
}

fn make(path: &Path, packets: usize) {
    if path.exists() {
        return;
    }
    let part = path.with_extension("part");
    let mut writer = Writer::new(BufWriter::new(File::create(&part).unwrap()), LinkType::Ethernet, 96).unwrap();
    let mut connections = vec![Connection::default(); CONNECTIONS];
    let mut written = 0;
    let mut at_ns = 1_700_000_000_000_000_000_i64;
    let mut write = |number, forward, sequence, ack, id, payload| {
        at_ns += 250;
        let snippet = snippet(number, forward, sequence, ack, id, (at_ns / 1_000_000) as u32, payload);
        let record = Record { at_ns, frame_len: HEADERS as u32 + payload, snippet: &snippet, ..Record::default() };
        writer.write(&record).unwrap();
    };
    while written < packets {
        // Ten segments of a connection, then the next one's.
        let number = written / 15 % CONNECTIONS;
        let own = &mut connections[number];
        for segment in 0..10 {
            own.id[0] = own.id[0].wrapping_add(1).max(1);
            own.segments += 1;
            let again = own.segments % 2_000 == 0;
            let sequence = if again { own.sequence.wrapping_sub(5 * SEGMENT) } else { own.sequence };
            write(number, true, sequence, 1, own.id[0], SEGMENT);
            if !again {
                own.sequence = own.sequence.wrapping_add(SEGMENT);
            }
            if segment % 2 == 1 {
                own.id[1] = own.id[1].wrapping_add(1).max(1);
                own.acknowledged = own.sequence;
                write(number, false, 1, own.acknowledged, own.id[1], 0);
            }
        }
        written += 15;
    }
    writer.into_inner().flush().unwrap();
    fs::rename(&part, path).unwrap();
}

fn analyse_file(path: &Path) -> u64 {
    let mut reader = CaptureReader::new(File::open(path).unwrap()).unwrap();
    let mut flows = Flows::new(FlowOptions::default(), Vec::new());
    let mut packet = Packet::default();
    while let Some(record) = reader.next().unwrap() {
        dissect_into(&record, &mut packet);
        flows.packet(&packet);
    }
    let (found, totals) = flows.finish();
    assert_eq!(found.len(), CONNECTIONS);
    totals.packets
}

/// Puts the packets of the pcap file into a header log.
fn convert(pcap: &Path, log: &Path) {
    let mut reader = CaptureReader::new(File::open(pcap).unwrap()).unwrap();
    let mut writer = HeaderLogWriter::new(File::create(log).unwrap(), WriterOptions::default()).unwrap();
    while let Some(record) = reader.next().unwrap() {
        writer.write(&dissect(&record), record.snippet).unwrap();
    }
    writer.finish(&About::default()).unwrap();
}

/// As `longhaul analyze` reads a header log.
fn analyse_log(path: &Path) -> u64 {
    let mut reader = HeaderLogReader::new(File::open(path).unwrap()).unwrap().without_snippets().without_ethernet();
    let mut flows = Flows::new(FlowOptions::default(), Vec::new());
    let mut batch = Vec::new();
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|packet| flows.packet(packet));
    }
    let (found, totals) = flows.finish();
    assert_eq!(found.len(), CONNECTIONS);
    totals.packets
}

/// The median of five, packets a second.
fn median(mut run: impl FnMut() -> u64) -> f64 {
    let mut rates = [(); 5].map(|()| {
        let began = Instant::now();
        let packets = run();
        packets as f64 / began.elapsed().as_secs_f64()
    });
    rates.sort_by(f64::total_cmp);
    rates[2]
}

fn program(name: &str, arguments: &[&str], packets: usize) -> Option<f64> {
    let run = || Command::new(name).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if run().is_err() {
        println!("skipped: there is no {name}");
        return None;
    }
    Some(median(|| {
        assert!(run().unwrap().success(), "{name}");
        packets as u64
    }))
}

fn line(what: &str, rate: f64, target: Option<(f64, String)>) {
    let said = target.map_or(String::new(), |(met, target)| {
        format!("  target {target}: {}", if met >= 1.0 { "met" } else { "NOT MET" })
    });
    println!("{what:<40} {:8.3} M packets/s{said}", rate / 1e6);
}

fn main() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target/bench");
    fs::create_dir_all(&folder).unwrap();
    let (large, small) = (folder.join("analyze.pcap"), folder.join("analyze-small.pcap"));
    make(&large, PACKETS);
    make(&small, TSHARK_PACKETS);
    let log = folder.join("analyze.parquet");
    convert(&large, &log);
    let from_log = median(|| analyse_log(&log));
    let from_file = median(|| analyse_file(&large));
    let mut packets: Vec<Packet> = Vec::with_capacity(PACKETS / 4);
    let mut reader = CaptureReader::new(File::open(&large).unwrap()).unwrap();
    while let Some(record) = reader.next().unwrap().filter(|_| packets.len() < PACKETS / 4) {
        packets.push(dissect(&record));
    }
    let decoded = median(|| {
        let mut flows = Flows::new(FlowOptions::default(), Vec::new());
        packets.iter().for_each(|packet| flows.packet(black_box(packet)));
        flows.finish().1.packets
    });
    drop(packets);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let tcptrace = program("tcptrace", &["-l", "-r", "-n", &text(&large)], PACKETS);
    let tshark = program("tshark", &["-r", &text(&small), "-q", "-z", "conv,tcp"], TSHARK_PACKETS);
    line("longhaul, from decoded packets", decoded, None);
    line("longhaul, from a header log", from_log, Some((from_log / FROM_HEADER_LOG, "5 M packets/s".into())));
    let beside = |other: Option<f64>, times: f64, name: &str| {
        other.map(|rate| (from_file / (rate * times), format!("{times} x {name}, {:.2} seen", from_file / rate)))
    };
    line("longhaul, from pcap", from_file, beside(tcptrace, BESIDE_TCPTRACE, "tcptrace"));
    line("longhaul, from pcap", from_file, beside(tshark, BESIDE_TSHARK, "tshark"));
    for (name, rate) in [("tcptrace -l -r", tcptrace), ("tshark -z conv,tcp", tshark)] {
        if let Some(rate) = rate {
            line(name, rate, None);
        }
    }
}
