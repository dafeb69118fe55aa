//! What a forwarder did: the truth that others are judged by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::packet::{Fragment, Packet};

/// `Forward`: from client to server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Pass,
    Lose,
    /// Passed, and again at once or later.
    Copy,
    /// Passed late.
    Delay,
    /// Passed behind some of the frames that came later.
    Reorder,
    /// Passed with one bit flipped.
    Damage,
    /// Passed, and a copy of it with one bit flipped.
    CopyAndDamage,
}

/// A frame that came to the forwarder.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) direction: Direction,
    /// `CLOCK_REALTIME`, as captures have it.
    pub(crate) at_ns: u64,
    pub(crate) packet: Packet,
    pub(crate) act: Act,
}

/// A frame that the forwarder sent on.
#[derive(Debug, Clone)]
pub(crate) struct Departure {
    /// Its place in [`Log::arrivals`].
    pub(crate) arrival: usize,
    /// `CLOCK_REALTIME`.
    pub(crate) at_ns: u64,
    /// The byte of the frame with a bit flipped, and the bit.
    pub(crate) damage: Option<(usize, u8)>,
    /// The far end's ring was full, or the kernel would not take it: it never left.
    pub(crate) refused: bool,
}

impl Departure {
    /// Whether the receiver cannot see the damage: nothing checks these fields of IPv6 (RFC 8200 §3: traffic class, flow label, hop
    /// limit; §4.5: what is reserved in the fragment header), but for ECN, which all fragments of a datagram share (RFC 3168 §5.3).
    pub(crate) fn is_harmless(&self, packet: &Packet) -> bool {
        let Some((at, bit)) = self.damage else { return true };
        let ipv6 = packet.addresses.is_some_and(|(source, _)| source.is_ipv6());
        ipv6 && match at.checked_sub(packet.begins[0]) {
            Some(0) => bit < 0x10,
            Some(1) => packet.fragment.is_none() || bit & 0x30 == 0,
            Some(2..=3 | 7) => true,
            // Of later fragments not even the next header.
            Some(40) => packet.fragment.is_some_and(|fragment| fragment.offset > 0),
            Some(41) if packet.fragment.is_some() => true,
            Some(43) if packet.fragment.is_some() => bit & 0x06 != 0,
            _ => false,
        }
    }
}

impl Departure {
    /// The place of a fragment as the receiver reads it; `None` where damage makes it another datagram's, or nobody's.
    fn fragment(&self, packet: &Packet) -> Option<Fragment> {
        let mut fragment = packet.fragment?;
        let Some((at, bit)) = self.damage.filter(|(at, _)| *at < packet.begins[1]) else { return Some(fragment) };
        if self.is_harmless(packet) {
            return Some(fragment);
        }
        // A checksum guards the header of IPv4.
        packet.addresses.filter(|(source, _)| source.is_ipv6())?;
        match at.checked_sub(packet.begins[0])? {
            // The payload's length: what is longer than the frame is discarded, and a length that is no multiple of 8 before the last
            // fragment (RFC 8200 §4.5).
            place @ 4..=5 => {
                let bytes = (fragment.bytes + 8) ^ (usize::from(bit) << if place == 4 { 8 } else { 0 });
                let shorter = bytes >= 8 && bytes < fragment.bytes + 8;
                fragment.bytes = (shorter && !(fragment.more && bytes % 8 > 0)).then(|| bytes - 8)?;
                Some(fragment)
            }
            // ECN, and what the datagram holds, by its first fragment: joined, and then nobody's.
            1 | 40 => Some(fragment),
            place @ 42..=43 => {
                let word = (fragment.offset | usize::from(fragment.more))
                    ^ (usize::from(bit) << if place == 42 { 8 } else { 0 });
                (fragment.offset, fragment.more) = (word & !7, word & 1 != 0);
                // The last one of a datagram may have any length, others not.
                (!fragment.more || fragment.bytes % 8 == 0).then_some(fragment)
            }
            _ => None,
        }
    }
}

