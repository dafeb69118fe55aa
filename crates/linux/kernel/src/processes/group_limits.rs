//! What control groups allow a process: CPU time and memory, and how often they were in its way.
//!
//! Both versions of control groups are read, and each group from the process's own up to the root: the tightest one limits.
//!
//! | | version 2 | version 1 |
//! |---|---|---|
//! | CPU time | `cpu.max` | `cpu.cfs_quota_us`, `cpu.cfs_period_us` |
//! | time without a CPU for it | `cpu.stat`: `throttled_usec` | `cpu.stat`: `throttled_time` (ns) |
//! | memory of sockets | `memory.max` | `memory.kmem.tcp.limit_in_bytes` |
//! | used | `memory.current` | `memory.kmem.tcp.usage_in_bytes` |
//! | times that the limit was met | `memory.events`: `max` | `memory.kmem.tcp.failcnt` |
//!
//! Version 2 counts the memory of sockets with all other memory of a group. Version 1 counts that of TCP alone, and apart.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst`, `Documentation/admin-guide/cgroup-v1/memory.rst`,
//! proc_pid_mountinfo(5).

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, open, openat, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What file systems of control groups are, of both versions (`<linux/magic.h>`).
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
/// Longest file of a group that is read.
const FILE_BYTES_MOST: u64 = 64 << 10;
/// Groups above each other that are looked at.
const LEVELS_MOST: usize = 32;
/// So much is read of the mounts of a process: its user can have 100,000, each with a path of a megabyte.
const MOUNTS_BYTES_MOST: u64 = 1 << 20;
/// Mounted control groups that are looked at: a process has one or two that have limits, and a container shows them again.
const MOUNTS_MOST: usize = 16;
/// Processes that are asked for their mounts: the one, and those above it.
const ANCESTORS_MOST: usize = 32;
/// A limit of version 1 from here on is none: it is the greatest number of pages.
const NO_LIMIT: u64 = 1 << 62;

/// The limits of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupLimits {
    /// The tightest limit of CPU time; `null` if there is none, or if it could not be read.
    pub cpu: Option<CpuLimit>,
    /// The tightest limit of the memory that sockets take; `null` if there is none, or if it could not be read.
    pub memory: Option<MemoryLimit>,
    /// Time that its group, or one above, had no CPU as its quota was used up, summed over CPUs, nanoseconds.
    pub throttled_ns: u64,
    /// Times that its group, or one above, met that limit.
    pub memory_limit_hits: u64,
}

/// The control groups of a process, which can be read as long as they are there: also when the process has ended.
#[derive(Debug, Clone, Default)]
pub struct ProcessGroups {
    /// `/proc/PID/cgroup`.
    groups: String,
    /// The lines of control groups in `/proc/PID/mountinfo` of the process, or of one above it.
    mounts: String,
    /// The root of its files, as this process sees it.
    root: PathBuf,
}

impl ProcessGroups {
    /// Those of a process by its number, or of `self`. What cannot be read is no group.
    pub fn of(process: &str) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let groups = text(&Path::new("/proc").join(process).join("cgroup"));
        // `ip netns exec` mounts a /sys of its own, without control groups: the process that started it still has them.
        let mut process = Some(process.to_owned());
        for _ in 0..ANCESTORS_MOST {
            let Some(folder) = process.map(|process| Path::new("/proc").join(process)) else { break };
            let mounts = File::open(folder.join("mountinfo")).map(group_mounts).unwrap_or_default();
            if !mounts.is_empty() {
                return Self { groups, mounts, root: folder.join("root") };
            }
            process = parent(&text(&folder.join("status")));
        }
        Self::default()
    }

    /// Their limits.
    pub fn limits(&self) -> GroupLimits {
        let there = |path: &Path| text_of_group(&self.root, path).or_else(|| text_of_group(Path::new("/"), path));
        GroupLimits::of(&self.groups, &self.mounts, there)
    }
}

/// The lines of control groups in a list of mounts, the first ones. What comes after [`MOUNTS_BYTES_MOST`] is not known.
fn group_mounts(list: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error counts.
    let _ = list.take(MOUNTS_BYTES_MOST).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    // The last line may have been cut.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().filter(|line| Mount::parse(line).is_some());
    lines.take(MOUNTS_MOST).flat_map(|line| [line, "\n"]).collect()
}

