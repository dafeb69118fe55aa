//! Unix sockets with abstract names: no file, gone with their last holder.
//!
//! An abstract name belongs to the network namespace it was bound in. Anyone there may connect: look at [`peer_credentials`]. And anyone may
//! bind any name: what one process shall have at a time is taken by [`listen_alone`], for which names of other users do not count.
//!
//! ```text
//!   unix_diag_msg, 16 bytes                          then attributes
//!   | family | type | state | - | inode 4 | cookie 8 |   UNIX_DIAG_NAME, UNIX_DIAG_UID
//! ```
//!
//! Source: unix(7), sock_diag(7), proc_pid_net(5), `include/uapi/linux/unix_diag.h`.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use longhaul_units::Nanos;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::geteuid;

use super::sock_diag::{NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY};
use crate::clock::monotonic;
use crate::counters::attributes::{attribute, u32_at};
use crate::counters::netlink::{NLM_F_DUMP, ask_for};
use crate::sysctl;
use crate::wait::sleep_until;

/// `struct unix_diag_req`: family, protocol, 2 spare, states 4, inode 4, what to show 4, cookie 8.
const REQUEST_BYTES: usize = 24;
/// `struct unix_diag_msg`.
const ANSWER_BYTES: usize = 16;
/// States of a socket (`enum` in `include/net/tcp_states.h`): it listens. A user can have a million sockets that do not, which hold no name; the kernel
/// passes over them fast where it need not list them.
const LISTENING: u32 = 1 << 10;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_UID`.
const NAME_AND_UID: u32 = 1 | 1 << 6;
/// Attributes of answers.
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_UID: u16 = 7;
/// How often it is asked who listens on a name that is bound, and how long after each other. A claim binds its name and listens at once, unless it loses its
/// CPU in between.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Nanos = Nanos::from_millis(5);

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

/// Connects to the abstract name `name`. Where too many others wait there already, it waits for a place among them for `patience`, in the kernel's
/// order; with a `patience` of zero not at all. Whoever listens there may never accept.
///
/// # Errors
/// `ConnectionRefused` where nobody listens, `WouldBlock` where too many others wait.
pub fn connect_abstract(name: &str, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    if patience.is_zero() {
        stream.set_nonblocking(true)?;
    } else {
        // It bounds connect(2), too (socket(7)).
        stream.set_write_timeout(Some(patience))?;
    }
    retry_on_intr(|| connect(&stream, &address))?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(None)?;
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
        uid: is_number_of_user(uid).then_some(uid),
    })
}

/// Whether one of `users` is at the other end of a connected stream. Of anybody else it asks the kernel one question and reads no file, as strangers
/// may come in thousands.
pub fn is_peer_one_of(socket: impl AsFd, users: &[u32]) -> bool {
    let uid = sockopt::socket_peercred(socket).map(|credentials| credentials.uid.as_raw());
    uid.is_ok_and(|uid| users.contains(&uid) && is_number_of_user(uid))
}

/// Whether this number is that of one user, and not of all who have none.
fn is_number_of_user(uid: u32) -> bool {
    uid != overflow_uid() || all_users_have_numbers()
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

/// Listens on the abstract name `name` (up to 80 bytes, without the leading NUL) for root and the caller's user: one process of theirs has it at
/// a time. Where another user has taken it, the socket's name is `name` with an ending behind a slash, which [`own_names`] finds.
///
/// # Errors
/// `AddrInUse` where a process of root's or of the caller's user has it, or takes it at the same moment; `InvalidInput` where it is too long.
pub fn listen_alone(name: &str) -> io::Result<UnixListener> {
    let others = || is_others(name, || sleep_until(monotonic() + BETWEEN_LOOKS)).unwrap_or(false);
    let listener = match listen_abstract(name) {
        // Nobody can take it beforehand: it is the nanosecond.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && others() => {
            listen_abstract(&format!("{name}/{}", monotonic().0))
        }
        listener => listener,
    }?;
    // Another one may have it with an ending, from when the name itself was taken. Each listens before it looks, so the later one sees both.
    match own_names(name) {
        Ok(own) if own.len() > 1 => Err(io::ErrorKind::AddrInUse.into()),
        _ => Ok(listener),
    }
}

/// Whether another user has `name`, which somebody has bound. Between two looks it does `pause`.
///
/// Who has bound it and does not listen cannot be told without a list of all sockets that do not, and counts as another user. If it is root or the caller's
/// user after all, it looks when it listens ([`listen_alone`]), and finds who has taken the name meanwhile.
fn is_others(name: &str, mut pause: impl FnMut()) -> io::Result<bool> {
    for look in 0..LOOKS {
        if look > 0 {
            pause();
        }
        let listening = listening(name)?;
        if listening.iter().any(|(one, user)| is_name(one, name) && is_own(*user)) {
            return Ok(false);
        }
        if listening.iter().any(|(one, _)| one == name) {
            return Ok(true);
        }
    }
    Ok(true)
}

/// The names of the sockets by which a process of root's or of the caller's user has `name` ([`listen_alone`]); mostly one or none.
///
/// # Errors
/// As [`list_own`].
pub fn own_names(name: &str) -> io::Result<Vec<String>> {
    let mut names = list_own(name)?;
    names.retain(|own| is_name(own, name));
    Ok(names)
}

/// Whether `own` is `name`, or `name` with an ending behind a slash.
fn is_name(own: &str, name: &str) -> bool {
    own.strip_prefix(name).is_some_and(|ending| ending.is_empty() || ending.starts_with('/'))
}

/// Abstract names that start with `prefix` and on which a process of root's or of the caller's user listens, in the calling thread's network
/// namespace, sorted.
///
/// # Errors
/// Where the kernel has no `CONFIG_UNIX_DIAG` and `/proc` is not mounted.
pub fn list_own(prefix: &str) -> io::Result<Vec<String>> {
    let own = listening(prefix)?.into_iter().filter(|(_, user)| is_own(*user));
    let mut names: Vec<String> = own.map(|(name, _)| name).collect();
    names.sort();
    Ok(names)
}

/// Whether `user` is root or the caller's, or cannot be told.
fn is_own(user: Option<u32>) -> bool {
    user.is_none_or(|uid| uid == 0 || uid == geteuid().as_raw())
}

/// Abstract names that start with `prefix` and that somebody listens on, each with the user who does. Where the kernel has no `CONFIG_UNIX_DIAG`, as
/// [`listed`].
fn listening(prefix: &str) -> io::Result<Vec<(String, Option<u32>)>> {
    match bound(prefix) {
        Ok(bound) => Ok(bound.into_iter().map(|(name, uid)| (name, Some(uid))).collect()),
        Err(_) => listed(prefix),
    }
}

/// Abstract names that start with `prefix` and that somebody listens on, each with the user who does. That is asked by a connection. `None` where
/// too many wait to be accepted, as nobody accepts those of [`listen_alone`]: such a name counts as own, as two owners of one are worse than none.
fn listed(prefix: &str) -> io::Result<Vec<(String, Option<u32>)>> {
    let listener = |name: &str| match connect_abstract(name, Duration::ZERO) {
        Ok(stream) => peer_credentials(&stream).ok()?.uid.map(Some),
        Err(error) => (error.kind() == io::ErrorKind::WouldBlock).then_some(None),
    };
    let names = parse_names(&fs::read_to_string("/proc/thread-self/net/unix")?, prefix);
    Ok(names.into_iter().filter_map(|name| listener(&name).map(|uid| (name, uid))).collect())
}

/// Abstract names of sockets that listen and that start with `prefix`, each with the user who made its socket, as our user namespace numbers him.
fn bound(prefix: &str) -> io::Result<Vec<(String, u32)>> {
    let mut request = [0; REQUEST_BYTES];
    request[0] = libc::AF_UNIX as u8;
    request[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
    request[12..16].copy_from_slice(&NAME_AND_UID.to_ne_bytes());
    // Not kept are those of others, who may have a million.
    let is_wanted = |answer: &[u8]| parse_bound(answer).is_some_and(|(name, _)| name.starts_with(prefix));
    let answers = ask_for(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, usize::MAX, is_wanted)?;
    let found = answers.found.iter().filter_map(|answer| parse_bound(answer));
    Ok(found.map(|(name, uid)| (name.to_owned(), uid)).collect())
}

/// Name and user of a socket; `None` where its name is not abstract or not text.
fn parse_bound(answer: &[u8]) -> Option<(&str, u32)> {
    let (_, attributes) = answer.split_at_checked(ANSWER_BYTES)?;
    let name = attribute(attributes, UNIX_DIAG_NAME)?.strip_prefix(b"\0")?;
    Some((std::str::from_utf8(name).ok()?, u32_at(attribute(attributes, UNIX_DIAG_UID)?, 0)?))
}

/// Abstract names that start with `prefix` and that somebody listens on. Columns: Num RefCount Protocol Flags Type St Inode Path. The kernel writes
/// each NUL of an abstract name as `@`.
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
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use rustix::thread::{Uid, set_thread_res_uid};

    use super::*;

    #[test]
    fn connects_by_name_and_knows_who_is_there() {
        let name = format!("lhk-test-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        assert_eq!(list_own(&name).unwrap(), std::slice::from_ref(&name));
        assert_eq!(listen_abstract(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let near = connect_abstract(&name, Duration::ZERO).unwrap();
        let (far, _) = listener.accept().unwrap();
        let who = peer_credentials(&far).unwrap();
        assert_eq!(who.pid, std::process::id());
        assert_eq!(peer_credentials(&near).unwrap(), who);
        let own = who.uid.unwrap();
        assert!(is_peer_one_of(&far, &[own + 1, own]) && !is_peer_one_of(&far, &[own + 1]));
        drop(listener);
        assert_eq!(connect_abstract(&name, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(list_own(&name).unwrap(), [""; 0]);
    }

    /// Nobody accepts who claims a name: each look leaves a connection that waits.
    #[test]
    fn a_name_whose_listener_is_not_heard_any_more_is_taken() {
        let name = format!("lhk-full-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let own = Some(geteuid().as_raw());
        assert_eq!(listed(&name).unwrap(), [(name.clone(), own)]);
        while connect_abstract(&name, Duration::ZERO).is_ok() {}
        assert_eq!(listed(&name).unwrap(), [(name.clone(), None)]);
        drop(listener);
        assert!(listed(&name).unwrap().is_empty());
    }

    #[test]
    fn waits_for_a_place_where_many_wait() {
        let name = format!("lhk-wait-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        while connect_abstract(&name, Duration::ZERO).is_ok() {}
        let (begun, patience) = (Instant::now(), Duration::from_millis(50));
        assert_eq!(connect_abstract(&name, patience).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // The kernel counts in jiffies.
        assert!(begun.elapsed() >= patience / 2, "{:?}", begun.elapsed());
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| connect_abstract(&name, Duration::from_secs(60)));
            listener.accept().unwrap();
            let stream = connecting.join().unwrap().unwrap();
            assert_eq!(stream.write_timeout().unwrap(), None);
        });
    }

    /// Listens as another user, whom a thread can be alone.
    fn listen_as_another(name: &str) -> Option<UnixListener> {
        let other = Uid::from_raw(1_234);
        let listen = || set_thread_res_uid(other, other, other).ok().map(|()| listen_abstract(name).unwrap());
        std::thread::scope(|scope| scope.spawn(listen).join().unwrap())
    }

    #[test]
    fn a_name_that_another_user_has_taken_is_free() {
        let name = format!("lhk-alone-{}", std::process::id());
        let Some(theirs) = listen_as_another(&name) else {
            println!("skipped: run as root");
            return;
        };
        let in_use = || listen_alone(&name).unwrap_err().kind() == io::ErrorKind::AddrInUse;
        let _others = listen_abstract(&format!("{name}s")).unwrap();
        let ours = listen_alone(&name).unwrap();
        let names = own_names(&name).unwrap();
        assert!(names.len() == 1 && names[0].starts_with(&format!("{name}/")), "{names:?}");
        assert!(in_use());
        // Whoever gets the name itself now finds that it is ours.
        drop(theirs);
        assert!(in_use());
        drop(ours);
    }

    /// A socket that has the name and does not listen.
    fn only_bound(name: &str) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        socket
    }

    /// Sockets that only have a name are cheap to have and dear to list: the kernel passes over them.
    #[test]
    fn who_only_has_a_name_keeps_nobody_from_it() {
        let name = format!("lhk-bound-{}", std::process::id());
        let bound = only_bound(&name);
        assert_eq!(list_own(&name).unwrap(), [""; 0]);
        let ours = listen_alone(&name).unwrap();
        let names = own_names(&name).unwrap();
        assert!(names.len() == 1 && names[0].starts_with(&format!("{name}/")), "{names:?}");
        assert_eq!(listen_alone(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // It sees ours when it listens.
        rustix::net::listen(&bound, 8).unwrap();
        assert_eq!(own_names(&name).unwrap(), [name, names[0].clone()]);
        drop(ours);
    }

    #[test]
    fn who_was_about_to_listen_has_the_name() {
        let name = format!("lhk-about-{}", std::process::id());
        let socket = only_bound(&name);
        let mut looks = 1;
        let listens = || {
            looks += 1;
            rustix::net::listen(&socket, 8).unwrap();
        };
        assert!(!is_others(&name, listens).unwrap());
        assert_eq!((looks, own_names(&name).unwrap()), (2, vec![name.clone()]));
        assert_eq!(listen_alone(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
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

        #[test]
        fn no_answer_panics(answer in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            let _ = parse_bound(&answer);
        }
    }
}
