//! TCP and UDP sockets of other programs, by sock_diag(7): the ends they connect, their memory and drops, their `TCP_INFO`, and the last
//! `TCP_INFO` of sockets that are gone. What the bytes of `TCP_INFO` mean is not known here.
//!
//! ```text
//!   inet_diag_msg, 72 bytes                                        then attributes
//!   | family | state | timer | retrans |                            INET_DIAG_INFO, _CONG, _SKMEMINFO, _CGROUP_ID, …
//!   | source port | destination port | source 16 | destination 16 | interface 4 | cookie 8 |
//!   | expires | receive queue | write queue | uid | inode |
//! ```
//!
//! All of it belongs to the network namespace in which a [`InetSockets`] or [`TcpEnds`] was opened, whatever thread uses it later.
//! A socket's *cookie* is its own as long as the machine runs; addresses and ports are used again.
//!
//! Source: sock_diag(7), `include/uapi/linux/inet_diag.h`, `net/ipv4/inet_diag.c`, `net/core/sock_diag.c`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use longhaul_units::Nanos;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

use crate::clock::thread_cpu_time;
use crate::counters::attributes::{attribute, push, u32_at, u64_at};
use crate::counters::netlink::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, messages, request};
use crate::signals::stops;

/// `NETLINK_SOCK_DIAG` of <linux/netlink.h>.
pub(super) const NETLINK_SOCK_DIAG: isize = 4;
/// Type of requests and answers.
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 72;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// Attributes of answers.
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// Attribute of a request: a filter that the kernel runs on each socket.
const INET_DIAG_REQ_BYTECODE: u16 = 1;
/// Operations of such a filter.
const BC_JMP: u8 = 1;
const BC_S_EQ: u8 = 11;
const BC_D_EQ: u8 = 12;
const BC_CGROUP: u8 = 13;
/// Multicast groups that tell of TCP sockets when they go.
const DESTROY_GROUPS: [u32; 2] = [1, 3];
/// States of a connection (`enum` in `include/net/tcp_states.h`): established, SYN sent, FIN wait 1 and 2, close wait, last ACK,
/// closing. Sockets that listen, that only wait for time to pass, or that are not accepted by TCP yet are no connections.
const CONNECTED: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// States of a UDP socket: connected, and not.
const UDP_STATES: u32 = 1 << 1 | 1 << 7;
/// The kernel fills at most 32 KiB at a time (`netlink_dump`).
const RECEIVE_BYTES: usize = 64 << 10;
/// Room for ends that were not read yet: some 10,000.
const ENDS_BYTES: i32 = 8 << 20;
/// A dump that took this much CPU time is given up when a signal asks this process to stop. Few hosts have so many sockets.
pub const LONG_DUMP: Nanos = Nanos::from_millis(100);
/// No dump takes much more CPU time. The kernel begins each piece of a dump at the first socket of a port, so users can make one take minutes.
const LONGEST_DUMP: Nanos = Nanos::from_secs(2);

/// Which sockets a dump shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InetFilter {
    /// All.
    #[default]
    All,
    /// Those with this port at either end.
    Port(u16),
    /// Those of sockets that were made in this control group (version 2, the inode number of its folder).
    Cgroup(u64),
}

/// How much a dump has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dumped {
    /// Every socket.
    Whole,
    /// Sockets came or went meanwhile in a way that some may be missing: the next dump has them.
    Disturbed,
    /// Some sockets: it was given up as it took long, or it has shown the rest of one that was.
    Part,
}

/// A socket as the kernel tells of it.
#[derive(Debug, Clone, Copy)]
pub struct InetSocket<'a> {
    /// The number of its state in `tcp_states.h`: 1 is established, 7 closed.
    pub state: u8,
    /// This end. An IPv4 address on an IPv6 socket is given as IPv4.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its own as long as the machine runs.
    pub cookie: u64,
    /// Bytes that arrived in order and were not read.
    pub unread_bytes: u32,
    /// The user it belongs to.
    pub uid: u32,
    /// The number in `socket:[…]`; 0 where no process holds it, and after its end.
    pub inode: u32,
    attributes: &'a [u8],
}

