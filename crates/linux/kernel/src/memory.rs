//! Memory that is there when it is needed: taken, touched and (where allowed) locked before a packet waits for it.
//!
//! A long path keeps its packets in memory: 10 Gb/s over 500 ms is 625 MB. Taken page by page while packets arrive it
//! would cost a page fault each 4 KiB; taken when there is none it would wake the OOM killer, so [`PayloadMemory::new`] looks
//! first.
//!
//! Source: mmap(2), madvise(2), proc_meminfo(5), `Documentation/admin-guide/cgroup-v2.rst` (Memory),
//! `Documentation/admin-guide/cgroup-v1/memory.rst`.

use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

use longhaul_units::Bytes;
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap_anonymous, munmap};

/// Memory that must stay free for the rest of the machine.
const RESERVE_BYTES: u64 = 64 << 20;
/// Taken at a time: the process's map of memory is held meanwhile, and another thread that needs it (its heap grows) waits.
/// A huge page, which takes the kernel 8 ms at the slowest that was measured.
const PIECE_BYTES: usize = 2 << 20;

/// Why memory was not given.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// There is less than was asked for.
    #[error(
        "{needed} of packet memory do not fit into what is available: {available} ({limit}); \
         make the path shorter or slower, its queues smaller, or free memory"
    )]
    TooLittle {
        /// What was asked for and what must stay free.
        needed: Bytes,
        /// What may be taken.
        available: Bytes,
        /// What sets the limit: the machine's memory or a control group.
        limit: &'static str,
    },
    /// The kernel refused.
    #[error("the kernel did not give {needed} of packet memory: {step}: {source}")]
    Refused {
        /// What was asked for.
        needed: Bytes,
        /// The call that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A block of zeroed memory, all of it resident.
#[derive(Debug)]
pub struct PayloadMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is bound to a thread.
unsafe impl Send for PayloadMemory {}
// SAFETY: a shared reference gives only shared slices of plain bytes.
unsafe impl Sync for PayloadMemory {}

impl PayloadMemory {
    /// Takes `bytes` of memory, in huge pages where the kernel has them, and touches all of it.
    ///
    /// Takes some 0.06 s a GiB with huge pages; in a virtual machine whose host never backed that memory before, 4 s (both
    /// measured), which is why it is not left to the first packets.
    ///
    /// # Errors
    /// [`MemoryError::TooLittle`] before anything is taken; [`MemoryError::Refused`].
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        let length = bytes.max(1);
        let needed = Bytes(length as u64);
        let available = available();
        if needed.0.saturating_add(RESERVE_BYTES) > available.bytes.0 {
            let needed = Bytes(needed.0.saturating_add(RESERVE_BYTES));
            return Err(MemoryError::TooLittle { needed, available: available.bytes, limit: available.limit });
        }
        let refused =
            |step| move |source: rustix::io::Errno| MemoryError::Refused { needed, step, source: source.into() };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE) }
            .map_err(refused("mmap"))?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never maps at zero unasked");
        let mut memory = Self { start, length };
        let raw = start.as_ptr().cast();
        // Huge pages must be asked for before the first touch. Kernels without them say EINVAL, and small pages do.
        // SAFETY: our own mapping; the advice changes no contents.
        let _ = unsafe { madvise(raw, length, Advice::LinuxHugepage) };
        // Locking keeps it out of swap. Without CAP_IPC_LOCK the limit is small; unlocked it works just as well, until the
        // machine swaps. Locking pages when they are first touched needs no walk over all pages.
        // SAFETY: our own mapping.
        let _ = unsafe { mlock_with(raw, length, MlockFlags::ONFAULT) };
        for at in (0..length).step_by(PIECE_BYTES) {
            let piece_bytes = PIECE_BYTES.min(length - at);
            let piece = memory[at..at + piece_bytes].as_mut_ptr();
            // SAFETY: a part of our own mapping; the advice changes no contents.
            match unsafe { madvise(piece.cast(), piece_bytes, Advice::LinuxPopulateWrite) } {
                Ok(()) => {}
                // Before Linux 5.14 it takes a write to each page.
                Err(rustix::io::Errno::INVAL) => touch(&mut memory[at..at + piece_bytes]),
                Err(error) => return Err(refused("madvise MADV_POPULATE_WRITE")(error)),
            }
        }
        Ok(memory)
    }
}

