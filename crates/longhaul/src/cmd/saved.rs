//! The folder that a result is saved in, whatever the test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use serde::Serialize;
use serde_json::Value;

use crate::output::Failure;

/// The result's name in its folder.
const RESULT: &str = "result.json";
/// Longest file that is read: twice the longest result with two directions of 10,000 losses and two hosts of 1,000 queues.
const MOST_BYTES: u64 = 64 << 20;

/// A folder for a result.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder where it is not there. Before the test, so that no result is lost for want of it.
    pub(crate) fn prepare(path: PathBuf) -> Result<Self, Failure> {
        let failed = |why: String| Failure::new("not_written", format!("-o {}: {why}", path.display()));
        fs::create_dir_all(&path)
            .map_err(|error| failed(error.to_string()).remedy("name a folder that can be written"))?;
        if path.join(RESULT).exists() {
            return Err(failed("there is a result already".into()).remedy("name another folder"));
        }
        let probe = path.join(".writable");
        let written = File::create(&probe).and_then(|_| fs::remove_file(&probe));
        written.map_err(|error| failed(error.to_string()).remedy("name a folder that can be written"))?;
        Ok(Self(path))
    }

    /// Saves `envelope` as it is printed. Whoever looks finds a whole file: it is written beside and moved there.
    pub(crate) fn save(&self, envelope: &impl Serialize) -> Result<(), Failure> {
        let beside = self.0.join("result.part");
        let write = || {
            let mut file = File::create(&beside)?;
            serde_json::to_writer(&mut file, envelope)?;
            file.write_all(b"\n")?;
            fs::rename(&beside, self.0.join(RESULT))
        };
        write().map_err(|error| {
            Failure::new("not_written", format!("-o {}: {error}; the result is not saved", self.0.display()))
        })
    }

    /// Writes the file `name` by `write`.
    pub(crate) fn write(&self, name: &str, write: impl FnOnce(File) -> Result<(), ParquetError>) -> Result<(), String> {
        let path = self.0.join(name);
        let written = File::create(&path).map_err(ParquetError::from).and_then(write);
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// A saved result of any kind.
#[derive(Debug)]
pub(crate) struct SavedText {
    /// The file, for messages.
    pub(crate) file: PathBuf,
    /// As it was printed.
    pub(crate) text: String,
    pub(crate) json: Value,
}

pub(crate) const NO_RESULT_REMEDY: &str = "name a folder that -o wrote, or a file with what --json printed";

impl SavedText {
    /// Reads the result at `path`, a file or a folder with one.
    ///
    /// # Errors
    /// Where it is none, in one line.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let file = if path.is_dir() { path.join(RESULT) } else { path.to_owned() };
        let not =
            |why: String| Failure::new("no_result", format!("{}: {why}", file.display())).remedy(NO_RESULT_REMEDY);
        let mut text = String::new();
        // A device or a pipe may have no end.
        let opened = File::open(&file).map_err(|error| not(error.to_string()))?;
        opened.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| not(error.to_string()))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(not(format!("longer than any result ({} MiB)", MOST_BYTES >> 20)));
        }
        let json = serde_json::from_str(&text).map_err(|error| not(format!("no result of longhaul: {error}")))?;
        Ok(Self { file, text, json })
    }

    /// The name of its form; `None` where it has none.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.json["schema"].as_str()
    }

    /// On one line.
    pub(crate) fn line(&self) -> String {
        if self.text.trim().contains('\n') { self.json.to_string() } else { self.text.trim().to_owned() }
    }
}
