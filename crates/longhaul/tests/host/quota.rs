//! `longhaul diagnose` names a control group's quota that keeps the sending program from its CPU.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{io, thread};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::no_judge;

use crate::common::group::{Group, Limit};
use crate::common::{alone, object};
use crate::world::{PATIENCE, World, says_by};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// As `ip netns exec` does it: control groups cannot be seen from there.
const OTHER_SYS: &str = "umount -l /sys && mount -t sysfs sysfs /sys && ";

/// A group with a tenth of a CPU: 10 ms of each 100 ms, in microseconds. `None`, which is told, where nobody can judge.
fn a_tenth_of_a_cpu() -> Option<Group> {
    if !is_root_in_namespace() {
        no_judge!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root)");
        return None;
    }
    let one = ("cpu", "cpu.cfs_quota_us", "10000".to_owned());
    let group = Group::new("quota", &Limit { one, two: ("cpu.max", "10000 100000".to_owned()) });
    if group.is_none() {
        no_judge!("no control group with a quota of CPU time can be made");
    }
    group
}

#[test]
fn a_quota_is_named_also_where_control_groups_are_not_mounted() {
    let _alone = alone();
    let Some(group) = a_tenth_of_a_cpu() else { return };
    let world = World::new("quota");
    for (other_sys, port) in [("", "7002"), (OTHER_SYS, "7003")] {
        let script = format!("echo $$ >{}/cgroup.procs && {other_sys}exec \"$0\" \"$@\"", group.folder().display());
        let serve = world.words(&format!("serve --bind 10.96.0.1 -p {port} --key KEY"), 0);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, LONGHAUL]).args(&serve);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = world.far.enter(|| command.spawn().unwrap()).unwrap();
        assert!(says_by(Instant::now() + PATIENCE, server.stderr.take().unwrap(), "listening"));
        // A tenth of a fast CPU carries 4 Gb/s.
        let words = world.words(&format!("diagnose 10.96.0.1 -p {port} --key KEY -R --rate 20G -t 10s -J"), 0);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = world.near.enter(|| Command::new(LONGHAUL).args(&words).output().unwrap()).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let whole = object(&output.stdout);
        let cause = &whole["result"]["causes"][0];
        assert_eq!((cause["code"].as_str(), cause["host"].as_str()), (Some("cpu"), Some("sender")), "{whole:#}");
        let (said, remedy) = (cause["evidence"][0]["text"].as_str(), cause["remedies"][0]["command"].as_str());
        assert!(said.unwrap().contains("quota of 0.10 CPUs"), "{cause:#}");
        assert!(remedy.unwrap().contains(group.folder().to_str().unwrap()), "{cause:#}");
    }
}

/// The watch ends as the process does, whose control group is read all the same.
#[test]
fn the_quota_of_a_process_that_is_watched_is_named() {
    const SENDER: &str = "\
import socket, time
s = socket.create_connection(('10.96.0.1', 7004)); end = time.monotonic() + 4
while time.monotonic() < end: s.sendall(bytes(20000)); sum(range(20000))";
    let _alone = alone();
    let Some(group) = a_tenth_of_a_cpu() else { return };
    let world = World::new("quota-watched");
    let sink = world.far.enter(|| TcpListener::bind("10.96.0.1:7004").unwrap()).unwrap();
    let mut program = Command::new("python3");
    program.args(["-c", SENDER]);
    let mut program = world.near.enter(|| group.within(&program).spawn().unwrap()).unwrap();
    // The shell has become the program, and it has connected.
    let mut connection = sink.accept().unwrap().0;
    let reading = thread::spawn(move || io::copy(&mut connection, &mut io::sink()).unwrap());
    let watch = ["diagnose", "--watch", &program.id().to_string(), "--rate", "5G", "-J"];
    let output = Command::new(LONGHAUL).args(watch).output().unwrap();
    program.wait().unwrap();
    assert!(reading.join().unwrap() > 20_000);
    let whole = object(&output.stdout);
    let cause = &whole["result"]["flows"][0]["causes"][0];
    assert_eq!((cause["code"].as_str(), cause["host"].as_str()), (Some("cpu"), Some("sender")), "{whole:#}");
    assert!(cause["evidence"][0]["text"].as_str().unwrap().contains("quota of 0.10 CPUs"), "{cause:#}");
}