/// A socket's memory, bytes as the kernel accounts for them (more than payload).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InetMemory {
    /// In the receive queue.
    pub received_bytes: u32,
    /// What the receive queue may take (`SO_RCVBUF`).
    pub receive_buffer_bytes: u32,
    /// What the write queue may take (`SO_SNDBUF`).
    pub send_buffer_bytes: u32,
    /// In the write queue: not sent yet, or not acknowledged.
    pub write_queue_bytes: u32,
    /// Packets that it dropped.
    pub drops: u32,
}

impl<'a> InetSocket<'a> {
    /// Reads an answer; `None` where it is cut off or of another family.
    fn parse(body: &'a [u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(ANSWER_BYTES)?;
        let port = |at: usize| Some(u16::from_be_bytes(header.get(at..at + 2)?.try_into().ok()?));
        let family = i32::from(header[0]);
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
            match family {
                libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
                libc::AF_INET6 => Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()),
                _ => None,
            }
        };
        Some(Self {
            state: header[1],
            local: SocketAddr::new(address(8)?, port(4)?),
            remote: SocketAddr::new(address(24)?, port(6)?),
            // Two words of 32 bits, the lower first.
            cookie: u64::from(u32_at(header, 11)?) | u64::from(u32_at(header, 12)?) << 32,
            unread_bytes: u32_at(header, 14)?,
            uid: u32_at(header, 16)?,
            inode: u32_at(header, 17)?,
            attributes,
        })
    }

    /// `TCP_INFO`, as much of it as the kernel has; `None` of a socket that has none any more.
    pub fn info(&self) -> Option<&'a [u8]> {
        attribute(self.attributes, INET_DIAG_INFO)
    }

    /// Its congestion control.
    pub fn congestion_control(&self) -> Option<&'a str> {
        let name = attribute(self.attributes, INET_DIAG_CONG)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(name).ok()
    }

    /// Its memory.
    pub fn memory(&self) -> Option<InetMemory> {
        let words = attribute(self.attributes, INET_DIAG_SKMEMINFO)?;
        Some(InetMemory {
            received_bytes: u32_at(words, 0)?,
            receive_buffer_bytes: u32_at(words, 1)?,
            send_buffer_bytes: u32_at(words, 3)?,
            write_queue_bytes: u32_at(words, 5)?,
            drops: u32_at(words, 8).unwrap_or(0),
        })
    }

    /// The control group (version 2) it was made in; `None` before Linux 5.9.
    pub fn cgroup_id(&self) -> Option<u64> {
        attribute(self.attributes, INET_DIAG_CGROUP_ID).and_then(|bytes| u64_at(bytes, 0))
    }
}

/// Asks for the TCP connections of a network namespace, or for its UDP sockets, again and again.
pub struct InetSockets {
    socket: Socket,
    protocol: u8,
    sequence: u32,
    buffer: Vec<u8>,
    /// The kernel runs the filter; older ones know less of them, and then the caller's own must do.
    filters: bool,
    /// The family at which the last dump was given up: the kernel has more answers to it.
    unfinished: Option<libc::c_int>,
}

impl std::fmt::Debug for InetSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InetSockets").field("filters", &self.filters).finish_non_exhaustive()
    }
}

impl InetSockets {
    /// TCP connections of the namespace that the calling thread is in.
    ///
    /// # Errors
    /// Where there is no netlink for sockets (`CONFIG_INET_DIAG`), or no descriptor left.
    pub fn tcp() -> io::Result<Self> {
        Self::open(IPPROTO_TCP)
    }

    /// UDP sockets that have a port, of the namespace that the calling thread is in. Those that are not connected have port 0 at the other end.
    ///
    /// # Errors
    /// Where there is no netlink for sockets (`CONFIG_INET_UDP_DIAG`), or no descriptor left.
    pub fn udp() -> io::Result<Self> {
        Self::open(IPPROTO_UDP)
    }

