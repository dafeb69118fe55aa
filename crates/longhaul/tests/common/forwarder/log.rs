//! What a forwarder did: the truth that others are judged by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::packet::Packet;

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
    /// limit; §4.5: what is reserved in the fragment header).
    pub(crate) fn is_harmless(&self, packet: &Packet) -> bool {
        let Some((at, bit)) = self.damage else { return true };
        let ipv6 = packet.addresses.is_some_and(|(source, _)| source.is_ipv6());
        ipv6 && match at.checked_sub(packet.begins[0]) {
            Some(0) => bit < 0x10,
            Some(1..=3 | 7) => true,
            // Of later fragments not even the next header.
            Some(40) => packet.fragment.is_some_and(|fragment| fragment.offset > 0),
            Some(41) if packet.fragment.is_some() => true,
            Some(43) if packet.fragment.is_some() => bit & 0x06 != 0,
            _ => false,
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

    /// The sequence numbers of `cookie` in the order in which a receiver gets them, whole datagrams without (visible) damage alone:
    /// fragments are joined as RFC 791 and RFC 8200 §4.5 have it, where the first of two equal ones counts.
    pub(crate) fn received(&self, direction: Direction, cookie: u32) -> Vec<u64> {
        let mut partial: BTreeMap<(IpAddr, IpAddr, u8, u32), Partial> = BTreeMap::new();
        let mut received = Vec::new();
        for (departure, packet) in self.departed(direction).filter(|(_, packet)| packet.is_udp()) {
            let damaged = !departure.is_harmless(packet);
            let ours = packet.probe.filter(|probe| probe.0 == cookie).map(|probe| probe.1);
            let (Some(fragment), Some(key)) = (packet.fragment, packet.datagram()) else {
                received.extend(ours.filter(|_| !damaged));
                continue;
            };
            // A damaged header makes it another datagram's, or nobody's.
            if departure.damage.is_some_and(|(at, _)| damaged && at < packet.begins[1]) {
                continue;
            }
            let datagram = partial.entry(key).or_default();
            if datagram.bytes.insert(fragment.offset, fragment.bytes).is_none() {
                datagram.damaged |= damaged;
                datagram.sequence = datagram.sequence.or(ours);
                datagram.end = if fragment.more { datagram.end } else { Some(fragment.offset + fragment.bytes) };
            }
            if datagram.end == Some(datagram.bytes.values().sum()) {
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
    bytes: BTreeMap<usize, usize>,
    end: Option<usize>,
    sequence: Option<u64>,
    damaged: bool,
}
