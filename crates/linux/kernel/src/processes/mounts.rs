//! What a program on a lab host sees of the file system: its own `/sys` (links) and its own `/etc/hosts` (names).
//!
//! For a thread that is about to exec: first [`crate::namespace::NetNamespace::enter_for_good`], then [`private_mounts`],
//! then the others. Nothing is written to disk, and all of it ends with the last process inside.
//!
//! Source: mount_namespaces(7), sysfs(5), open_tree(2), move_mount(2), ip-netns(8).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_change, move_mount, open_tree, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Why the file system could not be arranged.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The caller may not mount.
    #[error("no permission to {action}: this needs CAP_SYS_ADMIN; run as root, or in a user namespace of your own")]
    Denied {
        /// What was being done.
        action: String,
    },
    /// The file to put another in the place of is missing.
    #[error("{path} does not exist, so nothing can be put in its place; create it (it may be empty)")]
    Missing {
        /// The file.
        path: String,
    },
    /// Something else.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl MountError {
    fn new(action: impl Into<String>, source: Errno) -> Self {
        match source {
            Errno::PERM | Errno::ACCESS => Self::Denied { action: action.into() },
            _ => Self::Io { action: action.into(), source: source.into() },
        }
    }
}

/// Gives the calling thread a mount namespace of its own: what it mounts from now on no other process sees; what others
/// mount (a USB stick) still shows here.
///
/// # Errors
/// [`MountError::Denied`], [`MountError::Io`].
pub fn private_mounts() -> Result<(), MountError> {
    // SAFETY: NEWNS takes the thread's current directory along (CLONE_FS) and leaves descriptors shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|errno| MountError::new("make a mount namespace", errno))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|errno| MountError::new("keep mounts private", errno))
}

/// Mounts the sysfs of the thread's network namespace at `/sys`, so that `/sys/class/net` shows its links, and keeps what
/// was mounted below it (cgroup, bpf, tracing) where it was. After [`private_mounts`] only.
///
/// # Errors
/// [`MountError::Denied`] also in containers that hide parts of `/sys`. The old `/sys` stays: programs run, most do not look.
pub fn fresh_sysfs() -> Result<(), MountError> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let kept: Vec<(String, OwnedFd)> = topmost_below(&table, "/sys")
        .into_iter()
        .filter_map(|path| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            Some((path.clone(), open_tree(CWD, path, flags).ok()?))
        })
        .collect();
    // Over the old one, not in its place: in a user namespace that one is locked.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None).map_err(|errno| MountError::new("mount sysfs at /sys", errno))?;
    for (path, tree) in kept {
        // What finds no directory in the new /sys is not missed by network programs.
        let _ = move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
    }
    Ok(())
}

/// Has `/etc/hosts` read as `text` for the calling thread and what it starts. After [`private_mounts`] only.
///
/// A name service cache (`nscd`, `systemd-resolved` through nss-resolve) reads the machine's own file and may answer first.
///
/// # Errors
/// Any [`MountError`].
pub fn override_hosts(text: &str) -> Result<(), MountError> {
    override_file("/etc/hosts", text)
}

/// Has the existing file `path` (a symbolic link is followed) read as `text`. After [`private_mounts`] only.
///
/// # Errors
/// Any [`MountError`].
pub fn override_file(path: &str, text: &str) -> Result<(), MountError> {
    let failed = |action: &'static str| move |errno| MountError::new(format!("override {path}: {action}"), errno);
    let file_system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("fsopen tmpfs"))?;
    fsconfig_create(&file_system).map_err(failed("create a tmpfs"))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let directory =
        fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed("fsmount tmpfs"))?;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file = openat(&directory, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, mode)
        .map_err(failed("create a file in the tmpfs"))?;
    File::from(file)
        .write_all(text.as_bytes())
        .map_err(|source| MountError::Io { action: format!("override {path}: write"), source })?;
    // The mode that was asked for went through the umask.
    rustix::fs::chmodat(&directory, "file", mode, rustix::fs::AtFlags::empty())
        .map_err(failed("make the file readable"))?;
    let tree = clone_file(directory).map_err(failed("open_tree"))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(&tree, "", CWD, path, flags).map_err(|errno| match errno {
        Errno::NOENT => MountError::Missing { path: path.into() },
        _ => failed("move_mount")(errno),
    })
}

/// A mount of `file` alone out of the detached tmpfs `directory`.
fn clone_file(directory: OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    match open_tree(&directory, "file", flags) {
        // Before Linux 6.15 a tree can be cloned only out of the thread's own mount namespace: attach it for a moment,
        // over a directory that is there everywhere.
        Err(Errno::INVAL) => {
            move_mount(&directory, "", CWD, "/sys", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            let tree = open_tree(CWD, "/sys/file", flags);
            unmount("/sys", UnmountFlags::DETACH)?;
            tree
        }
        other => other,
    }
}

/// The mount points of `/proc/PID/mountinfo` below `top` that lie below no other one of them, in order.
fn topmost_below(mountinfo: &str, top: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // Field 5 is the mount point (proc_pid_mountinfo(5)). None below /sys has the characters that are written in octal.
    let mut points: Vec<&str> = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    points.sort_unstable();
    points.dedup();
    for point in points {
        let below = |parent: &str| point.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'));
        if below(top) && !found.iter().any(|parent| below(parent)) {
            found.push(point.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mounts_below_sys() {
        let table = "21 1 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
             22 21 0:21 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             25 22 0:21 / /sys/fs/cgroup/inner rw - cgroup2 cgroup2 rw\n\
             23 21 0:22 / /sys/fs/bpf rw - bpf bpf rw\n\
             24 1 0:23 / /system rw - tmpfs tmpfs rw\n";
        assert_eq!(topmost_below(table, "/sys"), ["/sys/fs/bpf", "/sys/fs/cgroup"]);
    }
}
