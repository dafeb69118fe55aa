//! A folder for files that a run needs for its time.
//!
//! It goes with the run. A command that is killed leaves it, and no lock on it: the next one removes what nobody holds any more. The number of a
//! process in its name tells nothing, as another process may have the same number by then, or have it in another PID namespace.
//!
//! Source: flock(2).

use std::env::temp_dir;
use std::ffi::{OsStr, OsString};
use std::fs::{metadata, read_dir, remove_dir_all, symlink_metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_kernel::open_folder::OpenFolder;

/// Names that are tried: other users may have made folders of the next ones.
const TRIES: usize = 1000;
/// What all names begin with. The number of the process and one of its own end them.
const PREFIX: &str = "longhaul-temporary-";

/// A new folder of this user's alone, which goes with this value.
pub(crate) struct Folder {
    path: PathBuf,
    /// What it is in, and its name there.
    above: OpenFolder,
    name: OsString,
    /// Locked.
    open: OpenFolder,
}

impl Folder {
    /// Makes one whose name has `what` in it.
    ///
    /// # Errors
    /// The folder of temporary files cannot be written to.
    pub(crate) fn new(what: &str) -> io::Result<Self> {
        Self::new_in(&temp_dir(), what)
    }

    fn new_in(folder: &Path, what: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let above = OpenFolder::open(folder)?;
        for _ in 0..TRIES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!("{PREFIX}{what}-{}-{number}", std::process::id()));
            let open = match above.make_child(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            // Without locks (NFS) nobody removes what is left.
            let is_held = open.lock().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            // Who looks for what was left may have found it before it was locked.
            if !is_held && leads_to(&above, &name, &open) {
                return Ok(Self { path: folder.join(&name), above, name, open });
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("all names in {} are taken", folder.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) -> io::Result<()> {
        for entry in read_dir(self.open.path())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove_dir_all(entry.path())?;
            }
        }
        self.above.remove_child(&self.name, &self.open)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Whether `name` in `above` is the folder `open`.
fn leads_to(above: &OpenFolder, name: &OsStr, open: &OpenFolder) -> bool {
    let there = symlink_metadata(above.path().join(name)).map(|there| (there.dev(), there.ino()));
    let here = metadata(open.path()).map(|here| (here.dev(), here.ino()));
    matches!((there, here), (Ok(there), Ok(here)) if there == here)
}

/// Removes the folders that commands of this user have left which were killed. What cannot be removed stays.
pub fn remove_leftovers() {
    remove_leftovers_in(&temp_dir());
}

fn remove_leftovers_in(folder: &Path) {
    let Ok(above) = OpenFolder::open(folder) else { return };
    for entry in read_dir(above.path()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(is_ours) {
            continue;
        }
        // It is neither a link nor another user's.
        let Ok(open) = above.child(&name) else { continue };
        if open.lock().is_ok() && leads_to(&above, &name, &open) {
            drop(Folder { path: folder.join(&name), above: above.clone(), name, open });
        }
    }
}

/// `longhaul-temporary-client-4711-0`.
fn is_ours(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.strip_prefix(PREFIX).into_iter().flat_map(|rest| rest.rsplitn(3, '-'));
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, create_dir_all, write};
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = remove_dir_all(&folder);
        create_dir(&folder).unwrap();
        folder
    }

    /// Somebody who guesses the next name makes it before.
    #[test]
    fn a_folder_that_is_there_is_not_used() {
        let scratch = scratch("guessed");
        let first = Folder::new_in(&scratch, "client").unwrap();
        assert_eq!(metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let name = first.path().to_str().unwrap().to_owned();
        let (stem, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        let guessed: Vec<PathBuf> = (1..4).map(|next| format!("{stem}-{}", number + next).into()).collect();
        guessed.iter().for_each(|guessed| create_dir(guessed).unwrap());
        let next = Folder::new_in(&scratch, "client").unwrap();
        assert!(!guessed.contains(&next.path().to_owned()), "{}", next.path().display());
        // A folder goes with all that is in it.
        create_dir_all(next.path().join("state/of")).unwrap();
        write(next.path().join("state/of/file"), "").unwrap();
        let gone = next.path().to_owned();
        drop(next);
        assert!(!gone.exists() && first.path().exists());
        remove_dir_all(&scratch).unwrap();
    }

    /// What is left has no lock; and whatever is called so need not be ours.
    #[test]
    fn what_a_killed_command_left_is_removed_and_nothing_else() {
        let scratch = scratch("leftovers");
        let used = Folder::new_in(&scratch, "client").unwrap();
        let named = |name: &str| scratch.join(name);
        let left = named("longhaul-temporary-faults-tune-4711-0");
        let theirs = named("theirs");
        for folder in [&left.join("state"), &theirs, &named("longhaul-temporary-client"), &named("longhaul-client-1-2")]
        {
            create_dir_all(folder).unwrap();
        }
        for file in [&left.join("state/file"), &left.join("00000001.spool"), &theirs.join("file")] {
            write(file, "").unwrap();
        }
        symlink(&theirs, left.join("link")).unwrap();
        let (link, file) = (named("longhaul-temporary-client-4711-1"), named("longhaul-temporary-client-4711-2"));
        symlink(&theirs, &link).unwrap();
        write(&file, "").unwrap();
        let another = named("longhaul-temporary-client-4711-3");
        create_dir(&another).unwrap();
        let has_another = lchown(&another, Some(65534), None).is_ok();
        if !has_another {
            println!("skipped: folders of another user take root");
        }
        remove_leftovers_in(&scratch);
        assert!(!left.exists());
        assert_eq!(another.exists(), has_another);
        let stays = ["longhaul-temporary-client", "longhaul-client-1-2", "theirs/file"].map(named);
        for path in stays.iter().chain([&link, &file]).map(PathBuf::as_path).chain([used.path()]) {
            assert!(symlink_metadata(path).is_ok(), "{}", path.display());
        }
        drop(used);
        remove_dir_all(&scratch).unwrap();
    }
}
