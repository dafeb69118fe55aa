//! How many files and connections a server may have open, and a lab that may have few.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::program::Program;

use crate::common::captures::{Folder, missing};
use crate::common::{TestLab, longhaul, side_by_side};

/// Each connection takes two or three, and most systems begin with 1,024.
#[test]
fn servers_have_as_many_as_the_hard_limit_allows() {
    if missing("prlimit") {
        return;
    }
    let folder = Folder::new("open-files");
    for command in [&["serve"][..], &["log", "--output", &folder.file("log")]] {
        let mut limited = Command::new("prlimit");
        limited.args(["--nofile=128:512", env!("CARGO_BIN_EXE_longhaul")]).args(command);
        limited.args(["--port", "0", "--no-auth"]).env_remove("LONGHAUL_HOST").stderr(Stdio::piped());
        let mut program = Program(limited.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(program.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("Ctrl-C ends"), "{command:?}: {line}");
        let limits = fs::read_to_string(format!("/proc/{}/limits", program.0.id())).unwrap();
        let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(open.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["512", "512"], "{command:?}");
    }
}

/// Who ends a lab holds its programs until they have ended: here fewer at a time than there are.
#[test]
fn a_lab_ends_more_programs_than_it_may_have_files() {
    if missing("prlimit") {
        return;
    }
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to make a lab");
        return;
    }
    let _side = side_by_side();
    let lab = TestLab { name: format!("crowded-{}", std::process::id()) };
    let mut up = Command::new("prlimit");
    up.args(["--nofile=128:128", env!("CARGO_BIN_EXE_longhaul"), "lab", "up", "lan", "--name", &lab.name]);
    let up = up.output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let start = "for n in $(seq 200); do sleep 600 >/dev/null 2>&1 & echo $!; done";
    let started = longhaul(&["lab", "exec", "--name", &lab.name, "client", "--", "sh", "-c", start]);
    let programs = String::from_utf8(started.stdout).unwrap();
    assert_eq!(programs.lines().count(), 200, "{programs}");
    let down = longhaul(&["lab", "down", "--name", &lab.name]);
    assert!(down.status.success(), "{down:?}");
    // One that has ended and that nobody has asked how has no network any more.
    let runs = |pid: &&str| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok();
    let left: Vec<&str> = programs.lines().filter(runs).collect();
    assert!(left.is_empty(), "{left:?}");
}
