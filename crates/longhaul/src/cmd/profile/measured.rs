//! What a measurement comes to, whatever it was read from.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_captures::reader::capture_files;
use longhaul_profile::Probes;

/// The samples in the folder of `longhaul tcp -o`.
pub(super) const SAMPLES: &str = "samples.parquet";
/// A path's name has at most so many characters.
const NAME_MAX: usize = 60;

/// A measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) probes: Probes,
    /// For a path made of it.
    pub(crate) name: String,
    /// Where it is from, in a line.
    pub(crate) source: String,
}

/// The name of a path that is made of `path`.
pub(super) fn name_of(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).filter(|stem| stem != "-");
    stem.map_or_else(|| "measured".to_owned(), |stem| plain(&stem))
}

/// Without control characters, and not too long.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

/// What may be read at `path`: the tables and captures of a folder; of anything else itself.
pub(super) fn files_of(path: &Path) -> Vec<PathBuf> {
    capture_files(path).unwrap_or_default()
}

/// The length of a file, or of those files of a folder; 0 where it cannot be known.
pub(super) fn bytes_of(path: &Path) -> u64 {
    let lengths = files_of(path).into_iter().map(|file| fs::metadata(file).map_or(0, |about| about.len()));
    lengths.fold(0, u64::saturating_add)
}
