//! Bytes to blocks.

use std::io::{self, Read, Seek};

use longhaul_wire::checksum::{crc32c, crc32c_append};
use serde::de::DeserializeOwned;

use super::{CRC_AT, HEADER_BYTES, Kind, MAGIC, MAX_BODY_BYTES, VERSION};
use crate::ledger::{Gap, Ledger};
use crate::record::{InterfaceDirection, LinkType, Record};

/// Why a spool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file cannot be read.
    #[error("reading the spool: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a spool does.
    #[error("this is not a spool: it does not begin with a block of a capture's description")]
    NotASpool,
    /// A later version wrote it.
    #[error("the spool is of version {0}, this program reads {VERSION}; use a newer longhaul")]
    Version(u8),
    /// A block with a good checksum does not hold what it should.
    #[error("a block of the spool is malformed: {0}")]
    Block(&'static str),
}

/// A block of a file.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// What it is.
    pub kind: Kind,
    /// Whose packets.
    pub interface: u16,
    /// How many packets.
    pub count: u32,
    /// The first packet's stamp.
    pub first_ns: i64,
    /// The latest.
    pub last_ns: i64,
    /// What it holds.
    pub body: &'a [u8],
}

impl<'a> Block<'a> {
    /// The block that `bytes` begin with and how long it is; `None` where it is not whole, or damaged.
    pub fn parse(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let length = HEADER_BYTES + body_bytes(header)?;
        let body = bytes.get(HEADER_BYTES..length)?;
        is_good(header, body).then(|| Self::of(header, body)).flatten().map(|block| (block, length))
    }

    fn of(header: &[u8; HEADER_BYTES], body: &'a [u8]) -> Option<Self> {
        let long = |at: usize| i64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        Some(Self {
            kind: Kind::of(header[5])?,
            interface: u16::from_le_bytes([header[6], header[7]]),
            count: le32(header, 12),
            first_ns: long(16),
            last_ns: long(24),
            body,
        })
    }

    /// What it holds, of a block of JSON.
    ///
    /// # Errors
    /// [`SpoolError::Block`].
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, SpoolError> {
        serde_json::from_slice(self.body).map_err(|_| SpoolError::Block("its JSON is not what it should be"))
    }

    /// Its packets, which begin with `link`.
    pub fn packets(&self, link: LinkType) -> Packets<'a> {
        Packets::of_body(self.body, self.count, self.first_ns, self.interface, link)
    }
}

/// Whether the checksum says that header and body are as they were written.
fn is_good(header: &[u8; HEADER_BYTES], body: &[u8]) -> bool {
    crc32c_append(crc32c(body), &header[..CRC_AT]) == le32(header, CRC_AT)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The length of the body that a header states; `None` where it is no header of ours.
fn body_bytes(header: &[u8; HEADER_BYTES]) -> Option<usize> {
    let length = le32(header, 8) as usize;
    (header[..4] == MAGIC && header[4] == VERSION && length <= MAX_BODY_BYTES).then_some(length)
}

/// A packet of a body, without its time, which depends on the packet before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawPacket<'a> {
    /// Nanoseconds since 1970.
    pub at_ns: i64,
    flags: u8,
    /// From `frame_len` on.
    tail: &'a [u8],
}

impl<'a> RawPacket<'a> {
    /// Bytes that it takes in a body at most.
    pub fn bytes_most(&self) -> usize {
        // Flags, and a time of 64 bits.
        1 + 10 + self.tail.len()
    }

    pub(super) fn parts(&self) -> (u8, &'a [u8]) {
        (self.flags, self.tail)
    }
}

/// The packets of a block.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    body: &'a [u8],
    left: u32,
    before_ns: i64,
    interface: u16,
    link: LinkType,
}

impl<'a> Packets<'a> {
    /// Packets of a body that has no block around it (a datagram of the log link), the first of which was at `first_at_ns`.
    pub fn of_body(body: &'a [u8], count: u32, first_at_ns: i64, interface: u16, link: LinkType) -> Self {
        Self { body, left: count, before_ns: first_at_ns, interface, link }
    }

