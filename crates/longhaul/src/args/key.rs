//! `--key FILE`.

use std::path::Path;

use longhaul_channel::Key;
use longhaul_kernel::secret_file::read_secret;

use crate::output::Failure;

const KEY_REMEDY: &str = "make a key with `longhaul key new FILE` at one end and copy it to the other";
/// Longest key file that is read.
const FILE_BYTES_MOST: u64 = 8192;

/// Reads a key file, which only its owner may read or write.
pub(crate) fn load(path: &Path) -> Result<Key, Failure> {
    let text = read_secret(path, FILE_BYTES_MOST).map_err(|error| {
        let remedy = error.remedy(path).unwrap_or_else(|| KEY_REMEDY.into());
        Failure::usage(format!("--key {}: {error}", path.display())).remedy(remedy)
    })?;
    text.parse().map_err(|error| Failure::usage(format!("--key {}: {error}", path.display())))
}
