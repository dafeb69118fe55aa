//! Path files on disk.

use std::cell::Cell;
use std::io;
use std::path::{Component, Path};

use longhaul_units::read_text;

use super::{PathSpec, SpecError};

/// A path file that is longer is none: its tables fit in a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Ten million packet numbers of up to eleven digits, a line each: in all files that a path names.
const LIST_BYTES_MAX: u64 = 128 << 20;

impl PathSpec {
    /// Reads a path file. The files that it names lie in its folder or below; a path without a name gets the file's.
    ///
    /// # Errors
    /// Where it cannot be read, is longer than 1 MiB, or as [`PathSpec::parse`] says, each with the file's name.
    pub fn load(path: &Path) -> Result<Self, SpecError> {
        let shown = path.display().to_string();
        let text = read_text(path, FILE_BYTES_MAX).map_err(|error| {
            let message = super::error::one_line(&error.to_string(), 400);
            SpecError { message, ..SpecError::default() }.in_file(&shown)
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let left = Cell::new(LIST_BYTES_MAX);
        let read = |name: &str| {
            let text = read_beside(folder, name, left.get())?;
            left.set(left.get() - text.len() as u64);
            Ok(text)
        };
        let mut spec = Self::parse(&text, &read).map_err(|error| error.in_file(&shown))?;
        if spec.name.is_empty() {
            spec.name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            spec.validate().map_err(|error| error.in_file(&shown))?;
        }
        Ok(spec)
    }
}

/// For [`PathSpec::parse`] where a text may name no files.
///
/// # Errors
/// Always.
pub fn no_files(_: &str) -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no other file can be named here"))
}

/// A path file from elsewhere must not make root read (and show parts of) any file of the machine.
fn read_beside(folder: &Path, name: &str, most_bytes: u64) -> io::Result<String> {
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !inside {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, OUTSIDE));
    }
    // A link may lead out of the folder.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (folder, file) = (folder.canonicalize()?, folder.join(name).canonicalize()?);
    if !file.starts_with(&folder) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, OUTSIDE));
    }
    read_text(&file, most_bytes).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData if most_bytes < LIST_BYTES_MAX => io::Error::new(
            error.kind(),
            format!("the files that a path names are longer than {LIST_BYTES_MAX} bytes together"),
        ),
        _ => error,
    })
}

const OUTSIDE: &str = "name a file in the folder of the path file or below it";
