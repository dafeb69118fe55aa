//! The Internet checksum (RFC 1071) with its pseudo headers (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1), and CRC32c for SCTP
//! (RFC 9260 appendix A).

use crate::{be16, be32};

/// A ones' complement sum of 16-bit words in the making, not yet folded nor inverted.
///
/// Parts may be added in any order. A part of odd length counts as padded with a zero byte (RFC 1071 §1), so only the last
/// part of a packet may be odd.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed yet.
    pub const ZERO: Self = Self(0);

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds a 32-bit number as two words.
    #[must_use]
    pub const fn add_u32(self, value: u32) -> Self {
        Self(self.0 + (value >> 16) as u64 + (value & 0xffff) as u64)
    }

    /// Takes a 32-bit number away: ones' complement subtraction is adding the inverse.
    #[must_use]
    pub const fn sub_u32(self, value: u32) -> Self {
        self.add_u32(!value)
    }

    /// Adds the words of `bytes`.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        // The sum does not depend on the byte order (RFC 1071 §2 B): words are added as the machine reads them, four bytes at
        // a time, and the result is swapped once. 64 bits hold the carries of 2^32 such words.
        let mut chunks = bytes.chunks_exact(4);
        let mut sum = 0_u64;
        for chunk in &mut chunks {
            sum += u64::from(u32::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
        }
        let mut last = [0; 4];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
        self.add_u16(u16::from_be(fold(sum)))
    }

    /// The sum in 16 bits, not inverted: what a checksum field holds under `NEEDS_CSUM`.
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }

    /// The checksum: the folded sum, inverted.
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The pseudo header of an upper-layer packet of `length` bytes over IPv4.
///
/// `length` has 32 bits because that of a BIG TCP super-packet does not fit 16; on a wire it does.
pub fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u32) -> Sum {
    Sum::ZERO
        .add_u32(u32::from_be_bytes(source))
        .add_u32(u32::from_be_bytes(destination))
        .add_u16(u16::from(protocol))
        .add_u32(length)
}

/// The pseudo header of an upper-layer packet of `length` bytes over IPv6. `destination` is the last one, which with a routing
/// header is not that of the IPv6 header.
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, length: u32) -> Sum {
    Sum::ZERO.add_bytes(&source).add_bytes(&destination).add_u16(u16::from(protocol)).add_u32(length)
}

/// Completes the checksum of `frame` as `NEEDS_CSUM` asks: sums from `start` to the end and writes the inverse at
/// `start + offset`, where the pseudo header's sum lies. `None`, and nothing written, where the field is outside.
///
/// 0 becomes 0xffff, which is the same number in ones' complement, because 0 means "no checksum" to UDP (RFC 768).
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let field = start.checked_add(offset)?;
    let checksum = match Sum::ZERO.add_bytes(frame.get(start..)?).checksum() {
        0 => 0xffff,
        checksum => checksum,
    };
    frame.get_mut(field..field.checked_add(2)?)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// CRC32c (Castagnoli) of `bytes`, as SCTP computes it; it goes into the packet in little-endian order.
///
/// By the CPU's own instruction where it has one: with tables it would be a third of all that a capture costs.
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// The CRC32c of what has the CRC32c `before`, with `bytes` behind it.
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(before, bytes)
}

/// The pseudo header of the IP packet whose header starts `ip`, 4 or 6 as its version says. `ip` holds the whole fixed header.
pub(crate) fn pseudo_of(ip: &[u8], protocol: u8, length: u32) -> Sum {
    if ip[0] >> 4 == 4 {
        Sum::ZERO.add_u32(be32(ip, 12)).add_u32(be32(ip, 16)).add_u16(u16::from(protocol)).add_u32(length)
    } else {
        Sum::ZERO.add_bytes(&ip[8..40]).add_u16(u16::from(protocol)).add_u32(length)
    }
}

/// Computes the checksum of an IPv4 header anew, in place. `header` is the header alone.
pub(crate) fn fill_ipv4(header: &mut [u8]) {
    let sum = Sum::ZERO.add_bytes(header).sub_u32(u32::from(be16(header, 10)));
    crate::put16(header, 10, sum.checksum());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 §3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.add_bytes(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::ZERO.add_bytes(&bytes).checksum(), 0x220d);
        assert_eq!(Sum::ZERO.add_bytes(&bytes[..7]).fold(), 0xddf2 - 0xf7);
    }

    #[test]
    fn an_ipv4_header_of_a_real_packet() {
        let mut header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x12, 0x34, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
            0x00, 0xc7,
        ];
        fill_ipv4(&mut header);
        assert_eq!(be16(&header, 10), 0xb861);
    }

    /// RFC 9260 refers to the check value of CRC-32/ISCSI.
    #[test]
    fn crc32c_of_the_nine_digits() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// As the definition has it, bit by bit, at every length and alignment that instructions of eight bytes could get wrong.
    #[test]
    fn crc32c_as_its_polynomial_says() {
        let bytes: Vec<u8> = (0..2100_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (from, to) in
            (0..9).flat_map(|from| [0, 1, 7, 8, 63, 255, 256, 1031, 2050].map(|length| (from, from + length)))
        {
            let bitwise = bytes[from..to].iter().fold(!0_u32, |crc, &byte| {
                (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
            });
            assert_eq!(crc32c(&bytes[from..to]), !bitwise, "{from}..{to}");
            let (first, second) = bytes[from..to].split_at((to - from) / 3);
            assert_eq!(crc32c_append(crc32c(first), second), !bitwise, "{from}..{to}");
        }
    }

    #[test]
    fn completing_outside_of_the_frame_does_nothing() {
        let mut frame = [1; 20];
        assert_eq!(complete(&mut frame, 10, 9), None);
        assert_eq!(complete(&mut frame, 21, 0), None);
        assert_eq!(complete(&mut frame, usize::MAX, 2), None);
        assert_eq!(frame, [1; 20]);
        assert_eq!(complete(&mut frame, 10, 8), Some(()));
    }

    proptest::proptest! {
        #[test]
        fn the_sum_equals_its_naive_twin(bytes: Vec<u8>) {
            let mut naive = 0_u64;
            for pair in bytes.chunks(2) {
                naive += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
                naive = (naive & 0xffff) + (naive >> 16);
            }
            assert_eq!(u64::from(Sum::ZERO.add_bytes(&bytes).fold()), naive);
        }

        #[test]
        fn subtraction_undoes_addition(start: u16, value: u32) {
            let there_and_back = Sum::ZERO.add_u16(start).add_u32(value).sub_u32(value).fold();
            // 0 and 0xffff are the same number.
            assert_eq!(there_and_back % 0xffff, start % 0xffff);
        }
    }
}
