//! What results have no room for, as Parquet files by day.
//!
//! ```text
//! losses/day=2026-01-31/ID.parquet        ID: the test's. A row for each run of lost packets, as `longhaul udp -o` writes them
//! samples/day=2026-01-31/ID.parquet       TCP_INFO of both ends over time, as `longhaul tcp -o` writes it
//! ```
//!
//! A test that lost nothing has no file of losses, and neither has one with more runs than its result lists (10,000). Days are those of the test's
//! begin in UTC; the oldest make room for new ones. The files are beside the results: what cannot be kept changes no result.
//!
//! What the files of each day take is counted once, by the first who asks, and known from then on: there may be hundreds of thousands of them.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_kernel::links::parent;
use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_units::{Bytes, utc};

use crate::error::Failure;
use crate::store::DAY_NS;

/// What a file or a folder takes of a disk is a multiple of this.
const BLOCK_BYTES: u64 = 4096;
/// Where room is made, this part of all stays free: not each further file removes a day.
const SPARE_PART: u64 = 10;
/// No name of a day is after this.
const AFTER_ALL: &str = "day=~";

/// A folder of them, and how much it may take.
#[derive(Debug)]
pub(crate) struct DayFiles {
    folder: PathBuf,
    /// Days that files are kept; `None`: as long as they have room.
    days: Option<u32>,
    /// What allows more.
    option: &'static str,
    /// Bytes that all may take.
    most: AtomicU64,
    /// `None`: not counted yet.
    taken: Mutex<Option<Taken>>,
}

/// Bytes that the files of each day take, with its folder, by the name of that: the oldest is the first.
#[derive(Debug, Default)]
struct Taken(BTreeMap<String, u64>);

/// Why a file is not kept, where nothing is broken.
#[derive(Debug)]
pub(crate) struct NoRoom(pub(crate) Failure);

/// The name of the folder of a day: that of `at_ns`, nanoseconds since 1970.
pub(crate) fn day_of(at_ns: i64) -> String {
    // 2026-01-31T12:00:00.000Z
    format!("day={}", utc(at_ns).split('T').next().unwrap_or_default())
}

