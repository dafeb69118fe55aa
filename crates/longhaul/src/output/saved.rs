//! The folder in which a command saves its result.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_kernel::new_file::{self, NewFile, PUBLIC, without_name};
use longhaul_kernel::open_folder::OpenFolder;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use serde::Serialize;

use crate::output::Failure;
use crate::output::overwrite::{Overwrite, there_already};

/// The result's name in its folder.
const RESULT: &str = "result.json";
/// The runs of an experiment, beside its result.
pub(crate) const RUNS: &str = "runs.jsonl";
/// Longest file that is read: twice the longest result with two directions of 10,000 losses and two hosts of 1,000 queues.
const MOST_BYTES: u64 = 64 << 20;

/// A folder for a result. It is opened once: what is written later is written there, whatever has its name then.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    name: PathBuf,
    open: OpenFolder,
    /// It has a result of before, which goes when the new one begins. Clones share it.
    replaces: Arc<Mutex<bool>>,
}

impl Folder {
    /// A folder whose measurement goes on: later writes replace files of the same name.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Failure> {
        Self::at(&path).map_err(|error| {
            Failure::new("not_written", format!("{}: {error}", path.display()))
                .remedy("give a folder that you can write to")
        })
    }

    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { name: path.to_owned(), open: open_folder_at(path)?, replaces: Arc::default() })
    }

    /// A way to it that no rename changes.
    pub(crate) fn path(&self) -> PathBuf {
        self.open.path()
    }

    /// Makes the folder if it is missing, before the test: no result is lost because it cannot be saved. A result that is there is refused, or
    /// goes with all its files as soon as the first of the new one is written: a test that fails before leaves it.
    pub(crate) fn prepare(path: PathBuf, overwrite: Overwrite) -> Result<Self, Failure> {
        let failed = |why: String| Failure::new("not_written", format!("-o {}: {why}", path.display()));
        let unusable = |error: io::Error| failed(error.to_string()).remedy("give a folder that you can write to");
        let folder = Self::at(&path).map_err(unusable)?;
        let has_runs = folder.has(RUNS);
        if has_runs || folder.has(RESULT) {
            if !overwrite.allowed() {
                let refused = there_already(&path, "the folder has a result already");
                let remedy = "give another name, go on by --resume, or replace it by --force";
                return Err(if has_runs { refused.remedy(remedy) } else { refused });
            }
            *folder.replaces.lock() = true;
        }
        without_name(&folder.path()).map_err(unusable)?;
        Ok(folder)
    }

    /// The same for what is made of `inputs`: a result that is removed may not be one of them.
    pub(crate) fn prepare_beside(path: PathBuf, overwrite: Overwrite, inputs: &[PathBuf]) -> Result<Self, Failure> {
        let folder = path.canonicalize().ok();
        let has_result = [RESULT, RUNS].iter().any(|name| path.join(name).exists());
        let is_file_of_it = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let above = file.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
            is_of_result(&name) && above.and_then(|above| above.canonicalize().ok()) == folder
        };
        // A link, and where it leads to.
        let is_one = |file: &Path| is_file_of_it(file) || file.canonicalize().is_ok_and(|file| is_file_of_it(&file));
        let is_removed = |input: &&PathBuf| {
            let Some(folder) = &folder else { return false };
            if input.canonicalize().ok().as_ref() == Some(folder) {
                return overwrite.allowed() && has_result;
            }
            is_one(input) || input.read_dir().into_iter().flatten().flatten().any(|entry| is_one(&entry.path()))
        };
        if let Some(input) = inputs.iter().find(is_removed) {
            let why = format!("-o {}: the result would take the place of {}", path.display(), input.display());
            return Err(Failure::new("not_written", why).remedy("give another folder"));
        }
        Self::prepare(path, overwrite)
    }

    /// Whether it has a file of this name that stays.
    pub(crate) fn has(&self, name: &str) -> bool {
        !(self.replaces() && is_of_result(name)) && self.path().join(name).exists()
    }

    /// Whether the result of before is still there.
    pub(crate) fn replaces(&self) -> bool {
        *self.replaces.lock()
    }

    /// Removes the result of before, if it is still there. Whoever writes files into the folder by himself calls it first.
    ///
    /// # Errors
    /// A file of it cannot be removed.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut replaces = self.replaces.lock();
        if *replaces {
            remove_result(&self.path())?;
            *replaces = false;
        }
        Ok(())
    }

    /// Saves `envelope` as it is printed. A reader never sees a partial file.
    pub(crate) fn save(&self, envelope: &impl Serialize) -> Result<(), Failure> {
        let write = |text: String| {
            self.begin()?;
            new_file::write(&self.path().join(RESULT), text + "\n")
        };
        serde_json::to_string(envelope).map_err(io::Error::from).and_then(write).map_err(|error| {
            Failure::new("not_written", format!("-o {}: {error}; the result is not saved", self.name.display()))
        })
    }

    /// Writes `text` as the file `name`.
    pub(crate) fn write_text(&self, name: &str, text: &str) -> Result<(), String> {
        self.begin()
            .and_then(|()| new_file::write(&self.path().join(name), text))
            .map_err(|error| format!("{}: {error}", self.name.join(name).display()))
    }

    /// Writes the file `name` by `write`, or nothing.
    pub(crate) fn write(&self, name: &str, write: impl FnOnce(File) -> Result<(), ParquetError>) -> Result<(), String> {
        let path = self.path().join(name);
        let complete = || {
            self.begin()?;
            let new = NewFile::create(&path, PUBLIC)?;
            write(new.file().try_clone()?)?;
            Ok::<_, ParquetError>(new.finish()?)
        };
        complete().map_err(|error| format!("{}: {error}", self.name.join(name).display()))
    }
}

