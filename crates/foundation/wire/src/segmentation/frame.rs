//! Which wire packets a frame from a packet socket stands for.
//!
//! What is counted and how follows Linux: `virtio_net_hdr_to_skb` ("too small packets are not really GSO ones"),
//! `tcp_gso_segment` and `__udp_gso_segment` (`gso_size` payload bytes a segment, the rest in the last; lengths come from the
//! frame, not from the IP header, which in BIG TCP has 0). The temporary hop-by-hop header of IPv6 BIG TCP is taken out before
//! the wire (`ipv6_gso_segment`), so a segment's headers do not have it.

use super::MAX_HEADER_BYTES;
use super::error::ShapeError;
use super::layers::{Goal, Layers};
use crate::vnet::{Gso, VnetHeader};
use crate::{fragment, ipv6, tcp, udp};

/// The wire packets in a frame. Sizes are bytes of Ethernet frames without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Wire packets; 1 for a plain frame.
    pub segments: u32,
    /// Headers that each wire packet has, from Ethernet to TCP or UDP, outer ones of a tunnel included. The whole frame where
    /// it is not a super-packet: such a frame is not looked into.
    pub header_bytes: u32,
    /// Payload of each wire packet but the last; 0 where the frame is not a super-packet.
    pub segment_payload_bytes: u32,
    /// Payload of all wire packets.
    pub payload_bytes: u32,
    /// The frame as it was received.
    pub total_bytes: u32,
    /// Whether the super-packet is in a tunnel: it cannot be cut into runs, only into single packets
    /// ([`Segmenter::segment_whole`](crate::Segmenter::segment_whole)).
    pub is_tunnel: bool,
    /// Bytes from the beginning of each wire packet to the end of its outer IPv4 header, behind which a router may cut it (RFC 791); 0 where
    /// it may not: other packets, and those that say *don't fragment*.
    pub cut_behind_bytes: u32,
}

impl Shape {
    /// The shape of the frame of `total_bytes` that begins with `headers`, which must hold its headers.
    ///
    /// # Errors
    /// Only a frame with a `gso_type` can fail; the [`ShapeError`] says why it cannot be cut.
    pub fn parse(headers: &[u8], total_bytes: usize, vnet: &VnetHeader) -> Result<Self, ShapeError> {
        parse(headers, total_bytes, vnet).map(|(shape, _)| shape)
    }

    /// Bytes of the wire packet `index`, counted from 0; 0 where there is none.
    pub fn wire_len(&self, index: u32) -> u32 {
        if index >= self.segments {
            return 0;
        }
        self.header_bytes + self.payload_of(index, 1)
    }

    /// Bytes of the `count` wire packets from `first` on, of those that there are.
    pub fn run_wire_len(&self, first: u32, count: u32) -> u64 {
        let packets = count.min(self.segments.saturating_sub(first));
        u64::from(packets) * u64::from(self.header_bytes) + u64::from(self.payload_of(first, packets))
    }

    /// Payload bytes of the `count` wire packets from `first` on.
    pub(crate) fn payload_of(&self, first: u32, count: u32) -> u32 {
        self.payload_start(first.saturating_add(count)) - self.payload_start(first)
    }

    /// Where the payload of wire packet `index` begins in the whole payload; its end, where there is no such packet.
    pub(crate) fn payload_start(&self, index: u32) -> u32 {
        if index >= self.segments { self.payload_bytes } else { index * self.segment_payload_bytes }
    }
}

