//! Sending many datagrams to one peer.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_units::{BitRate, Nanos};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{bind, connect};

use super::error_queue::{ErrorQueue, Tries};
use super::option::{read_words, set_bytes, set_int, set_traffic_class};
use super::socket::{local_address, open, peer_address};
use super::{BufferGrant, DATAGRAMS_MOST, PAYLOAD_MOST_BYTES_V4, SendBatch, SocketMemory, UdpOpenError, UdpSendError};

/// `UDP_MAX_SEGMENTS` before Linux 6.9.
const SEGMENTS_MOST_BEFORE_6_9: usize = 64;
/// The longest payload by IPv6, so that the packet with its header fits 64 KiB, as devices take no more by default.
const PAYLOAD_MOST_BYTES_V6: usize = 65_535 - 40 - 8;

/// How a [`UdpSender`] is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderOptions {
    /// The send buffer to ask for; `None` leaves the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// A rate that the kernel paces this socket to (`SO_MAX_PACING_RATE`), headers included. Only the fq qdisc (or EDT-aware
    /// ones) at the egress link heeds it for UDP.
    pub pacing_most: Option<BitRate>,
    /// Have drops at the egress told by the send ([`UdpSendError::NoBuffers`], through `IP_RECVERR`). ICMP errors then queue
    /// at the socket, where they take a little of the receive buffer until the next send or receive takes them out.
    pub report_drops: bool,
    /// Send each datagram whole or not at all: no fragments, and a path MTU that the kernel learned does not count
    /// (`IP_PMTUDISC_PROBE` and `IPV6_DONTFRAG`, ip(7), ipv6(7)). A datagram longer than the interface's MTU is refused
    /// ([`UdpSendError::MessageTooLong`]).
    pub dont_fragment: bool,
    /// The TOS byte of IPv4 or the traffic class of IPv6 of each packet: DSCP, and ECN in the lowest two bits (`IP_TOS`, `IPV6_TCLASS`).
    pub traffic_class: u8,
    /// A send that waits ([`UdpSender::send_segments`] with `wait`) gives up after this time.
    pub wait_most: Nanos,
}

impl Default for SenderOptions {
    /// Waits at most 100 ms, so that a sender whose link is stuck still sees its end time.
    fn default() -> Self {
        Self {
            send_buffer_bytes: None,
            pacing_most: None,
            report_drops: true,
            dont_fragment: false,
            traffic_class: 0,
            wait_most: Nanos::from_millis(100),
        }
    }
}

/// What became of datagrams that were sent together.
#[derive(Debug)]
pub struct Sent {
    /// The first so many were taken by the kernel.
    pub datagrams: usize,
    /// Why the others were not; `None` where all were taken, or where more were given than one super-packet holds.
    pub unsent: Option<Unsent>,
}

/// Why not all datagrams of a batch were sent.
#[derive(Debug)]
pub enum Unsent {
    /// The kernel said why: of the datagram behind those that were sent, or of the whole super-packet.
    Because(UdpSendError),
    /// The kernel refused the datagram behind those that were sent and does not say why (sendmmsg(2), BUGS). With a sender
    /// that waits it is as good as dropped on the way out (`sender_stack`, `sender_qdisc`): go on with the next one. With one
    /// that does not, the send buffer may just be full. The datagrams behind it were not tried.
    Unknown,
}

/// A UDP socket connected to one peer, for sending.
///
/// What ICMP says of earlier datagrams, which anybody can forge, keeps none from going: a send that such an error ends is tried again at once, for
/// about a millisecond at most.
#[derive(Debug)]
pub struct UdpSender {
    pub(super) fd: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
    send_buffer: BufferGrant,
    segments_most: AtomicUsize,
    pub(super) errors: ErrorQueue,
}

impl UdpSender {
    /// Opens a socket in the calling thread's network namespace, bound to `local` where given, and connected to `peer`.
    ///
    /// # Errors
    /// Any [`UdpOpenError`].
    pub fn connect(local: Option<SocketAddr>, peer: SocketAddr, options: &SenderOptions) -> Result<Self, UdpOpenError> {
        let fd = open(peer)?;
        if let Some(local) = local {
            bind(&fd, &local).map_err(|source| UdpOpenError::bind("UDP", local, source.into()))?;
        }
        connect(&fd, &peer).map_err(|source| UdpOpenError::connect(peer, source.into()))?;
        Self::of(fd, options)
    }

