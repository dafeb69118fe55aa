//! Writing past the page cache: the disk takes bytes straight out of the program's memory.
//!
//! To write by way of the cache takes a copy, a page, and later another thread that hands it to the disk; of a capture that is half of
//! all that it costs. Memory, length and place in the file must be whole [`ALIGNMENT`]s. Not every file system can do it.
//!
//! Source: open(2), `O_DIRECT`.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// What every disk is content with.
pub const ALIGNMENT: usize = 4096;

/// Opens the file at `path`, which is there, to be written by [`write_all_at`](std::os::unix::fs::FileExt::write_all_at) past the page
/// cache. It may be open for ordinary writing as well, if no page is written both ways.
///
/// # Errors
/// `EINVAL` where the file system cannot do that, others as of open(2). Some say `EINVAL` at the first write only.
pub fn open_direct(path: &Path) -> io::Result<File> {
    let fd = open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fd.into())
}