/// The text of a file of a control group at `path` below `root`. Where files are is another process's word: it may belong to another user, who has
/// mounted what he likes there. So no link is followed, and a file of anything but a control group is not opened: that alone can act on a device.
fn text_of_group(root: &Path, path: &Path) -> Option<String> {
    let named = OFlags::PATH | OFlags::CLOEXEC;
    let folder = open(root, named | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let path = path.strip_prefix("/").ok()?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let file = match openat2(&folder, path, named | OFlags::NOFOLLOW, Mode::empty(), inside) {
        // Before Linux 5.6, and where a filter of system calls does not know it.
        Err(Errno::NOSYS | Errno::PERM) => openat(&folder, path, named | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    };
    let file = file.ok()?;
    let kind = fstatfs(&file).ok()?.f_type;
    if ![CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC].contains(&kind) {
        return None;
    }
    // This very file, whatever its name means by now.
    let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let mut text = String::new();
    file.take(FILE_BYTES_MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A limit of CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuLimit {
    /// The folder of the group that has it.
    pub folder: String,
    /// CPU time in each period, microseconds.
    pub quota_us: u64,
    /// The period, microseconds.
    pub period_us: u64,
}

/// A limit of the memory that sockets take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryLimit {
    /// The folder of the group that has it.
    pub folder: String,
    /// Bytes that the group may use. Version 2: all its memory, including that of sockets. Version 1: only that of TCP.
    pub limit_bytes: u64,
    /// Of which this much is used.
    pub used_bytes: u64,
}

impl GroupLimits {
    /// Reads those of the calling process. What cannot be read is no limit.
    pub fn read() -> Self {
        ProcessGroups::of("self").limits()
    }

    fn of(groups: &str, mounts: &str, text: impl Fn(&Path) -> Option<String>) -> Self {
        let mut limits = Self::default();
        for mount in mounts.lines().filter_map(Mount::parse) {
            for folder in mount.folders(groups) {
                let number = |name: &str| text(&folder.join(name))?.trim().parse::<u64>().ok();
                let field = |name: &str, key: &str| field(&text(&folder.join(name))?, key);
                let named = || folder.display().to_string();
                let (quota, throttled, memory, hits) = match mount.version {
                    Version::Two => (
                        text(&folder.join("cpu.max")).and_then(|line| quota(&line)),
                        field("cpu.stat", "throttled_usec").map(|us| us.saturating_mul(1_000)),
                        number("memory.max").zip(number("memory.current")),
                        field("memory.events", "max"),
                    ),
                    Version::One => (
                        number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us")),
                        field("cpu.stat", "throttled_time"),
                        number("memory.kmem.tcp.limit_in_bytes").zip(number("memory.kmem.tcp.usage_in_bytes")),
                        number("memory.kmem.tcp.failcnt"),
                    ),
                };
                let share = |quota: u64, period: u64| quota as f64 / period.max(1) as f64;
                let tighter = |(quota, period): &(u64, u64)| {
                    limits.cpu.as_ref().is_none_or(|cpu| share(*quota, *period) < share(cpu.quota_us, cpu.period_us))
                };
                if let Some((quota_us, period_us)) = quota.filter(tighter) {
                    limits.cpu = Some(CpuLimit { folder: named(), quota_us, period_us });
                }
                let tighter = |(limit, _): &(u64, u64)| {
                    *limit < limits.memory.as_ref().map_or(NO_LIMIT, |memory| memory.limit_bytes)
                };
                if let Some((limit_bytes, used_bytes)) = memory.filter(tighter) {
                    limits.memory = Some(MemoryLimit { folder: named(), limit_bytes, used_bytes });
                }
                // What stops a group stops those below it, too: the greatest counts, not the sum.
                limits.throttled_ns = limits.throttled_ns.max(throttled.unwrap_or(0));
                limits.memory_limit_hits = limits.memory_limit_hits.max(hits.unwrap_or(0));
            }
        }
        limits
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted hierarchy that may have CPU time or memory.
#[derive(Debug)]
struct Mount<'a> {
    version: Version,
    /// The group that is seen as its root.
    root: &'a str,
    folder: &'a str,
    /// Of version 1: its controllers, as in the last field of the line.
    controllers: &'a str,
}

impl<'a> Mount<'a> {
    /// `ID PARENT MAJOR:MINOR ROOT FOLDER OPTIONS … - TYPE SOURCE SUPER-OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, folder) = (fields.next()?, fields.next()?);
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup2" => Version::Two,
            "cgroup" => Version::One,
            _ => return None,
        };
        let controllers = after.nth(1).unwrap_or_default();
        let known = |name: &str| name == "cpu" || name == "memory";
        let is_useful = version == Version::Two || controllers.split(',').any(known);
        is_useful.then_some(Self { version, root, folder, controllers })
    }

    /// The folders of the process's group and of those above it, by `/proc/PID/cgroup`: `NUMBER:CONTROLLERS:PATH`.
    fn folders(&self, groups: &str) -> Vec<PathBuf> {
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_this = match self.version {
                Version::Two => controllers.is_empty(),
                Version::One => {
                    controllers.split(',').any(|own| !own.is_empty() && self.controllers.split(',').any(|it| it == own))
                }
            };
            is_this.then_some(path)
        });
        let Some(own) = own else { return Vec::new() };
        let below = own.strip_prefix(self.root).unwrap_or(own).trim_matches('/');
        // Without a slash at its end.
        let top: PathBuf = Path::new(self.folder).components().collect();
        let depth = below.split('/').filter(|part| !part.is_empty()).count();
        let own = if below.is_empty() { top } else { top.join(below) };
        own.ancestors().take((depth + 1).min(LEVELS_MOST)).map(Path::to_owned).collect()
    }
}

