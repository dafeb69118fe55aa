//! The fuzz targets on stable Rust: over the kept corpus, then over mutations of it for a short time.
//!
//! The sequence of mutations is the same in each run, how far it gets depends on the machine. `LONGHAUL_FUZZ_SECONDS` says
//! for how long each target is tried (2 by default). What breaks a target is printed as a Rust byte string, to be kept in
//! `fuzz/corpus` under a name that says what it is. Guided by coverage is better, but takes nightly: see CONTRIBUTING.md.

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::alarm;
use targets::{commands, pages};

use crate::common::root;

/// Mutations are cut to this many bytes, unless what they began with is longer.
const BYTES_MOST: usize = 4096;
/// One input that takes longer does not end. Half a second is the most that is seen, on a machine that is shared.
const INPUT_TIME_MOST: Duration = Duration::from_secs(5);
/// Address space of the process that tries a target, bytes.
const MEMORY_MOST: u64 = 512 << 20;
/// Tells the worker its target, and where it writes what it tries.
const TARGET: &str = "LONGHAUL_FUZZ_TARGET";
const TRIED: &str = "LONGHAUL_FUZZ_TRIED";
/// What takes longer is tried as it is: its mutations would leave no time for others.
const SEED_TIME_MOST: Duration = Duration::from_millis(20);

