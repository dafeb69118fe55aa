//! What `longhaul compare --html` draws, gathered as packets are matched.

use longhaul_flows::Gaps;
use longhaul_flows::compare::{PathDirection, Points, Reached};
use longhaul_report::html::compared::BetweenPoints;

/// Points of a line: what a screen has room for, and at least half of it.
const MOST_COLUMNS: usize = 1_600;
/// Columns at first.
const SHORTEST_COLUMN_NS: i64 = 100_000;

/// The shortest and the longest delay of each stretch of time.
pub(crate) struct DelayColumns {
    start_ns: Option<i64>,
    column_ns: i64,
    columns: Vec<Option<(f64, f64)>>,
}

impl Default for DelayColumns {
    fn default() -> Self {
        Self { start_ns: None, column_ns: SHORTEST_COLUMN_NS, columns: Vec::new() }
    }
}

impl DelayColumns {
    /// Delays come nearly in the order of A.
    fn add(&mut self, at_ns: i64, delay_ns: f64) {
        let start_ns = *self.start_ns.get_or_insert(at_ns);
        let at = loop {
            // Rows of a table may have any times.
            let at = (at_ns.saturating_sub(start_ns).max(0) / self.column_ns) as usize;
            if at < MOST_COLUMNS {
                break at;
            }
            self.column_ns *= 2;
            self.columns = self.columns.chunks(2).map(|pair| pair.iter().flatten().copied().reduce(joined)).collect();
        };
        if at >= self.columns.len() {
            self.columns.resize(at + 1, None);
        }
        let own = (delay_ns, delay_ns);
        self.columns[at] = Some(self.columns[at].map_or(own, |known| joined(known, own)));
    }
}

fn joined(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Both directions.
#[derive(Default)]
pub(crate) struct Delays([DelayColumns; 2]);

impl Delays {
    pub(crate) fn add(&mut self, reached: &Reached) {
        self.0[reached.direction as usize].add(reached.a_ns, reached.delay_ns);
    }

    /// What the report draws. `gaps` are A's and B's, by the clock of each.
    pub(crate) fn drawn(self, gaps: &[Gaps; 2], points: &Points) -> Vec<BetweenPoints> {
        let start_ns = self.0.iter().filter_map(|columns| columns.start_ns).min().unwrap_or(0);
        let clock = &points.clock;
        let seconds = |at_ns: i64| at_ns.saturating_sub(start_ns) as f64 / 1e9;
        let by_a = |at_ns: i64| clock.by_a(at_ns);
        let of_a = gaps[0].spans().iter().copied();
        let of_b = gaps[1].spans().iter().map(|(from, to)| (by_a(*from), by_a(*to)));
        let mut spans: Vec<(f64, f64)> = of_a.chain(of_b).map(|(from, to)| (seconds(from), seconds(to))).collect();
        spans.retain(|(_, to)| *to > 0.0);
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        // As many as can be told apart.
        let near_s = self.0.iter().map(|columns| columns.column_ns).max().unwrap_or(0) as f64 / 1e9;
        spans.dedup_by(|next, last| {
            let is_near = next.0 < last.1 + near_s;
            if is_near {
                last.1 = last.1.max(next.1);
            }
            is_near
        });
        let of_direction = |(columns, direction): (DelayColumns, PathDirection)| {
            let shown = points.directions.iter().find(|shown| shown.between.direction == direction)?;
            let column_s = columns.column_ns as f64 / 1e9;
            let from_s = seconds(columns.start_ns.unwrap_or(start_ns));
            let in_gap = |at_s: f64| spans.iter().any(|(from, to)| *from < at_s + column_s && *to > at_s);
            let delay = columns.columns.iter().enumerate().filter_map(|(at, column)| {
                let at_s = from_s + at as f64 * column_s;
                // Where nothing passed and all was captured, the line goes on.
                if in_gap(at_s) { Some(None) } else { column.map(|(least, most)| Some((at_s, least, most))) }
            });
            let mut lost_s: Vec<f64> = shown
                .between
                .lost
                .iter()
                .map(|run| seconds(if direction == PathDirection::AToB { run.at_ns } else { by_a(run.at_ns) }))
                .collect();
            // As many as can be told apart.
            lost_s.dedup_by(|a, b| (*a - *b).abs() < column_s);
            Some(BetweenPoints {
                name: if direction == PathDirection::AToB { "A to B".into() } else { "B to A".into() },
                column_s,
                delay: delay.collect(),
                gaps: spans.clone(),
                lost_s,
                intervals: shown.intervals.clone(),
                ack_intervals: shown.ack_intervals.clone(),
            })
        };
        let [there, back] = self.0;
        [(there, PathDirection::AToB), (back, PathDirection::BToA)].into_iter().filter_map(of_direction).collect()
    }
}

/// The directions of all runs; where there are two runs, the name of each says its own.
pub(crate) fn numbered(mut runs: Vec<Vec<BetweenPoints>>) -> Vec<BetweenPoints> {
    if runs.len() > 1 {
        for (number, run) in (1..).zip(&mut runs) {
            run.iter_mut().for_each(|direction| direction.name = format!("Run {number}, {}", direction.name));
        }
    }
    runs.into_iter().flatten().collect()
}
