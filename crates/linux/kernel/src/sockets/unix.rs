//! Unix sockets with abstract names: no file, gone with their last holder.
//!
//! An abstract name belongs to the network namespace it was bound in, and anyone there may connect: look at
//! [`peer_credentials`]. Source: unix(7), proc_pid_net(5).

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::sysctl;

/// The other end of a connection, as it was when it connected (or listened).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its process, in our PID namespace.
    pub pid: u32,
    /// Its effective user; `None` where that user has no number in our user namespace. All who have none look alike.
    pub uid: Option<u32>,
}

/// Listens on the abstract name `name` (up to 107 bytes, without the leading NUL).
///
/// # Errors
/// `AddrInUse` where somebody has the name, `InvalidInput` where it is too long.
pub fn listen_abstract(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to the abstract name `name`, at once or not at all: whoever listens there may never accept.
///
/// # Errors
/// `ConnectionRefused` where nobody listens, `WouldBlock` where too many others wait.
pub fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Who is at the other end of a connected stream.
///
/// # Errors
/// Where it is no Unix socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let credentials = sockopt::socket_peercred(socket)?;
    let uid = credentials.uid.as_raw();
    Ok(PeerCredentials {
        pid: credentials.pid.as_raw_nonzero().get() as u32,
        uid: (uid != overflow_uid() || all_users_have_numbers()).then_some(uid),
    })
}

/// The user that the kernel names in place of one without a number (user_namespaces(7), "Unmapped user and group IDs").
fn overflow_uid() -> u32 {
    const USUAL: u32 = 65_534;
    sysctl::read("kernel.overflowuid").ok().and_then(|uid| uid.parse().ok()).unwrap_or(USUAL)
}

/// Whether our user namespace has a number for each user there can be, as the first one has.
fn all_users_have_numbers() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Abstract names that start with `prefix` and that somebody listens on, in the calling thread's network namespace, sorted.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn list_abstract(prefix: &str) -> io::Result<Vec<String>> {
    Ok(parse_names(&fs::read_to_string("/proc/thread-self/net/unix")?, prefix))
}

/// Columns: Num RefCount Protocol Flags Type St Inode Path. The kernel writes each NUL of an abstract name as `@`.
fn parse_names(table: &str, prefix: &str) -> Vec<String> {
    /// `__SO_ACCEPTCON` in the flags: a listening socket.
    const LISTENING: u64 = 1 << 16;
    let mut names: Vec<String> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut rest = line;
            let mut flags = 0;
            for column in 0..7 {
                let (field, after) = rest.trim_start().split_once(' ')?;
                if column == 3 {
                    flags = u64::from_str_radix(field, 16).ok()?;
                }
                rest = after;
            }
            let name = rest.strip_prefix('@')?;
            (flags & LISTENING != 0 && name.starts_with(prefix)).then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_by_name_and_knows_who_is_there() {
        let name = format!("lhk-test-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        assert_eq!(list_abstract(&name).unwrap(), std::slice::from_ref(&name));
        assert_eq!(listen_abstract(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let near = connect_abstract(&name).unwrap();
        let (far, _) = listener.accept().unwrap();
        let who = peer_credentials(&far).unwrap();
        assert_eq!(who.pid, std::process::id());
        assert_eq!(peer_credentials(&near).unwrap(), who);
        drop(listener);
        assert_eq!(connect_abstract(&name).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(list_abstract(&name).unwrap(), [""; 0]);
    }

    #[test]
    fn only_listening_abstract_names_count() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 20114 @longhaul/lab one\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 20115 @longhaul/lab one\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 20116 /run/longhaul\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 20117\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 20118 @other\n";
        assert_eq!(parse_names(table, "longhaul/"), ["longhaul/lab one"]);
    }

    proptest::proptest! {
        #[test]
        fn no_table_panics(table in "[ -~\\n]{0,200}") {
            let _ = parse_names(&table, "");
        }
    }
}
