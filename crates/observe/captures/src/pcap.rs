//! pcap files (draft-ietf-opsawg-pcap), microseconds and nanoseconds, in either byte order.
//!
//! ```text
//! file:    magic 4 │ version 2+2 │ reserved 4+4 │ snap length 4 │ FCS 4 bits, link type 28 bits     then records
//! record:  seconds 4 │ fraction 4 │ captured length 4 │ original length 4 │ captured bytes
//! ```
//! The magic is 0xa1b2c3d4 where fractions are microseconds and 0xa1b23c4d where nanoseconds; read in the wrong order it tells
//! that all is in the other order. A file that ends within a record, or in zeros where a record should begin, was cut off: what is
//! whole is read, and [`Reader::is_cut`] says so. Before version 2.3 the two lengths stood in the other order, and files of that version have either: the
//! captured length is the lesser.

use std::io::{self, Read, Write};

use crate::bytes::Order;
use crate::input::Input;
use crate::record::{InterfaceDirection, LinkType, Record};

/// Captured bytes of one packet that are taken at most: BIG TCP's super-packets have 512 KB (`GSO_MAX_SIZE`).
pub(crate) const MOST_CAPTURED: u32 = 1 << 20;

const HEADER_LEN: usize = 24;
const RECORD_LEN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// With eight bytes more a record: interface, protocol, packet type, which no one documented.
const KUZNETZOV: u32 = 0xa1b2_cd34;

/// Times that a pcap file has room for: seconds since 1970 in 32 bits, to 2106-02-07.
pub const TIMES_NS: std::ops::RangeInclusive<i64> = 0..=u32::MAX as i64 * 1_000_000_000 + 999_999_999;

/// Why a pcap or pcapng file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says why.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It begins with something else.
    #[error("neither pcap nor pcapng: it begins with {0:02x?}")]
    NotACapture(Vec<u8>),
    /// A length or number in it cannot be.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Where, in bytes from its beginning, uncompressed.
        at: u64,
        /// What cannot be.
        what: &'static str,
    },
}

/// Reads a pcap file, record by record.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    order: Order,
    fraction_ns: u32,
    record_len: usize,
    link: LinkType,
    fcs_len: u32,
    /// The lengths stand in the other order, or may.
    lengths: Lengths,
    cut: bool,
}

/// The order of a record's lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    OriginalFirst,
    LesserIsCaptured,
}

impl<R: Read> Reader<R> {
    /// A reader at the beginning of `stream`, which need not be buffered.
    ///
    /// # Errors
    /// Where it cannot be read or is no pcap file.
    pub fn new(stream: R) -> Result<Self, ReadError> {
        Self::over(Input::new(stream))
    }

    pub(crate) fn over(mut input: Input<R>) -> Result<Self, ReadError> {
        let header = input.at_least(HEADER_LEN)?;
        let (order, magic) = match Order::Little.u32(header, 0) {
            magic @ (MICROSECONDS | NANOSECONDS | KUZNETZOV) => (Order::Little, magic),
            other => (Order::Big, other.swap_bytes()),
        };
        if header.len() < HEADER_LEN || !matches!(magic, MICROSECONDS | NANOSECONDS | KUZNETZOV) {
            return Err(ReadError::NotACapture(header[..header.len().min(4)].to_vec()));
        }
        let link = order.u32(header, 20);
        let lengths = match (order.u16(header, 4), order.u16(header, 6)) {
            (2, 0..=2) => Lengths::OriginalFirst,
            (2, 3) => Lengths::LesserIsCaptured,
            (2.., _) => Lengths::CapturedFirst,
            _ => return Err(ReadError::Damaged { at: 4, what: "a version before 2" }),
        };
        input.take(HEADER_LEN);
        Ok(Self {
            input,
            order,
            fraction_ns: if magic == NANOSECONDS { 1 } else { 1_000 },
            record_len: if magic == KUZNETZOV { RECORD_LEN + 8 } else { RECORD_LEN },
            link: LinkType::from_number(link as u16),
            // Bit 26: the bits above tell the FCS's length, in units of 16 bits.
            fcs_len: if link & 1 << 26 != 0 { (link >> 28) * 2 } else { 0 },
            lengths,
            cut: false,
        })
    }

