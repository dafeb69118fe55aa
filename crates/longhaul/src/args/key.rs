//! `--key FILE`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longhaul_channel::Key;

use crate::output::Failure;

const KEY_REMEDY: &str = "make a key with `longhaul key new FILE` at one end and copy it to the other";
/// Longest key file that is read.
const FILE_BYTES_MOST: u64 = 8192;

/// Reads a key file, which only its owner may read or write, as ssh(1) asks of a private key. A group may have rights to a file that
/// belongs to another user.
pub(crate) fn load(path: &Path) -> Result<Key, Failure> {
    let failed =
        |error: std::io::Error| Failure::usage(format!("--key {}: {error}", path.display())).remedy(KEY_REMEDY);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let denied = if about.uid() == rustix::process::geteuid().as_raw() { 0o077 } else { 0o007 };
    if about.is_file() && about.mode() & denied != 0 {
        let message = format!(
            "--key {}: other users may use this key: its mode is {:04o}",
            path.display(),
            about.mode() & 0o7777
        );
        return Err(Failure::usage(message)
            .remedy(format!("chmod 600 {}; make a new key if others may have read it", path.display())));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MOST).read_to_string(&mut text).map_err(failed)?;
    text.parse().map_err(|error| Failure::usage(format!("--key {}: {error}", path.display())))
}
