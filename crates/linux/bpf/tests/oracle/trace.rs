//! What a sender's congestion window did, against the number of segments that were delivered; and how far two of these are apart.

use std::fmt;

/// The sender's state after an acknowledgement, where it differs from that after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Segments that had reached the receiver.
    pub(crate) delivered_segments: u64,
    /// `tcpi_snd_cwnd`.
    pub(crate) window_segments: u32,
    /// `tcpi_snd_ssthresh`.
    pub(crate) threshold_segments: u32,
    /// `tcpi_ca_state`.
    pub(crate) state: u8,
}

/// `TCP_CA_Recovery`; beyond it there is only `TCP_CA_Loss`.
const RECOVERY: u8 = 3;

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    /// In the order of `delivered_segments`, the first at 0: after the handshake.
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

/// What is known when a flow has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// Segments that were delivered in all.
    pub(crate) delivered_segments: u64,
    /// How much later than due acknowledgements left: the median, and the worst.
    pub(crate) late_median_ns: u64,
    pub(crate) late_most_ns: u64,
}

/// How far two traces may be apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerance {
    /// Of the larger window.
    pub(crate) share: f64,
    /// A difference of so many segments is none.
    pub(crate) window_segments: u32,
    /// A window counts as equal to any that the other had so many segments before or after: a step may come a little later.
    pub(crate) delivered_segments: u64,
}

impl Tolerance {
    /// Each acknowledgement leaves the same window and threshold.
    pub(crate) const EQUAL: Self = Self { share: 0.0, window_segments: 0, delivered_segments: 0 };
}

/// How far two traces are apart, beyond the segments that a [`Tolerance`] overlooks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Distance {
    /// The largest difference of windows, as a share of the larger one; where it was, and the windows.
    pub(crate) window: f64,
    at_segments: u64,
    windows: [u32; 2],
    /// The mean of these differences.
    mean: f64,
    /// The largest difference of the thresholds that losses set.
    pub(crate) threshold: f64,
}

impl Trace {
    /// The windows between `first` and `last` delivered segments, both included.
    fn windows(&self, first: u64, last: u64) -> impl Iterator<Item = u32> {
        let from = self.steps.partition_point(|step| step.delivered_segments <= first).saturating_sub(1);
        self.steps[from..]
            .iter()
            .take_while(move |step| step.delivered_segments <= last)
            .map(|step| step.window_segments)
    }

    /// The thresholds that losses set: each where a recovery begins, and the segments delivered until then.
    pub(crate) fn thresholds(&self) -> Vec<(u64, u32)> {
        let begins = |pair: &&[Step]| pair[0].state < RECOVERY && pair[1].state >= RECOVERY;
        let pairs = self.steps.windows(2).filter(begins);
        pairs.map(|pair| (pair[1].delivered_segments, pair[1].threshold_segments)).collect()
    }

    /// Compares at each delivered segment. `None` where the flows had not as many losses to answer.
    pub(crate) fn distance(&self, other: &Self, tolerance: &Tolerance) -> Option<Distance> {
        let mut distance = Distance::default();
        let mut sum = 0.0;
        let last = self.end.delivered_segments;
        for delivered in 0..=last {
            let around =
                [delivered.saturating_sub(tolerance.delivered_segments), delivered + tolerance.delivered_segments];
            let mut worst = (0.0, [0; 2]);
            for (one, two) in [(self, other), (other, self)] {
                let own = one.windows(delivered, delivered).next()?;
                let near =
                    two.windows(around[0], around[1]).map(|theirs| (relative([own, theirs], tolerance), [own, theirs]));
                let nearest = near.min_by(|(one, _), (two, _)| one.total_cmp(two))?;
                worst = if nearest.0 > worst.0 { nearest } else { worst };
            }
            sum += worst.0;
            if worst.0 > distance.window {
                distance = Distance { window: worst.0, at_segments: delivered, windows: worst.1, ..distance };
            }
        }
        distance.mean = sum / (last + 1) as f64;
        let (own, theirs) = (self.thresholds(), other.thresholds());
        for (own, theirs) in own.iter().zip(&theirs) {
            distance.threshold = distance.threshold.max(relative([own.1, theirs.1], tolerance));
        }
        (own.len() == theirs.len()).then_some(distance)
    }
}

/// The difference as a share of the larger.
fn relative([one, two]: [u32; 2], tolerance: &Tolerance) -> f64 {
    let apart = one.abs_diff(two);
    if apart <= tolerance.window_segments { 0.0 } else { f64::from(apart) / f64::from(one.max(two)) }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share| share * 100.0;
        let Self { at_segments, windows, .. } = self;
        write!(f, "windows apart by {:.2} % at most", percent(self.window))?;
        if self.window > 0.0 {
            write!(f, " ({windows:?} after {at_segments} segments), {:.3} % in the mean", percent(self.mean))?;
        }
        write!(f, ", thresholds by {:.2} %", percent(self.threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(steps: &[(u64, u32, u32, u8)]) -> Trace {
        let step = |&(delivered_segments, window_segments, threshold_segments, state)| Step {
            delivered_segments,
            window_segments,
            threshold_segments,
            state,
        };
        let end = End { delivered_segments: 100, late_median_ns: 1, late_most_ns: 2 };
        Trace { steps: steps.iter().map(step).collect(), end }
    }

    #[test]
    fn every_difference_is_seen() {
        let one = trace(&[(0, 10, 99, 0), (50, 20, 10, 3), (51, 10, 10, 0)]);
        let equal = one.distance(&one, &Tolerance::EQUAL).unwrap();
        assert_eq!(equal, Distance::default());
        // A window for one segment, the threshold, a step that comes later, a loss more.
        let other = trace(&[(0, 10, 99, 0), (50, 20, 8, 3), (52, 10, 8, 0)]);
        let apart = one.distance(&other, &Tolerance::EQUAL).unwrap();
        assert_eq!((apart.window, apart.at_segments, apart.windows, apart.threshold), (0.5, 51, [10, 20], 0.2));
        let later = Tolerance { delivered_segments: 1, ..Tolerance::EQUAL };
        assert_eq!(one.distance(&other, &later).unwrap().window, 0.0);
        let by_two = Tolerance { window_segments: 2, ..Tolerance::EQUAL };
        assert_eq!(one.distance(&other, &by_two).unwrap().threshold, 0.0);
        let more = trace(&[(0, 10, 99, 0), (50, 20, 10, 3), (51, 10, 10, 0), (90, 10, 5, 4)]);
        assert_eq!(one.distance(&more, &later), None);
    }
}
