//! Network namespaces: hosts of their own on one machine.
//!
//! A namespace lives as long as somebody holds it: a process in it, a descriptor, a socket. Nothing is mounted below
//! `/run/netns`, so a killed program leaves none behind. Source: network_namespaces(7), setns(2), unshare(2).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use longhaul_units::Nanos;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::open_files::{Look, LookLimits};
use crate::clock::monotonic;
use crate::open_folder::by_descriptor;

/// The calling thread's own network namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// `_IO(0xb7, 1)` and `_IO(0xb7, 4)` of `<linux/nsfs.h>`.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// Why a network namespace could not be had.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The caller may not.
    #[error(
        "no permission to {action} a network namespace: this needs CAP_SYS_ADMIN; run as root, or in a user namespace \
         of your own (unshare --user --map-root-user)"
    )]
    Denied {
        /// `make` or `enter`.
        action: &'static str,
    },
    /// There is none at that path.
    #[error("cannot open the network namespace {path}: {source}; is its process gone, is /proc mounted?")]
    Open {
        /// Where it was sought.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot {action} a network namespace: {source}{}", limit_remedy(source))]
    Io {
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// `ENOSPC` means one thing only here.
fn limit_remedy(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(libc::ENOSPC) { " (raise sysctl user.max_net_namespaces)" } else { "" }
}

/// A network namespace, held.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
}

/// Names a namespace as long as it lives: device and inode of its `/proc/PID/ns/net`. Inodes are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamespaceId {
    /// The device number of nsfs.
    pub device: u64,
    /// The number in `net:[…]`.
    pub inode: u64,
}

impl NetNamespace {
    /// The one that the calling thread is in.
    ///
    /// # Errors
    /// [`NamespaceError::Open`].
    pub fn current() -> Result<Self, NamespaceError> {
        Self::open(OWN)
    }

    /// Makes an empty one: a loopback link that is down, nothing else. The calling thread stays where it is.
    ///
    /// # Errors
    /// [`NamespaceError::Denied`], [`NamespaceError::Io`].
    pub fn create() -> Result<Self, NamespaceError> {
        in_thread(|| {
            // SAFETY: it moves only this thread's network namespace; descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|source| denied_or_io("make", source.into()))?;
            Self::current()
        })
        .map_err(|source| NamespaceError::Io { action: "make a thread for", source })?
    }

