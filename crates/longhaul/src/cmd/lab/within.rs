//! `longhaul lab within`: how `lab run faults` runs a program on a host.
//!
//! It is started in the host's network namespace. It shows the program a `/sys` of that network, and ends it, with all that it started, as
//! soon as nobody holds the other end of its own standard input: the program lives no longer than the process that asked for it.

use std::io::{self, Read};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use longhaul_kernel::mounts;
use rustix::process::{Signal, getpid, kill_process_group, setsid};

use crate::output::{Failure, Outcome};

pub(crate) fn run(words: &[String]) -> Outcome {
    // A group of its own can be ended as one, and the terminal's Ctrl-C is not for it.
    let _ = setsid();
    // A session is a scheduling group of its own: work of others on this machine must not look like a fault.
    longhaul_kernel::schedule::favour_session();
    mounts::private_mounts().map_err(|error| Failure::new("exec", error))?;
    // Most programs do not look at /sys, and in some containers it may not be mounted again.
    let _ = mounts::fresh_sysfs();
    let [program, arguments @ ..] = words else { return Err(Failure::usage("no program to run")) };
    let failed = |error: io::Error| Failure::new("exec", format!("cannot run `{program}`: {error}"));
    let mut child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn().map_err(failed)?;
    thread::spawn(|| {
        // Nothing is ever written there: it ends with its other end.
        let _ = io::stdin().read(&mut [0]);
        let _ = kill_process_group(getpid(), Signal::KILL);
    });
    let status = child.wait().map_err(failed)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
