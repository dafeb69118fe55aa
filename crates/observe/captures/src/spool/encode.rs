//! Blocks to bytes.

use longhaul_wire::checksum::{crc32c, crc32c_append};
use serde::Serialize;

use super::decode::RawPacket;
use super::{CRC_AT, HEADER_BYTES, Kind, MAGIC, MAX_SNIPPET_BYTES, VERSION};
use crate::record::{InterfaceDirection, Record};

/// Flags, and varints of 64, 32, 16, 16 and 16 bits.
const FIELD_BYTES_MOST: usize = 1 + 10 + 5 + 3 + 3 + 3;
/// The checksum goes on each time so many bytes are there: they are then still in the CPU's nearest cache, which they are no more when the
/// block is full.
const SUM_EVERY: usize = 8 << 10;
/// Memory that a disk can be written from without a copy begins at a page.
const MEMORY_ALIGNMENT: usize = 4096;

/// A block of one interface's packets, being filled.
#[derive(Debug, Clone, Default)]
pub struct PacketBlock {
    /// The block, behind some bytes that are not its own.
    bytes: Vec<u8>,
    /// How many: it begins at a whole [`MEMORY_ALIGNMENT`] while it stays within its capacity.
    start: usize,
    interface: u16,
    count: u32,
    first_ns: i64,
    last_ns: i64,
    /// What the next packet's time counts from.
    before_ns: i64,
    /// The checksum of the body as far as `summed` in `bytes`.
    crc: u32,
    summed: usize,
}

impl PacketBlock {
    /// An empty block with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut block = Self { bytes: Vec::with_capacity(bytes + MEMORY_ALIGNMENT), ..Self::default() };
        block.reset(0);
        block
    }

    /// Empties it for packets of `interface`, keeping its memory.
    pub fn reset(&mut self, interface: u16) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let start = bytes.as_ptr().align_offset(MEMORY_ALIGNMENT);
        let start = if start < MEMORY_ALIGNMENT { start } else { 0 };
        bytes.resize(start + HEADER_BYTES, 0);
        *self = Self { summed: bytes.len(), bytes, start, interface, ..Self::default() };
    }

    /// Appends a packet, whose interface must be the block's. A snippet beyond [`MAX_SNIPPET_BYTES`] is cut.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) {
        debug_assert_eq!(record.interface, self.interface);
        self.push_snippet(record, &[record.snippet]);
    }

    /// The same, with the snippet in pieces instead of `record.snippet`.
    #[inline]
    pub fn push_snippet(&mut self, record: &Record<'_>, snippet: &[&[u8]]) {
        if self.count == 0 {
            (self.first_ns, self.last_ns, self.before_ns) = (record.at_ns, record.at_ns, record.at_ns);
        }
        self.count += 1;
        self.last_ns = self.last_ns.max(record.at_ns);
        let since = record.at_ns.wrapping_sub(self.before_ns);
        self.before_ns = record.at_ns;
        let direction = match record.direction {
            InterfaceDirection::Unknown => 0,
            InterfaceDirection::Inbound => 1,
            InterfaceDirection::Outbound => 2,
        };
        let is_super = record.gso_segs != 1 || record.gso_size != 0;
        let length = snippet.iter().map(|piece| piece.len()).sum::<usize>().min(MAX_SNIPPET_BYTES);
        // Put together aside and appended once: every append looks whether there is room.
        let mut fields = [0; FIELD_BYTES_MOST];
        fields[0] = direction | u8::from(is_super) << 2;
        let mut at = put_varint(&mut fields, 1, (since << 1 ^ since >> 63) as u64);
        at = put_varint(&mut fields, at, record.frame_len.into());
        if is_super {
            at = put_varint(&mut fields, at, record.gso_segs.into());
            at = put_varint(&mut fields, at, record.gso_size.into());
        }
        at = put_varint(&mut fields, at, length as u64);
        self.bytes.extend_from_slice(&fields[..at]);
        let mut left = length;
        for piece in snippet {
            let piece = &piece[..piece.len().min(left)];
            self.bytes.extend_from_slice(piece);
            left -= piece.len();
        }
        if self.bytes.len() - self.summed >= SUM_EVERY {
            self.sum_up();
        }
    }

    #[cold]
    fn sum_up(&mut self) {
        self.crc = crc32c_append(self.crc, &self.bytes[self.summed..]);
        self.summed = self.bytes.len();
    }

    /// Appends a packet out of another body.
    pub fn push_raw(&mut self, packet: &RawPacket<'_>) {
        if self.count == 0 {
            (self.first_ns, self.last_ns, self.before_ns) = (packet.at_ns, packet.at_ns, packet.at_ns);
        }
        self.count += 1;
        self.last_ns = self.last_ns.max(packet.at_ns);
        let since = packet.at_ns.wrapping_sub(self.before_ns);
        self.before_ns = packet.at_ns;
        let (flags, tail) = packet.parts();
        let mut fields = [0; FIELD_BYTES_MOST];
        fields[0] = flags;
        let at = put_varint(&mut fields, 1, (since << 1 ^ since >> 63) as u64);
        self.bytes.extend_from_slice(&fields[..at]);
        self.bytes.extend_from_slice(tail);
        if self.bytes.len() - self.summed >= SUM_EVERY {
            self.sum_up();
        }
    }

    /// Packets in it.
    pub fn packets(&self) -> u32 {
        self.count
    }

    /// The interface whose packets it holds.
    pub fn interface(&self) -> u16 {
        self.interface
    }

    /// The first packet's stamp and the latest in it; zeros while it is empty.
    pub fn span_ns(&self) -> (i64, i64) {
        (self.first_ns, self.last_ns)
    }

    /// Bytes so far, the header among them.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether no packet is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The block as it is written.
    pub fn finish(&mut self) -> &[u8] {
        self.sum_up();
        let header = Header {
            kind: Kind::Packets,
            interface: self.interface,
            count: self.count,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        };
        let block = &mut self.bytes[self.start..];
        put_header(block, &header, self.crc);
        block
    }

    /// The packets behind the header.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.start + HEADER_BYTES..]
    }
}

