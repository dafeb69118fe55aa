//! UDP headers (RFC 768).
//!
//! ```text
//! ┌───────────────────────────────┬───────────────────────────────┐
//! │          source port          │       destination port        │  0
//! ├───────────────────────────────┼───────────────────────────────┤
//! │    length (header, payload)   │       checksum (0: none)      │  4
//! └───────────────────────────────┴───────────────────────────────┘
//! ```

use crate::{be16, put16};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Its protocol number.
pub const PROTOCOL: u8 = 17;
/// Where the checksum lies.
pub const CHECKSUM_OFFSET: usize = 6;

/// A view of a datagram whose header is whole.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<T>(T);

impl<T: AsRef<[u8]>> Datagram<T> {
    /// `None` where `bytes` hold no whole header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_LEN).then_some(Self(bytes))
    }

    /// The receiver's port.
    pub fn destination_port(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Datagram<T> {
    /// Sets the length.
    pub fn set_length(&mut self, bytes: u16) {
        put16(self.0.as_mut(), 4, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let mut datagram = Datagram::new_checked([0x14, 0x5a, 0x12, 0xb5, 0, 9, 0xab, 0xcd, 1]).unwrap();
        assert_eq!(datagram.destination_port(), 4789);
        datagram.set_length(8);
        assert_eq!(datagram.0[4..6], [0, 8]);
        assert!(Datagram::new_checked([0; 7]).is_none());
    }
}