    fn open(protocol: u8) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        Ok(Self {
            socket,
            protocol,
            sequence: 0,
            buffer: Vec::with_capacity(RECEIVE_BYTES),
            filters: true,
            unfinished: None,
        })
    }

    /// Calls `each` for every socket, IPv4 and IPv6, that passes `filter`; where the kernel lacks the filter it may be any.
    ///
    /// It is given up after two seconds of CPU time, or after [`LONG_DUMP`] if a signal asks this process to stop. The next call then shows the rest.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn dump(&mut self, filter: InetFilter, each: impl FnMut(&InetSocket<'_>)) -> io::Result<Dumped> {
        let (began, stops_before) = (thread_cpu_time(), stops());
        let goes_on = || {
            let took = thread_cpu_time().saturating_sub(began);
            took < LONG_DUMP || (took < LONGEST_DUMP && stops() == stops_before)
        };
        self.dump_while(goes_on, filter, each)
    }

    /// As [`Self::dump`], given up where `goes_on` says no.
    fn dump_while(
        &mut self,
        goes_on: impl Fn() -> bool,
        filter: InetFilter,
        mut each: impl FnMut(&InetSocket<'_>),
    ) -> io::Result<Dumped> {
        let rest = self.unfinished.take();
        let mut shown = if rest.is_some() { Dumped::Part } else { Dumped::Whole };
        for family in [libc::AF_INET, libc::AF_INET6] {
            if family == libc::AF_INET && rest == Some(libc::AF_INET6) {
                continue;
            }
            let filtered = self.filters && filter != InetFilter::All;
            // A socket on which a dump is not over takes no other request.
            if rest != Some(family) {
                self.ask(family, if filtered { filter } else { InetFilter::All })?;
            }
            let came = match self.answers(&goes_on, &mut each) {
                // Before any answer, so nothing is shown twice.
                Err(error) if filtered && error.raw_os_error() == Some(libc::EINVAL) => {
                    self.filters = false;
                    self.ask(family, InetFilter::All)?;
                    self.answers(&goes_on, &mut each)?
                }
                other => other?,
            };
            if came == Dumped::Part {
                self.unfinished = Some(family);
                return Ok(came);
            }
            shown = shown.max(came);
        }
        Ok(shown)
    }

    fn ask(&mut self, family: libc::c_int, filter: InetFilter) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let body = dump_request(self.protocol, family, filter);
        let bytes = request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, self.sequence, &body);
        self.socket.send_to(&bytes, &NetlinkAddress::new(0, 0), 0)?;
        Ok(())
    }

    /// Takes the answers of one family to their end, or one piece of them and more while `goes_on` says so.
    fn answers(&mut self, goes_on: &impl Fn() -> bool, each: &mut impl FnMut(&InetSocket<'_>)) -> io::Result<Dumped> {
        let mut shown = Dumped::Whole;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0)?;
            for message in messages(&self.buffer).filter(|message| message.sequence == self.sequence) {
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    shown = Dumped::Disturbed;
                }
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        return match u32_at(message.body, 0).unwrap_or(0) as i32 {
                            0.. => Ok(shown),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    _ => InetSocket::parse(message.body).iter().for_each(&mut *each),
                }
            }
            if !goes_on() {
                return Ok(Dumped::Part);
            }
        }
    }
}

fn dump_request(protocol: u8, family: libc::c_int, filter: InetFilter) -> Vec<u8> {
    let mut body = vec![0; REQUEST_BYTES];
    // AF_INET is 2, AF_INET6 10.
    body[0] = family as u8;
    body[1] = protocol;
    let states = if protocol == IPPROTO_TCP { CONNECTED } else { UDP_STATES };
    body[2] = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO].iter().fold(0, |set, kind| set | 1 << (kind - 1));
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    if let Some(code) = bytecode(filter) {
        push(&mut body, INET_DIAG_REQ_BYTECODE, &code);
    }
    body
}

/// A program for `inet_diag_bc_run`: each operation goes on `yes` bytes where it holds and `no` bytes where not; who arrives at the
/// end passes, who goes 4 bytes beyond does not.
fn bytecode(filter: InetFilter) -> Option<Vec<u8>> {
    let operation = |code: u8, yes: u8, no: u16| {
        let [low, high] = no.to_ne_bytes();
        [code, yes, low, high]
    };
    // The value to compare is in the `no` of the next operation.
    let port = |code: u8, no: u16, port: u16| [operation(code, 8, no), operation(0, 0, port)].concat();
    match filter {
        InetFilter::All => None,
        InetFilter::Port(number) => Some(
            [
                port(BC_S_EQ, 12, number),
                // The source's port is it: past the other question.
                operation(BC_JMP, 4, 12).to_vec(),
                port(BC_D_EQ, 12, number),
            ]
            .concat(),
        ),
        InetFilter::Cgroup(id) => Some([&operation(BC_CGROUP, 12, 16)[..], &id.to_ne_bytes()].concat()),
    }
}

