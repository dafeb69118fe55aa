//! Wire packets of one point that wait for themselves at the other, in 40 bytes each, and a table of those that wait by key.

use std::collections::{HashMap, VecDeque};

/// Not the first of its super-packet.
const FOLLOWS: u32 = 1 << 31;
/// It passed the other point as well.
const MATCHED: u32 = 1 << 30;
/// Others look like it, so that it may be one of them.
const ALIKE: u32 = 1 << 29;
const PAYLOAD_LEN: u32 = ALIKE - 1;

/// A wire packet at one of the points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) at_ns: i64,
    /// TCP's sequence number, the probe's, or IP's identification.
    pub(super) sequence: u64,
    pub(super) path: u32,
    /// Payload bytes below the flags.
    len_and_flags: u32,
    /// What it is known by while it waits; once matched, when it passed the other point.
    key_or_stamp: u64,
    /// While it waits, the next of this point with the same key; once matched, the how manieth it is at the other point.
    link: u64,
}

/// No packet.
const NONE: u64 = u64::MAX;

impl Held {
    pub(super) fn new(at_ns: i64, path: u32, sequence: u64, payload_len: u32, follows: bool) -> Self {
        let len_and_flags = payload_len.min(PAYLOAD_LEN) | if follows { FOLLOWS } else { 0 };
        Self { at_ns, sequence, path, len_and_flags, key_or_stamp: 0, link: NONE }
    }

    pub(super) fn payload_len(&self) -> u32 {
        self.len_and_flags & PAYLOAD_LEN
    }

    pub(super) fn alike(self) -> Self {
        Self { len_and_flags: self.len_and_flags | ALIKE, ..self }
    }

    /// Whether others look like it.
    pub(super) fn is_alike(&self) -> bool {
        self.len_and_flags & ALIKE != 0
    }

    /// Whether it is not the first of its super-packet.
    pub(super) fn follows(&self) -> bool {
        self.len_and_flags & FOLLOWS != 0
    }

    /// The same one at the other point: the how manieth there, and when it passed.
    pub(super) fn partner(&self) -> Option<(u64, i64)> {
        (self.len_and_flags & MATCHED != 0).then_some((self.link, self.key_or_stamp as i64))
    }

    pub(super) fn has_partner(&self) -> bool {
        self.len_and_flags & MATCHED != 0
    }

    fn meet(&mut self, number: u64, at_ns: i64, is_alike: bool) {
        self.len_and_flags |= MATCHED | if is_alike { ALIKE } else { 0 };
        (self.link, self.key_or_stamp) = (number, at_ns as u64);
    }
}

/// The packets of one point that are held, in the order of passing.
#[derive(Debug, Default)]
pub(super) struct Point {
    held: VecDeque<Held>,
    /// The number of the first that is held.
    first: u64,
    /// The first and the last of those that wait, by key: the low halves of their numbers, as far fewer are held than that has room for.
    waiting: HashMap<u64, (u32, u32), foldhash::fast::RandomState>,
    pub(super) recent: Recent,
}

/// Keys of plain datagrams that passed lately: in the window, and no more than are held.
#[derive(Debug, Default)]
pub(super) struct Recent {
    passed: VecDeque<(u64, i64)>,
    counts: HashMap<u64, u32, foldhash::fast::RandomState>,
}

impl Recent {
    /// One with `key` passes; those from before `window_ns` are forgotten, and of more than `most` the oldest.
    pub(super) fn add(&mut self, key: u64, at_ns: i64, window_ns: i64, most: usize) {
        let since_ns = at_ns.saturating_sub(window_ns);
        while let Some((old, passed_ns)) = self.passed.front().copied() {
            if passed_ns >= since_ns && self.passed.len() < most {
                break;
            }
            self.passed.pop_front();
            match self.counts.get_mut(&old) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.counts.remove(&old)),
            }
        }
        self.passed.push_back((key, at_ns));
        *self.counts.entry(key).or_default() += 1;
    }

    /// Whether several with `key` passed.
    pub(super) fn is_alike(&self, key: u64) -> bool {
        self.counts.get(&key).is_some_and(|count| *count > 1)
    }
}

impl Point {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn front(&self) -> Option<&Held> {
        self.held.front()
    }

