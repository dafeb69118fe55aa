//! The files of a spool: one is open at a time, closed ones are complete, the oldest is removed first.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use longhaul_captures::spool::{EXTENSION, HEADER_BYTES, Kind, Meta, control_block, pad_block};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::direct_file::{ALIGNMENT, open_direct};
use longhaul_kernel::new_file::without_name;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_units::{Nanos, regular_file};

use crate::spec::{CaptureError, SpoolSpec};

/// Space reserved for the last ledgers of a capture whose disk is full.
const RESERVE_BYTES: usize = 256 << 10;
/// Below this length a write past the page cache is slower than one into it.
pub(crate) const DIRECT_LEAST: usize = 128 << 10;

/// The files of one capture. One thread writes them.
#[derive(Debug)]
pub(crate) struct SpoolFiles {
    spec: SpoolSpec,
    /// Opened once: the next file is made in it, whatever has its name by then.
    folder: OpenFolder,
    meta: Meta,
    file: File,
    /// The same file, opened with `O_DIRECT` where the file system can.
    direct: Option<File>,
    /// Its name in the folder.
    name: String,
    /// Length of the complete blocks. Bytes beyond it are left over from a failed write.
    bytes: u64,
    opened: Nanos,
    closed: VecDeque<(String, u64)>,
    /// Bytes of all earlier files.
    bytes_before: u64,
    removed: u64,
    removed_bytes: u64,
    /// A file without a name: its space is free when it is closed, also by the end of the process.
    reserve: Option<File>,
}

impl SpoolFiles {
    /// Refuses a folder in which no capture can begin, before anything else is opened. Makes and removes nothing.
    pub(crate) fn check(spec: &SpoolSpec) -> Result<(), CaptureError> {
        let opened = spec.opened.clone().map_or_else(|| OpenFolder::open(&spec.folder), Ok);
        match opened {
            // It is made when the capture begins.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(CaptureError::Folder { folder: spec.folder.clone(), source }),
            Ok(folder) => spool_before(&folder, spec).map(drop),
        }
    }

