//! Which process has which socket, and which processes descend from one.
//!
//! Source: proc_pid_fd(5), proc_pid_task(5) (`children`). A process may end at any moment, so one that has ended has nothing.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::open_files::Look;

/// The sockets of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessSockets {
    /// Their inode numbers: those in `socket:[…]`.
    pub inodes: Vec<u32>,
    /// Whether all files of the process were read.
    pub are_all: bool,
}

/// The sockets that process `pid` has open, as far as `look` may read.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where the caller may not look, [`io::ErrorKind::NotFound`] where it has ended.
pub fn of_process(pid: u32, look: &mut Look) -> io::Result<ProcessSockets> {
    let mut inodes = Vec::new();
    let are_all = look.of_process(pid, |_, target| inodes.extend(socket_inode(target)))?;
    Ok(ProcessSockets { inodes, are_all })
}

/// The sockets of every process, each with the process that has it (any of several).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketOwners {
    /// Process numbers by inode number.
    pub by_inode: HashMap<u32, u32>,
    /// Processes that the caller may not look at.
    pub hidden_processes: u32,
    /// Processes whose files were not all read.
    pub unread_processes: u32,
    /// The process with which the next look begins.
    pub next: u32,
}

/// Looks at all processes as far as `look` may read, beginning with process `first` and those with greater numbers.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn of_all(first: u32, mut look: Look) -> io::Result<SocketOwners> {
    let mut by_inode = HashMap::new();
    let unseen =
        look.of_all(first, |pid, _, target| by_inode.extend(socket_inode(target).map(|inode| (inode, pid))))?;
    Ok(SocketOwners {
        by_inode,
        hidden_processes: unseen.hidden_processes,
        // What a signal ended left nobody out by itself.
        unread_processes: if look.was_stopped() { 0 } else { unseen.unread_processes },
        next: unseen.next,
    })
}

/// Processes that descend from `pid`, without it. Those whose parent ended are their new parent's.
///
/// On a kernel without `CONFIG_PROC_CHILDREN` there are none.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    // A process may come twice when parents change meanwhile.
    while at < found.len() && found.len() < MOST_PROCESSES {
        let parent = found[at];
        at += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|number| number.parse().ok()) {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
    }
    found.remove(0);
    found
}

/// More processes than that are not looked for.
const MOST_PROCESSES: usize = 4096;

/// From now on descendants whose parent ends become children of this process rather than of init.
///
/// # Errors
/// Does not fail in practice.
pub fn adopt_orphans() -> io::Result<()> {
    let own = Some(rustix::process::getpid());
    Ok(rustix::process::set_child_subreaper(own)?)
}

/// `socket:[123]` is 123.
fn socket_inode(target: &Path) -> Option<u32> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use longhaul_units::Nanos;

    use super::*;
    use crate::open_files::LookLimits;

    #[test]
    fn a_socket_is_found_with_its_process() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino() as u32;
        let own = std::process::id();
        let look = || Look::begin(LookLimits { time: Nanos::from_secs(60), ..LookLimits::default() });
        let sockets = of_process(own, &mut look()).unwrap();
        assert!(sockets.inodes.contains(&inode), "{sockets:?}");
        // The signal of another test may end one look.
        let is_found = || of_all(0, look()).unwrap().by_inode.get(&inode) == Some(&own);
        assert!(is_found() || is_found());
        drop(socket);
        assert!(!of_process(own, &mut look()).unwrap().inodes.contains(&inode));
        assert_eq!(of_process(u32::MAX, &mut look()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn children_of_children_descend() {
        let mut shell =
            Command::new("sh").args(["-c", "cat & wait"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        // `cat` in the background reads /dev/null and may be gone: the shell itself stays until it is waited for.
        let found = descendants(std::process::id());
        assert!(found.contains(&shell.id()), "{found:?}");
        shell.wait().unwrap();
        assert!(descendants(shell.id()).is_empty());
    }

    #[test]
    fn only_sockets_have_a_number() {
        assert_eq!(socket_inode(Path::new("socket:[4711]")), Some(4711));
        for other in ["pipe:[4711]", "/tmp/socket:[1]", "socket:[x]", "socket:[1"] {
            assert_eq!(socket_inode(Path::new(other)), None, "{other}");
        }
    }
}
