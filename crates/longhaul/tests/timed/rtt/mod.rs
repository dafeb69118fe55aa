//! `longhaul rtt` between the hosts of a lab, as users run it.

mod cost;
mod hostile;
pub(crate) mod idle;
mod log;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use longhaul_captures::CaptureReader;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_rtt::probe_log::{ProbeLogReader, ProbeRow};
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use serde_json::Value;

use crate::common::captures::{Capture, Folder, missing};
use crate::common::turns::Turn;
use crate::common::{TestLab, alone, object, quiet, side_by_side};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
const MS: f64 = 1e6;

/// A path of 20 ms, of which each 100th packet is lost on its way to the server.
const PATH: &str = r#"
[[client]]
[[server]]
[[forward]]
delay = "10ms"
loss = "LOSS"
[[backward]]
delay = "10ms"
"#;

/// A lab whose server answers.
pub(crate) struct Answered {
    server: Program,
    shared: Option<Turn>,
    pub(crate) lab: TestLab,
}

impl Answered {
    /// Over [`PATH`].
    fn up(name: &str, loss: &str) -> Option<Self> {
        Self::over(name, &PATH.replace("LOSS", loss))
    }

    fn over(name: &str, text: &str) -> Option<Self> {
        let shared = side_by_side();
        let mut answered = Self::on_this_machine(name, text)?;
        answered.shared = Some(shared);
        Some(answered)
    }

