//! How fast a disk reads a file, or writes into a folder, one block after the other.
//!
//! What is written has no name and is gone with its descriptor, also where the process is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::direct_file::{ALIGNMENT, forget_pages, free_bytes, open_direct, open_direct_to_read};
use longhaul_kernel::new_file::without_name;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_units::{BitRate, Nanos};

/// One call moves so much: what a copying program moves at a time, or more.
const BLOCK_BYTES: usize = 1 << 20;

/// How fast it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRate {
    /// Bytes.
    pub bytes: u64,
    /// In this time; of writing with the time until the disk has them.
    pub elapsed: Nanos,
    /// Whether the page cache was left out. Otherwise the file system cannot do that, and memory may have helped.
    pub past_cache: bool,
}

impl DiskRate {
    /// Bits per second.
    pub fn rate(&self) -> BitRate {
        BitRate::of(self.bytes, self.elapsed)
    }
}

/// Reads the file at `path` from its beginning, for at most `time` and `most` bytes, or until `stop` says so.
///
/// # Errors
/// As open(2) and read(2) have them.
pub fn read_rate(path: &Path, time: Nanos, most: u64, stop: impl Fn() -> bool) -> io::Result<DiskRate> {
    let direct = open_direct_to_read(path);
    let mut past_cache = direct.is_ok();
    let mut file = direct.or_else(|_| File::open(path))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut block = Block::new();
    let mut began = monotonic();
    let mut bytes = 0;
    while bytes < most && monotonic() < began.saturating_add(time) && !stop() {
        match file.read_at(block.bytes(), bytes) {
            Ok(count) => {
                bytes += count as u64;
                // The end of the file.
                if count < BLOCK_BYTES {
                    break;
                }
            }
            // Some file systems say at the first call that they cannot.
            Err(error) if bytes == 0 && past_cache && error.kind() == io::ErrorKind::InvalidInput => {
                (past_cache, file) = (false, File::open(path)?);
                forget_pages(&file)?;
                began = monotonic();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(DiskRate { bytes, elapsed: monotonic().saturating_sub(began), past_cache })
}

/// Writes a file without a name into `folder`, for at most `time`, `most` bytes and a quarter of the free space, or until `stop` says so.
///
/// # Errors
/// `PermissionDenied` where a link of another user leads to the folder; otherwise as open(2) and write(2) have them.
pub fn write_rate(folder: &Path, time: Nanos, most: u64, stop: impl Fn() -> bool) -> io::Result<DiskRate> {
    let folder = OpenFolder::open(folder)?;
    let named = without_name(&folder.path())?;
    let most = most.min(free_bytes(&named)? / 4);
    let direct = open_direct(&named);
    let mut past_cache = direct.is_ok();
    let mut file = match direct {
        Ok(file) => file,
        Err(_) => named.try_clone()?,
    };
    let mut block = Block::new();
    let began = monotonic();
    let mut bytes = 0;
    while bytes < most && monotonic() < began.saturating_add(time) && !stop() {
        match file.write_all_at(block.bytes(), bytes) {
            Ok(()) => bytes += BLOCK_BYTES as u64,
            Err(error) if bytes == 0 && past_cache && error.kind() == io::ErrorKind::InvalidInput => {
                (past_cache, file) = (false, named.try_clone()?);
            }
            Err(error) => return Err(error),
        }
    }
    file.sync_data()?;
    Ok(DiskRate { bytes, elapsed: monotonic().saturating_sub(began), past_cache })
}

/// Memory that begins where a disk wants it to.
struct Block {
    memory: Vec<u8>,
    begin: usize,
}

impl Block {
    /// Bytes that no file system can compress away to nothing.
    fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let memory: Vec<u8> = (0..BLOCK_BYTES + ALIGNMENT)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u8
            })
            .collect();
        let begin = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, begin }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + BLOCK_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn what_is_written_is_gone_and_what_is_read_is_the_file() {
        let folder = std::env::temp_dir().join(format!("longhaul-disk-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let written = write_rate(&folder, Nanos::from_secs(10), 3 << 20, || false).unwrap();
        assert_eq!(written.bytes, 3 << 20);
        assert!(written.rate().0 > 0);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let path = folder.join("file");
        fs::write(&path, vec![1; 1_500_000]).unwrap();
        let read = read_rate(&path, Nanos::from_secs(10), u64::MAX, || false).unwrap();
        assert_eq!(read.bytes, 1_500_000);
        assert_eq!(read_rate(&path, Nanos::from_secs(10), u64::MAX, || true).unwrap().bytes, 0);
        assert!(read_rate(&folder, Nanos::from_secs(1), 1, || false).is_err());
        assert!(write_rate(&path, Nanos::from_secs(1), 1, || false).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nothing_is_written_where_a_link_of_another_user_leads() {
        let base = std::env::temp_dir().join(format!("longhaul-disk-link-{}", std::process::id()));
        let (folder, link) = (base.join("folder"), base.join("link"));
        fs::create_dir_all(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        let write = |path: &Path| write_rate(path, Nanos::from_secs(10), 1 << 20, || false);
        assert_eq!(write(&link).unwrap().bytes, 1 << 20);
        if lchown(&link, Some(65_534), None).is_ok() {
            for path in [link.clone(), link.join("")] {
                assert_eq!(write(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path:?}");
            }
        } else {
            println!("skipped: links of another user take root");
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