/// Tells of TCP sockets that end, each with the last `TCP_INFO` that it had: also sockets that lived too briefly to be sampled.
///
/// What it tells has no inode, no memory and no congestion control. Sockets that never were connected have port 0 at the other end.
pub struct TcpEnds {
    socket: Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for TcpEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpEnds")
    }
}

impl TcpEnds {
    /// Of the namespace that the calling thread is in, from now on.
    ///
    /// # Errors
    /// Where the kernel does not tell of them (before 4.3), or the caller may not know.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        for group in DESTROY_GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        // Without CAP_NET_ADMIN the system's limit holds, which the second one stays below.
        if socket.set_rx_buf_sz(ENDS_BYTES).is_err() {
            let _ = socket.set_rx_buf_sz(ENDS_BYTES / 8);
        }
        Ok(Self { socket, buffer: Vec::with_capacity(RECEIVE_BYTES) })
    }

    /// Calls `each` for the sockets that ended since. Never waits. Gives `false` where some were missed, as there were too many.
    ///
    /// # Errors
    /// As recv(2) has them.
    pub fn drain(&mut self, mut each: impl FnMut(&InetSocket<'_>)) -> io::Result<bool> {
        let mut all = true;
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(all),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    all = false;
                    continue;
                }
                Err(error) => return Err(error),
            }
            for message in messages(&self.buffer).filter(|message| message.kind == SOCK_DIAG_BY_FAMILY) {
                InetSocket::parse(message.body).iter().for_each(&mut each);
            }
        }
    }
}

impl AsFd for TcpEnds {
    /// Readable when there is something to drain.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the socket's, which lives as long as what is borrowed from it.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::monotonic;
    use crate::wait::readable_until;

    /// As the kernel's tcp_info has them.
    fn bytes_received(info: &[u8]) -> u64 {
        u64_at(info, 16).unwrap()
    }

    fn inode(stream: &TcpStream) -> u32 {
        let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
        std::fs::metadata(path).unwrap().ino() as u32
    }

    fn pair(address: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (listener, near, far)
    }

