//! What a comparison keeps and does at most, by the length of the captures.
//!
//! A few bytes can stand for millions of flows and of wire packets (compression, dictionaries, what a row says of its super-packet). Those of
//! real packets cannot: beyond what such files hold nothing is kept.

/// Directions of flows that captures of any length have room for. Each takes 1 KiB at most, in all that is made of both captures.
const PATHS_SURE: u64 = 1 << 18;
/// One direction more for so many bytes of both captures: compressed, a packet takes as many at both points, if only for its addresses, ports,
/// number and time.
const BYTES_OF_A_PATH: u64 = 16;
/// Wire packets that captures of any length may stand for: seconds of work.
const WIRE_PACKETS_SURE: u64 = 1 << 25;
/// So many more for each byte of both captures. A super-packet of 512 KiB (BIG TCP) stands for 362 segments of 1,448 bytes, and takes more
/// than 3 bytes in any form.
const WIRE_PACKETS_OF_A_BYTE: u64 = 128;

/// Bounds of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Directions of flows that are kept, those that come first. Packets of others are counted, and nothing is told of them.
    pub paths: usize,
    /// Wire packets that either capture may stand for. One of more is refused.
    pub wire_packets: u64,
}

impl Bounds {
    /// For two captures whose files have so many bytes together.
    pub fn for_bytes(bytes: u64) -> Self {
        // Paths are numbered in 32 bits.
        let paths = (PATHS_SURE + bytes / BYTES_OF_A_PATH).min(u32::MAX.into());
        let wire_packets = bytes.saturating_mul(WIRE_PACKETS_OF_A_BYTE).saturating_add(WIRE_PACKETS_SURE);
        Self { paths: paths as usize, wire_packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_length_of_the_files() {
        assert_eq!(Bounds::for_bytes(0), Bounds { paths: 262_144, wire_packets: 33_554_432 });
        // 10 GB of headers of 80 bytes, each packet of a flow of its own and at both points: there is room for all of them.
        let most = Bounds::for_bytes(20_000_000_000);
        assert!(most.paths > 10_000_000_000 / 80 && most.wire_packets > 362 * 10_000_000_000 / 80);
        assert_eq!(Bounds::for_bytes(u64::MAX), Bounds { paths: u32::MAX as usize, wire_packets: u64::MAX });
    }
}
