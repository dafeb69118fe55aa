//! Receiving one frame in one system call.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::AsRawFd;

use longhaul_units::Nanos;

use super::{PacketSocket, VNET_HEADER_BYTES, VnetHeader};

/// The outer 802.1Q or 802.1ad tag of a frame, which the kernel takes out of it on receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// The EtherType of the tag: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1), VLAN number (12).
    pub tci: u16,
}

/// What arrived with one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the frame that were written, from the MAC addresses on, without FCS and without the outer VLAN tag.
    pub frame_bytes: usize,
    /// Bytes that the frame has; more than `frame_bytes` where it was truncated.
    pub original_bytes: usize,
    /// Offload state; its `csum_start` counts from the first byte of the frame as received, without the tag.
    pub vnet: VnetHeader,
    /// When the kernel took the frame in, `CLOCK_REALTIME`; `None` where it took no stamp.
    pub stamp_realtime: Option<Nanos>,
    /// The tag that was taken out of the frame.
    pub vlan: Option<VlanTag>,
    /// The buffer was too short: the rest of the frame is lost.
    pub truncated: bool,
}

/// Why nothing can be received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The link went down or was deleted. Said once, by whichever call comes first; then nothing arrives any more, until a
    /// link that was only down comes up again. See [`PacketSocket::link_is_gone`].
    #[error("the interface is down or was deleted")]
    Down,
    /// Something else.
    #[error("receiving from a packet socket: {0}")]
    Other(io::Error),
}

impl ReceiveError {
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => Self::Down,
            _ => Self::Other(error),
        }
    }
}

/// Room for the two control messages that come with a frame: `SCM_TIMESTAMPNS` (32 bytes) and `PACKET_AUXDATA` (40).
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct ControlBuffer(pub(crate) [MaybeUninit<u8>; 128]);

impl ControlBuffer {
    pub(crate) const EMPTY: Self = Self([MaybeUninit::uninit(); 128]);
}

impl PacketSocket {
    /// Takes the next frame, or `None` where none waits. No allocation, one system call.
    ///
    /// `buffer` should hold the largest super-packet: 64 KiB and headers, more where the link's `gso_max_size` says so.
    ///
    /// # Errors
    /// [`ReceiveError::Down`], and what the kernel may say else.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<Received>, ReceiveError> {
        let mut vnet: VnetHeader = [0; VNET_HEADER_BYTES];
        let mut control = ControlBuffer::EMPTY;
        let mut parts = [
            libc::iovec { iov_base: vnet.as_mut_ptr().cast(), iov_len: VNET_HEADER_BYTES },
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() },
        ];
        // SAFETY: msghdr is pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = size_of::<ControlBuffer>();
        let received = loop {
            // SAFETY: all that `message` points to lives on this stack frame or is borrowed mutably, with the sizes given.
            // MSG_TRUNC makes the result the frame's whole length.
            let received =
                unsafe { libc::recvmsg(self.fd.as_raw_fd(), &mut message, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
            if received >= 0 {
                break received as usize;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(ReceiveError::from_io(error)),
            }
        };
        // SAFETY: recvmsg filled `message` and its control buffer, which is aligned for cmsghdr.
        Ok(Some(unsafe { describe(&message, received, vnet, buffer.len()) }))
    }
}

/// What the kernel said about a frame whose message (header and frame) has `message_bytes` in all.
///
/// # Safety
/// `message` was filled by recvmsg or recvmmsg and its control buffer is aligned to 8 bytes and still there.
pub(crate) unsafe fn describe(
    message: &libc::msghdr,
    message_bytes: usize,
    vnet: VnetHeader,
    room_bytes: usize,
) -> Received {
    let original_bytes = message_bytes.saturating_sub(VNET_HEADER_BYTES);
    let mut stamp_realtime = None;
    let mut vlan = None;
    // SAFETY: as promised by the caller; CMSG_NXTHDR stays inside msg_controllen.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give a pointer to a whole header, or null.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        // SAFETY: a pointer behind that header.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel puts a timespec into this message.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                stamp_realtime = Some(Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64));
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the kernel puts a tpacket_auxdata into this message.
                let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                vlan = vlan_tag(aux.tp_status, aux.tp_vlan_tpid, aux.tp_vlan_tci);
            }
            _ => {}
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    Received {
        frame_bytes: original_bytes.min(room_bytes),
        original_bytes,
        vnet,
        stamp_realtime,
        vlan,
        truncated: original_bytes > room_bytes,
    }
}

/// The tag that `status` says is there. Kernels before 3.14 do not tell the TPID, it was 0x8100 then.
pub(crate) fn vlan_tag(status: u32, tpid: u16, tci: u16) -> Option<VlanTag> {
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { libc::ETH_P_8021Q as u16 };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(VlanTag { tpid, tci })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_there_only_when_the_status_says_so() {
        let valid = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(vlan_tag(0, 0x8100, 5), None);
        assert_eq!(vlan_tag(valid, 0, 5), Some(VlanTag { tpid: 0x8100, tci: 5 }));
        let both = valid | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(vlan_tag(both, 0x88a8, 5), Some(VlanTag { tpid: 0x88a8, tci: 5 }));
    }
}
