//! Which of its partners a site tests next.

use std::collections::BTreeMap;

use longhaul_units::Nanos;

use crate::sample::SiteId;

/// A pair that was refused is tried again after a random time of this at least, so that two sites do not meet again and again.
const RETRY_LEAST: Nanos = Nanos::from_secs(2);
/// Pairs that were refused once are spread over this time; it doubles with each refusal.
const SPREAD: Nanos = Nanos::from_secs(15);
/// No more than 32 times.
const DOUBLED_MOST: u32 = 5;

/// The pairs that a site has to begin, each with its next time. Times are the site's own.
#[derive(Debug, Clone, Default)]
pub struct Agenda {
    due: BTreeMap<(Nanos, SiteId, SiteId), (Nanos, u32)>,
}

/// A test that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Sender and receiver.
    pub pair: (SiteId, SiteId),
    /// It is not worth beginning after this.
    pub until: Nanos,
    /// How often it was refused.
    pub refused: u32,
}

impl Agenda {
    /// Adds the test of a pair at `at`, which is not worth beginning after `until`.
    pub fn add(&mut self, at: Nanos, (from, to): (SiteId, SiteId), until: Nanos) {
        self.due.insert((at, from, to), (until, 0));
    }

    /// The pair that has been due for the longest time; it is taken off the agenda. What is too late is forgotten.
    pub fn next(&mut self, now: Nanos) -> Option<Due> {
        while let Some(((at, from, to), (until, refused))) = self.due.first_key_value().map(|(key, due)| (*key, *due)) {
            if at > now {
                return None;
            }
            self.due.pop_first();
            if now < until {
                return Some(Due { pair: (from, to), until, refused });
            }
        }
        None
    }

    /// The test was refused: it is tried again after `retry_after` and a random part of a time that grows with each refusal; `random` is in
    /// [0, 1).
    pub fn postpone(&mut self, now: Nanos, due: Due, retry_after: Nanos, random: f64) {
        let spread = SPREAD.0 << due.refused.min(DOUBLED_MOST);
        let wait = retry_after.0.max(RETRY_LEAST.0).saturating_add((spread as f64 * random) as u64);
        let (from, to) = due.pair;
        self.due.insert((Nanos(now.0.saturating_add(wait)), from, to), (due.until, due.refused.saturating_add(1)));
    }

    /// When the next pair is due.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|((at, _, _), _)| *at)
    }

    /// Pairs on the agenda.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_due_goes_first_and_what_is_too_late_is_forgotten() {
        let pair = |to: u16| (SiteId(0), SiteId(to));
        let secs = Nanos::from_secs;
        let due = |to, until, refused| Some(Due { pair: pair(to), until: secs(until), refused });
        let mut agenda = Agenda::default();
        agenda.add(secs(10), pair(1), secs(100));
        agenda.add(secs(5), pair(2), secs(20));
        agenda.add(secs(7), pair(3), secs(100));
        assert_eq!(agenda.next(secs(4)), None);
        assert_eq!(agenda.poll_timeout(), Some(secs(5)));
        let third = agenda.next(secs(30));
        assert_eq!(third, due(3, 100, 0), "the test of 2 is too late");
        // 2 s at least, and half of 15 s.
        agenda.postpone(secs(30), third.unwrap(), Nanos::ZERO, 0.5);
        assert_eq!(agenda.next(secs(30)), due(1, 100, 0));
        assert_eq!(agenda.next(secs(39)), None);
        let third = agenda.next(secs(40));
        assert_eq!(third, due(3, 100, 1));
        // What the partner said, and half of 30 s.
        agenda.postpone(secs(40), third.unwrap(), secs(20), 0.5);
        assert_eq!(agenda.poll_timeout(), Some(secs(75)));
        assert_eq!(agenda.next(secs(75)), due(3, 100, 2));
        assert!(agenda.is_empty());
    }
}
