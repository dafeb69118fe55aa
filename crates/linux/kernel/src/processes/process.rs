//! Processes: who is in a network namespace, ending them, how many files this one may have open.
//!
//! Source: proc(5), pidfd_open(2), pidfd_send_signal(2), setrlimit(2).

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use longhaul_units::Nanos;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitOptions, getrlimit, pidfd_open, pidfd_send_signal, setrlimit, wait,
};

pub use rustix::process::Signal;

use crate::clock::monotonic;
use crate::namespace::{NamespaceId, id_of_process};
use crate::wait::readable_until;

/// What [`allow_many_files`] allows at most: several times what a server of ours takes.
const MANY_FILES: u64 = 1 << 16;

/// The name of a process's command (up to 15 bytes), as [`shown_name`] has it; `None` where it has ended.
pub fn name(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(shown_name(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

/// Whether Ctrl-C on its terminal reaches process `pid`: its group is the terminal's foreground one (proc_pid_stat(5), `pgrp` and `tpgid`).
pub fn is_in_foreground(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    is_foreground_stat(&String::from_utf8_lossy(&stat))
}

fn is_foreground_stat(stat: &str) -> bool {
    // The name before may contain brackets too. State, parent, group, session, terminal, its foreground group.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().skip(2);
    let (group, foreground) = (fields.next(), fields.nth(2));
    group.is_some() && group == foreground
}

/// The name that a process gave itself, up to the first zero byte: what a terminal obeys is a question mark.
pub fn shown_name(comm: &[u8]) -> String {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_shown = |letter: char| letter.is_alphanumeric() || letter.is_ascii_graphic() || letter == ' ';
    String::from_utf8_lossy(name).chars().map(|letter| if is_shown(letter) { letter } else { '?' }).collect()
}

/// A process, held so that its number cannot come to mean another.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// Process `pid`; `None` where there is none.
    ///
    /// # Errors
    /// Where this process has no descriptor left.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { pid, fd })),
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its command's name (up to 15 bytes); empty where it has ended.
    pub fn name(&self) -> String {
        name(self.pid).unwrap_or_default()
    }

    /// Sends `signal`; a process that has ended takes none, which is no error.
    ///
    /// # Errors
    /// Where it belongs to somebody else.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended or `deadline` has passed; returns whether it has ended. A zombie has.
    ///
    /// # Errors
    /// Where the kernel lacks memory.
    pub fn wait_until_gone(&self, deadline: Nanos) -> io::Result<bool> {
        loop {
            let gone = readable_until(&self.fd, Some(deadline))?;
            if gone || monotonic() >= deadline {
                return Ok(gone);
            }
        }
    }
}

impl AsFd for Process {
    /// Readable when it has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The other processes in network `namespaces` (those of their main threads), as far as the caller may look. Where there are more than this process may
/// have descriptors ([`allow_many_files`]), it is those that were found first: look again when they have ended.
///
/// # Errors
/// Where `/proc` is not mounted, or this process has no descriptor left for one of them.
pub fn in_namespaces(namespaces: &[NamespaceId]) -> io::Result<Vec<Process>> {
    let is_in_one = |pid| id_of_process(pid).is_some_and(|id| namespaces.contains(&id));
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == own || !is_in_one(pid) {
            continue;
        }
        // Held first, looked at again then: the number may have passed to another process in between.
        match Process::open(pid) {
            Ok(Some(process)) if is_in_one(pid) => found.push(process),
            Ok(_) => {}
            Err(error) if is_out_of_files(&error) && !found.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether this process, or the machine, may have no more files open.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A child of this process that has ended, and how; `None` where none has. Each is told of once. Adopted ones are children, too
/// ([`adopt_orphans`](crate::process_sockets::adopt_orphans)).
///
/// # Errors
/// Does not fail in practice.
pub fn ended_child() -> io::Result<Option<(u32, ExitStatus)>> {
    match wait(WaitOptions::NOHANG) {
        Ok(ended) => {
            Ok(ended.map(|(pid, how)| (pid.as_raw_nonzero().get() as u32, ExitStatus::from_raw(how.as_raw()))))
        }
        Err(Errno::CHILD) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets this process have 65,536 files and sockets open, or as many as the hard limit allows (`RLIMIT_NOFILE`). The soft limit is mostly 1,024, for
/// programs that use select(2). The programs that it starts get the new limit, too: some close all files up to it, so it is not raised further.
///
/// # Errors
/// Does not fail in practice.
pub fn allow_many_files() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let many = maximum.map_or(MANY_FILES, |most| most.min(MANY_FILES));
    if current.is_none_or(|current| current >= many) {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(many), maximum })?)
}

/// Ends `processes`: asks with `SIGTERM` and waits up to `asked` in all, then kills with `SIGKILL` and waits up to `killed`.
/// Returns the processes that still run.
///
/// # Errors
/// Where one belongs to somebody else.
pub fn end(processes: Vec<Process>, asked: Nanos, killed: Nanos) -> io::Result<Vec<Process>> {
    let mut left = processes;
    for (signal, patience) in [(Signal::TERM, asked), (Signal::KILL, killed)] {
        for process in &left {
            process.signal(signal)?;
        }
        let deadline = monotonic().saturating_add(patience);
        let mut stubborn = Vec::new();
        for process in left {
            if !process.wait_until_gone(deadline)? {
                stubborn.push(process);
            }
        }
        left = stubborn;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::NetNamespace;
    use std::process::Command;

    #[test]
    fn a_terminal_obeys_no_name() {
        assert_eq!(shown_name(b"a\x1b[2Jb\x07\0rest"), "a?[2Jb?");
        assert_eq!(shown_name("Über c\u{202e}\u{9b}".as_bytes()), "Über c??");
        assert_eq!(shown_name(b"cut \xc3"), "cut ?");
    }

    #[test]
    fn ctrl_c_reaches_the_foreground_group_alone() {
        assert!(is_foreground_stat("8 (a) b (c)) S 7 8 7 34816 8 4194304 1"));
        assert!(!is_foreground_stat("8 (sh) S 7 8 7 34816 7 4194304 1"), "another group is");
        assert!(!is_foreground_stat("8 (sh) S 7 8 8 0 -1 4194304 1"), "it has no terminal");
        assert!(!is_foreground_stat(""), "it has ended");
    }

    #[test]
    fn many_files_may_be_open() {
        let limits = || {
            let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
            (current, maximum)
        };
        let (_, hard) = limits();
        let many = hard.map_or(MANY_FILES, |hard| hard.min(MANY_FILES));
        setrlimit(Resource::Nofile, Rlimit { current: Some(many - 1), maximum: hard }).unwrap();
        allow_many_files().unwrap();
        assert_eq!(limits(), (Some(many), hard));
        // A higher limit stays.
        setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
        allow_many_files().unwrap();
        assert_eq!(limits(), (hard, hard));
    }

    #[test]
    fn finds_signals_and_awaits() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let here = NetNamespace::current().unwrap().id().unwrap();
        let process = in_namespaces(&[here]).unwrap().into_iter().find(|process| process.pid() == child.id()).unwrap();
        assert!(!process.wait_until_gone(monotonic() + Nanos::from_millis(2)).unwrap());
        assert!(end(vec![process], Nanos::from_secs(10), Nanos::from_secs(10)).unwrap().is_empty());
        child.wait().unwrap();
        assert!(Process::open(child.id()).unwrap().is_none());
    }
}
