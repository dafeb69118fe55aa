//! Settings of this host, such as files of `/proc/sys` and `/sys`, that are changed for a while.
//!
//! Whatever happens to the process that changes them, the settings of before come back: a process of its own waits for its end, by
//! `SIGKILL` too, and puts them back. Only who kills that one as well (a whole control group) leaves them changed.
//!
//! Source: fork(2), signal-safety(7).

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::unix::listen_abstract;

/// A setting that shall change.
#[derive(Debug)]
pub struct Setting {
    file: File,
    path: PathBuf,
    before: Vec<u8>,
    wanted: String,
}

impl Setting {
    /// The setting in the file at `path`, which holds `before` and shall hold `wanted` for a while.
    ///
    /// # Errors
    /// As open(2) has them: it cannot be written.
    pub fn open(path: PathBuf, before: impl Into<Vec<u8>>, wanted: impl Into<String>) -> io::Result<Self> {
        let file = File::options().write(true).open(&path)?;
        Ok(Self { file, path, before: before.into(), wanted: wanted.into() })
    }

    /// Changes it for good.
    ///
    /// # Errors
    /// The file that could not be written, and what the kernel said.
    pub fn keep(mut self) -> Result<(), (PathBuf, io::Error)> {
        self.file.write_all(self.wanted.as_bytes()).map_err(|error| (self.path, error))
    }
}

/// The right to change what goes by a name: one process of a network namespace has it at a time.
#[derive(Debug)]
pub struct Claim(UnixListener);

impl Claim {
    /// Claims `name`.
    ///
    /// # Errors
    /// `AddrInUse` where somebody has it.
    pub fn take(name: &str) -> io::Result<Self> {
        listen_abstract(&format!("longhaul/{name}")).map(Self)
    }
}

/// Settings that are changed for as long as this lives; then they are as they were before.
#[derive(Debug)]
pub struct Changed {
    guard: Option<Guard>,
    /// The guard has copies, so that whoever gets a claim finds the settings of before.
    _claims: Vec<Claim>,
}

impl Changed {
    /// Changes `settings`, which `claims` are about.
    ///
    /// # Errors
    /// The file that could not be written, or none where there is no process to guard them, and what the kernel said; then nothing is
    /// changed.
    pub fn apply(mut settings: Vec<Setting>, claims: Vec<Claim>) -> Result<Self, (Option<PathBuf>, io::Error)> {
        let guard = Guard::start(&settings, &claims).map_err(|error| (None, error))?;
        let changed = Self { guard: Some(guard), _claims: claims };
        for Setting { file, path, wanted, .. } in &mut settings {
            file.write_all(wanted.as_bytes()).map_err(|error| (Some(path.clone()), error))?;
        }
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // Before the claims go.
        drop(self.guard.take());
    }
}

/// A process that puts settings back when this one lets go of it or ends, however it ends.
#[derive(Debug)]
struct Guard {
    /// Its other end says so when all copies of this one are closed.
    line: Option<PipeWriter>,
    pid: Pid,
}

impl Guard {
    fn start(settings: &[Setting], claims: &[Claim]) -> io::Result<Self> {
        let (end, line) = io::pipe()?;
        // All memory that the new process needs is had before: behind fork(2) in a process with threads nothing may be.
        let files = settings.iter().map(|setting| setting.file.as_raw_fd());
        let mut keep: Vec<RawFd> = files.chain(claims.iter().map(|claim| claim.0.as_raw_fd())).collect();
        keep.push(end.as_raw_fd());
        keep.sort_unstable();
        let restore: Vec<(RawFd, &[u8])> =
            settings.iter().map(|setting| (setting.file.as_raw_fd(), &setting.before[..])).collect();
        // SAFETY: the child calls only what signal-safety(7) allows, takes no memory and no lock, and ends by `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => guard(end.as_raw_fd(), &keep, &restore),
            pid => {
                let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork"))?;
                Ok(Self { line: Some(line), pid })
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.line.take());
        while let Err(Errno::INTR) = waitpid(Some(self.pid), WaitOptions::empty()) {}
    }
}

/// The guard's life. It is in a session of its own, as the terminal's signals are not for it.
fn guard(end: RawFd, keep: &[RawFd], restore: &[(RawFd, &[u8])]) -> ! {
    // SAFETY: system calls on integers and on memory that lives through them; nothing else of the process is touched.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"longhaul-guard".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut from: c_int = 0;
        for &fd in keep {
            if fd > from {
                libc::syscall(libc::SYS_close_range, from, fd - 1, 0);
            }
            from = fd + 1;
        }
        libc::syscall(libc::SYS_close_range, from, u32::MAX, 0);
        let mut byte = 0_u8;
        loop {
            let count = libc::read(end, (&raw mut byte).cast(), 1);
            if count == 0 || (count < 0 && *libc::__errno_location() != libc::EINTR) {
                break;
            }
        }
        for (fd, before) in restore {
            libc::pwrite(*fd, before.as_ptr().cast(), before.len(), 0);
        }
        libc::_exit(0)
    }
}
