//! What a sender's congestion window did, against the number of segments that were delivered; and how far two of these are apart.

use std::fmt::Write as _;
use std::io;

use serde::{Deserialize, Serialize};

/// The sender's state after an acknowledgement, where it differs from that after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Segments that had reached the receiver, each acknowledged at once: the number of acknowledgements.
    pub(crate) delivered_segments: u64,
    /// `tcpi_snd_cwnd`.
    pub(crate) window_segments: u32,
    /// `tcpi_snd_ssthresh`.
    pub(crate) threshold_segments: u32,
    /// `tcpi_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub(crate) state: u8,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trace {
    /// In the order of `delivered_segments`, the first at 0.
    pub(crate) steps: Vec<Step>,
    /// Segments that were delivered in all.
    pub(crate) delivered_segments: u64,
    /// How much later than due acknowledgements left: median, and the worst.
    pub(crate) late_median_ns: u64,
    pub(crate) late_most_ns: u64,
}

/// What follows the steps in the text form.
#[derive(Serialize, Deserialize)]
struct End {
    delivered_segments: u64,
    late_median_ns: u64,
    late_most_ns: u64,
}

/// How far two traces are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distance {
    /// Largest difference of the windows at any acknowledgement, as a share of the larger.
    pub(crate) most: f64,
    /// Where that was.
    pub(crate) at_segments: u64,
    /// Its windows.
    pub(crate) windows: [u32; 2],
    /// Mean difference, likewise.
    pub(crate) mean: f64,
    /// Largest difference of the slow-start thresholds that a loss set, likewise.
    pub(crate) threshold: f64,
}

impl Trace {
    /// One JSON object a line: the steps, and the end.
    pub(crate) fn to_lines(&self) -> String {
        let mut lines = String::new();
        for step in &self.steps {
            writeln!(lines, "{}", serde_json::to_string(step).unwrap()).unwrap();
        }
        let &Self { delivered_segments, late_median_ns, late_most_ns, .. } = self;
        writeln!(
            lines,
            "{}",
            serde_json::to_string(&End { delivered_segments, late_median_ns, late_most_ns }).unwrap()
        )
        .unwrap();
        lines
    }

    /// What [`Trace::to_lines`] wrote.
    ///
    /// # Errors
    /// Where the text is something else, or was cut short.
    pub(crate) fn from_lines(lines: &str) -> io::Result<Self> {
        let mut lines: Vec<_> = lines.lines().collect();
        let End { delivered_segments, late_median_ns, late_most_ns } =
            serde_json::from_str(lines.pop().ok_or(io::ErrorKind::UnexpectedEof)?)?;
        let steps = lines.into_iter().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { steps, delivered_segments, late_median_ns, late_most_ns })
    }

    /// The state after `delivered` segments.
    fn at(&self, delivered: u64) -> Step {
        self.steps[self.steps.partition_point(|step| step.delivered_segments <= delivered) - 1]
    }

    /// The thresholds that losses set: those at the end of each way out of the open state.
    pub(crate) fn thresholds(&self) -> Vec<(u64, u32)> {
        let reduced = |state| state >= 3;
        let pairs = self.steps.windows(2).filter(|pair| reduced(pair[1].state) && !reduced(pair[0].state));
        pairs.map(|pair| (pair[1].delivered_segments, pair[1].threshold_segments)).collect()
    }

    /// Compares at each acknowledgement.
    ///
    /// # Panics
    /// Where one had more losses to answer, or delivered more: these flows had not the same path.
    pub(crate) fn distance(&self, other: &Self) -> Distance {
        assert_eq!(self.delivered_segments, other.delivered_segments);
        let mut distance = Distance { most: 0.0, at_segments: 0, windows: [0; 2], mean: 0.0, threshold: 0.0 };
        let mut sum = 0.0;
        for delivered in 0..=self.delivered_segments {
            let windows = [self.at(delivered).window_segments, other.at(delivered).window_segments];
            let apart = relative(windows);
            sum += apart;
            if apart > distance.most {
                distance = Distance { most: apart, at_segments: delivered, windows, ..distance };
            }
        }
        distance.mean = sum / (self.delivered_segments + 1) as f64;
        let (own, others) = (self.thresholds(), other.thresholds());
        assert_eq!(own.len(), others.len(), "losses that were answered: {own:?} and {others:?}");
        for (own, other) in own.iter().zip(&others) {
            distance.threshold = distance.threshold.max(relative([own.1, other.1]));
        }
        distance
    }
}

/// The difference as a share of the larger.
fn relative([one, other]: [u32; 2]) -> f64 {
    f64::from(one.abs_diff(other)) / f64::from(one.max(other).max(1))
}
