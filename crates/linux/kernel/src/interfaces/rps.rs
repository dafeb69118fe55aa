//! Receive packet steering: which CPUs the stack's part of receiving runs on, for a while.
//!
//! RPS moves what follows the driver (IP, UDP, the socket) to the softirq of other CPUs. A NIC's interrupts stay where their
//! affinity puts them. A virtual device has no interrupt of its own: there RPS moves all of it.
//!
//! Whatever happens to the process that steers, the settings of before come back: a process of its own waits for its end, by
//! `SIGKILL` too, and puts them back. Only who kills that one as well (a whole control group) leaves them changed.
//!
//! Source: `Documentation/networking/scaling.rst`, `net/core/net-sysfs.c`, fork(2), signal-safety(7).

use std::ffi::c_int;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::link::Netlink;
use crate::sysfs::{Sysfs, read};
use crate::unix::listen_abstract;

/// Stacked interfaces (VLAN over bond over NIC) that are followed down.
const DEPTH_MOST: usize = 8;

/// Why packets are not steered.
#[derive(Debug, thiserror::Error)]
pub enum RpsError {
    /// The caller may not.
    #[error(
        "may not set RPS of {interface}: it takes root and a writable /sys; run as root, or set {file} by hand and do not ask \
         for it"
    )]
    Denied {
        /// The interface.
        interface: String,
        /// The file that could not be written.
        file: String,
    },
    /// Somebody does so already.
    #[error("another test steers the packets of {interface}; wait for its end")]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface has no receive queue with RPS.
    #[error("{interface} has no RPS: the kernel is built without it (CONFIG_RPS)")]
    Unsupported {
        /// The interface.
        interface: String,
    },
    /// Something else.
    #[error("cannot set RPS of {interface}: {what}")]
    Other {
        /// The interface.
        interface: String,
        /// What was being done, and what the kernel said.
        what: String,
    },
}

/// Packets of an interface steered to some CPUs, for as long as this lives; then all is as it was before.
#[derive(Debug)]
pub struct Rps {
    interfaces: Vec<String>,
    guard: Option<Guard>,
    /// The name by which two tests do not set one interface at a time. The guard has a copy.
    _name: UnixListener,
}

/// A file of a receive queue, what it held, and what it shall hold.
#[derive(Debug)]
struct Setting {
    file: File,
    path: PathBuf,
    before: Vec<u8>,
    wanted: String,
}

impl Rps {
    /// Has `cpus` process the packets that arrive at `interface` and at its lower interfaces. RFS, which would move
    /// packets on to the CPU of their reader, is off for the time.
    ///
    /// # Errors
    /// Any [`RpsError`]; then nothing is changed.
    pub fn steer(interface: &str, cpus: &[usize]) -> Result<Self, RpsError> {
        let other = |what: String| RpsError::Other { interface: interface.into(), what };
        let links =
            Netlink::open().and_then(|mut netlink| netlink.links()).map_err(|error| other(error.to_string()))?;
        let sysfs = Sysfs::writable(&links).map_err(other)?;
        let name = listen_abstract(&format!("longhaul/rps/{interface}")).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => RpsError::Busy { interface: interface.into() },
            _ => other(error.to_string()),
        })?;
        let (mut interfaces, mut settings, mut at) = (vec![interface.to_owned()], Vec::new(), 0);
        while at < interfaces.len() {
            let directory = sysfs.interface(&interfaces[at]);
            settings.extend(settings_of(interface, &directory, &mask(cpus))?);
            if interfaces.len() < DEPTH_MOST {
                interfaces.extend(lower(&directory));
            }
            at += 1;
        }
        if settings.is_empty() {
            return Err(RpsError::Unsupported { interface: interface.into() });
        }
        let kept = [name.as_raw_fd()];
        let guard = Guard::start(&settings, &kept).map_err(|error| other(error.to_string()))?;
        let rps = Self { interfaces, guard: Some(guard), _name: name };
        for setting in &mut settings {
            let wanted = setting.wanted.as_bytes();
            setting.file.write_all(wanted).map_err(|error| denied(interface, &setting.path, &error))?;
        }
        Ok(rps)
    }

    /// The interfaces that were set, the one asked for first.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}

