//! Programs that end with this one, also when it is killed: `longhaul udp` and `longhaul serve` of a test must not outlive their agent.
//!
//! The kernel sends the signal when the *thread* ends that started the program (prctl(2), `PR_SET_PDEATHSIG`). So that thread has to wait for it.
//! The call must stand between fork and exec; without `unsafe` that is a program, this one, which then becomes the other.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The hidden word for it.
pub(crate) const WORD: &str = "beside";

/// A command that ends with the thread that starts it.
pub(crate) fn command(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WORD).arg(std::process::id().to_string()).arg(program);
    Ok(command)
}

/// What the command above does: the parent's process, the program, its arguments. Returns only where that fails.
pub(crate) fn become_program(arguments: &[OsString]) -> io::Error {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "this word is for longhaul-mesh itself");
    let [parent, program, rest @ ..] = arguments else { return wrong() };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have ended before.
    let own = getppid().map(|parent| parent.as_raw_nonzero().to_string());
    if own.as_deref().map(OsStr::new) != Some(parent) {
        return io::Error::other("who started this has ended");
    }
    Command::new(program).args(rest).exec()
}
