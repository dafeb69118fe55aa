//! `--key FILE`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use longhaul_channel::Key;

use crate::output::Failure;

const KEY_REMEDY: &str = "make a key with `longhaul key new FILE` at one end and copy it to the other";
/// Longest key file that is read.
const FILE_BYTES_MOST: u64 = 8192;

/// Reads a key file.
pub(crate) fn load(file: &Path) -> Result<Key, Failure> {
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MOST).read_to_string(&mut text))
        .map_err(|error| Failure::usage(format!("--key {}: {error}", file.display())).remedy(KEY_REMEDY))?;
    text.parse().map_err(|error| Failure::usage(format!("--key {}: {error}", file.display())))
}