    /// Creates the folder and its first file, and before that removes the spool that is there. Call it after all else that may refuse the
    /// capture.
    pub(crate) fn create(spec: &SpoolSpec, meta: &Meta) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Folder { folder: spec.folder.clone(), source };
        let folder = spec.opened.clone().map_or_else(|| OpenFolder::make(&spec.folder), Ok).map_err(failed)?;
        Self::create_in(folder, spec, meta)
    }

    /// Creates the first file in `folder`, which the spec only names.
    pub(crate) fn create_in(folder: OpenFolder, spec: &SpoolSpec, meta: &Meta) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Folder { folder: spec.folder.clone(), source };
        for path in spool_before(&folder, spec)? {
            fs::remove_file(path).map_err(failed)?;
        }
        // Without the reserve, the last ledger may be missing from a full disk. The result has it anyway.
        let reserve = reserve(&folder.path()).ok();
        let (name, file) = open(&folder, meta.file).map_err(failed)?;
        let direct = open_direct(&file).ok();
        let mut files = Self {
            spec: spec.clone(),
            folder,
            meta: meta.clone(),
            file,
            direct,
            name,
            bytes: 0,
            opened: monotonic(),
            closed: VecDeque::new(),
            bytes_before: 0,
            removed: 0,
            removed_bytes: 0,
            reserve,
        };
        if let Err(error) = files.describe() {
            // Nothing is in it: it would keep the next capture out of its folder.
            let _ = fs::remove_file(files.folder.path().join(&files.name));
            return Err(failed(error));
        }
        Ok(files)
    }

    fn describe(&mut self) -> io::Result<()> {
        let block = control_block(Kind::Meta, self.meta.started_ns, &self.meta);
        self.append(&block)
    }

    /// Appends complete blocks. After an error the file keeps its length.
    pub(crate) fn append(&mut self, blocks: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(blocks, self.bytes);
        self.keep_or_cut(written, self.bytes + blocks.len() as u64)
    }

    /// Appends a large block with `O_DIRECT` where possible. That needs `block` to begin at a page boundary.
    pub(crate) fn append_directly(&mut self, block: &[u8]) -> io::Result<()> {
        let is_at_page = block.as_ptr().align_offset(ALIGNMENT) == 0;
        let Some(direct) = self.direct.take_if(|_| is_at_page && block.len() >= DIRECT_LEAST) else {
            return self.append(block);
        };
        let at = self.bytes.next_multiple_of(ALIGNMENT as u64);
        let pad = match (at - self.bytes) as usize {
            0 => 0,
            // Padding must hold at least a header.
            short if short < HEADER_BYTES => short + ALIGNMENT,
            enough => enough,
        };
        let at = self.bytes + pad as u64;
        let (whole, rest) = block.split_at(block.len() / ALIGNMENT * ALIGNMENT);
        let written = match pad {
            0 => Ok(()),
            pad => self.file.write_all_at(&pad_block(pad), self.bytes),
        };
        let written = written.and_then(|()| direct.write_all_at(whole, at));
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
            // The file system refuses `O_DIRECT` only now. From here on, write through the page cache.
            return self.append(block);
        }
        self.direct = Some(direct);
        let written = written.and_then(|()| self.file.write_all_at(rest, at + whole.len() as u64));
        self.keep_or_cut(written, at + block.len() as u64)
    }

    fn keep_or_cut(&mut self, written: io::Result<()>, end: u64) -> io::Result<()> {
        match written {
            Ok(()) => {
                self.bytes = end;
                Ok(())
            }
            Err(error) => self.file.set_len(self.bytes).and(Err(error)),
        }
    }

    /// Frees the reserved space; `false` if there was none.
    pub(crate) fn free_reserve(&mut self) -> bool {
        self.reserve.take().is_some()
    }

    /// Whether to begin the next file before appending `coming_bytes`.
    pub(crate) fn roll_is_due(&self, coming_bytes: usize) -> bool {
        let old = self.spec.roll_time.is_some_and(|time| monotonic().saturating_sub(self.opened) >= time);
        old || self.bytes + coming_bytes as u64 > self.spec.roll_bytes.0
    }

    /// Begins the next file if this one has its length.
    pub(crate) fn roll_if_full(&mut self) -> io::Result<()> {
        if self.bytes < self.spec.roll_bytes.0 { Ok(()) } else { self.roll() }
    }

    /// Closes the file and opens the next one.
    pub(crate) fn roll(&mut self) -> io::Result<()> {
        let meta = Meta { file: self.meta.file + 1, ..self.meta.clone() };
        let described = control_block(Kind::Meta, meta.started_ns, &meta);
        let (name, file) = open(&self.folder, meta.file)?;
        // If there is no space for the next file, continue this one.
        if let Err(error) = file.write_all_at(&described, 0).and_then(|()| self.close()) {
            let _ = fs::remove_file(self.folder.path().join(name));
            return Err(error);
        }
        // What the file system cannot do it cannot in the next file either.
        self.direct = self.direct.take().and_then(|_| open_direct(&file).ok());
        self.bytes_before += self.bytes;
        self.closed.push_back((std::mem::replace(&mut self.name, name), self.bytes));
        (self.file, self.bytes, self.opened, self.meta) = (file, described.len() as u64, monotonic(), meta);
        self.remove_oldest();
        Ok(())
    }

    /// Marks the file as complete and flushes it to the disk.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        let end = control_block(Kind::End, self.meta.started_ns, &());
        self.append(&end)?;
        self.file.sync_data()
    }

    fn remove_oldest(&mut self) {
        let Some(keep) = self.spec.keep_bytes else { return };
        let mut all: u64 = self.closed.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.spec.roll_bytes.0;
        while all > keep.0
            && let Some((name, bytes)) = self.closed.pop_front()
        {
            // Somebody else may have removed it already.
            let _ = fs::remove_file(self.folder.path().join(name));
            all -= bytes;
            self.removed += 1;
            self.removed_bytes += bytes;
        }
    }

    /// Bytes of all files, including removed ones.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.bytes_before + self.bytes
    }

    /// Bytes of the removed ones among them.
    pub(crate) fn removed_bytes(&self) -> u64 {
        self.removed_bytes
    }

    /// Flushes what was written to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The files that exist, oldest first, and how many were removed.
    pub(crate) fn files(&self) -> (Vec<PathBuf>, u64) {
        let names = self.closed.iter().map(|(name, _)| name).chain([&self.name]);
        (names.map(|name| self.spec.folder.join(name)).collect(), self.removed)
    }
}

/// The files of a spool that is in `folder` already. All of them are such that a new capture may take their place.
fn spool_before(folder: &OpenFolder, spec: &SpoolSpec) -> Result<Vec<PathBuf>, CaptureError> {
    let failed = |source| CaptureError::Folder { folder: spec.folder.clone(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.path()).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if path.extension().is_none_or(|end| end != EXTENSION) {
            continue;
        }
        if !spec.replace {
            return Err(CaptureError::Occupied(spec.folder.clone()));
        }
        // Somebody else's, or a copy that somebody made. Nothing is removed where not all of it is a capture's.
        if !is_file_name(&entry.file_name()) || !entry.file_type().map_err(failed)?.is_file() {
            let name = entry.file_name().display().to_string();
            let why = format!(
                "{name} in it ends in .{EXTENSION} and is not a file of a capture in this folder: move it elsewhere, or remove it"
            );
            return Err(failed(io::Error::new(ErrorKind::AlreadyExists, why)));
        }
        if is_written(&path) {
            return Err(CaptureError::InUse(spec.folder.clone()));
        }
        files.push(path);
    }
    Ok(files)
}