/// Words that random bytes do not find by themselves.
const WORDS: [&str; 83] = [
    "[[site]]\n",
    "[[group]]\n",
    "[[link]]\n",
    "[[test]]\n",
    "[[both]]\n",
    "[[forward]]\n",
    "[[backward]]\n",
    "[[client]]\n",
    "[[server]]\n",
    "name = ",
    "rate = ",
    "delay = ",
    "mtu = ",
    "bytes = ",
    "policer = ",
    "burst = ",
    "delay-steps = ",
    "queue = ",
    "loss = ",
    "jitter = ",
    "coalesce = ",
    "outages = ",
    "layer = ",
    "every",
    "random",
    "gilbert-elliott",
    "bursts",
    "correlation",
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
    "\\u202e",
    "\"forward\":",
    "AAAA",
    "\"link\":\"",
    "GET /api/v1/",
    " HTTP/1.1\r\n",
    "\r\n\r\n",
    "?days=",
    "&until=",
    "&metric=rtt",
    "Authorization: Bearer ",
    "Transfer-Encoding: chunked\r\n",
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

/// Why `target` broke; how long it took.
fn try_input(target: fn(&[u8]), input: &[u8]) -> Result<Duration, String> {
    let began = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    let took = began.elapsed();
    match outcome {
        Err(_) => Err("panicked".into()),
        Ok(()) if took > INPUT_TIME_MOST => Err(format!("took {took:?}")),
        Ok(()) => Ok(took),
    }
}

/// Tries a target in a process of its own, whose memory is bounded: over `fuzz/corpus/NAME`, where it has inputs of its own, and the files in
/// `also`, then over mutations of those.
fn run(name: &str) {
    let tried = std::env::temp_dir().join(format!("longhaul-fuzz-{name}-{}", std::process::id()));
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker.args(["--exact", "fuzz_corpus::worker", "--ignored", "--nocapture"]);
    // Each thread of the C library's allocator reserves 128 MB.
    worker.env("MALLOC_ARENA_MAX", "1").env(TARGET, name).env(TRIED, &tried);
    let worker = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let folder = format!("/dev/shm/longhaul-fuzz-{}", worker.id());
    let output = worker.wait_with_output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let input = fs::read(&tried).unwrap_or_default();
    let _ = fs::remove_file(&tried);
    let _ = fs::remove_dir_all(folder);
    assert!(output.status.success(), "{name}, {}: b\"{}\"\n{said}\n{wrong}", output.status, input.escape_ascii());
    said.lines().filter(|line| line.starts_with(name)).for_each(|line| println!("{line}"));
}

#[test]
#[ignore = "what the tests of targets run in a process of its own"]
fn worker() {
    let (Ok(name), Some(tried)) = (std::env::var(TARGET), std::env::var_os(TRIED)) else { return };
    let (_, also, target) = TARGETS.iter().find(|(known, ..)| *known == name).unwrap();
    setrlimit(Resource::RLIMIT_AS, MEMORY_MOST, MEMORY_MOST).unwrap();
    let corpus = root().join("fuzz/corpus").join(&name);
    let own = corpus.exists().then_some(corpus);
    let folders = own.into_iter().chain(also.iter().map(|folder| root().join(folder)));
    let mut files: Vec<_> = folders.flat_map(|folder| files_in(&folder)).collect();
    files.sort();
    let inputs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(inputs.len() >= 3, "{name}: where is the corpus?");
    // What is tried stands in a file, in case that the process does not survive it.
    let mut record = fs::File::create(tried).unwrap();
    let mut try_one = |input: &[u8], what: &dyn std::fmt::Display| {
        record.set_len(0).and_then(|()| record.rewind()).and_then(|()| record.write_all(input)).unwrap();
        // Ends the process, should the target not end.
        alarm::set(2 * INPUT_TIME_MOST.as_secs() as u32);
        try_input(*target, input).unwrap_or_else(|why| panic!("{name}, {what}: {why}"))
    };
    let mut tried: Vec<_> =
        files.iter().zip(&inputs).map(|(file, input)| (try_one(input, &file.display()), input)).collect();
    tried.sort();
    // On a busy machine none may be quick: then the quickest.
    let quick = tried.partition_point(|(took, _)| *took < SEED_TIME_MOST).max(1);
    let seeds: Vec<_> = tried[..quick].iter().map(|(_, input)| *input).collect();
    let seconds = std::env::var("LONGHAUL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x6c6f_6e67_6861_756c);
    let mut mutations = 0_u64;
    while Instant::now() < end {
        let mut input = (*random.pick(&seeds)).clone();
        let most = BYTES_MOST.max(input.len());
        for _ in 0..=random.below(6) {
            mutate(&mut input, seeds[random.below(seeds.len())], &mut random);
        }
        input.truncate(most);
        mutations += 1;
        try_one(&input, &format_args!("mutation {mutations}"));
    }
    println!("{name}: {} kept inputs and {mutations} mutations in {seconds} s", inputs.len());
}

fn files_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
}

type Tried = (&'static str, &'static [&'static str], fn(&[u8]));

/// A test of each target, and all of them by name; of some other folders have examples as well.
macro_rules! targets {
    ($($name:ident $(+ $also:literal)*: $target:path;)*) => {
        const TARGETS: &[Tried] = &[$((stringify!($name), &[$($also),*], $target)),*];

        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

targets! {
    path_file + "paths": targets::path_file;
    change: targets::change;
    dist_table: targets::dist_table;
    frame: targets::frame;
    experiment + "experiments": targets::experiment;
    fault + "experiments/faults": targets::fault;
    control_line: targets::control_line;
    control_messages: targets::control_messages;
    end_report: targets::end_report;
    key_file: targets::key_file;
    saved_result: targets::saved_result;
    mesh_file: targets::mesh_file;
    mesh_message: targets::mesh_message;
    mesh_request: pages::mesh_request;
    mesh_test_file: targets::mesh_test_file;
    mix_file + "mixes": targets::mix_file;
    capture: targets::capture;
    dissected: targets::dissected;
    spool: targets::spool;
    log_link: targets::log_link;
    header_log: targets::header_log;
    probe_log: targets::probe_log;
    analyze + "fuzz/corpus/capture" + "fuzz/corpus/compressed" + "fuzz/corpus/spool": commands::analyze;
    compare + "fuzz/corpus/capture" + "fuzz/corpus/compressed" + "fuzz/corpus/spool": commands::compare;
    convert + "fuzz/corpus/compressed" + "fuzz/corpus/header_log" + "fuzz/corpus/spool": commands::convert;
    show + "fuzz/corpus/saved_result": commands::show;
    profile + "fuzz/corpus/analyze": commands::profile;
    report + "fuzz/corpus/saved_result": commands::report;
    paths_show + "fuzz/corpus/path_file": commands::paths_show;
    cc_table + "fuzz/corpus/saved_result": commands::cc_table;
    peer_report + "fuzz/corpus/end_report": commands::peer_report;
}
