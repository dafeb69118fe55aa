//! What the kernel refuses, and what that means for a UDP socket.

use std::io;
use std::net::SocketAddr;

/// Why a socket for UDP, ICMP echo or SYNs could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpOpenError {
    /// Another socket has the address.
    #[error("another program has {protocol} address {address}; choose another port")]
    AddressInUse {
        /// `UDP` or `TCP`.
        protocol: &'static str,
        /// What was to be bound.
        address: SocketAddr,
    },
    /// This host has no such address.
    #[error("this host has no address {}; see `ip address`", address.ip())]
    NoSuchAddress {
        /// What was to be bound.
        address: SocketAddr,
    },
    /// No route leads to the peer.
    #[error("no route to {peer}; see `ip route get {}`", peer.ip())]
    NoRoute {
        /// Where to.
        peer: SocketAddr,
    },
    /// The caller may not.
    #[error("no permission to {step} {address}: ports below 1024 need CAP_NET_BIND_SERVICE, or a route prohibits it")]
    Denied {
        /// What was being done: `bind`, `connect to`.
        step: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The caller may open no socket for ICMP echo.
    #[error("cannot open a socket for ICMP echo: neither a raw one ({raw}) nor a datagram one ({datagram})")]
    NoEcho {
        /// Why no raw one: it takes `CAP_NET_RAW`.
        raw: io::Error,
        /// Why no datagram one: it takes a group in `net.ipv4.ping_group_range`.
        datagram: io::Error,
    },
    /// The kernel lacks something.
    #[error("{step} failed: {source}")]
    Step {
        /// What was being done, such as `setsockopt UDP_GRO`.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl UdpOpenError {
    pub(super) fn step(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Step { step, source }
    }

    pub(super) fn bind(protocol: &'static str, address: SocketAddr, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::AddressInUse { protocol, address },
            Some(libc::EADDRNOTAVAIL) => Self::NoSuchAddress { address },
            Some(libc::EACCES | libc::EPERM) => Self::Denied { step: "bind", address },
            _ => Self::Step { step: "bind", source },
        }
    }

    pub(super) fn connect(peer: SocketAddr, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => Self::NoRoute { peer },
            Some(libc::EACCES | libc::EPERM) => Self::Denied { step: "connect to", address: peer },
            _ => Self::Step { step: "connect", source },
        }
    }
}

/// Why datagrams were not sent.
#[derive(Debug, thiserror::Error)]
pub enum UdpSendError {
    /// `EAGAIN`: the send buffer is full of datagrams that the link has not sent yet; for a send that waits, it stayed so for
    /// [`SenderOptions::wait_most`](super::SenderOptions::wait_most). Nothing happened; try again.
    #[error("the send buffer is full")]
    WouldBlock,
    /// `ENOBUFS`: taken and dropped, by the egress qdisc, the far end's ring (veth), or for want of memory. Said only with
    /// [`SenderOptions::report_drops`](super::SenderOptions::report_drops); without it the kernel counts it in
    /// `Udp: SndbufErrors` and calls the send a success. A super-packet is dropped whole.
    #[error("the egress queue is full, the packet was dropped there")]
    NoBuffers,
    /// `EPERM`: netfilter dropped it on output (or a cgroup program did). `EACCES`: a route prohibits it. A super-packet is
    /// dropped whole.
    #[error("a packet filter or a prohibiting route on this host drops what is sent")]
    Denied,
    /// `EMSGSIZE`: too long for one datagram, or for the path with fragmentation forbidden.
    #[error("the datagram is too long")]
    MessageTooLong,
    /// `ECONNREFUSED`: earlier datagrams met a closed port, as ICMP says again and again. This one was not sent.
    #[error("the port at the far end is closed")]
    ConnectionRefused,
    /// `ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`: no route to the peer now. Also what else ICMP says of earlier datagrams, where it does so
    /// again and again (`EPROTO`, `ENOPROTOOPT`, `EOPNOTSUPP`, `ENONET`).
    #[error("the far end cannot be reached: {0}")]
    Unreachable(io::Error),
    /// `EIO`: the route to the peer cannot carry super-packets (no checksum offload at the device, IPsec): send singly.
    #[error("the route to the peer does not support UDP_SEGMENT; send each datagram by itself")]
    NotSegmentable,
    /// Something else.
    #[error("sending UDP: {0}")]
    Other(io::Error),
}

impl UdpSendError {
    pub(super) fn from_io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::WouldBlock,
            Some(libc::ENOBUFS) => Self::NoBuffers,
            Some(libc::EPERM | libc::EACCES) => Self::Denied,
            Some(libc::EMSGSIZE) => Self::MessageTooLong,
            Some(libc::ECONNREFUSED) => Self::ConnectionRefused,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => Self::Unreachable(error),
            Some(libc::EPROTO | libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::ENONET) => Self::Unreachable(error),
            Some(libc::EIO) => Self::NotSegmentable,
            _ => Self::Other(error),
        }
    }

    /// Whether nothing happened to the datagrams, so that sending them again makes no second drop of one.
    pub fn may_retry(&self) -> bool {
        matches!(self, Self::WouldBlock | Self::ConnectionRefused | Self::NotSegmentable)
    }
}

/// Why nothing could be received.
#[derive(Debug, thiserror::Error)]
pub enum UdpReceiveError {
    /// Datagrams that this connected socket sent met a closed port, as ICMP says again and again. Go on receiving.
    #[error("the port at the far end is closed")]
    ConnectionRefused,
    /// The same, where they found no way.
    #[error("the far end cannot be reached: {0}")]
    Unreachable(io::Error),
    /// Something else.
    #[error("receiving UDP: {0}")]
    Other(io::Error),
}

impl UdpReceiveError {
    pub(super) fn from_io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Self::ConnectionRefused,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => Self::Unreachable(error),
            _ => Self::Other(error),
        }
    }
}
