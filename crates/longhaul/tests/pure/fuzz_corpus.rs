//! The fuzz targets on stable Rust: over the kept corpus, then over mutations of it for a short time.
//!
//! The sequence of mutations is the same in each run, how far it gets depends on the machine. `LONGHAUL_FUZZ_SECONDS` says
//! for how long each target is tried (2 by default). What breaks a target is printed as a Rust byte string, to be kept in
//! `fuzz/corpus` under a name that says what it is. Guided by coverage is better, but takes nightly: see CONTRIBUTING.md.

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::root;

/// Mutations are cut to this many bytes, unless what they began with is longer.
const BYTES_MOST: usize = 4096;
/// One input that takes longer does not end. Ten million packet numbers take some 0.1 s.
const INPUT_TIME_MOST: Duration = Duration::from_secs(10);
/// What takes longer is tried as it is: its mutations would leave no time for others.
const SEED_TIME_MOST: Duration = Duration::from_millis(20);

/// Words that random bytes do not find by themselves.
const WORDS: [&str; 63] = [
    "[[both]]\n",
    "[[forward]]\n",
    "[[backward]]\n",
    "[[client]]\n",
    "[[server]]\n",
    "name = ",
    "rate = ",
    "delay = ",
    "queue = ",
    "loss = ",
    "jitter = ",
    "coalesce = ",
    "outages = ",
    "layer = ",
    "every",
    "random",
    "gilbert-elliott",
    "list",
    "law = \"table\"",
    "quantiles = [",
    "stddev",
    "order = \"free\"",
    "forward.",
    "hop1.",
    "far.",
    "none",
    "ms",
    "Gbit",
    "MiB",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "18446744073709551615",
    "9.2e18",
    "\"",
    "{ ",
    " }",
    "]",
    "0.1%",
    "1-9",
    "\u{0}",
    "\u{2028}",
    "\n",
    "=",
    "null",
    "true",
    "[]",
    "{}",
    "\"type\":\"",
    "\"streams\":",
    "\"runs\":\"",
    "\"duration_ns\":",
    "\"packets\":",
    "\"location\":\"network\"",
    "longhaul-key-1:",
    "\"schema\":\"longhaul.udp/1\"",
    "\"schema\":\"longhaul.tcp/1\"",
    "\"schema\":\"longhaul.watch/1\"",
    "\\u001b[2J",
    "\"forward\":",
    "AAAA",
    "\"link\":\"",
];

/// xorshift64* (Vigna 2016): repeatable, and good enough to pick bytes with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// From 0 to `end` - 1.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Two places in `bytes`, in order, mostly near each other.
    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let longest = if self.below(4) == 0 { bytes.len() } else { 16 };
        start..(start + self.below(longest)).min(bytes.len())
    }
}

/// Changes `bytes` in one of the ways that find most: single bytes, words, parts of itself and of `other`.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'0', b'9', b'.', b'-', b',']),
        2 if at < bytes.len() => bytes[at] = random.next() as u8,
        3 => drop(bytes.drain(random.range(bytes))),
        4 => {
            let part = bytes[random.range(bytes)].to_vec();
            bytes.splice(at..at, part);
        }
        5 => {
            let part = other[random.range(other)].to_vec();
            bytes.splice(at..at, part);
        }
        6 => bytes.truncate(at),
        _ => {
            let word = random.pick(&WORDS).bytes();
            let replaced = at..(at + random.below(8)).min(bytes.len());
            bytes.splice(replaced, word);
        }
    }
}

fn try_input(name: &str, what: &str, target: fn(&[u8]), input: &[u8]) -> Duration {
    let began = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    let took = began.elapsed();
    assert!(outcome.is_ok(), "{name}, {what}: b\"{}\"", input.escape_ascii());
    assert!(took < INPUT_TIME_MOST, "{name}, {what}: took {took:?}: b\"{}\"", input.escape_ascii());
    took
}

/// Tries `target` over `fuzz/corpus/NAME` and the files in `also`, then over mutations of those.
fn run(name: &str, also: Option<&str>, target: fn(&[u8])) {
    let corpus = root().join("fuzz/corpus").join(name);
    let folders = [Some(corpus), also.map(|folder| root().join(folder))];
    let mut files: Vec<_> = folders.iter().flatten().flat_map(|folder| files_in(folder)).collect();
    files.sort();
    let inputs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(inputs.len() >= 3, "{name}: where is the corpus?");
    let tried = files.iter().zip(&inputs).map(|(file, input)| {
        (try_input(name, &file.display().to_string(), target, input) < SEED_TIME_MOST).then_some(input)
    });
    let seeds: Vec<&Vec<u8>> = tried.collect::<Vec<_>>().into_iter().flatten().collect();

    let seconds = std::env::var("LONGHAUL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x6c6f_6e67_6861_756c);
    let mut tried = 0_u64;
    while Instant::now() < end {
        let mut input = (*random.pick(&seeds)).clone();
        let most = BYTES_MOST.max(input.len());
        for _ in 0..=random.below(6) {
            mutate(&mut input, seeds[random.below(seeds.len())], &mut random);
        }
        input.truncate(most);
        tried += 1;
        try_input(name, &format!("mutation {tried}"), target, &input);
    }
    println!("{name}: {} kept inputs and {tried} mutations in {seconds} s", inputs.len());
}

fn files_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn path_file() {
    run("path_file", Some("paths"), targets::path_file);
}

#[test]
fn change() {
    run("change", None, targets::change);
}

#[test]
fn dist_table() {
    run("dist_table", None, targets::dist_table);
}

#[test]
fn frame() {
    run("frame", None, targets::frame);
}

#[test]
fn experiment() {
    run("experiment", Some("experiments"), targets::experiment);
}

#[test]
fn control_line() {
    run("control_line", None, targets::control_line);
}

#[test]
fn control_messages() {
    run("control_messages", None, targets::control_messages);
}

#[test]
fn end_report() {
    run("end_report", None, targets::end_report);
}

#[test]
fn key_file() {
    run("key_file", None, targets::key_file);
}

#[test]
fn saved_result() {
    run("saved_result", None, targets::saved_result);
}

#[test]
fn mix_file() {
    run("mix_file", Some("mixes"), targets::mix_file);
}

#[test]
fn capture() {
    run("capture", None, targets::capture);
}

#[test]
fn dissected() {
    run("dissected", None, targets::dissected);
}

#[test]
fn spool() {
    run("spool", None, targets::spool);
}

#[test]
fn log_link() {
    run("log_link", None, targets::log_link);
}

#[test]
fn header_log() {
    run("header_log", None, targets::header_log);
}
