//! Waking up when something is due, exactly.

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::schedule::set_least_timer_slack;
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;

/// How long before something is due a thread wakes up at most.
pub(crate) const EARLY_MOST: Nanos = Nanos::from_micros(80);
/// How often to look whether to stop.
const STOP_LOOK: Nanos = Nanos::from_millis(20);
/// A waking that is earlier than needed makes the next one later by this part.
const FALL: u64 = 64;

/// How a thread waits: it sleeps until a little before something is due, and then watches the clock, as waking up takes tens of microseconds.
/// How long before, it learns from how late the kernel wakes it: watching costs a CPU that the receiver may need.
#[derive(Debug)]
pub(crate) struct Waking {
    early: Nanos,
    early_most: Nanos,
}

impl Waking {
    /// For the calling thread, which wakes up at most `early_most` before something is due; 0: it never watches the clock.
    pub(crate) fn new(early_most: Nanos) -> Self {
        // Without it the kernel wakes it some 50 us later: it learns that, too.
        let _ = set_least_timer_slack();
        Self { early: early_most, early_most }
    }

    /// Waits towards `due` on `CLOCK_MONOTONIC`, not longer than until the next look at whether to stop. Whether it is due.
    pub(crate) fn wait(&mut self, due: Nanos) -> bool {
        let now = monotonic();
        let rise = due.saturating_sub(self.early);
        if rise > now {
            let rise = rise.min(now + STOP_LOOK);
            sleep_until(rise);
            self.learn(monotonic().saturating_sub(rise));
            return false;
        }
        while monotonic() < due {
            std::hint::spin_loop();
        }
        true
    }

    /// The kernel woke the thread `late`: from now on it is so early that this does not matter, and becomes less so by and by.
    fn learn(&mut self, late: Nanos) {
        let fallen = self.early.saturating_sub(Nanos(self.early.0.div_ceil(FALL)));
        self.early = late.max(fallen).min(self.early_most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_wakes_as_early_as_the_kernel_is_late() {
        let micros = Nanos::from_micros;
        let mut waking = Waking { early: EARLY_MOST, early_most: EARLY_MOST };
        (0..1_000).for_each(|_| waking.learn(micros(15)));
        assert_eq!(waking.early, micros(15));
        waking.learn(micros(40));
        assert_eq!(waking.early, micros(40), "at once");
        waking.learn(micros(15));
        assert!(waking.early > micros(39), "by and by");
        waking.learn(Nanos::from_millis(8));
        assert_eq!(waking.early, EARLY_MOST, "the thread did not have the CPU: no waking helps");
    }

    #[test]
    fn without_watching_it_sleeps_alone() {
        let mut waking = Waking::new(Nanos::ZERO);
        // So far away that this thread has its CPU before then, also on a busy machine.
        let due = monotonic() + Nanos::from_millis(200);
        assert!(!waking.wait(due), "it slept");
        while !waking.wait(due) {}
        assert!(monotonic() >= due);
        assert_eq!(waking.early, Nanos::ZERO);
    }
}
