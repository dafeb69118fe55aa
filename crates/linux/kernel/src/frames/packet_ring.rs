//! Receiving single frames without a system call each: a `TPACKET_V2` ring shared with the kernel.
//!
//! It pays for many small frames; super-packets are better received by [`PacketSocket::receive`], as only they fit no slot.
//! A frame that outgrows its slot is not lost: the kernel also queues it whole, and [`RingFrame::read_whole`] takes it.
//!
//! ```text
//! a slot:  | tpacket2_hdr 32 | sockaddr_ll 20 | … | virtio_net_hdr 10 | frame … |
//!          0                                       tp_mac - 10         tp_mac
//! ```
//!
//! Source: `Documentation/networking/packet_mmap.rst`, `tpacket_rcv` in `net/packet/af_packet.c`.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_units::Nanos;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::packet::{
    OpenError, PacketOptions, PacketSocket, ReceiveError, Received, VNET_HEADER_BYTES, VlanTag, VnetHeader, vlan_tag,
};

/// What a slot holds before the frame itself, rounded up: `tpacket2_hdr`, `sockaddr_ll`, alignment, `virtio_net_hdr`.
const SLOT_OVERHEAD_BYTES: usize = 96;

/// Slots come in blocks that are whole pages; larger blocks are harder for the kernel to find.
const BLOCK_BYTES: usize = 64 << 10;

/// A packet socket whose frames arrive in shared memory.
#[derive(Debug)]
pub struct RxRing {
    socket: PacketSocket,
    memory: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is bound to a thread.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Opens a socket as [`PacketSocket::open`] does, with at least `slots` slots that each hold a frame of
    /// `frame_bytes_most` (MAC header and all; the link's MTU and 18).
    ///
    /// # Errors
    /// Any [`OpenError`]; `ENOMEM` where the kernel has no memory for that many slots.
    pub fn open(
        ifindex: u32,
        frame_bytes_most: usize,
        slots: usize,
        options: &PacketOptions,
    ) -> Result<Self, OpenError> {
        let socket = PacketSocket::open_unbound(ifindex, options)?;
        let slot_bytes = (frame_bytes_most + SLOT_OVERHEAD_BYTES).next_power_of_two().max(2048);
        let block_bytes = BLOCK_BYTES.max(slot_bytes);
        let blocks = (slots.max(1) * slot_bytes).div_ceil(block_bytes);
        let slots = blocks * block_bytes / slot_bytes;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        socket.set_packet_option(libc::PACKET_VERSION, &version, "setsockopt PACKET_VERSION 2")?;
        socket.set_packet_option(libc::PACKET_COPY_THRESH, &1, "setsockopt PACKET_COPY_THRESH")?;
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        socket.set_packet_option(libc::PACKET_RX_RING, &request, "setsockopt PACKET_RX_RING")?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let length = blocks * block_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags, &socket, 0) }
                .map_err(|source| OpenError::Step { ifindex, step: "mmap of the ring", source: source.into() })?;
        let memory = NonNull::new(memory.cast()).expect("mmap never maps at zero unasked");
        let ring = Self { socket, memory, slot_bytes, slots, next: 0 };
        ring.socket.bind()?;
        Ok(ring)
    }

    /// The socket, to send by, to read drops.
    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// The next frame, or `None` where none waits; its slot goes back to the kernel when it is dropped. No system call.
    ///
    /// A link that went down shows as an error condition when one waits for the ring, and in [`RxRing::take_error`].
    #[allow(clippy::should_implement_trait)] // An iterator could not lend.
    pub fn next(&mut self) -> Option<RingFrame<'_>> {
        let slot = self.slot(self.next);
        let status = status_of(slot).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status says that the slot is ours now, and the kernel wrote a whole header there.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        self.next = (self.next + 1) % self.slots;
        Some(RingFrame { slot, header, copy_waits: status & libc::TP_STATUS_COPY != 0, ring: self })
    }

    /// Why the ring stays empty, if there is a reason.
    ///
    /// # Errors
    /// [`ReceiveError::Down`] once after the link went down or was deleted.
    pub fn take_error(&self) -> Result<(), ReceiveError> {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(ReceiveError::from_io(error.into())),
        }
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the index is below `slots`, so this stays inside the mapping. Slots divide blocks evenly, so they lie
        // one behind the other.
        unsafe { self.memory.add(index * self.slot_bytes) }
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `open`; frames borrow the ring, so none is left.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.slots * self.slot_bytes) };
    }
}

impl AsFd for RxRing {
    /// Readable when a frame waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One frame in its slot.
#[derive(Debug)]
pub struct RingFrame<'a> {
    ring: &'a RxRing,
    slot: NonNull<u8>,
    header: libc::tpacket2_hdr,
    /// The kernel queued the whole frame as well, and nobody took it yet.
    copy_waits: bool,
}

impl RingFrame<'_> {
    /// The frame from its MAC addresses on, without the outer VLAN tag; only its start where it was truncated.
    pub fn bytes(&self) -> &[u8] {
        // A slot too short for its header has no frame in it.
        let start = usize::from(self.header.tp_mac).min(self.ring.slot_bytes);
        let length = (self.header.tp_snaplen as usize).min(self.ring.slot_bytes - start);
        // SAFETY: clamped to the slot, which is ours until drop.
        unsafe { slice::from_raw_parts(self.slot.as_ptr().add(start), length) }
    }

    /// Bytes that the frame has.
    pub fn original_bytes(&self) -> usize {
        self.header.tp_len as usize
    }

    /// The slot was too short; see [`RingFrame::read_whole`].
    pub fn truncated(&self) -> bool {
        self.header.tp_snaplen < self.header.tp_len
    }

    /// Offload state; `csum_start` counts from the first byte of [`RingFrame::bytes`].
    pub fn vnet(&self) -> VnetHeader {
        let start = usize::from(self.header.tp_mac).clamp(VNET_HEADER_BYTES, self.ring.slot_bytes) - VNET_HEADER_BYTES;
        // SAFETY: clamped to the slot, which is ours until drop; bytes need no alignment.
        unsafe { self.slot.add(start).cast::<VnetHeader>().read() }
    }

    /// When the kernel took the frame in, `CLOCK_REALTIME`.
    pub fn stamp_realtime(&self) -> Nanos {
        Nanos(u64::from(self.header.tp_sec) * 1_000_000_000 + u64::from(self.header.tp_nsec))
    }

    /// The tag that was taken out of the frame.
    pub fn vlan(&self) -> Option<VlanTag> {
        vlan_tag(self.header.tp_status, self.header.tp_vlan_tpid, self.header.tp_vlan_tci)
    }

    /// Takes the whole frame where it was truncated, at the price of a system call; `None` where the kernel kept no copy,
    /// as the receive buffer was full: then the rest is lost and must be counted.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn read_whole(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, ReceiveError> {
        if !std::mem::take(&mut self.copy_waits) {
            return Ok(None);
        }
        self.ring.socket.receive(buffer)
    }
}

impl Drop for RingFrame<'_> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.copy_waits) {
            // The next truncated frame must find its own copy first in the queue. An error here shows again elsewhere.
            let _ = self.ring.socket.receive(&mut []);
        }
        status_of(self.slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The word by which the kernel and we hand a slot to each other.
fn status_of<'a>(slot: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: a slot starts with its status, is aligned to 2048 bytes, and lives as long as the ring, which all callers
    // borrow. Both sides access it atomically.
    unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) }
}
