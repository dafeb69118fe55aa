//! The rate of a captured flow over time, averaged over 1 ms and over 1 s: figures 5 to 7 of TAPEE.

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::html::axis::RATES;
use crate::html::lines::{Band, Line, Panel};
use crate::html::over_time::runs::{Detail, KEPT};

const SECOND_MS: usize = 1_000;
/// What is said of the figure.
const CAPTION: &str =
    "As it left the sender, by the capture there. Time counts from the first sample; what was omitted is not drawn.";

/// Rates of payload over time, in at most 200 columns. Time counts from the first packet that counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatesOverTime {
    /// When the first column begins, counted from the first sample of `over_time`; negative: before it. `None` where that is not known.
    #[serde(default)]
    pub begins_ns: Option<i64>,
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
            begins_ns: None,
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

    /// At most `most` columns, the first of which begins at `begin_s`: when each begins, its least and its greatest rate in 1 ms, and the average
    /// over 1 s at its end. Those before 0 are left out: a connection says hello before a test begins.
    fn columns(&self, begin_s: f64, most: usize) -> Vec<Column> {
        // These differ only in a result that others made.
        let lengths = [self.most_1ms_bps.len(), self.least_1ms_bps.len(), self.mean_1s_bps.len()];
        let together = lengths.into_iter().fold(0, usize::max).div_ceil(most.max(1)).max(1);
        let (mut least, mut most_1ms) = (self.least_1ms_bps.chunks(together), self.most_1ms_bps.chunks(together));
        let seconds = self.mean_1s_bps.chunks(together).enumerate();
        let end = |end: Option<&u64>| end.copied().unwrap_or_default() as f64;
        let width_s = together as f64 * self.column_ns as f64 / 1e9;
        let column = |(number, second): (usize, &[Option<u64>])| {
            let at_s = begin_s + number as f64 * width_s;
            let lowest = end(least.next().unwrap_or_default().iter().min());
            let highest = end(most_1ms.next().unwrap_or_default().iter().max());
            (at_s, lowest, highest, second.last().copied().flatten().map(|bps| bps as f64))
        };
        let after_zero = seconds.map(column).filter(|(at_s, ..)| at_s + width_s > 0.0);
        after_zero.map(|(at_s, lowest, highest, second)| (at_s.max(0.0), lowest, highest, second)).collect()
    }
}

/// When a column begins, seconds; the least and the greatest rate in 1 ms, and the average over 1 s.
type Column = (f64, f64, f64, Option<f64>);

/// The rates of a captured flow as a figure beside those of samples shows them.
pub(super) struct RateFigure {
    title: String,
    columns: Vec<Column>,
    end_s: f64,
}

impl RateFigure {
    /// Of a point's `label`. Where it is not known when the rates begin, that is `omit` after the first sample.
    pub(super) fn of(label: &str, rates: &RatesOverTime, omit: Nanos, detail: Detail) -> Self {
        let begin_s = rates.begins_ns.map_or(omit.0 as f64, |ns| ns as f64) / 1e9;
        let end_s = begin_s + rates.most_1ms_bps.len() as f64 * rates.column_ns as f64 / 1e9;
        Self { title: format!("Rate, {label}"), columns: rates.columns(begin_s, detail.most), end_s }
    }

