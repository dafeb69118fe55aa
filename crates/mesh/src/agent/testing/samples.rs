//! The samples of a TCP test, in the folder that `longhaul tcp -o` makes. It goes with this value.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Failure;
use crate::folder::random;

/// What the names of such folders begin with.
pub(super) const PREFIX: &str = "tcp-";
/// Ten a second: a test of a minute has 600 rows of each end, some 100 kB.
pub(super) const EVERY: &str = "100ms";

/// The folder.
#[derive(Debug)]
pub(in crate::agent) struct Samples(PathBuf);

impl Samples {
    /// A name in `folder` that nobody has; the test makes it.
    pub(super) fn to_come(folder: &Path) -> Result<Self, Failure> {
        Ok(Self(folder.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(random()?)))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Copies them to `file`.
    ///
    /// # Errors
    /// Where there are none, or the disk does not take them.
    pub(in crate::agent) fn copy(&self, mut file: &File) -> io::Result<()> {
        io::copy(&mut File::open(self.0.join("samples.parquet"))?, &mut file).map(drop)
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        // A test that failed left none.
        let _ = fs::remove_dir_all(&self.0);
    }
}
