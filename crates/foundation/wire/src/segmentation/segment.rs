//! Cutting runs of wire packets out of a super-packet.
//!
//! A run is sent with new headers ([`PieceHeader`]) and the bytes of the super-packet's own payload, which is never copied. A
//! run of several packets is again a super-packet; the receiver's kernel cuts it, or takes it whole, as it would the original.
//! [`Segmenter::segment_whole`] copies: it makes one packet that needs no offload, to be corrupted or to leave a tunnel.
//!
//! What changes from segment to segment, as Linux has it in `tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment` and
//! `ipv6_gso_segment`:
//!
//! | field | value in the run that begins with segment `first` |
//! |---|---|
//! | TCP sequence number | + `first` × segment size |
//! | TCP FIN, PSH | only with the last segment |
//! | TCP CWR | where the header says `GSO_ECN`, only with the first segment (RFC 3168 §6.1.2) |
//! | IPv4 identification | + `first`, in every IPv4 header |
//! | IPv4 total length, IPv6 payload length, UDP length | of the run; 0 beyond 65535, as in BIG TCP |
//! | IPv6 jumbo header | kept only beyond 65535 bytes |
//! | TCP, UDP checksum | the pseudo header's sum with the run's length, under `NEEDS_CSUM` |
//!
//! # Differences from Linux
//! - CWR without `GSO_ECN` stays in every segment: Linux sets the flag with each CWR of RFC 3168, so one without it belongs to
//!   the counter of Accurate ECN (RFC 9768), for which the offload header has no flag (`SKB_GSO_TCP_ACCECN`).
//! - `SKB_GSO_TCP_FIXEDID` (set by GRO alone) is not in the offload header either, so identifications always count up.

use std::ops::Range;

use super::MAX_HEADER_BYTES;
use super::error::ShapeError;
use super::frame::{self, Shape};
use super::layers::{Kind, Layers};
use crate::vnet::{GSO_ECN, NEEDS_CSUM, VnetHeader};
use crate::{be16, checksum, ipv4, ipv6, put16, put32, tcp, udp};

/// Why no piece could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The run is empty, or reaches beyond the last segment.
    #[error("there is no run of {count} segments from segment {first} on")]
    Run {
        /// The first segment asked for.
        first: u32,
        /// How many were asked for.
        count: u32,
    },
    /// A super-packet in a tunnel can only be cut into single packets, by [`Segmenter::segment_whole`].
    #[error("a run cannot be cut out of a tunnel")]
    Tunnel,
    /// The bytes are not those that the segmenter was made for.
    #[error("the bytes are not those of the frame")]
    OtherFrame,
    /// `csum_start` and `csum_offset` point outside of the frame.
    #[error("the offloaded checksum lies outside of the frame")]
    Checksum,
}

/// What to send for a run: the offload header, then [`PieceHeader::header`], then the bytes [`PieceHeader::payload`] of the
/// super-packet. Scratch of the caller, to be used again for the next run.
#[derive(Debug, Clone)]
pub struct PieceHeader {
    /// The offload header.
    pub vnet: VnetHeader,
    /// Which bytes of the original frame follow the header. The whole frame where it goes on unchanged.
    pub payload: Range<usize>,
    bytes: [u8; MAX_HEADER_BYTES],
    len: usize,
}

impl PieceHeader {
    /// Nothing to send.
    pub const fn new() -> Self {
        Self {
            vnet: VnetHeader { flags: 0, gso_type: 0, header_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 },
            payload: 0..0,
            bytes: [0; MAX_HEADER_BYTES],
            len: 0,
        }
    }

    /// The new headers, Ethernet to TCP or UDP. Empty where the frame goes on unchanged.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Bytes of the frame that is sent.
    pub fn frame_len(&self) -> usize {
        self.len + self.payload.len()
    }
}

impl Default for PieceHeader {
    fn default() -> Self {
        Self::new()
    }
}

/// Cuts one frame. It holds no bytes of it; the same frame must be given with each call.
#[derive(Debug, Clone, Copy)]
pub struct Segmenter {
    shape: Shape,
    vnet: VnetHeader,
    /// `None` for a frame that is no super-packet.
    layers: Option<Layers>,
}

/// Where things are in newly written headers.
struct Written {
    len: usize,
    /// How far what lies behind the jumbo header has moved forward: 0 or 8.
    moved: usize,
}

