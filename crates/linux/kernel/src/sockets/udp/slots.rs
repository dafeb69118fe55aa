//! Memory for datagrams that are received together, and what the kernel says about them.

use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use longhaul_units::Nanos;

/// Slots that one call fills at most.
const SLOTS_MOST: usize = 1024;

/// Room for the control messages that come with a packet: `UDP_GRO` (24 bytes), `SCM_TIMESTAMPNS` (32),
/// `SCM_TIMESTAMPING` (64), `SO_RXQ_OVFL` (24), `IP_TOS` or `IPV6_TCLASS` (24), `IP_TTL` or `IPV6_HOPLIMIT` (24), or in the error queue `IP_RECVERR` (48), `IPV6_RECVERR` (64).
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([MaybeUninit<u8>; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 256;

/// Memory for packets that are received together, to be reused.
pub struct ReceiveSlots {
    slot_bytes: usize,
    bytes: Box<[u8]>,
    controls: Box<[ControlBuffer]>,
    sources: Box<[libc::sockaddr_storage]>,
    parts: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
    with_sources: bool,
    /// Messages that the last call filled.
    filled: usize,
    /// `CLOCK_REALTIME` when the last call returned.
    received_at_app: Nanos,
}

// SAFETY: its pointers lead only into its own boxes.
unsafe impl Send for ReceiveSlots {}

impl std::fmt::Debug for ReceiveSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceiveSlots({} of {}, {} B each)", self.filled, self.messages.len(), self.slot_bytes)
    }
}

/// One packet as the socket got it: a datagram, or with `UDP_GRO` several of one flow and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperPacket<'a> {
    /// The datagrams' payloads, side by side.
    pub bytes: &'a [u8],
    /// Bytes of each datagram but the last, which may be shorter. At least 1.
    pub segment_bytes: usize,
    /// Who sent it; `None` where the slots were made without sources.
    pub source: Option<SocketAddr>,
    /// When the call that brought it returned, `CLOCK_REALTIME`. One stamp for all packets of the call.
    pub received_at_app: Nanos,
    /// When the kernel took it from the driver, `CLOCK_REALTIME`; `None` in
    /// [`TimestampMode::App`](super::TimestampMode::App).
    pub received_at_kernel: Option<Nanos>,
    /// When it came off the wire, on the NIC's own clock; `None` where the NIC did not stamp it.
    pub received_at_nic: Option<Nanos>,
    /// Packets that the socket had dropped before it took this one (`SO_RXQ_OVFL`; see
    /// [`SocketMemory::drops`](super::SocketMemory::drops) for what counts as one); 0 where none.
    pub dropped_before: u32,
    /// Its TOS byte or traffic class ([`ReceiverOptions::traffic_class`](super::ReceiverOptions::traffic_class)); `None` where it is not told.
    pub traffic_class: Option<u8>,
    /// How many routers it could still have passed (TTL, hop limit), where [`UdpReceiver::tell_hops`](super::UdpReceiver::tell_hops) asked.
    pub hops_left: Option<u8>,
    /// It did not fit its slot: the rest is lost, and with it datagrams of a super-packet.
    pub truncated: bool,
    /// In the error queue: the ICMP message about a packet of this socket. The bytes are the part of that packet's payload that the message
    /// quotes; the time stamps are those of the message's arrival.
    pub icmp: Option<IcmpMessage>,
}

/// An ICMP message that came back, of the version that the socket's family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpMessage {
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Who sent it.
    pub from: IpAddr,
}

impl<'a> SuperPacket<'a> {
    /// How many datagrams it holds: at least 1.
    pub fn datagrams(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_bytes).max(1)
    }

    /// Each datagram's payload. An empty datagram is one of no bytes.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (bytes, step) = (self.bytes, self.segment_bytes);
        (0..self.datagrams()).map(move |i| &bytes[i * step..bytes.len().min((i + 1) * step)])
    }

    /// The best stamp there is: the NIC's, else the kernel's, else the program's.
    pub fn stamp(&self) -> Nanos {
        self.received_at_nic.or(self.received_at_kernel).unwrap_or(self.received_at_app)
    }
}

/// One datagram of a [`SuperPacket`].
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Its payload.
    pub bytes: &'a [u8],
    /// The best stamp of the super-packet that brought it ([`SuperPacket::stamp`]).
    pub stamp: Nanos,
}

