//! Sending one frame in one system call.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use super::{PacketSocket, VNET_HEADER_BYTES, VnetHeader};

/// A frame may lie in up to this many pieces.
pub const PARTS_MOST: usize = 7;

/// Why a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// `ENOBUFS`: the link took the frame and dropped it, as the far end's ring or a qdisc is full (or, rarely, the kernel
    /// had no memory for it). The drop is counted there: never retry, count it.
    #[error("the far end's ring or the interface's qdisc is full, the frame was dropped there")]
    FarPortFull,
    /// `EAGAIN`: the socket's send buffer is full of frames that the link has not sent yet. Nothing happened; wait until
    /// the socket is writable.
    #[error("the socket's send buffer is full")]
    WouldBlock,
    /// `ENETDOWN`, `ENXIO`, `ENODEV`: the link is down or was deleted. Told once more after it came up again.
    #[error("the interface is down or was deleted")]
    Down,
    /// `EMSGSIZE`: the frame is larger than the link's MTU (and one VLAN tag) and is no super-packet.
    #[error("the frame is larger than the interface's MTU allows")]
    TooLarge,
    /// `EINVAL`: the kernel does not understand the frame's offload state, or the frame is shorter than an Ethernet header.
    #[error("the kernel refuses the frame: its virtio_net_hdr does not fit its contents")]
    Refused,
    /// Something else.
    #[error("sending to a packet socket: {0}")]
    Other(io::Error),
}

impl SendError {
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOBUFS) => Self::FarPortFull,
            Some(libc::EAGAIN) => Self::WouldBlock,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Self::Down,
            Some(libc::EMSGSIZE) => Self::TooLarge,
            Some(libc::EINVAL) => Self::Refused,
            _ => Self::Other(error),
        }
    }
}

impl PacketSocket {
    /// Sends the frame that `parts` make together, with its offload state. No allocation, one system call, never waits.
    ///
    /// # Errors
    /// Any [`SendError`]; the frame was not sent; retry only after [`SendError::WouldBlock`].
    ///
    /// # Panics
    /// With more than [`PARTS_MOST`] parts.
    pub fn send(&self, vnet: &VnetHeader, parts: &[&[u8]]) -> Result<(), SendError> {
        assert!(parts.len() <= PARTS_MOST, "{} parts, at most {PARTS_MOST}", parts.len());
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MOST + 1];
        pieces[0] = piece(vnet);
        debug_assert_eq!(pieces[0].iov_len, VNET_HEADER_BYTES);
        for (slot, part) in pieces[1..].iter_mut().zip(parts) {
            *slot = piece(part);
        }
        // SAFETY: msghdr is pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = parts.len() + 1;
        loop {
            // SAFETY: the pieces point to borrowed memory, which the kernel only reads, during the call.
            if unsafe { libc::sendmsg(self.fd.as_raw_fd(), &message, libc::MSG_DONTWAIT) } >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(SendError::from_io(error));
            }
        }
    }
}

/// `bytes` as the kernel wants them. It only reads what it sends, though the type says otherwise.
pub(crate) fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
