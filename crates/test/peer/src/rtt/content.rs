//! What a probe without a server has as payload.
//!
//! ```text
//!  0             8              16               24           26
//! ┌─────────────┬──────────────┬────────────────┬────────────┬─ ─ ─
//! │ magic       │ number       │ program's time │ complement │ zeros
//! └─────────────┴──────────────┴────────────────┴────────────┴─ ─ ─
//! ```
//!
//! The complement keeps the checksum of all probes the same: routers that share load by flow hash it, too, where it is among the first four
//! bytes (ICMP). Source: Augustin et al., "Avoiding traceroute anomalies with Paris traceroute", IMC 2006.

use longhaul_kernel::udp::SuperPacket;
use longhaul_rtt::RttParameters;
use longhaul_wire::checksum::Sum;

use super::probing::{kernel_stamp, read_behind_headers};

/// Bytes up to the complement.
const NUMBERS: usize = 24;
/// Bytes up to the zeros.
const LEAST: usize = NUMBERS + 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sequence: u64,
    pub(super) program_ns: u64,
}

impl Content {
    /// Writes it into `payload`. `beside`: what else changes from probe to probe and is part of the checksum.
    pub(super) fn emit(self, magic: [u8; 8], beside: u16, payload: &mut [u8]) {
        let numbers = [magic, self.sequence.to_be_bytes(), self.program_ns.to_be_bytes()].concat();
        let complement = Sum::default().add_u16(beside).add_bytes(&numbers).checksum();
        if let Some(place) = payload.get_mut(..LEAST) {
            place[..NUMBERS].copy_from_slice(&numbers);
            place[NUMBERS..].copy_from_slice(&complement.to_be_bytes());
        }
    }

    /// Reads it. `None`: of others, or cut.
    pub(super) fn parse(magic: [u8; 8], payload: &[u8]) -> Option<Self> {
        let number = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        (payload.first_chunk() == Some(&magic)).then_some(())?;
        Some(Self { sequence: number(8)?, program_ns: number(16)? })
    }
}

/// `packet` is the kernel's copy of a sent probe: the number of that probe, and when the kernel sent it.
pub(super) fn sent_stamp(packet: &SuperPacket<'_>, magic: [u8; 8], asked: &RttParameters) -> Option<(u64, i64)> {
    sent_number(packet, magic, asked).zip(kernel_stamp(packet))
}

/// `packet` is the kernel's copy of a sent probe: the number of that probe.
pub(super) fn sent_number(packet: &SuperPacket<'_>, magic: [u8; 8], asked: &RttParameters) -> Option<u64> {
    let parse = |payload: &[u8]| Content::parse(magic, payload).map(|content| (content.sequence, content.sequence));
    read_behind_headers(packet.bytes, asked, parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_others_has_no_content() {
        let mut payload = [0; 40];
        let content = Content { sequence: 70_000, program_ns: 5 };
        content.emit([7; 8], 0, &mut payload);
        assert_eq!(Content::parse([7; 8], &payload), Some(content));
        assert_eq!(Content::parse([8; 8], &payload), None);
        assert_eq!(Content::parse([7; 8], &payload[..23]), None);
    }

    #[test]
    fn all_probes_have_one_checksum() {
        let checksum = |sequence: u64, program_ns: u64| {
            let mut payload = [0; 64];
            Content { sequence, program_ns }.emit([9, 1, 2, 3, 4, 5, 6, 7], sequence as u16, &mut payload);
            Sum::default().add_u16(sequence as u16).add_bytes(&payload).checksum()
        };
        let first = checksum(0, 1);
        assert!((1..2_000).all(|at| checksum(at * 77, 1 << 40 | at << 13) == first));
    }
}
