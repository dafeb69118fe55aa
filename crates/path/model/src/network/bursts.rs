//! Bursts of loss in time: a hop that loses packets while it is in its bad state, however many there are.

use longhaul_units::Nanos;

use super::chance::Chance;
use crate::spec::BurstLoss;

/// The state is drawn anew after this many mean periods without a packet: no long pause costs a draw for each burst in it. What the state was
/// before then changes the chances by e⁻²⁰ at most.
const FORGOTTEN_PERIODS: f64 = 20.0;

/// A chain of two states whose stays are exponential in time (Gilbert's, in continuous time).
#[derive(Debug, Clone)]
pub(super) struct Bursts {
    spec: BurstLoss,
    /// Draws the stays alone, so that traffic does not change when bursts come.
    stays: Chance,
    /// Draws the fates of packets within bursts.
    fates: Chance,
    /// The burst before, for trains of other hosts that overlap with what came last.
    before: Burst,
    /// The burst at hand or to come.
    next: Option<Burst>,
}

/// From when a burst lasts, and until when; the end is no longer in it.
#[derive(Debug, Clone, Copy, Default)]
struct Burst {
    from: Nanos,
    until: Nanos,
}

impl Bursts {
    pub(super) fn new(spec: BurstLoss, stays: Chance, fates: Chance) -> Self {
        Self { spec, stays, fates, before: Burst::default(), next: None }
    }

    /// Whether a packet that arrives from `start` to `end` may meet a burst.
    pub(super) fn touch(&mut self, start: Nanos, end: Nanos) -> bool {
        let next = self.at(start);
        next.from <= end || start < self.before.until
    }

    /// Whether the packet that arrives at `time` is lost in a burst.
    pub(super) fn lose(&mut self, time: Nanos) -> bool {
        let next = self.at(time);
        let inside = |burst: &Burst| burst.from <= time && time < burst.until;
        (inside(&next) || inside(&self.before)) && self.fates.unit() < self.spec.lost.0
    }

    /// The burst that lasts at `time`, or the next one.
    fn at(&mut self, time: Nanos) -> Burst {
        let mean_period = self.spec.every.0 as f64;
        loop {
            match self.next {
                Some(burst) if time < burst.until => return burst,
                Some(burst) if ((time - burst.until).0 as f64) < FORGOTTEN_PERIODS * mean_period => {
                    self.before = burst;
                    self.next = Some(self.after(burst.until, false));
                }
                // At its start, and when it has forgotten, the chain is in either state by its share of the time.
                _ => {
                    let bad = self.stays.unit() < self.spec.lasting.0 as f64 / mean_period;
                    self.next = Some(self.after(time, bad));
                }
            }
        }
    }

    /// The next burst after `time`; where `bad`, it lasts already.
    fn after(&mut self, time: Nanos, bad: bool) -> Burst {
        let mut stay = |mean: Nanos| Nanos((-self.stays.unit().ln() * mean.0 as f64).min(u64::MAX as f64 / 4.0) as u64);
        let from = if bad { time } else { time.saturating_add(stay(self.spec.every - self.spec.lasting)) };
        Burst { from, until: from.saturating_add(stay(self.spec.lasting).max(Nanos(1))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Probability;

    fn bursts(lost: f64) -> Bursts {
        let spec = BurstLoss {
            lasting: Nanos::from_millis(40),
            every: Nanos::from_secs(1),
            lost: Probability(lost),
            otherwise: Probability(0.0),
        };
        Bursts::new(spec, Chance::new(3, 0), Chance::new(3, 6))
    }

    /// 4 % of the time is bad, whatever the spacing; runs are as long as the spacing makes them: 40 ms are 4 packets at 10 ms and 400 at
    /// 100 us. The mean of a run, seen each d, is d / (1 − e^(−d/40 ms)).
    #[test]
    fn the_share_is_of_time_and_runs_follow_the_spacing() {
        for spacing in [Nanos::from_millis(10), Nanos::from_micros(100)] {
            let mut bursts = bursts(1.0);
            let packets = Nanos::from_secs(20_000).0 / spacing.0;
            let (mut lost, mut runs, mut before) = (0u64, 0u64, false);
            for n in 0..packets {
                let now = bursts.lose(Nanos(n * spacing.0));
                lost += u64::from(now);
                runs += u64::from(now && !before);
                before = now;
            }
            let share = lost as f64 / packets as f64;
            // 20,000 periods: a standard error of 0.04 · √(2 / 20,000).
            assert!((share - 0.04).abs() < 4.0 * 0.0004, "{share}");
            let spacing_ms = spacing.0 as f64 / 1e6;
            let mean = 1.0 / (1.0 - (-spacing_ms / 40.0).exp());
            let seen = lost as f64 / runs as f64;
            assert!((seen / mean - 1.0).abs() < 0.04, "{seen} of {mean}");
        }
    }

    /// Traffic does not move the bursts, and a share within them is lost.
    #[test]
    fn bursts_come_when_they_come() {
        let (mut all, mut some) = (bursts(1.0), bursts(0.25));
        let (mut in_burst, mut lost) = (0, 0);
        for n in 0..2_000_000 {
            let time = Nanos(n * 1_000_000);
            let bad = all.lose(time);
            in_burst += u32::from(bad);
            if n % 3 == 0 {
                let fate = some.lose(time);
                assert!(bad || !fate, "lost outside of a burst at {time}");
                lost += u32::from(fate);
            }
        }
        let share = f64::from(3 * lost) / f64::from(in_burst);
        assert!((share - 0.25).abs() < 0.01, "{share}");
    }

    /// After a pause the chain is in either state by its share of the time; it takes a draw for the state and two for its stays at most.
    #[test]
    fn a_pause_is_forgotten() {
        let (mut bursts, mut lost) = (bursts(1.0), 0);
        for n in 0..100_000 {
            let mut draws = bursts.stays.clone();
            lost += u32::from(bursts.lose(Nanos::from_secs(n * 100)));
            let after = bursts.stays.clone().bits();
            assert!((0..=3).any(|_| draws.bits() == after), "more than three draws in pause {n}");
        }
        // A standard error of √(0.04 · 0.96 / 100,000).
        let share = f64::from(lost) / 1e5;
        assert!((share - 0.04).abs() < 4.0 * 0.0006, "{share}");
    }

    /// Bursts that come 20 mean periods apart and less are those that traffic without a pause meets.
    #[test]
    fn a_short_pause_is_no_pause() {
        let (mut all, mut some) = (bursts(1.0), bursts(1.0));
        for n in 0..2_000_000 {
            let time = Nanos::from_millis(n * 10);
            let bad = all.lose(time);
            if n % 1_900 == 0 {
                assert_eq!(some.lose(time), bad, "a pause of 19 s moved the bursts at {time}");
            }
        }
    }

    /// A pause of years costs nothing, and `touch` never misses what `lose` loses.
    #[test]
    fn a_long_pause_is_cheap() {
        let mut bursts = bursts(1.0);
        let mut time = Nanos::ZERO;
        for n in 0..100_000u64 {
            time += if n % 1000 == 0 { Nanos::from_secs(100_000_000) } else { Nanos::from_millis(n % 60) };
            let touched = bursts.touch(time, time);
            assert!(touched || !bursts.lose(time));
        }
    }
}
