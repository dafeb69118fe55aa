//! What is written reads back, and what others wrote is refused or read, never a panic.

use std::fs::{self, File};
use std::path::PathBuf;

use bytes::Bytes;
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::{Account, Answer, Clocks, EndsStamps, GapReason, ResponderStamps, RttParameters, RttResult, Statistics};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-rtt-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn about() -> About {
    About {
        schema: SCHEMA.into(),
        version: "0.1.0".into(),
        host: "far.example".into(),
        interval_ns: 10_000_000,
        payload_bytes: 64,
        timeout_ns: 3_000_000_000,
        server: Some(EndStamps { sent: StampedBy::Program, received: StampedBy::Kernel }),
        ..About::default()
    }
}

/// Probe `at` of a measurement in which each seventh probe is lost, and some are copied or late. All is on any quantum.
fn row(at: u64) -> ProbeRow {
    let answered = at % 7 != 3;
    let jitter = (at * 7919 % 97) as i64 * (1 << 20);
    let value = |ns: i64| answered.then_some(ns + jitter);
    ProbeRow {
        sequence: at,
        payload_bytes: if at.is_multiple_of(5) { u32::MAX } else { 64 },
        sent_ns: (109_253_000_000_000 + at as i64 * 610) * SENT_QUANTUM_NS,
        rtt_ns: value(20 << 20),
        // The responder's clock is an hour behind.
        forward_ns: value((10 << 20) - (3_600_000 << 20)),
        backward_ns: answered.then_some((10 << 20) + (3_600_000 << 20)),
        copies: u32::from(at.is_multiple_of(11)),
        late_by: if at.is_multiple_of(13) { u32::MAX } else { 0 },
    }
}

fn segment(rows: &[ProbeRow]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_segment(&mut bytes, &about(), rows).unwrap();
    bytes
}

#[test]
fn a_folder_of_segments_reads_back_and_files_beside_them_are_passed_over() {
    let folder = Folder::new("folder");
    let rows: Vec<ProbeRow> = (0..20_000).map(row).collect();
    // The order of names alone would put the hundred-thousandth segment before the second.
    for (number, rows) in [0, 2, 100_000].into_iter().zip(rows.chunks(7_000)) {
        write_segment(File::create(folder.0.join(segment_name(number))).unwrap(), &about(), rows).unwrap();
    }
    for other in ["result.json", ".probes-00003.parquet.77.part", "probes-x.parquet", "probes-1.parquet"] {
        fs::write(folder.0.join(other), "cut").unwrap();
    }
    let reader = ProbeLogReader::open(&folder.0).unwrap();
    let said = reader.about();
    let (quantum_ns, difference_quantum_ns) = (said.quantum_ns, said.difference_quantum_ns);
    assert!(quantum_ns > 0 && difference_quantum_ns > 0);
    let wanted = About { quantum_ns, difference_quantum_ns, sent_quantum_ns: SENT_QUANTUM_NS, ..about() };
    assert_eq!(said, &wanted);
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), rows);
    let one = ProbeLogReader::open(&folder.0.join(segment_name(2))).unwrap();
    assert_eq!(one.map(Result::unwrap).collect::<Vec<_>>(), rows[7_000..14_000]);
}

#[test]
fn times_are_rounded_to_a_quantum_that_follows_their_variation() {
    // Jitter of 64 us between neighbours, by a clock that drifts by 3 ms in the segment: the drift costs no precision.
    let one = |at: u64, jitter: i64| ProbeRow {
        rtt_ns: Some(20_000_000 + at as i64 % 2 * jitter),
        forward_ns: Some(at as i64 * 1_000 + at as i64 % 2 * jitter),
        backward_ns: Some(0),
        ..row(at)
    };
    for (jitter, most, difference_most) in [(64_000, 2_048, 4_096), (0, 64, 64), (i64::MAX >> 8, 1 << 13, 1 << 18)] {
        let rows: Vec<ProbeRow> = (0..3_000).map(|at| one(at, jitter)).collect();
        let mut worst = (0, 0);
        for (read, row) in rows_of(segment(&rows).into(), 10_000).unwrap().iter().zip(&rows) {
            let apart = |read: Option<i64>, row: Option<i64>| read.unwrap().abs_diff(row.unwrap());
            worst.0 = worst.0.max(apart(read.rtt_ns, row.rtt_ns));
            worst.1 = worst.1.max(apart(read.forward_ns, row.forward_ns));
            assert!(read.sent_ns.abs_diff(row.sent_ns) <= SENT_QUANTUM_NS as u64 / 2);
        }
        assert!(worst.0 <= most / 2 && worst.1 <= difference_most / 2, "{jitter}: {worst:?}");
    }
    let extreme =
        [i64::MAX, i64::MIN].map(|ns| ProbeRow { sent_ns: ns, rtt_ns: Some(ns), forward_ns: Some(ns), ..row(3) });
    let extreme = [extreme[0], ProbeRow { sequence: 4, ..extreme[1] }];
    assert_eq!(rows_of(segment(&extreme).into(), 10).unwrap().len(), 2);
    assert!(rows_of(segment(&[]).into(), 10).unwrap().is_empty());
}

