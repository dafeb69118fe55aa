//! The files of a spool: one is open at a time, closed ones are complete, the oldest is removed first.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use longhaul_captures::spool::{EXTENSION, HEADER_BYTES, Kind, Meta, control_block, pad_block};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::direct_file::{ALIGNMENT, open_direct};
use longhaul_kernel::new_file::without_name;
use longhaul_units::Nanos;

use crate::spec::{CaptureError, SpoolSpec};

/// Space reserved for the last ledgers of a capture whose disk is full.
const RESERVE_BYTES: usize = 256 << 10;
/// Below this length a write past the page cache is slower than one into it.
const DIRECT_LEAST: usize = 128 << 10;

/// The files of one capture. One thread writes them.
#[derive(Debug)]
pub(crate) struct SpoolFiles {
    spec: SpoolSpec,
    meta: Meta,
    file: File,
    /// The same file, opened with `O_DIRECT` where the file system can.
    direct: Option<File>,
    path: PathBuf,
    /// Length of the complete blocks. Bytes beyond it are left over from a failed write.
    bytes: u64,
    opened: Nanos,
    closed: VecDeque<(PathBuf, u64)>,
    /// Bytes of all earlier files.
    bytes_before: u64,
    removed: u64,
    /// A file without a name: its space is free when it is closed, also by the end of the process.
    reserve: Option<File>,
}

impl SpoolFiles {
    /// Creates the folder and its first file.
    pub(crate) fn create(spec: &SpoolSpec, meta: &Meta) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Folder { folder: spec.folder.clone(), source };
        fs::create_dir_all(&spec.folder).map_err(failed)?;
        let entries = fs::read_dir(&spec.folder).map_err(failed)?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == EXTENSION)) {
            if !spec.replace {
                return Err(CaptureError::Occupied(spec.folder.clone()));
            }
            fs::remove_file(&path).map_err(failed)?;
        }
        // Without the reserve, the last ledger may be missing from a full disk. The result has it anyway.
        let reserve = reserve(&spec.folder).ok();
        let (path, file) = open(&spec.folder, meta.file).map_err(failed)?;
        let direct = open_direct(&file).ok();
        let mut files = Self {
            spec: spec.clone(),
            meta: meta.clone(),
            file,
            direct,
            path,
            bytes: 0,
            opened: monotonic(),
            closed: VecDeque::new(),
            bytes_before: 0,
            removed: 0,
            reserve,
        };
        files.describe().map_err(failed)?;
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

    /// Closes the file and opens the next one.
    pub(crate) fn roll(&mut self) -> io::Result<()> {
        let meta = Meta { file: self.meta.file + 1, ..self.meta.clone() };
        let described = control_block(Kind::Meta, meta.started_ns, &meta);
        let (path, file) = open(&self.spec.folder, meta.file)?;
        // If there is no space for the next file, continue this one.
        if let Err(error) = file.write_all_at(&described, 0).and_then(|()| self.close()) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        // What the file system cannot do it cannot in the next file either.
        self.direct = self.direct.take().and_then(|_| open_direct(&file).ok());
        self.bytes_before += self.bytes;
        self.closed.push_back((std::mem::replace(&mut self.path, path), self.bytes));
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
            && let Some((path, bytes)) = self.closed.pop_front()
        {
            // Somebody else may have removed it already.
            let _ = fs::remove_file(path);
            all -= bytes;
            self.removed += 1;
        }
    }

    /// Bytes of all files, including removed ones.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.bytes_before + self.bytes
    }

    /// Flushes what was written to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The files that exist, oldest first, and how many were removed.
    pub(crate) fn files(&self) -> (Vec<PathBuf>, u64) {
        let closed = self.closed.iter().map(|(path, _)| path.clone());
        (closed.chain([self.path.clone()]).collect(), self.removed)
    }
}

fn reserve(folder: &Path) -> io::Result<File> {
    let mut file = without_name(folder)?;
    file.write_all(&vec![1; RESERVE_BYTES]).map(|()| file)
}

fn open(folder: &Path, number: u32) -> io::Result<(PathBuf, File)> {
    let path = folder.join(format!("{number:08}.{EXTENSION}"));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}

/// Whether `error` says that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}
