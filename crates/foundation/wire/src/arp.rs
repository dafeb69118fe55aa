//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  0          2          4    5    6         8          14         18         24         28
//! ┌──────────┬──────────┬────┬────┬─────────┬──────────┬──────────┬──────────┬──────────┐
//! │ hardware │ protocol │ 6  │ 4  │operation│sender MAC│ sender IP│target MAC│ target IP│
//! └──────────┴──────────┴────┴────┴─────────┴──────────┴──────────┴──────────┴──────────┘
//! ```

use crate::be16;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// A view of an ARP packet about IPv4 addresses on Ethernet.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// `None` where `bytes` are too few, or speak of other kinds of addresses.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let b = bytes.as_ref();
        (b.len() >= LEN && b[..2] == [0, 1] && b[2..6] == [8, 0, 6, 4]).then_some(Self(bytes))
    }

    /// 1 asks, 2 answers.
    pub fn operation(&self) -> u16 {
        be16(self.0.as_ref(), 6)
    }

    /// The sender's Ethernet address.
    pub fn sender_hardware(&self) -> [u8; 6] {
        core::array::from_fn(|i| self.0.as_ref()[8 + i])
    }

    /// The sender's IPv4 address.
    pub fn sender_address(&self) -> [u8; 4] {
        core::array::from_fn(|i| self.0.as_ref()[14 + i])
    }

    /// Whose Ethernet address is wanted, or who is answered.
    pub fn target_address(&self) -> [u8; 4] {
        core::array::from_fn(|i| self.0.as_ref()[24 + i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request() {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        bytes[8..18].copy_from_slice(&[2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        bytes[24..].copy_from_slice(&[10, 0, 0, 2]);
        let arp = Packet::new_checked(bytes).unwrap();
        assert_eq!(arp.operation(), 1);
        assert_eq!(arp.sender_hardware(), [2, 0, 0, 0, 0, 1]);
        assert_eq!((arp.sender_address(), arp.target_address()), ([10, 0, 0, 1], [10, 0, 0, 2]));
        assert!(Packet::new_checked(&bytes[..27]).is_none());
        assert!(Packet::new_checked([0; LEN]).is_none());
    }
}
