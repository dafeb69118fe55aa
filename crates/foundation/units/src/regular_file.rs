//! Files that somebody else may have written.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Opens the regular file at `path`.
///
/// # Errors
/// Where it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> Result<File> {
    // Looked at before it is opened: opening a FIFO waits for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// The text of the regular file at `path`, if it has at most `most_bytes`.
///
/// # Errors
/// Where it cannot be read, is no regular file, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> Result<String> {
    let mut text = String::new();
    let length = open(path)?.take(most_bytes + 1).read_to_string(&mut text)? as u64;
    if length > most_bytes {
        return Err(Error::new(ErrorKind::InvalidData, format!("longer than {most_bytes} bytes")));
    }
    Ok(text)
}
