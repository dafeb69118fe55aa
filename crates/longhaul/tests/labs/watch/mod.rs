//! `longhaul watch` beside real programs: curl, and Python's HTTP server.

mod udp;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::common::captures::Folder;
use crate::common::{TestLab, longhaul, object};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::{Program, copy_program};
use serde_json::Value;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// 64 Mbit/s and a round trip of 40 ms: 320 KB are on their way.
const PATH: &str = "[[both]]\nrate = '64Mbit'\nqueue = '2MiB'\ndelay = '20ms'\n";
const FILE_BYTES: usize = 8 << 20;

/// Two hosts, and a web server on one.
pub(crate) struct Web {
    _server: Program,
    pub(crate) lab: TestLab,
    pub(crate) folder: Folder,
}

impl Web {
    pub(crate) fn up(name: &str) -> Option<Self> {
        for program in ["curl", "python3"] {
            if Command::new(program).arg("--version").output().is_err() {
                longhaul_testing::no_judge!("{program} is not installed (make deps)");
                return None;
            }
        }
        let folder = Folder::new(&format!("watch-{name}"));
        let path = folder.file("path.toml");
        fs::write(&path, PATH).unwrap();
        fs::write(folder.file("large"), vec![7; FILE_BYTES]).unwrap();
        fs::write(folder.file("small"), "small").unwrap();
        let lab = TestLab::up(&format!("watch-{name}"), &path)?;
        let mut server = on(&lab, "server", &["python3", "-u", "-m", "http.server", "-b", "10.77.2.1", "80", "-d"])
            .arg(&folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("Serving HTTP"), "{line}");
        Some(Self { _server: Program(server), lab, folder })
    }

    /// Fetches with curl under the eyes of `longhaul watch`.
    fn watched_curl(&self, arguments: &[&str]) -> Output {
        let command = [&[LONGHAUL, "watch", "-J", "--", "curl", "-4", "-s", "-o", "/dev/null"][..], arguments].concat();
        on(&self.lab, "client", &command).output().unwrap()
    }

