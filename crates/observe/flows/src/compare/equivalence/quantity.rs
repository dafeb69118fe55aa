//! What is compared, how much it may differ, and what follows.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum QuantityName {
    /// Median of a time, nanoseconds.
    MedianNs,
    /// From the 10 % to the 90 % quantile, nanoseconds.
    RangeNs,
    /// The 99 % quantile above the median, nanoseconds.
    P99Ns,
    /// The 99.9 % quantile above the median, nanoseconds.
    P999Ns,
    /// The greatest distance of both distribution functions, 0 to 1; times may be moved by the least margin of times.
    Distance,
    /// Correlation of neighbours, by ranks.
    Correlation,
    /// Share of packets that were lost.
    LossShare,
    /// Mean of packets lost in a row.
    LossRunPackets,
    /// Variance over mean of the losses of equal numbers of packets: 1 where losses are independent, more where they come together.
    LossDispersion,
    /// Share of packets that came behind later ones.
    ReorderedShare,
    /// Share of packets that are duplicates.
    DuplicateShare,
}

impl QuantityName {
    /// All, in the order of a report.
    pub const ALL: [Self; 11] = [
        Self::MedianNs,
        Self::RangeNs,
        Self::P99Ns,
        Self::P999Ns,
        Self::Distance,
        Self::Correlation,
        Self::LossShare,
        Self::LossRunPackets,
        Self::LossDispersion,
        Self::ReorderedShare,
        Self::DuplicateShare,
    ];

    /// Its name in `--margin` and on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::MedianNs => "median",
            Self::RangeNs => "range",
            Self::P99Ns => "p99",
            Self::P999Ns => "p99.9",
            Self::Distance => "distance",
            Self::Correlation => "correlation",
            Self::LossShare => "loss",
            Self::LossRunPackets => "loss-run",
            Self::LossDispersion => "loss-dispersion",
            Self::ReorderedShare => "reordered",
            Self::DuplicateShare => "duplicates",
        }
    }

    /// Whether it is a time.
    pub fn is_time(self) -> bool {
        matches!(self, Self::MedianNs | Self::RangeNs | Self::P99Ns | Self::P999Ns)
    }

    /// Whether it is a share of packets.
    pub fn is_share(self) -> bool {
        matches!(self, Self::LossShare | Self::ReorderedShare | Self::DuplicateShare)
    }

    /// Whether its margin is a share of its value.
    fn is_relative(self) -> bool {
        !matches!(self, Self::Distance | Self::Correlation)
    }

    /// The margin unless told otherwise: a share of the reference's value.
    fn share(self) -> f64 {
        match self {
            Self::MedianNs => 0.01,
            Self::RangeNs => 0.05,
            Self::P99Ns | Self::P999Ns => 0.10,
            Self::Distance | Self::Correlation => 0.0,
            Self::LossShare | Self::LossRunPackets | Self::ReorderedShare | Self::DuplicateShare => 0.2,
            Self::LossDispersion => 0.5,
        }
    }
}

/// How much a quantity may differ, as a share of the reference's value: `p99=5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    /// Of what.
    pub name: QuantityName,
    /// From 0.
    pub share: f64,
}

/// Why a text is no margin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: use NAME=SHARE such as p99=5%, NAME one of {NAMES}")]
pub struct MarginError(String);

const NAMES: &str = "median, range, p99, p99.9, loss, loss-run, loss-dispersion, reordered, duplicates";

impl FromStr for Margin {
    type Err = MarginError;

    fn from_str(text: &str) -> Result<Self, MarginError> {
        let wrong = || MarginError(text.escape_debug().take(40).collect());
        let (name, share) = text.split_once('=').ok_or_else(wrong)?;
        let name = QuantityName::ALL.into_iter().find(|quantity| quantity.name() == name.trim());
        let name = name.filter(|name| name.is_relative()).ok_or_else(wrong)?;
        let share = share.trim();
        let share = match share.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            None => share.parse::<f64>(),
        };
        share.ok().filter(|share| (0.0..=10.0).contains(share)).map(|share| Self { name, share }).ok_or_else(wrong)
    }
}

/// The margins of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Margins {
    /// Those that were asked for; the last of a name counts.
    pub asked: Vec<Margin>,
    /// No margin of a time is less than this, nanoseconds.
    pub least_ns: f64,
    /// No margin of a share of lost packets is less than this.
    pub least_loss: f64,
}

impl Margins {
    /// How much `name` may differ from `reference`.
    pub fn of(&self, name: QuantityName, reference: f64) -> f64 {
        let asked = self.asked.iter().rev().find(|margin| margin.name == name);
        let least = match name {
            name if name.is_time() => self.least_ns,
            QuantityName::LossShare => self.least_loss,
            QuantityName::ReorderedShare | QuantityName::DuplicateShare => 0.001,
            QuantityName::LossRunPackets => 0.2,
            QuantityName::LossDispersion => 0.5,
            _ => 0.1,
        };
        (asked.map_or(name.share(), |margin| margin.share) * reference.abs()).max(least)
    }
}

/// What is said of a quantity, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Verdict {
    /// The difference is within the margin (90 % interval).
    Within,
    /// It is outside (99 % interval).
    Outside,
    /// Neither can be said: more packets are needed.
    TooLittleData,
}

impl Verdict {
    /// Of the 90 % interval of the difference and of the 99 % interval.
    fn of(difference: Option<[f64; 2]>, surely: Option<[f64; 2]>, margin: f64) -> Self {
        match (difference, surely) {
            (Some([low, high]), _) if -margin <= low && high <= margin => Self::Within,
            (_, Some([low, high])) if high < -margin || margin < low => Self::Outside,
            _ => Self::TooLittleData,
        }
    }

    /// Outside where any is; within where all are, and there is one.
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let mut all = all.into_iter().peekable();
        if all.peek().is_none() {
            return Self::TooLittleData;
        }
        let worst = |worst: Self, next: Self| match (worst, next) {
            (Self::Outside, _) | (_, Self::Outside) => Self::Outside,
            (Self::TooLittleData, _) | (_, Self::TooLittleData) => Self::TooLittleData,
            _ => Self::Within,
        };
        all.fold(Self::Within, worst)
    }
}

/// One quantity of both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantity {
    /// Which.
    pub name: QuantityName,
    /// The reference's value: of the measurement, or of the first run. Of a distance 0.
    pub reference: f64,
    /// The value of what was tested: of the path, or of the second run.
    pub tested: f64,
    /// 90 % interval of the tested value less the reference's; none where either has no 10 independent parts.
    pub difference: Option<[f64; 2]>,
    /// 99 % interval of the same: it must lie beyond the margin for `outside`.
    #[serde(default)]
    pub difference_99: Option<[f64; 2]>,
    /// How much it may differ.
    pub margin: f64,
    /// What follows.
    pub verdict: Verdict,
}

impl Quantity {
    /// The same where the tested value may have been measured too great by `late`.
    pub fn less(mut self, late: f64) -> Self {
        for interval in [&mut self.difference, &mut self.difference_99].into_iter().flatten() {
            interval[0] -= late;
        }
        self.judged()
    }

    /// With the verdict that follows from both intervals.
    pub(super) fn judged(mut self) -> Self {
        self.verdict = Verdict::of(self.difference, self.difference_99, self.margin);
        self
    }
}