    /// The number that the next packet gets.
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    fn at(&mut self, number: u64) -> Option<&mut Held> {
        self.held.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn whole(&self, low: u32) -> u64 {
        self.first + u64::from(low.wrapping_sub(self.first as u32))
    }

    /// The first of those with `key` that wait, which then waits no more.
    fn take(&mut self, key: u64) -> Option<u64> {
        let (first, last) = self.waiting.get(&key).copied()?;
        let first = self.whole(first);
        match self.at(first).map_or(NONE, |held| held.link) {
            NONE => drop(self.waiting.remove(&key)),
            next => drop(self.waiting.insert(key, (next as u32, last))),
        }
        Some(first)
    }

    /// Whether others with `key` wait: which then look like the next.
    pub(super) fn others_wait(&mut self, key: u64) -> bool {
        let Some((_, last)) = self.waiting.get(&key).copied() else { return false };
        let last = self.whole(last);
        if let Some(last) = self.at(last) {
            *last = last.alike();
        }
        true
    }

    /// Matches the first of those with `key` that wait with the packet `number` of the other point: which one it is, when it passed, and
    /// whether either looks like others.
    pub(super) fn meet(&mut self, key: u64, number: u64, at_ns: i64, is_alike: bool) -> Option<(u64, i64, bool)> {
        let found = self.take(key)?;
        let held = self.at(found)?;
        held.meet(number, at_ns, is_alike);
        Some((found, held.at_ns, held.is_alike()))
    }

    /// The next packet, matched with `partner` or waiting by `key`.
    pub(super) fn push(&mut self, mut held: Held, key: u64, partner: Option<(u64, i64, bool)>) {
        let number = self.next_number();
        match partner {
            Some((partner, at_ns, is_alike)) => held.meet(partner, at_ns, is_alike),
            None => {
                held.key_or_stamp = key;
                let known = self.waiting.get(&key).copied();
                let first = known.map_or(number as u32, |(first, _)| first);
                self.waiting.insert(key, (first, number as u32));
                let last = known.map(|(_, last)| self.whole(last));
                if let Some(before) = last.and_then(|last| self.at(last)) {
                    before.link = number;
                }
            }
        }
        self.held.push_back(held);
    }

    /// Takes out the oldest, which waits no more.
    pub(super) fn pop(&mut self) -> Option<Held> {
        let oldest = self.held.front().copied()?;
        if !oldest.has_partner() {
            // The oldest of its point is the first that waits by its key.
            self.take(oldest.key_or_stamp);
        }
        self.held.pop_front();
        self.first += 1;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_forty_bytes() {
        assert_eq!(size_of::<Held>(), 40);
        let held = Held::new(5, 7, 9, 1_448, true);
        assert_eq!((held.payload_len(), held.follows(), held.partner()), (1_448, true, None));
    }

    /// All have one time, so that none is too old.
    #[test]
    fn no_more_keys_are_remembered_than_packets_are_held() {
        let mut recent = Recent::default();
        (0..2).for_each(|_| recent.add(7, 5, 1_000, 50));
        assert!(recent.is_alike(7));
        (100..150).for_each(|key| recent.add(key, 5, i64::MAX, 50));
        assert_eq!((recent.passed.len(), recent.counts.len()), (50, 50));
        assert!(!recent.is_alike(7));
    }

    /// Two with one key and another; the other half of each comes in the same order.
    #[test]
    fn equals_meet_in_order() {
        let mut point = Point::default();
        for (n, key) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
            point.push(Held::new(n, 0, 0, 0, false), key, None);
        }
        assert_eq!(point.meet(1, 50, 500, false), Some((0, 0, false)));
        assert!(point.others_wait(1) && !point.others_wait(7));
        assert_eq!(point.pop().and_then(|held| held.partner()), Some((50, 500)));
        assert_eq!(point.pop().map(|held| held.has_partner()), Some(false));
        assert_eq!(point.meet(2, 51, 501, false), None, "it is gone");
        assert_eq!(
            [52, 53, 54].map(|number| point.meet(1, number, 500, false)),
            [Some((2, 2, false)), Some((3, 3, true)), None]
        );
        assert_eq!((point.len(), point.next_number()), (2, 4));
    }
}
