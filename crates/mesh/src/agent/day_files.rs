//! What results have no room for, as Parquet files by day at the site that began the test.
//!
//! ```text
//! losses/day=2026-01-31/ID.parquet        ID: the test's. A row for each run of lost packets, as `longhaul udp -o` writes them
//! samples/day=2026-01-31/ID.parquet       TCP_INFO of both ends over time, as `longhaul tcp -o` writes it
//! ```
//!
//! A test that lost nothing has no file of losses, and neither has one with more runs than its result lists (10,000). Days are those of the test's
//! begin in UTC; the oldest make room for new ones. The files are beside the results: what cannot be kept changes no result.

use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_units::{Bytes, utc};

use crate::error::Failure;

/// What a file takes of a disk is a multiple of this.
const BLOCK_BYTES: u64 = 4096;

/// A folder of them, and how much it may take.
#[derive(Debug)]
pub(super) struct DayFiles {
    folder: PathBuf,
    most: Bytes,
    /// What allows more.
    option: &'static str,
    /// Bytes that are taken; `None`: not counted yet.
    taken: Mutex<Option<u64>>,
}

impl DayFiles {
    pub(super) fn new(folder: PathBuf, most: Bytes, option: &'static str) -> Self {
        Self { folder, most, option, taken: Mutex::new(None) }
    }

    /// Keeps what `write` writes of a test, of which it is given the id, and when it began: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the disk does not take it, or the files of this day alone fill what is allowed.
    pub(super) fn keep<E: std::fmt::Display>(
        &self,
        (id, at_ns): (&str, i64),
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", self.folder.display()));
        // 2026-01-31T12:00:00.000Z
        let day = format!("day={}", utc(at_ns).split('T').next().unwrap_or_default());
        let folder = self.folder.join(&day);
        let path = folder.join(format!("{id}.parquet"));
        fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let file = NewFile::create(&path, PRIVATE).map_err(|error| failed(&error))?;
        write(file.file()).map_err(|error| failed(&error))?;
        let bytes = on_disk(file.file().metadata().map_err(|error| failed(&error))?.len());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.is_none_or(|taken| taken + bytes > self.most.0) {
            *taken = Some(self.make_room(bytes, &day).map_err(|error| failed(&error))?);
        }
        let after = taken.unwrap_or(0) + bytes;
        if after > self.most.0 {
            let full = format_args!("{}: the files of one day take more than {}", self.folder.display(), self.most);
            return Err(Failure::new(full).remedy(format_args!("allow more by {}", self.option)));
        }
        file.finish().map_err(|error| failed(&error))?;
        *taken = Some(after);
        Ok(())
    }

    /// Removes the oldest days until `bytes` more have room, but not `today`; what is taken then.
    fn make_room(&self, bytes: u64, today: &str) -> io::Result<u64> {
        let mut days = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("day=") {
                days.push((name, bytes_in(&entry.path())?));
            }
        }
        days.sort();
        let mut taken: u64 = days.iter().map(|(_, bytes)| bytes).sum();
        for (name, freed) in days {
            if taken + bytes > self.most.0 && name != today {
                fs::remove_dir_all(self.folder.join(name))?;
                taken -= freed;
            }
        }
        Ok(taken)
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// What the files of a folder take.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    let bytes = |entry: io::Result<DirEntry>| Ok(on_disk(entry?.metadata()?.len()));
    fs::read_dir(folder)?.map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    /// Keeps a file of a day since 1970: day 1 is January 2.
    fn keep(files: &DayFiles, number: i64, day: i64) -> Result<(), Failure> {
        let id = format!("{number:032x}");
        files.keep((&id, day * DAY_NS + 5), |mut file| io::Write::write_all(&mut file, &[7; 100]))
    }

    fn days(folder: &Path) -> Vec<(String, usize)> {
        let day = |entry: DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read_dir(entry.path()).unwrap().count())
        };
        let mut days: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| day(entry.unwrap())).collect();
        days.sort();
        days
    }

    #[test]
    fn the_oldest_days_make_room_and_a_full_day_takes_nothing_more() {
        let folder = std::env::temp_dir().join(format!("longhaul-mesh-days-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        // Room for six files.
        let files = DayFiles::new(folder.clone(), Bytes(6 * BLOCK_BYTES + 1), "--keep-losses");
        for (number, day) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 3)] {
            keep(&files, number, day).unwrap();
        }
        let name = |day: &str| format!("day=1970-01-{day}");
        assert_eq!(days(&folder), [(name("02"), 2), (name("03"), 1), (name("04"), 3)]);
        // The next start counts what there is.
        let files = DayFiles::new(folder.clone(), Bytes(6 * BLOCK_BYTES + 1), "--keep-losses");
        keep(&files, 7, 3).unwrap();
        assert_eq!(days(&folder), [(name("03"), 1), (name("04"), 4)]);
        for number in [8, 9] {
            keep(&files, number, 3).unwrap();
        }
        assert_eq!(days(&folder), [(name("04"), 6)]);
        let full = keep(&files, 10, 3).unwrap_err().to_string();
        assert!(full.contains("--keep-losses"), "{full}");
        assert_eq!(days(&folder), [(name("04"), 6)]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
