//! `--force`: the one way to replace what is there.

use std::path::Path;

use longhaul_kernel::links::followed;

use crate::output::Failure;

/// Whether files and results that are there may be replaced.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Overwrite {
    /// Replace files and results that are there already
    #[arg(long)]
    force: bool,
}

impl Overwrite {
    /// As a command says whose `--force` allows more than this.
    pub(crate) fn by(force: bool) -> Self {
        Self { force }
    }

    /// Whether `--force` was given.
    pub(crate) fn allowed(self) -> bool {
        self.force
    }

    /// Refuses a file that is there, before any work whose result would be lost.
    pub(crate) fn file(self, file: Option<&Path>) -> Result<(), Failure> {
        match file {
            // A device or a pipe has nothing to lose. What a link of another user points to is refused when it is written.
            Some(file) if !self.force && followed(file).is_ok_and(|file| file.is_file()) => {
                Err(there_already(file, "the file is there already"))
            }
            _ => Ok(()),
        }
    }
}

/// The failure for `path`, which is not replaced.
pub(crate) fn there_already(path: &Path, why: &str) -> Failure {
    Failure::new("not_written", format!("{}: {why}", path.display()))
        .remedy("give another name, or replace it by --force")
}
