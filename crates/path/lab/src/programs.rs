//! Programs in a lab's namespaces, and ending them.

use longhaul_kernel::namespace::NamespaceId;
use longhaul_kernel::process::{self, Process};
use longhaul_units::Nanos;

/// How long they have to end when they are asked to.
const ASKED: Nanos = Nanos::from_secs(2);
/// How long the kernel has to end them: one that holds gigabytes in TCP sockets takes seconds, on a busy machine more.
const KILLED: Nanos = Nanos::from_secs(20);
/// How many times to look for programs that others have started meanwhile.
const ROUNDS: usize = 3;

/// Why programs do not end.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// One belongs to somebody else, or `/proc` cannot be read.
    #[error("cannot end the programs in the lab: {0}")]
    Refused(#[from] std::io::Error),
    /// They are there still.
    #[error("programs in the lab are still ending {KILLED} after they were killed: {0}")]
    Remain(String),
}

/// Ends the programs in `namespaces` but this one, and returns their number once they have ended: with `SIGTERM`, and
/// after 2 s with `SIGKILL`.
///
/// # Errors
/// [`ProgramsError::Remain`] after 20 s more.
pub(crate) fn end(namespaces: &[NamespaceId]) -> Result<usize, ProgramsError> {
    let mut ended = 0;
    for _ in 0..ROUNDS {
        let mut found = Vec::new();
        for namespace in namespaces {
            found.extend(process::in_namespace(*namespace)?);
        }
        found.retain(|process| process.pid() != std::process::id());
        if found.is_empty() {
            break;
        }
        ended += found.len();
        let left = process::end(found, ASKED, KILLED)?;
        if !left.is_empty() {
            let name = |process: &Process| format!("{} ({})", process.name(), process.pid());
            return Err(ProgramsError::Remain(left.iter().map(name).collect::<Vec<_>>().join(", ")));
        }
    }
    Ok(ended)
}
