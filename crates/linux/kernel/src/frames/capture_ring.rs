//! Receives header snippets of many frames without a system call for each: a `TPACKET_V3` ring shared with the kernel.
//!
//! The kernel packs snippets tightly into blocks. It hands a block over when it is full or a time has passed. So a ring of 64 MiB holds
//! some 300,000 snippets of 96 bytes, where [`crate::packet_ring`] would need a slot for each that holds a whole frame. The
//! filter's return value says how many bytes the kernel copies.
//!
//! ```text
//! a block:   | tpacket_block_desc 48 | snippet | snippet | …               |
//! a snippet: | tpacket3_hdr 48 | sockaddr_ll 20 | … | virtio_net_hdr 10 | frame's first bytes … |
//!            0                                       tp_mac - 10         tp_mac
//! ```
//!
//! Source: `Documentation/networking/packet_mmap.rst` ("AF_PACKET TPACKET_V3 example"), `tpacket_rcv` in `net/packet/af_packet.c`.

use std::ffi::c_uint;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::packet::{OpenError, PacketOptions, PacketSocket, VNET_HEADER_BYTES, VlanTag, VnetHeader, vlan_tag};
use crate::socket_filter::SocketFilter;

/// Large blocks take fewer reads, small ones arrive sooner. The kernel wants whole pages.
const BLOCK_BYTES: usize = 1 << 20;
/// Offset of `sockaddr_ll` in a snippet: behind the header, aligned to 16 (`TPACKET_ALIGN`).
const ADDRESS_AT: usize = 48;
/// The slot that `tp_frame_nr` is counted in; V3 packs snippets and only checks that the numbers agree.
const FRAME_BYTES: usize = 2048;

/// `PACKET_FANOUT_CPU`: each CPU fills the same ring always. Where there are enough rings, no two CPUs share one.
const FANOUT_BY_CPU: u32 = libc::PACKET_FANOUT_CPU;
/// The kernel chooses a number for the group.
const FANOUT_NEW: u32 = libc::PACKET_FANOUT_FLAG_UNIQUEID;
/// In a group it is the group that leaves out what goes out, not its members (Linux 5.10).
const FANOUT_NO_OUTGOING: u32 = libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;

/// How a [`CaptureRing`] is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Memory for snippets that wait.
    pub ring_bytes: usize,
    /// A block that is not full is handed over after this many milliseconds.
    pub block_timeout_ms: u32,
    /// Which frames, and how many bytes of each.
    pub filter: SocketFilter,
    /// Receive frames for any MAC address; ends with the ring.
    pub promiscuous: bool,
    /// Take the NIC's own stamp where a frame has one.
    pub nic_stamps: bool,
}

/// What the kernel counted since the ring was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingStatistics {
    /// Frames that passed the filter, dropped ones among them.
    pub seen: u64,
    /// Of those, how many found no room in the ring.
    pub dropped: u64,
}

/// A packet socket whose snippets arrive in shared memory.
#[derive(Debug)]
pub struct CaptureRing {
    socket: PacketSocket,
    memory: NonNull<u8>,
    blocks: usize,
    next: usize,
    hardware_type: u16,
    statistics: RingStatistics,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is bound to a thread.
unsafe impl Send for CaptureRing {}

impl CaptureRing {
    /// Opens a ring on link `ifindex` of the calling thread's network namespace, which sees from then on all that passes there in
    /// either direction (of loopback, where each frame passes twice, only what comes in).
    ///
    /// # Errors
    /// Any [`OpenError`]; `ENOMEM` where the kernel has no memory for the ring.
    pub fn open(ifindex: u32, options: &CaptureOptions) -> Result<Self, OpenError> {
        Self::open_with(ifindex, options, &options.filter)
    }

    /// Opens `count` rings on link `ifindex`, each of `options.ring_bytes`, which share what passes there: a packet comes into one of
    /// them, by the CPU that has it. With a ring each, CPUs that receive at the same time do not wait for each other.
    ///
    /// # Errors
    /// As of [`CaptureRing::open`].
    pub fn open_several(ifindex: u32, options: &CaptureOptions, count: usize) -> Result<Vec<Self>, OpenError> {
        if count <= 1 {
            return Ok(vec![Self::open(ifindex, options)?]);
        }
        // Until all are in the group each of them sees every frame.
        let nothing = SocketFilter::nothing();
        let mut rings = Vec::with_capacity(count);
        let mut group = None;
        for _ in 0..count {
            let ring = Self::open_with(ifindex, options, &nothing)?;
            group = Some(ring.join(group)?);
            rings.push(ring);
        }
        for ring in &rings {
            ring.filter(&options.filter)?;
        }
        Ok(rings)
    }

