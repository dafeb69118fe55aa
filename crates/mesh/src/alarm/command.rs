//! A program of the operator's for each alarm. No shell: the alarm is on its standard input.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::Alarm;
use crate::error::Failure;

/// How long the program may take; then it is killed.
const LASTS: Duration = Duration::from_secs(30);

/// Runs `program` with the alarm on its standard input.
///
/// # Errors
/// Where it cannot be started, fails or takes too long.
pub(super) fn run(program: &Path, alarm: &Alarm) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", program.display()));
    let text = serde_json::to_string(alarm).map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // It fits into a pipe, so this never waits. A program need not read it.
        match input.write_all(format!("{text}\n").as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(&error)),
            _ => {}
        }
    }
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            return if status.success() { Ok(()) } else { Err(failed(&status)) };
        }
        if begin.elapsed() > LASTS {
            // It may have ended in this moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(&"took longer than 30 s, so it was killed"));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
