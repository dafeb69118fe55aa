//! One packet, its headers decoded: what a header log keeps and what analysis reads.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use longhaul_wire::probe::Probe;

use crate::record::InterfaceDirection;

/// The times that a packet can have: from 1897 to 2116, nanoseconds since 1970. The difference of two fits a number, and so does what is
/// computed of that; times beyond, which only broken or hostile files have, become the nearest.
pub const TIMES: RangeInclusive<i64> = -(1 << 61)..=1 << 62;

/// `at_ns` within [`TIMES`].
#[inline]
pub fn within_times(at_ns: i64) -> i64 {
    at_ns.clamp(*TIMES.start(), *TIMES.end())
}

/// One packet, its headers decoded as far as they were captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packet {
    /// Nanoseconds since 1970-01-01 UTC by the clock that the file names, within [`TIMES`].
    pub at_ns: i64,
    /// The interface, an index into the file's own list.
    pub interface: u16,
    /// Which way it passed.
    pub direction: InterfaceDirection,
    /// Bytes of the whole frame, without FCS.
    pub frame_len: u32,
    /// Bytes of it that were captured.
    pub frame_cap_len: u32,
    /// Wire packets that it stands for; 0 where the file does not say.
    pub gso_segs: u16,
    /// Payload bytes of each wire packet in a super-packet but the last; 0 for a single packet.
    pub gso_size: u16,
    /// Source address of Ethernet, zeros where there is none.
    pub eth_src: [u8; 6],
    /// Destination address of Ethernet, zeros where there is none.
    pub eth_dst: [u8; 6],
    /// The type behind all VLAN tags, 0 where it was not captured; below 0x600 an 802.3 length.
    pub eth_type: u16,
    /// VLAN ids, the outer one first.
    pub vlan: [Option<u16>; 2],
    /// The IP header, if there is one whole.
    pub ip: Option<Ip>,
    /// What it carries.
    pub transport: Transport,
}

/// An IPv4 or IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Source address.
    pub src: IpAddr,
    /// Destination address; of the same family.
    pub dst: IpAddr,
    /// Protocol, behind all of IPv6's extension headers that were captured.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DSCP and ECN in one: the former TOS, or the traffic class.
    pub traffic_class: u8,
    /// Identification (of IPv6: of the fragment header), if there is one.
    pub id: Option<u32>,
    /// Bytes from the IP header's first to the packet's last, by the header; of a super-packet that says 0, by the frame.
    pub len: u32,
    /// Where the fragment begins in its datagram's payload, in bytes; 0 for the first or only one.
    pub fragment_offset: u32,
    /// More fragments follow.
    pub more_fragments: bool,
}

/// What an IP packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Neither TCP nor UDP, a later fragment, or a header that was clipped away.
    #[default]
    Other,
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// Payload bytes, by the headers.
        payload_len: u32,
        /// The payload's first bytes read as longhaul's probe header, where so many were captured. It has no mark of its
        /// own: that a flow keeps one cookie and counts tells that it is one.
        probe: Option<Probe>,
    },
}

/// A TCP header (RFC 9293 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number as in the header.
    pub seq: u32,
    /// Acknowledgment number as in the header.
    pub ack: u32,
    /// The flags, FIN the lowest, to AE (the former NS) in bit 8.
    pub flags: u16,
    /// The window, not scaled.
    pub window: u16,
    /// Payload bytes, by the headers.
    pub payload_len: u32,
    /// Options, as far as they were captured.
    pub options: Options,
}

/// TCP's options that analysis reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Maximum segment size, in SYNs.
    pub mss: Option<u16>,
    /// Window scale as offered, in SYNs. Above 14 it counts as 14 (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// SACK permitted, in SYNs.
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323 section 3).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks, left and right edge (RFC 2018), the first `sack_blocks` of them; a first block at or below the
    /// acknowledgment number, or inside the second, is a D-SACK (RFC 2883).
    pub sack: [(u32, u32); 4],
    /// How many of `sack` there are.
    pub sack_blocks: u8,
    /// Some options were not captured.
    pub clipped: bool,
}
