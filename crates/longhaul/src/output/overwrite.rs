//! `--force`: the one way to replace what is there.

use std::io;
use std::path::Path;

use longhaul_kernel::links::followed;
use longhaul_kernel::new_file::NewFile;

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

    /// Gives `new` its name. Without `--force` a file stays that was made there since the start.
    ///
    /// # Errors
    /// `AlreadyExists` where there is one; otherwise as [`NewFile::finish`].
    pub(crate) fn finish(self, new: NewFile) -> io::Result<()> {
        if self.force {
            return new.finish();
        }
        new.finish_new().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => made_meanwhile(""),
            _ => error,
        })
    }

    /// The same for what nobody may be able to measure again: without its name it is kept under another one, which the error says.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub(crate) fn finish_or_keep(self, new: NewFile) -> io::Result<()> {
        if self.force {
            return new.finish();
        }
        match new.finish_beside()? {
            None => Ok(()),
            Some(other) => {
                Err(made_meanwhile(&format!("; the new content is in {} beside it", other.to_string_lossy())))
            }
        }
    }
}

/// The error for a name that was free at the start.
fn made_meanwhile(more: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("a file of this name was created meanwhile; it is kept{more}"))
}

/// The failure for `path`, which is not replaced.
pub(crate) fn there_already(path: &Path, why: &str) -> Failure {
    Failure::new("not_written", format!("{}: {why}", path.display()))
        .remedy("give another name, or replace it by --force")
}
