//! What a measurement comes to, whatever it was read from.

use std::path::Path;

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
