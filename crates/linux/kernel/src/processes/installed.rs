//! Other programs of one installation: those that nobody but its owner or root can have put there.
//!
//! An administrator may have unpacked a program into a folder such as `/tmp`, where anybody puts another one beside it.

use std::fs::{metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The program `name` beside the program `own`; `None` where there is none of the same owner.
pub fn beside(own: &Path, name: &str) -> Option<PathBuf> {
    let program = own.with_file_name(name);
    (program.is_file() && is_of_owner(&program, own)).then_some(program)
}

/// Whether `path` is root's or of who owns `own`, and nobody else may change it.
pub fn is_of_owner(path: &Path, own: &Path) -> bool {
    let all = (symlink_metadata(path), metadata(path), metadata(own));
    let (Ok(named), Ok(about), Ok(owned)) = all else { return false };
    // Where users have a group each, it may write.
    let others = if [0, owned.gid()].contains(&about.gid()) { 0o002 } else { 0o022 };
    // A link is of who made it, wherever it leads.
    [&named, &about].iter().all(|one| [0, owned.uid()].contains(&one.uid())) && about.mode() & others == 0
}
