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
/// Wire packets that a capture of any length may stand for. Each takes some 0.8 µs where none passes the other point.
const WIRE_PACKETS_SURE: u64 = 1 << 21;
/// Five more for each two of a capture's first bytes: two captures of 1 MB take some eight seconds, whatever they say. The longest super-packet
/// (BIG TCP) stands for 363 segments of 1,448 bytes, and takes 112 bytes of a pcap file with 96 of each packet: there is room for 1 MB of them.
const FIRST_BYTES: u64 = 1 << 20;
/// So many more for each later byte. In a header log a super-packet takes more than 11 bytes, if only for its numbers, its time and its
/// acknowledgment: one of 64 KB stands for 4 wire packets a byte, one of 192 KB for 12. In a pcap file, the longest one of segments of 536 bytes
/// stands for 9.
const WIRE_PACKETS_OF_A_LATER_BYTE: u64 = 16;
/// A packet of TCP or UDP counts with no more bytes: headers, options, and those that say when it passed. All else in a file, such as payload
/// and frames of other protocols, stands for no wire packets.
const BYTES_OF_A_PACKET: u64 = 128;
/// Wire packets of a point that are held, of captures of any length; one more for each byte of both captures; and at most: 1.8 s at a million a
/// second, and some 155 MB where all of them wait, 260 MB if they are plain datagrams. A few more, and the table of those that wait would take
/// twice the memory: so there is room for those of one super-packet, at most 14,564.
const HELD_SURE: u64 = (1 << 18) / 8 * 7;
const HELD_MOST: u64 = (1 << 21) / 8 * 7 - (1 << 14);

/// Bounds of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Directions of flows that are kept, those that come first. Packets of others are counted, and nothing is told of them.
    pub paths: usize,
    /// Wire packets that A and that B may stand for. A capture of more is refused.
    pub wire_packets: [u64; 2],
    /// Wire packets of either capture that are held until they pass the other point. Of more the oldest are given up.
    pub held: usize,
}

/// Wire packets that a capture of so many bytes may stand for.
fn wire_packets_of(bytes: u64) -> u64 {
    let first = bytes.min(FIRST_BYTES);
    let later = (bytes - first).saturating_mul(WIRE_PACKETS_OF_A_LATER_BYTE);
    later.saturating_add(WIRE_PACKETS_SURE + first * 5 / 2)
}

impl Bounds {
    /// For two captures whose files have so many bytes: all files of A, and all files of B.
    pub fn for_bytes(bytes: [u64; 2]) -> Self {
        let both = bytes[0].saturating_add(bytes[1]);
        // Paths are numbered in 32 bits.
        let paths = (PATHS_SURE + both / BYTES_OF_A_PATH).min(u32::MAX.into());
        let held = both.saturating_add(HELD_SURE).min(HELD_MOST);
        Self { paths: paths as usize, wire_packets: bytes.map(wire_packets_of), held: held as usize }
    }

    /// The same for A and B of so many packets of TCP and UDP.
    pub(super) fn for_packets(self, packets: [u64; 2]) -> Self {
        let [a, b] = packets.map(|packets| wire_packets_of(packets.saturating_mul(BYTES_OF_A_PACKET)));
        Self { wire_packets: [self.wire_packets[0].min(a), self.wire_packets[1].min(b)], ..self }
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
        let none = Bounds::for_bytes([0; 2]);
        assert_eq!(none, Bounds { paths: 65_536, wire_packets: [2_097_152; 2], held: 229_376 });
        // 10 GB of headers of 80 bytes, each packet of a flow of its own and at both points: there is room for all of them.
        let most = Bounds::for_bytes([10_000_000_000; 2]);
        assert!(most.paths > 10_000_000_000 / 80 && most.wire_packets[0] > 363 * 10_000_000_000 / 80);
        assert_eq!(most.held, 1_818_624);
        let endless = Bounds { paths: u32::MAX as usize, wire_packets: [u64::MAX; 2], held: 1_818_624 };
        assert_eq!(Bounds::for_bytes([u64::MAX; 2]).for_packets([u64::MAX; 2]), endless);
        // In as much memory as a machine has.
        assert_eq!(most.in_memory(1 << 30), Bounds { paths: 1 << 20, ..most });
        assert_eq!((most.in_memory(0).paths, none.in_memory(u64::MAX)), (65_536, none));
    }

    /// A capture has what its own bytes allow, and of these those of its packets alone.
    #[test]
    fn a_capture_stands_for_what_its_own_packets_can() {
        let megabyte = Bounds::for_bytes([999_000, 0]);
        assert_eq!(megabyte.wire_packets, [4_594_652, 2_097_152]);
        // The longest super-packets, of segments of 1,448 bytes, with 96 bytes of each captured.
        let packets = 999_000 / (16 + 96);
        assert_eq!(megabyte.for_packets([packets, 0]), megabyte);
        assert!(packets * 524_280_u64.div_ceil(1_448) < 4_594_652);
        // Most of the file is something else.
        assert_eq!(megabyte.for_packets([1_000, 0]).wire_packets, [2_417_152, 2_097_152]);
        // Header logs, of 11 bytes a row: of 64 KB in any, of 192 KB in a long one.
        let log = |bytes: u64| Bounds::for_bytes([bytes; 2]).for_packets([bytes / 11; 2]).wire_packets[0];
        for bytes in [500_000, 1_000_000, 1_250_000, 100_000_000] {
            assert!(log(bytes) > bytes / 11 * 46, "{bytes}");
        }
        assert!(log(100_000_000) > 100_000_000 / 11 * 136);
    }
}
