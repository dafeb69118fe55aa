//! `longhaul compare` matches captures of any length in bounded memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::captures::Folder;
use crate::common::object;
use longhaul_captures::pcap::Writer;
use longhaul_captures::{LinkType, Record};
use serde_json::Value;

/// From one packet to the next.
const INTERVAL_NS: i64 = 1_000;
/// One in so many is lost.
const LOST: u32 = 10_007;
/// Probes that carry no more than their numbers.
const PAYLOAD: u32 = 18;

/// A capture of `packets` probes: those that pass `delay_ns` later but for what is lost.
fn write(path: &str, packets: u32, delay_ns: i64, loses: bool) {
    let file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut writer = Writer::new(file, LinkType::Ethernet, 96).unwrap();
    let mut snippet = [0; 60];
    snippet[12] = 8;
    snippet[14] = 0x45;
    snippet[16..18].copy_from_slice(&((28 + PAYLOAD) as u16).to_be_bytes());
    (snippet[22], snippet[23]) = (64, 17);
    snippet[26..30].copy_from_slice(&[10, 0, 0, 1]);
    snippet[30..34].copy_from_slice(&[10, 0, 0, 2]);
    snippet[34..36].copy_from_slice(&9_000_u16.to_be_bytes());
    snippet[36..38].copy_from_slice(&9_001_u16.to_be_bytes());
    snippet[38..40].copy_from_slice(&((8 + PAYLOAD) as u16).to_be_bytes());
    snippet[42..46].copy_from_slice(&77_u32.to_be_bytes());
    for number in (0..packets).filter(|number| !loses || number % LOST != 5) {
        snippet[48..52].copy_from_slice(&number.to_be_bytes());
        let at_ns = 1_700_000_000_000_000_000 + i64::from(number) * INTERVAL_NS + delay_ns;
        let record = Record { at_ns, frame_len: 60, snippet: &snippet, ..Record::default() };
        writer.write(&record).unwrap();
    }
    writer.into_inner().flush().unwrap();
}

/// The result, and the most memory that was used.
fn compare(folder: &Folder) -> (Value, u64) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    program.args(["compare", "--json", "--same-clock", &folder.file("a.pcap"), &folder.file("b.pcap")]);
    let mut child = program.stdout(Stdio::from(File::create(folder.file("result")).unwrap())).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most_kb = 0;
    let status_of = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most_kb = most_kb.max(now.unwrap_or(0));
        sleep(Duration::from_millis(5));
    };
    assert!(status_of.success());
    (object(&fs::read(folder.file("result")).unwrap()), most_kb << 10)
}

/// As many packets a side as LONGHAUL_COMPARE_PACKETS says, else three million. A delay of a second holds a million of either capture,
/// one of five more than there is room for.
#[test]
fn captures_of_any_length_take_bounded_memory() {
    let packets = std::env::var("LONGHAUL_COMPARE_PACKETS").map_or(3_000_000, |text| text.parse().unwrap());
    let folder = Folder::new("compare-memory");
    write(&folder.file("a.pcap"), packets, 0, false);
    for delay_ns in [20_000_000, 1_000_000_000, 5_000_000_000] {
        write(&folder.file("b.pcap"), packets, delay_ns, true);
        let began = Instant::now();
        let (found, most_bytes) = compare(&folder);
        let points = &found["result"]["points"];
        let forward = &points["directions"][0];
        let given_up = points["given_up_packets"].as_u64().unwrap();
        println!(
            "{packets} packets a side, {} ms apart: {} MB, {:.1} s; {} lost, {given_up} given up",
            delay_ns / 1_000_000,
            most_bytes >> 20,
            began.elapsed().as_secs_f64(),
            forward["lost_packets"]
        );
        assert!(most_bytes < 384 << 20, "{most_bytes}");
        let lost = packets / LOST + u32::from(packets % LOST > 5);
        let of = |name: &str| forward[name].as_u64().unwrap();
        if delay_ns < 2_000_000_000 {
            assert_eq!(
                (of("lost_packets"), of("reached_packets"), given_up),
                (lost.into(), u64::from(packets - lost), 0)
            );
            assert_eq!(points["directions"][0]["delay"]["min_ns"], delay_ns as f64);
        } else {
            // Nobody says of what was given up that the path lost it.
            assert!(given_up > 500_000 && of("lost_packets") <= lost.into(), "{given_up} {forward:#}");
        }
    }
}
