//! Which of its partners a site tests next.

use std::collections::BTreeMap;

use longhaul_units::Nanos;

use crate::sample::SiteId;

/// A pair that was refused is tried again after a random time of this at least, so that two sites do not meet again and again.
const RETRY_LEAST: Nanos = Nanos::from_secs(2);

/// The pairs that a site has to begin, each with its next time. Times are the site's own.
#[derive(Debug, Clone, Default)]
pub struct Agenda {
    due: BTreeMap<(Nanos, SiteId, SiteId), Nanos>,
}

impl Agenda {
    /// Adds the test of a pair at `at`, which is not worth beginning after `until`.
    pub fn add(&mut self, at: Nanos, (from, to): (SiteId, SiteId), until: Nanos) {
        self.due.insert((at, from, to), until);
    }

    /// The pair that has been due for the longest time; it is taken off the agenda. What is too late is forgotten.
    pub fn next(&mut self, now: Nanos) -> Option<((SiteId, SiteId), Nanos)> {
        while let Some(((at, from, to), until)) = self.due.first_key_value().map(|(key, until)| (*key, *until)) {
            if at > now {
                return None;
            }
            self.due.pop_first();
            if now < until {
                return Some(((from, to), until));
            }
        }
        None
    }

    /// The pair was refused: it is tried again after `retry_after` and a random part of `spread`, `random` being in [0, 1).
    pub fn postpone(
        &mut self,
        now: Nanos,
        pair: (SiteId, SiteId),
        until: Nanos,
        retry_after: Nanos,
        spread: (Nanos, f64),
    ) {
        let wait = retry_after.0.max(RETRY_LEAST.0).saturating_add((spread.0.0 as f64 * spread.1) as u64);
        self.add(Nanos(now.0.saturating_add(wait)), pair, until);
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
        let mut agenda = Agenda::default();
        agenda.add(secs(10), pair(1), secs(100));
        agenda.add(secs(5), pair(2), secs(20));
        agenda.add(secs(7), pair(3), secs(100));
        assert_eq!(agenda.next(secs(4)), None);
        assert_eq!(agenda.poll_timeout(), Some(secs(5)));
        assert_eq!(agenda.next(secs(30)), Some((pair(3), secs(100))), "the test of 2 is too late");
        agenda.postpone(secs(30), pair(3), secs(100), Nanos::ZERO, (secs(10), 0.5));
        assert_eq!(agenda.next(secs(30)), Some((pair(1), secs(100))));
        assert_eq!(agenda.next(secs(36)), None);
        assert_eq!(agenda.next(secs(37)), Some((pair(3), secs(100))));
        assert!(agenda.is_empty());
    }
}
