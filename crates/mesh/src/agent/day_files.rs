//! Which packets UDP tests of this site lost, as Parquet files by day: results have their number alone.
//!
//! ```text
//! losses/day=2026-01-31/ID.parquet        ID: the test's. A row for each run of lost packets, as `longhaul udp -o` writes them
//! ```
//!
//! A test that lost nothing has no file, and neither has one with more runs than its result lists (10,000). Days are those of the test's begin in UTC;
//! the oldest make room for new ones. The files are beside the results: what cannot be kept changes no result.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_report::parquet::write_losses;
use longhaul_udp::locate::Loss;
use longhaul_units::{Bytes, utc};

use crate::error::Failure;
use crate::store::TestResult;

/// What a file takes of a disk is a multiple of this.
const BLOCK_BYTES: u64 = 4096;

/// The folder, and how much it may take.
#[derive(Debug)]
pub(super) struct LossLists {
    folder: PathBuf,
    most: Bytes,
    /// Bytes that are taken; `None`: not counted yet.
    taken: Mutex<Option<u64>>,
}

impl LossLists {
    pub(super) fn new(folder: PathBuf, most: Bytes) -> Self {
        Self { folder, most, taken: Mutex::new(None) }
    }

    /// Keeps what a test lost.
    ///
    /// # Errors
    /// Where the disk does not take it, or the files of this day alone fill what is allowed.
    pub(super) fn keep(&self, test: &TestResult, losses: Vec<Loss>) -> Result<(), Failure> {
        if losses.is_empty() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", self.folder.display()));
        // 2026-01-31T12:00:00.000Z
        let day = format!("day={}", utc(test.at_ns).split('T').next().unwrap_or_default());
        let folder = self.folder.join(&day);
        let path = folder.join(format!("{}.parquet", test.id));
        fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let file = NewFile::create(&path, PRIVATE).map_err(|error| failed(&error))?;
        write_losses(file.file(), losses.into_iter()).map_err(|error| failed(&error))?;
        let bytes = on_disk(file.file().metadata().map_err(|error| failed(&error))?.len());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.is_none_or(|taken| taken + bytes > self.most.0) {
            *taken = Some(self.make_room(bytes, &day).map_err(|error| failed(&error))?);
        }
        let after = taken.unwrap_or(0) + bytes;
        if after > self.most.0 {
            let full = format_args!("the losses of one day take more than {}", self.most);
            return Err(Failure::new(full).remedy("allow more by --keep-losses"));
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
    use longhaul_result::Location;

    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    fn test(number: i64, day: i64) -> TestResult {
        TestResult {
            id: format!("{number:032x}"),
            test: "probes".into(),
            sender: "ithaca".into(),
            receiver: "geneva".into(),
            // The second of January 1970 is day 1.
            at_ns: day * DAY_NS + 5,
            sent: 100,
            lost: 3,
            at_sender: None,
            at_receiver: None,
            received_rate_bps: 1,
        }
    }

    fn loss(first_sequence: u64) -> Vec<Loss> {
        let (location, reason) = (Location::Network, "".into());
        vec![Loss { stream: 0, first_sequence, packets: 3, unit_packets: 1, location, reason }]
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
        let folder = std::env::temp_dir().join(format!("longhaul-mesh-losses-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        // Room for six files.
        let lists = LossLists::new(folder.clone(), Bytes(6 * BLOCK_BYTES + 1));
        lists.keep(&test(0, 1), Vec::new()).unwrap();
        assert!(!folder.exists(), "a test that lost nothing has no file");
        for (number, day) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 3)] {
            lists.keep(&test(number, day), loss(7)).unwrap();
        }
        let name = |day: &str| format!("day=1970-01-{day}");
        assert_eq!(days(&folder), [(name("02"), 2), (name("03"), 1), (name("04"), 3)]);
        // The next start counts what there is.
        let lists = LossLists::new(folder.clone(), Bytes(6 * BLOCK_BYTES + 1));
        lists.keep(&test(7, 3), loss(7)).unwrap();
        assert_eq!(days(&folder), [(name("03"), 1), (name("04"), 4)]);
        for number in [8, 9] {
            lists.keep(&test(number, 3), loss(7)).unwrap();
        }
        assert_eq!(days(&folder), [(name("04"), 6)]);
        let full = lists.keep(&test(10, 3), loss(7)).unwrap_err().to_string();
        assert!(full.contains("--keep-losses"), "{full}");
        assert_eq!(days(&folder), [(name("04"), 6)]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
