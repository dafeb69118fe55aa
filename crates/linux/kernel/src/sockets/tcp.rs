//! TCP sockets: what std does not set, and bulk without a copy.
//!
//! Source: socket(7), tcp(7), sendfile(2), recv(2) (`MSG_TRUNC`), `Documentation/networking/mptcp.rst`.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{ptr, thread};

use longhaul_units::{BitRate, Nanos};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, getpeername, ipproto, listen, socket_with, sockopt,
};

use crate::clock::monotonic;
use crate::sysctl;
use crate::udp::BufferGrant;
use crate::udp::option::{read_words, set_bytes, set_int, set_traffic_class};
use crate::wait::writable_until;

/// Longest name of a congestion control, with its zero (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_BYTES: usize = 16;
/// IP and TCP header with all options, and some extension headers.
const SYN_MOST_BYTES: usize = 512;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

/// How often to look whether data was acknowledged, of which no event tells.
pub const UNACKNOWLEDGED_LOOK: Nanos = Nanos::from_millis(5);

/// Has `socket` send at `rate` of payload bits a second at most (`SO_MAX_PACING_RATE`). TCP paces itself where the interface
/// has no fq.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: BitRate) -> io::Result<()> {
    let bytes_per_second = rate.0 / 8;
    set_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

/// The congestion control of `socket`.
///
/// # Errors
/// What getsockopt(2) says.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    let mut words = [0_u32; CONGESTION_NAME_BYTES / 4];
    read_words(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut words)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Gives `socket` the congestion control `name`, at once and in mid-flow.
///
/// # Errors
/// `NotFound` where the kernel has none of that name, `PermissionDenied` where it is for root alone (see
/// `net.ipv4.tcp_allowed_congestion_control`).
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    set_bytes(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Whether this user may choose the congestion control `name` in the calling thread's network namespace; loads its module where
/// that is how the kernel has it.
///
/// # Errors
/// As [`set_congestion_control`].
pub fn probe_congestion_control(name: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_congestion_control(&socket, name)
}

/// The congestion controls that are there, by name; more may come when they are asked for, as the kernel loads modules. Empty
/// where they cannot be read.
pub fn available_congestion_controls() -> Vec<String> {
    let names = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}

/// What a TCP socket is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Buffers to ask for in both directions, which turns the kernel's tuning of them off; `None` leaves it on.
    pub buffer_bytes: Option<usize>,
    /// Largest segment (`TCP_MAXSEG`).
    pub largest_segment_bytes: Option<u32>,
    /// MPTCP (RFC 8684) in place of TCP, where the kernel has it.
    pub multipath: bool,
    /// TOS byte of IPv4 or traffic class of IPv6 of each packet (`IP_TOS`, `IPV6_TCLASS`); TCP keeps the two bits of ECN for itself.
    pub traffic_class: u8,
}

