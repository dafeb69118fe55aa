//! Which files are captures: named files, and files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::{OpenError, Reason};
use crate::spool::EXTENSION;

/// Endings of capture files, before an ending of compression.
const ENDINGS: [&str; 5] = ["pcap", "pcapng", "cap", "ntar", "parquet"];

/// Whether `path` is neither file nor folder, so that it can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

pub(super) fn is_spool(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == EXTENSION)
}

fn is_capture(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    // Rotated files have a number after their ending: trace.pcap1.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    ENDINGS.iter().any(|ending| name.ends_with(&format!(".{ending}")))
}

/// Files in `folder` for which `are` holds, sorted by name.
pub(super) fn files_in(folder: &Path, are: fn(&Path) -> bool) -> Result<Vec<PathBuf>, OpenError> {
    entries_in(folder, |path| are(path) && path.is_file())
}

/// Entries of `folder` that are `wanted`, sorted by name.
fn entries_in(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, OpenError> {
    let entries = fs::read_dir(folder).map_err(|error| OpenError::new(folder, error))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| wanted(path));
    found.sort();
    Ok(found)
}

/// The files of the captures at `path`, as [`Captures::open`](super::Captures::open) would read them.
///
/// # Errors
/// A folder cannot be read, or has no capture in it.
pub fn capture_files(path: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut files = Vec::new();
    for capture in captures_at(path)? {
        if capture.is_dir() {
            files.extend(files_in(&capture, is_spool)?);
        } else {
            files.push(capture);
        }
    }
    Ok(files)
}

/// The captures at `path`. A spool's folder is one capture; any other folder has one for each file that looks like one, and for each
/// spool's folder in it.
pub(super) fn captures_at(path: &Path) -> Result<Vec<PathBuf>, OpenError> {
    if !path.is_dir() || !files_in(path, is_spool)?.is_empty() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = files_in(path, is_capture)?;
    // What `longhaul log` writes into: a folder of spools.
    for folder in entries_in(path, Path::is_dir)? {
        if !files_in(&folder, is_spool)?.is_empty() {
            found.push(folder);
        }
    }
    if found.is_empty() {
        return Err(OpenError::new(path, Reason::NoCaptureInFolder));
    }
    Ok(found)
}
