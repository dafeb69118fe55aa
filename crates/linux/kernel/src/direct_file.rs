//! Writing and reading past the page cache: the disk takes bytes straight out of the program's memory, or brings them there.
//!
//! To write by way of the cache takes a copy, a page, and later another thread that hands it to the disk; of a capture that is half of
//! all that it costs. Memory, length and place in the file must be whole [`ALIGNMENT`]s. Not every file system can do it.
//!
//! Source: open(2), `O_DIRECT`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Advice, Mode, OFlags, fadvise, fstatvfs, open};

/// What every disk is content with.
pub const ALIGNMENT: usize = 4096;

/// Opens `file` once more, to be written by [`write_all_at`](std::os::unix::fs::FileExt::write_all_at) past the page cache, if no page is
/// written both ways. It is the same file, whatever has its name by now.
///
/// # Errors
/// `EINVAL` where the file system cannot do that, others as of open(2). Some say `EINVAL` at the first write only.
pub fn open_direct(file: &File) -> io::Result<File> {
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let fd = open(same, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fd.into())
}

/// Opens the file at `path`, to be read past the page cache.
///
/// # Errors
/// As [`open_direct`].
pub fn open_direct_to_read(path: &Path) -> io::Result<File> {
    let fd = open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fd.into())
}

/// Takes the pages of `file` out of the page cache, as far as they are on the disk already, so that reading it reads the disk.
///
/// # Errors
/// Does not fail in practice on a file.
pub fn forget_pages(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Bytes that are free for this user where `file` is.
///
/// # Errors
/// As fstatvfs(3).
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let there = fstatvfs(file)?;
    Ok(there.f_bavail.saturating_mul(there.f_frsize))
}
