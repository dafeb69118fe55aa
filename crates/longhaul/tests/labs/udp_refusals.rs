//! What a UDP test cannot do is said in one line with what to do about it, and with `--json` as an object; the server's limits
//! hold.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use longhaul_testing::program::Program;

use crate::common::{longhaul, object};

/// A server on loopback at a port of its own; ended when dropped.
pub(crate) struct Server {
    program: Program,
    pub(crate) port: String,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["serve", "--port", "0"])
            .args(arguments)
            .env_remove("LONGHAUL_HOST")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let port = line.split(';').next().and_then(|said| said.rsplit(':').next()).unwrap_or_default().to_owned();
        assert!(port.parse::<u16>().is_ok(), "{line}");
        // So that it can go on saying things.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { program: Program(child), port }
    }

    fn test(&self, arguments: &[&str]) -> Output {
        let all = ["udp", "127.0.0.1", "-p", &self.port];
        longhaul(&all.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>())
    }

    /// That a test is refused with this code, in a line with all of `parts`.
    fn refuses(&self, arguments: &[&str], code: &str, parts: &[&str]) {
        let all = ["udp", "127.0.0.1", "-p", &self.port];
        refused(&all.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>(), 1, code, parts);
    }
}

fn refused(arguments: &[&str], exit: i32, code: &str, parts: &[&str]) {
    let output = longhaul(&[arguments, &["--json"]].concat());
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {line}");
    let error = &object(&output.stdout)["error"];
    assert_eq!(error["code"], code, "{arguments:?}: {error}");
    assert!(!error["message"].as_str().unwrap().is_empty());
    for part in parts {
        assert!(line.contains(part), "{arguments:?} does not say `{part}`: {line}");
    }
    // Wrong usage names what is allowed; everything else has a remedy of its own.
    assert!(exit == 2 || !error["remedy"].as_str().unwrap().is_empty(), "{arguments:?}: {error}");
}

/// A key file; gone with the value.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("longhaul-{}-{name}.key", std::process::id()));
        assert!(longhaul(&["key", "new", file.to_str().unwrap()]).status.success());
        Self(file)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn hosts_that_are_not_there() {
    refused(&["udp", "no-such-host.invalid", "--no-auth"], 1, "host_unknown", &["no-such-host.invalid"]);
    refused(&["udp", "127.0.0.1", "-p", "1"], 1, "unreachable", &["127.0.0.1:1", "longhaul serve"]);
    // Nobody who speaks the protocol.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = std::io::Write::write_all(&mut stream, b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
        }
    });
    refused(&["udp", "127.0.0.1", "-p", &port], 1, "not_longhaul", &["address and the port"]);
}

#[test]
fn keys_that_do_not_fit() {
    let (ours, theirs) = (KeyFile::new("ours"), KeyFile::new("theirs"));
    let keyed = Server::start(&["--key", theirs.name()]);
    keyed.refuses(&["--key", ours.name()], "wrong_key", &["differ", "copy the key file"]);
    keyed.refuses(&[], "key_required", &["--key"]);
    let open = Server::start(&[]);
    open.refuses(&["--key", ours.name()], "key_missing", &["--no-auth"]);
    refused(&["udp", "127.0.0.1", "--key", "/no/such.key"], 2, "usage", &["/no/such.key"]);
}

#[test]
fn parameters_out_of_range() {
    for (flags, parts) in [
        (&["-b", "5"][..], &["-b", "1kbit"][..]),
        (&["-b", "fast"], &["--rate", "fast"]),
        (&["-l", "17"], &["-l", "18"]),
        (&["-l", "65508"], &["-l", "65507"]),
        (&["-t", "25h"], &["-t", "24h"]),
        (&["-t", "0"], &["-t", "1ms"]),
        (&["-k", "0"], &["--packets", "give 1 or more"]),
        (&["-w", "1"], &["-w", "2K"]),
        (&["-P", "65"], &["-P", "64"]),
        (&["-P", "0"], &["-P", "64"]),
        (&["--spacing", "0"], &["--spacing", "1ns"]),
        (&["--burst", "0"], &["--burst", "65536"]),
        (&["-i", "1ms"], &["-i", "100ms"]),
        (&["-A", "9000"], &["-A", "8191"]),
        (&["-R", "--bidir"], &["-R", "--bidir"]),
    ] {
        refused(&[&["udp", "127.0.0.1"], flags].concat(), 2, "usage", parts);
    }
}

#[test]
fn cpus_that_are_not_there() {
    let server = Server::start(&[]);
    for flags in [&["-A", "8000"][..], &["-A", "0,8000"], &["-A", "8000", "-R"]] {
        server.refuses(flags, "no_such_cpu", &["8000", "may use CPUs", "taskset"]);
    }
}

/// A CPU that is not there is found where the server sets to work, thus behind what it refuses; nothing is changed here.
#[test]
fn settings_of_the_servers_host_are_for_those_it_knows() {
    let key = KeyFile::new("settings");
    let bind = ["-A", "0,8000", "--softirq", "same"];
    let refusal = ["--softirq same", "serve --host-settings allow"];
    let open = ["--bind", "0.0.0.0", "--no-auth"];
    Server::start(&open).refuses(&bind, "not_granted", &refusal);
    Server::start(&open).refuses(&["-A", "0,0,0"], "not_granted", &["-A (softirq on CPU 0)", refusal[1]]);
    Server::start(&[&open[..], &["--host-settings", "allow"]].concat()).refuses(&bind, "no_such_cpu", &["8000"]);
    // Any user of this machine reaches loopback.
    Server::start(&[]).refuses(&bind, "not_granted", &refusal);
    Server::start(&["--host-settings", "allow"]).refuses(&bind, "no_such_cpu", &["8000"]);
    let keyed = Server::start(&["--bind", "0.0.0.0", "--key", key.name()]);
    keyed.refuses(&[&bind[..], &["--key", key.name()]].concat(), "no_such_cpu", &["8000"]);
    let refusing = Server::start(&["--bind", "0.0.0.0", "--key", key.name(), "--host-settings", "refuse"]);
    refusing.refuses(&[&bind[..], &["--key", key.name()]].concat(), "not_granted", &refusal);
}