impl Drop for Rps {
    fn drop(&mut self) {
        // Before the name goes, so that who gets the name finds the settings of before.
        drop(self.guard.take());
    }
}

/// Has what arrives at `interface` taken up the stack by `cpus` from now on, as long as there is the interface.
///
/// # Errors
/// Any [`RpsError`].
pub fn steer_for_good(interface: &str, cpus: &[usize]) -> Result<(), RpsError> {
    let other = |what: String| RpsError::Other { interface: interface.into(), what };
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).map_err(|error| other(error.to_string()))?;
    let sysfs = Sysfs::writable(&links).map_err(other)?;
    let settings = settings_of(interface, &sysfs.interface(interface), &mask(cpus))?;
    if settings.is_empty() {
        return Err(RpsError::Unsupported { interface: interface.into() });
    }
    for mut setting in settings {
        let wanted = setting.wanted.as_bytes();
        setting.file.write_all(wanted).map_err(|error| denied(interface, &setting.path, &error))?;
    }
    Ok(())
}

fn denied(interface: &str, path: &Path, error: &io::Error) -> RpsError {
    let (interface, file) = (interface.to_owned(), shown(path));
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => RpsError::Denied { interface, file },
        _ => RpsError::Other { interface, what: format!("{file}: {error}") },
    }
}

/// `path` below a sysfs of our own as it is called in `/sys`.
fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.find("/class/net/").map_or_else(|| text.to_string(), |at| format!("/sys{}", &text[at..]))
}

fn settings_of(interface: &str, directory: &Path, mask: &str) -> Result<Vec<Setting>, RpsError> {
    let mut settings = Vec::new();
    for queue in fs::read_dir(directory.join("queues")).into_iter().flatten().flatten() {
        if !queue.file_name().to_string_lossy().starts_with("rx-") {
            continue;
        }
        for (name, wanted) in [("rps_cpus", mask), ("rps_flow_cnt", "0")] {
            let path = queue.path().join(name);
            let Ok(before) = read(&path) else { continue };
            if before == wanted {
                continue;
            }
            let opened = File::options().write(true).open(&path);
            let file = opened.map_err(|error| denied(interface, &path, &error))?;
            settings.push(Setting { file, path, before: before.into_bytes(), wanted: wanted.into() });
        }
    }
    Ok(settings)
}

/// The lower interfaces of the one of `directory`: `lower_eth0`.
fn lower(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("lower_").map(str::to_owned)).collect()
}

/// CPUs as a mask of 32-bit words, the highest first.
fn mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(0, |most| most / 32) + 1;
    let word =
        |index: usize| cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0_u32, |word, cpu| word | 1 << (cpu % 32));
    (0..words).rev().map(|index| format!("{:08x}", word(index))).collect::<Vec<_>>().join(",")
}

/// A process that puts settings back when this one lets go of it or ends, however it ends.
#[derive(Debug)]
struct Guard {
    /// Its other end says so when all copies of this one are closed.
    line: Option<PipeWriter>,
    pid: Pid,
}

impl Guard {
    /// `kept`: descriptors that it holds besides those of `settings`.
    fn start(settings: &[Setting], kept: &[RawFd]) -> io::Result<Self> {
        let (end, line) = io::pipe()?;
        // All memory that the new process needs is had before: behind fork(2) in a process with threads nothing may be.
        let mut keep: Vec<RawFd> =
            settings.iter().map(|setting| setting.file.as_raw_fd()).chain(kept.iter().copied()).collect();
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
        libc::prctl(libc::PR_SET_NAME, c"longhaul-rps".as_ptr());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_of_hexadecimal() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3]), "0000000a");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
        assert_eq!(mask(&[]), "00000000");
    }

    #[test]
    fn files_are_named_as_in_sys() {
        let path = Path::new("/proc/self/fd/7/class/net/eth0/queues/rx-0/rps_cpus");
        assert_eq!(shown(path), "/sys/class/net/eth0/queues/rx-0/rps_cpus");
    }
}
