//! Programs in a lab's namespaces, and ending them.

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NamespaceId;
use longhaul_kernel::process::{self, Process};
use longhaul_units::Nanos;

/// How long they have to end when they are asked to.
const ASKED: Nanos = Nanos::from_secs(2);
/// How long the kernel has to end them: one that holds gigabytes in TCP sockets takes seconds, on a busy machine more.
const KILLED: Nanos = Nanos::from_secs(20);
/// So many times programs that are found are asked to end. Those that are there still, or again, are killed at once.
const ASKED_ROUNDS: usize = 3;
/// How many times to look for programs: others have started some meanwhile, and there may be more than this process can hold.
const ROUNDS: usize = 100;
/// So many are named of those that do not end.
const NAMED: usize = 10;

/// Why programs do not end.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// One belongs to somebody else, or `/proc` cannot be read.
    #[error("cannot end the programs in the lab: {0}")]
    Refused(#[from] std::io::Error),
    /// They are there still.
    #[error("programs in the lab were killed and are still ending: {0}")]
    Remain(String),
    /// Others are there for each that has ended.
    #[error("programs in the lab start others faster than these end: {0} were ended")]
    Multiply(usize),
}

/// Ends the programs in `namespaces` but this one, and returns their number once they have ended: with `SIGTERM`, and
/// after 2 s with `SIGKILL`. As many at a time as this process may have descriptors.
///
/// # Errors
/// [`ProgramsError::Remain`] and [`ProgramsError::Multiply`] after 20 s more.
pub(crate) fn end(namespaces: &[NamespaceId]) -> Result<usize, ProgramsError> {
    let until = monotonic() + ASKED + KILLED;
    let mut ended = 0;
    for round in 0..ROUNDS {
        let found = process::in_namespaces(namespaces)?;
        if found.is_empty() {
            return Ok(ended);
        }
        let now = monotonic();
        if now >= until {
            break;
        }
        let count = found.len();
        let asked = if round < ASKED_ROUNDS { ASKED } else { Nanos::ZERO };
        let left = process::end(found, asked, until.saturating_sub(now + asked))?;
        if !left.is_empty() {
            return Err(ProgramsError::Remain(named(&left)));
        }
        ended += count;
    }
    Err(ProgramsError::Multiply(ended))
}

/// The first of `processes` by name and number.
fn named(processes: &[Process]) -> String {
    let name = |process: &Process| format!("{} ({})", process.name(), process.pid());
    let first = processes.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    match processes.len().saturating_sub(NAMED) {
        0 => first,
        others => format!("{first}, and {others} others"),
    }
}
