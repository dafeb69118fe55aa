//! What the program counted: `struct filter_counters` in `intf.h`, summed over the CPUs.

use super::{Cast, Class, Reason, SizeRange};

/// `struct tally`.
const TALLY_BYTES: usize = 16;
const PROTOCOLS: usize = Class::ALL.len() * Cast::ALL.len() * 2;
const SIZES: usize = SizeRange::ALL.len() * 2;
/// Its size, but for what it keeps for itself at its end.
pub(super) const COUNTERS_BYTES: usize = TALLY_BYTES * (PROTOCOLS + SIZES + Reason::ALL.len()) + 24;

/// Frames and their bytes, without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// They pass.
    pub accepted: Tally,
    /// They are dropped, where the filter enforces.
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

/// Every frame that came since the filter was attached, counted once in each table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCounters {
    tallies: Vec<Tally>,
    /// Frames that were dropped: those rejected while it enforced.
    pub dropped_packets: u64,
    /// Samples of rejected frames that nobody took in time.
    pub lost_samples: u64,
}

impl FilterCounters {
    /// Of the program's bytes, one block a CPU.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(super) fn sum<'a>(cpus: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut tallies = vec![Tally::default(); PROTOCOLS + SIZES + Reason::ALL.len()];
        let (mut dropped_packets, mut lost_samples) = (0, 0);
        for bytes in cpus {
            let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            for (tally, pair) in tallies.iter_mut().zip(words.as_chunks::<2>().0) {
                *tally = tally.plus(Tally { packets: pair[0], bytes: pair[1] });
            }
            dropped_packets += words.get(2 * tallies.len()).copied().unwrap_or_default();
            lost_samples += words.get(2 * tallies.len() + 1).copied().unwrap_or_default();
        }
        Self { tallies, dropped_packets, lost_samples }
    }

    /// Of one class and cast.
    pub fn protocol(&self, class: Class, cast: Cast) -> Verdicts {
        self.verdicts((class as usize * Cast::ALL.len() + cast as usize) * 2)
    }

    /// Of one class.
    pub fn class(&self, class: Class) -> Verdicts {
        Cast::ALL.iter().fold(Verdicts::default(), |sum, cast| sum.plus(self.protocol(class, *cast)))
    }

    /// Of one cast.
    pub fn cast(&self, cast: Cast) -> Verdicts {
        Class::ALL.iter().fold(Verdicts::default(), |sum, class| sum.plus(self.protocol(*class, cast)))
    }

    /// Of the range with number `index` in [`SizeRange::ALL`].
    pub fn size(&self, index: usize) -> Verdicts {
        self.verdicts(PROTOCOLS + index.min(SizeRange::ALL.len() - 1) * 2)
    }

    /// Of one reason.
    pub fn reason(&self, reason: Reason) -> Tally {
        self.tallies[PROTOCOLS + SIZES + reason as usize]
    }

    /// All.
    pub fn total(&self) -> Verdicts {
        Cast::ALL.iter().fold(Verdicts::default(), |sum, cast| sum.plus(self.cast(*cast)))
    }

    fn verdicts(&self, at: usize) -> Verdicts {
        Verdicts { accepted: self.tallies[at], rejected: self.tallies[at + 1] }
    }
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
        assert_eq!(counters.size(0).accepted.packets, 2 * 2 * 120);
        assert_eq!(counters.reason(Reason::OurUnicast).packets, 2 * 2 * 134);
        assert_eq!(counters.reason(Reason::PortClosed).packets, 2 * 2 * 162);
        assert_eq!((counters.dropped_packets, counters.lost_samples), (2 * 326, 2 * 327));
        let sum = Class::ALL.iter().map(|class| counters.class(*class).all().packets).sum::<u64>();
        assert_eq!(counters.total().all().packets, sum);
    }
}
