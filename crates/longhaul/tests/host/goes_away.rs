//! An interface that goes away is told of, and processes that lose their parent are not kept as zombies.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{object, side_by_side};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::name;
use longhaul_kernel::process_sockets::descendants;
use longhaul_testing::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// A host with two cables to itself, `va0` to `va1` and `vb0` to `vb1`.
fn host() -> Option<NetNamespace> {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root)");
        return None;
    }
    let host = NetNamespace::create().unwrap();
    for cable in ["va", "vb"] {
        ip(&host, &format!("link add name {cable}0 type veth peer name {cable}1"));
        ip(&host, &format!("link set {cable}0 up"));
        ip(&host, &format!("link set {cable}1 up"));
    }
    Some(host)
}

fn ip(host: &NetNamespace, words: &str) {
    let status = host.enter(|| Command::new("ip").args(words.split(' ')).status().unwrap()).unwrap();
    assert!(status.success(), "ip {words}");
}

/// The exit code, stdout and stderr of a command whose interface `va0` goes away once it has said `when`.
fn loses_its_interface(arguments: &[&str], when: &str) -> Option<(Option<i32>, String, String)> {
    let host = host()?;
    let mut command = Command::new(LONGHAUL);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = host.enter(|| command.spawn().unwrap()).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(when) {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended: {said}");
    }
    ip(&host, "link del va0");
    stderr.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.code(), String::from_utf8(output.stdout).unwrap(), said))
}

fn caveats(stdout: &str) -> Vec<Value> {
    let whole = object(stdout.as_bytes());
    whole["caveats"].as_array().unwrap().iter().filter(|caveat| caveat["code"] == "interface_gone").cloned().collect()
}

#[test]
fn a_capture_ends_with_its_interface_and_says_so() {
    let _side = side_by_side();
    let folder = std::env::temp_dir().join(format!("longhaul-gone-{}", std::process::id()));
    let spool = folder.to_str().unwrap();
    let Some((code, stdout, said)) = loses_its_interface(&["capture", "va0", "-J", "-o", spool], "Ctrl-C ends") else {
        return;
    };
    fs::remove_dir_all(&folder).unwrap();
    let told = caveats(&stdout);
    assert_eq!((code, told.len()), (Some(1), 1), "{said}");
    assert!(told[0]["message"].as_str().unwrap().contains("va0"), "{told:?}");
    assert!(said.contains("interface va0 was removed"), "{said}");
}

#[test]
fn a_capture_goes_on_with_its_other_interface_and_says_so() {
    let _side = side_by_side();
    let folder = std::env::temp_dir().join(format!("longhaul-gone-one-{}", std::process::id()));
    let spool = folder.to_str().unwrap();
    let run = ["capture", "va0,vb0", "-J", "-t", "2s", "-o", spool];
    let Some((code, stdout, said)) = loses_its_interface(&run, "Ctrl-C ends") else { return };
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, caveats(&stdout).len()), (Some(0), 1), "{said}");
}

#[test]
fn a_filter_ends_with_its_interface_and_says_so() {
    let _side = side_by_side();
    let Some((code, _, said)) = loses_its_interface(&["filter", "attach", "va0"], "counts") else { return };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("va0 was removed"), "{said}");
    assert!(!said.contains("another process"), "{said}");
}

#[test]
fn background_traffic_ends_with_its_interface_and_says_so() {
    let _side = side_by_side();
    let run = ["mix", "va0", "--pps", "1000", "--target", "10.0.0.2", "--target-mac", "02:00:00:00:00:02"];
    let Some((code, _, said)) = loses_its_interface(&run, "Ctrl-C ends") else { return };
    assert!(code == Some(1) && said.contains("va0") && said.contains("deleted"), "{code:?} {said}");
}

/// It runs until it is told to end: what it says meanwhile it says at once.
#[test]
fn an_emulator_says_at_once_that_its_interface_went_away_and_ends_with_an_error() {
    let _side = side_by_side();
    let Some(host) = host() else { return };
    let mut command = Command::new(LONGHAUL);
    command.args(["emulate", "--left", "va0", "--right", "vb0", "--path", "lan", "-J"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut emulator = Program(host.enter(|| command.spawn().unwrap()).unwrap());
    let mut stderr = BufReader::new(emulator.0.stderr.take().unwrap());
    let mut said = String::new();
    let mut wait_for = |when: &str| {
        while !said.contains(when) {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
    };
    wait_for("Ctrl-C ends");
    ip(&host, "link del va0");
    wait_for("interface va0 was removed");
    kill_process(Pid::from_child(&emulator.0), Signal::TERM).unwrap();
    let mut stdout = String::new();
    emulator.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(emulator.0.wait().unwrap().code(), Some(1), "{stdout}");
    let whole = object(stdout.as_bytes());
    assert!(whole["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "port_down"), "{stdout}");
}

/// A command that starts others, in sessions of their own, and leaves them: they become children of `watch`.
#[test]
fn processes_that_a_watched_command_left_are_waited_for() {
    let _side = side_by_side();
    let leave_ten = "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true &); done; echo left; read line";
    let mut command = Command::new(LONGHAUL);
    command.args(["watch", "--", "sh", "-c", leave_ten]);
    let mut watch =
        Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(watch.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "left\n");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let left = descendants(watch.0.id());
        if left.len() == 1 {
            break;
        }
        let names: Vec<_> = left.iter().map(|pid| name(*pid)).collect();
        assert!(Instant::now() < deadline, "besides the command there are {names:?}");
        sleep(Duration::from_millis(5));
    }
    drop(watch.0.stdin.take());
    // `read` met the end of its input.
    assert_eq!(watch.0.wait().unwrap().code(), Some(1));
}
