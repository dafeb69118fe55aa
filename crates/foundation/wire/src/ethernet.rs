//! Ethernet II frames (IEEE 802.3 §3.2.6, RFC 894) and their VLAN tags (IEEE 802.1Q §9).
//!
//! ```text
//!  0             6        12      14
//! ┌─────────────┬────────┬───────┬─────────
//! │ destination │ source │ type  │ payload        no tag
//! ├─────────────┼────────┼───────┼──────┬───────┬─────────
//! │ destination │ source │ TPID  │ TCI  │ type  │ payload        one tag, or any number of them
//! └─────────────┴────────┴───────┴──────┴───────┴─────────
//! ```
//! A type below 1536 is a length (IEEE 802.3 §3.2.6). There is no FCS: Linux does not hand it out.

use crate::be16;

/// Bytes before the payload of an untagged frame.
pub const HEADER_LEN: usize = 14;
/// Bytes that one VLAN tag adds.
pub const TAG_LEN: usize = 4;

/// Tags that are walked at most, as in Linux (`VLAN_MAX_DEPTH`).
const MOST_TAGS: usize = 8;

/// EtherType values (IANA "IEEE 802 numbers").
pub mod ether_type {
    /// IPv4, RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// ARP, RFC 826.
    pub const ARP: u16 = 0x0806;
    /// An Ethernet frame in GRE, RFC 1701.
    pub const BRIDGED: u16 = 0x6558;
    /// A customer VLAN tag, 802.1Q.
    pub const VLAN: u16 = 0x8100;
    /// IPv6, RFC 2464.
    pub const IPV6: u16 = 0x86dd;
    /// A service VLAN tag, 802.1ad.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// A service VLAN tag as it was before 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;
}

/// What follows the link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The EtherType behind every tag.
    pub ether_type: u16,
    /// Where the network header begins, from the start of the frame.
    pub offset: usize,
}

/// A view of a frame that has at least an Ethernet header.
#[derive(Debug, Clone, Copy)]
pub struct Frame<T>(T);

impl<T: AsRef<[u8]>> Frame<T> {
    /// `None` where `bytes` are too few for a header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_LEN).then_some(Self(bytes))
    }

    /// To whom.
    pub fn destination(&self) -> [u8; 6] {
        core::array::from_fn(|i| self.0.as_ref()[i])
    }

    /// From whom.
    pub fn source(&self) -> [u8; 6] {
        core::array::from_fn(|i| self.0.as_ref()[6 + i])
    }

    /// The type behind the addresses, be it a tag's.
    pub fn ether_type(&self) -> u16 {
        be16(self.0.as_ref(), 12)
    }

    /// Walks the VLAN tags to what they carry. `None` where the frame ends in them, or where there are more than eight.
    pub fn network(&self) -> Option<Network> {
        let bytes = self.0.as_ref();
        let mut ether_type = self.ether_type();
        let mut offset = HEADER_LEN;
        for _ in 0..=MOST_TAGS {
            if !is_tag(ether_type) {
                return Some(Network { ether_type, offset });
            }
            let inner = bytes.get(offset + 2..offset + 4)?;
            ether_type = be16(inner, 0);
            offset += TAG_LEN;
        }
        None
    }
}

/// Whether a tag follows this EtherType.
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN | ether_type::OLD_SERVICE_VLAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(types: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], types].concat()
    }

    #[test]
    fn tags_are_walked() {
        let plain = frame(&[0x08, 0x00]);
        let view = Frame::new_checked(&plain).unwrap();
        assert_eq!((view.destination()[5], view.source()[5]), (1, 2));
        assert_eq!(view.network(), Some(Network { ether_type: 0x0800, offset: 14 }));
        let stacked = frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 0x86, 0xdd]);
        assert_eq!(
            Frame::new_checked(&stacked).unwrap().network(),
            Some(Network { ether_type: ether_type::IPV6, offset: 22 })
        );
    }

    #[test]
    fn a_frame_that_ends_in_its_tags_has_no_network() {
        assert!(Frame::new_checked([0; 13]).is_none());
        assert_eq!(Frame::new_checked(frame(&[0x81, 0, 0, 7])).unwrap().network(), None);
        assert_eq!(Frame::new_checked(frame(&[0x81, 0, 0, 7].repeat(100))).unwrap().network(), None);
    }
}