#[test]
fn what_is_no_log_or_another_one_is_named() {
    let folder = Folder::new("wrong");
    let open = |path: &std::path::Path| match ProbeLogReader::open(path) {
        Ok(mut reader) => reader.find_map(Result::err).map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    assert!(open(&folder.0).unwrap().contains("no probes-*.parquet"));
    let (first, second) = (folder.0.join(segment_name(0)), folder.0.join(segment_name(1)));
    assert!(open(&first).unwrap().contains("probes-00000.parquet"));
    let rows: Vec<ProbeRow> = (0..100).map(row).collect();
    let whole = segment(&rows);
    fs::write(&first, &whole).unwrap();
    assert_eq!(open(&folder.0), None);
    fs::write(&second, &whole).unwrap();
    assert_eq!(open(&folder.0).unwrap(), "the log of probes is damaged: after probe 99 comes probe 0");
    fs::write(&second, &whole[..whole.len() - 1]).unwrap();
    assert!(open(&folder.0).is_some());
    let other = About { host: "other".into(), ..about() };
    write_segment(File::create(&second).unwrap(), &other, &rows).unwrap();
    assert!(open(&folder.0).unwrap().contains("another measurement"));
    let newer = About { schema: "longhaul.rtt.probes/9".into(), ..about() };
    write_segment(File::create(&second).unwrap(), &newer, &rows).unwrap();
    assert!(open(&second).unwrap().contains("not a log of probes"));
}

#[test]
fn a_cut_or_damaged_segment_is_an_error_or_rows_and_never_a_panic() {
    let whole = segment(&(0..3_000).map(row).collect::<Vec<_>>());
    for length in (0..whole.len()).step_by(97) {
        assert!(rows_of(Bytes::copy_from_slice(&whole[..length]), 10_000).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let _ = rows_of(damaged.into(), 10_000);
    }
}

/// What a measurement on a path of 20 ms takes, through the account that the real one has, in virtual time: bytes of the log, and what
/// the statistics say in the end. Mean jitter of each direction, and how far a second moves the two clocks apart.
fn measured(probes: u64, jitter_ns: f64, drift_ns: i64) -> (u64, RttResult) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(18);
    let mut exponential = move |mean: f64| -mean * (1.0 - random.next_u64() as f64 / 2.0_f64.powi(64)).ln();
    let per_segment = (SEGMENT_NS / 10_000_000) as usize;
    let mut account = Account::new(3_000_000_000, 0);
    let mut statistics = Statistics::default();
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for at in 0..probes {
        let program_ns = 1_790_000_000_000_000_000 + at as i64 * 10_000_000 + exponential(10_000.0) as i64;
        let sequence = account.send(program_ns, 64);
        account.stamp(sequence, program_ns + 4_000, StampedBy::Kernel);
        // One in a thousand is lost.
        if exponential(1.0) < 6.9 {
            let offset = 3_000_000_000 + at as i64 * drift_ns / 100;
            let there = program_ns + 4_000 + (10_000_000.0 + exponential(jitter_ns)) as i64;
            let received_ns = there + 20_000 + (10_000_000.0 + exponential(jitter_ns)) as i64;
            let received_by = StampedBy::Kernel;
            let responder =
                ResponderStamps { received_ns: there + offset, sent_ns: there + offset + 20_000, received_by };
            let echoed_ns = Some(program_ns as u64);
            account.answer(Answer {
                sequence,
                echoed_ns,
                received_ns,
                received_by,
                responder: Some(responder),
                hops_left: None,
            });
        }
        account.retire(program_ns, |row| {
            statistics.take(&row);
            rows.push(row);
        });
        if rows.len() >= per_segment {
            bytes += segment(&rows).len() as u64;
            rows.clear();
        }
    }
    account.finish(|row| {
        statistics.take(&row);
        rows.push(row);
    });
    bytes += segment(&rows).len() as u64;
    let timestamps = EndsStamps { client: account.counts().client(), server: Some(account.counts().responder()) };
    (bytes, statistics.finish(ProbeKind::Udp, timestamps, Clocks::default()))
}

/// A hundred minutes of probes every 10 ms, from which a week follows; the whole week where `LONGHAUL_WEEK` is set.
#[test]
fn a_week_of_probes_every_10_ms_takes_less_than_200_mb() {
    const WEEK: u64 = 7 * 86_400 * 100;
    let probes = if std::env::var_os("LONGHAUL_WEEK").is_some() { WEEK } else { 600_000 };
    let mut worst = 0.0_f64;
    for (jitter_ns, drift_ns) in [(2_000.0, 1_000), (30_000.0, 5_000), (30_000.0, 50_000), (3_000_000.0, 5_000)] {
        let (bytes, result) = measured(probes, jitter_ns, drift_ns);
        let week = bytes as f64 * WEEK as f64 / probes as f64;
        println!(
            "{jitter_ns} ns of jitter, {drift_ns} ns/s of drift, {probes} probes: a week takes {:.0} MB",
            week / 1e6
        );
        assert_eq!((result.sent, result.reordered), (probes, 0));
        let lost = result.lost as f64 / probes as f64;
        assert!((0.0008..0.0012).contains(&lost), "{lost}");
        let median = result.rtt.unwrap().p50_ns as f64 - 20_000_000.0;
        // That of the sum of two exponentials, within four digits of the whole.
        assert!((median - 1.678 * jitter_ns).abs() < 2_000.0 + 0.05 * jitter_ns, "{median}");
        worst = worst.max(week);
        if probes == WEEK {
            break;
        }
    }
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    }
    assert!(worst < 200e6, "{worst}");
}

