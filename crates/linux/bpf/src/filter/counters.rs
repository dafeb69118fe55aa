//! The counters of the program: `struct filter_counters` in `intf.h`, summed over the CPUs.

use serde::Serialize;

use super::{Cast, Class, Reason, SizeRange};

/// `struct tally`.
const TALLY_BYTES: usize = 16;
const PROTOCOLS: usize = Class::ALL.len() * Cast::ALL.len() * 2;
const SIZES: usize = SizeRange::ALL.len() * 2;
const TABLES: usize = PROTOCOLS + SIZES + Reason::ALL.len();
/// `enum filter_plain`: each stands for a row of the classes, of the sizes and of the reasons.
const PLAIN: [Class; 4] = [Class::Ipv4Tcp, Class::Ipv4Udp, Class::Ipv6Tcp, Class::Ipv6Udp];
/// Words: behind the tables three numbers, and `struct filter_recent`.
const PLAIN_AT: usize = 2 * TABLES + 3 + 5;
/// Its size.
pub(super) const COUNTERS_BYTES: usize = 8 * PLAIN_AT + TALLY_BYTES * PLAIN.len() * SizeRange::ALL.len();

/// Frames, and their bytes without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Bytes of these frames, without FCS.
    pub bytes: u64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// Accepted and rejected frames of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdicts {
    /// Accepted frames: they pass.
    pub accepted: Tally,
    /// Rejected frames: dropped while the filter enforces.
    pub rejected: Tally,
}

impl Verdicts {
    /// Both together.
    pub fn all(self) -> Tally {
        self.accepted.plus(self.rejected)
    }

    #[must_use]
    fn plus(self, other: Self) -> Self {
        Self { accepted: self.accepted.plus(other.accepted), rejected: self.rejected.plus(other.rejected) }
    }
}

/// Every frame that arrived since the filter was attached. Each table has each frame once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCounters {
    tallies: Vec<Tally>,
    /// Rejected frames that were dropped.
    pub dropped_packets: u64,
    /// Samples of rejected frames that nobody read in time.
    pub lost_samples: u64,
}

impl FilterCounters {
    /// The sum of the program's counters, one block of bytes for each CPU.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(super) fn sum<'a>(cpus: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut tallies = vec![Tally::default(); TABLES];
        let (mut dropped_packets, mut lost_samples) = (0, 0);
        for bytes in cpus {
            let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            for (tally, pair) in tallies.iter_mut().zip(words.as_chunks::<2>().0) {
                *tally = tally.plus(Tally { packets: pair[0], bytes: pair[1] });
            }
            dropped_packets += words.get(2 * TABLES).copied().unwrap_or_default();
            lost_samples += words.get(2 * TABLES + 1).copied().unwrap_or_default();
            let plain = words.get(PLAIN_AT..).unwrap_or_default().as_chunks::<2>().0;
            for (number, &[packets, bytes]) in plain.iter().enumerate() {
                let Some(class) = PLAIN.get(number / SizeRange::ALL.len()) else { break };
                let rows = [
                    protocol_at(*class, Cast::Unicast),
                    size_at(number % SizeRange::ALL.len()),
                    reason_at(Reason::OurUnicast),
                ];
                rows.into_iter().for_each(|row| tallies[row] = tallies[row].plus(Tally { packets, bytes }));
            }
        }
        Self { tallies, dropped_packets, lost_samples }
    }

    /// Frames of one protocol and destination.
    pub fn protocol(&self, class: Class, cast: Cast) -> Verdicts {
        self.verdicts(protocol_at(class, cast))
    }

    /// Frames of one protocol.
    pub fn class(&self, class: Class) -> Verdicts {
        Cast::ALL.iter().fold(Verdicts::default(), |sum, cast| sum.plus(self.protocol(class, *cast)))
    }

    /// Frames of one kind of destination.
    pub fn cast(&self, cast: Cast) -> Verdicts {
        Class::ALL.iter().fold(Verdicts::default(), |sum, class| sum.plus(self.protocol(*class, cast)))
    }

    /// Frames of the range `SizeRange::ALL[index]`.
    pub fn size(&self, index: usize) -> Verdicts {
        self.verdicts(size_at(index.min(SizeRange::ALL.len() - 1)))
    }

    /// Frames with one reason.
    pub fn reason(&self, reason: Reason) -> Tally {
        self.tallies[reason_at(reason)]
    }

    /// All frames.
    pub fn total(&self) -> Verdicts {
        Cast::ALL.iter().fold(Verdicts::default(), |sum, cast| sum.plus(self.cast(*cast)))
    }

    fn verdicts(&self, at: usize) -> Verdicts {
        Verdicts { accepted: self.tallies[at], rejected: self.tallies[at + 1] }
    }
}

/// The index of a tally; that of rejected frames follows.
fn protocol_at(class: Class, cast: Cast) -> usize {
    (class as usize * Cast::ALL.len() + cast as usize) * 2
}

fn size_at(index: usize) -> usize {
    PROTOCOLS + index * 2
}

fn reason_at(reason: Reason) -> usize {
    PROTOCOLS + SIZES + reason as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_add_up_and_each_number_has_its_place() {
        let cpu: Vec<u8> = (0..COUNTERS_BYTES as u64 / 8).flat_map(u64::to_ne_bytes).collect();
        let counters = FilterCounters::sum([&cpu[..], &cpu]);
        // ARP is class 9, broadcast cast 2, rejected 1: tally (9 * 3 + 2) * 2 + 1, words twice that.
        let tally = counters.protocol(Class::Arp, Cast::Broadcast).rejected;
        assert_eq!(tally, Tally { packets: 2 * 118, bytes: 2 * 119 });
        assert_eq!(counters.size(0).rejected.packets, 2 * 2 * 121);
        assert_eq!(counters.reason(Reason::PortClosed).packets, 2 * 2 * 162);
        assert_eq!((counters.dropped_packets, counters.lost_samples), (2 * 326, 2 * 327));
        // Plain ones are the last 28 tallies, from word 334 on: four classes of seven sizes.
        let plain = |class: u64, size: u64| 334 + 2 * (7 * class + size);
        let of_class: u64 = (0..7).map(|size| plain(1, size)).sum();
        assert_eq!(counters.protocol(Class::Ipv4Udp, Cast::Unicast).accepted.packets, 2 * (2 * 6 + of_class));
        let of_size: u64 = (0..4).map(|class| plain(class, 6)).sum();
        assert_eq!(counters.size(6).accepted.packets, 2 * (2 * (120 + 12) + of_size));
        let all: u64 = (0..28).map(|at| plain(0, at)).sum();
        assert_eq!(counters.reason(Reason::OurUnicast).packets, 2 * (2 * 134 + all));
        let sum = Class::ALL.iter().map(|class| counters.class(*class).all().packets).sum::<u64>();
        assert_eq!(counters.total().all().packets, sum);
    }
}