impl ReceiveSlots {
    /// Room for `slots` packets (1 to 1,024) of up to `slot_bytes` each: 65,536 with `UDP_GRO`. `with_sources` has each
    /// packet's source told, at a little cost.
    pub fn new(slots: usize, slot_bytes: usize, with_sources: bool) -> Self {
        let (count, slot_bytes) = (slots.clamp(1, SLOTS_MOST), slot_bytes.max(1));
        let no_part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: pointers and integers, for which zero is a value.
        let (no_message, no_source): (libc::mmsghdr, libc::sockaddr_storage) = unsafe { mem::zeroed() };
        Self {
            slot_bytes,
            bytes: vec![0; count * slot_bytes].into(),
            controls: vec![ControlBuffer([MaybeUninit::uninit(); CONTROL_BYTES]); count].into(),
            sources: vec![no_source; count].into(),
            parts: vec![no_part; count].into(),
            messages: vec![no_message; count].into(),
            with_sources,
            filled: 0,
            received_at_app: Nanos::ZERO,
        }
    }

    /// The packets of the last call, in the order of their arrival.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = SuperPacket<'_>> {
        (0..self.filled).map(|i| self.packet(i))
    }

    /// The datagrams of the last call, in the order of their arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.packets().flat_map(|packet| {
            let stamp = packet.stamp();
            packet.segments().map(move |bytes| Datagram { bytes, stamp })
        })
    }

    fn packet(&self, index: usize) -> SuperPacket<'_> {
        let message = &self.messages[index];
        let length = (message.msg_len as usize).min(self.slot_bytes);
        let mut packet = SuperPacket {
            bytes: &self.bytes[index * self.slot_bytes..][..length],
            segment_bytes: length.max(1),
            source: if self.with_sources { source(&self.sources[index]) } else { None },
            received_at_app: self.received_at_app,
            received_at_kernel: None,
            received_at_nic: None,
            dropped_before: 0,
            traffic_class: None,
            hops_left: None,
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            icmp: None,
        };
        // SAFETY: recvmmsg filled this message; its control buffer is ours, aligned and unchanged since.
        unsafe { read_controls(&message.msg_hdr, &mut packet) };
        packet
    }

    /// Points every message at its slot, and gives the messages to fill.
    pub(super) fn prepare(&mut self) -> &mut [libc::mmsghdr] {
        self.filled = 0;
        let slots = self.bytes.chunks_exact_mut(self.slot_bytes);
        let own = self.controls.iter_mut().zip(&mut self.sources);
        for (((message, part), slot), (control, source)) in
            self.messages.iter_mut().zip(&mut self.parts).zip(slots).zip(own)
        {
            *part = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<ControlBuffer>();
            if self.with_sources {
                message.msg_hdr.msg_name = ptr::from_mut(source).cast();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
        }
        &mut self.messages
    }

    /// The first `filled` messages are there.
    pub(super) fn set_filled(&mut self, filled: usize, received_at_app: Nanos) {
        self.filled = filled.min(self.messages.len());
        self.received_at_app = received_at_app;
    }
}

/// # Safety
/// `message` was filled by recvmmsg and its control buffer is aligned to 8 bytes and still there.
unsafe fn read_controls(message: &libc::msghdr, packet: &mut SuperPacket<'_>) {
    // SAFETY: as promised by the caller; CMSG_NXTHDR stays inside msg_controllen.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give a pointer to a whole header, or null.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        // SAFETY: a pointer behind that header.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: as above, of the same header.
        let length = (unsafe { (*header).cmsg_len }).saturating_sub(CMSG_HEADER_LEN);
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the kernel puts an int into this message.
                let segment = unsafe { data.cast::<i32>().read_unaligned() };
                if let Ok(segment @ 1..) = usize::try_from(segment) {
                    packet.segment_bytes = segment;
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel puts a timespec into this message.
                packet.received_at_kernel = nanos(unsafe { data.cast::<libc::timespec>().read_unaligned() });
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                // SAFETY: the kernel puts a scm_timestamping into this message: software, unused, raw hardware.
                let [software, _, hardware] = unsafe { data.cast::<[libc::timespec; 3]>().read_unaligned() };
                packet.received_at_kernel = nanos(software).or(packet.received_at_kernel);
                packet.received_at_nic = nanos(hardware);
            }
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                // SAFETY: the kernel put `length` bytes there, inside msg_controllen.
                packet.icmp = icmp(unsafe { std::slice::from_raw_parts(data, length) });
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the kernel puts a u32 into this message.
                packet.dropped_before = unsafe { data.cast::<u32>().read_unaligned() };
            }
            (libc::SOL_IP, libc::IP_TOS) => {
                // SAFETY: the kernel puts a byte into this message.
                packet.traffic_class = Some(unsafe { data.read() });
            }
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                // SAFETY: the kernel puts an int into this message.
                packet.traffic_class = u8::try_from(unsafe { data.cast::<i32>().read_unaligned() }).ok();
            }
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                // SAFETY: the kernel puts an int into this message.
                packet.hops_left = u8::try_from(unsafe { data.cast::<i32>().read_unaligned() }).ok();
            }
            _ => {}
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// Bytes of a control message before its data, on 64-bit Linux.
const CMSG_HEADER_LEN: usize = size_of::<libc::cmsghdr>();

