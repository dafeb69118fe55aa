//! Putting back the outer VLAN tag (IEEE 802.1Q §9.3) that Linux strips before a packet socket sees the frame.
//!
//! The tag comes beside the frame, in `PACKET_AUXDATA` (`tp_vlan_tci`, `tp_vlan_tpid`). A receiver that leaves
//! [`TAG_LEN`] bytes free before the frame can put it back by moving twelve bytes:
//!
//! ```text
//!   spare(4) │ addresses(12) │ type …        received
//!   addresses(12) │ TPID TCI │ type …        restored
//! ```

use crate::VnetHeader;
use crate::ethernet::{HEADER_LEN, TAG_LEN};

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// 0x8100, or 0x88a8 for a service tag. Kernels that report none mean 0x8100.
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1), VLAN number (12).
    pub tci: u16,
}

/// Puts `tag` back into a frame that begins at `buffer[4]`; it then begins at `buffer[0]`, and its offload header is the
/// one returned. `None`, and nothing done, where `buffer` has no Ethernet header behind the spare bytes.
pub fn restore_tag(buffer: &mut [u8], tag: Tag, vnet: VnetHeader) -> Option<VnetHeader> {
    let head = buffer.get_mut(..TAG_LEN + HEADER_LEN)?;
    head.copy_within(TAG_LEN..TAG_LEN + 12, 0);
    crate::put16(head, 12, tag.tpid);
    crate::put16(head, 14, tag.tci);
    Some(vnet.shifted(TAG_LEN as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnet::NEEDS_CSUM;

    #[test]
    fn a_restored_tag_stands_behind_the_addresses() {
        let mut buffer = *b"....DDDDDDSSSSSS\x08\x00E";
        let vnet = VnetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 16, ..VnetHeader::default() };
        let moved = restore_tag(&mut buffer, Tag { tpid: 0x8100, tci: 0x2007 }, vnet).unwrap();
        assert_eq!(&buffer, b"DDDDDDSSSSSS\x81\x00\x20\x07\x08\x00E");
        assert_eq!(moved.csum_start, 38);
        assert_eq!(restore_tag(&mut [0; 17], Tag { tpid: 0x8100, tci: 7 }, vnet), None);
    }
}
