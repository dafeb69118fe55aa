//! Files that the user names, to be written at the end.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_kernel::new_file::{NamedFile, NewFile};

use crate::output::Failure;

/// A file that a command line names. Its folder is opened as the command line is read: what is written later goes there.
#[derive(Debug, Clone)]
pub(crate) struct OutputFile {
    path: PathBuf,
    /// An error is told when the file is written.
    opened: Arc<io::Result<NamedFile>>,
}

impl OutputFile {
    /// Begins to write it.
    pub(crate) fn begin(&self) -> Result<NewFile, Failure> {
        let opened = self.opened.as_ref().as_ref().map_err(|error| Failure::unwritable(self, error))?;
        opened.begin().map_err(|error| Failure::unwritable(self, error))
    }

    /// Writes it as a whole, or nothing.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let opened = self.opened.as_ref().as_ref().map_err(|error| Failure::unwritable(self, error))?;
        opened.write(text).map_err(|error| Failure::unwritable(self, error))
    }
}

impl From<PathBuf> for OutputFile {
    fn from(path: PathBuf) -> Self {
        Self { opened: Arc::new(NamedFile::at(&path)), path }
    }
}

impl From<OsString> for OutputFile {
    fn from(path: OsString) -> Self {
        PathBuf::from(path).into()
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
