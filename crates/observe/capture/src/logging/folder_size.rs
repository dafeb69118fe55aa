//! How much all captures of a logging host have written: what its folder had when it was looked at, and what was added since.
//!
//! A look at very many files takes long. A thread of its own looks, and those that receive wait for nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use longhaul_kernel::clock::monotonic;
use longhaul_units::{Bytes, Nanos};

/// How often the folder is looked at, at most.
const EVERY: Nanos = Nanos::from_secs(1);
/// After a look nobody looks again for so many times as long as it took.
const REST: u64 = 20;
/// Nor for so many times that rest, where no capture has written since and there is room: what others add or remove can wait until one does.
const IDLE_RESTS: u64 = 10;

/// What the smallest file takes of a disk.
const BLOCK_BYTES: u64 = 4096;

/// The limit of a folder.
#[derive(Debug)]
pub(super) struct FolderSize {
    folder: PathBuf,
    most: Option<Bytes>,
    /// Bytes at the last look, less what had been added when it began.
    seen: AtomicI64,
    /// Bytes that captures wrote since the start, less those that they removed.
    added: AtomicI64,
}

impl FolderSize {
    /// Looks at `folder`, a path that leads there as long as this is used; `most`: bytes that it may have; `None`: any number.
    pub(super) fn new(folder: PathBuf, most: Option<Bytes>) -> Self {
        let size = Self { folder, most, seen: AtomicI64::new(0), added: AtomicI64::new(0) };
        if most.is_some() {
            size.look(bytes_of);
        }
        size
    }

    /// A capture has so many bytes more than it had before, or less where this is negative.
    pub(super) fn add(&self, bytes: i64) {
        self.added.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the folder has all that it may have.
    pub(super) fn is_full(&self) -> bool {
        let Some(most) = self.most else { return false };
        let bytes = self.seen.load(Ordering::Relaxed).saturating_add(self.added.load(Ordering::Relaxed));
        u64::try_from(bytes).unwrap_or(0) >= most.0
    }

    /// Looks at the folder again and again, where it has a limit, until the other end of `over` is dropped.
    pub(super) fn keep_looking(&self, over: &Receiver<()>) {
        let mut last = Look { ended: monotonic(), rest: EVERY, added: self.added.load(Ordering::Relaxed) };
        while self.most.is_some() && over.recv_timeout(last.rest.into()) == Err(RecvTimeoutError::Timeout) {
            let began = monotonic();
            if self.is_due(&last, began) {
                let added = self.added.load(Ordering::Relaxed);
                self.look(bytes_of);
                let ended = monotonic();
                let rest = EVERY.max(Nanos(ended.saturating_sub(began).0.saturating_mul(REST)));
                last = Look { ended, rest, added };
            }
        }
    }

    /// Whether to look at the time `now`, when the rest after the `last` look is over. A full folder is looked at as often as one that captures
    /// write to: they are refused until somebody has made room.
    fn is_due(&self, last: &Look, now: Nanos) -> bool {
        let is_idle = self.added.load(Ordering::Relaxed) == last.added && !self.is_full();
        !is_idle || now.saturating_sub(last.ended).0 >= last.rest.0.saturating_mul(IDLE_RESTS)
    }

    /// What is added while `bytes_of` looks counts beside what it finds.
    fn look(&self, bytes_of: impl FnOnce(&Path) -> u64) {
        let before = self.added.load(Ordering::Relaxed);
        let bytes = i64::try_from(bytes_of(&self.folder)).unwrap_or(i64::MAX);
        self.seen.store(bytes.saturating_sub(before), Ordering::Relaxed);
    }
}

/// A look at the folder.
#[derive(Debug)]
struct Look {
    /// When it ended, `CLOCK_MONOTONIC`.
    ended: Nanos,
    /// Nobody looks again for so long.
    rest: Nanos,
    /// What captures had added when it began.
    added: i64,
}

/// Bytes of the files in the folders of `folder`, a block at least for each of both. No link is followed. A folder that is gone has none.
fn bytes_of(folder: &Path) -> u64 {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let length = |entry: fs::DirEntry| entry.metadata().map_or(0, |about| about.len().max(BLOCK_BYTES));
    let capture = |capture: fs::DirEntry| entries(&capture.path()).map(length).fold(BLOCK_BYTES, u64::saturating_add);
    entries(folder).map(capture).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that looks may be at it for minutes.
    #[test]
    fn what_is_written_counts_at_once_and_nobody_waits_for_a_look() {
        let none = std::env::temp_dir().join(format!("longhaul-no-folder-{}", std::process::id()));
        let size = FolderSize::new(none, Some(Bytes(1_000)));
        size.look(|_| 600);
        size.add(300);
        assert!(!size.is_full());
        size.look(|_| {
            size.add(100);
            assert!(size.is_full(), "while somebody looks");
            700
        });
        assert!(!size.is_full(), "200 of it were removed by somebody else");
        size.add(200);
        assert!(size.is_full());
        // A capture removed its oldest files, of which the look had not seen the last.
        size.look(|_| {
            size.add(-900);
            500
        });
        assert!(!size.is_full());
        assert!(!FolderSize::new("/".into(), None).is_full());
    }

    #[test]
    fn a_folder_that_no_capture_writes_to_is_looked_at_seldom() {
        let none = std::env::temp_dir().join(format!("longhaul-no-idle-folder-{}", std::process::id()));
        let size = FolderSize::new(none, Some(Bytes(1_000)));
        let last = Look { ended: Nanos::from_secs(100), rest: Nanos::from_secs(2), added: 0 };
        let is_due = |at_secs| size.is_due(&last, Nanos::from_secs(at_secs));
        assert!(!is_due(102) && !is_due(119) && is_due(120));
        size.add(1);
        assert!(is_due(102));
        size.add(-1);
        assert!(!is_due(102));
        // Somebody may make room.
        size.look(|_| 1_000);
        assert!(is_due(102));
    }
}
