//! The rate of a captured flow over time, averaged over 1 ms and over 1 s: figures 5 to 7 of TAPEE.

use serde::{Deserialize, Serialize};

use crate::html::axis::RATES;
use crate::html::lines::{Band, Line, Panel};
use crate::html::over_time::runs::{Detail, KEPT};
use crate::html::over_time::timeline;

const SECOND_MS: usize = 1_000;

/// Rates of payload over time, in at most 200 columns. Time counts from the first packet that counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatesOverTime {
    /// How long a column is; 0 without any.
    pub column_ns: u64,
    /// The rate of the slowest millisecond of each column, bits a second.
    pub least_1ms_bps: Vec<u64>,
    /// That of the fastest.
    pub most_1ms_bps: Vec<u64>,
    /// The average over the second that ends with the column; `None` in the first second.
    pub mean_1s_bps: Vec<Option<u64>>,
}

impl RatesOverTime {
    /// Of the payload in each millisecond, those without any included.
    pub fn of(payload_bytes: &[u64]) -> Self {
        let together = payload_bytes.len().div_ceil(KEPT).max(1);
        let columns = || payload_bytes.chunks(together);
        let bps = |bytes: Option<&u64>| bytes.map_or(0, |bytes| bytes.saturating_mul(8_000));
        let last_second = |(number, column): (usize, &[u64])| {
            let end = number * together + column.len();
            let second = payload_bytes.get(end.checked_sub(SECOND_MS)?..end)?;
            Some(second.iter().copied().fold(0, u64::saturating_add).saturating_mul(8))
        };
        Self {
            column_ns: if payload_bytes.is_empty() { 0 } else { together as u64 * 1_000_000 },
            least_1ms_bps: columns().map(|column| bps(column.iter().min())).collect(),
            most_1ms_bps: columns().map(|column| bps(column.iter().max())).collect(),
            mean_1s_bps: columns().enumerate().map(last_second).collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.most_1ms_bps.is_empty()
    }

    /// Each at most `most` columns: when it begins, its least and its greatest rate in 1 ms, and the average over 1 s at its end.
    fn columns(&self, most: usize) -> Vec<(f64, f64, f64, Option<f64>)> {
        // These differ only in a result that others made.
        let lengths = [self.most_1ms_bps.len(), self.least_1ms_bps.len(), self.mean_1s_bps.len()];
        let together = lengths.into_iter().fold(0, usize::max).div_ceil(most.max(1)).max(1);
        let (mut least, mut most_1ms) = (self.least_1ms_bps.chunks(together), self.most_1ms_bps.chunks(together));
        let seconds = self.mean_1s_bps.chunks(together).enumerate();
        let end = |end: Option<&u64>| end.copied().unwrap_or_default() as f64;
        let column = |(number, second): (usize, &[Option<u64>])| {
            let at_s = (number * together) as f64 * self.column_ns as f64 / 1e9;
            let lowest = end(least.next().unwrap_or_default().iter().min());
            let highest = end(most_1ms.next().unwrap_or_default().iter().max());
            (at_s, lowest, highest, second.last().copied().flatten().map(|bps| bps as f64))
        };
        seconds.map(column).collect()
    }
}

/// A figure for each of some flows, with the label of its point; empty without any.
pub(super) fn figures<'a>(flows: impl Iterator<Item = (&'a str, &'a RatesOverTime)>, detail: Detail) -> String {
    let flows: Vec<_> = flows.map(|(label, rates)| (format!("Rate, {label}"), rates.columns(detail.most))).collect();
    let panels = flows.iter().map(|(title, columns)| {
        let points = columns.iter().map(|(at, least, most, _)| Some((*at, *least, *most)));
        let seconds = columns.iter().filter_map(|(at, _, _, second)| Some(Some((*at, (*second)?))));
        let panel = Panel {
            title,
            what: "payload, ",
            units: &RATES,
            bands: vec![Band { name: "1 ms, lowest to highest", colour: "--pale", points: points.collect() }],
            lines: vec![Line { name: "average over 1 s", colour: "--orange", points: seconds.collect() }],
            since: "the first packet that counts",
            ..Panel::default()
        };
        (panel, "As it left the sender, by the capture there.")
    });
    timeline(panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 2 s in columns of 10 ms. 1 kB in each second millisecond is 8 Mb/s in 1 ms, none, and 4 Mb/s on the mean; a millisecond of 5 kB is 40.
    #[test]
    fn bursts_of_a_millisecond_stay_in_columns() {
        let mut bytes: Vec<u64> = (0..2_000).map(|number| if number % 2 == 0 { 1_000 } else { 0 }).collect();
        bytes[1_501] = 5_000;
        let rates = RatesOverTime::of(&bytes);
        assert_eq!((rates.column_ns, rates.most_1ms_bps.len()), (10_000_000, 200));
        assert_eq!(
            (rates.least_1ms_bps[0], rates.most_1ms_bps[0], rates.most_1ms_bps[150]),
            (0, 8_000_000, 40_000_000)
        );
        assert_eq!((rates.mean_1s_bps[98], rates.mean_1s_bps[99]), (None, Some(4_000_000)));
        assert_eq!(rates.mean_1s_bps[199], Some(4_040_000));
        let coarse = rates.columns(50);
        assert_eq!((coarse.len(), coarse[37].2), (50, 40e6));
        assert_eq!(RatesOverTime { mean_1s_bps: vec![None; 100_000], ..rates.clone() }.columns(50).len(), 50);
        let html = figures([("a <b>", &rates)].into_iter(), Detail::ALL[0]);
        assert!(html.contains("data-figure=\"Rate, a &lt;b&gt;\"") && html.contains("average over 1 s"), "{html}");
        assert!(html.contains("40000000.0"), "{html}");
        assert_eq!(RatesOverTime::of(&[]), RatesOverTime::default());
        assert_eq!(figures([].into_iter(), Detail::ALL[0]), "");
    }
}