impl Segmenter {
    /// For the frame of `total_bytes` that begins with `headers`, which must hold its headers.
    ///
    /// # Errors
    /// As [`Shape::parse`]: only a frame with a `gso_type` can fail.
    pub fn new(headers: &[u8], total_bytes: usize, vnet: VnetHeader) -> Result<Self, ShapeError> {
        let (shape, layers) = frame::parse(headers, total_bytes, &vnet)?;
        Ok(Self { shape, vnet, layers })
    }

    /// Which wire packets the frame stands for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes the headers of the `count` segments from `first` on. `headers` is the frame, or its beginning with all headers.
    ///
    /// The run of all segments is the frame as it is: no header, all bytes as payload. A run of one segment is a plain
    /// frame. A super-packet without `NEEDS_CSUM` gets it, in part or whole: its checksum, if it was good, covered the whole,
    /// and the kernel takes no UDP super-packet without and has the receiver verify those of TCP.
    ///
    /// # Errors
    /// [`SegmentError::Run`], [`SegmentError::Tunnel`], [`SegmentError::OtherFrame`].
    pub fn run(&self, headers: &[u8], first: u32, count: u32, piece: &mut PieceHeader) -> Result<(), SegmentError> {
        if count == 0 || first.checked_add(count).is_none_or(|end| end > self.shape.segments) {
            return Err(SegmentError::Run { first, count });
        }
        if self.shape.is_tunnel {
            return Err(SegmentError::Tunnel);
        }
        let Some(layers) = self.layers.as_ref().filter(|_| !self.goes_on_as_it_is(count)) else {
            piece.len = 0;
            piece.payload = 0..self.shape.total_bytes as usize;
            piece.vnet = self.whole();
            return Ok(());
        };
        let written = self.write_headers(layers, headers, first, count, &mut piece.bytes)?;
        let (_, upper) = layers.innermost();
        let field = checksum_offset(upper.kind);
        let partial = self.partial_checksum(layers, headers, &piece.bytes[..written.len], &written, first, count);
        let start = layers.place(upper, written.moved);
        put16(&mut piece.bytes, start + field, partial);

        let keeps_ecn = upper.kind == Kind::Tcp && self.vnet.gso_ecn() && first == 0;
        piece.len = written.len;
        piece.payload = self.payload_range(layers, first, count);
        piece.vnet = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: match count {
                1 => 0,
                _ => self.vnet.gso().value() | if keeps_ecn { GSO_ECN } else { 0 },
            },
            header_len: written.len as u16,
            gso_size: if count == 1 { 0 } else { self.vnet.gso_size },
            csum_start: start as u16,
            csum_offset: field as u16,
        };
        Ok(())
    }

    /// Makes segment `index` into a frame of its own in `out`, every checksum complete and every layer of a tunnel its own.
    /// `frame` is the whole frame. Returns the offload header to send it with, which asks for nothing.
    ///
    /// A frame that is no super-packet is copied, its checksum completed where `NEEDS_CSUM` asks for it.
    ///
    /// # Errors
    /// [`SegmentError::Run`], [`SegmentError::OtherFrame`], [`SegmentError::Checksum`].
    pub fn segment_whole(&self, frame: &[u8], index: u32, out: &mut Vec<u8>) -> Result<VnetHeader, SegmentError> {
        if frame.len() != self.shape.total_bytes as usize {
            return Err(SegmentError::OtherFrame);
        }
        if index >= self.shape.segments {
            return Err(SegmentError::Run { first: index, count: 1 });
        }
        out.clear();
        let Some(layers) = &self.layers else {
            out.extend_from_slice(frame);
            if self.vnet.needs_csum() {
                complete_offloaded(out, &self.vnet)?;
            }
            return Ok(VnetHeader::default());
        };
        out.resize(MAX_HEADER_BYTES, 0);
        let written = self.write_headers(layers, frame, index, 1, out)?;
        out.truncate(written.len);
        let partial = self.partial_checksum(layers, frame, out, &written, index, 1);
        out.extend_from_slice(&frame[self.payload_range(layers, index, 1)]);
        complete_layers(layers, written.moved, partial, out).ok_or(SegmentError::OtherFrame)?;
        Ok(VnetHeader::default())
    }

    /// Whether a run of `count` segments is the whole frame and needs no new headers.
    fn goes_on_as_it_is(&self, count: u32) -> bool {
        count == self.shape.segments && (count == 1 || self.vnet.needs_csum())
    }

    /// The offload header of the unchanged frame. Its `hdr_len` is cut to the headers, lest the kernel look for 64 KB in one
    /// piece of memory.
    fn whole(&self) -> VnetHeader {
        let Some(layers) = &self.layers else { return self.vnet };
        let vnet = VnetHeader { header_len: layers.payload_offset, ..self.vnet };
        if self.shape.segments == 1 { VnetHeader { gso_type: 0, gso_size: 0, ..vnet } } else { vnet }
    }

    fn payload_range(&self, layers: &Layers, first: u32, count: u32) -> Range<usize> {
        let start = usize::from(layers.payload_offset) + self.shape.payload_start(first) as usize;
        start..start + self.shape.payload_of(first, count) as usize
    }

    /// Writes the headers of a run to the beginning of `out`, which holds [`MAX_HEADER_BYTES`]; all is right in them but the
    /// checksums of TCP, UDP and GRE.
    fn write_headers(
        &self,
        layers: &Layers,
        headers: &[u8],
        first: u32,
        count: u32,
        out: &mut [u8],
    ) -> Result<Written, SegmentError> {
        let headers = headers.get(..usize::from(layers.payload_offset)).ok_or(SegmentError::OtherFrame)?;
        let payload = self.shape.payload_of(first, count) as usize;
        let written = copy_headers(headers, usize::from(layers.jumbo_offset), payload, out);
        let out = &mut out[..written.len];
        for layer in layers.iter() {
            let start = layers.place(layer, written.moved);
            let header = &mut out[start..];
            let length = header.len() + payload;
            match layer.kind {
                Kind::Ipv4 => {
                    let mut ip = ipv4::Packet::new_checked(header).ok_or(SegmentError::OtherFrame)?;
                    ip.set_total_len(u16::try_from(length).unwrap_or(0));
                    // The number has 16 bits and wraps.
                    ip.set_identification(ip.identification().wrapping_add(first as u16));
                    ip.fill_checksum();
                }
                Kind::Ipv6 => {
                    let mut ip = ipv6::Packet::new_checked(header).ok_or(SegmentError::OtherFrame)?;
                    ip.set_payload_len(u16::try_from(length - ipv6::HEADER_LEN).unwrap_or(0));
                }
                Kind::Udp => {
                    let mut udp = udp::Datagram::new_checked(header).ok_or(SegmentError::OtherFrame)?;
                    udp.set_length(u16::try_from(length).unwrap_or(0));
                }
                Kind::Tcp => {
                    let mut tcp = tcp::Segment::new_checked(header).ok_or(SegmentError::OtherFrame)?;
                    let offset = first.wrapping_mul(u32::from(self.vnet.gso_size));
                    tcp.set_sequence(tcp.sequence().wrapping_add(offset));
                    tcp.set_flags(tcp.flags() & !self.flags_elsewhere(first, count));
                }
                Kind::Gre => {}
            }
        }
        Ok(written)
    }

    /// The TCP flags that belong to other segments than these.
    fn flags_elsewhere(&self, first: u32, count: u32) -> u8 {
        let mut flags = 0;
        if first + count < self.shape.segments {
            flags |= tcp::flag::FIN | tcp::flag::PSH;
        }
        if first > 0 && self.vnet.gso_ecn() {
            flags |= tcp::flag::CWR;
        }
        flags
    }

    /// The innermost checksum field as `NEEDS_CSUM` wants it. `headers` is the original, `header` the new one.
    fn partial_checksum(
        &self,
        layers: &Layers,
        headers: &[u8],
        header: &[u8],
        written: &Written,
        first: u32,
        count: u32,
    ) -> u16 {
        let (ip, upper) = layers.innermost();
        let start = usize::from(upper.offset);
        let length = (header.len() - layers.place(upper, written.moved)) as u32 + self.shape.payload_of(first, count);
        if self.vnet.needs_csum() {
            // Only the length differs. Not computed from the addresses: behind a routing header the covered one is elsewhere.
            let field = be16(headers, start + checksum_offset(upper.kind));
            checksum::Sum::ZERO.add_u16(field).sub_u32(self.shape.total_bytes - start as u32).add_u32(length).fold()
        } else {
            checksum::pseudo_of(&header[layers.place(ip, written.moved)..], protocol(upper.kind), length).fold()
        }
    }
}