    /// The figure, with what is to be said of it.
    pub(super) fn panel(&self) -> (Panel<'_>, &'static str) {
        let points = self.columns.iter().map(|(at, least, most, _)| Some((*at, *least, *most)));
        let seconds = self.columns.iter().filter_map(|(at, _, _, second)| Some(Some((*at, (*second)?))));
        let panel = Panel {
            title: &self.title,
            what: "payload, ",
            units: &RATES,
            bands: vec![Band { name: "1 ms, lowest to highest", colour: "--pale", points: points.collect() }],
            lines: vec![Line { name: "average over 1 s", colour: "--orange", points: seconds.collect() }],
            end_s: self.end_s,
            ..Panel::default()
        };
        (panel, CAPTION)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_tcp::TcpParameters;

    use super::super::packets::{AckIntervals, Packets, Rates, Surface};
    use super::super::tests::run;
    use super::super::{Flows, Run};
    use super::*;
    use crate::html::over_time::dropped::DroppedOverTime;
    use crate::html::over_time::tcp_runs::{TcpOverTime, tests};
    use crate::html::points::Run as _;

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
        let coarse = rates.columns(0.0, 50);
        assert_eq!((coarse.len(), coarse[37].2), (50, 40e6));
        assert_eq!(RatesOverTime { mean_1s_bps: vec![None; 100_000], ..rates.clone() }.columns(0.0, 50).len(), 50);
        let html = drawn("a <b>", Packets { rates, ..packets() }, 0);
        assert!(html.contains("data-figure=\"Rate, a &lt;b&gt;\"") && html.contains("average over 1 s"), "{html}");
        assert!(html.contains("40000000.0"), "{html}");
        assert_eq!(RatesOverTime::of(&[]), RatesOverTime::default());
        assert!(!drawn("none", packets(), 0).contains("Rate, "));
    }

    fn packets() -> Packets {
        let (rates, acks) = (Rates::default(), AckIntervals::default());
        Packets {
            sent: rates,
            sent_10ms: rates,
            acks_at_receiver: acks,
            acks_at_sender: acks,
            surface_at_receiver: Surface::default(),
            surface_at_sender: Surface::default(),
            rates: RatesOverTime::default(),
            not_captured: 0,
        }
    }

    /// The figures of a run with samples of 10 s and what was captured of it.
    fn drawn(label: &str, packets: Packets, omit_ns: u64) -> String {
        let over_time = TcpOverTime::of(&tests::report(1_001), None, &DroppedOverTime::default());
        let run = run(Some(1));
        let parameters = TcpParameters { omit_ns, ..TcpParameters::default() };
        let run = Run { over_time, packets: Some(packets), flows: Flows { parameters, ..run.flows }, ..run };
        Run::over_time(&[(label, &run)], Detail::ALL[0])
    }

    /// They zoom together, so each moment is at one place in all of them, whenever the capture began.
    #[test]
    fn rates_lie_on_the_axis_of_the_samples() {
        let cases =
            [(Some(600_000_000), 1_000_000_000, 0.6_f64), (None, 300_000_000, 0.3), (Some(-400_000_000), 0, -0.4)];
        for (begins_ns, omit_ns, begin_s) in cases {
            let rates = RatesOverTime { begins_ns, ..RatesOverTime::of(&[1_000; 2_000]) };
            let html = drawn("reno", Packets { rates, ..packets() }, omit_ns);
            assert_eq!(html.matches("class=\"timeline\"").count(), 1, "{html}");
            let (_, data) = html.split_once("data-figure=\"Rate, reno\"").unwrap();
            let data = data.split_once("application/json\">").unwrap().1.split_once("</script>").unwrap().0;
            let figure: serde_json::Value = serde_json::from_str(data).unwrap();
            let times = figure["bands"][0]["at"].as_array().unwrap();
            let first = begin_s.max(0.0);
            assert_eq!((&times[0], &figure["end_s"]), (&first.into(), &10.0.into()), "{figure:#}");
            let last = times.last().and_then(serde_json::Value::as_f64).unwrap();
            assert!((last - begin_s - 1.99).abs() < 1e-6, "{last}: the last of 200 columns of 10 ms");
            assert_eq!(figure["since"], "the first sample");
        }
    }

    /// A result that was saved before there was `begins_ns`.
    #[test]
    fn older_results_are_read() {
        let rates = RatesOverTime::of(&[1_000; 20]);
        let mut older = serde_json::to_value(&rates).unwrap();
        older.as_object_mut().unwrap().remove("begins_ns");
        assert_eq!(serde_json::from_value::<RatesOverTime>(older).unwrap(), rates);
    }
}