/// The shape, and the headers where it is a super-packet.
pub(crate) fn parse(
    headers: &[u8],
    total_bytes: usize,
    vnet: &VnetHeader,
) -> Result<(Shape, Option<Layers>), ShapeError> {
    let total = u32::try_from(total_bytes).map_err(|_| ShapeError::Length)?;
    let (protocol, ip_version) = match vnet.gso() {
        Gso::None => {
            let plain = Shape {
                segments: 1,
                header_bytes: total,
                segment_payload_bytes: 0,
                payload_bytes: 0,
                total_bytes: total,
                is_tunnel: false,
                cut_behind_bytes: fragment::cut_behind(headers, Some(total_bytes)).map_or(0, |bytes| bytes as u32),
            };
            return Ok((plain, None));
        }
        Gso::TcpV4 => (tcp::PROTOCOL, Some(4)),
        Gso::TcpV6 => (tcp::PROTOCOL, Some(6)),
        Gso::UdpL4 => (udp::PROTOCOL, None),
        Gso::Udp | Gso::Other(_) => return Err(ShapeError::Gso(vnet.gso_type)),
    };
    if headers.len() > total_bytes {
        return Err(ShapeError::Length);
    }
    if vnet.gso_size == 0 {
        return Err(ShapeError::SegmentSize);
    }
    let checksum_offset = if protocol == tcp::PROTOCOL { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET };
    if vnet.needs_csum() && usize::from(vnet.csum_offset) != checksum_offset {
        return Err(ShapeError::Checksum);
    }
    let offset = vnet.needs_csum().then_some(usize::from(vnet.csum_start));
    let mut layers = Layers::find(headers, Goal { protocol, ip_version, offset })?;
    if layers.route_ahead && !vnet.needs_csum() {
        return Err(ShapeError::RouteAhead);
    }
    if usize::from(layers.payload_offset) > MAX_HEADER_BYTES {
        return Err(ShapeError::HeadersTooLong);
    }
    // The headers lie within `headers`, and `headers` within the frame.
    let payload_bytes = total - u32::from(layers.payload_offset);
    let segments = payload_bytes.div_ceil(u32::from(vnet.gso_size)).max(1);
    if segments == 1 {
        // A packet that stays whole keeps its headers.
        layers.jumbo_offset = 0;
    }
    let stripped = if layers.jumbo_offset == 0 { 0 } else { ipv6::JUMBO_LEN as u32 };
    let shape = Shape {
        segments,
        header_bytes: u32::from(layers.payload_offset) - stripped,
        segment_payload_bytes: u32::from(vnet.gso_size),
        payload_bytes,
        total_bytes: total,
        is_tunnel: layers.is_tunnel,
        cut_behind_bytes: fragment::cut_behind(headers, None).map_or(0, |bytes| bytes as u32),
    };
    Ok((shape, Some(layers)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnet::NEEDS_CSUM;

    /// Ethernet, IPv4 and TCP headers with nothing in them but what the walk needs.
    fn headers() -> Vec<u8> {
        let mut headers = vec![0; 54];
        headers[12] = 8;
        headers[14] = 0x45;
        headers[23] = tcp::PROTOCOL;
        headers[46] = 0x50;
        headers
    }

    const VNET: VnetHeader =
        VnetHeader { flags: NEEDS_CSUM, gso_type: 1, header_len: 54, gso_size: 1000, csum_start: 34, csum_offset: 16 };

    #[test]
    fn a_super_packet_of_two_and_a_half_segments() {
        let shape = Shape::parse(&headers(), 54 + 2500, &VNET).unwrap();
        assert_eq!((shape.segments, shape.header_bytes, shape.payload_bytes, shape.is_tunnel), (3, 54, 2500, false));
        assert_eq!([0, 1, 2, 3].map(|i| shape.wire_len(i)), [1054, 1054, 554, 0]);
        assert_eq!(shape.run_wire_len(1, 2), 1054 + 554);
        assert_eq!(shape.run_wire_len(1, u32::MAX), 1054 + 554);
        assert_eq!(shape.run_wire_len(7, 1), 0);
    }

    #[test]
    fn a_plain_frame_is_one_packet_whatever_it_holds() {
        let shape = Shape::parse(b"any", 60, &VnetHeader::default()).unwrap();
        assert_eq!((shape.segments, shape.wire_len(0), shape.run_wire_len(0, 1)), (1, 60, 60));
    }

    #[test]
    fn a_super_packet_of_one_segment_or_none() {
        for payload in [0, 1, 1000] {
            let shape = Shape::parse(&headers(), 54 + payload, &VNET).unwrap();
            assert_eq!((shape.segments, shape.wire_len(0) as usize), (1, 54 + payload));
        }
    }

    #[test]
    fn what_cannot_be_cut_says_why() {
        let parse = |headers: &[u8], vnet| Shape::parse(headers, 3000, &vnet).unwrap_err();
        assert_eq!(parse(&headers(), VnetHeader { gso_type: 3, ..VNET }), ShapeError::Gso(3));
        assert_eq!(parse(&headers(), VnetHeader { gso_size: 0, ..VNET }), ShapeError::SegmentSize);
        assert_eq!(parse(&headers(), VnetHeader { csum_offset: 6, ..VNET }), ShapeError::Checksum);
        assert_eq!(parse(&headers(), VnetHeader { gso_type: 4, ..VNET }), ShapeError::Protocol);
        assert_eq!(parse(&headers()[..53], VNET), ShapeError::Truncated);
        assert_eq!(Shape::parse(&headers(), 53, &VNET), Err(ShapeError::Length));
        let mut fragment = headers();
        fragment[20] = 0x20;
        assert_eq!(parse(&fragment, VNET), ShapeError::Fragment);
    }
}
