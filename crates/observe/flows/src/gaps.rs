//! The times in which a capture lost packets by its own account: what is missing there says nothing about a flow.
//!
//! A gap counts for every flow, whichever interface it passed: a merged capture has one time.

use longhaul_captures::ledger::Gap;
use longhaul_captures::packet::within_times;

/// Times in which packets may be missing, in order and apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gaps {
    /// From and up to, nanoseconds since 1970.
    spans: Vec<(i64, i64)>,
}

/// A time in relation to the gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lost {
    /// Time in gaps since the capture began, up to now.
    pub(crate) gap_ns: i64,
    /// Now lies within one.
    pub(crate) inside: bool,
}

impl Lost {
    /// Whether packets may be missing since `then`.
    #[inline]
    pub(crate) fn since(self, then: i64) -> bool {
        self.inside || self.gap_ns != then
    }
}

impl Gaps {
    /// Those of a ledger.
    pub fn of(gaps: &[Gap]) -> Self {
        let mut spans: Vec<(i64, i64)> = Vec::with_capacity(gaps.len());
        let mut sorted: Vec<(i64, i64)> = gaps
            .iter()
            .filter(|gap| gap.packets > 0)
            // A moment is a gap as well.
            .map(|gap| (within_times(gap.from_ns), within_times(gap.to_ns)))
            .map(|(from_ns, to_ns)| (from_ns, to_ns.max(from_ns + 1)))
            .collect();
        sorted.sort_unstable();
        for (from_ns, to_ns) in sorted {
            match spans.last_mut() {
                Some(last) if from_ns <= last.1 => last.1 = last.1.max(to_ns),
                _ => spans.push((from_ns, to_ns)),
            }
        }
        Self { spans }
    }

    /// Whether packets may be missing at some time from `from_ns` to `to_ns`.
    #[inline]
    pub fn meet(&self, from_ns: i64, to_ns: i64) -> bool {
        if self.spans.is_empty() {
            return false;
        }
        let next = self.spans.partition_point(|(_, to)| *to < from_ns);
        self.spans.get(next).is_some_and(|(from, _)| *from <= to_ns)
    }

    /// Whether packets may be missing between two that passed at `from_ns` and `to_ns`: a gap ends with the packet behind it.
    #[inline]
    pub fn lie_between(&self, from_ns: i64, to_ns: i64) -> bool {
        self.meet(from_ns.saturating_add(1), to_ns.saturating_sub(1))
    }

    /// From and up to of each, in order.
    pub fn spans(&self) -> &[(i64, i64)] {
        &self.spans
    }

    /// How many there are, and how long they are together.
    pub fn sum(&self) -> (u64, i64) {
        (self.spans.len() as u64, self.spans.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum())
    }
}

/// Goes along the gaps as time goes on.
#[derive(Debug, Default)]
pub(crate) struct GapClock {
    gaps: Gaps,
    /// The gap that is not over.
    at: usize,
    /// Time in those that are.
    over_ns: i64,
    /// Gaps that lie in the time from the first moment that was asked for, as far as it came.
    met: u64,
    began: bool,
    now: Lost,
}

impl GapClock {
    pub(crate) fn new(gaps: Gaps) -> Self {
        Self { gaps, ..Self::default() }
    }

    /// Places `at_ns` in relation to the gaps; time never goes back.
    #[inline]
    pub(crate) fn at(&mut self, at_ns: i64) -> Lost {
        // Most captures have none.
        if self.gaps.spans.get(self.at).is_some_and(|(from_ns, _)| at_ns >= *from_ns) {
            self.within(at_ns);
        } else {
            self.began = true;
        }
        self.now
    }

    #[cold]
    fn within(&mut self, at_ns: i64) {
        if !self.began {
            // What was lost before the first packet is no time of any flow.
            self.began = true;
            for (from_ns, to_ns) in &mut self.gaps.spans {
                (*from_ns, *to_ns) = ((*from_ns).max(at_ns), (*to_ns).max(at_ns));
            }
            self.gaps.spans.retain(|(from_ns, to_ns)| from_ns < to_ns);
        }
        self.now.inside = false;
        while let Some(&(from_ns, to_ns)) = self.gaps.spans.get(self.at).filter(|(from_ns, _)| at_ns >= *from_ns) {
            if at_ns < to_ns {
                self.now = Lost { gap_ns: self.over_ns + (at_ns - from_ns), inside: true };
                self.met = self.at as u64 + 1;
                return;
            }
            self.over_ns += to_ns - from_ns;
            self.at += 1;
            self.met = self.at as u64;
        }
        self.now.gap_ns = self.over_ns;
    }

    pub(crate) fn now(&self) -> Lost {
        self.now
    }

    /// Gaps up to now.
    pub(crate) fn met(&self) -> u64 {
        self.met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_captures::ledger::DroppedAt;

    fn gap(from_ns: i64, to_ns: i64) -> Gap {
        Gap { place: DroppedAt::KernelRing, interface: Some(0), from_ns, to_ns, packets: 1 }
    }

    #[test]
    fn gaps_that_overlap_are_one() {
        let gaps = Gaps::of(&[gap(50, 60), gap(10, 20), gap(15, 30), gap(70, 70), Gap { packets: 0, ..gap(80, 90) }]);
        assert_eq!(gaps.spans, [(10, 30), (50, 60), (70, 71)]);
    }

    #[test]
    fn what_touches_a_gap_meets_it() {
        let gaps = Gaps::of(&[gap(10, 20), gap(30, 40)]);
        let meets = [(0, 9), (0, 10), (12, 13), (20, 21), (21, 29), (21, 30), (0, 50), (41, 50)];
        assert_eq!(meets.map(|(from, to)| gaps.meet(from, to)), [false, true, true, true, false, true, true, false]);
        assert_eq!(
            [(20, 30), (19, 30), (20, 31), (5, 10)].map(|(from, to)| gaps.lie_between(from, to)),
            [false, true, true, false]
        );
        assert_eq!((gaps.sum(), Gaps::default().meet(i64::MIN, i64::MAX)), ((2, 20), false));
    }

    #[test]
    fn time_in_gaps_adds_up() {
        let mut clock = GapClock::new(Gaps::of(&[gap(0, 5), gap(8, 30), gap(50, 60), gap(500, 600)]));
        let expected =
            [(10, 0, true), (12, 2, true), (30, 20, false), (49, 20, false), (55, 25, true), (70, 30, false)];
        for (at_ns, gap_ns, inside) in expected {
            assert_eq!(clock.at(at_ns), Lost { gap_ns, inside }, "{at_ns}");
        }
        assert_eq!(clock.met(), 2, "the first was over before the first packet");
    }

    /// Two that are passed in one step.
    #[test]
    fn a_step_over_several_gaps() {
        let mut clock = GapClock::new(Gaps::of(&[gap(10, 20), gap(30, 40)]));
        assert_eq!(clock.at(0), Lost::default());
        assert_eq!(clock.at(45), Lost { gap_ns: 20, inside: false });
        assert!(clock.now().since(0) && !clock.now().since(20));
    }
}
