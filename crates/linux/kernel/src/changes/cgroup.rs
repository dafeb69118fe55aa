//! The hierarchy of control groups, version 2: where it is, and a group for one program.
//!
//! Source: cgroups(7), `Documentation/admin-guide/cgroup-v2.rst`.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use crate::guard::{Changed, Setting};

/// The folder of the hierarchy's root.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where it is mounted nowhere.
pub fn root() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // Another file system may lie over a mount.
    let usable = mount_points(&mounts).map(PathBuf::from).find(|point| point.join(crate::guard::PROCESSES).exists());
    usable.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "no cgroup2 is mounted: mount -t cgroup2 none /sys/fs/cgroup")
    })
}

/// Out of `/proc/PID/mountinfo`: field 5 is the mount point, and the type follows a lone `-` (proc_pid_mountinfo(5)).
fn mount_points(mounts: &str) -> impl Iterator<Item = &str> {
    mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4))?
    })
}

/// The path in `/proc/PID/cgroup`, below the root.
fn own_path(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// Names that are tried for a group.
const COPIES_MOST: u32 = 100;

/// A control group of this process and its children, below the group that they came from. When the value is dropped, or its process is killed,
/// they return to that group ([`crate::guard`]).
#[derive(Debug)]
pub struct OwnGroup {
    folder: PathBuf,
    _changed: Changed,
}

impl OwnGroup {
    /// Makes the group `PREFIXPID`, or `PREFIXPID-N` where that is there, and moves this process, with all of its threads, into it.
    ///
    /// # Errors
    /// Without cgroup2, or where the caller may not make a group.
    pub fn enter(prefix: &str) -> io::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let before = root()?.join(own_path(&groups).unwrap_or_default());
        let name = |copy| {
            format!("{prefix}{}{}", std::process::id(), if copy == 0 { String::new() } else { format!("-{copy}") })
        };
        // Another namespace of processes has the same numbers: a group that is there is another command's.
        let free = (0..COPIES_MOST).map(|copy| before.join(name(copy))).find(|folder| !folder.exists());
        let folder = free.ok_or(io::ErrorKind::AlreadyExists)?;
        let setting = Setting::group(&folder, &before)?;
        let changed = Changed::apply(vec![setting], Vec::new()).map_err(|(_, error)| error)?;
        Ok(Self { folder, _changed: changed })
    }

    /// Its folder, opened.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found() {
        let both = "25 22 0:21 / /sys/fs/cgroup rw - tmpfs cgroup rw\n\
                    26 25 0:22 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                    27 25 0:23 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup rw\n";
        assert_eq!(mount_points(both).collect::<Vec<_>>(), ["/sys/fs/cgroup/unified"]);
        assert_eq!(mount_points("25 22 0:21 / /sys rw - sysfs sysfs rw\n").count(), 0);
        assert_eq!(own_path("9:name=systemd:/x\n0::/user.slice/a b\n"), Some("user.slice/a b"));
        assert_eq!(own_path("0::/\n"), Some(""));
    }
}
