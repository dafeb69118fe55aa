//! What captures at both ends of a TCP test say of single packets: whether a sender's packets come in bursts, and whether a path bunches
//! acknowledgments (TAPEE, figures 5 to 7, 10 and 11).

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_flows::Intervals;
use serde::{Deserialize, Serialize};

use super::Run;
use super::rates::RatesOverTime;
use crate::html::capture::{Heat, surface};
use crate::html::page::escape;
use crate::html::series::Report;

/// Cells of all surfaces of a page at most, some 10 characters each.
const CELLS_MOST: usize = 50_000;
/// Columns of time of a surface at most.
const COLUMNS_MOST: u32 = 60;

/// Of the flow with the most data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Packets {
    /// Its payload as it left the sender, by milliseconds, without the time that was omitted.
    pub sent: Rates,
    /// The same by tens of milliseconds.
    pub sent_10ms: Rates,
    /// Acknowledgments as they left the receiver.
    pub acks_at_receiver: AckIntervals,
    /// The same acknowledgments as they came to the sender.
    pub acks_at_sender: AckIntervals,
    /// Times between acknowledgments over time, where they leave the receiver.
    #[serde(default)]
    pub surface_at_receiver: Surface,
    /// The same where they reach the sender.
    #[serde(default)]
    pub surface_at_sender: Surface,
    /// The rate of the payload over time. Of each point two runs have it at most: the first that counted, and the first that was rejected if it came earlier.
    #[serde(default)]
    pub rates: RatesOverTime,
    /// Packets that the two captures lost themselves.
    pub not_captured: u64,
}

/// Rates of payload in intervals of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rates {
    /// Intervals that count.
    pub intervals: u64,
    /// The mean, payload bits a second.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub mean_bps: f64,
    /// The highest in an interval.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub peak_bps: f64,
    /// Standard deviation by mean: 0 where each interval has the same.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub variation: f64,
    /// Intervals in which nothing was sent, percent.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub silent_percent: f64,
}

/// Times from an acknowledgment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AckIntervals {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// Shorter than a quarter of their mean, percent: those of packets that were bunched.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub bunched_percent: f64,
}

/// Counts of intervals by their length and by the time in the flow: TAPEE's figures 10 and 11.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Surface {
    /// Columns of time; 0 without an interval.
    pub columns: u32,
    /// How long a column is.
    pub column_ns: u64,
    /// Triples: columns since the triple before, bin of a quarter of an octave (bin i from 2^(i/4) ns on; the first has 0 as well), count.
    pub cells: Vec<u32>,
}

impl Surface {
    /// Of intervals, each with the time of its end.
    pub fn of(intervals_ns: &[(i64, i64)]) -> Self {
        let times = || intervals_ns.iter().map(|(at, _)| *at);
        let Some((first, last)) = times().min().zip(times().max()) else { return Self::default() };
        let column_ns = (last.saturating_sub(first) as u64 / u64::from(COLUMNS_MOST)).saturating_add(1);
        let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for (at, interval) in intervals_ns {
            let column = (at.saturating_sub(first) as u64 / column_ns) as u32;
            let count = counts.entry((column, Intervals::bin(*interval) as u32)).or_default();
            *count = count.saturating_add(1);
        }
        let (mut cells, mut before) = (Vec::new(), 0);
        for ((column, bin), count) in counts {
            cells.extend([column - before, bin, count]);
            before = column;
        }
        Self { columns: before + 1, column_ns, cells }
    }

    /// As the script of a page draws it.
    fn heat(&self) -> Heat {
        let bins = || self.cells.chunks_exact(3).map(|cell| cell[1] as usize);
        Heat {
            columns: self.columns as usize,
            column_s: self.column_ns as f64 / 1e9,
            lowest: bins().min().unwrap_or_default(),
            highest: bins().max().unwrap_or_default(),
            cells: self.cells.clone(),
            gaps: Vec::new(),
        }
    }
}