/// What the names of a direction's tables end in.
const ENDINGS: [&str; 2] = ["forward", "backward"];

/// Whether longhaul gives this name to a table of a result: `losses.parquet`, `losses-backward.parquet`, `losses-1-2-3-try2.parquet`,
/// `probes-00001.parquet`. What is not one is somebody else's file.
fn is_table(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".parquet") else { return false };
    let mut parts = stem.split('-');
    let is_known = |part: &str| ["losses", "packets", "samples", "series", "delays", "probes"].contains(&part);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_ending =
        |part: &str| is_number(part) || part.strip_prefix("try").is_some_and(is_number) || ENDINGS.contains(&part);
    parts.next().is_some_and(is_known) && parts.all(is_ending)
}

fn is_of_result(name: &str) -> bool {
    name == RESULT || name == RUNS || is_table(name)
}

/// Removes the result in `folder`, and the tables that belong to one.
fn remove_result(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_of_result(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The folder that the user names, made if it is missing, and open.
///
/// # Errors
/// It cannot be made, or is a link of another user.
pub(crate) fn open_folder_at(path: &Path) -> io::Result<OpenFolder> {
    OpenFolder::make(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            io::Error::new(error.kind(), "it is a file, not a folder")
        }
        _ => error,
    })
}

const NO_RESULT_REMEDY: &str = "give a folder that -o wrote, or a file that --json printed";

/// The text of the result at `path`, a file or a folder with one, and the file's name.
///
/// # Errors
/// There is none; in one line.
pub(crate) fn read_result(path: &Path) -> Result<(PathBuf, String), Failure> {
    if path.is_dir() && holds_a_capture(path) {
        let remedy = format!("run `longhaul analyze {}`", path.display());
        return Err(
            Failure::new("no_result", format!("{} holds a capture, not a result", path.display())).remedy(remedy)
        );
    }
    let in_folder = path.is_dir();
    let file = if in_folder { path.join(RESULT) } else { path.to_owned() };
    let mut text = String::new();
    let mut read = || {
        // Opening a pipe waits for its writer: whoever names one wants that, and in a folder nobody named it.
        if in_folder && !fs::metadata(&file)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // A device or a pipe may have no end.
        File::open(&file)?.take(MOST_BYTES + 1).read_to_string(&mut text)
    };
    let why = match read() {
        Ok(_) if text.len() as u64 > MOST_BYTES => {
            format!("the file is longer than any result ({} MiB)", MOST_BYTES >> 20)
        }
        Ok(_) => return Ok((file, text)),
        Err(error) => error.to_string(),
    };
    Err(no_result(&file, why))
}

fn holds_a_capture(folder: &Path) -> bool {
    let is_spool = |path: PathBuf| path.extension().is_some_and(|end| end == longhaul_captures::spool::EXTENSION);
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(|entry| is_spool(entry.path())))
}

/// The failure for a file that holds no result.
pub(crate) fn no_result(file: &Path, why: impl Display) -> Failure {
    Failure::new("no_result", format!("{}: {why}", file.display())).remedy(NO_RESULT_REMEDY)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `--force` would remove the capture that it is to read.
    #[test]
    fn no_input_is_removed_through_a_link() {
        let folder = std::env::temp_dir().join(format!("longhaul-beside-{}", std::process::id()));
        let (result, captures) = (folder.join("result"), folder.join("captures"));
        fs::create_dir_all(&result).unwrap();
        fs::create_dir(&captures).unwrap();
        for name in [RESULT, "packets.parquet", "other.parquet"] {
            fs::write(result.join(name), "{}").unwrap();
        }
        let refused = |input: &Path| {
            let prepared = Folder::prepare_beside(result.clone(), Overwrite::by(true), &[input.to_owned()]);
            prepared.map(drop).err().map(|failure| failure.message().to_owned())
        };
        let link = captures.join("monday.parquet");
        symlink(result.join("other.parquet"), &link).unwrap();
        assert_eq!((refused(&link), refused(&captures)), (None, None), "it stays");
        fs::remove_file(&link).unwrap();
        symlink(result.join("packets.parquet"), &link).unwrap();
        for input in [&link, &captures, &result, &result.join("packets.parquet")] {
            assert!(refused(input).unwrap().contains("take the place of"), "{}", input.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_tables_of_results_are_removed() {
        for name in [
            "losses.parquet",
            "losses-backward.parquet",
            "packets-forward.parquet",
            "losses-1-2-3-try2.parquet",
            "samples.parquet",
            "series.parquet",
            "delays.parquet",
            "probes-00017.parquet",
        ] {
            assert!(is_table(name), "{name}");
        }
        for name in [
            "packets-of-2024.parquet",
            "samples_of_blood.parquet",
            "seriesfoo.parquet",
            "losses-try.parquet",
            "a.parquet",
            "losses",
        ] {
            assert!(!is_table(name), "{name}");
        }
    }
}
