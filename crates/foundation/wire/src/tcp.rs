//! TCP headers (RFC 9293 §3.1; ECN flags of RFC 3168 §6.1, AE of RFC 9768).
//!
//! ```text
//! ┌───────────────────────────────┬───────────────────────────────┐
//! │          source port          │       destination port        │  0
//! ├───────────────────────────────┴───────────────────────────────┤
//! │                        sequence number                        │  4
//! ├───────────────────────────────────────────────────────────────┤
//! │                     acknowledgment number                     │  8
//! ├───────┬─────┬─────────────────┬───────────────────────────────┤
//! │ words │ 0 0 │AE CE UAPRSF     │            window             │ 12
//! ├───────┴─────┴─────────────────┼───────────────────────────────┤
//! │           checksum            │        urgent pointer         │ 16, then options
//! └───────────────────────────────┴───────────────────────────────┘
//! ```

use crate::{be16, be32, put32};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Its protocol number.
pub const PROTOCOL: u8 = 6;
/// Where the checksum lies.
pub const CHECKSUM_OFFSET: usize = 16;

/// The flags of byte 13.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Opens the connection.
    pub const SYN: u8 = 0x02;
    /// Breaks it off.
    pub const RST: u8 = 0x04;
    /// Hand the data on.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The congestion window was reduced.
    pub const CWR: u8 = 0x80;
}

/// A view of a segment whose header is whole.
#[derive(Debug, Clone, Copy)]
pub struct Segment<T>(T);

impl<T: AsRef<[u8]>> Segment<T> {
    /// `None` where `bytes` hold no whole TCP header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let b = bytes.as_ref();
        let whole = b.len() >= MIN_HEADER_LEN && {
            let header_len = usize::from(b[12] >> 4) * 4;
            header_len >= MIN_HEADER_LEN && b.len() >= header_len
        };
        whole.then_some(Self(bytes))
    }

    /// The sender's port.
    pub fn source_port(&self) -> u16 {
        be16(self.0.as_ref(), 0)
    }

    /// The number of the first payload byte.
    pub fn sequence(&self) -> u32 {
        be32(self.0.as_ref(), 4)
    }

    /// Bytes of the header with its options: 20–60.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// The [`flag`]s.
    pub fn flags(&self) -> u8 {
        self.0.as_ref()[13]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Segment<T> {
    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u32) {
        put32(self.0.as_mut(), 4, sequence);
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: u8) {
        self.0.as_mut()[13] = flags;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 24] =
        [0x14, 0x5a, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 2, 0x60, 0x18, 0x01, 0xf5, 0xab, 0xcd, 0, 0, 2, 4, 5, 0xb4];

    #[test]
    fn fields() {
        let mut segment = Segment::new_checked(HEADER).unwrap();
        assert_eq!((segment.source_port(), segment.sequence()), (5210, 1));
        assert_eq!((segment.header_len(), segment.flags()), (24, flag::ACK | flag::PSH));
        segment.set_sequence(u32::MAX);
        segment.set_flags(flag::SYN);
        assert_eq!((segment.sequence(), segment.flags()), (u32::MAX, flag::SYN));
    }

    #[test]
    fn headers_that_are_none() {
        assert!(Segment::new_checked(&HEADER[..23]).is_none());
        let mut short = HEADER;
        short[12] = 0x40;
        assert!(Segment::new_checked(short).is_none());
    }
}
