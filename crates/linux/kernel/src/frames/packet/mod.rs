//! Ethernet frames in and out of one link, whole and with their offload state: `AF_PACKET` with `PACKET_VNET_HDR`.
//!
//! Each frame comes with the 10 bytes of a `virtio_net_hdr`, which say what the hardware would still have to do: complete a
//! checksum, cut a super-packet into segments. Sent with the same bytes, the frame goes on as it came.
//!
//! ```text
//! struct virtio_net_hdr, in the host's byte order (linux/virtio_net.h):
//!   0       1          2         4          6            8             10
//!   | flags | gso_type | hdr_len | gso_size | csum_start | csum_offset |
//! ```
//!
//! What is not here: no qdisc bypass. With it a super-packet sent to a port that cannot segment is lost; without it the
//! kernel segments in software.
//!
//! Source: packet(7), `Documentation/networking/packet_mmap.rst`, `net/packet/af_packet.c`.

mod batch;
mod receive;
mod send;

pub use batch::{BATCH_MOST, BatchSent, OutgoingFrame, Refusal};
pub use receive::{ReceiveError, Received, VlanTag};
pub use send::{PARTS_MOST, SendError};

pub(crate) use receive::vlan_tag;

use std::ffi::c_int;
use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt;

/// Bytes of the `virtio_net_hdr` before each frame.
pub const VNET_HEADER_BYTES: usize = 10;

/// The `virtio_net_hdr` of one frame; all zero for a frame with good checksums and no segmentation to do.
pub type VnetHeader = [u8; VNET_HEADER_BYTES];

/// How a [`PacketSocket`] is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketOptions {
    /// Memory for frames that wait to be received, the kernel's bookkeeping included.
    pub receive_buffer_bytes: usize,
    /// Memory for frames that were sent and not yet taken by the far end.
    pub send_buffer_bytes: usize,
    /// Receive frames for any MAC address; ends with the socket.
    pub promiscuous: bool,
}

impl Default for PacketOptions {
    /// To receive 256 MiB: super-packets of 200 ms at 10 Gb/s, as long as a busy machine, or one whose memory is not yet
    /// backed by its hypervisor, keeps a thread waiting. It is a bound: nothing is set aside. To send 32 MiB.
    fn default() -> Self {
        Self { receive_buffer_bytes: 256 << 20, send_buffer_bytes: 32 << 20, promiscuous: true }
    }
}

/// Why a packet socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The caller may not open packet sockets.
    #[error(
        "no permission to open a packet socket: this needs CAP_NET_RAW; run as root, or in a user namespace of your own"
    )]
    Denied,
    /// There is no link with that index in the current network namespace.
    #[error(
        "no interface has index {ifindex} in this network namespace; was it deleted, or is it in another namespace?"
    )]
    NoSuchLink {
        /// The index that was given.
        ifindex: u32,
    },
    /// The kernel lacks something.
    #[error("packet socket on interface {ifindex}: {step} failed: {source}")]
    Step {
        /// The link.
        ifindex: u32,
        /// What was being done, such as `setsockopt PACKET_VNET_HDR`.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A packet socket bound to one link. Receiving and sending never block; both may happen in different threads.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    ifindex: u32,
    /// `PACKET_STATISTICS` starts over with each reading; this is the sum.
    drops: AtomicU64,
}