/// Why there is no TCP socket.
#[derive(Debug, thiserror::Error)]
pub enum TcpOpenError {
    /// The kernel has no MPTCP.
    #[error("this kernel has no MPTCP (RFC 8684), which needs CONFIG_MPTCP and sysctl net.mptcp.enabled=1")]
    NoMultipath,
    /// Nobody listens there, or a firewall says so.
    #[error("{address} refuses the connection")]
    Refused {
        /// Where to.
        address: SocketAddr,
    },
    /// No answer came in time.
    #[error("{address} does not answer")]
    Unanswered {
        /// Where to.
        address: SocketAddr,
    },
    /// The own address or port cannot be used.
    #[error("cannot use the local address {from}: {source}")]
    NotBound {
        /// The own address and port.
        from: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot {step}: {source}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn step(step: &'static str) -> impl Fn(io::Error) -> TcpOpenError {
    move |source| TcpOpenError::Step { step, source }
}

/// Listens at `address` in the calling thread's network namespace; port 0 has the kernel choose one. Connections have the options.
/// It does not wait: accept(2) says `WouldBlock` where there is none.
///
/// # Errors
/// [`TcpOpenError::NoMultipath`], [`TcpOpenError::Step`].
pub fn listen_at(address: SocketAddr, options: &TcpOptions) -> Result<TcpListener, TcpOpenError> {
    let socket = open(address, options)?;
    if address.port() > 0 {
        // Connections of the test before may still wait for late packets.
        sockopt::set_socket_reuseaddr(&socket, true).map_err(|error| step("set a socket up")(error.into()))?;
    }
    bind(&socket, &address).map_err(|error| step("bind a TCP socket")(error.into()))?;
    listen(&socket, BACKLOG).map_err(|error| step("listen")(error.into()))?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true).map_err(step("set a socket up"))?;
    Ok(listener)
}

/// Connects to `address` in the calling thread's network namespace, by `deadline` on `CLOCK_MONOTONIC`; from the own address and port
/// `from`, where that is some.
///
/// # Errors
/// Any [`TcpOpenError`].
pub fn connect_to(
    address: SocketAddr,
    from: Option<SocketAddr>,
    options: &TcpOptions,
    deadline: Nanos,
) -> Result<TcpStream, TcpOpenError> {
    let socket = open(address, options)?;
    if let Some(from) = from {
        // A port that waits for late packets of a connection to another address or port may be taken.
        sockopt::set_socket_reuseaddr(&socket, true).map_err(|error| step("set a socket up")(error.into()))?;
        bind(&socket, &from).map_err(|error| TcpOpenError::NotBound { from, source: error.into() })?;
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true).map_err(step("set a socket up"))?;
    match connect(&stream, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            while !writable_until(&stream, Some(deadline)).map_err(step("wait for a connection"))? {
                if crate::clock::monotonic() >= deadline {
                    return Err(TcpOpenError::Unanswered { address });
                }
            }
            if let Some(error) = stream.take_error().map_err(step("connect"))? {
                return Err(refused(address, error));
            }
        }
        Err(error) => return Err(refused(address, error.into())),
    }
    stream.set_nonblocking(false).map_err(step("set a socket up"))?;
    Ok(stream)
}

fn refused(address: SocketAddr, error: io::Error) -> TcpOpenError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => TcpOpenError::Refused { address },
        io::ErrorKind::TimedOut => TcpOpenError::Unanswered { address },
        _ => TcpOpenError::Step { step: "connect", source: error },
    }
}

fn open(address: SocketAddr, options: &TcpOptions) -> Result<OwnedFd, TcpOpenError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let protocol: Option<Protocol> = options.multipath.then_some(ipproto::MPTCP);
    let socket = match socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol) {
        Err(Errno::PROTONOSUPPORT | Errno::NOPROTOOPT | Errno::INVAL) if options.multipath => {
            return Err(TcpOpenError::NoMultipath);
        }
        other => other.map_err(|error| step("open a TCP socket")(error.into()))?,
    };
    // Before the handshake, as the buffers say by how much windows are scaled.
    set_buffers_and_class(socket.as_fd(), address.ip(), options)?;
    if let Some(bytes) = options.largest_segment_bytes {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        set_int(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes).map_err(step("setsockopt TCP_MAXSEG"))?;
    }
    Ok(socket)
}

/// Gives an accepted connection what of `options` may come late. Its window stays within the scale that the kernel chose for the listener: by
/// its buffer, or by `net.ipv4.tcp_rmem` and `net.core.rmem_max`.
///
/// # Errors
/// [`TcpOpenError::Step`].
pub fn set_up_accepted(connection: &TcpStream, options: &TcpOptions) -> Result<(), TcpOpenError> {
    let own = connection.local_addr().map_err(step("set a socket up"))?;
    set_buffers_and_class(connection.as_fd(), own.ip(), options)
}

fn set_buffers_and_class(socket: BorrowedFd<'_>, address: IpAddr, options: &TcpOptions) -> Result<(), TcpOpenError> {
    if options.buffer_bytes.is_some() {
        for grant in [send_buffer(socket, options.buffer_bytes), receive_buffer(socket, options.buffer_bytes)] {
            grant.map_err(step("set a socket's buffers"))?;
        }
    }
    if options.traffic_class > 0 {
        set_traffic_class(socket, address, options.traffic_class).map_err(step("setsockopt IP_TOS"))?;
    }
    Ok(())
}

