//! How many files and connections a server may have open.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use longhaul_testing::program::Program;

use crate::common::captures::{Folder, missing};

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
