//! Holes of files: parts that read as zeros and take no room, so that a file of some kilobytes can be terabytes long.
//!
//! Source: lseek(2), `SEEK_DATA` and `SEEK_HOLE`. A file system that knows no holes says that a file has none. Not by `st_blocks`: some file
//! systems count what they have compressed, or only what has reached a disk.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Shorter files may have any holes.
const LENGTH_SURE: u64 = 1 << 20;
/// A longer one stores this part of its length at least.
const STORED_PART: u64 = 4;

/// Whether the regular file `file` says to be more than four times as long as what it stores, and is longer than 1 MiB. It moves the place at which
/// the file is read next.
///
/// # Errors
/// As lseek(2).
pub fn is_nearly_all_holes(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    Ok(length > LENGTH_SURE && !stores(file, length / STORED_PART)?)
}

/// Whether `bytes` of the regular file `file`, or more, are in no hole. It looks for holes in no more of it than that takes, and moves the place
/// at which the file is read next.
fn stores(file: &File, bytes: u64) -> io::Result<bool> {
    let (mut at, mut stored) = (0, 0);
    while stored < bytes {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Behind `at` is nothing but a hole.
            Err(Errno::NXIO) => return Ok(false),
            // This file system does not tell.
            Err(Errno::INVAL) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(data))?;
        stored += at.saturating_sub(data);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_hole_is_not_stored() {
        let path = std::env::temp_dir().join(format!("longhaul-holes-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(stores(&file, 0).unwrap() && !stores(&file, 1).unwrap(), "an empty file");
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        assert!(stores(&file, 1 << 20).unwrap() && !stores(&file, (1 << 20) + 1).unwrap());
        // A file system has blocks of up to a megabyte.
        let far = 1 << 34;
        file.write_all_at(&[1; 1 << 20], far).unwrap();
        assert!(stores(&file, 2 << 20).unwrap() && !stores(&file, far / 4).unwrap());
    }
}
