//! What share of its time a host gives to throughput tests: `--allow busy=…`.

use longhaul_units::Nanos;

/// A host that was idle for so long may be in tests without pause for the allowed share of it.
const SPAN: Nanos = Nanos::from_secs(600);

/// Time that is left for tests. It grows by the share of the time that passes, up to the share of [`SPAN`], and each test takes what it lasted. A
/// test begins while some is left, so a long one is paid back by a pause after it. In any time T a host is in tests for the share of T + `SPAN`,
/// and one test, at most.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    share: f64,
    /// Nanoseconds; below 0 after a long test.
    left: f64,
    at: Nanos,
}

impl Budget {
    /// `share`: 0 to 1.
    pub(super) fn new(now: Nanos, share: f64) -> Self {
        Self { share, left: share * SPAN.0 as f64, at: now }
    }

    fn refill(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.at).0 as f64;
        self.left = (self.left + passed * self.share).min(self.share * SPAN.0 as f64);
        self.at = self.at.max(now);
    }

    /// Whether a test may begin.
    pub(super) fn is_left(&mut self, now: Nanos) -> bool {
        self.refill(now);
        self.share >= 1.0 || self.left > 0.0
    }

    /// A test was here for so long.
    pub(super) fn spend(&mut self, now: Nanos, time: Nanos) {
        self.refill(now);
        self.left -= time.0 as f64;
    }

    /// When a test may begin, as far as is known now.
    pub(super) fn opens(&self) -> Nanos {
        if self.share >= 1.0 || self.left > 0.0 {
            return Nanos::ZERO;
        }
        // A nanosecond more, so that some is left. Without a share it never opens.
        let wait = (1.0 - self.left / self.share) as u64;
        if self.share > 0.0 { Nanos(self.at.0.saturating_add(wait)) } else { Nanos::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Nanos {
        Nanos::from_secs(secs)
    }

    /// A fifth of the time, tests of a minute, one after the other as soon as it is allowed: 120 s at once, then one in 300 s.
    #[test]
    fn tests_take_their_share_and_no_more() {
        let mut budget = Budget::new(secs(0), 0.2);
        let (mut now, mut busy) = (secs(0), secs(0));
        while now < secs(86_400) {
            if budget.is_left(now) {
                now = now.saturating_add(secs(60));
                budget.spend(now, secs(60));
                busy = busy.saturating_add(secs(60));
            } else {
                now = budget.opens();
                assert!(budget.is_left(now));
            }
        }
        let share = busy.as_secs_f64() / now.as_secs_f64();
        assert!((0.2..0.203).contains(&share), "{share}");
    }

    #[test]
    fn nothing_and_everything() {
        let mut none = Budget::new(secs(0), 0.0);
        assert!(!none.is_left(secs(1_000_000)) && none.opens() == Nanos::MAX);
        let mut all = Budget::new(secs(0), 1.0);
        all.spend(secs(1), secs(10_000));
        assert!(all.is_left(secs(1)) && all.opens() == Nanos::ZERO);
    }
}
