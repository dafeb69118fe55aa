//! Steps of the responder's clock, cut out of what both directions differ by.
//!
//! What one direction gains by a step, the other loses, and the round trip stays; a route that changes moves the round trip. Jitter does the
//! same for one probe, never for the least of several in a row.

use std::collections::VecDeque;

/// Probes on each side of a step.
const SIDE: usize = 16;
/// A smaller step is not cut out, nanoseconds.
const STEP_LEAST_NS: u64 = 1_000_000;
/// The round trip stays within this part of the step.
const STAYS: u64 = 16;

/// Raw differences of two clocks, of one probe, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BothWays {
    pub(crate) sequence: u64,
    pub(crate) forward_ns: i64,
    pub(crate) backward_ns: i64,
}

/// Holds back the latest probes, to see whether the clock was set before them.
#[derive(Debug, Default)]
pub(crate) struct ResponderClock {
    held: VecDeque<BothWays>,
    /// How many of `held` have been handed out.
    handed_out: usize,
    /// What the responder's clock was set forward by in all, less what this host's was, nanoseconds.
    set_ns: i64,
    steps: u64,
    own_steps: u64,
}

impl ResponderClock {
    /// Takes the next probe. Hands out an earlier one, without the steps before it.
    pub(crate) fn take(&mut self, both: BothWays) -> Option<BothWays> {
        self.held.push_back(self.without_steps(both));
        if self.held.len() > 2 * SIDE {
            self.held.pop_front();
            self.handed_out = self.handed_out.saturating_sub(1);
        }
        if self.held.len() == 2 * SIDE
            && let Some(step_ns) = self.step()
        {
            self.steps += 1;
            self.set_ns = self.set_ns.saturating_add(step_ns);
            for both in self.held.iter_mut().skip(SIDE) {
                *both = less(*both, step_ns);
            }
        }
        (self.held.len() > SIDE + self.handed_out).then(|| self.hand_out()).flatten()
    }

    /// Hands out what is held back.
    pub(crate) fn drain(&mut self) -> Option<BothWays> {
        let next = self.hand_out();
        if next.is_none() {
            self.held.clear();
            self.handed_out = 0;
        }
        next
    }

    fn hand_out(&mut self) -> Option<BothWays> {
        let next = self.held.get(self.handed_out).copied();
        self.handed_out += usize::from(next.is_some());
        next
    }

    /// This host's clock was set forward by so much.
    pub(crate) fn own_step(&mut self, step_ns: i64) {
        self.set_ns = self.set_ns.saturating_sub(step_ns);
        self.own_steps += u64::from(step_ns != 0);
    }

    /// Steps of the responder's clock.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether neither clock was set.
    pub(crate) fn is_steady(&self) -> bool {
        self.steps + self.own_steps == 0
    }

    fn without_steps(&self, both: BothWays) -> BothWays {
        less(both, self.set_ns)
    }

    /// The step in the middle of what is held; `None` where there is none.
    fn step(&self) -> Option<i64> {
        let least = |from: usize, of: fn(&BothWays) -> i64| self.held.iter().skip(from).take(SIDE).map(of).min();
        let change = |of: fn(&BothWays) -> i64| Some(least(SIDE, of)?.saturating_sub(least(0, of)?));
        let (forward, backward) = (change(|both| both.forward_ns)?, change(|both| both.backward_ns)?);
        let apart = forward.saturating_add(backward).unsigned_abs();
        let step = forward.unsigned_abs();
        (step >= STEP_LEAST_NS && apart <= step / STAYS).then_some(forward)
    }
}

fn less(both: BothWays, step_ns: i64) -> BothWays {
    BothWays {
        forward_ns: both.forward_ns.saturating_sub(step_ns),
        backward_ns: both.backward_ns.saturating_add(step_ns),
        ..both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// What comes out of probes whose delays in both directions and whose offset of clocks `of` tells, in ms.
    fn cut(probes: u64, of: impl Fn(u64) -> [i64; 3]) -> (Vec<BothWays>, u64) {
        let mut clock = ResponderClock::default();
        let mut all = Vec::new();
        for sequence in 0..probes {
            let [there, back, offset] = of(sequence).map(|ms| ms * MS);
            all.extend(clock.take(BothWays { sequence, forward_ns: there + offset, backward_ns: back - offset }));
        }
        while let Some(both) = clock.drain() {
            all.push(both);
        }
        (all, clock.steps())
    }

    #[test]
    fn a_step_is_cut_out_and_changes_of_the_path_are_not() {
        let step = |at: u64| [10 + at as i64 % 3, 12 + at as i64 % 2, if at < 70 { 3_000 } else { -250 }];
        let (found, steps) = cut(200, step);
        assert_eq!((found.len(), steps), (200, 1));
        assert!(found.iter().enumerate().all(|(at, both)| both.sequence == at as u64));
        assert!(found.iter().all(|both| (3_010 * MS..=3_012 * MS).contains(&both.forward_ns)), "{found:?}");
        // One way becomes longer; both do; one probe waits there and the next one back.
        for changed in [
            |at: u64| [if at < 70 { 10 } else { 15 }, 12, 3_000],
            |at: u64| if at < 70 { [10, 12, 3_000] } else { [30, 32, 3_000] },
            |at: u64| [if at == 70 { 60 } else { 10 }, if at == 71 { 62 } else { 12 }, 3_000],
        ] {
            let (found, steps) = cut(200, changed);
            assert_eq!((found.len(), steps), (200, 0));
            assert_eq!(found[199].forward_ns, (changed(199)[0] + 3_000) * MS);
        }
        assert_eq!(cut(5, step).0.len(), 5);
    }

    #[test]
    fn extremes_are_kept_within_bounds() {
        let mut clock = ResponderClock::default();
        for sequence in 0..100 {
            let ns = if sequence < 50 { i64::MIN } else { i64::MAX };
            clock.take(BothWays { sequence, forward_ns: ns, backward_ns: ns });
        }
        clock.own_step(i64::MIN);
        clock.take(BothWays { sequence: 100, forward_ns: i64::MAX, backward_ns: i64::MIN });
    }
}
