//! The ledger of a capture: every packet that was seen was written, or dropped at a place that is named.
//!
//! `seen = written + Σ dropped`, for any part of a capture. Gaps say when packets were dropped, so that an analysis can leave those
//! times out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Gaps that one ledger keeps at most; further ones are joined with the last of their place.
pub const MAX_GAPS: usize = 100_000;

/// Where a packet was dropped that should have been recorded, in the order in which it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DroppedAt {
    /// The NIC had no buffer: the kernel never saw the packet, so packets that the filter would leave out count, too.
    Nic,
    /// The ring was full because the reading thread was too slow.
    KernelRing,
    /// The ring was full because the reading thread waited for the writing thread, and that for the disk.
    Writer,
    /// The disk was full, or could not be written.
    Disk,
    /// Lost between this host and the logging host.
    LogLink,
}

impl DroppedAt {
    /// All, in order.
    pub const ALL: [Self; 5] = [Self::Nic, Self::KernelRing, Self::Writer, Self::Disk, Self::LogLink];

    /// Its form in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nic => "nic",
            Self::KernelRing => "kernel_ring",
            Self::Writer => "writer",
            Self::Disk => "disk",
            Self::LogLink => "log_link",
        }
    }
}

/// A time in which packets were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Where.
    pub place: DroppedAt,
    /// Index of the interface, from 0; `None` if unknown.
    pub interface: Option<u16>,
    /// No packet was dropped before this time; nanoseconds since 1970.
    pub from_ns: i64,
    /// No packet was dropped after this time; nanoseconds since 1970.
    pub to_ns: i64,
    /// How many, super-packets counting once.
    pub packets: u64,
}

/// An account of a capture or of a part of it, in packets; super-packets count once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Packets that passed the interfaces (and the filter).
    pub seen_packets: u64,
    /// Of those, how many are in the file.
    pub written_packets: u64,
    /// Of those, how many are not, by place.
    pub dropped_packets: BTreeMap<DroppedAt, u64>,
    /// When.
    pub gaps: Vec<Gap>,
}

impl Ledger {
    /// Packets that are neither written nor known to be dropped; negative where more were written than seen. Zero, else the capture
    /// was cut off or something is wrong.
    pub fn unaccounted_packets(&self) -> i64 {
        // Another host's word may be any number.
        let left = i128::from(self.seen_packets) - i128::from(self.written_packets) - i128::from(self.dropped());
        left.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Packets dropped, in all places.
    pub fn dropped(&self) -> u64 {
        self.dropped_packets.values().fold(0, |sum, packets| sum.saturating_add(*packets))
    }

    /// Enters packets that were seen and dropped. What follows a gap of the same place and interface within `joining_ns` makes it longer.
    pub fn drop_packets(&mut self, gap: Gap, joining_ns: i64) {
        if gap.packets == 0 {
            return;
        }
        let count = self.dropped_packets.entry(gap.place).or_default();
        *count = count.saturating_add(gap.packets);
        let full = self.gaps.len() >= MAX_GAPS;
        // The last of its kind is near the end: few places and interfaces take turns.
        let last = self
            .gaps
            .iter_mut()
            .rev()
            .take(64)
            .find(|known| known.place == gap.place && known.interface == gap.interface);
        match last {
            Some(last) if full || gap.from_ns.saturating_sub(last.to_ns) <= joining_ns => {
                last.from_ns = last.from_ns.min(gap.from_ns);
                last.to_ns = last.to_ns.max(gap.to_ns);
                last.packets = last.packets.saturating_add(gap.packets);
            }
            _ if full => {}
            _ => self.gaps.push(gap),
        }
    }

    /// Adds what another part of the same capture says.
    pub fn add(&mut self, part: &Self) {
        self.seen_packets = self.seen_packets.saturating_add(part.seen_packets);
        self.written_packets = self.written_packets.saturating_add(part.written_packets);
        let placed: BTreeMap<DroppedAt, u64> = part.gaps.iter().fold(BTreeMap::new(), |mut placed, gap| {
            let count: &mut u64 = placed.entry(gap.place).or_default();
            *count = count.saturating_add(gap.packets);
            placed
        });
        for gap in &part.gaps {
            self.drop_packets(*gap, 0);
        }
        // What has no gap of its own still counts.
        for (place, packets) in &part.dropped_packets {
            let rest = packets.saturating_sub(placed.get(place).copied().unwrap_or(0));
            if rest > 0 {
                let count = self.dropped_packets.entry(*place).or_default();
                *count = count.saturating_add(rest);
            }
        }
    }

    /// Takes what there is, leaving nothing: the part since the last time.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(place: DroppedAt, from_ns: i64, to_ns: i64, packets: u64) -> Gap {
        Gap { place, interface: Some(0), from_ns, to_ns, packets }
    }

    #[test]
    fn gaps_that_touch_are_one() {
        let mut ledger = Ledger { seen_packets: 100, written_packets: 70, ..Ledger::default() };
        ledger.drop_packets(gap(DroppedAt::KernelRing, 0, 10, 5), 2);
        ledger.drop_packets(gap(DroppedAt::Disk, 0, 10, 3), 2);
        ledger.drop_packets(gap(DroppedAt::KernelRing, 12, 20, 15), 2);
        ledger.drop_packets(gap(DroppedAt::KernelRing, 23, 30, 7), 2);
        assert_eq!(ledger.gaps.len(), 3);
        assert_eq!((ledger.gaps[0].to_ns, ledger.gaps[0].packets), (20, 20));
        assert_eq!((ledger.dropped(), ledger.unaccounted_packets()), (30, 0));
    }

    #[test]
    fn any_number_of_another_host_is_taken() {
        let mut ledger = Ledger { seen_packets: 1 << 63, written_packets: 5, ..Ledger::default() };
        assert_eq!(ledger.unaccounted_packets(), i64::MAX - 4);
        ledger.add(&Ledger { written_packets: u64::MAX, ..Ledger::default() });
        assert_eq!(ledger.unaccounted_packets(), -i64::MAX);
        ledger.drop_packets(gap(DroppedAt::Nic, i64::MIN, i64::MAX, u64::MAX), 0);
        assert_eq!(ledger.unaccounted_packets(), i64::MIN);
    }

    #[test]
    fn parts_add_up() {
        let mut whole = Ledger::default();
        for at in 0..10 {
            let mut part = Ledger { seen_packets: 10, written_packets: 8, ..Ledger::default() };
            part.drop_packets(gap(DroppedAt::Writer, at * 100, at * 100 + 10, 2), 0);
            whole.add(&part);
        }
        assert_eq!((whole.seen_packets, whole.dropped(), whole.gaps.len()), (100, 20, 10));
        assert_eq!(whole.unaccounted_packets(), 0);
        // A part that lost count of when.
        whole.add(&Ledger { seen_packets: 4, dropped_packets: [(DroppedAt::Nic, 4)].into(), ..Ledger::default() });
        assert_eq!((whole.dropped(), whole.unaccounted_packets()), (24, 0));
    }
}