    /// What all of its packets begin with.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Whether the file ended within a record, or in zeros.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The next packet's snippet; `None` at the end.
    ///
    /// # Errors
    /// Where the file cannot be read or a length in it cannot be.
    // Not an iterator: what it gives is borrowed from it.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let at = self.input.consumed();
        let (order, record_len) = (self.order, self.record_len);
        let header = self.input.at_least(record_len)?;
        if header.len() < record_len {
            self.cut |= !header.is_empty();
            return Ok(None);
        }
        let (seconds, fraction) = (order.u32(header, 0), order.u32(header, 4));
        let (first, second) = (order.u32(header, 8), order.u32(header, 12));
        if seconds | fraction | first | second == 0 {
            // No packet is one of nothing in 1970: a hole, or what a power cut leaves, which would read as one each 16 bytes.
            self.cut = true;
            return Ok(None);
        }
        let (captured, original) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::OriginalFirst => (second, first),
            Lengths::LesserIsCaptured => (first.min(second), first.max(second)),
        };
        if captured > MOST_CAPTURED {
            return Err(ReadError::Damaged { at, what: "a packet of more than a megabyte" });
        }
        let whole = record_len + captured as usize;
        if self.input.at_least(whole)?.len() < whole {
            self.cut = true;
            return Ok(None);
        }
        let snippet = &self.input.take(whole)[record_len..];
        let frame_len = original.saturating_sub(self.fcs_len).max(captured.saturating_sub(self.fcs_len));
        Ok(Some(Record {
            at_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * i64::from(self.fraction_ns),
            interface: 0,
            direction: InterfaceDirection::Unknown,
            link: self.link,
            frame_len,
            gso_segs: 0,
            gso_size: 0,
            snippet: &snippet[..snippet.len().min(frame_len as usize)],
        }))
    }
}

/// Writes a pcap file with nanoseconds, little-endian.
///
/// What pcap has no place for is not written: interface, direction, what a super-packet stands for. pcapng has.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `snap_len` is the number of bytes of a packet that were captured at most. `stream` should be buffered.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn new(mut stream: W, link: LinkType, snap_len: u32) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&NANOSECONDS.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&snap_len.to_le_bytes());
        header[20..24].copy_from_slice(&u32::from(link.number()).to_le_bytes());
        stream.write_all(&header)?;
        Ok(Self { stream })
    }

    /// Writes a packet's snippet.
    ///
    /// # Errors
    /// Where it cannot be written, or its time is none of [`TIMES_NS`].
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let at_ns = record.at_ns;
        if !TIMES_NS.contains(&at_ns) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time before 1970 or after 2106-02-07"));
        }
        let captured = record.snippet.len().min(MOST_CAPTURED as usize);
        let mut header = [0; RECORD_LEN];
        header[..4].copy_from_slice(&((at_ns / 1_000_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&((at_ns % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(captured as u32).to_le_bytes());
        header[12..16].copy_from_slice(&record.frame_len.max(captured as u32).to_le_bytes());
        self.stream.write_all(&header)?;
        self.stream.write_all(&record.snippet[..captured])
    }

    /// What was written to, unflushed.
    pub fn into_inner(self) -> W {
        self.stream
    }
}

impl LinkType {
    /// By the number that pcap and pcapng have for it.
    pub fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Ethernet,
            // LINKTYPE_RAW, what DLT_RAW is on some systems, LINKTYPE_IPV4, LINKTYPE_IPV6.
            101 | 12 | 14 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            0 => Self::Null,
            108 => Self::Loop,
            9 | 50 => Self::Ppp,
            105 => Self::Ieee80211,
            127 => Self::Radiotap,
            other => Self::Other(other),
        }
    }

    /// Its number, where its packets are not looked into.
    pub fn unsupported(self) -> Option<u16> {
        if let Self::Other(number) = self { Some(number) } else { None }
    }

    /// The number that pcap and pcapng have for it.
    pub fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::LinuxCooked => 113,
            Self::LinuxCooked2 => 276,
            Self::Null => 0,
            Self::Loop => 108,
            Self::Ppp => 9,
            Self::Ieee80211 => 105,
            Self::Radiotap => 127,
            Self::Other(number) => number,
        }
    }
}

#[cfg(test)]
mod tests;
