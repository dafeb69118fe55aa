//! `serve -D`: a server that outlives its terminal.
//!
//! This process starts the program once more with the same arguments, waits until that one listens, and ends.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use longhaul_kernel::new_file::NamedFile;

use crate::output::{Failure, Outcome, say};

/// Says to the second process that it is the server.
const VARIABLE: &str = "LONGHAUL_SERVE_IN_BACKGROUND";

fn failed(error: io::Error) -> Failure {
    Failure::new("background", format!("cannot go to the background: {error}"))
}

/// Whether this process is the one in the background.
pub(super) fn is_here() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the server's process and waits until it listens, or until it has said why not.
pub(super) fn start() -> Outcome {
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut listening = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut listening).map_err(failed)?;
    }
    if listening.is_empty() {
        let code = child.wait().map_err(failed)?.code();
        return Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    let pid = child.id();
    say(format_args!("{}; kill {pid} ends it", listening.trim_end()));
    Ok(ExitCode::SUCCESS)
}

/// Leaves the terminal of who started this process, tells him `listening`, and goes on without him: what is said from now on goes to the
/// end of `log_file`, or nowhere.
pub(super) fn leave(listening: &str, log_file: Option<&Path>) -> Result<(), Failure> {
    let named =
        |path: &Path, error: io::Error| Failure::new("background", format!("cannot write {}: {error}", path.display()));
    let log: File = match log_file {
        Some(path) => NamedFile::at(path).and_then(|file| file.append()).map_err(|error| named(path, error))?,
        None => OpenOptions::new().write(true).open("/dev/null").map_err(failed)?,
    };
    // It fails only for the leader of a process group, which this is not.
    let _ = rustix::process::setsid();
    // A folder that nobody needs could not be unmounted.
    std::env::set_current_dir("/").map_err(failed)?;
    let _ = writeln!(io::stdout(), "{listening}");
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&log).map_err(|error| failed(error.into()))
}