/// Copies the headers, the jumbo header at `jumbo` (0: none) left out where the run fits without.
fn copy_headers(headers: &[u8], jumbo: usize, payload: usize, out: &mut [u8]) -> Written {
    let behind_jumbo = jumbo + ipv6::JUMBO_LEN;
    if jumbo == 0 || headers.len() < behind_jumbo {
        out[..headers.len()].copy_from_slice(headers);
        return Written { len: headers.len(), moved: 0 };
    }
    if headers.len() - behind_jumbo + payload > usize::from(u16::MAX) {
        out[..headers.len()].copy_from_slice(headers);
        put32(out, jumbo + 4, (headers.len() - jumbo + payload) as u32);
        return Written { len: headers.len(), moved: 0 };
    }
    let len = headers.len() - ipv6::JUMBO_LEN;
    out[..jumbo].copy_from_slice(&headers[..jumbo]);
    out[jumbo..len].copy_from_slice(&headers[behind_jumbo..]);
    // What followed the jumbo header now follows the IPv6 header, whose next header is its seventh byte.
    out[jumbo - ipv6::HEADER_LEN + 6] = headers[jumbo];
    Written { len, moved: ipv6::JUMBO_LEN }
}

/// Completes the checksums of a stand-alone frame from the inside out, for each outer one covers the inner ones. `partial` is
/// the innermost field's pseudo header sum. `None` where a header lies outside of the frame.
fn complete_layers(layers: &Layers, moved: usize, partial: u16, frame: &mut [u8]) -> Option<()> {
    let (_, upper) = layers.innermost();
    let start = layers.place(upper, moved);
    put16(frame, start + checksum_offset(upper.kind), partial);
    checksum::complete(frame, start, checksum_offset(upper.kind))?;

    let mut within = layers.iter().rev().skip(1).peekable();
    while let Some(layer) = within.next() {
        let start = layers.place(layer, moved);
        match layer.kind {
            // 0 is none, and stays so (RFC 768; RFC 6935 for tunnels over IPv6).
            Kind::Udp if be16(frame, start + udp::CHECKSUM_OFFSET) != 0 => {
                let ip = layers.place(*within.peek()?, moved);
                let length = (frame.len() - start) as u32;
                let pseudo = checksum::pseudo_of(&frame[ip..], udp::PROTOCOL, length).fold();
                put16(frame, start + udp::CHECKSUM_OFFSET, pseudo);
                checksum::complete(frame, start, udp::CHECKSUM_OFFSET)?;
            }
            Kind::Gre => {
                put16(frame, start + GRE_CHECKSUM_OFFSET, 0);
                checksum::complete(frame, start, GRE_CHECKSUM_OFFSET)?;
            }
            _ => {}
        }
    }
    Some(())
}