    /// As [`Self::over`], where the caller has the machine.
    pub(crate) fn on_this_machine(name: &str, text: &str) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs root");
            return None;
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        let lab = TestLab::up(name, path.to_str().unwrap())?;
        let mut server = exec(&lab, "server", &["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(server.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Some(Self { server: Program(server), shared: None, lab })
    }

    fn rtt(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        object(&output.stdout)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        exec(&self.lab, "client", &[&["rtt", "server", "--json"], arguments].concat()).output().unwrap()
    }
}

fn exec(lab: &TestLab, host: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(LONGHAUL);
    command.args(["lab", "exec", "--name", &lab.name, host, "--", LONGHAUL]).args(arguments);
    command
}

/// The path's 20 ms, and what hosts and emulator add.
fn is_of_20_ms(result: &Value) {
    let of = |name: &str| result["result"]["rtt"][name].as_f64().unwrap() / MS;
    assert!((20.0..21.0).contains(&of("min_ns")), "{}", result["result"]["rtt"]);
    // A busy machine delays them all.
    assert!((20.0..30.0).contains(&of("p50_ns")), "{}", result["result"]["rtt"]);
}

#[test]
fn every_kind_of_probe_measures_the_path_by_both_families() {
    let Some(answered) = Answered::up("rtt-kinds", "none") else { return };
    for family in ["-4", "-6"] {
        for kind in [&[][..], &["--icmp"], &["--tcp", "5210"]] {
            let asked = [&[family, "-c", "40", "-i", "20ms"], kind].concat();
            let result = answered.rtt(&asked);
            let of = |name: &str| result["result"][name].as_u64().unwrap();
            assert_eq!((of("sent"), of("received"), of("duplicates")), (40, 40, 0), "{asked:?}: {result}");
            is_of_20_ms(&result);
            let stamps = &result["result"]["timestamps"];
            let by = if kind.first() == Some(&"--tcp") { "program" } else { "kernel" };
            assert_eq!(
                (&stamps["client"]["sent"], &stamps["client"]["received"]),
                (&by.into(), &by.into()),
                "{asked:?}"
            );
            assert_eq!(stamps["server"].is_null(), !kind.is_empty(), "{stamps}");
        }
    }
}

#[test]
fn losses_are_counted_exactly_and_the_log_has_each_probe() {
    let Some(answered) = Answered::up("rtt-losses", "every(100)") else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rtt-losses-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let result = answered.rtt(&["-4", "-c", "1000", "-i", "2ms", "-o", folder.to_str().unwrap()]);
    let rows: Vec<ProbeRow> = ProbeLogReader::open(&folder).unwrap().map(Result::unwrap).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    let of = |name: &str| result["result"][name].as_u64().unwrap();
    // Packets of the control connection take their turns among those that are lost.
    assert_eq!((of("sent"), of("sent") - of("received")), (1000, of("lost")));
    assert!((9..=10).contains(&of("lost")) && of("longest_loss_run") == 1, "{result}");
    let lost: Vec<u64> = rows.iter().filter(|row| row.rtt_ns.is_none()).map(|row| row.sequence).collect();
    let listed: Vec<u64> = result["result"]["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["first_sequence"].as_u64().unwrap())
        .collect();
    assert_eq!(lost, listed);
    assert_eq!(rows.iter().map(|row| row.sequence).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    for row in rows.iter().filter(|row| row.rtt_ns.is_some()) {
        let sum = row.forward_ns.unwrap() + row.backward_ns.unwrap();
        assert!(sum.abs_diff(row.rtt_ns.unwrap()) < 1_000_000, "{row:?}");
    }
}

/// What a capture at the client has of a probe.
#[derive(Default)]
struct Captured {
    sent_ns: Option<i64>,
    received_ns: Option<i64>,
    /// In the answer: the time inside the responder.
    inside_ns: i64,
}

/// The probes of a capture, by number. A probe's header has the session and direction, the number and a stamp; the responder's stamps
/// follow.
fn captured(file: &str) -> HashMap<u64, Captured> {
    const PAYLOAD: usize = 14 + 20 + 8;
    let mut probes: HashMap<u64, Captured> = HashMap::new();
    let mut reader = CaptureReader::new(File::open(file).unwrap()).unwrap();
    while let Some(record) = reader.next().unwrap() {
        // UDP with 64 bytes of payload.
        if record.snippet.get(23) != Some(&17) || record.frame_len as usize != PAYLOAD + 64 {
            continue;
        }
        let number = |at: usize, len: usize| {
            let bytes = &record.snippet[PAYLOAD + at..PAYLOAD + at + len];
            bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let probe = probes.entry(number(4, 6)).or_default();
        if record.snippet[PAYLOAD + 3] & 0x80 == 0 {
            probe.sent_ns = Some(record.at_ns);
        } else {
            probe.received_ns = Some(record.at_ns);
            probe.inside_ns = number(26, 8) as i64 - number(18, 8) as i64;
        }
    }
    probes
}

/// How far 1,000 round trips are from those of a capture, nanoseconds: half of them at most the first, 99 % at most the second.
fn off_the_capture(answered: &Answered) -> (i64, i64) {
    let folder = Folder::new("rtt-capture");
    let (capture, log) = (Capture::start_asleep(&answered.lab, "client", &folder), folder.file("log"));
    answered.rtt(&["-4", "-c", "1000", "-i", "2ms", "-o", &log]);
    // Until tcpdump looks again.
    std::thread::sleep(Duration::from_millis(1500));
    let probes = captured(&capture.finish());
    let rows = ProbeLogReader::open(Path::new(&log)).unwrap().map(Result::unwrap);
    let mut errors: Vec<i64> = rows
        .filter_map(|row| {
            let probe = probes.get(&row.sequence)?;
            let there_and_back = probe.received_ns? - probe.sent_ns?;
            Some(row.rtt_ns? - (there_and_back - probe.inside_ns))
        })
        .collect();
    assert!(errors.len() > 990, "{}", errors.len());
    errors.sort_unstable();
    let signed = [1, 10, 50, 90, 99].map(|share| errors[errors.len() * share / 100]);
    errors.iter_mut().for_each(|error| *error = error.abs());
    errors.sort_unstable();
    let (median, high) = (errors[errors.len() / 2], errors[errors.len() * 99 / 100]);
    println!("{} round trips: off by {median} ns in the median, {high} at 99 %; {signed:?}", errors.len());
    (median, high)
}

/// tcpdump sees packets where the kernel stamps them. Its own work lies between its stamp of a packet and the kernel's, and so does what a
/// machine that is shared does just then: the best of up to six attempts counts. An error of longhaul's would be in all of them.
#[test]
fn each_round_trip_is_that_of_a_capture_at_the_same_host() {
    const ATTEMPTS: usize = 6;
    if missing("tcpdump") {
        return;
    }
    let _machine = alone();
    let Some(answered) = Answered::on_this_machine("rtt-capture", &PATH.replace("LOSS", "none")) else { return };
    let good = |(median, high): (i64, i64)| median <= 3_000 && high <= 10_000;
    let reached = (0..ATTEMPTS).any(|_| good(off_the_capture(&answered)));
    assert!(reached, "not within 3 us in the median and 10 us at 99 %");
}

/// A path whose links give each byte 800 ns in each direction, and hosts that send more than 1,452 bytes as two IPv6 packets.
#[test]
fn each_byte_and_each_fragment_adds_what_the_links_take() {
    let _machine = quiet();
    let path = "[[both]]\nrate = '10Mbit'\nqueue = '256KiB'\ndelay = '5ms'\n";
    let Some(answered) = Answered::on_this_machine("rtt-sizes", path) else { return };
    let folder = Folder::new("rtt-sizes");
    let (page, saved) = (folder.file("page.html"), folder.file("saved"));
    let result = answered.rtt(&["--sizes", "64-2800", "-t", "10s", "--html", &page, "-o", &saved]);
    let by_size = &result["result"]["by_size"];
    let line = &by_size["line"];
    println!("{line} {}", by_size["steps"]);
    assert_eq!(by_size["sizes"].as_array().unwrap().len(), 32);
    let slope = |name: &str| line[name].as_f64().unwrap();
    assert!((1580.0..1650.0).contains(&slope("slope_ns_per_byte")), "{line}");
    assert!(slope("slope_least_ns_per_byte") < slope("slope_most_ns_per_byte"), "{line}");
    let [step] = &by_size["steps"].as_array().unwrap()[..] else { panic!("{}", by_size["steps"]) };
    let bytes = ["from_bytes", "to_bytes"].map(|name| step[name].as_u64().unwrap());
    assert!(bytes[0] <= 1452 && 1452 < bytes[1], "{step}");
    // Headers of Ethernet, IPv6 and both fragments: 70 bytes, 56 us in each direction.
    assert!((90_000.0..150_000.0).contains(&step["ns"].as_f64().unwrap()), "{step}");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<figure").count(), 3, "{page}");
    let shown = Command::new(LONGHAUL).args(["show", &saved]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("each byte adds 1") && page.contains(shown.lines().next().unwrap()), "{shown}");
    let profile = Command::new(LONGHAUL).args(["profile", &saved]).output().unwrap();
    assert!(String::from_utf8_lossy(&profile.stderr).contains("without --sizes"), "{profile:?}");
}

#[test]
fn an_interrupted_measurement_has_a_result_and_one_without_a_server_says_what_to_do() {
    let Some(mut answered) = Answered::up("rtt-ends", "none") else { return };
    let folder = Folder::new("rtt-ends");
    let metrics = folder.file("rtt.prom");
    let mut command = exec(&answered.lab, "client", &["rtt", "server", "--json", "-t", "1h", "--prometheus", &metrics]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a second with more than 20 answers", || {
        let text = std::fs::read_to_string(&metrics).unwrap_or_default();
        let mut counts = text.lines().filter(|line| line.starts_with("longhaul_rtt_answered{"));
        counts.any(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()) > Some(20))
    });
    Process::open(running.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result = object(&output.stdout);
    assert!(result["result"]["received"].as_u64().unwrap() > 20, "{result}");
    assert!(result["caveats"].to_string().contains("interrupted"), "{result}");
    answered.server.kill();
    let failed = answered.run(&[]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(object(&failed.stdout)["error"]["remedy"].as_str().unwrap().contains("--icmp"));
}
