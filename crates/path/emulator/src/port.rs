//! One interface of the emulator: frames in from its host, runs of packets out to it.

use std::collections::{BTreeMap, VecDeque};

use longhaul_kernel::link::{LinkError, Netlink};
use longhaul_kernel::packet::{OpenError, PacketOptions, PacketSocket, ReceiveError, Received, SendError, VlanTag};
use longhaul_kernel::packet_ring::RxRing;
use longhaul_path::network::{Count, Release, Segmentation};
use longhaul_units::Nanos;
use longhaul_wire::ethernet::TAG_LEN;
use longhaul_wire::vlan::{Tag, restore_tag};
use longhaul_wire::{Fragment, Gso, PieceHeader, Segmenter, VnetHeader, describe, flip_bit, keep_fragment};

use crate::payload::Store;
use crate::status::{OwnFault, PortStatus};

/// The longest frame taken: the largest super-packet, its headers, and room for what tunnels add. With BIG TCP
/// (`gro_max_size` above 64 KiB, up to 512) a link's own limit counts instead.
const FRAME_BYTES: usize = 64 << 10;
const HEADROOM_BYTES: usize = 512;
const BIG_TCP_BYTES_MOST: usize = 512 << 10;
/// Slots of a receive ring for single packets: 65 ms at 250,000 packets/s, longer than a thread has to wait for a CPU.
const RING_SLOTS: usize = 16_384;
/// A slot holds a frame of the usual MTU; longer ones come by a system call.
const RING_SLOT_BYTES: usize = 2048;

/// How frames are received.
#[derive(Debug)]
enum Socket {
    /// A system call a frame: best where frames are super-packets.
    Calls(PacketSocket),
    /// Memory shared with the kernel: best for single packets.
    Ring(RxRing),
}

impl Socket {
    fn plain(&self) -> &PacketSocket {
        match self {
            Self::Calls(socket) => socket,
            Self::Ring(ring) => ring.socket(),
        }
    }
}

/// A frame that arrived and lies in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) token: u64,
    /// `CLOCK_REALTIME` of the kernel, where it took a stamp.
    pub(crate) stamp: Option<Nanos>,
}

/// What one attempt to receive brought.
#[derive(Debug)]
pub(crate) enum Reception {
    /// Nothing waits.
    Empty,
    /// A frame that could not be kept.
    Lost,
    /// A frame.
    Frame(Arrival),
}

/// An interface of the emulator and what passed it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) status: PortStatus,
    segmentation: Segmentation,
    /// `None` while there is no interface.
    socket: Option<Socket>,
    /// Drops of sockets that were closed since.
    closed_socket_drops: u64,
    /// Releases that wait for room in the send buffer.
    blocked: VecDeque<Release>,
    /// Room for the longest frame, with a VLAN tag.
    room_bytes: usize,
    piece: PieceHeader,
    whole: Vec<u8>,
    spill: Box<[u8]>,
}

impl Port {
    /// The port on `interface` of the current network namespace.
    ///
    /// # Errors
    /// Where there is no such interface, or no right to open a packet socket.
    pub(crate) fn open(interface: &str, host: &str, segmentation: Segmentation) -> Result<Self, PortError> {
        let status = PortStatus {
            interface: interface.into(),
            host: host.into(),
            up: true,
            received: Count::default(),
            received_frames: 0,
            sent: Count::default(),
            sent_frames: 0,
            far_port_full_packets: 0,
            port_down_packets: 0,
            too_large_packets: 0,
            own_fault: OwnFault::default(),
            not_segmented_frames: BTreeMap::new(),
        };
        let mut port = Self {
            status,
            segmentation,
            socket: None,
            closed_socket_drops: 0,
            blocked: VecDeque::new(),
            room_bytes: 0,
            piece: PieceHeader::new(),
            whole: Vec::new(),
            spill: Box::default(),
        };
        port.socket = Some(port.open_socket()?);
        Ok(port)
    }

    fn open_socket(&mut self) -> Result<Socket, PortError> {
        let interface = &self.status.interface;
        let failed = |source| PortError::Link { interface: interface.clone(), source };
        let link = Netlink::open().map_err(failed)?.link_by_name(interface).map_err(failed)?;
        let index = link.index;
        let longest = [link.gro_max_bytes, link.gro_ipv4_max_bytes, link.gso_max_bytes].into_iter().flatten().max();
        let longest = (longest.unwrap_or(0) as usize).clamp(FRAME_BYTES, BIG_TCP_BYTES_MOST);
        self.room_bytes = longest + HEADROOM_BYTES + TAG_LEN;
        self.spill = vec![0; self.room_bytes].into();
        let options = PacketOptions::default();
        let opened = match self.segmentation {
            Segmentation::Auto => PacketSocket::open(index, &options).map(Socket::Calls),
            Segmentation::Wire => RxRing::open(index, RING_SLOT_BYTES, RING_SLOTS, &options).map(Socket::Ring),
        };
        opened.map_err(|source| PortError::Socket { interface: interface.clone(), source })
    }