/// Whether a capture writes this file now.
fn is_written(path: &Path) -> bool {
    regular_file::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn reserve(folder: &Path) -> io::Result<File> {
    let mut file = without_name(folder)?;
    file.write_all(&vec![1; RESERVE_BYTES]).map(|()| file)
}

/// Whether a file of a spool is called so: at least eight digits.
fn is_file_name(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.'));
    digits.is_some_and(|digits| digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn open(folder: &OpenFolder, number: u32) -> io::Result<(String, File)> {
    let name = format!("{number:08}.{EXTENSION}");
    let file = OpenOptions::new().write(true).create_new(true).open(folder.path().join(&name))?;
    // Until it is closed another capture sees that it is written, where the file system has locks.
    let _ = file.try_lock();
    Ok((name, file))
}

/// Whether `error` says that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::symlink;

    use longhaul_units::Bytes;

    use super::*;

    fn spec(folder: &Path, replace: bool) -> SpoolSpec {
        SpoolSpec {
            folder: folder.to_owned(),
            opened: None,
            replace,
            roll_bytes: Bytes(4096),
            roll_time: None,
            keep_bytes: Some(Bytes(2 * 4096)),
        }
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_spool_of_before_goes_when_the_new_one_begins() {
        let folder = std::env::temp_dir().join(format!("longhaul-spool-before-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let meta = Meta { file: 1, ..Meta::default() };
        let (stays, goes) = (spec(&folder, false), spec(&folder, true));
        SpoolFiles::check(&stays).unwrap();
        assert!(!folder.exists(), "it is made when the capture begins");

        fs::create_dir(&folder).unwrap();
        let all = ["00000001.spool", "00000002.spool", "notes.txt"];
        for name in all {
            fs::write(folder.join(name), "before").unwrap();
        }
        SpoolFiles::check(&goes).unwrap();
        assert!(matches!(SpoolFiles::check(&stays), Err(CaptureError::Occupied(_))));
        assert!(matches!(SpoolFiles::create(&stays, &meta), Err(CaptureError::Occupied(_))));
        assert_eq!(names(&folder), all);
        // What `capture -w` leaves beside its file when it is killed; a copy; a file of another folder.
        let [left, copy, link] = [".x.pcap.1.spool", "monday.spool", "00000003.spool"].map(|name| folder.join(name));
        let refused = |other: &Path| {
            let said = SpoolFiles::check(&goes).unwrap_err().to_string();
            assert!(said.contains("is not a file of a capture in this folder"), "{said}");
            assert!(matches!(SpoolFiles::create(&goes, &meta), Err(CaptureError::Folder { .. })));
            if other.is_dir() { fs::remove_dir(other) } else { fs::remove_file(other) }.unwrap();
            assert_eq!(names(&folder), all);
        };
        fs::create_dir(&left).unwrap();
        refused(&left);
        fs::write(&copy, "kept").unwrap();
        refused(&copy);
        symlink("notes.txt", &link).unwrap();
        refused(&link);

        let mut files = SpoolFiles::create(&goes, &meta).unwrap();
        assert_eq!(names(&folder), ["00000001.spool", "notes.txt"]);
        assert_ne!(fs::read(folder.join("00000001.spool")).unwrap(), b"before");
        // Not while it is written: its first file, and the next one.
        assert!(matches!(SpoolFiles::check(&goes), Err(CaptureError::InUse(_))));
        files.roll().unwrap();
        assert!(matches!(SpoolFiles::create(&goes, &meta), Err(CaptureError::InUse(_))));
        assert_eq!(names(&folder), ["00000001.spool", "00000002.spool", "notes.txt"]);
        drop(files);
        SpoolFiles::create(&goes, &meta).unwrap();
        assert_eq!(names(&folder), ["00000001.spool", "notes.txt"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Who owns the folder's parent puts a link in its place between two files.
    #[test]
    fn the_next_file_is_made_in_the_same_folder() {
        let base = std::env::temp_dir().join(format!("longhaul-spool-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (named, moved, other) = (base.join("named"), base.join("moved"), base.join("other"));
        fs::create_dir_all(&other).unwrap();
        let mut files = SpoolFiles::create(&spec(&named, false), &Meta { file: 1, ..Meta::default() }).unwrap();
        fs::rename(&named, &moved).unwrap();
        symlink(&other, &named).unwrap();
        // One of the same name, which shall not be removed as the oldest.
        let oldest = other.join(format!("00000001.{EXTENSION}"));
        fs::write(&oldest, "kept").unwrap();
        for _ in 0..3 {
            files.append(&pad_block(4096)).unwrap();
            files.roll().unwrap();
        }
        assert_eq!(names(&other), [oldest.file_name().unwrap()]);
        assert!(names(&moved).contains(&format!("00000004.{EXTENSION}").into()), "{:?}", names(&moved));
        assert!(files.files().1 > 0 && !names(&moved).contains(&oldest.file_name().unwrap().to_owned()));
        let kept: u64 = names(&moved).iter().map(|name| fs::metadata(moved.join(name)).unwrap().len()).sum();
        assert_eq!(files.written_bytes() - files.removed_bytes(), kept);
        fs::remove_dir_all(&base).unwrap();
    }
}