    /// Makes a sender of a socket that is connected already.
    pub(super) fn of(fd: OwnedFd, options: &SenderOptions) -> Result<Self, UdpOpenError> {
        let peer = peer_address(&fd)?;
        let local = local_address(&fd)?;
        let socket = fd.as_fd();
        let send_buffer = BufferGrant::ask(socket, options.send_buffer_bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
            .map_err(UdpOpenError::step("setsockopt SO_SNDBUF"))?;
        if let Some(rate) = options.pacing_most {
            // Bytes a second, in an unsigned long since Linux 5.0.
            set_bytes(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &(rate.0 / 8).to_ne_bytes())
                .map_err(UdpOpenError::step("setsockopt SO_MAX_PACING_RATE"))?;
        }
        let (level, name) =
            if peer.is_ipv4() { (libc::SOL_IP, libc::IP_RECVERR) } else { (libc::SOL_IPV6, libc::IPV6_RECVERR) };
        set_int(socket, level, name, i32::from(options.report_drops))
            .map_err(UdpOpenError::step("setsockopt IP_RECVERR"))?;
        if options.dont_fragment {
            let probe: &[_] = if peer.is_ipv4() {
                &[(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)]
            } else {
                &[
                    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
                    (libc::SOL_IPV6, libc::IPV6_DONTFRAG, 1),
                ]
            };
            for (level, name, value) in probe {
                set_int(socket, *level, *name, *value).map_err(UdpOpenError::step("setsockopt IP_MTU_DISCOVER"))?;
            }
        }
        if options.traffic_class > 0 {
            set_traffic_class(socket, peer.ip(), options.traffic_class)
                .map_err(UdpOpenError::step("setsockopt IP_TOS"))?;
        }
        // Zero would be for ever.
        let wait = Duration::from_nanos(options.wait_most.0.max(1_000));
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(wait))
            .map_err(|source| UdpOpenError::Step { step: "setsockopt SO_SNDTIMEO", source: source.into() })?;
        let segments_most = AtomicUsize::new(DATAGRAMS_MOST);
        Ok(Self { fd, local, peer, send_buffer, segments_most, errors: ErrorQueue::default() })
    }

    /// The same, whose error queue others take messages out of as well.
    pub(super) fn sharing(self, errors: &ErrorQueue) -> Self {
        Self { errors: errors.clone(), ..self }
    }

    /// The own address and port.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Where datagrams go.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The send buffer.
    pub fn send_buffer(&self) -> BufferGrant {
        self.send_buffer
    }

    /// How many datagrams of `datagram_bytes` one super-packet holds: up to 128 (64 before Linux 6.9, which the first send
    /// finds out) and 64 KiB; 1 where it holds no two.
    pub fn segments_most(&self, datagram_bytes: usize) -> usize {
        let bytes = if self.peer.is_ipv4() { PAYLOAD_MOST_BYTES_V4 } else { PAYLOAD_MOST_BYTES_V6 };
        (bytes / datagram_bytes.max(1)).clamp(1, self.segments_most.load(Ordering::Relaxed))
    }

    /// Sends `bytes` as one super-packet of datagrams of `segment_bytes`, the last one shorter where it does not come out
    /// even; `wait` until the send buffer has room. One system call. Sends what one super-packet holds
    /// ([`UdpSender::segments_most`]), says how many datagrams that was, and leaves the others.
    pub fn send_segments(&self, bytes: &[u8], segment_bytes: usize, wait: bool) -> Sent {
        loop {
            let most = self.segments_most(segment_bytes);
            let bytes = &bytes[..bytes.len().min(most.saturating_mul(segment_bytes.max(1)))];
            let datagrams = bytes.len().div_ceil(segment_bytes.max(1)).max(1);
            match self.send_message(bytes, (datagrams > 1).then_some(segment_bytes as u16), wait) {
                Ok(()) => return Sent { datagrams, unsent: None },
                // The kernel's limit is lower.
                Err(UdpSendError::Other(error))
                    if error.raw_os_error() == Some(libc::EINVAL) && datagrams > SEGMENTS_MOST_BEFORE_6_9 =>
                {
                    self.segments_most.store(SEGMENTS_MOST_BEFORE_6_9, Ordering::Relaxed);
                }
                Err(error) => return Sent { datagrams: 0, unsent: Some(Unsent::Because(error)) },
            }
        }
    }