/// The ICMP message in a `struct sock_extended_err` and the address behind it; `None` for errors of this host and for stamps.
///
/// ```text
///  0       4        5      6      7     8      12     16
/// ┌───────┬────────┬──────┬──────┬─────┬──────┬──────┬─ ─ ─
/// │ errno │ origin │ type │ code │ pad │ info │ data │ sockaddr_in or sockaddr_in6
/// └───────┴────────┴──────┴──────┴─────┴──────┴──────┴─ ─ ─
/// ```
fn icmp(bytes: &[u8]) -> Option<IcmpMessage> {
    let (&origin, &kind, &code) = (bytes.get(4)?, bytes.get(5)?, bytes.get(6)?);
    let address = bytes.get(16..)?;
    let family = u16::from_ne_bytes(*address.first_chunk()?);
    let from = match (origin, i32::from(family)) {
        (libc::SO_EE_ORIGIN_ICMP, libc::AF_INET) => IpAddr::from(*address.get(4..)?.first_chunk::<4>()?),
        (libc::SO_EE_ORIGIN_ICMP6, libc::AF_INET6) => IpAddr::from(*address.get(8..)?.first_chunk::<16>()?),
        _ => return None,
    };
    Some(IcmpMessage { kind, code, from })
}

/// A stamp; the kernel leaves zero where it has none. A NIC's clock may be set to anything.
fn nanos(time: libc::timespec) -> Option<Nanos> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let stamp = seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?)?;
    (stamp != 0).then_some(Nanos(stamp))
}

/// The address in `storage`; `None` for other families than IPv4 and IPv6.
pub(super) fn source(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in lies there, and sockaddr_storage is larger and as well aligned.
            let v4 = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a sockaddr_in6.
            let v6 = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            // The flow label is the sender's business, an answer does not carry it.
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8], segment_bytes: usize) -> SuperPacket<'_> {
        SuperPacket {
            bytes,
            segment_bytes,
            source: None,
            received_at_app: Nanos(3),
            received_at_kernel: None,
            received_at_nic: None,
            dropped_before: 0,
            traffic_class: None,
            hops_left: None,
            truncated: false,
            icmp: None,
        }
    }

    #[test]
    fn a_super_packet_falls_into_datagrams() {
        let bytes: Vec<u8> = (0..10).collect();
        let cut = packet(&bytes, 4);
        assert_eq!(cut.datagrams(), 3);
        assert_eq!(cut.segments().collect::<Vec<_>>(), [&[0, 1, 2, 3][..], &[4, 5, 6, 7], &[8, 9]]);
        let one = packet(&bytes, 10);
        assert_eq!((one.datagrams(), one.segments().len()), (1, 1));
        let empty = packet(&[], 1);
        assert_eq!(empty.segments().collect::<Vec<_>>(), [&[] as &[u8]]);
    }

    #[test]
    fn errors_of_icmp_have_a_sender_and_others_have_none() {
        let error = |origin: u8, address: &[u8]| [&[113, 0, 0, 0, origin, 11, 0, 0], &[0; 8][..], address].concat();
        let router = [&libc::AF_INET.to_ne_bytes()[..2], &[0, 0, 192, 0, 2, 7], &[0; 8]].concat();
        let said = IcmpMessage { kind: 11, code: 0, from: [192, 0, 2, 7].into() };
        assert_eq!(icmp(&error(libc::SO_EE_ORIGIN_ICMP, &router)), Some(said));
        assert_eq!(icmp(&error(libc::SO_EE_ORIGIN_TIMESTAMPING, &router)), None);
        assert_eq!(icmp(&error(libc::SO_EE_ORIGIN_ICMP6, &router)), None);
        for cut in 0..24 {
            assert_eq!(icmp(&error(libc::SO_EE_ORIGIN_ICMP, &router)[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn the_best_stamp_wins() {
        let mut stamped = packet(&[], 1);
        assert_eq!(stamped.stamp(), Nanos(3));
        stamped.received_at_kernel = Some(Nanos(2));
        assert_eq!(stamped.stamp(), Nanos(2));
        stamped.received_at_nic = Some(Nanos(1));
        assert_eq!(stamped.stamp(), Nanos(1));
    }
}