    /// The one at `path`: `/proc/PID/ns/net`, `/run/netns/NAME`.
    ///
    /// # Errors
    /// [`NamespaceError::Open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NamespaceError> {
        let path = path.as_ref();
        match File::open(path) {
            Ok(file) => Ok(Self { fd: file.into() }),
            Err(source) => Err(NamespaceError::Open { path: path.display().to_string(), source }),
        }
    }

    /// The one at `path`, if there is something on `device` still, which is that of namespaces. Behind the descriptor of another process there can be another
    /// file at any moment, and to open a pipe waits, to open a device may do something.
    fn open_on(path: &Path, device: u64) -> io::Result<Option<Self>> {
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if rustix::fs::fstat(&found)?.st_dev != device {
            return Ok(None);
        }
        // This very one.
        Ok(Some(Self { fd: File::open(by_descriptor(&found))?.into() }))
    }

    /// The one that process `pid` is in.
    ///
    /// # Errors
    /// [`NamespaceError::Open`].
    pub fn of_process(pid: u32) -> Result<Self, NamespaceError> {
        Self::open(format!("/proc/{pid}/ns/net"))
    }

    /// Another hold on the same namespace.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()? })
    }

    /// Runs `work` in a thread of its own that is in this namespace, and waits for it. Sockets opened there stay there.
    ///
    /// The caller's thread never moves, so nothing can leave it in the wrong namespace. A panic in `work` goes on here.
    ///
    /// # Errors
    /// [`NamespaceError::Denied`], [`NamespaceError::Io`]; `work` did not run.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        in_thread(|| {
            self.enter_for_good()?;
            Ok(work())
        })
        .map_err(|source| NamespaceError::Io { action: "make a thread for", source })?
    }

    /// Moves the calling thread into this namespace. For a thread that stays there, or before exec.
    ///
    /// # Errors
    /// [`NamespaceError::Denied`], [`NamespaceError::Io`].
    pub fn enter_for_good(&self) -> Result<(), NamespaceError> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|source| denied_or_io("enter", source.into()))
    }

    /// A number that no other namespace has had since boot; 0 where the kernel (before 5.14) does not tell.
    ///
    /// # Errors
    /// As [`NetNamespace::enter`].
    pub fn cookie(&self) -> Result<u64, NamespaceError> {
        self.enter(|| {
            let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None)
                .map_err(|source| NamespaceError::Io { action: "open a socket in", source: source.into() })?;
            Ok(socket_namespace_cookie(socket.as_fd()).unwrap_or(0))
        })?
    }

    /// Its device and inode.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn id(&self) -> Result<NamespaceId, NamespaceError> {
        let stat = rustix::fs::fstat(&self.fd)
            .map_err(|source| NamespaceError::Io { action: "stat", source: source.into() })?;
        Ok(NamespaceId { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Whether the caller made the user namespace that it belongs to (ioctl_ns(2)): root is who made the first one.
    pub fn is_callers(&self) -> bool {
        self.owner_uid().is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
    }

    /// As the caller's user namespace numbers him. `EPERM` where it belongs to one that is neither the caller's nor below it.
    fn owner_uid(&self) -> io::Result<u32> {
        // SAFETY: NS_GET_USERNS takes no argument and gives a new descriptor or an error.
        let user = unsafe { libc::ioctl(self.fd.as_raw_fd(), NS_GET_USERNS) };
        if user < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for this caller, and nobody else has it.
        let user = unsafe { OwnedFd::from_raw_fd(user) };
        let mut uid: libc::uid_t = 0;
        // SAFETY: NS_GET_OWNER_UID writes one uid_t to where the pointer leads, which lives until the call returns.
        let done = unsafe { libc::ioctl(user.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(uid) }
    }

    /// The inode number, as in `net:[…]`.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn inode(&self) -> Result<u64, NamespaceError> {
        Ok(self.id()?.inode)
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What [`for_each_visible`] has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unvisited {
    /// Namespaces that were found, and whose turn did not come in time or that could not be opened.
    pub namespaces: usize,
    /// Processes whose descriptors were not all read.
    pub unread_processes: u32,
}

/// Calls `visit` with each network namespace that `/proc` shows as far as the caller may look: its own, then those of processes, then those that only
/// descriptors hold, which are read as far as `limits` say. Each user can have thousands of them. So one is open at a time, and none but the caller's own
/// is visited later than `time` after the beginning.
///
/// # Errors
/// [`NamespaceError::Open`] for the caller's own.
pub fn for_each_visible(
    limits: LookLimits,
    time: Nanos,
    mut visit: impl FnMut(&NetNamespace),
) -> Result<Unvisited, NamespaceError> {
    let until = monotonic().saturating_add(time);
    let own = NetNamespace::current()?;
    let own_id = own.id()?;
    visit(&own);
    drop(own);
    let (mut visited, mut left) = (HashSet::from([own_id]), HashSet::new());
    let mut take = |path: &Path| {
        let Ok(metadata) = std::fs::metadata(path) else { return };
        let found = NamespaceId { device: metadata.dev(), inode: metadata.ino() };
        if found.device != own_id.device || visited.contains(&found) {
            return;
        }
        if monotonic() >= until {
            left.insert(found);
            return;
        }
        match NetNamespace::open_on(path, own_id.device) {
            // Another one may have its number, or its place, by now.
            Ok(Some(namespace)) if namespace.id().is_ok_and(|id| visited.insert(id)) => visit(&namespace),
            Ok(_) => {}
            // It has ended, or has become another user's.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(_) => _ = left.insert(found),
        }
    };
    for process in folder("/proc").filter(|path| path.file_name().is_some_and(is_number)) {
        take(&process.join("ns/net"));
    }
    // Its time begins now.
    let unseen = Look::begin(limits).of_all(0, |_, descriptor, target| {
        // A namespace's descriptor reads `net:[4026531840]`.
        if target.as_os_str().as_encoded_bytes().starts_with(b"net:[") {
            take(descriptor);
        }
    });
    // Without /proc there is nothing to read.
    let unread_processes = unseen.map_or(0, |unseen| unseen.unread_processes);
    Ok(Unvisited { namespaces: left.difference(&visited).count(), unread_processes })
}

fn is_number(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

/// What is in a folder; nothing where the caller may not look, or it does not exist any more.
fn folder(path: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// The id of the network namespace that process `pid` is in; `None` where the process has ended, is a zombie, or the caller may not look.
pub(crate) fn id_of_process(pid: u32) -> Option<NamespaceId> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    Some(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
}

/// Runs `work` in a thread of its own to its end.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("in-namespace".into()).spawn_scoped(scope, work)?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn socket_namespace_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `cookie`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

fn denied_or_io(action: &'static str, source: io::Error) -> NamespaceError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        NamespaceError::Denied { action }
    } else {
        NamespaceError::Io { action, source }
    }
}
