//! `longhaul tcp` between the hosts of a lab, as users run it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{TestLab, alone, longhaul, object, side_by_side};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::sysctl;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rustix::process::{Pid, kill_process, kill_process_group};
use serde_json::Value;

/// A lab whose server answers tests.
struct Tested {
    _server: Program,
    lab: TestLab,
}

impl Tested {
    fn up(name: &str, path: &str) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs root");
            return None;
        }
        let lab = TestLab::up(name, path)?;
        let server = [env!("CARGO_BIN_EXE_longhaul"), "serve"];
        let mut server = exec(&lab, "server", &server).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(server.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Some(Self { _server: Program(server), lab })
    }

    fn tcp(&self, arguments: &[&str]) -> Command {
        let start = [env!("CARGO_BIN_EXE_longhaul"), "tcp", "server"];
        exec(&self.lab, "client", &start.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tcp(arguments).output().unwrap()
    }
}

fn exec(lab: &TestLab, host: &str, command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    run.args(["lab", "exec", host, "--name", &lab.name, "--"]).args(command).stdin(Stdio::null());
    run
}

/// A folder that goes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("longhaul-tcp-{name}-{}", std::process::id())))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_result_is_printed_saved_and_shown_again_with_its_samples() {
    let _alone = alone();
    let Some(tested) = Tested::up("tcp-saved", "nlr-tiny") else { return };
    let folder = Scratch::new("saved");
    let output = tested.run(&["-t", "2s", "-P", "2", "-C", "reno:1s,cubic:1s", "-i", "500ms", "-o", folder.name()]);
    assert!(output.status.success(), "{output:?}");
    let printed = text(&output.stdout);
    // What limits a flow is a list, and no line is cut.
    let fits = |line: &str| line.starts_with("limited") || line.chars().count() <= 80;
    assert!(printed.lines().all(fits), "{printed}");
    for part in ["goodput", "stream 0", "limited", "(reno,cubic)", "rtt", "samples.parquet"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.lines().next().unwrap().contains("cwnd"), "{printed}");
    assert!(
        printed.lines().filter(|line| line.starts_with("forward ") && line.contains(" s ")).count() >= 2,
        "{printed}"
    );

    let shown = longhaul(&["show", folder.name()]);
    assert!(printed.ends_with(&text(&shown.stdout)), "{shown:?}");
    let json = object(&longhaul(&["show", folder.name(), "--json"]).stdout);
    assert_eq!(json["result"]["streams"].as_array().unwrap().len(), 2);
    assert!(json["result"]["streams"][0]["min_rtt_ns"].as_u64() >= Some(16_000_000), "{}", json["result"]["streams"]);

    let reader = SerializedFileReader::new(File::open(folder.0.join("samples.parquet")).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema().get_fields().len();
    assert_eq!(columns, 76);
    let mut ends: std::collections::BTreeMap<(String, String), usize> = Default::default();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let value = |name: &str| row.get_column_iter().find(|(known, _)| *known == name).unwrap().1.to_string();
        *ends.entry((value("end"), value("congestion_control"))).or_default() += 1;
    }
    // Two flows, a sample each 10 ms, at both ends; the sender's control changed on the way.
    for control in ["\"reno\"", "\"cubic\""] {
        let samples = ends.get(&("\"sender\"".to_owned(), control.to_owned())).copied().unwrap_or(0);
        assert!(samples > 120, "{control}: {ends:?}");
    }
    assert!(ends.keys().any(|(end, _)| end == "\"receiver\""), "{ends:?}");
}