impl DayFiles {
    pub(crate) fn new(folder: PathBuf, (most, days): (Bytes, Option<u32>), option: &'static str) -> Self {
        Self { folder, days, option, most: AtomicU64::new(most.0), taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Option<Taken>> {
        // Each of its steps is whole, or counts again.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is taken of the open folder `all`, which is counted where it is not known.
    fn counted<'a>(&self, taken: &'a mut Option<Taken>, all: &Path) -> Result<&'a mut Taken, Failure> {
        let known = match taken.take() {
            Some(known) => known,
            None => Taken::count(all).map_err(|error| self.failed(&error))?,
        };
        Ok(taken.insert(known))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {error}", self.folder.display()))
    }

    /// The folder, and the one above it, as `open` opens each: no link of another user leads there. Who owns the one above may put one in its place at
    /// any time.
    fn opened(&self, open: impl Fn(&Path) -> io::Result<OpenFolder>) -> io::Result<OpenFolder> {
        let above = open(parent(&self.folder))?;
        open(&above.path().join(self.folder.file_name().unwrap_or_default()))
    }

    /// The oldest day that is kept at `now_ns`.
    fn oldest(&self, now_ns: i64) -> Option<String> {
        self.days.map(|days| day_of(now_ns.saturating_sub(DAY_NS.saturating_mul(i64::from(days))).max(0)))
    }

    /// Keeps the file that `write` writes for test `id`, which began at `at_ns` (nanoseconds since 1970). A test that has a file keeps it.
    /// The file is complete when this returns.
    ///
    /// # Errors
    /// Where the disk does not take it. Inside: there is no room for a file of this day, or it is too old.
    pub(crate) fn keep<E: std::fmt::Display>(
        &self,
        (id, at_ns): (&str, i64),
        now_ns: i64,
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<Result<(), NoRoom>, Failure> {
        let (day, oldest) = (day_of(at_ns), self.oldest(now_ns).unwrap_or_default());
        if day < oldest {
            return Ok(Err(NoRoom(self.failed(&format_args!("{id} is older than what is kept")))));
        }
        let mut state = self.taken();
        let all = self.opened(OpenFolder::make).map_err(|error| self.failed(&error))?;
        let taken = self.counted(&mut state, &all.path())?;
        let folder = all.path().join(&day);
        let of_day = OpenFolder::make(&folder).map_err(|error| self.failed(&error))?;
        taken.add(&day, 0);
        let path = of_day.path().join(format!("{id}.parquet"));
        if path.exists() {
            return Ok(Ok(()));
        }
        let written = NewFile::create(&path, PRIVATE).map_err(|error| self.failed(&error)).and_then(|file| {
            write(file.file()).map_err(|error| self.failed(&error))?;
            let bytes = on_disk(file.file().metadata().map_err(|error| self.failed(&error))?.len());
            Ok((file, bytes))
        });
        let (file, bytes) = match written {
            Ok(written) => written,
            Err(failure) => {
                taken.leave(&folder, &day);
                return Err(failure);
            }
        };
        let most = self.most.load(Ordering::Relaxed);
        // A site has nobody else who removes what is too old.
        let freed = taken.free(&all.path(), 0, &oldest).and_then(|()| {
            // Where this day and later ones leave no room, older ones would go for nothing.
            if taken.bytes() + bytes <= most || taken.bytes_since(&day) + bytes > most {
                return Ok(());
            }
            taken.free(&all.path(), (most - most / SPARE_PART).saturating_sub(bytes), &day)
        });
        if let Err(error) = freed {
            *state = None;
            return Err(self.failed(&error));
        }
        if taken.bytes() + bytes > most {
            taken.leave(&folder, &day);
            let full = self.failed(&format_args!("the files of {} and later days take {}", &day[4..], Bytes(most)));
            return Ok(Err(NoRoom(full.remedy(format_args!("allow more by {}", self.option)))));
        }
        if let Err(error) = file.finish() {
            taken.leave(&folder, &day);
            return Err(self.failed(&error));
        }
        taken.add(&day, bytes);
        Ok(Ok(()))
    }

    /// Says how much all files may take from now on. Those that take more do so until [`DayFiles::trim`], or until the next one comes.
    pub(crate) fn allow(&self, most: Bytes) {
        self.most.store(most.0, Ordering::Relaxed);
    }

    /// Removes days that are too old at `now_ns`, and the oldest ones while the rest takes more than it may.
    ///
    /// # Errors
    /// Where the folder cannot be read, or a file cannot be removed.
    pub(crate) fn trim(&self, now_ns: i64) -> Result<(), Failure> {
        let oldest = self.oldest(now_ns).unwrap_or_default();
        let mut state = self.taken();
        let all = match self.opened(OpenFolder::open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *state = Some(Taken::default());
                return Ok(());
            }
            opened => opened.map_err(|error| self.failed(&error))?,
        };
        let folder = all.path();
        let taken = self.counted(&mut state, &folder)?;
        let most = self.most.load(Ordering::Relaxed);
        // Also the last day may go.
        let freed = taken.free(&folder, 0, &oldest).and_then(|()| taken.free(&folder, most, AFTER_ALL));
        freed.map_err(|error| {
            *state = None;
            self.failed(&error)
        })
    }
}

impl Taken {
    /// Counts what is there.
    fn count(folder: &Path) -> io::Result<Self> {
        let mut days = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("day=") {
                days.insert(name, bytes_in(&entry.path())? + BLOCK_BYTES);
            }
        }
        Ok(Self(days))
    }

