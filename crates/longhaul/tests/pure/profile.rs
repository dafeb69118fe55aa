//! `longhaul profile` of a log of probes whose truth is known.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use longhaul_captures::pcapng::{Interface, Writer};
use longhaul_captures::{LinkType, Record};
use longhaul_rtt::probe_log::{About, ProbeRow, SCHEMA, write_segment};
use longhaul_rtt::{ChangedRoute, OwnRoute, PathChange};

use crate::common::captures::{Folder, json};
use crate::common::{longhaul, root};

const BEGAN_NS: i64 = 1_700_000_000_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// What `longhaul profile` prints in the memory that SECURITY.md names.
fn in_little_memory(arguments: &[&str]) -> String {
    let mut limited = Command::new("prlimit");
    limited.arg("--as=536870912").arg(env!("CARGO_BIN_EXE_longhaul")).arg("profile").args(arguments);
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A minute of probes each 10 ms, whose route changes after 20 s, which takes 3 ms longer, and whose route back changes after 40 s, which does not.
fn write_log(folder: &Path) {
    let row = |sequence: u64| {
        let jitter = (sequence * 7_919 % 97) as i64 * 2_000;
        let longer = if sequence >= 2_000 { 3_000_000 } else { 0 };
        ProbeRow {
            sequence,
            payload_bytes: 64,
            sent_ns: BEGAN_NS + sequence as i64 * 10_000_000,
            rtt_ns: Some(20_000_000 + jitter + longer),
            ..ProbeRow::default()
        }
    };
    let route = |interface: &str| OwnRoute { interface: interface.into(), ..OwnRoute::default() };
    let own = ChangedRoute::OwnRoute { from: route("eth0"), to: route("eth1") };
    let back = ChangedRoute::HopsBack { from_ttl: 60, to_ttl: 59 };
    let change =
        |at_s: i64, within_ns, route| PathChange { at_ns: BEGAN_NS + at_s * SECOND_NS, within_ns, route, lost: 0 };
    let about = About { schema: SCHEMA.into(), host: "far".into(), interval_ns: 10_000_000, ..About::default() };
    // As it is written while probes run: a change is in the segment that ends after it.
    let segments = [(0..3_000, vec![change(20, 5_000_000, own)]), (3_000..6_000, vec![change(40, 0, back)])];
    for (number, (sequences, path_changes)) in segments.into_iter().enumerate() {
        let rows: Vec<ProbeRow> = sequences.map(row).collect();
        let file = File::create(folder.join(format!("probes-{number:05}.parquet"))).unwrap();
        write_segment(file, &About { path_changes, ..about.clone() }, &rows).unwrap();
    }
}

#[test]
fn a_route_change_is_told_and_its_step_is_in_the_path() {
    let folder = Folder::new("profile-routes");
    let log = folder.file("log");
    std::fs::create_dir(&log).unwrap();
    write_log(log.as_ref());
    // Nobody reads it: it may be nearly all holes.
    File::create(Path::new(&log).join("disk.img")).unwrap().set_len(1 << 30).unwrap();
    let copy = folder.file("copy.toml");
    let made = longhaul(&["profile", &log, "-o", &copy]);
    let (said, file) = (String::from_utf8(made.stdout).unwrap(), std::fs::read_to_string(&copy).unwrap());
    assert!(said.contains("route       changed at 20.0 s, this host's route: eth0 → eth1: round trip +3.0"), "{said}");
    assert!(said.contains("route       changed at 40.0 s, answers came with TTL 60 → 59"), "{said}");
    assert!(said.contains("the route changed once without a step of the round trip that shows"), "{said}");
    assert!(file.contains("delay-steps = [{ at = \"20") || file.contains("delay-steps = [{ at = \"19.9"), "{file}");
    assert!(file.contains("# The route changed at 20.0 s, this host's route: eth0 → eth1: round trip +3.0"), "{file}");
    let result = &json(&["profile", &log, "--json"])["result"];
    let changes = result["route_changes"].as_array().unwrap();
    assert_eq!((changes.len(), changes[1]["rtt_ns"].is_null()), (2, true), "{changes:?}");
    assert!((changes[0]["rtt_ns"].as_f64().unwrap() - 3e6).abs() < 1e4, "{changes:?}");
}

/// Tables of others, or of a path of before, are not lost, whichever of the files is there.
#[test]
fn what_is_in_the_folder_of_netem_is_replaced_by_force_alone() {
    let folder = Folder::new("profile-netem");
    let (log, netem) = (folder.file("log"), folder.file("netem"));
    std::fs::create_dir(&log).unwrap();
    write_log(log.as_ref());
    for name in ["forward.dist", "backward.dist", "netem.sh"] {
        std::fs::create_dir(&netem).unwrap();
        let file = format!("{netem}/{name}");
        std::fs::write(&file, "mine").unwrap();
        let refused = longhaul(&["profile", &log, "--netem", &netem]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{name}: the file is there already")) && said.contains("--force"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        std::fs::remove_file(file).unwrap();
        // It was alone there.
        std::fs::remove_dir(&netem).unwrap();
    }
    std::fs::create_dir(&netem).unwrap();
    let script = format!("{netem}/netem.sh");
    std::fs::write(&script, "mine").unwrap();
    let forced = longhaul(&["profile", &log, "--netem", &netem, "--force"]);
    assert!(forced.status.success(), "{forced:?}");
    assert!(std::fs::read_to_string(&script).unwrap().starts_with("#!/bin/sh"));
}

/// A header log that deceives the library about its lengths, as samples of `longhaul tcp -o`.
#[test]
fn a_folder_of_tcp_with_hostile_samples_is_refused() {
    let folder = Folder::new("profile-hostile");
    let mut tried = 0;
    for seed in std::fs::read_dir(root().join("fuzz/corpus/analyze")).unwrap() {
        let seed = seed.unwrap().path();
        if std::fs::read(&seed).unwrap().starts_with(b"PAR1") {
            std::fs::copy(&seed, folder.file("samples.parquet")).unwrap();
            let refused = longhaul(&["profile", &folder.file("")]);
            let said = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(1), "{}: {said}", seed.display());
            assert!(said.contains("samples.parquet: "), "{}: {said}", seed.display());
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// Probes that are like each other take a bit of a log.
#[test]
fn a_log_of_very_many_probes_takes_little_memory() {
    let folder = Folder::new("profile-many");
    let log = folder.file("log");
    std::fs::create_dir(&log).unwrap();
    let about = About { schema: SCHEMA.into(), host: "far".into(), interval_ns: 1_000_000, ..About::default() };
    let rows = |first: u64| -> Vec<ProbeRow> {
        let row = |sequence: u64| ProbeRow {
            sequence,
            payload_bytes: 64,
            sent_ns: BEGAN_NS + sequence as i64 * 1_000_000,
            rtt_ns: Some(20_000_000),
            ..ProbeRow::default()
        };
        (first..first + 250_000).map(row).collect()
    };
    for number in 0..10 {
        let file = File::create(Path::new(&log).join(format!("probes-{number:05}.parquet"))).unwrap();
        write_segment(file, &about, &rows(number * 250_000)).unwrap();
    }
    let said = in_little_memory(&[&log, "-o", &folder.file("copy.toml")]);
    assert!(said.contains("what came later: the first 1"), "{said}");
}

/// A packet of a capture can stand for 1,819 that the sender's host had cut: 2 million in a file of 150 KB. One in 20 does not arrive.
#[test]
fn captures_of_very_many_packets_take_little_memory() {
    const SEGMENTS: u16 = 1_819;
    const SEGMENT_BYTES: u16 = 36;
    let folder = Folder::new("profile-captures");
    let write = |name: &str, is_far: bool| {
        let file = folder.file(name);
        let mut interface = Interface::default();
        interface.link = LinkType::RawIp;
        let mut writer = Writer::new(File::create(&file).unwrap(), "test", &[interface]).unwrap();
        // 5 ms in each direction.
        let at = |number: u32, backward: bool| {
            let passed = if is_far { 5 } else { 10 * i64::from(backward) };
            BEGAN_NS + i64::from(backward) * 500_000 + (i64::from(number) + passed) * 1_000_000
        };
        let both = (0..650).flat_map(|number| [(at(number, false), number, false), (at(number, true), number, true)]);
        let mut both: Vec<(i64, u32, bool)> = both.collect();
        both.sort_unstable();
        both.retain(|(_, number, backward)| !is_far || *backward || number % 20 != 7);
        for (at_ns, number, backward) in both {
            let payload = SEGMENTS * SEGMENT_BYTES;
            let mut snippet = vec![0x45, 0];
            snippet.extend((40 + payload).to_be_bytes());
            snippet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            let (from, to) = if backward { (2, 1) } else { (1, 2) };
            snippet.extend([10, 0, 0, from, 10, 0, 0, to, 4, from, 4, to]);
            snippet.extend(number.wrapping_mul(payload.into()).to_be_bytes());
            snippet.extend([0, 0, 0, 1, 0x50, 0x10, 0, 9, 0, 0, 0, 0]);
            let record = Record {
                at_ns,
                link: LinkType::RawIp,
                frame_len: 40 + u32::from(payload),
                gso_segs: SEGMENTS,
                gso_size: SEGMENT_BYTES,
                snippet: &snippet,
                ..Record::default()
            };
            writer.write(&record, "").unwrap();
        }
        file
    };
    let (near, far, copy) = (write("near.pcapng", false), write("far.pcapng", true), folder.file("copy.toml"));
    let said = in_little_memory(&["--same-clock", &near, &far, "-o", &copy]);
    assert!(said.contains("what passed later: the first "), "{said}");
    let path = std::fs::read_to_string(copy).unwrap();
    assert!(path.contains("loss ="), "{path}");
}