    /// Sends the datagrams `range` of `batch`, each a packet of its own; `wait` until the send buffer has room. One system
    /// call, and more where ICMP says something of earlier datagrams: a datagram that the way out drops within 100 ms of such a message is sent
    /// once more, because the kernel does not say which of the two ended the call. If it passes then, it counts as sent, and as a drop in this
    /// host's counters alone.
    pub fn send_singly(&self, batch: &mut SendBatch, range: Range<usize>, wait: bool) -> Sent {
        let messages = batch.messages(range);
        let (mut datagrams, mut tries) = (0, Tries::default());
        while datagrams < messages.len() {
            let rest = &mut messages[datagrams..];
            // SAFETY: `messages` made every message point to a part and every part to its datagram, all borrowed mutably
            // with the batch; the kernel reads them and writes only `msg_len`.
            let sent =
                unsafe { libc::sendmmsg(self.fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, flags(wait) as _) };
            if sent >= 0 {
                datagrams += sent as usize;
                tries = Tries::default();
                if datagrams < messages.len() {
                    self.errors.drain(self.fd.as_fd());
                    // Where ICMP messages come, the error of one was the reason.
                    if !self.errors.explains() {
                        return Sent { datagrams, unsent: Some(Unsent::Unknown) };
                    }
                }
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if !self.errors.may_pass(self.fd.as_fd(), &error, false, &mut tries) {
                return Sent { datagrams, unsent: Some(Unsent::Because(UdpSendError::from_io(error))) };
            }
        }
        Sent { datagrams, unsent: None }
    }

    /// Sends one datagram; `wait` until the send buffer has room.
    ///
    /// # Errors
    /// Any [`UdpSendError`].
    pub fn send(&self, datagram: &[u8], wait: bool) -> Result<(), UdpSendError> {
        self.send_message(datagram, None, wait)
    }

    /// The longest IP packet that passes to the peer whole, as far as the kernel knows: the interface's MTU, or less where a router
    /// has said so (`IP_MTU`, `IPV6_MTU`).
    ///
    /// # Errors
    /// Where there is no route any more.
    pub fn path_mtu_bytes(&self) -> io::Result<u32> {
        let (level, name) =
            if self.peer.is_ipv4() { (libc::SOL_IP, libc::IP_MTU) } else { (libc::SOL_IPV6, libc::IPV6_MTU) };
        let mut words = [0];
        read_words(self.fd.as_fd(), level, name, &mut words)?;
        Ok(words[0])
    }

    /// The socket's memory now.
    ///
    /// # Errors
    /// Before Linux 4.12.
    pub fn memory(&self) -> io::Result<SocketMemory> {
        SocketMemory::of(self.fd.as_fd())
    }

    fn send_message(&self, bytes: &[u8], segment_bytes: Option<u16>, wait: bool) -> Result<(), UdpSendError> {
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = SegmentControl::new(segment_bytes.unwrap_or(0));
        // SAFETY: msghdr is pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if segment_bytes.is_some() {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<SegmentControl>();
        }
        let mut tries = Tries::default();
        loop {
            // SAFETY: all that `message` points to lives on this stack frame or is borrowed; the kernel only reads it.
            let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &message, flags(wait)) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if !self.errors.may_pass(self.fd.as_fd(), &error, segment_bytes.is_some(), &mut tries) {
                return Err(UdpSendError::from_io(error));
            }
        }
    }
}

impl AsFd for UdpSender {
    /// Writable when the send buffer is at most half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One control message, `UDP_SEGMENT` with its 16 bits, as `CMSG_SPACE(2)` lays it out.
#[repr(C, align(8))]
struct SegmentControl {
    header: libc::cmsghdr,
    segment_bytes: u16,
    _padding: [u8; 6],
}

impl SegmentControl {
    fn new(segment_bytes: u16) -> Self {
        // SAFETY: cmsghdr is plain integers, for which zero is a value.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
        Self { header, segment_bytes, _padding: [0; 6] }
    }
}

fn flags(wait: bool) -> i32 {
    // No signal: a vanished peer is an error, not a death.
    libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT }
}