    /// The socket to wait for; `None` while there is no interface.
    pub(crate) fn socket(&self) -> Option<&PacketSocket> {
        self.socket.as_ref().map(Socket::plain)
    }

    /// Tries to take an interface back that was removed. Says whether that succeeded.
    pub(crate) fn reopen(&mut self) -> bool {
        if self.socket.is_none() {
            self.socket = self.open_socket().ok();
        }
        self.status.up = self.socket.is_some();
        self.status.up
    }

    /// Receives one frame into `store`.
    pub(crate) fn receive(&mut self, store: &mut Store) -> Reception {
        let Some(socket) = &mut self.socket else { return Reception::Empty };
        let room = store.room(self.room_bytes);
        let full = room.is_none();
        let buffer: &mut [u8] = room.unwrap_or(&mut self.spill);
        let received = match socket {
            Socket::Calls(socket) => socket.receive(&mut buffer[TAG_LEN..]),
            Socket::Ring(ring) => receive_from_ring(ring, &mut buffer[TAG_LEN..]),
        };
        let received = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Reception::Empty,
            Err(ReceiveError::Down) => {
                self.lose_socket();
                return Reception::Empty;
            }
            // The kernel has taken a frame from the queue whose offload it cannot describe, such as SCTP's.
            Err(ReceiveError::Other(_)) => {
                *self.status.not_segmented_frames.entry("offload unknown to packet sockets".into()).or_default() += 1;
                return Reception::Lost;
            }
        };
        if full {
            self.status.own_fault.memory_full_frames += 1;
            return Reception::Lost;
        }
        if received.truncated || received.frame_bytes < longhaul_wire::ethernet::HEADER_LEN {
            self.status.own_fault.oversized_frames += 1;
            return Reception::Lost;
        }
        Reception::Frame(self.keep(store, &received))
    }

    /// Keeps the frame that was just received into the store's room.
    fn keep(&mut self, store: &mut Store, received: &Received) -> Arrival {
        let mut vnet = VnetHeader::parse(&received.vnet);
        let (mut skip, mut bytes) = (TAG_LEN, received.frame_bytes);
        // The room is the same as before: nothing was kept in between.
        let room = store.room(self.room_bytes).expect("the frame lies in it");
        if let Some(VlanTag { tpid, tci }) = received.vlan
            && let Some(moved) = restore_tag(&mut room[..TAG_LEN + bytes], Tag { tpid, tci }, vnet)
        {
            (skip, bytes, vnet) = (0, bytes + TAG_LEN, moved);
        }
        let frame = &room[skip..skip + bytes];
        let segmenter = Segmenter::new(frame, bytes, vnet).unwrap_or_else(|_| {
            *self.status.not_segmented_frames.entry(describe(frame).to_owned()).or_default() += 1;
            let plain = VnetHeader { gso_type: Gso::None.value(), gso_size: 0, ..vnet };
            Segmenter::new(frame, bytes, plain).expect("a frame that is no super-packet has a shape")
        });
        let shape = segmenter.shape();
        self.status.received_frames += 1;
        self.status.received += Count { packets: shape.segments.into(), bytes: shape.run_wire_len(0, shape.segments) };
        Arrival { token: store.keep(skip, bytes, segmenter), stamp: received.stamp_realtime }
    }

    /// Sends a run of packets. Says whether that is done: `false` where it has to wait for room in the send buffer.
    pub(crate) fn send(&mut self, release: Release, store: &Store) -> bool {
        let (stored, frame) = store.frame(release.token);
        let segmenter = stored.segmenter;
        let shape = segmenter.shape();
        let packets = u64::from(release.count);
        let singly = release.corrupt.is_some() || release.fragment.is_some() || (shape.is_tunnel && shape.segments > 1);
        let result = if singly {
            self.send_singly(release, &segmenter, frame)
        } else {
            match segmenter.run(frame, release.first, release.count, &mut self.piece) {
                Err(_) => Err(SendError::Refused),
                Ok(()) => match self.transmit_piece(frame) {
                    // A port that takes no super-packets takes their packets.
                    Err(SendError::Refused) if release.count > 1 => self.send_singly(release, &segmenter, frame),
                    result => result,
                },
            }
        };
        match result {
            Ok(()) => {
                self.status.sent_frames += 1;
                let of_fragment = |fragment: Fragment| u64::from(shape.cut_behind_bytes + fragment.bytes);
                let whole = || shape.run_wire_len(release.first, release.count);
                self.status.sent += Count { packets, bytes: release.fragment.map_or_else(whole, of_fragment) };
            }
            Err(SendError::WouldBlock) => return false,
            Err(SendError::FarPortFull) => self.status.far_port_full_packets += packets,
            Err(SendError::TooLarge) => self.status.too_large_packets += packets,
            Err(SendError::Down) => {
                self.status.port_down_packets += packets;
                if self.socket.is_some() {
                    self.lose_socket();
                }
            }
            Err(SendError::Refused | SendError::Other(_)) => self.status.own_fault.send_error_packets += packets,
        }
        true
    }

    fn transmit_piece(&self, frame: &[u8]) -> Result<(), SendError> {
        let Some(socket) = self.socket() else { return Err(SendError::Down) };
        socket.send(&self.piece.vnet.emit(), &[self.piece.header(), &frame[self.piece.payload.clone()]])
    }

    /// Sends each packet of `release` as a frame of its own, complete with checksums.
    fn send_singly(&mut self, release: Release, segmenter: &Segmenter, frame: &[u8]) -> Result<(), SendError> {
        let Some(socket) = self.socket.as_ref().map(Socket::plain) else { return Err(SendError::Down) };
        let mut result = Ok(());
        for index in release.first..release.first + release.count {
            let Ok(vnet) = segmenter.segment_whole(frame, index, &mut self.whole) else {
                return Err(SendError::Refused);
            };
            if let Some(fragment) = release.fragment {
                let header_bytes = segmenter.shape().cut_behind_bytes as usize;
                keep_fragment(&mut self.whole, header_bytes, fragment).ok_or(SendError::Refused)?;
            }
            if let Some(random) = release.corrupt {
                flip_bit(&mut self.whole, random);
            }
            match socket.send(&vnet.emit(), &[&self.whole]) {
                // Half of a run cannot be taken back, so only its first packet may wait.
                Err(SendError::WouldBlock) if index > release.first => result = Err(SendError::FarPortFull),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
        result
    }

    /// Appends a release to the waiting ones.
    pub(crate) fn block(&mut self, release: Release) {
        self.blocked.push_back(release);
    }

    /// The release that has waited longest for room in the send buffer.
    pub(crate) fn first_blocked(&self) -> Option<Release> {
        self.blocked.front().copied()
    }

    /// The first one waits no more.
    pub(crate) fn unblock(&mut self) {
        self.blocked.pop_front();
    }

    /// The port's status, with the drops of its socket.
    pub(crate) fn status(&self) -> PortStatus {
        let mut status = self.status.clone();
        status.own_fault.receive_overflow_frames =
            self.closed_socket_drops + self.socket().map_or(0, PacketSocket::drops);
        status
    }

    /// Whether the link is there; notices one that vanished while nothing was sent or received.
    pub(crate) fn check(&mut self) {
        if let Some(Socket::Ring(ring)) = &self.socket
            && ring.take_error().is_err()
        {
            self.lose_socket();
        }
    }

    fn lose_socket(&mut self) {
        self.closed_socket_drops += self.socket().map_or(0, PacketSocket::drops);
        self.socket = None;
        self.status.up = false;
    }
}

/// A frame from a ring, copied to `buffer` as [`PacketSocket::receive`] would have put it there.
fn receive_from_ring(ring: &mut RxRing, buffer: &mut [u8]) -> Result<Option<Received>, ReceiveError> {
    let Some(mut frame) = ring.next() else { return Ok(None) };
    if frame.truncated()
        && let Some(whole) = frame.read_whole(buffer)?
    {
        return Ok(Some(whole));
    }
    let bytes = frame.bytes();
    let length = bytes.len().min(buffer.len());
    buffer[..length].copy_from_slice(&bytes[..length]);
    Ok(Some(Received {
        frame_bytes: length,
        original_bytes: frame.original_bytes(),
        vnet: frame.vnet(),
        stamp_realtime: Some(frame.stamp_realtime()),
        vlan: frame.vlan(),
        truncated: frame.truncated() || length < bytes.len(),
    }))
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface.
    #[error("interface `{interface}`: {source}")]
    Link {
        /// The interface.
        interface: String,
        /// Why.
        source: LinkError,
    },
    /// The socket.
    #[error("interface `{interface}`: {source}")]
    Socket {
        /// The interface.
        interface: String,
        /// Why.
        source: OpenError,
    },
}
