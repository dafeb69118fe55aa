//! Signals end a command also where it waits for somebody who does not read what it prints, or for a hostile server.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe, write};
use serde_json::{Value, json};

use crate::common::captures::Folder;
use crate::common::relay::relay;
use crate::udp_refusals::Server;

/// A pipe that has no room: the end to keep, and the end to write to.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (out, into) = pipe().unwrap();
    fcntl(&into, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while write(into.as_fd(), &[b' '; 4096]).is_ok() {}
    fcntl(&into, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (out, into)
}

/// Whether a thread of the process waits for room in a pipe (proc(5), `wchan`).
fn waits_for_a_reader(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|what| what.contains("pipe_write"))
}

/// Starts `arguments` with a full pipe as stdout, and once it waits sends `signals`. Says how long it took to end behind the last.
fn deaf_for(arguments: &[&str], signals: &[Signal]) -> Duration {
    let (_kept, into) = full_pipe();
    let child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .stdout(Stdio::from(into))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (pid, mut program) = (child.id(), Program(child));
    until("the pipe to be written to", || waits_for_a_reader(pid));
    for (nth, signal) in signals.iter().enumerate() {
        if nth == 2 {
            std::thread::sleep(Duration::from_millis(1_100));
        }
        kill(Pid::from_raw(pid as i32), *signal).unwrap();
    }
    let began = Instant::now();
    while program.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() <= Duration::from_secs(5), "{arguments:?} is deaf");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

#[test]
fn a_result_that_nobody_reads_holds_no_test() {
    let server = Server::start(&["--no-auth"]);
    let with_server = ["127.0.0.1", "-p", &server.port, "--no-auth"];
    for (test, signal) in [
        (&["udp", "-t", "10ms", "--collect", "off"][..], Signal::SIGTERM),
        (&["udp", "-t", "10ms", "--collect", "off", "--json"], Signal::SIGINT),
        (&["tcp", "-t", "10ms"], Signal::SIGTERM),
        (&["rtt", "-i", "10ms", "-c", "3"], Signal::SIGINT),
        (&["sweep", "-l", "64", "-b", "1M", "-t", "10ms", "--repeat", "1"], Signal::SIGTERM),
    ] {
        deaf_for(&[test, &with_server].concat(), &[signal]);
    }
}

#[test]
fn a_result_that_nobody_reads_holds_no_command_without_a_server() {
    let pid = std::process::id().to_string();
    deaf_for(&["watch", "-t", "100ms"], &[Signal::SIGTERM]);
    deaf_for(&["watch", "-t", "100ms", "--json"], &[Signal::SIGINT]);
    deaf_for(&["diagnose", "--watch", &pid, "-t", "100ms"], &[Signal::SIGTERM]);
    if is_root_in_namespace() {
        deaf_for(&["rtt", "127.0.0.1", "--to-each-hop", "-c", "1", "--timeout", "100ms"], &[Signal::SIGINT]);
    } else {
        longhaul_testing::no_judge!("rtt --to-each-hop needs CAP_NET_RAW (run as root)");
    }
}

/// They change what is put back by then. In a network namespace of their own, whose settings are nobody's else.
#[test]
fn a_result_that_nobody_reads_holds_no_command_that_changes_a_host() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("run as root");
        return;
    }
    let folder = Folder::new("deaf");
    let (state, spool) = (folder.file("state"), folder.file("spool"));
    let tune = ["tune", "--rate", "10G", "--rtt", "150ms", "--apply", "--for", "100ms", "--state", &state, "--json"];
    let run = || {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.index_of("lo").unwrap();
        netlink.set_up(lo, true).unwrap();
        deaf_for(&tune, &[Signal::SIGTERM]);
        deaf_for(&["filter", "attach", "lo", "-t", "100ms", "--json"], &[Signal::SIGINT]);
        deaf_for(&["capture", "lo", "-t", "100ms", "-o", &spool, "--json"], &[Signal::SIGTERM]);
        // Why a command failed is read by nobody either. It handles signals by then.
        deaf_for(&["filter", "attach", "none0", "--json"], &[Signal::SIGTERM]);
    };
    NetNamespace::create().unwrap().enter(run).unwrap();
}

#[test]
fn lines_that_nobody_reads_hold_no_command_for_ever() {
    // While it works it looks for signals by itself, so that it can put things back: the third one ends it here.
    deaf_for(&["watch", "-i", "100ms"], &[Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM]);
}

/// For a report one of 137 KB, whole or without its end, of which `told` is told; and nothing afterwards. Every second of 100,000 packets is lost,
/// and each of 30 kinds of events names all packets that a test can have.
fn long_report(mut message: Value, is_whole: bool, told: &Sender<()>) -> Vec<Value> {
    match message["type"].as_str() {
        Some("report") => {}
        Some("alive" | "goodbye") => return Vec::new(),
        _ => return vec![message],
    }
    let mut report: Value = serde_json::from_str(message["text"].as_str().unwrap()).unwrap();
    if let Some(receiver) = report.pointer_mut("/udp/receiver").filter(|receiver| receiver.is_object()) {
        // Runs as a report has them, LEB128 in Base64: of 1 packet after 1, and of 2^34 packets after none.
        let losses = json!({"sent_packets": 1_u64 << 34, "lost_packets": 49_998, "runs": "AQEB".repeat(33_332)});
        receiver["streams"][0]["losses"] = losses;
        let event = |unit: u32| {
            let reason = format!("r{unit}");
            json!({"location": "receiver_ring", "reason": reason, "unit_packets": unit, "runs": "AICAgIBA"})
        };
        receiver["evidence"] = json!([(0..30).map(event).collect::<Vec<_>>()]);
    }
    message["text"] = format!("{report}{}", " ".repeat(if is_whole { 0 } else { 137_000 })).into();
    message["last"] = is_whole.into();
    told.send(()).unwrap();
    vec![message]
}

/// How long a test goes on after Ctrl-C that comes with such a report.
fn goes_on_for(test: &[&str], is_whole: bool) -> Duration {
    let server = Server::start(&["--no-auth"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (told, reported) = channel();
    let to = SocketAddr::from(([127, 0, 0, 1], server.port.parse().unwrap()));
    relay(listener, to, move |message| long_report(message, is_whole, &told));
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(test).args(["127.0.0.1", "-p", &port, "--no-auth"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Program(command.spawn().unwrap());
    reported.recv_timeout(Duration::from_secs(30)).expect("a report");
    kill(Pid::from_raw(program.0.id() as i32), Signal::SIGINT).unwrap();
    let began = Instant::now();
    until("the test to end", || program.0.try_wait().unwrap().is_some());
    began.elapsed()
}

/// They wait for 15 s at most.
#[test]
fn a_server_that_falls_silent_with_its_report_holds_no_test() {
    let udp = &["udp", "-t", "100ms", "--collect", "off"][..];
    thread::scope(|scope| {
        for (test, is_whole) in [
            (udp, true),
            (udp, false),
            (&["tcp", "-t", "100ms"], false),
            (&["rtt", "-i", "10ms", "-c", "3"], false),
            (&["sweep", "-l", "64", "-b", "1M", "-t", "10ms", "--repeat", "1"], false),
        ] {
            scope.spawn(move || {
                let took = goes_on_for(test, is_whole);
                assert!(took < Duration::from_secs(17), "{test:?}, {is_whole}: {took:?}");
            });
        }
    });
}