    pub(crate) fn set(&self, host: &str, setting: &str) {
        let output = on(&self.lab, host, &["sysctl", "-w", setting]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

pub(crate) fn on(lab: &TestLab, host: &str, command: &[&str]) -> Command {
    let mut exec = Command::new(LONGHAUL);
    exec.args(["lab", "exec", host, "--name", &lab.name, "--"]).args(command);
    exec
}

fn connections(object: &Value) -> &Vec<Value> {
    object["result"]["connections"].as_array().unwrap()
}

fn only(object: &Value) -> &Value {
    let [one] = &connections(object)[..] else { panic!("{object:#}") };
    one
}

fn warned(object: &Value, code: &str) -> bool {
    object["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == code)
}

#[test]
fn curl_is_seen_with_its_bytes_and_its_exit_code() {
    let Some(web) = Web::up("bytes") else { return };
    let output = web.watched_curl(&["-w", "%{size_header} %{size_download}", "http://10.77.2.1/large"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Curl's stdout stands on stderr: stdout is the one object.
    let counted: u64 = said.split_whitespace().take(2).map(|word| word.parse::<u64>().unwrap()).sum();
    let whole = object(&output.stdout);
    let one = only(&whole);
    // The kernel counts the end of the stream as a byte.
    let received = one["received_bytes"].as_u64().unwrap();
    assert!((counted..=counted + 1).contains(&received), "{received}, curl says {counted}: {one:#}");
    assert_eq!((one["flow"].as_str(), one["remote"].as_str()), (Some("receiving"), Some("10.77.2.1:80")), "{one:#}");
    assert_eq!((one["began"].as_bool(), one["ended"].as_bool()), (Some(true), Some(true)), "{one:#}");
    assert_eq!(one["program"], "curl", "{one:#}");
    let min_rtt_ms = one["min_rtt_ns"].as_u64().unwrap() as f64 / 1e6;
    assert!((40.0..60.0).contains(&min_rtt_ms), "{one:#}");
    // 64 Mbit/s at layer 1 carry 60.2 of payload.
    let rate = one["received_rate_bps"].as_u64().unwrap() as f64 / 1e6;
    assert!((30.0..61.0).contains(&rate), "{one:#}");

    let failed = web.watched_curl(&["-f", "http://10.77.2.1/nothing"]);
    assert_eq!(failed.status.code(), Some(22), "{failed:?}");
    assert_eq!(object(&failed.stdout)["parameters"]["exit_code"], 22);
    let none = on(&web.lab, "client", &[LONGHAUL, "watch", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(none.status.code(), Some(127), "{none:?}");
}

/// Many programs take a second signal as the wish to end without cleaning up.
#[test]
fn a_signal_reaches_the_program_once() {
    // It says when it is ready, ends a second after the first signal, and tells how many came.
    const COUNTS: &str = "
import signal, sys, time
came = 0
def count(*_):
    global came
    came += 1
for one in (signal.SIGINT, signal.SIGTERM): signal.signal(one, count)
print('ready', flush=True)
while not came: time.sleep(0.01)
end = time.time() + 1
while time.time() < end: time.sleep(0.01)
print(came, flush=True)
";
    for signal in [Signal::INT, Signal::TERM] {
        // In a group of its own, which no terminal's Ctrl-C reaches.
        let mut watch = Command::new(LONGHAUL)
            .args(["watch", "--", "python3", "-c", COUNTS])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "ready"));
        Process::open(watch.id()).unwrap().unwrap().signal(signal).unwrap();
        let said = lines.find(|line| line.parse::<u32>().is_ok());
        assert_eq!(said.as_deref(), Some("1"), "{signal:?}");
        lines.for_each(drop);
        watch.wait().unwrap();
    }
}

#[test]
fn a_slow_reader_and_a_small_window_are_told_apart() {
    let Some(web) = Web::up("reader") else { return };
    let slow = object(&web.watched_curl(&["--max-time", "4", "--limit-rate", "300K", "http://10.77.2.1/large"]).stdout);
    assert_eq!(only(&slow)["limit"]["by"], "application", "{slow:#}");
    assert!(only(&slow)["max_unread_bytes"].as_u64() > Some(50_000), "{slow:#}");
    // Nor the window nor the reader.
    let free = object(&web.watched_curl(&["http://10.77.2.1/large"]).stdout);
    assert_eq!(only(&free)["limit"]["by"], "sender_or_path", "{free:#}");

    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("setting tcp_rmem takes root");
        return;
    }
    web.set("client", "net.ipv4.tcp_rmem=4096 65536 65536");
    let server = on(&web.lab, "server", &[LONGHAUL, "watch", "-J", "--port", "80", "-t", "4s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let small = object(&web.watched_curl(&["--max-time", "5", "http://10.77.2.1/large"]).stdout);
    assert_eq!(only(&small)["limit"]["by"], "receive_window", "{small:#}");
    // The other end of the same connection: the kernel's own clock says so.
    let sender = object(&server.wait_with_output().unwrap().stdout);
    let one = connections(&sender).iter().max_by_key(|one| one["sent_bytes"].as_u64()).unwrap();
    assert_eq!(
        (one["flow"].as_str(), one["limit"]["by"].as_str()),
        (Some("sending"), Some("receive_window")),
        "{one:#}"
    );
}

/// 16 KB asked are 32 KB given: at most some 50 packets of a window of more than 100 are in flight, and the rest of the window is never used.
/// The kernel's own clock of a full buffer runs for less than half of it.
#[test]
fn a_small_send_buffer_is_not_the_congestion_window() {
    const SINK: &str = "
import socket
server = socket.create_server(('10.77.2.1', 5555))
print('listens', flush=True)
for _ in range(2):
    flow = server.accept()[0]
    while flow.recv(1 << 20): pass";
    const SOURCE: &str = "
import socket, sys, time
flow = socket.socket()
if sys.argv[1] != '0': flow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(sys.argv[1]))
flow.connect(('10.77.2.1', 5555))
end = time.monotonic() + 1.5
while time.monotonic() < end: flow.sendall(bytes(1 << 17))";
    if Command::new("python3").arg("--version").output().is_err() {
        return println!("skipped: python3 is not installed (make deps)");
    }
    let folder = std::env::temp_dir().join(format!("longhaul-watch-sndbuf-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("path.toml"), "[[both]]\ndelay = '10ms'\n[[both]]\nrate = '100Mbit'\nqueue = '4MiB'\n")
        .unwrap();
    let up = TestLab::up("watch-sndbuf", folder.join("path.toml").to_str().unwrap());
    let _ = fs::remove_dir_all(&folder);
    let Some(lab) = up else { return };
    let mut sink = on(&lab, "server", &["python3", "-c", SINK]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(sink.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let watched = |buffer: &str| {
        let command = [LONGHAUL, "watch", "-J", "--", "python3", "-c", SOURCE, buffer];
        object(&on(&lab, "client", &command).output().unwrap().stdout)
    };
    let small = watched("16384");
    let shares = &only(&small)["limited_by"];
    assert!(
        shares["send_buffer"].as_f64() > Some(0.8) && shares["congestion_window"].as_f64() < Some(0.1),
        "{small:#}"
    );
    // Half of the window at 20 ms: far from the path's rate.
    assert!(only(&small)["max_cwnd_bytes"].as_u64() > Some(100_000), "{small:#}");
    assert!(only(&small)["sent_rate_bps"].as_u64() < Some(60_000_000), "{small:#}");
    // The same program with the buffers that the kernel gives is limited by the path.
    let free = watched("0");
    assert_eq!(only(&free)["limit"]["by"], "congestion_window", "{free:#}");
    sink.wait().unwrap();
}

#[test]
fn losses_on_the_path_show_at_the_server() {
    let Some(web) = Web::up("losses") else { return };
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("choosing a congestion control takes root");
        return;
    }
    // BBR, a default of some systems, hardly minds such a loss.
    web.set("server", "net.ipv4.tcp_congestion_control=reno");
    longhaul(&["lab", "set", "--name", &web.lab.name, "backward.loss=every(200)"]);
    let watch = on(&web.lab, "server", &[LONGHAUL, "watch", "-J", "--port", "80", "-t", "6s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let curl = on(&web.lab, "client", &["curl", "-s", "-o", "/dev/null", "--max-time", "5", "http://10.77.2.1/large"])
        .status()
        .unwrap();
    assert!(curl.success() || curl.code() == Some(28), "{curl:?}");
    let whole = object(&watch.wait_with_output().unwrap().stdout);
    let one = connections(&whole).iter().max_by_key(|one| one["sent_bytes"].as_u64()).expect("curl's");
    assert_eq!(one["limit"]["by"], "congestion_window", "{one:#}");
    assert_eq!((one["congestion_control"].as_str(), one["flow"].as_str()), (Some("reno"), Some("sending")), "{one:#}");
    assert!(one["retransmits"].as_u64() > Some(5), "{one:#}");
    if !warned(&whole, "no_drop_events") {
        // The tracepoint saw the same.
        assert_eq!(one["retransmitted"]["packets"], one["retransmits"], "{one:#}");
    }
    if !warned(&whole, "processes_hidden") {
        assert_eq!(one["program"].as_str().map(|name| name.starts_with("python")), Some(true), "{one:#}");
    }
}

#[test]
fn connections_that_live_shorter_than_a_sample_are_whole() {
    let Some(web) = Web::up("short") else { return };
    longhaul(&["lab", "set", "--name", &web.lab.name, "delay=100us"]);
    let fetch = "for i in 1 2 3 4 5 6 7 8 9 10; do curl -4 -s http://10.77.2.1/small; done";
    let output = on(&web.lab, "client", &[LONGHAUL, "watch", "-J", "--sample", "500ms", "--", "sh", "-c", fetch])
        .output()
        .unwrap();
    let whole = object(&output.stdout);
    if warned(&whole, "short_lived_unowned") || warned(&whole, "ends_unseen") {
        longhaul_testing::skipped!("{}", whole["caveats"]);
        return;
    }
    let all = connections(&whole);
    assert_eq!(all.len(), 10, "{whole:#}");
    for one in all {
        assert_eq!((one["program"].as_str(), one["last_is_final"].as_bool()), (Some("curl"), Some(true)), "{one:#}");
        // Head and body of the answer.
        assert!(one["received_bytes"].as_u64() > Some(150) && one["sent_bytes"].as_u64() > Some(60), "{one:#}");
    }
}

/// ss(8) asks the kernel the same, in its own words.
#[test]
fn bytes_agree_with_ss() {
    let Some(web) = Web::up("ss") else { return };
    let script = "\
import socket, time
a = socket.create_server(('127.0.0.1', 5299)); b = socket.create_connection(('127.0.0.1', 5299)); c, _ = a.accept()
b.sendall(bytes(1234567 // 8)); n = 0
while n < 1234567 // 8: n += len(c.recv(65536))
c.sendall(b'x' * 4321); print('ready', flush=True); time.sleep(60)";
    let mut program = on(&web.lab, "client", &["python3", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = program.id().to_string();
    // Seen from outside: the process's own network namespace is entered.
    let whole = object(&longhaul(&["watch", "-J", "--pid", &pid, "-t", "100ms"]).stdout);
    let ss = on(&web.lab, "client", &["ss", "-tinH", "sport", "=", "5299"]).output().unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    if !is_root_in_namespace() && whole["schema"] == "longhaul.error/1" {
        return longhaul_testing::skipped!("{}", whole["error"]);
    }
    let text = String::from_utf8_lossy(&ss.stdout).into_owned();
    let word = |name: &str| -> u64 {
        let found =
            text.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
        found.parse().unwrap()
    };
    let all = connections(&whole);
    assert_eq!(all.len(), 2, "{whole:#}");
    let far = all.iter().find(|one| one["local"] == "127.0.0.1:5299").unwrap();
    // Both are there before the watch begins: what it counts is what came since, so nothing.
    assert_eq!((far["began"].as_bool(), far["received_bytes"].as_u64()), (Some(false), Some(0)), "{far:#}");
    assert_eq!((far["total_received_bytes"].as_u64(), far["total_sent_bytes"].as_u64()), (Some(154_320), Some(4_321)));
    assert_eq!(word("bytes_received:"), 154_320, "{text}");
    assert_eq!(word("bytes_sent:"), 4_321, "{text}");
    let near = all.iter().find(|one| one["remote"] == "127.0.0.1:5299").unwrap();
    assert_eq!(near["mean_unread_bytes"], 4_321, "{near:#}");
}

#[test]
fn ctrl_c_prints_what_was_seen_and_show_reads_it() {
    let Some(web) = Web::up("ctrl-c") else { return };
    let folder = web.folder.0.join("result");
    let watch = on(&web.lab, "server", &[LONGHAUL, "watch", "--port", "80", "-i", "100ms", "-o"])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = watch.id();
    let curl = on(&web.lab, "client", &["curl", "-s", "-o", "/dev/null", "http://10.77.2.1/large"]).status().unwrap();
    assert!(curl.success());
    Process::open(pid).unwrap().unwrap().signal(Signal::INT).unwrap();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(" cc  ") && text.contains("limit") && text.contains("other end"), "{text}");
    let shown = longhaul(&["show", folder.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("all TCP_INFO fields over time are in samples.parquet"), "{shown}");
    // The tables of each interval come first.
    assert!(text.ends_with(&shown), "{text}\n{shown}");
    assert!(fs::metadata(folder.join("samples.parquet")).unwrap().len() > 10_000);
}

/// An ordinary user sees connections, and is told what is hidden.
#[test]
fn without_root_it_says_what_it_cannot_see() {
    let Some(web) = Web::up("nobody") else { return };
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to be nobody (the other tests run as whoever you are)");
        return;
    }
    let binary = web.folder.0.join("longhaul");
    copy_program(LONGHAUL, &binary);
    fs::set_permissions(&web.folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let mut enter = on(&web.lab, "server", &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    let watch = enter
        .arg(&binary)
        .args(["watch", "-J", "--port", "80", "-t", "3s"])
        .current_dir("/")
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let curl = on(&web.lab, "client", &["curl", "-s", "-o", "/dev/null", "http://10.77.2.1/large"]).status().unwrap();
    assert!(curl.success());
    let whole = object(&watch.wait_with_output().unwrap().stdout);
    let one = only(&whole);
    assert!(one["sent_bytes"].as_u64() > Some(FILE_BYTES as u64) && one["program"].is_null(), "{one:#}");
    for code in ["short_lived_unowned", "no_drop_events", "processes_hidden"] {
        assert!(warned(&whole, code), "{code}: {whole:#}");
    }
    let refused =
        Command::new(&binary).args(["watch", "--pid", "1", "-t", "10ms"]).uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("--pid") && said.contains("as root"), "{said}");
}
