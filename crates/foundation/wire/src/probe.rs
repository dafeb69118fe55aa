//! The probe header: what every datagram of a test begins with.
//!
//! It takes 18 bytes, so that the smallest Ethernet frame carries one: 64 bytes less Ethernet 14, IPv4 20, UDP 8 and FCS 4.
//!
//! ```text
//!  0               4                       10                              18
//! ┌───────────────┬───────────────────────┬───────────────────────────────┬─ ─ ─ ─ ─
//! │  cookie (32)  │     sequence (48)     │       sent_ns (64)            │ fill
//! └───────────────┴───────────────────────┴───────────────────────────────┴─ ─ ─ ─ ─
//! cookie:  session (24, random) │ direction (1) │ stream (7)
//! ```
//!
//! The *cookie* tells a test's own packets from foreign ones, and its low byte tells the streams apart. The *sequence* counts a
//! stream's packets from 0. *sent_ns* is the sender's clock when it handed the packet, or the batch with it, to the kernel; which
//! clock was agreed beforehand. A sequence of [`FIRST_RESERVED`] or more is no bulk packet: the proof of the data path uses it.

use crate::{be16, be32, put16, put32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 18;
/// The first sequence that no bulk packet has: the last sixteen of 48 bits.
pub const FIRST_RESERVED: u64 = (1 << 48) - 16;

/// Which session, direction and stream a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie(pub u32);

impl Cookie {
    /// Where a payload has the stream's number: the byte, and which of its bits.
    pub const STREAM_BYTE: (u32, u8) = (3, 0x7f);

    /// The cookie of `stream` in a session that `random` names: its upper 24 bits, the rest is ignored. `backward` is from
    /// server to client. Of `stream` the low seven bits count.
    pub const fn new(random: u32, backward: bool, stream: u8) -> Self {
        Self(random & 0xffff_ff00 | (backward as u32) << 7 | (stream & 0x7f) as u32)
    }

    /// The same session's cookie for another direction and stream.
    pub const fn of(self, backward: bool, stream: u8) -> Self {
        Self::new(self.0, backward, stream)
    }

    /// The number of the stream.
    pub const fn stream(self) -> u8 {
        (self.0 & 0x7f) as u8
    }

    /// Whether it runs from server to client.
    pub const fn is_backward(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// The fields of a probe header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Session, direction, stream.
    pub cookie: Cookie,
    /// Counts the stream's packets from 0; 48 bits.
    pub sequence: u64,
    /// The sender's clock, nanoseconds.
    pub sent_ns: u64,
}

impl Probe {
    /// Reads the header at the start of a datagram's payload. `None` where it is too short; whether it is of this test the
    /// cookie says.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = payload.first_chunk()?;
        Some(Self {
            cookie: Cookie(be32(header, 0)),
            sequence: u64::from(be16(header, 4)) << 32 | u64::from(be32(header, 6)),
            sent_ns: u64::from(be32(header, 10)) << 32 | u64::from(be32(header, 14)),
        })
    }

    /// Writes the header at the start of `payload`; of the sequence the low 48 bits. `None`, and nothing written, where there is
    /// no room.
    #[inline]
    pub fn emit(&self, payload: &mut [u8]) -> Option<()> {
        let header: &mut [u8; HEADER_LEN] = payload.first_chunk_mut()?;
        put32(header, 0, self.cookie.0);
        put16(header, 4, (self.sequence >> 32) as u16);
        put32(header, 6, self.sequence as u32);
        put32(header, 10, (self.sent_ns >> 32) as u32);
        put32(header, 14, self.sent_ns as u32);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_where_the_drawing_has_them() {
        let cookie = Cookie::new(0xabcd_efff, true, 5);
        let probe = Probe { cookie, sequence: 0x0102_0304_0506, sent_ns: 0x1122_3344_5566_7788 };
        let mut payload = [0xee; 20];
        probe.emit(&mut payload).unwrap();
        let header = b"\xab\xcd\xef\x85\x01\x02\x03\x04\x05\x06\x11\x22\x33\x44\x55\x66\x77\x88";
        assert_eq!(&payload[..18], header);
        assert_eq!(&payload[18..], [0xee; 2], "the fill is left alone");
        assert_eq!(Probe::parse(&payload), Some(probe));
        assert_eq!((cookie.stream(), cookie.is_backward()), (5, true));
    }

    #[test]
    fn what_is_too_short_is_neither_read_nor_written() {
        let probe = Probe { cookie: Cookie(1), sequence: 2, sent_ns: 3 };
        let mut short = [7; 17];
        assert_eq!((Probe::parse(&short), probe.emit(&mut short), short), (None, None, [7; 17]));
    }

    proptest! {
        #[test]
        fn reads_back(cookie: u32, sequence in 0u64..1 << 48, sent_ns: u64) {
            let probe = Probe { cookie: Cookie(cookie), sequence, sent_ns };
            let mut payload = [0; HEADER_LEN];
            probe.emit(&mut payload).unwrap();
            prop_assert_eq!(Probe::parse(&payload), Some(probe));
        }
    }
}
