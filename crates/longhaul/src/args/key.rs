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

/// Reads a key file, which only its owner may read or write, as ssh(1) asks of a private key. The owner is the caller or, with sudo(8), who
/// called it. It may be root: then a group may have rights, such as that of a service.
pub(crate) fn load(path: &Path) -> Result<Key, Failure> {
    let failed =
        |error: std::io::Error| Failure::usage(format!("--key {}: {error}", path.display())).remedy(KEY_REMEDY);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let (owner, own) = (about.uid(), rustix::process::geteuid().as_raw());
    if about.is_file() && ![own, 0].contains(&owner) && !(own == 0 && sudo_caller() == Some(owner)) {
        let message =
            format!("--key {}: user {owner} owns this key, so that user may use and change it", path.display());
        return Err(
            Failure::usage(message).remedy(format!("if you trust what is in it: chown {own} {}", path.display()))
        );
    }
    let denied = if owner == own { 0o077 } else { 0o007 };
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

/// Who called sudo(8).
fn sudo_caller() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}
