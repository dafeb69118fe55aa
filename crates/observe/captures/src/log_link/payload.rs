//! A datagram's payload to bytes and back.

use std::ops::Range;

use crate::record::LinkType;
use crate::spool::{PacketBlock, Packets};

/// How many datagrams before it one tells of.
pub const HISTORY_MOST: usize = 8;
const FIXED_BYTES: usize = 40;
/// Room for the history: eight entries of datagrams that follow each other within seconds. What does not fit is left out.
const HISTORY_BYTES_MOST: usize = 96;
/// Bytes before the body at most.
pub const PAYLOAD_HEADER_BYTES_MOST: usize = FIXED_BYTES + HISTORY_BYTES_MOST;

/// What was in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Whose snippets.
    pub interface: u16,
    /// How many.
    pub count: u16,
    /// The first snippet's stamp.
    pub first_ns: i64,
    /// The latest of them.
    pub last_ns: i64,
}

/// A datagram's payload, looked over: its body holds as many packets as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Snippets in all datagrams of the link before.
    pub snippets_before: u64,
    /// No snippet in a later datagram is older.
    pub floor_ns: i64,
    /// No snippet in an earlier datagram is later.
    pub latest_ns: i64,
    /// What is in it.
    pub span: Span,
    /// What was in those before, the latest first.
    pub history: Vec<Span>,
    body: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Writes a payload with the packets of `snippets`.
    pub fn write(
        snippets_before: u64,
        floor_ns: i64,
        latest_ns: i64,
        snippets: &PacketBlock,
        history: impl Iterator<Item = Span>,
        out: &mut Vec<u8>,
    ) {
        let body = snippets.body();
        out.clear();
        out.extend_from_slice(&snippets_before.to_le_bytes());
        out.extend_from_slice(&floor_ns.to_le_bytes());
        out.extend_from_slice(&latest_ns.to_le_bytes());
        let first_ns = snippets.span_ns().0;
        out.extend_from_slice(&first_ns.to_le_bytes());
        out.extend_from_slice(&snippets.interface().to_le_bytes());
        // A datagram has no room for more of either.
        out.extend_from_slice(&(snippets.packets() as u16).to_le_bytes());
        out.extend_from_slice(&(body.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        let mut entries = 0;
        for span in history.take(HISTORY_MOST) {
            let before = out.len();
            put_varint(out, span.interface.into());
            put_varint(out, span.count.into());
            put_varint(out, zigzag(span.first_ns.wrapping_sub(latest_ns)));
            put_varint(out, span.last_ns.wrapping_sub(span.first_ns) as u64);
            if out.len() > PAYLOAD_HEADER_BYTES_MOST {
                out.truncate(before);
                break;
            }
            entries += 1;
        }
        out[38] = entries;
        out.extend_from_slice(body);
    }

    /// Reads a payload; `None` where it is none. Every packet of its body is looked at.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, mut rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let (latest_ns, first_ns) = (long(fixed, 16..24), long(fixed, 24..32));
        let mut history = Vec::with_capacity(HISTORY_MOST);
        if usize::from(fixed[38]) > HISTORY_MOST || fixed[39] != 0 {
            return None;
        }
        for _ in 0..fixed[38] {
            let interface = u16::try_from(varint(&mut rest)?).ok()?;
            let count = u16::try_from(varint(&mut rest)?).ok()?;
            let since = varint(&mut rest)?;
            let first_ns = latest_ns.wrapping_add((since >> 1) as i64 ^ -((since & 1) as i64));
            let last_ns = first_ns.checked_add(i64::try_from(varint(&mut rest)?).ok()?)?;
            history.push(Span { interface, count, first_ns, last_ns });
        }
        let body = rest.get(..half(36).into())?;
        let mut span = Span { interface: half(32), count: half(34), first_ns, last_ns: first_ns };
        let mut packets = Packets::of_body(body, span.count.into(), first_ns, span.interface, LinkType::Ethernet);
        while let Some(packet) = packets.next_raw().ok()? {
            span.last_ns = span.last_ns.max(packet.at_ns);
        }
        Some(Self {
            snippets_before: long(fixed, 0..8) as u64,
            floor_ns: long(fixed, 8..16),
            latest_ns,
            span,
            history,
            body,
        })
    }

    /// Its packets. What they begin with is not looked at: take them raw.
    pub fn packets(&self) -> Packets<'a> {
        Packets::of_body(self.body, self.span.count.into(), self.span.first_ns, self.span.interface, LinkType::Ethernet)
    }
}

fn long(bytes: &[u8; FIXED_BYTES], at: Range<usize>) -> i64 {
    i64::from_le_bytes(bytes[at].try_into().unwrap_or_default())
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// LEB128, seven bits a byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
