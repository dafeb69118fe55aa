//! Drops of what this end is sent, while a test runs.
//!
//! An event tells of a datagram with a number, which anyone may have forged. Here a drop counts once, where the stream's account misses that
//! number: as in the result, where events place losses and never make them.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_result::Location;
use longhaul_udp::account::SequenceSet;

use super::receiving::Account;

/// Runs of numbers that wait at most until the account has come to them. Those that are furthest ahead go first: they are the least likely
/// to have been sent.
const WAITING_MOST: usize = 1 << 14;

/// Drops that were seen, and which of them are losses.
#[derive(Debug)]
pub(super) struct Missing {
    streams: Vec<(Account, SequenceSet)>,
    waiting: Vec<Run>,
}

/// Consecutive numbers of a stream that were dropped at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u64,
    packets: u64,
    stream: usize,
    location: Location,
}

impl Missing {
    /// For the streams of these accounts.
    pub(super) fn new(accounts: Vec<Account>) -> Self {
        let counted = |account: Account| {
            let limit = account.with(|tracker| tracker.limit());
            (account, SequenceSet::new(limit))
        };
        Self { streams: accounts.into_iter().map(counted).collect(), waiting: Vec::new() }
    }

    /// For each stream, what its sequence numbers are below.
    pub(super) fn limits(&self) -> Vec<u64> {
        self.streams.iter().map(|(account, _)| account.with(|tracker| tracker.limit())).collect()
    }

    /// Numbers of a stream were dropped.
    pub(super) fn dropped(&mut self, stream: usize, first: u64, packets: u64, location: Location) {
        match self.waiting.last_mut() {
            Some(last) if (last.stream, last.location, last.first + last.packets) == (stream, location, first) => {
                last.packets += packets;
            }
            _ => self.waiting.push(Run { first, packets, stream, location }),
        }
        if self.waiting.len() > WAITING_MOST {
            self.waiting.sort_unstable();
            self.waiting.truncate(WAITING_MOST / 2);
        }
    }

    /// Adds those that the accounts miss by now to `so_far`, by location.
    pub(super) fn settle(&mut self, so_far: &[AtomicU64]) {
        let Self { streams, waiting } = self;
        waiting.retain_mut(|run| {
            let Some((account, counted)) = streams.get_mut(run.stream) else { return false };
            let end = run.first + run.packets;
            let (lost, ahead) = account.with(|tracker| {
                let known = end.min(tracker.next_expected());
                let lost = (run.first..known).filter(|&number| tracker.misses(number) && counted.insert(number));
                (lost.count() as u64, known)
            });
            so_far[run.location as usize].fetch_add(lost, Ordering::Relaxed);
            run.first = run.first.max(ahead);
            run.packets = end - run.first;
            run.packets > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use longhaul_udp::account::{MAX_SEQUENCES, SequenceTracker};
    use longhaul_units::Nanos;

    use super::*;

    const STACK: Location = Location::ReceiverStack;
    const BUFFER: Location = Location::ReceiverSocketBuffer;

    struct Seen {
        account: Account,
        missing: Missing,
        so_far: [AtomicU64; Location::ALL.len()],
    }

    impl Seen {
        fn new() -> Self {
            let account = Account::new(SequenceTracker::new(MAX_SEQUENCES, true));
            let missing = Missing::new(vec![account.clone()]);
            Self { account, missing, so_far: std::array::from_fn(|_| AtomicU64::new(0)) }
        }

        fn arrive(&self, numbers: std::ops::Range<u64>) {
            numbers.for_each(|number| {
                self.account.with(|tracker| _ = tracker.receive(number, Nanos(number), Nanos(number)));
            });
        }

        fn settled(&mut self) -> [u64; 2] {
            self.missing.settle(&self.so_far);
            [STACK, BUFFER].map(|location| self.so_far[location as usize].load(Ordering::Relaxed))
        }
    }

    #[test]
    fn forged_datagrams_are_no_losses() {
        let mut seen = Seen::new();
        seen.arrive(0..10);
        seen.arrive(15..20);
        for _ in 0..3 {
            // Of numbers that arrived, and of some that nobody sent yet.
            seen.missing.dropped(0, 0, 10, STACK);
            seen.missing.dropped(0, 18, 1_000, STACK);
            seen.missing.dropped(7, 11, 1, STACK);
        }
        assert_eq!(seen.settled(), [0, 0]);
        // Three were lost here. One copy of their numbers counts.
        (0..3).for_each(|_| seen.missing.dropped(0, 11, 3, BUFFER));
        assert_eq!(seen.settled(), [0, 3]);
        seen.missing.dropped(0, 11, 3, STACK);
        seen.arrive(20..40);
        assert_eq!(seen.settled(), [0, 3]);
    }

    #[test]
    fn what_was_dropped_counts_once_a_later_packet_arrived() {
        let mut seen = Seen::new();
        seen.arrive(0..10);
        (10..15).for_each(|number| seen.missing.dropped(0, number, 1, BUFFER));
        assert_eq!((seen.missing.waiting.len(), seen.settled()), (1, [0, 0]));
        seen.arrive(13..14);
        assert_eq!(seen.settled(), [0, 3]);
        seen.arrive(15..16);
        assert_eq!((seen.settled(), seen.missing.waiting.len()), ([0, 4], 0));
    }

    #[test]
    fn numbers_far_ahead_push_out_no_near_ones() {
        let mut seen = Seen::new();
        for number in 0..100_000 {
            seen.missing.dropped(0, 1_000_000 + 2 * number, 1, STACK);
            if number % 1_000 == 0 {
                seen.missing.dropped(0, number, 1, BUFFER);
            }
        }
        assert!(seen.missing.waiting.len() <= WAITING_MOST);
        seen.arrive(100_000..100_001);
        assert_eq!(seen.settled(), [0, 100]);
    }
}
