//! When probes are sent: periodically, or by a Poisson process (RFC 2330 §11.1.1).

use longhaul_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A schedule that is behind by more than so many intervals begins anew: a host that was suspended does not send all at once.
const BEHIND_MOST: u64 = 10;
/// And by at least this time.
const BEHIND_LEAST: Nanos = Nanos::from_millis(100);

/// When the next probe is due, by any clock that does not step.
#[derive(Debug)]
pub struct Schedule {
    due: Nanos,
    interval: Nanos,
    random: Option<Xoshiro256PlusPlus>,
    skipped: Nanos,
}

impl Schedule {
    /// Probes from `start` on. `seed`: draws the gaps of a Poisson process; `None` for a periodic one.
    pub fn new(start: Nanos, interval: Nanos, seed: Option<u64>) -> Self {
        Self { due: start, interval, random: seed.map(Xoshiro256PlusPlus::seed_from_u64), skipped: Nanos::ZERO }
    }

    /// When the next probe is due.
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// A probe was sent at `now`. Returns by how much the schedule is put off, as the host did not let it be sent in time.
    pub fn sent(&mut self, now: Nanos) -> Nanos {
        let gap = match &mut self.random {
            None => self.interval,
            Some(random) => {
                // 53 bits, from above 0 to 1.
                let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                Nanos((-uniform.ln() * self.interval.0 as f64) as u64)
            }
        };
        self.due = self.due.saturating_add(gap);
        let behind = now.saturating_sub(self.due);
        if behind <= BEHIND_LEAST.max(Nanos(self.interval.0.saturating_mul(BEHIND_MOST))) {
            return Nanos::ZERO;
        }
        self.skipped = self.skipped.saturating_add(behind);
        self.due = now;
        behind
    }

    /// Time by which the schedule was put off.
    pub fn skipped(&self) -> Nanos {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_probes_do_not_drift_and_a_pause_is_not_made_up() {
        let ms = Nanos::from_millis;
        let mut schedule = Schedule::new(ms(5), ms(10), None);
        assert_eq!(schedule.sent(ms(9)), Nanos::ZERO);
        assert_eq!(schedule.due(), ms(15));
        assert_eq!(schedule.sent(ms(5_000)), ms(4_975));
        assert_eq!((schedule.due(), schedule.skipped()), (ms(5_000), ms(4_975)));
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let mut schedule = Schedule::new(Nanos::ZERO, Nanos::from_millis(10), Some(2330));
        let gaps: Vec<f64> = (0..100_000)
            .map(|_| {
                let before = schedule.due();
                schedule.sent(before);
                (schedule.due() - before).as_secs_f64() * 1e3
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let above = gaps.iter().filter(|gap| **gap > 10.0).count() as f64 / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.1 && (above - (-1.0_f64).exp()).abs() < 0.005, "{mean} {above}");
    }
}