    /// The next packet; `None` behind the last.
    ///
    /// # Errors
    /// [`SpoolError::Block`]: what follows cannot be read.
    #[allow(clippy::should_implement_trait)] // Its error ends it.
    pub fn next(&mut self) -> Result<Option<Record<'a>>, SpoolError> {
        if self.left == 0 {
            return if self.body.is_empty() { Ok(None) } else { Err(SpoolError::Block("more in it than it counts")) };
        }
        self.left -= 1;
        let record = self.record().ok_or(SpoolError::Block("a packet in it is cut off"))?;
        Ok(Some(record))
    }

    /// The encoded bytes of the next packet, checked but not decoded, for a caller that repacks it; `None` behind the last.
    ///
    /// # Errors
    /// As of [`next`](Self::next).
    pub fn next_raw(&mut self) -> Result<Option<RawPacket<'a>>, SpoolError> {
        let flags = self.body.first().copied().unwrap_or(0);
        let whole = self.body;
        let Some(record) = self.next()? else { return Ok(None) };
        let whole = &whole[..whole.len() - self.body.len()];
        // Behind the flags and the time.
        let since_bytes = 1 + whole[1..].iter().take_while(|byte| **byte & 0x80 != 0).count();
        Ok(Some(RawPacket { at_ns: record.at_ns, flags, tail: &whole[1 + since_bytes..] }))
    }

    #[inline]
    fn record(&mut self) -> Option<Record<'a>> {
        let (&flags, rest) = self.body.split_first()?;
        self.body = rest;
        let since = self.varint()?;
        let since = (since >> 1) as i64 ^ -((since & 1) as i64);
        let at_ns = self.before_ns.wrapping_add(since);
        self.before_ns = at_ns;
        let frame_len = u32::try_from(self.varint()?).ok()?;
        let (gso_segs, gso_size) = if flags & 4 != 0 {
            (u16::try_from(self.varint()?).ok()?, u16::try_from(self.varint()?).ok()?)
        } else {
            (1, 0)
        };
        let length = usize::try_from(self.varint()?).ok()?;
        let (snippet, rest) = self.body.split_at_checked(length)?;
        self.body = rest;
        let direction = match flags & 3 {
            1 => InterfaceDirection::Inbound,
            2 => InterfaceDirection::Outbound,
            _ => InterfaceDirection::Unknown,
        };
        Some(Record {
            at_ns,
            interface: self.interface,
            direction,
            link: self.link,
            frame_len,
            gso_segs,
            gso_size,
            snippet,
        })
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let (&byte, rest) = self.body.split_first()?;
            self.body = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }
}

/// Reads a file of a spool block after block.
#[derive(Debug)]
pub struct BlockReader<R> {
    input: R,
    buffer: Vec<u8>,
    read_bytes: u64,
    torn: bool,
    ended: bool,
    over: bool,
}

impl<R: Read> BlockReader<R> {
    /// A reader at the file's first byte.
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), read_bytes: 0, torn: false, ended: false, over: false }
    }

    /// The next block, or `None` at the end of what is whole: see [`was_cut`](Self::was_cut).
    ///
    /// # Errors
    /// [`SpoolError::Io`]; of the first block [`SpoolError::NotASpool`], [`SpoolError::Version`].
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, SpoolError> {
        if self.over {
            return Ok(None);
        }
        self.buffer.resize(HEADER_BYTES, 0);
        let got = read_whole(&mut self.input, &mut self.buffer)?;
        let header: [u8; HEADER_BYTES] = self.buffer[..].try_into().unwrap_or([0; HEADER_BYTES]);
        if self.read_bytes == 0 {
            if got < HEADER_BYTES || header[..4] != MAGIC {
                return Err(SpoolError::NotASpool);
            }
            if header[4] != VERSION {
                return Err(SpoolError::Version(header[4]));
            }
        }
        let whole = got == HEADER_BYTES;
        let Some(length) = body_bytes(&header).filter(|_| whole) else {
            (self.over, self.torn) = (true, got > 0);
            return Ok(None);
        };
        self.buffer.resize(HEADER_BYTES + length, 0);
        let got = read_whole(&mut self.input, &mut self.buffer[HEADER_BYTES..])?;
        if got < length || !is_good(&header, &self.buffer[HEADER_BYTES..]) {
            (self.over, self.torn) = (true, true);
            return Ok(None);
        }
        self.read_bytes += (HEADER_BYTES + length) as u64;
        let block = Block::of(&header, &self.buffer[HEADER_BYTES..]);
        match block {
            Some(block) => {
                self.ended = block.kind == Kind::End;
                Ok(Some(block))
            }
            // A kind that a later minor version may add.
            None => Err(SpoolError::Block("its kind is not known")),
        }
    }

    /// Whether the file ends without having been closed: its writer was killed, the power failed, or it is still being written.
    pub fn was_cut(&self) -> bool {
        self.torn || !self.ended
    }
}

/// When a capture lost packets, by the accounts in `file` of its spool: what lies between them is not read.
///
/// # Errors
/// [`SpoolError::Io`], [`SpoolError::Block`].
pub fn gaps_in(mut file: impl Read + Seek) -> Result<Vec<Gap>, SpoolError> {
    let mut account = Ledger::default();
    let mut header = [0; HEADER_BYTES];
    while read_whole(&mut file, &mut header)? == HEADER_BYTES {
        let Some(length) = body_bytes(&header) else { break };
        if Kind::of(header[5]) == Some(Kind::Ledger) {
            let mut body = vec![0; length];
            if read_whole(&mut file, &mut body)? < length || !is_good(&header, &body) {
                break;
            }
            account.add(
                &serde_json::from_slice(&body).map_err(|_| SpoolError::Block("its JSON is not what it should be"))?,
            );
        } else {
            file.seek_relative(length as i64)?;
        }
    }
    Ok(account.gaps)
}

/// Fills `buffer` as far as there is something to read.
fn read_whole(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