/// The send buffer, after asking for `bytes` where that is some.
///
/// # Errors
/// What setsockopt(2) says.
pub fn send_buffer(socket: impl AsFd, bytes: Option<usize>) -> io::Result<BufferGrant> {
    BufferGrant::ask(socket.as_fd(), bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
}

/// The receive buffer, after asking for `bytes` where that is some.
///
/// # Errors
/// What setsockopt(2) says.
pub fn receive_buffer(socket: impl AsFd, bytes: Option<usize>) -> io::Result<BufferGrant> {
    BufferGrant::ask(socket.as_fd(), bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
}

/// The receive buffer that TCP sockets have at first, and that the kernel tunes. A socket that was given another one can have it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunedBuffer {
    bytes: usize,
}

impl TunedBuffer {
    /// That of the calling thread's network namespace; `None` where it cannot be given back: before Linux 5.14, or where it is beyond
    /// `net.core.rmem_max`, which takes `CAP_NET_ADMIN`.
    pub fn of_namespace() -> Option<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        let tuned = Self { bytes: receive_buffer(&socket, None).ok()?.given_bytes };
        tuned.give_back(&socket).ok()?;
        (receive_buffer(&socket, None).ok()?.given_bytes == tuned.bytes).then_some(tuned)
    }

    /// Gives it back to `socket`, and turns the kernel's tuning on again (`SO_BUF_LOCK`), also that of the send buffer.
    ///
    /// # Errors
    /// What setsockopt(2) says: MPTCP has no `SO_BUF_LOCK`.
    pub fn give_back(self, socket: impl AsFd) -> io::Result<()> {
        receive_buffer(&socket, Some(self.bytes / 2))?;
        set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0)
    }
}

/// Bytes that arrived and were not read (tcp(7), `SIOCINQ`).
///
/// # Errors
/// The socket is none of TCP.
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(socket)?)
}

/// Has the connections of `listener` keep the SYN that opened them ([`saved_syn`]; `TCP_SAVE_SYN`).
///
/// # Errors
/// What setsockopt(2) says: MPTCP may not have it.
pub fn save_syn(listener: impl AsFd) -> io::Result<()> {
    set_int(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)
}

/// IP and TCP header of the SYN that opened `connection`, as it arrived (`TCP_SAVED_SYN`). The kernel gives it once; empty if there is
/// none.
///
/// # Errors
/// What getsockopt(2) says.
pub fn saved_syn(connection: impl AsFd) -> io::Result<Vec<u8>> {
    let mut words = [0_u32; SYN_MOST_BYTES / 4];
    // Both headers are whole words (RFC 791 §3.1, RFC 8200 §4, RFC 9293 §3.1).
    let count = read_words(connection.as_fd(), libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, &mut words)?;
    Ok(words.iter().take(count).flat_map(|word| word.to_ne_bytes()).collect())
}

/// Has writes to `socket` wait while so many bytes lie in it unsent (`TCP_NOTSENT_LOWAT`); `u32::MAX`: as many as its buffer takes.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_unsent_limit(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_bytes(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Has calls on `socket` that wait come back after `time` at the latest, with `WouldBlock`.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_patience(socket: &TcpStream, time: Nanos) -> io::Result<()> {
    socket.set_read_timeout(Some(time.into()))?;
    socket.set_write_timeout(Some(time.into()))
}

/// Whether closing `socket` drops what is not sent yet, resets the connection and frees it at once (`SO_LINGER` of 0 s, socket(7)). A killed
/// process closes its sockets, too. Without this the kernel keeps such a connection for minutes where the other end does not answer, and with
/// it the network namespace and the congestion control.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_reset_on_close(socket: impl AsFd, reset: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(socket, reset.then_some(std::time::Duration::ZERO))?)
}

