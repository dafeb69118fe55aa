//! The samples of a TCP test, in the folder that `longhaul tcp -o` makes. It goes with this value.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use longhaul_units::Nanos;

use crate::error::Failure;
use crate::folder::random;

/// What the names of such folders begin with.
pub(super) const PREFIX: &str = "tcp-";
/// Ten a second: a test of a minute has 600 rows of each end, some 100 kB.
const EVERY: Nanos = Nanos::from_millis(100);
/// Samples of each end at most, so that a file of a long test can be delivered, too: some 400 kB.
const SAMPLES_MOST: u64 = 2_400;

/// How often a test of this length is sampled.
pub(super) fn every(time: Nanos) -> Nanos {
    EVERY.max(Nanos(time.0.div_ceil(SAMPLES_MOST)))
}

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

    /// The Parquet file with them.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub(in crate::agent) fn read(&self) -> io::Result<Vec<u8>> {
        fs::read(self.0.join("samples.parquet"))
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        // A test that failed left none.
        let _ = fs::remove_dir_all(&self.0);
    }
}