/// The parent of a process, by its `/proc/PID/status`; `None` of the first.
fn parent(status: &str) -> Option<String> {
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    (parent != "0").then(|| parent.to_owned())
}

/// `QUOTA PERIOD` of `cpu.max`; `None` for `max`.
fn quota(line: &str) -> Option<(u64, u64)> {
    let (quota, period) = line.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

/// The number behind `key` in lines of key and number.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn limits(groups: &str, mounts: &str, files: &[(&str, &str)]) -> GroupLimits {
        let files: BTreeMap<PathBuf, String> =
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        GroupLimits::of(groups, mounts, |path| files.get(path).cloned())
    }

    #[test]
    fn the_tightest_group_of_version_2_limits() {
        let files = [
            ("/sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/system.slice/x.service/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/system.slice/x.service/cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 1200\n"),
            ("/sys/fs/cgroup/system.slice/cpu.stat", "throttled_usec 7\n"),
            ("/sys/fs/cgroup/system.slice/x.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/system.slice/memory.current", "1000000\n"),
            ("/sys/fs/cgroup/system.slice/memory.events", "low 0\nhigh 5\nmax 17\noom 0\n"),
        ];
        let seen = limits(
            "0::/system.slice/x.service\n",
            "26 25 0:22 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup rw\n",
            &files,
        );
        let folder = "/sys/fs/cgroup/system.slice";
        let expected = GroupLimits {
            cpu: Some(CpuLimit { folder: format!("{folder}/x.service"), quota_us: 50_000, period_us: 100_000 }),
            memory: Some(MemoryLimit { folder: folder.into(), limit_bytes: 1 << 20, used_bytes: 1_000_000 }),
            throttled_ns: 1_200_000,
            memory_limit_hits: 17,
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn groups_of_version_1_and_of_a_container() {
        let mounts = "25 22 0:21 /docker/7 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      27 22 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      28 22 0:24 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let files = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 4200\n"),
            ("/sys/fs/cgroup/memory/a/memory.kmem.tcp.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/a/memory.kmem.tcp.usage_in_bytes", "5\n"),
            // No memory of sockets.
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n"),
            ("/sys/fs/cgroup/memory/a/memory.failcnt", "7\n"),
            ("/sys/fs/cgroup/memory/memory.kmem.tcp.failcnt", "3\n"),
        ];
        let seen = limits("4:memory:/a\n1:cpu,cpuacct:/docker/7\n0::/\n", mounts, &files);
        assert_eq!(seen.cpu.map(|cpu| (cpu.quota_us, cpu.folder)), Some((20_000, "/sys/fs/cgroup/cpu".into())));
        assert_eq!((seen.throttled_ns, seen.memory, seen.memory_limit_hits), (4_200, None, 3));
    }

    /// What another user may have mounted where a group is said to be: it is neither read, nor waited for.
    #[test]
    fn a_file_of_no_group_is_not_opened() {
        let folder = std::env::temp_dir().join(format!("longhaul-groups-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cpu.max"), "1 2").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("/sys/fs/cgroup/cgroup.procs", folder.join("link")).unwrap();
        for name in ["/cpu.max", "/pipe", "/link", "/none", "cpu.max"] {
            assert_eq!(text_of_group(&folder, Path::new(name)), None, "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        // Where one is mounted it is read.
        for file in ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cpu/cgroup.procs"] {
            let is_there = std::fs::read_to_string(file).is_ok();
            assert!(!is_there || text_of_group(Path::new("/"), Path::new(file)).is_some(), "{file}");
        }
    }

    /// Another user mounts what he likes, as often as he likes, at paths as long as he likes.
    #[test]
    fn mounts_without_end_are_not_read_to_their_end() {
        let line = "26 25 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let other = "27 25 0:23 / /tmp rw - tmpfs none rw\n";
        assert_eq!(group_mounts(format!("{other}{line}{other}").as_bytes()), line);
        let long = format!("{other}{line}28 25 0:24 / /");
        assert_eq!(group_mounts(long.as_bytes().chain(std::io::repeat(b'a'))), line);
        assert_eq!(group_mounts(line.repeat(100_000).as_bytes()), line.repeat(MOUNTS_MOST));
        assert_eq!(group_mounts(line.trim_end().as_bytes()), "", "it may have been cut");
    }

    #[test]
    fn this_machine_is_read() {
        let _ = GroupLimits::read();
    }

    proptest! {
        #[test]
        fn no_text_panics(groups in "[ -~\\n]{0,100}", mounts in "[ -~\\n]{0,200}", file in "[ -~\\n]{0,60}") {
            let _ = GroupLimits::of(&groups, &mounts, |_| Some(file.clone()));
            let mounts = format!("1 1 0:1 / /x rw - cgroup2 x rw\n{mounts}");
            let _ = GroupLimits::of(&format!("0::/{groups}"), &mounts, |_| Some(file.clone()));
        }
    }
}
