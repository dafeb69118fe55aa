//! The right to change settings and state: one process has it at a time.
//!
//! It is a lock on a file of the folder, not on the folder: who may look into the folder can open it, and flock(2) takes any descriptor. The file
//! is for its owner alone and has the number of the process that holds it. It ends with the lock, unless the folder has a state: to put that back
//! must take nothing of a disk that may be full by then. After a killed process it is left, without a lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;
use rustix::fs::OFlags;

/// The file's name.
const NAME: &str = ".lock";
/// Who holds it changes some tens of settings: that takes milliseconds, with network cards that reset their rings some seconds.
const PATIENCE: Nanos = Nanos::from_secs(5);
const LOOK_AGAIN: Nanos = Nanos::from_millis(20);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    /// So that the path leads there.
    _folder: OpenFolder,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let alone = || Some(fs::read_dir(self.path.parent()?).ok()?.nth(1).is_none());
        if alone() == Some(true) {
            // Before the lock ends, so that it is this one's.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why it was not taken.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// Another process has it: its number, where the file says it.
    Held(Option<u32>),
    /// The file could not be made or opened.
    Failed(io::Error),
}

impl From<io::Error> for NotLocked {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Lock {
    /// Waits for others, for some seconds at most, or until `gives_up`.
    pub(crate) fn take(folder: &OpenFolder, gives_up: fn() -> bool) -> Result<Self, NotLocked> {
        let path = folder.path().join(NAME);
        let deadline = monotonic().saturating_add(PATIENCE);
        loop {
            let mut file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {
                    // Who had it until now removed it, and another process may have made one anew.
                    let is_there = fs::symlink_metadata(&path).is_ok_and(|there| same(&there, &file));
                    if is_there {
                        // The number is for people: on a full disk settings must be put back without it.
                        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                        return Ok(Self { path, _folder: folder.clone(), _file: file });
                    }
                }
                Err(TryLockError::WouldBlock) => {
                    let now = monotonic();
                    if now >= deadline || gives_up() {
                        let mut text = String::new();
                        let _ = file.take(16).read_to_string(&mut text);
                        return Err(NotLocked::Held(text.parse().ok()));
                    }
                    sleep_until(now.saturating_add(LOOK_AGAIN));
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }
}

/// Opens the file, or makes it. Only who may write to the folder can have put it there.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    let found = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() || found.mode() & 0o077 != 0 || ![0, own].contains(&found.uid()) {
        let why = format!("{NAME} in this folder is not a file of longhaul that only its owner can use; remove it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

fn same(there: &fs::Metadata, open: &File) -> bool {
    open.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()))
}
