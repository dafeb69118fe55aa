//! Running the real binary.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod browser;
pub(crate) mod captures;
pub(crate) mod forwarder;
pub(crate) mod group;
pub(crate) mod page;
pub(crate) mod relay;
pub(crate) mod turns;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longhaul_kernel::capability;
use serde_json::Value;

use self::turns::{Kind, Turn};

/// Held by tests that judge rates, times or what CPUs do, so that nothing else of their program runs at that time. `make test` runs guests
/// beside all programs but `timed`.
pub(crate) fn alone() -> Turn {
    Turn::of(Kind::Alone)
}

/// Held by tests that judge times and use little of the machine themselves: some 50 Mbit/s at most, or a short burst. They share it with
/// each other.
pub(crate) fn quiet() -> Turn {
    Turn::of(Kind::Quiet)
}

/// Held by tests that judge no times, or roughly, and whose paths are slower than this machine. They share it with each other.
pub(crate) fn side_by_side() -> Turn {
    Turn::of(Kind::SideBySide)
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is above its crates")
}

/// The binary with `arguments`, in a terminal of 100 columns.
pub(crate) fn longhaul(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .expect("the binary was built with this test")
}

/// What the binary prints on success.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = longhaul(arguments);
    assert!(output.status.success(), "longhaul {}: {output:?}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("longhaul prints UTF-8")
}

/// `text` as the one JSON object that `--json` prints on a line.
pub(crate) fn object(text: &[u8]) -> Value {
    let text = std::str::from_utf8(text).expect("longhaul prints UTF-8");
    assert_eq!(text.lines().count(), 1, "one object on one line: {text}");
    serde_json::from_str(text).expect(text)
}

/// The words of every command, such as `["lab", "up"]`, found by asking each for its help; `[]` is `longhaul` itself.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut at = 0;
    while at < commands.len() {
        let words: Vec<String> = commands[at].clone();
        at += 1;
        let help = help(&words);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What a command does goes on in lines that begin further to the right.
        let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        commands.extend(names.filter_map(|line| {
            let name = line.split_whitespace().next()?;
            Some(words.iter().cloned().chain([name.to_owned()]).collect())
        }));
    }
    assert!(commands.len() > 10, "{commands:?}");
    commands
}

/// What `longhaul COMMAND --help` prints.
pub(crate) fn help(command: &[String]) -> String {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    printed(&arguments)
}

/// Whether process `pid` watches the TCP connections in the network namespace of process `of`: it has a socket of sock_diag(7) there.
pub(crate) fn is_watching(pid: u32, of: u32) -> bool {
    let sockets = std::fs::read_to_string(format!("/proc/{of}/net/netlink")).unwrap_or_default();
    // The second column is the protocol, of which 4 is NETLINK_SOCK_DIAG. The third is the socket's address: the number of the process for its
    // first one (netlink(7)).
    let pid = pid.to_string();
    let own = ["4", pid.as_str()];
    sockets.lines().any(|socket| socket.split_whitespace().skip(1).take(2).eq(own))
}

/// A lab that goes down with this value.
pub(crate) struct TestLab {
    pub(crate) name: String,
}

impl TestLab {
    /// Raises `path`. `None` where this user may not, which is printed; as root that is a failure.
    pub(crate) fn up(name: &str, path: &str) -> Option<Self> {
        Self::up_with(name, path, &[])
    }

    /// The same with options of `lab up`.
    pub(crate) fn up_with(name: &str, path: &str, options: &[&str]) -> Option<Self> {
        let name = format!("{name}-{}", std::process::id());
        let output = longhaul(&[&["lab", "up", path, "--name", &name][..], options].concat());
        if output.status.success() {
            return Some(Self { name });
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert!(!capability::is_root_in_namespace(), "{why}");
        longhaul_testing::no_judge!("{why}");
        None
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        longhaul(&["lab", "down", "--name", &self.name]);
    }
}
