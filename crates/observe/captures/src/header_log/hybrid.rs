//! Parquet's hybrid of run lengths and packed bits: how levels and places in a dictionary are written.
//!
//! ```text
//! a run:        | length << 1, a varint       | the value in whole bytes |
//! packed bits:  | groups << 1 | 1, a varint   | 8 values a group, the first in the lowest bits |
//! ```
//!
//! Source: `Encodings.md` of apache/parquet-format, "Run Length Encoding / Bit-Packing Hybrid (RLE = 3)".

/// Values that are packed together.
const GROUP: usize = 8;
/// Groups of one stretch of packed bits, at most: its header then takes one byte, as other writers have it.
const GROUPS_MOST: usize = 63;

/// Bits that the values 0 to `most` take.
pub(super) fn bits_for(most: u32) -> u32 {
    u32::BITS - most.leading_zeros()
}

/// Appends `values` to `out`, each of which has no more than `bits` bits, at most 32.
pub(super) fn encode<T: Copy + PartialEq>(values: &[T], bits: u32, number: impl Fn(T) -> u32, out: &mut Vec<u8>) {
    let (mut at, mut packed_from) = (0, 0);
    while let Some(first) = values.get(at).copied() {
        let run = values[at..].iter().take_while(|value| **value == first).count();
        if run >= GROUP {
            pack(&values[packed_from..at], bits, &number, out);
            varint((run as u32) << 1, out);
            out.extend(&number(first).to_le_bytes()[..bits.div_ceil(8) as usize]);
            at += run;
            packed_from = at;
        } else {
            at = values.len().min(at + GROUP);
            if at - packed_from == GROUP * GROUPS_MOST {
                pack(&values[packed_from..at], bits, &number, out);
                packed_from = at;
            }
        }
    }
    pack(&values[packed_from..], bits, &number, out);
}

/// Whole groups of packed bits; what the last lacks is zeros.
fn pack<T: Copy>(values: &[T], bits: u32, number: impl Fn(T) -> u32, out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    varint((values.len().div_ceil(GROUP) as u32) << 1 | 1, out);
    for group in values.chunks(GROUP) {
        let (mut word, mut filled) = (0_u64, 0);
        for nth in 0..GROUP {
            word |= u64::from(group.get(nth).map_or(0, |value| number(*value))) << filled;
            filled += bits;
            if filled >= 32 {
                out.extend((word as u32).to_le_bytes());
                word >>= 32;
                filled -= 32;
            }
        }
        out.extend(&word.to_le_bytes()[..(filled / 8) as usize]);
    }
}

fn varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(values: &[u32], bits: u32) -> Vec<u8> {
        let mut out = Vec::new();
        encode(values, bits, |value| value, &mut out);
        out
    }

    /// The example of the specification: 0 to 7 in three bits are 10001000 11000110 11111010.
    #[test]
    fn the_specifications_example() {
        assert_eq!(encoded(&[0, 1, 2, 3, 4, 5, 6, 7], 3), [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
    }

    #[test]
    fn runs_are_told_from_packed_bits() {
        assert_eq!(encoded(&[300; 100], 9), [0xc8, 0x01, 0x2c, 0x01]);
        assert_eq!(encoded(&[0; 100], 0), [0xc8, 0x01]);
        // Too short for a run, and its end padded.
        assert_eq!(encoded(&[1; 7], 1), [0b11, 0b0111_1111]);
        assert_eq!(encoded(&[], 1), [0; 0]);
    }

    #[test]
    fn no_stretch_of_packed_bits_has_a_header_of_two_bytes() {
        let alternating: Vec<u32> = (0..1024).map(|nth| nth & 1).collect();
        let out = encoded(&alternating, 1);
        assert_eq!((out[0], out[64], out[128]), (127, 127, 5));
        assert_eq!(out.len(), 128 + 3);
    }

    #[test]
    fn bits_of_the_greatest_value() {
        assert_eq!([0, 1, 2, 255, 256, u32::MAX].map(bits_for), [0, 1, 2, 8, 9, 32]);
    }
}
