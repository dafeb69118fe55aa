//! What a comparison keeps and does at most, by the length of the captures.
//!
//! A few bytes can stand for millions of flows and of wire packets (compression, dictionaries, what a row says of its super-packet). Those of
//! real packets cannot: beyond what such files hold nothing is kept.

/// Directions of flows that captures of any length have room for, and memory for each at most, in all that is made of both captures.
const PATHS_SURE: u64 = 1 << 16;
const PATH_BYTES: u64 = 1 << 10;
/// One direction more for so many bytes of both captures: compressed, a packet takes as many at both points, if only for its addresses, ports,
/// number and time.
const BYTES_OF_A_PATH: u64 = 16;
/// Wire packets that captures of any length may stand for: seconds of work.
const WIRE_PACKETS_SURE: u64 = 1 << 23;
/// So many more for each byte of both captures. A super-packet of 512 KiB (BIG TCP) stands for 362 segments of 1,448 bytes, and takes more
/// than 22 bytes at both points, if only for its numbers, its time and its acknowledgment.
const WIRE_PACKETS_OF_A_BYTE: u64 = 16;
/// Wire packets of a point that are held, of captures of any length; one more for each byte of both captures; and at most: 1.8 s at a million a
/// second, and some 120 MB where all of them wait. A few more, and the table of those that wait would take twice the memory.
const HELD_SURE: u64 = (1 << 18) / 8 * 7;
const HELD_MOST: u64 = (1 << 21) / 8 * 7 - 4_096;

/// Bounds of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Directions of flows that are kept, those that come first. Packets of others are counted, and nothing is told of them.
    pub paths: usize,
    /// Wire packets that either capture may stand for. One of more is refused.
    pub wire_packets: u64,
    /// Wire packets of either capture that are held until they pass the other point. Of more the oldest are given up.
    pub held: usize,
}

impl Bounds {
    /// For two captures whose files have so many bytes together.
    pub fn for_bytes(bytes: u64) -> Self {
        // Paths are numbered in 32 bits.
        let paths = (PATHS_SURE + bytes / BYTES_OF_A_PATH).min(u32::MAX.into());
        let wire_packets = bytes.saturating_mul(WIRE_PACKETS_OF_A_BYTE).saturating_add(WIRE_PACKETS_SURE);
        let held = bytes.saturating_add(HELD_SURE).min(HELD_MOST);
        Self { paths: paths as usize, wire_packets, held: held as usize }
    }

    /// The same with directions in no more than `bytes` of memory, or what captures of any length have.
    pub fn in_memory(self, bytes: u64) -> Self {
        let paths = (bytes / PATH_BYTES).clamp(PATHS_SURE, u32::MAX.into());
        Self { paths: self.paths.min(paths as usize), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_length_of_the_files() {
        let none = Bounds::for_bytes(0);
        assert_eq!(none, Bounds { paths: 65_536, wire_packets: 8_388_608, held: 229_376 });
        // 10 GB of headers of 80 bytes, each packet of a flow of its own and at both points: there is room for all of them.
        let most = Bounds::for_bytes(20_000_000_000);
        assert!(most.paths > 10_000_000_000 / 80 && most.wire_packets > 362 * 10_000_000_000 / 80);
        assert_eq!(most.held, 1_830_912);
        let endless = Bounds { paths: u32::MAX as usize, wire_packets: u64::MAX, held: 1_830_912 };
        assert_eq!(Bounds::for_bytes(u64::MAX), endless);
        // In as much memory as a machine has.
        assert_eq!(most.in_memory(1 << 30), Bounds { paths: 1 << 20, ..most });
        assert_eq!((most.in_memory(0).paths, none.in_memory(u64::MAX)), (65_536, none));
    }
}