    fn seen(
        sockets: &mut InetSockets,
        filter: InetFilter,
        port: u16,
    ) -> Vec<(SocketAddr, SocketAddr, u64, u32, u32, u64)> {
        let mut found = Vec::new();
        let each = |socket: &InetSocket<'_>| {
            let passes =
                !matches!(filter, InetFilter::Port(_)) || [socket.local.port(), socket.remote.port()].contains(&port);
            assert!(passes, "{socket:?}");
            if socket.local.port() == port || socket.remote.port() == port {
                let info = socket.info().unwrap();
                assert_eq!(info[0], socket.state);
                assert!(info.len() >= 192, "{}", info.len());
                assert!(socket.memory().unwrap().receive_buffer_bytes > 2_000);
                assert!(!socket.congestion_control().unwrap().is_empty());
                let row = (socket.local, socket.remote, socket.cookie, socket.inode, socket.unread_bytes);
                found.push((row.0, row.1, row.2, row.3, row.4, bytes_received(info)));
            }
        };
        sockets.dump(filter, each).unwrap();
        found.sort_by_key(|row| row.0.port() != port);
        found
    }

    #[test]
    fn both_ends_of_a_connection_are_there_with_what_they_hold() {
        let mut sockets = InetSockets::tcp().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(_) = TcpListener::bind(address) else {
                longhaul_testing::skipped!("no {address} here");
                continue;
            };
            let (listener, mut near, mut far) = pair(address);
            near.write_all(&[7; 1_000]).unwrap();
            far.read_exact(&mut [0; 300]).unwrap();
            let server = listener.local_addr().unwrap();
            for filter in [InetFilter::All, InetFilter::Port(server.port())] {
                let rows = seen(&mut sockets, filter, server.port());
                let [theirs, ours] = rows[..] else { panic!("{rows:?}") };
                assert_eq!((theirs.0, theirs.1), (server, near.local_addr().unwrap()));
                assert_eq!((ours.0, ours.1), (near.local_addr().unwrap(), server));
                assert_eq!((theirs.3, ours.3), (inode(&far), inode(&near)));
                assert_eq!((theirs.4, theirs.5, ours.4, ours.5), (700, 1_000, 0, 0));
                assert!(theirs.2 != ours.2 && theirs.2 > 0 && ours.2 > 0);
            }
            // Nobody has that port: the filter is the kernel's, not ours.
            let mut others = 0;
            sockets.dump(InetFilter::Port(1), |_| others += 1).unwrap();
            assert_eq!((others, sockets.filters), (0, true));
        }
    }

    #[test]
    fn sockets_of_a_control_group_alone() {
        let mut sockets = InetSockets::tcp().unwrap();
        let (listener, near, _far) = pair("127.0.0.1:0");
        let port = listener.local_addr().unwrap().port();
        let mut id = None;
        sockets
            .dump(InetFilter::Port(port), |socket| {
                if socket.remote.port() == port {
                    id = socket.cgroup_id();
                }
            })
            .unwrap();
        let Some(id) = id else { return longhaul_testing::skipped!("the kernel tells no control group of a socket") };
        assert!(!seen(&mut sockets, InetFilter::Cgroup(id), port).is_empty());
        let mut others = 0;
        sockets.dump(InetFilter::Cgroup(u64::MAX), |_| others += 1).unwrap();
        assert_eq!(others, 0);
        drop(near);
    }

    #[test]
    fn the_next_dump_shows_the_rest_of_one_that_was_given_up() {
        // No piece has room for so many.
        let bound: Vec<UdpSocket> = (0..300).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut left: Vec<SocketAddr> = bound.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut sockets = InetSockets::udp().unwrap();
        let shown = sockets.dump_while(|| false, InetFilter::All, |one| left.retain(|local| *local != one.local));
        assert_eq!(shown.unwrap(), Dumped::Part);
        assert!(!left.is_empty());
        // The kernel still has answers: a new request would be refused.
        let shown = sockets.dump(InetFilter::All, |one| left.retain(|local| *local != one.local));
        assert_eq!((shown.unwrap(), left.len()), (Dumped::Part, 0));
        let mut again = 0;
        let each = |one: &InetSocket<'_>| again += usize::from(one.local == bound[0].local_addr().unwrap());
        assert_ne!(sockets.dump(InetFilter::All, each).unwrap(), Dumped::Part);
        assert!(again > 0);
    }

    #[test]
    fn a_connection_that_ended_tells_its_last() {
        let mut ends = TcpEnds::open().unwrap();
        let (listener, mut near, mut far) = pair("127.0.0.1:0");
        let server = listener.local_addr().unwrap();
        let client = near.local_addr().unwrap();
        near.write_all(&[7; 12_345]).unwrap();
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        drop(far);
        let deadline = monotonic().saturating_add(Nanos::from_secs(5));
        let mut told = Vec::new();
        while told.len() < 2 && monotonic() < deadline {
            assert!(readable_until(&ends, Some(deadline)).unwrap(), "nothing came");
            let each = |socket: &InetSocket<'_>| {
                if [socket.local, socket.remote].contains(&server) && [socket.local, socket.remote].contains(&client) {
                    told.push((socket.local, socket.state, bytes_received(socket.info().unwrap())));
                }
            };
            assert!(ends.drain(each).unwrap());
        }
        told.sort_by_key(|row| row.0 != server);
        // 7 is closed. The kernel counts the FIN as a byte.
        assert_eq!((told[0].0, told[0].1), (server, 7));
        assert!((12_345..=12_346).contains(&told[0].2), "{told:?}");
        assert_eq!(told[1].0, client);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Some(socket) = InetSocket::parse(&bytes) {
                let _ = (socket.info(), socket.memory(), socket.congestion_control(), socket.cgroup_id());
            }
        }
    }
}