/// Bytes of a page of memory.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Writes a zero to each page.
fn touch(memory: &mut [u8]) {
    for page in memory.chunks_mut(page_bytes()) {
        // SAFETY: a valid reference; volatile, or the compiler would leave out the write of a zero over a zero.
        unsafe { std::ptr::write_volatile(&mut page[0], 0) };
    }
}

impl Deref for PayloadMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: our own mapping, readable, zeroed by the kernel, alive as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for PayloadMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for PayloadMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; slices of it borrow `self`, so none is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// How much memory the process may still take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Without swapping and without the OOM killer, as the kernel estimates it.
    pub bytes: Bytes,
    /// What sets the limit.
    pub limit: &'static str,
}

/// The smallest of what the machine has available and what each control group above this process has left.
///
/// What cannot be read does not limit.
pub fn available() -> Available {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_available(&text));
    let (machine, group) = (machine.unwrap_or(u64::MAX), group.unwrap_or(u64::MAX));
    if group < machine {
        Available { bytes: Bytes(group), limit: "memory limit of a control group" }
    } else {
        Available { bytes: Bytes(machine), limit: "MemAvailable of the machine" }
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn meminfo_available(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Where a version of control groups keeps its memory limits.
struct GroupFiles {
    /// The line of `/proc/self/cgroup` is `N:controllers:/path`; in version 2 no controllers are named.
    line_with: fn(controllers: &str) -> bool,
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`, what the kernel drops before it kills: it counts as used all the same.
    reclaimable: &'static str,
}

const GROUP_VERSIONS: [GroupFiles; 2] = [
    GroupFiles {
        line_with: str::is_empty,
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        reclaimable: "inactive_file ",
    },
    GroupFiles {
        line_with: |controllers| controllers.split(',').any(|controller| controller == "memory"),
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        reclaimable: "total_inactive_file ",
    },
];

/// What the control groups of `/proc/self/cgroup` have left: the process's own and all above it.
fn group_available(cgroup: &str) -> Option<u64> {
    GROUP_VERSIONS.iter().filter_map(|version| version.available(cgroup)).min()
}

impl GroupFiles {
    fn available(&self, cgroup: &str) -> Option<u64> {
        let own = group_path(cgroup, self.line_with)?;
        Path::new(own)
            .ancestors()
            .filter_map(|group| {
                let directory = Path::new(self.root).join(group);
                let number = |file| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok();
                // `max` is no number: no limit. Version 1 writes a huge number.
                let (limit, used) = (number(self.limit)?, number(self.used)?);
                let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
                Some(limit.saturating_sub(used.saturating_sub(stat_bytes(&stat, self.reclaimable))))
            })
            .min()
    }
}

/// The group's path without its leading slash.
fn group_path(cgroup: &str, line_with: fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        line_with(controllers).then(|| path.trim_start_matches('/'))
    })
}

/// The number behind `name` in `memory.stat`, zero where it is missing.
fn stat_bytes(stat: &str, name: &str) -> u64 {
    stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_writable() {
        let mut memory = PayloadMemory::new(3 << 20).unwrap();
        assert_eq!(memory.len(), 3 << 20);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory[3 << 20 >> 1] = 7;
        assert_eq!(memory[3 << 20 >> 1], 7);
        touch(&mut memory);
        assert!(memory.iter().all(|byte| matches!(*byte, 0 | 7)));
    }

    #[test]
    fn too_much_is_refused_before_it_is_taken() {
        let error = PayloadMemory::new(1 << 50).unwrap_err();
        assert!(matches!(error, MemoryError::TooLittle { .. }), "{error}");
        assert!(error.to_string().contains("do not fit"), "{error}");
    }

    #[test]
    fn reads_meminfo_and_memory_stat() {
        let meminfo = "MemTotal:       24683520 kB\nMemFree:        1 kB\nMemAvailable:   24000000 kB\n";
        assert_eq!(meminfo_available(meminfo), Some(24_000_000 * 1024));
        assert_eq!(meminfo_available("MemTotal: 5 kB\n"), None);
        assert_eq!(stat_bytes("anon 5\ninactive_file 4096\nactive_file 1\n", "inactive_file "), 4096);
    }

    #[test]
    fn finds_the_group_in_either_version() {
        let hybrid = "9:name=systemd:/\n4:cpu,memory:/user/1000\n0::/unified/one\n";
        let [second, first] = GROUP_VERSIONS.map(|version| group_path(hybrid, version.line_with));
        assert_eq!((first, second), (Some("user/1000"), Some("unified/one")));
        assert_eq!(group_path("", str::is_empty), None);
    }
}