/// Completes the checksum of a plain frame as its offload header asks.
fn complete_offloaded(frame: &mut [u8], vnet: &VnetHeader) -> Result<(), SegmentError> {
    let (start, offset) = (usize::from(vnet.csum_start), usize::from(vnet.csum_offset));
    if offset != SCTP_CHECKSUM_OFFSET {
        return checksum::complete(frame, start, offset).ok_or(SegmentError::Checksum);
    }
    // The offload header does not say that SCTP's is another checksum, but no Internet checksum lies there.
    let packet = frame.get_mut(start..).filter(|packet| packet.len() >= offset + 4).ok_or(SegmentError::Checksum)?;
    packet[offset..offset + 4].fill(0);
    let crc = checksum::crc32c(packet);
    packet[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Where the checksum lies in SCTP's common header (RFC 9260 §3.1).
const SCTP_CHECKSUM_OFFSET: usize = 8;
/// Where the checksum lies in a GRE header that has one (RFC 2784 §2.5).
const GRE_CHECKSUM_OFFSET: usize = 4;

fn checksum_offset(upper: Kind) -> usize {
    if upper == Kind::Tcp { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET }
}

fn protocol(upper: Kind) -> u8 {
    if upper == Kind::Tcp { tcp::PROTOCOL } else { udp::PROTOCOL }
}
