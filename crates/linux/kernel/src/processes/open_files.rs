//! The open files of other processes, as many as one look may read.
//!
//! Each user can have millions of them: a socket that is duplicated (dup(2)) costs nothing, and each forked process has it as well. So a look is bounded in
//! files and time, reads processes with few files first, and ends when a signal asks this process to stop.
//!
//! Source: proc_pid_fd(5). A process may end at any moment, so one that has ended has nothing.

use std::fs;
use std::io;
use std::path::Path;

use longhaul_units::Nanos;

use super::signals::stops;
use crate::clock::monotonic;

/// So many files of each process are read before more of any. Most processes have fewer.
const FEW_FILES: usize = 256;

/// What one look may cost. Reading a file takes some 2 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookLimits {
    /// Files of one process.
    pub files_of_process: usize,
    /// Files of all processes.
    pub files: usize,
    /// Time.
    pub time: Nanos,
}

impl Default for LookLimits {
    /// 65,536 files of a process, a million in all, half a second: the files of most servers, and no pause that a user notices.
    fn default() -> Self {
        Self { files_of_process: 1 << 16, files: 1_000_000, time: Nanos::from_millis(500) }
    }
}

/// One look at the files of processes.
#[derive(Debug)]
pub struct Look {
    limits: LookLimits,
    left: usize,
    until: Nanos,
    stops: u32,
}

/// What a look at all processes has not seen.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    /// Processes that the caller may not look at.
    pub(crate) hidden_processes: u32,
    /// Processes whose files were not all read.
    pub(crate) unread_processes: u32,
    /// The process with which the next look begins, so that each one's turn comes.
    pub(crate) next: u32,
}

impl Unseen {
    fn leave(&mut self, next: u32) {
        if self.unread_processes == 0 {
            self.next = next;
        }
        self.unread_processes += 1;
    }
}

impl Look {
    /// Begins one, now.
    pub fn begin(limits: LookLimits) -> Self {
        Self { limits, left: limits.files, until: monotonic().saturating_add(limits.time), stops: stops() }
    }

    /// Whether a signal asked this process to stop since it began.
    pub fn was_stopped(&self) -> bool {
        stops() != self.stops
    }

    fn goes_on(&self) -> bool {
        self.left > 0 && !self.was_stopped() && monotonic() < self.until
    }

    /// Calls `take` with each file of process `pid` (`/proc/PID/fd/NUMBER`) and what it is (`socket:[…]`). Returns whether all were read.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] where the caller may not look, [`io::ErrorKind::NotFound`] where it has ended.
    pub(crate) fn of_process(&mut self, pid: u32, take: impl FnMut(&Path, &Path)) -> io::Result<bool> {
        self.up_to(self.limits.files_of_process, pid, take)
    }

    fn up_to(&mut self, most: usize, pid: u32, mut take: impl FnMut(&Path, &Path)) -> io::Result<bool> {
        for (at, entry) in fs::read_dir(format!("/proc/{pid}/fd"))?.enumerate() {
            if at >= most || !self.goes_on() {
                return Ok(false);
            }
            self.left -= 1;
            // Descriptors come and go while they are listed.
            let Ok(file) = entry.map(|entry| entry.path()) else { continue };
            if let Ok(target) = fs::read_link(&file) {
                take(&file, &target);
            }
        }
        Ok(true)
    }

    /// Calls `take` with the files of all processes, `first` and those with greater numbers before the others; with a file perhaps twice.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub(crate) fn of_all(&mut self, first: u32, mut take: impl FnMut(u32, &Path, &Path)) -> io::Result<Unseen> {
        let entries = fs::read_dir("/proc")?.flatten();
        let mut processes: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        processes.sort_unstable();
        let begin = processes.partition_point(|pid| *pid < first);
        processes.rotate_left(begin);
        let few = FEW_FILES.min(self.limits.files_of_process);
        let mut unseen = Unseen::default();
        let mut many = Vec::new();
        for pid in processes {
            if !self.goes_on() {
                unseen.leave(pid);
                continue;
            }
            match self.up_to(few, pid, |file, target| take(pid, file, target)) {
                Ok(true) => {}
                Ok(false) => many.push(pid),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unseen.hidden_processes += 1,
                Err(_) => {}
            }
        }
        for pid in many {
            if !self.goes_on() {
                unseen.leave(pid);
            } else if let Ok(false) = self.of_process(pid, |file, target| take(pid, file, target)) {
                // Not the same one again: others wait for their turn.
                unseen.leave(pid.saturating_add(1));
            }
        }
        Ok(unseen)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::File;

    use super::*;

    fn limits(files_of_process: usize, files: usize) -> LookLimits {
        LookLimits { files_of_process, files, time: Nanos::from_secs(60) }
    }

    #[test]
    fn a_look_ends_at_its_bounds() {
        let _files: Vec<File> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
        let own = std::process::id();
        let read = |limits| {
            let mut count = 0;
            let all = Look::begin(limits).of_process(own, |_, _| count += 1).unwrap();
            (all, count)
        };
        assert!(matches!(read(limits(100_000, 100_000)), (true, 8..)));
        assert!(matches!(read(limits(5, 100_000)), (false, ..=5)));
        assert!(matches!(read(limits(100_000, 5)), (false, ..=5)));
        assert_eq!(read(LookLimits { time: Nanos::ZERO, ..limits(100_000, 100_000) }), (false, 0));
    }

    #[test]
    fn each_process_has_its_turn_however_many_files_others_have() {
        let own = std::process::id();
        let mut first = 0;
        let mut seen = HashSet::new();
        // Each look reads one file.
        for _ in 0..1_000_000 {
            first = Look::begin(limits(100_000, 1)).of_all(first, |pid, _, _| _ = seen.insert(pid)).unwrap().next;
            if seen.contains(&own) {
                return;
            }
        }
        panic!("never looked at {own}: {seen:?}");
    }

    #[test]
    fn processes_that_are_not_read_to_their_end_are_counted() {
        let _files: Vec<File> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
        let own = std::process::id();
        let mut count = 0;
        let unseen = Look::begin(limits(5, 100_000)).of_all(own, |pid, _, _| count += u32::from(pid == own)).unwrap();
        assert!(unseen.unread_processes > 0 && unseen.next > own, "{unseen:?}");
        // Twice the first five of them.
        assert!((1..=10).contains(&count), "{count}");
    }
}