#[test]
fn ctrl_c_prints_what_was_measured() {
    let _alone = alone();
    let Some(tested) = Tested::up("tcp-int", "lan") else { return };
    let mut child = tested
        .tcp(&["-t", "60s", "-i", "200ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("forward") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended without a line");
    }
    // `lab exec` became it.
    Process::open(child.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let result = object(&output.stdout);
    assert!(result["result"]["bytes"].as_u64() > Some(1_000_000), "{}", result["result"]["bytes"]);
    let codes: Vec<&Value> = result["caveats"].as_array().unwrap().iter().map(|caveat| &caveat["code"]).collect();
    assert!(codes.contains(&&Value::from("interrupted")), "{codes:?}");
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let _shared = side_by_side();
    let wrong = |arguments: &[&str], part: &str| {
        let output = longhaul(&[&["tcp", "127.0.0.1"], arguments].concat());
        let line = text(&output.stderr);
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{arguments:?}: {line}");
        assert!(line.contains(part), "{arguments:?}: {line}");
    };
    wrong(&["-w", "auto"], "--rate-goal");
    wrong(&["-C", "reno,cubic"], "every step but the last needs a time");
    wrong(&["-C", "../../etc"], "-C");
    wrong(&["-R", "--bidir"], "-R with --bidir");
    wrong(&["-P", "65"], "1 to 64 streams");
    wrong(&["--no-sack"], "lab");
    wrong(&["-w", "huge"], "auto, or a size");
    let output = longhaul(&["tcp", "127.0.0.1", "-p", "1"]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("longhaul serve"), "{output:?}");

    let Some(tested) = Tested::up("tcp-wrong", "lan") else { return };
    for direction in [&[][..], &["-R"]] {
        let output = tested.run(&[&["-C", "nosuch", "-t", "1s"], direction].concat());
        let line = text(&output.stderr);
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        for part in ["nosuch", "reno", "longhaul cc list"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

/// What a test loads goes with it, however it ends.
#[test]
fn killed_with_a_control_of_its_own_it_leaves_none() {
    let _alone = alone();
    let Some(tested) = Tested::up("tcp-kill", "lan") else { return };
    let available = || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if available().contains("lh_westwood") {
        longhaul_testing::skipped!("lh_westwood is loaded already");
        return;
    }
    let mut child = tested
        .tcp(&["-t", "60s", "-C", "westwood", "-i", "200ms", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("forward") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended without a line");
    }
    assert!(available().contains("lh_westwood"), "{}", available());
    Process::open(child.id()).unwrap().unwrap().signal(Signal::KILL).unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while available().contains("lh_westwood") {
        assert!(Instant::now() < deadline, "it is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A signal comes while the flows connect, also to the whole process group, as a shell's Ctrl-C and `kill -9 %1` send it: others have SACK and time
/// stamps afterwards.
#[test]
fn interrupted_while_it_connects_it_leaves_sack_as_it_was() {
    let _shared = side_by_side();
    let Some(tested) = Tested::up("tcp-sack", "lan") else { return };
    // It connects for 300 ms.
    assert!(longhaul(&["lab", "set", "--name", &tested.lab.name, "delay=150ms"]).status.success());
    let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
    let named = |entry: &&Value, name: &str| entry["name"] == name;
    let lab = list["result"]["labs"].as_array().unwrap().iter().find(|lab| named(lab, &tested.lab.name)).unwrap();
    let host = lab["hosts"].as_array().unwrap().iter().find(|host| named(host, "client")).unwrap();
    let client = NetNamespace::open(Path::new(host["namespace"].as_str().unwrap())).unwrap();
    let read = || ["net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps"].map(|key| sysctl::read(key).unwrap());
    let now = || client.enter(read).unwrap();
    for (signal, to_group) in [(Signal::INT, false), (Signal::INT, true), (Signal::TERM, true), (Signal::KILL, true)] {
        let mut test = tested.tcp(&["-4", "-t", "60s", "--no-sack", "--no-timestamps"]);
        let mut test = Program(test.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap());
        until("SACK to be off", || now() == ["0", "0"]);
        let pid = Pid::from_child(&test.0);
        if to_group {
            kill_process_group(pid, signal).unwrap()
        } else {
            kill_process(pid, signal).unwrap()
        }
        until("the test to end", || test.0.try_wait().unwrap().is_some());
        until("SACK to be on again", || now() == ["1", "1"]);
    }
}

#[test]
fn a_saved_flow_stands_beside_its_response_function() {
    let _shared = side_by_side();
    let Some(tested) = Tested::up("tcp-measured", "lan") else { return };
    let change = ["lab", "set", "--name", &tested.lab.name, "forward.loss=every(500)", "delay=5ms"];
    assert!(longhaul(&change).status.success());
    let folder = Scratch::new("measured");
    let tested = tested.run(&["-4", "-t", "4s", "--omit", "1s", "-C", "reno", "-o", folder.name()]);
    assert!(tested.status.success(), "{tested:?}");
    // Losses are of the whole test, and the text says so.
    assert!(text(&tested.stdout).contains("the omitted time included"), "{tested:?}");
    let output = longhaul(&["cc", "table", "--measured", folder.name(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    let table = object(&output.stdout);
    let point = &table["result"]["measured"][0];
    let number = |key: &str| point[key].as_f64().unwrap_or_else(|| panic!("{key}: {table:#}"));
    assert_eq!(point["algorithm"], "reno");
    // One in 500, and the lost retransmissions.
    assert!((0.001..0.004).contains(&number("loss")), "{point:#}");
    let expected = number("expected_packets");
    assert!((0.5..2.0).contains(&(number("window_packets") / expected)), "{point:#}");
    assert!((expected / number("mathis_packets") - 1.0).abs() < 0.1, "{point:#}");
    let shown = text(&longhaul(&["cc", "table", "--measured", folder.name()]).stdout);
    assert!(shown.contains("measured") && shown.contains("rfc3649"), "{shown}");
    let wrong = longhaul(&["cc", "table", "--measured", "/dev/null"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