impl Report<Run> {
    /// Times between acknowledgments over time, of one run of each point with captures. Whether there are any.
    pub(super) fn surfaces(&self, body: &mut String) -> bool {
        let of_points = self.points().filter_map(|(series, point)| {
            let packets = point.shown().find_map(|run| run.packets.as_ref())?;
            (packets.surface_at_receiver.columns > 0).then_some((series, point, packets))
        });
        let (mut any, mut room) = (false, CELLS_MOST);
        for (number, (series, point, packets)) in of_points.enumerate() {
            let cells = [&packets.surface_at_receiver, &packets.surface_at_sender].map(|seen| seen.cells.len() / 3);
            let Some(left) = room.checked_sub(cells[0] + cells[1]) else {
                *body +=
                    "<p class=\"quiet\">The page has no room for those of the other points. The result has them.</p>\n";
                break;
            };
            room = left;
            if !any {
                *body += "<h2>Times between acknowledgments over time</h2>\n\
                          <p class=\"quiet\">Of one run of each point. Where a path bunches acknowledgments, they leave the receiver at some \
                          distance and reach the sender at hardly any.</p>\n";
            }
            any = true;
            // Writing to a string cannot fail.
            let _ =
                writeln!(body, "<h3>{}, {}</h3>\n<div class=\"panels\">", escape(&series.name), escape(&point.label));
            for (place, title, seen) in [
                ("left", "Leaving the receiver", &packets.surface_at_receiver),
                ("came", "Reaching the sender", &packets.surface_at_sender),
            ] {
                surface(body, &format!("acks-{place}-{number}"), title, &seen.heat());
            }
            *body += "</div>\n";
        }
        any
    }
}

impl Rates {
    /// Of payload by intervals of `milliseconds`, those without any included.
    pub fn of(payload_bytes: &[u64], milliseconds: u32) -> Self {
        let count = payload_bytes.len();
        if count == 0 {
            return Self::default();
        }
        let bps = |bytes: f64| bytes * 8.0 * 1e3 / f64::from(milliseconds.max(1));
        let mean = payload_bytes.iter().sum::<u64>() as f64 / count as f64;
        let variance = payload_bytes.iter().map(|bytes| (*bytes as f64 - mean).powi(2)).sum::<f64>() / count as f64;
        let silent = payload_bytes.iter().filter(|bytes| **bytes == 0).count();
        Self {
            intervals: count as u64,
            mean_bps: bps(mean),
            peak_bps: bps(payload_bytes.iter().max().copied().unwrap_or_default() as f64),
            variation: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            silent_percent: silent as f64 * 100.0 / count as f64,
        }
    }
}

impl AckIntervals {
    /// Of intervals in any order.
    pub fn of(mut intervals_ns: Vec<i64>) -> Self {
        intervals_ns.sort_unstable();
        let count = intervals_ns.len();
        if count == 0 {
            return Self::default();
        }
        let at = |share: f64| intervals_ns[((count - 1) as f64 * share) as usize].max(0) as u64;
        let mean = intervals_ns.iter().map(|ns| *ns as f64).sum::<f64>() / count as f64;
        let bunched = intervals_ns.partition_point(|ns| (*ns as f64) < mean / 4.0);
        Self {
            count: count as u64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            bunched_percent: bunched as f64 * 100.0 / count as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 1000 bytes in each second millisecond are 4 Mb/s on the mean, 8 at most, and vary as much as their mean.
    #[test]
    fn bursts_show_in_milliseconds() {
        let even = Rates::of(&[500; 10], 1);
        assert_eq!((even.mean_bps, even.peak_bps, even.variation, even.silent_percent), (4e6, 4e6, 0.0, 0.0));
        let bursts = Rates::of(&[1000, 0, 1000, 0], 1);
        assert_eq!((bursts.mean_bps, bursts.peak_bps, bursts.variation, bursts.silent_percent), (4e6, 8e6, 1.0, 50.0));
        assert_eq!(Rates::of(&[5000, 5000], 10).mean_bps, 4e6);
        assert_eq!(Rates::of(&[], 1), Rates::default());
    }

    /// 2 us are in bin 43 (2^(43/4) = 1722 ns, 2^(44/4) = 2048), 0 in the first. 119 s in at most 60 columns: 2 s each.
    #[test]
    fn a_surface_counts_intervals_by_time_and_length() {
        let seen = Surface::of(&[(0, 2_000), (500, 2_000), (119_000_000_000, 0)]);
        assert_eq!((seen.columns, seen.cells.as_slice()), (60, [0, 43, 2, 59, 0, 1].as_slice()));
        assert!((1.9e9..2.1e9).contains(&(seen.column_ns as f64)), "{seen:?}");
        assert_eq!((seen.heat().lowest, seen.heat().highest), (0, 43));
        assert_eq!(Surface::of(&[]), Surface::default());
        // Times of a damaged capture do no harm.
        assert!(Surface::of(&[(i64::MIN, 1), (i64::MAX, -1)]).columns <= 61);
    }

    #[test]
    fn acknowledgments_that_are_bunched_show() {
        let even = AckIntervals::of(vec![2_000; 100]);
        assert_eq!((even.p50_ns, even.bunched_percent), (2_000, 0.0));
        let bunched: Vec<i64> = (0..100).map(|number| if number % 10 == 0 { 19_000 } else { 100 }).collect();
        let bunched = AckIntervals::of(bunched);
        assert_eq!((bunched.p50_ns, bunched.p90_ns, bunched.bunched_percent), (100, 100, 90.0));
    }
}
