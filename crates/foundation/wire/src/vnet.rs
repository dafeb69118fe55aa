//! The offload header before each frame of a packet socket with `PACKET_VNET_HDR`.
//!
//! ```text
//!  0      1         2          4          6            8             10
//! ┌──────┬─────────┬──────────┬──────────┬────────────┬─────────────┐
//! │flags │gso_type │ hdr_len  │ gso_size │ csum_start │ csum_offset │   u16 in the host's byte order
//! └──────┴─────────┴──────────┴──────────┴────────────┴─────────────┘
//! ```
//!
//! Source: virtio 1.2 §5.1.6 and Linux `include/uapi/linux/virtio_net.h`; what the kernel reads from it is
//! `virtio_net_hdr_to_skb`, what it writes `virtio_net_hdr_from_skb` (`include/linux/virtio_net.h`).
//!
//! # Differences from virtio
//! - Offsets count from the Ethernet header as it lies in the buffer: a stripped VLAN tag is not counted, and putting it
//!   back moves them by four ([`VnetHeader::shifted`]).
//! - On receive `hdr_len` is whatever part of the packet was linear in the kernel, often more than its headers. On send
//!   the kernel allocates that much in one piece, so pieces carry the length of their headers.

/// The size of a [`VnetHeader`] in bytes.
pub const LEN: usize = 10;

/// In [`VnetHeader::flags`]: the checksum is to be completed from `csum_start` (`VIRTIO_NET_HDR_F_NEEDS_CSUM`). Its field
/// holds the folded sum of the pseudo header, *not* inverted.
pub const NEEDS_CSUM: u8 = 1;

/// In [`VnetHeader::gso_type`]: CWR belongs to the first segment alone, as RFC 3168 §6.1.2 wants it
/// (`VIRTIO_NET_HDR_GSO_ECN`).
pub const GSO_ECN: u8 = 0x80;

/// How a super-packet would be cut: `gso_type` without its ECN bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gso {
    /// It is one wire packet.
    None,
    /// TCP over IPv4; in a tunnel, the inner packet.
    TcpV4,
    /// TCP over IPv6; in a tunnel, the inner packet.
    TcpV6,
    /// UDP datagrams of `gso_size` payload bytes each (`UDP_SEGMENT`, `UDP_GRO`), IPv4 or IPv6.
    UdpL4,
    /// One UDP datagram to be cut into IP fragments (UFO); Linux has not made these since 4.14.
    Udp,
    /// None of these.
    Other(u8),
}

impl Gso {
    /// The value on the wire, without the ECN bit.
    pub const fn value(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 => 1,
            Self::Udp => 3,
            Self::TcpV6 => 4,
            Self::UdpL4 => 5,
            Self::Other(value) => value,
        }
    }
}

impl From<u8> for Gso {
    fn from(gso_type: u8) -> Self {
        match gso_type & !GSO_ECN {
            0 => Self::None,
            1 => Self::TcpV4,
            3 => Self::Udp,
            4 => Self::TcpV6,
            5 => Self::UdpL4,
            other => Self::Other(other),
        }
    }
}

/// `struct virtio_net_hdr`. The default is a plain frame: whole, with its checksum complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`], and other bits as the kernel sets them.
    pub flags: u8,
    /// A [`Gso`], with or without [`GSO_ECN`].
    pub gso_type: u8,
    /// `hdr_len`: bytes that the kernel should keep in one piece. 0 leaves it to the kernel.
    pub header_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Where the bytes that the checksum covers begin, from the start of the frame.
    pub csum_start: u16,
    /// Where the checksum lies, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads a header; any ten bytes are one.
    pub const fn parse(bytes: &[u8; LEN]) -> Self {
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: u16::from_ne_bytes([bytes[2], bytes[3]]),
            gso_size: u16::from_ne_bytes([bytes[4], bytes[5]]),
            csum_start: u16::from_ne_bytes([bytes[6], bytes[7]]),
            csum_offset: u16::from_ne_bytes([bytes[8], bytes[9]]),
        }
    }

    /// The header as the kernel reads it.
    pub const fn emit(&self) -> [u8; LEN] {
        let [h, g] = [self.header_len.to_ne_bytes(), self.gso_size.to_ne_bytes()];
        let [s, o] = [self.csum_start.to_ne_bytes(), self.csum_offset.to_ne_bytes()];
        [self.flags, self.gso_type, h[0], h[1], g[0], g[1], s[0], s[1], o[0], o[1]]
    }

    /// How the frame would be cut.
    pub fn gso(&self) -> Gso {
        Gso::from(self.gso_type)
    }

    /// Whether [`GSO_ECN`] is set.
    pub const fn gso_ecn(&self) -> bool {
        self.gso_type & GSO_ECN != 0
    }

    /// Whether the checksum is to be completed.
    pub const fn needs_csum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// The header of the same frame after `bytes` were inserted before its network header: 4 for a VLAN tag.
    #[must_use]
    pub const fn shifted(self, bytes: u16) -> Self {
        Self {
            header_len: if self.header_len == 0 { 0 } else { self.header_len.saturating_add(bytes) },
            csum_start: if self.needs_csum() { self.csum_start.saturating_add(bytes) } else { self.csum_start },
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As received from a veth: TCP/IPv4 with timestamps, MSS 1448, CWR set.
    const TCP: VnetHeader = VnetHeader {
        flags: NEEDS_CSUM,
        gso_type: 0x81,
        header_len: 66,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };

    #[test]
    #[cfg(target_endian = "little")]
    fn fields_lie_where_linux_has_them() {
        let bytes = [1, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0];
        assert_eq!(VnetHeader::parse(&bytes), TCP);
        assert_eq!(TCP.emit(), bytes);
        assert_eq!((TCP.gso(), TCP.gso_ecn(), TCP.needs_csum()), (Gso::TcpV4, true, true));
    }

    #[test]
    fn every_gso_value_is_its_own() {
        for value in 0..0x80 {
            assert_eq!(Gso::from(value).value(), value);
            assert_eq!(Gso::from(value | GSO_ECN), Gso::from(value));
        }
    }

    #[test]
    fn a_tag_put_back_moves_the_checksum() {
        let moved = TCP.shifted(4);
        assert_eq!((moved.csum_start, moved.csum_offset, moved.header_len), (38, 16, 70));
        assert_eq!(VnetHeader::default().shifted(4), VnetHeader::default());
    }

    proptest::proptest! {
        #[test]
        fn parse_and_emit_are_inverse(bytes: [u8; LEN]) {
            assert_eq!(VnetHeader::parse(&bytes).emit(), bytes);
        }
    }
}
