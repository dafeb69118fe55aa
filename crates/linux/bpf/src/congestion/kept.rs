//! Kept controls: their links are pinned in the BPF file system, one file each, under their names in the kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::CongestionError;
use crate::support::{OWN_FOLDER, has_folder};

/// The folder in which links are pinned.
pub const KEPT: &str = "/sys/fs/bpf/longhaul/cc";

/// The kernel names of the controls that stay until they are unloaded, in alphabetical order.
///
/// # Errors
/// [`CongestionError::Keep`] where the caller may not look: that takes root.
pub fn kept() -> Result<Vec<String>, CongestionError> {
    let entries = match fs::read_dir(KEPT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read", Path::new(KEPT), source)),
    };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// The kernel unloads a control within some milliseconds; after this time it is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Unloads the control with this name, and waits until the name is free. Connections that use it keep it until they close; the kernel
/// frees its programs with the last of them.
///
/// # Errors
/// [`CongestionError::NotKept`], [`CongestionError::Keep`].
pub fn unload(name: &str) -> Result<(), CongestionError> {
    let path = path_of(name).ok_or_else(|| CongestionError::NotKept { name: name.into() })?;
    has_folder(KEPT).map_err(|source| failed("remove", &path, source))?;
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CongestionError::NotKept { name: name.into() });
        }
        Err(source) => return Err(failed("remove", &path, source)),
    }
    let deadline = Instant::now() + PATIENCE;
    while is_registered(name) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Leaves nothing behind. It is no error that other controls are kept there.
    for folder in [KEPT, OWN_FOLDER] {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

fn is_registered(name: &str) -> bool {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    list.split_whitespace().any(|one| one == name)
}

/// The file of the control `name`; `None` where that is no valid name.
pub(super) fn path_of(name: &str) -> Option<PathBuf> {
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| Path::new(KEPT).join(name))
}

pub(super) fn failed(step: &'static str, path: &Path, source: io::Error) -> CongestionError {
    CongestionError::Keep { step, path: path.display().to_string(), source }
}
