//! A folder for files that a run needs for its time.

use std::env::temp_dir;
use std::fs::{DirBuilder, remove_dir_all};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that are tried: other users may have made folders of the next ones.
const TRIES: usize = 1000;

/// A new folder of this user's alone, which goes with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one whose name has `what` in it.
    ///
    /// # Errors
    /// The folder of temporary files cannot be written to.
    pub(crate) fn new(what: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        for _ in 0..TRIES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = temp_dir().join(format!("longhaul-{what}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done.map(|()| Self(path)),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("all names in {} are taken", temp_dir().display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, metadata};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Somebody who guesses the next name makes it before.
    #[test]
    fn a_folder_that_is_there_is_not_used() {
        let first = Folder::new("guessed").unwrap();
        assert_eq!(metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let name = first.path().to_str().unwrap().to_owned();
        let (stem, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        let guessed: Vec<PathBuf> = (1..4).map(|next| format!("{stem}-{}", number + next).into()).collect();
        guessed.iter().for_each(|guessed| create_dir(guessed).unwrap());
        let next = Folder::new("guessed").unwrap();
        assert!(!guessed.contains(&next.path().to_owned()), "{}", next.path().display());
        guessed.iter().for_each(|guessed| remove_dir_all(guessed).unwrap());
    }
}
