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
    /// A packet was marked (RFC 3168): in a SYN, the sender can do ECN.
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced.
    pub const CWR: u8 = 0x80;
}

/// Kinds of options (IANA's TCP parameters).
pub mod option {
    /// The end of the list.
    pub const END: u8 = 0;
    /// Padding.
    pub const NO_OPERATION: u8 = 1;
    /// The largest segment that the sender takes (RFC 9293), 2 bytes.
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    /// By how much windows are scaled (RFC 7323), 1 byte.
    pub const WINDOW_SCALE: u8 = 3;
    /// The sender understands selective acknowledgements (RFC 2018), 0 bytes.
    pub const SACK_PERMITTED: u8 = 4;
    /// Time stamps (RFC 7323), 8 bytes.
    pub const TIMESTAMPS: u8 = 8;
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

    /// The options in order as (kind, value), without padding, up to the end of the list or the first that is not whole (RFC 9293 §3.1).
    pub fn options(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &self.0.as_ref()[MIN_HEADER_LEN..self.header_len()];
        std::iter::from_fn(move || {
            loop {
                match *rest {
                    [] | [option::END, ..] => return None,
                    [option::NO_OPERATION, ..] => rest = &rest[1..],
                    [kind, length, ..] if (2..=rest.len()).contains(&usize::from(length)) => {
                        let (whole, behind) = rest.split_at(length.into());
                        rest = behind;
                        return Some((kind, &whole[2..]));
                    }
                    _ => return None,
                }
            }
        })
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
    fn options_up_to_the_first_that_is_not_whole() {
        let of = |options: [u8; 12]| {
            let mut header = [0; 32];
            header[12] = 0x80;
            header[20..].copy_from_slice(&options);
            let segment = Segment::new_checked(header).unwrap();
            segment.options().map(|(kind, value)| (kind, value.to_vec())).collect::<Vec<_>>()
        };
        let all = [(2, vec![5, 0xb4]), (4, vec![]), (3, vec![7])];
        assert_eq!(of([2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 0, 9]), all);
        // Longer than the header, shorter than an option, cut off.
        assert_eq!(of([2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 8, 10]), all);
        assert_eq!(of([2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 1, 8]), all);
        assert_eq!(of([4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), []);
    }

    #[test]
    fn headers_that_are_none() {
        assert!(Segment::new_checked(&HEADER[..23]).is_none());
        let mut short = HEADER;
        short[12] = 0x40;
        assert!(Segment::new_checked(short).is_none());
    }
}
