//! Symbolic links on the way to what a user named: those of other users are not followed.
//!
//! Where others may write, one of them may have put a link, for root to write to what it points to. Linux refuses to follow it in folders
//! such as `/tmp` (`fs.protected_symlinks`, proc(5)); here that holds for all folders.
//!
//! What is looked at is the last name of a path, and that of each link from there on. Links of folders above are followed, whoever made them.
//!
//! Source: path_resolution(7), symlink(7), fifo(7).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlinkat};
use rustix::io::Errno;

/// Symbolic links that lead from one to the next, at most: as many as Linux follows (path_resolution(7)).
const LINKS_MOST: usize = 40;

/// Where a path leads.
pub(crate) struct Reached {
    /// The way there, without a link as its last name.
    pub(crate) path: PathBuf,
    /// What is there, opened by `O_PATH`; `None` where nothing is.
    pub(crate) there: Option<(OwnedFd, FileType)>,
}

/// Follows the links at `path`. Each is looked at once, and then what that very link says: who owns a folder can put another one in its place at
/// any time.
///
/// # Errors
/// As [`followed`].
pub(crate) fn reach(path: &Path) -> io::Result<Reached> {
    let mut path = without_slash(path);
    for _ in 0..LINKS_MOST {
        let there = match open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Reached { path, there: None }),
            opened => opened?,
        };
        let stat = fstat(&there)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if is_of_another(stat.st_uid) => return Err(of_another("symbolic link")),
            // Who made it waits for what is written to it, or has the writer wait for ever.
            FileType::Fifo if is_of_another(stat.st_uid) => return Err(of_another("pipe")),
            FileType::Symlink => {
                let target = readlinkat(&there, "", Vec::new())?;
                path = parent(&path).join(without_slash(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            kind => return Ok(Reached { path, there: Some((there, kind)) }),
        }
    }
    Err(Errno::LOOP.into())
}

/// Where `path` leads through symbolic links: what a user means who names one. What is returned must not be followed again.
///
/// # Errors
/// `PermissionDenied` where one of the links, or a pipe at their end, is neither of this user nor of root; a loop of them; otherwise as open(2) has
/// them.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    reach(path).map(|reached| reached.path)
}

/// Refuses a link of another user.
///
/// # Errors
/// `path` is a link, neither of this user nor of root.
pub fn refuse_link_of_another(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(without_slash(path)) {
        Ok(link) if link.is_symlink() && is_of_another(link.uid()) => Err(of_another("symbolic link")),
        _ => Ok(()),
    }
}

/// The folder that a path's last name is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Linux follows the link `name` in `name/` and `name/.`, also where it is told to follow none.
fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

fn is_of_another(owner: u32) -> bool {
    ![0, rustix::process::geteuid().as_raw()].contains(&owner)
}

fn of_another(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("it is a {what} of another user"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn each_link_of_a_chain_is_looked_at() {
        let folder = std::env::temp_dir().join(format!("longhaul-links-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let [target, link, second, round, none] =
            ["target", "link", "second", "round", "none"].map(|name| folder.join(name));
        fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        symlink("link", &second).unwrap();
        symlink("round", &round).unwrap();
        assert_eq!((followed(&link).unwrap(), followed(&second).unwrap()), (target.clone(), target.clone()));
        assert_eq!(followed(&none).unwrap(), none);
        assert!(followed(&round).is_err());
        if lchown(&link, Some(65534), None).is_ok() {
            for path in [&second, &link, &link.join(""), &link.join(".")] {
                assert_eq!(followed(path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path:?}");
            }
            assert!(refuse_link_of_another(&link.join("")).is_err() && refuse_link_of_another(&second).is_ok());
        } else {
            println!("skipped: links of another user take root");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
