//! IPv6 headers (RFC 8200 §3), their extension headers (§4) and jumbograms (RFC 2675).
//!
//! ```text
//! ┌───────┬───────────────┬───────────────────────────────────────┐
//! │   6   │ traffic class │              flow label               │  0
//! ├───────┴───────────────┴───────┬───────────────┬───────────────┤
//! │        payload length         │  next header  │   hop limit   │  4
//! ├───────────────────────────────┴───────────────┴───────────────┤
//! │                      source address (16)                      │  8
//! ├───────────────────────────────────────────────────────────────┤
//! │                   destination address (16)                    │ 24, then extension headers
//! └───────────────────────────────────────────────────────────────┘
//!
//! The header that Linux puts into a BIG TCP super-packet and takes out before the wire:
//! ┌───────────────┬───────────────┬───────────────┬───────────────┐
//! │  next header  │    len 0      │  jumbo 0xc2   │   length 4    │ 40
//! ├───────────────┴───────────────┴───────────────┴───────────────┤
//! │       jumbo payload length: this header and all behind        │ 44
//! └───────────────────────────────────────────────────────────────┘
//! ```

use crate::{be16, be32, put16};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Bytes of a hop-by-hop header with nothing but a jumbo payload option.
pub const JUMBO_LEN: usize = 8;

/// Extension headers that are walked at most. RFC 8200 §4.1 names seven in its recommended order.
const MOST_EXTENSIONS: usize = 8;

/// Next-header values (IANA "protocol numbers") of IPv6 itself.
mod next {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;
    pub(super) const MOBILITY: u8 = 135;
}

/// What follows the extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer {
    /// The upper layer; authentication and ESP count as such, for what they protect cannot be changed.
    pub protocol: u8,
    /// Where it begins, from the start of the IPv6 header.
    pub offset: usize,
    /// Whether there is a fragment header (RFC 8200 §4.5).
    pub fragment: bool,
    /// Whether the fragment does not begin with the upper layer's header.
    pub later_fragment: bool,
    /// Whether a routing header (RFC 8200 §4.4) holds further stops: the destination is then not the last one.
    pub route_ahead: bool,
}

/// A view of an IPv6 packet whose fixed header is whole. Its payload length may lie: a BIG TCP super-packet has 0.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// `None` where `bytes` hold no whole IPv6 header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let b = bytes.as_ref();
        (b.len() >= HEADER_LEN && b[0] >> 4 == 6).then_some(Self(bytes))
    }

    /// Bytes behind the fixed header, as it has them.
    pub fn payload_len(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// The first extension header, or the upper layer.
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[6]
    }

    /// Routers that may still forward it.
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// From whom.
    pub fn source(&self) -> [u8; 16] {
        core::array::from_fn(|i| self.0.as_ref()[8 + i])
    }

    /// To whom, or where a routing header sends it first.
    pub fn destination(&self) -> [u8; 16] {
        core::array::from_fn(|i| self.0.as_ref()[24 + i])
    }

    /// The jumbo payload length of a packet that has the header drawn above, alone in its hop-by-hop header.
    pub fn jumbo_payload_len(&self) -> Option<u32> {
        let b = self.0.as_ref();
        let jumbo = b.get(HEADER_LEN..HEADER_LEN + JUMBO_LEN)?;
        (self.payload_len() == 0 && self.next_header() == next::HOP_BY_HOP && jumbo[1..4] == [0, 0xc2, 4])
            .then(|| be32(jumbo, 4))
    }

    /// Walks the extension headers. `None` where they do not end within the bytes, or are more than eight.
    pub fn upper_layer(&self) -> Option<UpperLayer> {
        let bytes = self.0.as_ref();
        let mut upper = UpperLayer {
            protocol: self.next_header(),
            offset: HEADER_LEN,
            fragment: false,
            later_fragment: false,
            route_ahead: false,
        };
        for _ in 0..=MOST_EXTENSIONS {
            let length = match upper.protocol {
                next::HOP_BY_HOP | next::DESTINATION | next::ROUTING | next::MOBILITY => {
                    let extension = bytes.get(upper.offset..upper.offset + 8)?;
                    upper.route_ahead |= upper.protocol == next::ROUTING && extension[3] != 0;
                    (usize::from(extension[1]) + 1) * 8
                }
                next::FRAGMENT => {
                    let extension = bytes.get(upper.offset..upper.offset + 8)?;
                    upper.fragment = true;
                    upper.later_fragment |= be16(extension, 2) & 0xfff8 != 0;
                    8
                }
                _ => return Some(upper),
            };
            upper.protocol = bytes[upper.offset];
            upper.offset += length;
            if upper.offset > bytes.len() {
                return None;
            }
            if upper.later_fragment {
                return Some(upper);
            }
        }
        None
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the payload length.
    pub fn set_payload_len(&mut self, bytes: u16) {
        put16(self.0.as_mut(), 4, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next_header: u8, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[0] = 0x60;
        bytes[4..8].copy_from_slice(&[0, behind.len() as u8, next_header, 64]);
        bytes[23] = 1;
        bytes[39] = 2;
        bytes.extend(behind);
        bytes
    }

    #[test]
    fn fields() {
        let mut view = Packet::new_checked(packet(6, &[9; 20])).unwrap();
        assert_eq!((view.payload_len(), view.next_header(), view.hop_limit()), (20, 6, 64));
        assert_eq!((view.source()[15], view.destination()[15]), (1, 2));
        assert_eq!(view.jumbo_payload_len(), None);
        view.set_payload_len(7);
        assert_eq!((view.payload_len(), view.next_header()), (7, 6));
        assert!(Packet::new_checked([0x60; 39]).is_none());
        assert!(Packet::new_checked([0x40; 40]).is_none());
    }

    #[test]
    fn extension_headers_are_walked() {
        let hop_then_routing = [[43, 0, 1, 4, 0, 0, 0, 0], [6, 0, 4, 1, 0, 0, 0, 0]].concat();
        let upper = Packet::new_checked(packet(0, &hop_then_routing)).unwrap().upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.route_ahead, upper.fragment), (6, 56, true, false));
        let fragment = Packet::new_checked(packet(44, &[17, 0, 0, 9, 0, 0, 0, 1])).unwrap().upper_layer().unwrap();
        assert_eq!((fragment.protocol, fragment.fragment, fragment.later_fragment), (17, true, true));
    }

    #[test]
    fn extension_headers_without_end_are_given_up() {
        assert_eq!(Packet::new_checked(packet(0, &[0; 7])).unwrap().upper_layer(), None);
        assert_eq!(Packet::new_checked(packet(0, &[0; 800])).unwrap().upper_layer(), None);
        assert_eq!(Packet::new_checked(packet(60, &[6, 1, 0, 0, 0, 0, 0, 0])).unwrap().upper_layer(), None);
    }

    #[test]
    fn a_jumbogram() {
        let mut bytes = packet(0, &[6, 0, 0xc2, 4, 0, 2, 0, 0]);
        assert_eq!(Packet::new_checked(&bytes).unwrap().jumbo_payload_len(), None);
        bytes[5] = 0;
        assert_eq!(Packet::new_checked(&bytes).unwrap().jumbo_payload_len(), Some(0x20000));
    }
}