#[test]
fn gaps_stand_before_the_first_row_of_their_segment() {
    let folder = Folder::new("gaps");
    let rows: Vec<ProbeRow> = (0..300).map(row).collect();
    let gap = Gap { why: GapReason::Suspended, from_ns: 5, to_ns: 9, step_ns: 0, left_out: 2 };
    for (number, gaps) in [vec![], vec![gap, gap], vec![]].into_iter().enumerate() {
        let file = File::create(folder.0.join(segment_name(number as u32))).unwrap();
        write_segment(file, &About { gaps, ..about() }, &rows[number * 100..][..100]).unwrap();
    }
    assert_eq!(next_segment(&folder.0).unwrap(), 3);
    let mut reader = ProbeLogReader::open(&folder.0).unwrap();
    let mut found = Vec::new();
    while let Some(row) = reader.next() {
        found.extend(reader.take_gaps().into_iter().map(|gap| (row.as_ref().unwrap().sequence, gap)));
    }
    assert_eq!(found, [(100, gap), (100, gap)]);
}

/// What is there is not written over.
#[test]
fn a_log_goes_on_as_long_as_there_are_numbers() {
    let folder = Folder::new("numbers");
    assert_eq!(next_segment(&folder.0).unwrap(), 0);
    let last = SEGMENTS_MOST - 1;
    for (number, next) in [(0, Some(1)), (last - 1, Some(last)), (last, None), (u32::MAX, None)] {
        fs::write(folder.0.join(segment_name(number)), "").unwrap();
        let said = next_segment(&folder.0);
        assert_eq!(said.as_ref().ok(), next.as_ref(), "{said:?}");
    }
    let said = next_segment(&folder.0).unwrap_err().to_string();
    assert!(said.contains("after probes-4294967295.parquet no number is left"), "{said}");
}

/// A log that is resumed counts on from its last probe, with numbers that a measurement may have.
#[test]
fn a_number_that_nobody_reaches_is_refused() {
    let folder = Folder::new("number");
    let read = |last: u64| -> Result<Vec<ProbeRow>, ProbeLogError> {
        let rows = [row(1), ProbeRow { sequence: last, ..row(2) }];
        write_segment(File::create(folder.0.join(segment_name(0))).unwrap(), &about(), &rows).unwrap();
        ProbeLogReader::open(&folder.0)?.collect()
    };
    let first_sequence = read(PROBES_MOST - 1).unwrap()[1].sequence + 1;
    RttParameters { first_sequence, ..RttParameters::default() }.validate().unwrap();
    for last in [PROBES_MOST, 1 << 62, u64::MAX] {
        let read = read(last);
        assert!(matches!(read, Err(ProbeLogError::Order(1, at)) if at == last), "{read:?}");
    }
}

/// With `LONGHAUL_WRITE_CORPUS` set it writes the examples that fuzzing begins with.
#[test]
fn the_examples_for_fuzzing_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/probe_log");
    let lost = |at| ProbeRow { rtt_ns: None, forward_ns: None, backward_ns: None, ..row(at) };
    let examples = [
        ("hundred_probes", (0..100).map(row).collect::<Vec<_>>()),
        ("all_lost", (0..20).map(lost).collect()),
        ("no_rows", Vec::new()),
    ];
    for (name, rows) in examples {
        if std::env::var_os("LONGHAUL_WRITE_CORPUS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), segment(&rows)).unwrap();
        }
        assert_eq!(rows_of(fs::read(folder.join(name)).unwrap().into(), 1_000).unwrap(), rows, "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(rows_of(bytes.into(), 100).is_err());
    }
}
