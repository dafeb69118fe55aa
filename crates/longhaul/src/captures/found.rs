//! Which files are captures: what a user named, and what lies in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_captures::spool::EXTENSION;

use crate::captures::file::unread;
use crate::output::Failure;

/// What files in a folder end with if they are captures, before an ending of compression.
const ENDINGS: [&str; 5] = ["pcap", "pcapng", "cap", "ntar", "parquet"];

/// Neither file nor folder: what is read of it is gone.
pub(crate) fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

pub(super) fn is_spool(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == EXTENSION)
}

fn is_capture(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    // Rolled files have a number behind their ending: trace.pcap1.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    ENDINGS.iter().any(|ending| name.ends_with(&format!(".{ending}")))
}

/// The files in `folder` that `are` of a kind, by name.
pub(super) fn files_in(folder: &Path, are: fn(&Path) -> bool) -> Result<Vec<PathBuf>, Failure> {
    entries_in(folder, |path| are(path) && path.is_file())
}

/// What in `folder` is `wanted`, by name.
fn entries_in(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| unread(folder, &error))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| wanted(path));
    found.sort();
    Ok(found)
}

/// A spool's folder is one capture; of another folder, each file that looks like one is.
pub(super) fn captures(path: &Path) -> Result<Vec<PathBuf>, Failure> {
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
        return Err(unread(path, &"there is no capture in this folder")
            .remedy("name a folder that `longhaul capture` wrote, or the files themselves"));
    }
    Ok(found)
}