struct Header {
    kind: Kind,
    interface: u16,
    count: u32,
    first_ns: i64,
    last_ns: i64,
}

/// Fills in the header of `bytes`, whose first [`HEADER_BYTES`] are its place.
fn seal(bytes: &mut [u8], header: &Header) {
    let body_crc = crc32c(&bytes[HEADER_BYTES..]);
    put_header(bytes, header, body_crc);
}

/// The same, where the body's own checksum is known.
fn put_header(bytes: &mut [u8], header: &Header, body_crc: u32) {
    let length = (bytes.len() - HEADER_BYTES) as u32;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = header.kind.number();
    bytes[6..8].copy_from_slice(&header.interface.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.count.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.first_ns.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.last_ns.to_le_bytes());
    let crc = crc32c_append(body_crc, &bytes[..CRC_AT]);
    bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// A block that holds `value` as JSON: [`Kind::Meta`], [`Kind::Ledger`], [`Kind::Mark`], [`Kind::End`].
pub fn control_block(kind: Kind, at_ns: i64, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    // Our own types serialize.
    serde_json::to_writer(&mut bytes, value).expect("plain data");
    seal(&mut bytes, &Header { kind, interface: 0, count: 0, first_ns: at_ns, last_ns: at_ns });
    bytes
}

/// A block that says that no later packet is older than `watermark_ns`.
pub fn tick_block(watermark_ns: i64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    seal(
        &mut bytes,
        &Header { kind: Kind::Tick, interface: 0, count: 0, first_ns: watermark_ns, last_ns: watermark_ns },
    );
    bytes
}

/// A block of `length` bytes, the header among them, that says nothing.
///
/// # Panics
/// Where `length` is less than [`HEADER_BYTES`].
pub fn pad_block(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    seal(&mut bytes, &Header { kind: Kind::Pad, interface: 0, count: 0, first_ns: 0, last_ns: 0 });
    bytes
}

/// Writes `value` at `at` as LEB128, seven bits a byte, the lowest first; gives the place behind it.
#[inline]
fn put_varint(bytes: &mut [u8; FIELD_BYTES_MOST], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        (at, value) = (at + 1, value >> 7);
    }
    bytes[at] = value as u8;
    at + 1
}