    /// Makes it a member of `group`, or of a new one; which.
    fn join(&self, group: Option<u32>) -> Result<u32, OpenError> {
        let outgoing = if self.hardware_type == libc::ARPHRD_LOOPBACK { FANOUT_NO_OUTGOING } else { 0 };
        let flags = FANOUT_BY_CPU | outgoing | if group.is_none() { FANOUT_NEW } else { 0 };
        let argument = (group.unwrap_or(0) | flags << 16) as i32;
        self.socket.set_packet_option(libc::PACKET_FANOUT, &argument, "setsockopt PACKET_FANOUT (Linux 4.19)")?;
        if let Some(group) = group {
            return Ok(group);
        }
        let mut told = 0_i32;
        let mut length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `told`.
        let result = unsafe {
            let socket = self.socket.as_fd().as_raw_fd();
            libc::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, (&raw mut told).cast(), &mut length)
        };
        if result < 0 {
            let source = io::Error::last_os_error();
            return Err(OpenError::Step { ifindex: self.socket.ifindex(), step: "getsockopt PACKET_FANOUT", source });
        }
        Ok(told as u32 & 0xffff)
    }

    fn filter(&self, filter: &SocketFilter) -> Result<(), OpenError> {
        let step = "setsockopt SO_ATTACH_FILTER";
        filter.attach(&self.socket).map_err(|source| OpenError::Step { ifindex: self.socket.ifindex(), step, source })
    }

    fn open_with(ifindex: u32, options: &CaptureOptions, filter: &SocketFilter) -> Result<Self, OpenError> {
        let buffers = PacketOptions { promiscuous: options.promiscuous, ..PacketOptions::default() };
        let socket = PacketSocket::open_unbound(ifindex, &buffers)?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        socket.set_packet_option(libc::PACKET_VERSION, &version, "setsockopt PACKET_VERSION 3 (Linux 3.2)")?;
        socket.set_packet_option(libc::PACKET_IGNORE_OUTGOING, &0, "setsockopt PACKET_IGNORE_OUTGOING (Linux 4.20)")?;
        if options.nic_stamps {
            let stamps = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
            socket.set_packet_option(libc::PACKET_TIMESTAMP, &stamps, "setsockopt PACKET_TIMESTAMP")?;
        }
        filter.attach(&socket).map_err(|source| OpenError::Step {
            ifindex,
            step: "setsockopt SO_ATTACH_FILTER",
            source,
        })?;
        let blocks = (options.ring_bytes / BLOCK_BYTES).max(2);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as c_uint,
            tp_block_nr: blocks as c_uint,
            tp_frame_size: FRAME_BYTES as c_uint,
            tp_frame_nr: (blocks * (BLOCK_BYTES / FRAME_BYTES)) as c_uint,
            tp_retire_blk_tov: options.block_timeout_ms.max(1),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set_packet_option(libc::PACKET_RX_RING, &request, "setsockopt PACKET_RX_RING (with PACKET_VNET_HDR)")?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap(std::ptr::null_mut(), blocks * BLOCK_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags, &socket, 0)
        };
        let memory =
            memory.map_err(|source| OpenError::Step { ifindex, step: "mmap of the ring", source: source.into() })?;
        let memory = NonNull::new(memory.cast()).expect("mmap never maps at zero unasked");
        let mut ring =
            Self { socket, memory, blocks, next: 0, hardware_type: 0, statistics: RingStatistics::default() };
        ring.socket.bind()?;
        ring.hardware_type = ring.socket.hardware_type();
        if ring.hardware_type == libc::ARPHRD_LOOPBACK {
            let step = "setsockopt PACKET_IGNORE_OUTGOING (Linux 4.20)";
            ring.socket.set_packet_option(libc::PACKET_IGNORE_OUTGOING, &1, step)?;
        }
        Ok(ring)
    }

    /// What the link is, as `ARPHRD_…` of `<linux/if_arp.h>` has it: 1 Ethernet, 772 loopback, 65534 bare IP (a tunnel).
    pub fn hardware_type(&self) -> u16 {
        self.hardware_type
    }

    /// The socket, to ask whether its link still exists.
    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// The next block, or `None` where none waits; it goes back to the kernel when it is dropped. No system call.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        // SAFETY: `next` is below `blocks`, so this stays inside the mapping.
        let memory = unsafe { self.memory.add(self.next * BLOCK_BYTES) };
        if block_status(memory).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.next = (self.next + 1) % self.blocks;
        // SAFETY: the status says that the block is ours, so the kernel wrote its whole header.
        let header = unsafe { (*memory.cast::<libc::tpacket_block_desc>().as_ptr()).hdr.bh1 };
        Some(Block {
            memory,
            at: header.offset_to_first_pkt as usize,
            left: header.num_pkts,
            packets: header.num_pkts,
            ring: PhantomData,
        })
    }

    /// Takes the error that a link leaves when it goes down: it wakes whoever waits for the ring until somebody takes it.
    pub fn take_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.socket);
    }

    /// What the kernel counted since the ring was opened.
    pub fn statistics(&mut self) -> RingStatistics {
        // SAFETY: tpacket_stats is two integers, for which zero is a value.
        let mut fresh: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `fresh`; V3 has one more number, which is cut off.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_fd().as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut fresh).cast(),
                &mut length,
            )
        };
        if result == 0 {
            // Each reading starts over.
            self.statistics.seen += u64::from(fresh.tp_packets);
            self.statistics.dropped += u64::from(fresh.tp_drops);
        }
        self.statistics
    }

    /// From now on nothing new comes; what waits can still be read, the last block after its timeout.
    ///
    /// # Errors
    /// Does not fail in practice on an open socket.
    pub fn stop(&self) -> io::Result<()> {
        SocketFilter::nothing().attach(&self.socket)
    }
}

