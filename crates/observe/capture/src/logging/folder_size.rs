//! How much all captures of a logging host have written, as its folder says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_units::{Bytes, Nanos};

/// How often the folder is looked at, at most.
const EVERY: Nanos = Nanos::from_secs(1);
/// A look at very many files takes long: so many times as long nobody looks again.
const REST: u64 = 20;

/// What the smallest file takes of a disk.
const BLOCK_BYTES: u64 = 4096;

/// The limit of a folder.
#[derive(Debug)]
pub(super) struct FolderSize {
    folder: PathBuf,
    most: Option<Bytes>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    next: Nanos,
}

impl FolderSize {
    /// `folder` by a path that leads there as long as this is used; `most`: bytes that it may have; `None`: any number.
    pub(super) fn new(folder: PathBuf, most: Option<Bytes>) -> Self {
        Self { folder, most, seen: Mutex::default() }
    }

    /// Whether it has all that it may have. What was written since the last look does not count yet.
    pub(super) fn is_full(&self) -> bool {
        let Some(most) = self.most else { return false };
        // Each of its steps is whole.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        if now >= seen.next {
            seen.bytes = bytes_of(&self.folder);
            let took = monotonic().saturating_sub(now);
            seen.next = now.saturating_add(EVERY.max(Nanos(took.0.saturating_mul(REST))));
        }
        seen.bytes >= most.0
    }
}

/// Bytes of the files in the folders of `folder`, a block at least for each of both. No link is followed. A folder that is gone has none.
fn bytes_of(folder: &Path) -> u64 {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let length = |entry: fs::DirEntry| entry.metadata().map_or(0, |about| about.len().max(BLOCK_BYTES));
    let capture = |capture: fs::DirEntry| entries(&capture.path()).map(length).fold(BLOCK_BYTES, u64::saturating_add);
    entries(folder).map(capture).fold(0, u64::saturating_add)
}
