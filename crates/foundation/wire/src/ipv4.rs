//! IPv4 headers (RFC 791 §3.1).
//!
//! ```text
//!  0                   1                   2                   3
//! ┌───────┬───────┬───────────────┬───────────────────────────────┐
//! │   4   │ words │ type of serv. │          total length         │  0
//! ├───────┴───────┴───────────────┼─────┬─────────────────────────┤
//! │        identification         │flags│     fragment offset     │  4
//! ├───────────────┬───────────────┼─────┴─────────────────────────┤
//! │  time to live │   protocol    │           checksum            │  8
//! ├───────────────┴───────────────┴───────────────────────────────┤
//! │                        source address                         │ 12
//! ├───────────────────────────────────────────────────────────────┤
//! │                      destination address                      │ 16, then options
//! └───────────────────────────────────────────────────────────────┘
//! ```

use crate::{be16, checksum, put16};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;

/// A view of an IPv4 packet whose header is whole. Its payload may be cut off, and its total length may lie: a BIG TCP
/// super-packet has 0.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// `None` where `bytes` hold no whole IPv4 header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let b = bytes.as_ref();
        let whole = b.len() >= MIN_HEADER_LEN && b[0] >> 4 == 4 && {
            let header_len = usize::from(b[0] & 0xf) * 4;
            header_len >= MIN_HEADER_LEN && b.len() >= header_len
        };
        whole.then_some(Self(bytes))
    }

    /// Bytes of the header with its options: 20–60.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0xf) * 4
    }

    /// Bytes of header and payload, as the header has it.
    pub fn total_len(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Names the fragments of one packet.
    pub fn identification(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// Whether it is one of several fragments, be it the first.
    pub fn is_fragment(&self) -> bool {
        be16(self.0.as_ref(), 6) & 0x3fff != 0
    }

    /// Routers that may still forward it.
    pub fn time_to_live(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// The upper layer (IANA "protocol numbers").
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[9]
    }

    /// From whom.
    pub fn source(&self) -> [u8; 4] {
        core::array::from_fn(|i| self.0.as_ref()[12 + i])
    }

    /// To whom.
    pub fn destination(&self) -> [u8; 4] {
        core::array::from_fn(|i| self.0.as_ref()[16 + i])
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the total length.
    pub fn set_total_len(&mut self, bytes: u16) {
        put16(self.0.as_mut(), 2, bytes);
    }

    /// Sets the identification.
    pub fn set_identification(&mut self, identification: u16) {
        put16(self.0.as_mut(), 4, identification);
    }

    /// Computes the header's checksum; the last thing to do.
    pub fn fill_checksum(&mut self) {
        let header_len = self.header_len();
        checksum::fill_ipv4(&mut self.0.as_mut()[..header_len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 20] = [
        0x45, 0x01, 0x00, 0x73, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];

    #[test]
    fn fields() {
        let mut packet = Packet::new_checked(HEADER).unwrap();
        assert_eq!((packet.header_len(), packet.total_len(), packet.identification()), (20, 115, 0x1234));
        assert_eq!((packet.time_to_live(), packet.protocol()), (64, 17));
        assert!(!packet.is_fragment());
        assert_eq!((packet.source(), packet.destination()), ([192, 168, 0, 1], [192, 168, 0, 199]));
        assert_ne!(checksum::Sum::ZERO.add_bytes(&packet.0[..20]).checksum(), 0);
        packet.set_total_len(1500);
        packet.set_identification(0xffff);
        packet.fill_checksum();
        assert_eq!(checksum::Sum::ZERO.add_bytes(&packet.0[..20]).checksum(), 0);
        assert_eq!((packet.total_len(), packet.identification()), (1500, 0xffff));
    }

    #[test]
    fn headers_that_are_none() {
        assert!(Packet::new_checked(&HEADER[..19]).is_none());
        for first in [0x65, 0x44, 0x46, 0x05] {
            let mut bytes = HEADER;
            bytes[0] = first;
            assert!(Packet::new_checked(bytes).is_none(), "{first:#x}");
        }
    }
}
