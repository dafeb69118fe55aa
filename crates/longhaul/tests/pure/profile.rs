//! `longhaul profile` of a log of probes whose truth is known.

use std::fs::File;
use std::path::Path;

use longhaul_rtt::probe_log::{About, ProbeRow, SCHEMA, write_segment};
use longhaul_rtt::{ChangedWay, OwnRoute, PathChange};

use crate::common::captures::{Folder, json};
use crate::common::{longhaul, root};

const BEGAN_NS: i64 = 1_700_000_000_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// A minute of probes each 10 ms, whose route changes after 20 s, which takes 3 ms longer, and whose way back changes after 40 s, which does not.
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
    let own = ChangedWay::OwnRoute { from: route("eth0"), to: route("eth1") };
    let back = ChangedWay::HopsBack { from_ttl: 60, to_ttl: 59 };
    let change =
        |seconds: i64, within_ns, way| PathChange { at_ns: BEGAN_NS + seconds * SECOND_NS, within_ns, way, lost: 0 };
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
fn a_way_that_changed_is_told_and_its_step_is_in_the_path() {
    let folder = Folder::new("profile-ways");
    let log = folder.file("log");
    std::fs::create_dir(&log).unwrap();
    write_log(log.as_ref());
    let copy = folder.file("copy.toml");
    let made = longhaul(&["profile", &log, "-o", &copy]);
    let (said, file) = (String::from_utf8(made.stdout).unwrap(), std::fs::read_to_string(&copy).unwrap());
    assert!(said.contains("way         changed at 20.0 s, this host's route: eth0 → eth1: round trip +3.0"), "{said}");
    assert!(said.contains("way         changed at 40.0 s, answers came with TTL 60 → 59"), "{said}");
    assert!(said.contains("the way changed once without a step of the round trip that shows"), "{said}");
    assert!(file.contains("delay-steps = [{ at = \"20") || file.contains("delay-steps = [{ at = \"19.9"), "{file}");
    assert!(file.contains("# The way changed at 20.0 s, this host's route: eth0 → eth1: round trip +3.0"), "{file}");
    let result = &json(&["profile", &log, "--json"])["result"];
    let changes = result["way_changes"].as_array().unwrap();
    assert_eq!((changes.len(), changes[1]["rtt_ns"].is_null()), (2, true), "{changes:?}");
    assert!((changes[0]["rtt_ns"].as_f64().unwrap() - 3e6).abs() < 1e4, "{changes:?}");
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