impl PacketSocket {
    /// Opens a socket on link `ifindex` of the calling thread's network namespace, and receives from then on all that
    /// arrives there, in any protocol, but not what this machine sends out of it.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open(ifindex: u32, options: &PacketOptions) -> Result<Self, OpenError> {
        let socket = Self::open_unbound(ifindex, options)?;
        socket.bind()?;
        Ok(socket)
    }

    /// Opens a socket that sends by link `ifindex` and receives nothing.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open_to_send(ifindex: u32) -> Result<Self, OpenError> {
        let options = PacketOptions { receive_buffer_bytes: 0, promiscuous: false, ..PacketOptions::default() };
        let socket = Self::open_unbound(ifindex, &options)?;
        socket.bind_to(0)?;
        Ok(socket)
    }

    /// Protocol 0 receives nothing, so that no frame arrives before all options are set; [`bind`](Self::bind) starts it.
    pub(crate) fn open_unbound(ifindex: u32, options: &PacketOptions) -> Result<Self, OpenError> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => OpenError::Denied,
                _ => OpenError::Step { ifindex, step: "socket(AF_PACKET)", source },
            });
        }
        // SAFETY: the kernel just gave us this descriptor, nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let socket = Self { fd, ifindex, drops: AtomicU64::new(0) };
        socket.set_packet_option(libc::PACKET_VNET_HDR, &1, "setsockopt PACKET_VNET_HDR")?;
        socket.set_packet_option(libc::PACKET_IGNORE_OUTGOING, &1, "setsockopt PACKET_IGNORE_OUTGOING (Linux 4.20)")?;
        socket.set_packet_option(libc::PACKET_AUXDATA, &1, "setsockopt PACKET_AUXDATA")?;
        socket.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1).map_err(|source| OpenError::Step {
            ifindex,
            step: "setsockopt SO_TIMESTAMPNS",
            source,
        })?;
        // The forced forms go past net.core.{r,w}mem_max and take CAP_NET_ADMIN of the whole machine. The kernel doubles
        // what it is given, for its bookkeeping (socket(7)).
        let (receive, send) = (options.receive_buffer_bytes / 2, options.send_buffer_bytes / 2);
        sockopt::set_socket_recv_buffer_size_force(&socket.fd, receive)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket.fd, receive))
            .map_err(|source| OpenError::Step { ifindex, step: "setsockopt SO_RCVBUF", source: source.into() })?;
        sockopt::set_socket_send_buffer_size_force(&socket.fd, send)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket.fd, send))
            .map_err(|source| OpenError::Step { ifindex, step: "setsockopt SO_SNDBUF", source: source.into() })?;
        if options.promiscuous {
            let membership = libc::packet_mreq {
                mr_ifindex: ifindex as c_int,
                mr_type: libc::PACKET_MR_PROMISC as _,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            socket.set_packet_option(libc::PACKET_ADD_MEMBERSHIP, &membership, "setsockopt PACKET_MR_PROMISC")?;
        }
        Ok(socket)
    }

    /// Starts receiving.
    pub(crate) fn bind(&self) -> Result<(), OpenError> {
        self.bind_to((libc::ETH_P_ALL as u16).to_be())
    }

    /// Binds to the link for frames of `protocol`, in network order; 0 is none.
    fn bind_to(&self, protocol: u16) -> Result<(), OpenError> {
        // SAFETY: sockaddr_ll is plain integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = self.ifindex as c_int;
        // SAFETY: the address lives through the call and its size is given.
        let result = unsafe {
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
        };
        if result < 0 { Err(self.step_error("bind", io::Error::last_os_error())) } else { Ok(()) }
    }

    /// The link that the socket is bound to.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Whether the link was deleted or moved to another namespace: nothing will ever arrive here again.
    pub fn link_is_gone(&self) -> bool {
        // af_packet.c puts −1 there when the link goes.
        self.address().is_some_and(|address| address.sll_ifindex < 0)
    }

    /// What the link is (`ARPHRD_…`); 0 where it is not bound to one.
    pub(crate) fn hardware_type(&self) -> u16 {
        self.address().map_or(0, |address| address.sll_hatype)
    }

    fn address(&self) -> Option<libc::sockaddr_ll> {
        // SAFETY: sockaddr_ll is plain integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `address`.
        let result = unsafe { libc::getsockname(self.fd.as_raw_fd(), (&raw mut address).cast(), &mut length) };
        (result == 0).then_some(address)
    }

    /// Frames (super-packets count once) that arrived and were dropped because the receive buffer was full, since the
    /// socket was opened.
    pub fn drops(&self) -> u64 {
        // SAFETY: tpacket_stats is two integers, for which zero is a value.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `stats`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut length,
            )
        };
        let fresh = if result == 0 { u64::from(stats.tp_drops) } else { 0 };
        self.drops.fetch_add(fresh, Ordering::Relaxed) + fresh
    }

    /// Sets an option of `SOL_PACKET`.
    pub(crate) fn set_packet_option<T>(&self, name: c_int, value: &T, step: &'static str) -> Result<(), OpenError> {
        self.set_option(libc::SOL_PACKET, name, value).map_err(|source| self.step_error(step, source))
    }

    fn step_error(&self, step: &'static str, source: io::Error) -> OpenError {
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => OpenError::NoSuchLink { ifindex: self.ifindex },
            _ => OpenError::Step { ifindex: self.ifindex, step, source },
        }
    }

    /// `value` must be the plain C type that the option takes.
    fn set_option<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        // SAFETY: the kernel reads `size_of::<T>()` bytes out of a `T`.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    /// Readable when a frame waits, writable when the send buffer is at most half full, in error when the link went down.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