    fn bytes(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those of `day` and of later ones.
    fn bytes_since(&self, day: &str) -> u64 {
        self.0.range(day.to_owned()..).map(|(_, bytes)| bytes).sum()
    }

    /// Adds bytes to a day, whose folder is there.
    fn add(&mut self, day: &str, bytes: u64) {
        *self.0.entry(day.to_owned()).or_insert(BLOCK_BYTES) += bytes;
    }

    /// Removes the folder of a day if nothing is in it.
    fn leave(&mut self, folder: &Path, day: &str) {
        if fs::remove_dir(folder).is_ok() {
            self.0.remove(day);
        }
    }

    /// Removes the oldest days before `today` until the others take no more than `left`. After an error it has to be counted again.
    fn free(&mut self, folder: &Path, left: u64, today: &str) -> io::Result<()> {
        let mut bytes = self.bytes();
        while bytes > left
            && let Some(oldest) = self.0.first_entry().filter(|oldest| oldest.key().as_str() < today)
        {
            match fs::remove_dir_all(folder.join(oldest.key())) {
                // Somebody removed it by hand.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            bytes -= oldest.remove();
        }
        Ok(())
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

    /// Keeps a file of a day since 1970, on day 9: day 1 is January 2.
    fn keep(files: &DayFiles, number: i64, day: i64) -> Result<(), NoRoom> {
        let id = format!("{number:032x}");
        let write = |mut file: &File| io::Write::write_all(&mut file, &[7; 100]);
        files.keep((&id, day * DAY_NS + 5), 9 * DAY_NS, write).unwrap()
    }

    fn kept(folder: &Path) -> Vec<(String, usize)> {
        let day = |entry: DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read_dir(entry.path()).unwrap().count())
        };
        let mut days: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| day(entry.unwrap())).collect();
        days.sort();
        days
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("longhaul-mesh-days-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn name(day: &str) -> String {
        format!("day=1970-01-{day}")
    }

    /// Root would write and remove where it points to.
    #[test]
    fn a_link_of_another_user_is_not_followed() {
        use std::os::unix::fs::{lchown, symlink};
        let folder = folder("links");
        let aim = folder.join("aim");
        fs::create_dir_all(aim.join(name("01"))).unwrap();
        let link = |path: &Path| {
            fs::create_dir_all(parent(path)).unwrap();
            symlink(&aim, path).unwrap();
            lchown(path, Some(65_534), None)
        };
        let day = folder.join("day").join(name("02"));
        if [folder.join("losses"), day].iter().any(|path| link(path).is_err()) {
            longhaul_testing::no_judge!("links of another user take root");
            return;
        }
        let files = |path: &str| DayFiles::new(folder.join(path), (Bytes(9 * BLOCK_BYTES), Some(3)), "--keep-losses");
        for path in ["losses", "losses/site=geneva", "day"] {
            let refused = files(path).keep(("0", DAY_NS), DAY_NS, |_| Ok::<(), String>(())).unwrap_err().to_string();
            assert!(refused.contains("symbolic link of another user"), "{path}: {refused}");
        }
        // All days are too old.
        assert!(files("losses").trim(99 * DAY_NS).is_err());
        assert_eq!(kept(&aim), [(name("01"), 0)]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_oldest_days_make_room_and_a_full_day_takes_nothing_more() {
        let folder = folder("full");
        // Room for nine blocks: files, and the folders of their days.
        let files = || DayFiles::new(folder.clone(), (Bytes(9 * BLOCK_BYTES + 1), None), "--keep-losses");
        let first = files();
        for (number, day) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 3)] {
            keep(&first, number, day).unwrap();
        }
        assert_eq!(kept(&folder), [(name("02"), 2), (name("03"), 1), (name("04"), 3)]);
        // The next start counts what there is.
        let files = files();
        keep(&files, 7, 3).unwrap();
        assert_eq!(kept(&folder), [(name("03"), 1), (name("04"), 4)]);
        // What an older day brings late makes no newer day go.
        keep(&files, 8, 0).unwrap();
        assert!(keep(&files, 9, 0).is_err());
        assert_eq!(kept(&folder), [(name("01"), 1), (name("03"), 1), (name("04"), 4)]);
        for number in 10..14 {
            keep(&files, number, 3).unwrap();
        }
        assert_eq!(kept(&folder), [(name("04"), 8)]);
        let full = keep(&files, 14, 3).unwrap_err().0.to_string();
        assert!(full.contains("--keep-losses") && full.contains("1970-01-04"), "{full}");
        assert!(keep(&files, 15, 1).is_err());
        assert_eq!(kept(&folder), [(name("04"), 8)]);
        // Who may take less removes what is above that.
        files.allow(Bytes(8 * BLOCK_BYTES));
        files.trim(9 * DAY_NS).unwrap();
        assert_eq!(kept(&folder), []);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Whose share is full, with a file in each old day, and brings one after the other: files are not counted for each, nor days removed.
    #[test]
    fn a_full_folder_is_neither_read_nor_emptied_for_each_file() {
        let folder = folder("spare");
        // Room for ten days of a file.
        let files = DayFiles::new(folder.clone(), (Bytes(20 * BLOCK_BYTES), None), "--keep-losses");
        for day in 10..20 {
            keep(&files, day, day).unwrap();
        }
        // A file and its folder need two blocks. Two more are free then, of twenty.
        keep(&files, 20, 20).unwrap();
        assert_eq!(kept(&folder).first(), Some(&(name("13"), 1)));
        // Nobody but this program writes there: what somebody else does is seen after the next start.
        for number in 0..30 {
            fs::write(folder.join(name("13")).join(number.to_string()), "x").unwrap();
        }
        keep(&files, 21, 20).unwrap();
        assert_eq!((kept(&folder).first(), kept(&folder).len()), (Some(&(name("13"), 31)), 9));
        let files = DayFiles::new(folder.clone(), (Bytes(20 * BLOCK_BYTES), None), "--keep-losses");
        keep(&files, 22, 20).unwrap();
        assert_eq!(kept(&folder).first(), Some(&(name("14"), 1)));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A site that was away for long brings what it measured on days that have passed.
    #[test]
    fn what_has_no_room_removes_nothing() {
        let folder = folder("no-room");
        let files = DayFiles::new(folder.clone(), (Bytes(9 * BLOCK_BYTES), None), "--keep-losses");
        for (number, day) in [(1, 1), (2, 5), (3, 5), (4, 5), (5, 5), (6, 5)] {
            keep(&files, number, day).unwrap();
        }
        let before = kept(&folder);
        assert_eq!(before, [(name("02"), 1), (name("06"), 5)]);
        let long = |mut file: &File| io::Write::write_all(&mut file, &[7; 3 * BLOCK_BYTES as usize]);
        let refused = files.keep((&format!("{:032x}", 7), 3 * DAY_NS), 9 * DAY_NS, long).unwrap();
        assert!(refused.is_err() && kept(&folder) == before, "{:?}", kept(&folder));
        // A short one has room where the older day was.
        keep(&files, 8, 3).unwrap();
        assert_eq!(kept(&folder), [(name("04"), 1), (name("06"), 5)]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Somebody removes files by hand: the room of a day is there again when that day is the oldest.
    #[test]
    fn a_day_that_somebody_removed_makes_room() {
        let folder = folder("by-hand");
        let files = DayFiles::new(folder.clone(), (Bytes(4 * BLOCK_BYTES), None), "--keep-losses");
        keep(&files, 1, 1).unwrap();
        keep(&files, 2, 2).unwrap();
        fs::remove_dir_all(folder.join(name("02"))).unwrap();
        keep(&files, 3, 3).unwrap();
        files.trim(9 * DAY_NS).unwrap();
        assert_eq!(kept(&folder), [(name("04"), 1)]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// As on a full disk, where each file that comes is of another day.
    #[test]
    fn a_file_that_cannot_be_written_leaves_no_day() {
        let folder = folder("unwritten");
        let files = DayFiles::new(folder.clone(), (Bytes(4 * BLOCK_BYTES), None), "--keep-losses");
        keep(&files, 1, 1).unwrap();
        for day in [1, 3] {
            let failed = files.keep(("0", day * DAY_NS), 9 * DAY_NS, |_| Err::<(), _>("the disk is full"));
            assert!(failed.unwrap_err().to_string().contains("the disk is full"));
        }
        assert_eq!(kept(&folder), [(name("02"), 1)]);
        // Nor does it take room.
        keep(&files, 2, 2).unwrap();
        assert_eq!(kept(&folder), [(name("02"), 1), (name("03"), 1)]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn days_that_are_too_old_go_and_do_not_come_again() {
        let folder = folder("old");
        let files = DayFiles::new(folder.clone(), (Bytes(1 << 20), Some(3)), "--keep-losses");
        for day in 6..10 {
            keep(&files, day, day).unwrap();
        }
        assert!(keep(&files, 5, 5).is_err());
        files.trim(11 * DAY_NS).unwrap();
        assert_eq!(kept(&folder), [(name("09"), 1), (name("10"), 1)]);
        // Also where nobody trims, with the next file.
        let write = |mut file: &File| io::Write::write_all(&mut file, &[7; 100]);
        files.keep((&format!("{:032x}", 12), 12 * DAY_NS), 12 * DAY_NS, write).unwrap().unwrap();
        assert_eq!(kept(&folder), [(name("10"), 1), (name("13"), 1)]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_test_that_has_a_file_keeps_that() {
        let folder = folder("twice");
        let files = DayFiles::new(folder.clone(), (Bytes(1 << 20), None), "--keep-losses");
        keep(&files, 1, 1).unwrap();
        let other = |mut file: &File| io::Write::write_all(&mut file, b"others");
        files.keep((&format!("{:032x}", 1), DAY_NS), 9 * DAY_NS, other).unwrap().unwrap();
        let path = folder.join("day=1970-01-02").join(format!("{:032x}.parquet", 1));
        assert_eq!(fs::read(path).unwrap(), [7; 100]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