#[test]
fn the_servers_limits_hold() {
    let server = Server::start(&["--time-cap", "2s", "--rate-cap", "2M", "--length-cap", "1000", "--queue", "0"]);
    server.refuses(&["-l", "1001", "-b", "1M", "-t", "1"], "not_granted", &["-l 1001", "1000 bytes"]);
    server.refuses(&["-l", "500", "-b", "3M", "-t", "1"], "not_granted", &["-b", "2Mbit"]);
    server.refuses(&["-l", "500", "-b", "1500k", "-P", "2", "-t", "1"], "not_granted", &["-b", "2Mbit"]);
    server.refuses(&["-l", "500", "-b", "1M", "-t", "3"], "test_too_long", &["-t 3s", "2s"]);
    // As fast as it goes is as fast as is allowed, and a number of packets ends with the time: not all of them were sent.
    for direction in [&[][..], &["-R"]] {
        let output = server.test(&[&["-l", "500", "-b", "0", "-k", "1000000", "-J"], direction].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = object(&output.stdout);
        let number = |name: &str| said["result"][name].as_u64().unwrap();
        let (rate, time) = (number("sent_rate_bps"), number("duration_ns"));
        assert!((1_500_000..2_100_000).contains(&rate), "{rate}");
        assert!((1_500_000_000..4_000_000_000).contains(&time), "{time}");
        let caveats = said["caveats"].to_string();
        assert!(caveats.contains("rate_capped") && caveats.contains("this server allows 2s"), "{caveats}");
    }
    // Probes of 500 bytes each millisecond are 4 Mb/s.
    let probes = |every| ["rtt", "127.0.0.1", "-p", &server.port, "-l", "500", "-i", every, "-t", "200ms"];
    refused(&probes("1ms"), 1, "not_granted", &["-i", "4Mbit", "2Mbit"]);
    assert!(longhaul(&probes("4ms")).status.success());
    // One at a time: the first has its place when it reports an interval.
    let mut first = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args([
            "udp",
            "127.0.0.1",
            "-p",
            &server.port,
            "-l",
            "500",
            "-b",
            "1M",
            "-t",
            "2",
            "-i",
            "100ms",
            "--json-stream",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reports = BufReader::new(first.stdout.take().unwrap());
    reports.read_line(&mut String::new()).unwrap();
    let busy = server.test(&["-l", "500", "-b", "1M", "-k", "1", "-J"]);
    let error = &object(&busy.stdout)["error"];
    assert_eq!((error["code"].as_str(), busy.status.code()), (Some("busy"), Some(1)), "{error}");
    assert!(error["remedy"].as_str().unwrap().starts_with("try again in"), "{error}");
    std::io::copy(&mut reports, &mut std::io::sink()).unwrap();
    assert!(first.wait().unwrap().success());
}

/// What a test would have the server hold.
#[test]
fn the_servers_memory_is_bounded() {
    let server = Server::start(&["--block-cap", "1MiB", "--buffer-cap", "2MiB", "--memory-cap", "64MiB"]);
    let test = ["tcp", "127.0.0.1", "-p", &server.port, "-t", "1"];
    for (flags, parts) in [
        (&["-l", "2MiB"][..], ["-l 2MiB", "allows 1MiB"]),
        (&["-w", "4MiB"], ["-w 4MiB", "allows 2MiB"]),
        (&["-w", "2MiB", "-P", "32"], ["-w 2MiB", "allows 64MiB"]),
    ] {
        refused(&[&test[..], flags].concat(), 1, "not_granted", &parts);
    }
}

/// Without options: readers that are slow would have the kernel hold 256 GiB.
#[test]
fn a_server_without_options_bounds_its_memory() {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kib: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    if kib >> 20 >= 1024 {
        longhaul_testing::skipped!("a quarter of this machine's memory has room for it");
        return;
    }
    let server = Server::start(&[]);
    let test = ["tcp", "127.0.0.1", "-p", &server.port, "-t", "1", "-w", "2G", "--read-rate", "1K", "-P", "64"];
    refused(&test, 1, "not_granted", &["-w 2GiB", "64 sockets", "allows"]);
}

#[test]
fn a_buffer_that_is_not_granted_is_said() {
    let server = Server::start(&[]);
    let output = server.test(&["-l", "500", "-b", "1M", "-k", "20", "-w", "2G", "-J"]);
    assert!(output.status.success(), "{output:?}");
    let caveats = object(&output.stdout)["caveats"].to_string();
    assert!(caveats.contains("buffer_not_granted") && caveats.contains("the kernel gave"), "{caveats}");
}

#[test]
fn a_server_for_one_test_can_be_interrupted() {
    let mut server = Server::start(&["--once"]);
    // A client that says nothing.
    let _silent = std::net::TcpStream::connect(("127.0.0.1", server.port.parse::<u16>().unwrap())).unwrap();
    let pid = server.program.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(9);
    while server.program.0.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < deadline, "it still waits for the client");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
