//! Being root over one's own namespaces without being root.
//!
//! Source: user_namespaces(7).

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Why there is no user namespace.
#[derive(Debug, thiserror::Error)]
pub enum UserNamespaceError {
    /// A kernel parameter forbids it.
    #[error("user namespaces are forbidden here: sysctl {key} = {value}; set it to {remedy}, or run as root")]
    Forbidden {
        /// The parameter, dotted.
        key: &'static str,
        /// What it is set to.
        value: String,
        /// What would do.
        remedy: &'static str,
    },
    /// It must be done before the process has a second thread.
    #[error("a process with several threads cannot move into a user namespace")]
    SeveralThreads,
    /// Something else: a container's seccomp filter, a chroot.
    #[error("cannot use a user namespace: {step}: {source}; run as root")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Moves the process into a new user namespace in which it is root (uid 0, gid 0, all capabilities, over what belongs to
/// that namespace). Outside it stays who it was.
///
/// It must be called while the process has one thread, so early in `main`.
///
/// # Errors
/// Any [`UserNamespaceError`]; the process then is as it was, except after a failure to write the maps, which leaves it as
/// nobody: end it.
pub fn unshare_user_as_root() -> Result<(), UserNamespaceError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: descriptors stay shared; a process with several threads is refused by the kernel (EINVAL).
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(|errno| explain(errno.into()))?;
    // Without groups forbidden for good, the kernel takes no gid map from who is not root (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1\n"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1\n"))
}

/// Moves the process into the user namespace of process `pid`, which the same user made; there it has all capabilities. A process that
/// is in it already stays as it is.
///
/// It must be called while the process has one thread.
///
/// # Errors
/// [`UserNamespaceError::SeveralThreads`]; [`UserNamespaceError::Io`] where the process has ended or is another user's.
pub fn enter_of_process(pid: u32) -> Result<(), UserNamespaceError> {
    let io = |step| move |source| UserNamespaceError::Io { step, source };
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).map_err(io("open the lab's user namespace"))?;
    // The kernel refuses to enter one's own (setns(2), EINVAL).
    let id = |of: io::Result<fs::Metadata>| of.map(|of| (of.dev(), of.ino())).ok();
    if id(namespace.metadata()).is_some_and(|there| Some(there) == id(fs::metadata("/proc/self/ns/user"))) {
        return Ok(());
    }
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User)).map_err(|errno| match errno {
        Errno::INVAL => UserNamespaceError::SeveralThreads,
        errno => io("enter the lab's user namespace")(errno.into()),
    })
}

fn write(path: &'static str, text: &str) -> Result<(), UserNamespaceError> {
    fs::write(path, text).map_err(|source| {
        // Ubuntu's AppArmor gives the namespace, then none of its capabilities.
        forbidden_by(&[APPARMOR]).unwrap_or(UserNamespaceError::Io { step: path, source })
    })
}

/// A parameter that forbids, the value by which it does, and what would do.
type Forbidding = (&'static str, &'static str, &'static str);

const APPARMOR: Forbidding = ("kernel.apparmor_restrict_unprivileged_userns", "1", "0");

fn explain(source: io::Error) -> UserNamespaceError {
    match source.raw_os_error() {
        Some(libc::EINVAL) => UserNamespaceError::SeveralThreads,
        Some(libc::EPERM | libc::ENOSPC | libc::EACCES) => forbidden_by(&[
            // Debian's own.
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("user.max_user_namespaces", "0", "10000"),
            APPARMOR,
        ])
        .unwrap_or(UserNamespaceError::Io { step: "unshare CLONE_NEWUSER", source }),
        _ => UserNamespaceError::Io { step: "unshare CLONE_NEWUSER", source },
    }
}

fn forbidden_by(parameters: &[Forbidding]) -> Option<UserNamespaceError> {
    parameters.iter().find_map(|&(key, forbidding, remedy)| {
        let value = crate::sysctl::read(key).ok()?;
        (value == forbidding).then_some(UserNamespaceError::Forbidden { key, value, remedy })
    })
}