impl Drop for CaptureRing {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `open`; blocks borrow the ring, so none is left.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}

impl AsFd for CaptureRing {
    /// Readable when a block waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Snippets that the kernel handed over together, in the order in which it stored them.
#[derive(Debug)]
pub struct Block<'a> {
    memory: NonNull<u8>,
    at: usize,
    left: u32,
    packets: u32,
    ring: PhantomData<&'a CaptureRing>,
}

/// The first bytes of one frame, and what the kernel says of it.
#[derive(Debug, Clone, Copy)]
pub struct Snippet<'a> {
    /// When it passed, nanoseconds since 1970 on `CLOCK_REALTIME`, or on the NIC's clock where it stamps.
    pub stamp_ns: i64,
    /// The host sent it.
    pub outgoing: bool,
    /// Bytes that the frame has, without FCS and without the outer VLAN tag.
    pub frame_bytes: u32,
    /// Its first bytes, without the outer VLAN tag.
    pub bytes: &'a [u8],
    /// Offload state; `csum_start` counts from the first byte.
    pub vnet: &'a VnetHeader,
    /// The tag that was taken out of the frame.
    pub vlan: Option<VlanTag>,
}

impl Block<'_> {
    /// How many snippets the block holds.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// The next snippet.
    #[allow(clippy::should_implement_trait)] // An iterator could not lend.
    #[inline]
    pub fn next(&mut self) -> Option<Snippet<'_>> {
        // The numbers are the kernel's own; they are held to the block all the same.
        if self.left == 0 || self.at + ADDRESS_AT + size_of::<libc::sockaddr_ll>() > BLOCK_BYTES {
            return None;
        }
        // SAFETY: inside the block, by the check above.
        let memory = unsafe { self.memory.add(self.at) };
        // SAFETY: the kernel wrote a header here, aligned to 8; the block is ours until drop.
        let header: &libc::tpacket3_hdr = unsafe { memory.cast().as_ref() };
        // SAFETY: the address behind it lies inside the block, by the check above.
        let address: &libc::sockaddr_ll = unsafe { memory.add(ADDRESS_AT).cast().as_ref() };
        let room = BLOCK_BYTES - self.at;
        let start = usize::from(header.tp_mac).clamp(VNET_HEADER_BYTES, room);
        let length = (header.tp_snaplen as usize).min(room - start);
        // SAFETY: clamped to the block, which is ours until drop.
        let (vnet, bytes) = unsafe {
            let vnet = &*memory.add(start - VNET_HEADER_BYTES).cast::<VnetHeader>().as_ptr();
            (vnet, slice::from_raw_parts(memory.as_ptr().add(start), length))
        };
        self.left -= 1;
        self.at = match header.tp_next_offset as usize {
            0 => BLOCK_BYTES,
            offset => self.at.saturating_add(offset),
        };
        Some(Snippet {
            stamp_ns: i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec),
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            frame_bytes: header.tp_len,
            bytes,
            vnet,
            vlan: vlan_tag(header.tp_status, header.hv1.tp_vlan_tpid, header.hv1.tp_vlan_tci as u16),
        })
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        block_status(self.memory).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The word by which the kernel and we hand a block to each other.
fn block_status<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: `hdr.bh1.block_status` is the third word of a block, which is aligned to pages and lives as long as the ring that
    // all callers borrow. Both sides access it atomically.
    unsafe { AtomicU32::from_ptr(block.as_ptr().add(mem::offset_of!(libc::tpacket_block_desc, hdr)).cast()) }
}
