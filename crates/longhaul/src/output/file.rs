//! Files that the user names, to be written at the end.

use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser, ValueParserFactory};
use longhaul_kernel::new_file::{NamedFile, NewFile};

use crate::output::Failure;
use crate::output::overwrite::Overwrite;

/// A file that a command line names. Its folder is opened as the command line is read: what is written later goes there, and a folder that is
/// missing is told before anything is measured.
#[derive(Debug, Clone)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: Arc<NamedFile>,
}

impl OutputFile {
    /// Looks up `path`.
    pub(crate) fn named(path: &Path) -> Result<Self, Failure> {
        Self::at(path.into()).map_err(|error| Failure::unwritable(path, error))
    }

    fn at(path: PathBuf) -> io::Result<Self> {
        Ok(Self { file: Arc::new(NamedFile::at(&path)?), path })
    }

    /// Begins to write it.
    pub(crate) fn begin(&self) -> Result<NewFile, Failure> {
        self.file.begin().map_err(|error| Failure::unwritable(self, error))
    }

    /// Writes it as a whole, or nothing. A file that took its name since the start is replaced where `overwrite` says so; else `text` is kept
    /// beside it.
    pub(crate) fn write(&self, text: &str, overwrite: Overwrite) -> Result<(), Failure> {
        let new = self.begin()?;
        let written = new.file().write_all(text.as_bytes());
        written.and_then(|()| overwrite.finish_or_keep(new)).map_err(|error| Failure::unwritable(self, error))
    }
}

impl ValueParserFactory for OutputFile {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        ValueParser::new(OsStringValueParser::new().try_map(|path| Self::at(path.into())))
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
