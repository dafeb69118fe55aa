//! Real drops on Linux, each provoked alone: the program must list exactly the sequence numbers that are gone, and say where.
//!
//! Each test makes its own hosts and says `skipped: why` where it may not. With `--nocapture` it prints what it saw.

// Without clang at build time there is nothing to test here.
#![cfg(bpf_programs)]

mod batches;
mod capability;
mod detach;
mod filters;
mod hosts;
mod overhead;
mod queues;
mod sockets;
mod traps;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

/// What `build.rs` made of `tests/hooks`. Generated code is not ours to lint.
#[allow(unsafe_code, missing_docs, unreachable_pub, dead_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/hooks.skel.rs"));
}

/// A command that runs `test` of this program, one marked `ignore`, in a process of its own.
fn child_of_this_test(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command
}

/// Waits until the child prints a line with `text`.
fn wait_for_line(child: &mut Child, text: &str) {
    let output = BufReader::new(child.stdout.as_mut().unwrap());
    let line = output.lines().find(|line| line.as_ref().is_ok_and(|line| line.contains(text)));
    assert!(line.is_some(), "the child ended without saying `{text}`");
}
