//! Flipping a bit, as a noisy line does.

use crate::ethernet::{Frame, HEADER_LEN};

/// Flips one bit behind the link layer (Ethernet and its VLAN tags) of a stand-alone frame, so that the damage is for the
/// receiver's IP, TCP or UDP checksum to find. On a real line the FCS would find all of it.
///
/// `random` chooses the bit, each alike but for one part in 2⁶⁴ by the number of bits. Returns which bit of the frame it was
/// (bit 0 is the highest of byte 0), `None` where there is nothing behind the link layer.
///
/// The frame's checksum must be complete ([`Segmenter::segment_whole`](crate::Segmenter::segment_whole)): under `NEEDS_CSUM`
/// it would be computed over the damage, and the receiver would take the packet as good.
pub fn flip_bit(frame: &mut [u8], random: u64) -> Option<u64> {
    let start =
        Frame::new_checked(&*frame).and_then(|view| view.network()).map_or(HEADER_LEN, |network| network.offset);
    let bits = frame.len().checked_sub(start)? as u64 * 8;
    let bit = start as u64 * 8 + random.checked_rem(bits)?;
    frame[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    Some(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn exactly_one_bit_behind_the_link_layer_differs(before: Vec<u8>, random: u64) {
            let mut after = before.clone();
            let flipped = flip_bit(&mut after, random);
            let differing: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(differing, u32::from(flipped.is_some()));
            assert_eq!(flipped.is_some(), before.len() > HEADER_LEN);
            assert!(flipped.is_none_or(|bit| bit >= 112));
        }
    }

    #[test]
    fn tags_stay_as_they_are() {
        let mut frame = [0; 19];
        frame[12] = 0x81;
        frame[16] = 0x08;
        assert_eq!(flip_bit(&mut frame, 15), Some(18 * 8 + 7));
        assert_eq!(frame[18], 1);
        assert_eq!(flip_bit(&mut frame[..18], 15), None);
    }
}