/// All acts, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) departures: Vec<Departure>,
    /// Frames that the forwarder had no room for. A judge asks for none.
    pub(crate) missed: u64,
    /// By how much a frame left later than planned: the machine stood still, or others had it.
    pub(crate) latest_ns: u64,
}

impl Log {
    /// What left in a direction: each with its packet.
    pub(crate) fn departed(&self, direction: Direction) -> impl Iterator<Item = (&Departure, &Packet)> {
        let left = self.departures.iter().filter(|departure| !departure.refused);
        left.map(|departure| (departure, &self.arrivals[departure.arrival]))
            .filter(move |(_, arrival)| arrival.direction == direction)
            .map(|(departure, arrival)| (departure, &arrival.packet))
    }

    /// Frames by what became of them.
    pub(crate) fn counts(&self, which: impl Fn(&Arrival) -> bool) -> BTreeMap<Act, u64> {
        let mut counts = BTreeMap::new();
        self.arrivals
            .iter()
            .filter(|arrival| which(arrival))
            .for_each(|arrival| *counts.entry(arrival.act).or_default() += 1);
        counts
    }

    /// The sequence numbers of `cookie` in the order in which a receiver gets them, whole datagrams without (visible) damage alone.
    /// Fragments are joined as RFC 791 and RFC 8200 §4.5 have it: of equal ones the first counts, and others that overlap end the datagram.
    pub(crate) fn received(&self, direction: Direction, cookie: u32) -> Vec<u64> {
        let mut partial: BTreeMap<(IpAddr, IpAddr, u8, u32), Partial> = BTreeMap::new();
        let mut received = Vec::new();
        for (departure, packet) in self.departed(direction).filter(|(_, packet)| packet.is_udp()) {
            let damaged = !departure.is_harmless(packet);
            let ours = packet.probe.filter(|probe| probe.0 == cookie).map(|probe| probe.1);
            if packet.fragment.is_none() {
                received.extend(ours.filter(|_| !damaged));
                continue;
            }
            let (Some(fragment), Some(key)) = (departure.fragment(packet), packet.datagram()) else { continue };
            let datagram = partial.entry(key).or_default();
            if datagram.add(fragment, damaged, ours) == Added::Overlaps {
                // What comes of it later begins it anew.
                partial.remove(&key);
            } else if datagram.end == Some(datagram.runs.values().sum()) {
                let whole = partial.remove(&key);
                received.extend(whole.filter(|whole| !whole.damaged).and_then(|whole| whole.sequence));
            }
        }
        received
    }
}

/// A datagram of which fragments are missing.
#[derive(Debug, Default)]
struct Partial {
    /// Runs of fragments by their offsets: Linux lengthens the last one alone, by what follows it, and keeps others apart.
    runs: BTreeMap<usize, usize>,
    end: Option<usize>,
    sequence: Option<u64>,
    damaged: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Added {
    Joined,
    /// All of it was there before, in one run.
    Duplicate,
    Overlaps,
}

impl Partial {
    fn add(&mut self, fragment: Fragment, damaged: bool, sequence: Option<u64>) -> Added {
        let (first, end) = (fragment.offset, fragment.offset + fragment.bytes);
        let (last_run, last) = self.runs.iter().next_back().map_or((0, 0), |(offset, bytes)| (*offset, offset + bytes));
        let ends_elsewhere = if fragment.more {
            self.end.is_some_and(|known| end > known)
        } else {
            end < last || self.end.is_some_and(|known| end != known)
        };
        if ends_elsewhere {
            return Added::Overlaps;
        }
        if self.runs.iter().any(|(offset, bytes)| *offset <= first && end <= offset + bytes) {
            return Added::Duplicate;
        }
        if self.runs.iter().any(|(offset, bytes)| first < offset + bytes && *offset < end) {
            return Added::Overlaps;
        }
        let run = if first == last { last_run } else { first };
        *self.runs.entry(run).or_default() += fragment.bytes;
        self.damaged |= damaged;
        self.sequence = self.sequence.or(sequence);
        self.end = self.end.or((!fragment.more).then_some(end));
        Added::Joined
    }
}
