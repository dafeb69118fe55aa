//! How long a partner is asked for a test, and which partners hang: they would take the time of the tests with others.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_channel::PublicKey;
use longhaul_mesh_model::admission::PATIENCE;
use longhaul_units::Nanos;

/// How long a partner is asked. A gate uses no later answer ([`PATIENCE`]).
pub(super) const LASTS: Duration = Duration::from_nanos(PATIENCE.0);
/// A partner that takes longer and then does not answer takes the time of the tests with others.
pub(super) const HUNG: Nanos = Nanos::from_secs(1);
/// How long it is not asked for tests of throughput. It doubles up to the second.
const HUNG_WAITS: [Nanos; 2] = [Nanos::from_secs(30), Nanos::from_secs(240)];

/// Partners that hung when they were asked: until when they are not asked, and the wait until then. By a steady clock.
#[derive(Debug, Default)]
pub(super) struct Hung(BTreeMap<PublicKey, (Nanos, Nanos)>);

impl Hung {
    /// Time until `partner` is asked again; zero: now.
    pub(super) fn left(&self, partner: PublicKey, now: Nanos) -> Nanos {
        self.0.get(&partner).map_or(Nanos::ZERO, |(until, _)| until.saturating_sub(now))
    }

    /// It hung, again or for the first time. Several threads ask it: of one wait, one counts.
    pub(super) fn note(&mut self, partner: PublicKey, now: Nanos) {
        if self.left(partner, now) > Nanos::ZERO {
            return;
        }
        let [first, most] = HUNG_WAITS;
        let wait = self.0.get(&partner).map_or(first, |(_, wait)| wait.saturating_add(*wait).min(most));
        self.0.insert(partner, (now.saturating_add(wait), wait));
    }

    /// It answered.
    pub(super) fn forget(&mut self, partner: PublicKey) {
        self.0.remove(&partner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_that_hangs_is_asked_less_and_less() {
        let key = || longhaul_channel::Identity::from_random(crate::folder::random().unwrap()).unwrap().public();
        let (mut hung, [one, other], seconds) = (Hung::default(), [key(), key()], Nanos::from_secs);
        let mut now = seconds(100);
        for wait in [30, 60, 120, 240, 240] {
            hung.note(one, now);
            // As its probes do.
            hung.note(one, now.saturating_add(seconds(2)));
            assert_eq!([hung.left(one, now), hung.left(other, now)], [seconds(wait), Nanos::ZERO]);
            now = now.saturating_add(seconds(wait));
            assert_eq!(hung.left(one, now), Nanos::ZERO);
        }
        hung.forget(one);
        hung.note(one, now);
        assert_eq!(hung.left(one, now), seconds(30));
    }
}
