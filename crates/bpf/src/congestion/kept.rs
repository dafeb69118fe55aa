//! Controls that stay: their links are pinned in the BPF file system, one file each, under their names in the kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CongestionError;

/// Where links are pinned.
pub const KEPT: &str = "/sys/fs/bpf/longhaul/cc";

/// The names in the kernel of the controls that stay until they are unloaded, in alphabetical order.
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

/// Unloads the control of that name. Its name is gone at once; connections that use it keep it until they close, and its
/// programs go with the last of them.
///
/// # Errors
/// [`CongestionError::NotKept`], [`CongestionError::Keep`].
pub fn unload(name: &str) -> Result<(), CongestionError> {
    let path = path_of(name).ok_or_else(|| CongestionError::NotKept { name: name.into() })?;
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CongestionError::NotKept { name: name.into() });
        }
        Err(source) => return Err(failed("remove", &path, source)),
    }
    // Nothing is to be left behind; who still keeps others there is no error.
    for folder in [KEPT, "/sys/fs/bpf/longhaul"] {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// The file of the control `name`; `None` where that is no name of one.
pub(super) fn path_of(name: &str) -> Option<PathBuf> {
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| Path::new(KEPT).join(name))
}

pub(super) fn failed(step: &'static str, path: &Path, source: io::Error) -> CongestionError {
    CongestionError::Keep { step, path: path.display().to_string(), source }
}
