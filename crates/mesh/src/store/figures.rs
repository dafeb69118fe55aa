//! What tests of a pair found over a time, beside the loss of UDP packets: medians of round trips or of TCP.

use sqlx::Row;
use sqlx::any::AnyRow;

/// What is measured of a pair beside the loss of UDP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Round trips of probes.
    RoundTrip,
    /// What a TCP flow carries.
    Goodput,
}

impl Metric {
    const ALL: [Self; 2] = [Self::RoundTrip, Self::Goodput];

    /// Its name, also in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "rtt",
            Self::Goodput => "goodput",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }
}

/// What the tests of one pair and direction found over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Tests that began in it.
    pub tests: i64,
    /// Probes that they sent; 0 of TCP.
    pub sent: i64,
    /// Probes that were lost; 0 of TCP.
    pub lost: i64,
    /// Of round trips the median of the tests' medians, nanoseconds; of TCP the median goodput, payload bits a second. `None`: no test has one.
    pub median: Option<i64>,
    /// Of round trips the median of the tests' 99 % quantiles; of TCP the median of the rates that the flows were paced to.
    pub beside: Option<i64>,
    /// Runs of lost probes that lasted a second or more.
    pub outages: i64,
    /// The longest of them, nanoseconds.
    pub longest_outage_ns: i64,
}

/// Figures of a pair: sender, receiver.
pub type OfPair = ((String, String), Figures);

impl Figures {
    /// Figures of a time from those of its parts.
    pub(super) fn of(parts: &[Self]) -> Self {
        let mut gathered = Gathered::default();
        parts.iter().for_each(|part| gathered.add(part, part.median, part.beside));
        gathered.figures()
    }

    /// Those of a row that begins with them, in their order.
    pub(super) fn read(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            tests: row.try_get(0)?,
            sent: row.try_get(1)?,
            lost: row.try_get(2)?,
            median: row.try_get(3)?,
            beside: row.try_get(4)?,
            outages: row.try_get(5)?,
            longest_outage_ns: row.try_get(6)?,
        })
    }
}

/// Parts of a time on the way to its figures: sums, and the values that medians are of.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    sums: Figures,
    medians: Vec<i64>,
    besides: Vec<i64>,
}

impl Gathered {
    /// Adds the sums of a part, and values of it.
    pub(super) fn add(
        &mut self,
        part: &Figures,
        medians: impl IntoIterator<Item = i64>,
        besides: impl IntoIterator<Item = i64>,
    ) {
        self.sums.tests = self.sums.tests.saturating_add(part.tests);
        self.sums.sent = self.sums.sent.saturating_add(part.sent);
        self.sums.lost = self.sums.lost.saturating_add(part.lost);
        self.sums.outages = self.sums.outages.saturating_add(part.outages);
        self.sums.longest_outage_ns = self.sums.longest_outage_ns.max(part.longest_outage_ns);
        self.medians.extend(medians);
        self.besides.extend(besides);
    }

    /// The figures of all parts together.
    pub(super) fn figures(mut self) -> Figures {
        Figures { median: median(&mut self.medians), beside: median(&mut self.besides), ..self.sums }
    }
}

/// The middle value; of two in the middle the greater one, which is a value that was measured.
fn median(values: &mut [i64]) -> Option<i64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// Values in one text, as a store has them.
pub(super) fn text(values: impl Iterator<Item = i64>) -> Option<String> {
    let texts: Vec<String> = values.map(|value| value.to_string()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// The values of such a text.
pub(super) fn values(text: Option<&str>) -> impl Iterator<Item = i64> {
    text.into_iter().flat_map(|text| text.split(',')).filter_map(|value| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_time_are_those_of_its_parts() {
        let part = |median: Option<i64>, lost, outages, longest_outage_ns| Figures {
            tests: 2,
            sent: 100,
            lost,
            median,
            beside: median.map(|value| value * 2),
            outages,
            longest_outage_ns,
        };
        let whole = Figures::of(&[part(Some(9), 1, 0, 0), part(None, 100, 1, 7), part(Some(5), 0, 2, 3)]);
        let expected = Figures {
            tests: 6,
            sent: 300,
            lost: 101,
            median: Some(9),
            beside: Some(18),
            outages: 3,
            longest_outage_ns: 7,
        };
        assert_eq!(whole, expected);
        assert_eq!(Figures::of(&[]), Figures::default());
    }

    /// Each part is one that a site may deliver: together they are more than a number holds.
    #[test]
    fn sums_of_the_greatest_parts_stay_the_greatest_number() {
        let (tests, sent, lost, outages) = (i64::MAX, i64::MAX - 1, i64::MAX / 2 + 1, i64::MAX);
        let part = Figures { tests, sent, lost, outages, longest_outage_ns: i64::MAX, median: Some(1), beside: None };
        let all = Figures { sent: i64::MAX, lost: i64::MAX, ..part };
        assert_eq!(Figures::of(&[part, part]), all);
    }

    #[test]
    fn values_come_back_from_their_text() {
        assert_eq!(text([7, -1, i64::MAX].into_iter()).as_deref(), Some("7,-1,9223372036854775807"));
        assert_eq!(values(Some("7,-1,9223372036854775807")).collect::<Vec<_>>(), [7, -1, i64::MAX]);
        assert_eq!((text(std::iter::empty()), values(None).count()), (None, 0));
    }
}
