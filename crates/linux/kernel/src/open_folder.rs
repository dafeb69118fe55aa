//! A folder that is opened once: what is written below it later goes there, whatever has its name by then.
//!
//! Who may rename things in a folder's parent can put a link to any other folder in its place. A path is looked up again each time it is
//! used; a descriptor is not.
//!
//! Source: open(2), proc(5) (`/proc/PID/fd`), readlink(2), flock(2).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::links::reach;

/// An open folder. Copies share it.
#[derive(Debug, Clone)]
pub struct OpenFolder(Arc<Opened>);

/// Its descriptor, and the lock.
#[derive(Debug)]
struct Opened(OwnedFd);

impl Drop for Opened {
    fn drop(&mut self) {
        // A program that is being started has a copy of the descriptor for a moment: to close it alone would not end the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl OpenFolder {
    /// Opens the folder that `path` leads to. Links are followed as by [`followed`](crate::links::followed).
    ///
    /// # Errors
    /// `PermissionDenied` for a link of another user, at `path` or where another link leads; `NotADirectory` for what is no folder; others as of
    /// open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let (there, _) = reach(path)?.there.ok_or(Errno::NOENT)?;
        let folder = open(by_descriptor(&there), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(Arc::new(Opened(folder))))
    }

    /// The same, making the folder and those above it where they are missing.
    ///
    /// # Errors
    /// As [`OpenFolder::open`], and `AlreadyExists` where a file has the name.
    pub fn make(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Makes a folder in it, for this user alone.
    ///
    /// # Errors
    /// `AlreadyExists`; `PermissionDenied` where another user put one in its place; others as of mkdir(2).
    pub fn make_child(&self, name: &OsStr) -> io::Result<Self> {
        mkdirat(&self.0.0, name, Mode::RWXU)?;
        self.child(name)
    }

    /// Opens the folder of that name in it, which has to be this user's. No link is followed.
    ///
    /// # Errors
    /// `PermissionDenied` for another user's; `NotADirectory` for a file or a link; others as of open(2).
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        let child = openat(&self.0.0, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if fstat(&child)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self(Arc::new(Opened(child))))
    }

    /// Removes the folder `child` of that name, with the files in it.
    ///
    /// # Errors
    /// As of unlink(2) and rmdir(2): another folder has the name, which is not empty.
    pub fn remove_child(&self, name: &OsStr, child: &Self) -> io::Result<()> {
        for file in fs::read_dir(child.path())? {
            fs::remove_file(file?.path())?;
        }
        Ok(unlinkat(&self.0.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Locks it, until the last copy is dropped or the process ends, however that ends. Who may look into it can lock it, too.
    ///
    /// # Errors
    /// `WouldBlock` where it is locked: by another process, or in this one where it was opened once more. Others as of flock(2): the file system has no
    /// such locks (NFS).
    pub fn lock(&self) -> io::Result<()> {
        Ok(flock(&self.0.0, FlockOperation::NonBlockingLockExclusive)?)
    }

    /// A way to it that no rename changes, for as long as it is open.
    pub fn path(&self) -> PathBuf {
        by_descriptor(&self.0.0)
    }
}

/// The same one, not another of the same name.
impl PartialEq for OpenFolder {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OpenFolder {}

/// The way to what is open, whatever its name is by now.
pub(crate) fn by_descriptor(open: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn one_has_the_lock_at_a_time() {
        let path = std::env::temp_dir().join(format!("longhaul-locked-folder-{}", std::process::id()));
        let first = OpenFolder::make(&path).unwrap();
        first.lock().unwrap();
        first.lock().unwrap();
        let other = OpenFolder::open(&path).unwrap();
        assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let copy = first.clone();
        drop(first);
        assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock, "the copy has it");
        drop(copy);
        other.lock().unwrap();
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn what_is_written_later_goes_where_it_was_opened() {
        let base = std::env::temp_dir().join(format!("longhaul-open-folder-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (named, moved, other) = (base.join("a/named"), base.join("a/moved"), base.join("other"));
        let folder = OpenFolder::make(&named).unwrap();
        fs::create_dir(&other).unwrap();
        fs::rename(&named, &moved).unwrap();
        symlink(&other, &named).unwrap();
        fs::write(folder.path().join("file"), "here").unwrap();
        assert_eq!(fs::read(moved.join("file")).unwrap(), b"here");
        assert!(!other.join("file").exists());

        // A link of this user's own is followed, also a relative one; a file is no folder.
        symlink("moved", base.join("a/link")).unwrap();
        assert!(OpenFolder::open(&base.join("a/link")).unwrap().path().join("file").exists());
        fs::write(base.join("file"), "").unwrap();
        assert_eq!(OpenFolder::make(&base.join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(OpenFolder::open(&base.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);

        // One of another user is not, also where a link of this user's own leads to it; who may not make one cannot test it.
        if std::os::unix::fs::lchown(&named, Some(65534), None).is_ok() {
            symlink("named", base.join("a/own")).unwrap();
            for path in [named.clone(), named.join(""), base.join("a/own")] {
                assert_eq!(OpenFolder::make(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path:?}");
            }
        } else {
            println!("skipped: links of another user take root");
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
