//! Losses of one TCP direction in sequence order, as its retransmissions show them at one point: how many segments passed, and how many
//! in a row were lost.
//!
//! Before the place of the loss a segment passes twice. Behind it there is a hole until the retransmission. Both show the sequence
//! numbers of lost segments. Needless retransmissions count too. A segment that was lost twice counts once.

/// A run of lost packets, in the order of a flow's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Packets that were not lost since the run before, the flow's beginning, or a gap of the capture.
    pub after_packets: u64,
    /// Lost in a row; 0 where the flow or what was captured of it ends.
    pub packets: u64,
}

/// The account of one direction.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Behind the last number that is accounted for.
    until: u64,
    /// The run that may go on: from and up to.
    run: Option<(u64, u64)>,
    /// A run that ended, as long as nobody took it.
    pub(crate) ended: Option<Loss>,
}

impl Losses {
    /// The numbers from `start` up to `end` were retransmitted, or fill a hole.
    pub(crate) fn lost(&mut self, start: u64, end: u64, first: u64, segment_bytes: u64) {
        self.until = self.until.max(first);
        match &mut self.run {
            // A part of the hole, or lost twice.
            Some((_, until)) if end <= *until => {}
            Some((_, until)) if start <= *until => *until = end,
            None if end <= self.until => {}
            run => {
                let (start, before) = (start.max(self.until), run.take());
                *run = Some((start, end));
                if let Some(before) = before {
                    self.ended = Some(self.account(before, segment_bytes));
                }
            }
        }
    }

    /// The capture has lost what is before `start`.
    pub(crate) fn cut(&mut self, start: u64, segment_bytes: u64) {
        if let Some(run) = self.run.take() {
            self.ended = Some(self.account(run, segment_bytes));
        }
        self.until = self.until.max(start);
    }

    /// The direction ends before `next`: the run that went on, and what passed behind it.
    pub(crate) fn finish(&mut self, first: u64, next: u64, segment_bytes: u64) -> [Option<Loss>; 2] {
        self.until = self.until.max(first);
        let last = self.run.take().map(|run| self.account(run, segment_bytes));
        let after_packets = next.saturating_sub(self.until).div_ceil(segment_bytes);
        [last, Some(Loss { after_packets, packets: 0 })]
    }

    fn account(&mut self, (start, end): (u64, u64), segment_bytes: u64) -> Loss {
        let after_packets = start.saturating_sub(self.until) / segment_bytes;
        let packets = end.saturating_sub(start.max(self.until)).div_ceil(segment_bytes);
        self.until = self.until.max(end);
        Loss { after_packets, packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of 100 bytes; 2 and 3 lost, 3 once more, then 7.
    #[test]
    fn runs_follow_numbers() {
        let mut losses = Losses::default();
        losses.lost(1_200, 1_300, 1_000, 100);
        losses.lost(1_300, 1_400, 1_000, 100);
        losses.lost(1_300, 1_400, 1_000, 100);
        assert_eq!(losses.ended, None);
        losses.lost(1_700, 1_800, 1_000, 100);
        assert_eq!(losses.ended.take(), Some(Loss { after_packets: 2, packets: 2 }));
        let left = losses.finish(1_000, 2_000, 100);
        assert_eq!(left, [Some(Loss { after_packets: 3, packets: 1 }), Some(Loss { after_packets: 2, packets: 0 })]);
    }

    /// The whole hole is known from the first segment that fills it.
    #[test]
    fn parts_of_a_hole_are_one_run() {
        let mut losses = Losses::default();
        for start in [1_500, 1_600, 1_700] {
            losses.lost(start, 1_800, 1_000, 100);
        }
        assert_eq!(losses.finish(1_000, 1_800, 100)[0], Some(Loss { after_packets: 5, packets: 3 }));
    }

    #[test]
    fn nothing_reaches_across_a_gap() {
        let mut losses = Losses::default();
        losses.lost(1_200, 1_300, 1_000, 100);
        losses.cut(1_900, 100);
        assert_eq!(losses.ended.take(), Some(Loss { after_packets: 2, packets: 1 }));
        losses.lost(2_000, 2_100, 1_000, 100);
        assert_eq!(losses.finish(1_000, 2_100, 100)[0], Some(Loss { after_packets: 1, packets: 1 }));
    }
}