/// Bytes that were written to `socket` and are not acknowledged (tcp(7), `SIOCOUTQ`): the kernel keeps them in memory. The end of the stream counts
/// as one. A connection that is over, or was reset, has none.
///
/// # Errors
/// What ioctl(2) says: before Linux 5.17 of MPTCP.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    let socket = socket.as_fd();
    if getpeername(socket).is_err() {
        // The count stays as it was, but nothing is kept.
        return Ok(0);
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives until the call returns.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Waits for `time` at most until the other end has acknowledged all that was sent over `connection`, also its end where that was sent: before that
/// the kernel keeps the socket, and what arrived out of order, for minutes after this program has closed it. `goes_on` waits for the time that it is
/// given and tells whether to go on. Gives whether all is acknowledged; `false` where the kernel does not tell.
pub fn acknowledged_within(connection: impl AsFd, time: Nanos, mut goes_on: impl FnMut(Nanos) -> bool) -> bool {
    let until = monotonic() + time;
    loop {
        match unacknowledged_bytes(&connection) {
            Ok(0) => return true,
            Ok(_) if monotonic() < until && goes_on(UNACKNOWLEDGED_LOOK) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// Waits for `pause`, and goes on: for [`acknowledged_within`] where nothing else can end it.
pub fn goes_on_after(pause: Nanos) -> bool {
    thread::sleep(pause.into());
    true
}

/// Takes up to `most` bytes out of `socket` without copying them anywhere (`MSG_TRUNC`); 0 at the end of the stream.
///
/// # Errors
/// As recv(2) has them; `WouldBlock` where the socket's patience ended.
pub fn discard(socket: impl AsFd, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC TCP reads nothing into the buffer, of which there is none (tcp(7)).
    let taken = unsafe { libc::recv(socket.as_fd().as_raw_fd(), ptr::null_mut(), most, libc::MSG_TRUNC) };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}

/// Bytes in memory that sendfile(2) can send.
#[derive(Debug)]
pub struct ZeroCopySource {
    file: File,
    bytes: usize,
}

impl ZeroCopySource {
    /// `content` in a file in memory.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn new(content: &[u8]) -> io::Result<Self> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("longhaul", flags)?);
        file.write_all(content)?;
        Ok(Self { file, bytes: content.len() })
    }

    /// Sends up to `most` of the bytes from `offset` on, without a copy; gives how many.
    ///
    /// # Errors
    /// As sendfile(2) has them; `WouldBlock` where the socket's patience ended.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: usize, most: usize) -> io::Result<usize> {
        let mut at = offset as u64;
        let count = most.min(self.bytes.saturating_sub(offset));
        Ok(rustix::fs::sendfile(socket, &self.file, Some(&mut at), count)?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::socket_filter::SocketFilter;

    fn pair(options: &TcpOptions) -> (TcpStream, TcpStream) {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let address = listener.local_addr().unwrap();
        let near = connect_to(address, None, options, monotonic() + Nanos::from_secs(5)).unwrap();
        listener.set_nonblocking(false).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_congestion_control_is_set_and_read_and_one_that_is_not_there_is_not_found() {
        let (near, _far) = pair(&TcpOptions::default());
        assert!(available_congestion_controls().iter().any(|name| name == "reno"));
        set_congestion_control(&near, "reno").unwrap();
        assert_eq!(congestion_control(&near).unwrap(), "reno");
        assert_eq!(set_congestion_control(&near, "no_such_one").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(congestion_control(&near).unwrap(), "reno");
    }

    #[test]
    fn buffers_and_segment_size_are_as_asked() {
        let options =
            TcpOptions { buffer_bytes: Some(100_000), largest_segment_bytes: Some(1_000), ..TcpOptions::default() };
        let (near, far) = pair(&options);
        for socket in [&near, &far] {
            let (send, receive) = (send_buffer(socket, None).unwrap(), receive_buffer(socket, None).unwrap());
            assert_eq!((send.given_bytes, receive.given_bytes), (200_000, 200_000));
        }
    }

    #[test]
    fn a_buffer_that_the_kernel_tunes_comes_back() {
        let tuned = TunedBuffer::of_namespace().unwrap();
        let (_near, far) = pair(&TcpOptions::default());
        let now = || {
            let mut lock = [0];
            read_words(far.as_fd(), libc::SOL_SOCKET, libc::SO_BUF_LOCK, &mut lock).unwrap();
            (receive_buffer(&far, None).unwrap().given_bytes, lock)
        };
        let first = now();
        receive_buffer(&far, Some(8_192)).unwrap();
        // `SOCK_RCVBUF_LOCK`.
        assert_eq!(now(), (16_384, [2]));
        tuned.give_back(&far).unwrap();
        assert_eq!((now(), first.1), (first, [0]));
    }

    #[test]
    fn what_is_sent_without_a_copy_arrives_and_can_be_thrown_away() {
        let (near, mut far) = pair(&TcpOptions::default());
        let content: Vec<u8> = (0..50_000_u32).map(|byte| byte as u8).collect();
        let source = ZeroCopySource::new(&content).unwrap();
        let mut sent = 0;
        while sent < content.len() {
            sent += source.send(near.as_fd(), sent, usize::MAX).unwrap();
        }
        let mut some = [0; 1_000];
        far.read_exact(&mut some).unwrap();
        assert_eq!(some[..], content[..1_000]);
        let mut thrown = 0;
        while thrown < content.len() - 1_000 {
            thrown += discard(&far, 1 << 20).unwrap();
        }
        set_patience(&far, Nanos::from_millis(1)).unwrap();
        assert_eq!(discard(&far, 1 << 20).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        assert_eq!(discard(&far, 1 << 20).unwrap(), 0);
    }

    #[test]
    fn what_lies_unsent_is_limited() {
        let options = TcpOptions { buffer_bytes: Some(100_000), ..TcpOptions::default() };
        let written = |limit| {
            let (mut near, _far) = pair(&options);
            set_unsent_limit(&near, limit).unwrap();
            near.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(count) = near.write(&[0; 4_096]) {
                written += count;
            }
            written
        };
        // Nobody reads: the window is full, and the rest lies here.
        let (all, limited) = (written(u32::MAX), written(20_000));
        assert!(limited + 20_000 < all, "{limited} of {all}");
    }

    #[test]
    fn what_is_not_acknowledged_is_counted() {
        let options = TcpOptions { buffer_bytes: Some(100_000), ..TcpOptions::default() };
        let filled = || {
            let (mut near, far) = pair(&options);
            assert_eq!(unacknowledged_bytes(&near).unwrap(), 0);
            near.set_nonblocking(true).unwrap();
            while matches!(near.write(&[0; 4_096]), Ok(1..)) {}
            assert!(unacknowledged_bytes(&near).unwrap() > 0, "nobody reads");
            (near, far)
        };
        let comes_to_none = |near: &TcpStream| {
            let until = monotonic() + Nanos::from_secs(5);
            while unacknowledged_bytes(near).unwrap() > 0 {
                assert!(monotonic() < until);
                std::thread::yield_now();
            }
        };
        let (near, mut far) = filled();
        assert!(!acknowledged_within(&near, Nanos::from_millis(1), goes_on_after));
        near.shutdown(std::net::Shutdown::Both).unwrap();
        io::copy(&mut far, &mut io::sink()).unwrap();
        assert!(acknowledged_within(&near, Nanos::from_secs(5), goes_on_after));
        assert_eq!(unacknowledged_bytes(&near).unwrap(), 0);
        let (near, far) = filled();
        // What is unread resets the connection.
        drop(far);
        comes_to_none(&near);
    }

    #[test]
    fn the_end_of_a_stream_is_acknowledged_too() {
        let (near, far) = pair(&TcpOptions::default());
        SocketFilter::nothing().attach(&far).unwrap();
        assert!(acknowledged_within(&near, Nanos::ZERO, goes_on_after), "nothing was sent");
        near.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(!acknowledged_within(&near, Nanos::from_millis(10), goes_on_after));
        assert!(!acknowledged_within(&near, Nanos::from_secs(3600), |_| false));
    }

    #[test]
    fn the_syn_is_kept_where_that_is_asked_for() {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
        save_syn(&listener).unwrap();
        let address = listener.local_addr().unwrap();
        let near = connect_to(address, None, &TcpOptions::default(), monotonic() + Nanos::from_secs(5)).unwrap();
        listener.set_nonblocking(false).unwrap();
        let far = listener.accept().unwrap().0;
        let syn = saved_syn(&far).unwrap();
        // IPv4, TCP, the ports, SYN without ACK.
        assert_eq!((syn[0] >> 4, syn[9], syn[33] & 0x12), (4, 6, 2));
        assert_eq!(syn[20..22], near.local_addr().unwrap().port().to_be_bytes());
        assert_eq!(syn[22..24], address.port().to_be_bytes());
        // Once, and not of the end that sent it.
        assert_eq!((saved_syn(&far).unwrap().len(), saved_syn(&near).unwrap().len()), (0, 0));
    }

    #[test]
    fn nobody_listening_is_refused() {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = connect_to(address, None, &TcpOptions::default(), monotonic() + Nanos::from_secs(5)).unwrap_err();
        assert!(matches!(error, TcpOpenError::Refused { .. }), "{error}");
    }

    #[test]
    fn multipath_is_there_or_said_to_be_missing() {
        let options = TcpOptions { multipath: true, ..TcpOptions::default() };
        match listen_at("127.0.0.1:0".parse().unwrap(), &options) {
            Ok(_) => println!("this kernel has MPTCP"),
            Err(error) => assert!(matches!(error, TcpOpenError::NoMultipath), "{error}"),
        }
    }
}
