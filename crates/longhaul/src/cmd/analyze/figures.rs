//! What `longhaul analyze --html` draws: a second look at the capture, as only then is it known which flows are the largest and how
//! long they are.

use longhaul_flows::{DirectionSummary, Gaps, Intervals, Millisecond};
use longhaul_flows::{FlowSummary, Sink};
use longhaul_report::html::capture::{Flow, Heat, Point};

/// Flows that are drawn, the largest.
pub(crate) const DRAWN_FLOWS: usize = 4;
/// Points of a line: what a screen has room for.
const COLUMNS: usize = 800;
/// Columns are not shorter.
const SHORTEST_COLUMN_NS: i64 = 1_000_000;
/// Columns of a surface for one of a line, as one can zoom into it.
const FINER: i64 = 3;

/// Directions of flows that are drawn, as they are found again.
#[derive(Default)]
pub(crate) struct Figures {
    drawn: Vec<Drawn>,
    gaps: Gaps,
}

struct Drawn {
    flow: u64,
    forward: bool,
    name: String,
    first_ns: i64,
    last_ns: i64,
    column_ns: i64,
    columns: Vec<Column>,
    data: Surface,
    acks: Surface,
}

/// Counts by column and bin.
struct Surface(Vec<Vec<(u8, u32)>>);

/// The least and the most that came.
#[derive(Clone, Copy, Default)]
struct Extremes(Option<(f64, f64)>);

impl Extremes {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            let (least, most) = self.0.unwrap_or((value, value));
            self.0 = Some((least.min(value), most.max(value)));
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Column {
    bytes: u64,
    /// Milliseconds in which something passed.
    rows: i64,
    of_milliseconds: Extremes,
    in_flight: Extremes,
    rtt: Extremes,
    sequence: Option<u64>,
    acknowledged: Option<u64>,
}

impl Figures {
    /// For the direction of each flow that carries more.
    pub(crate) fn of(flows: &[FlowSummary], gaps: Gaps) -> Self {
        let drawn = flows.iter().filter(|flow| payload(&flow.forward) + payload(&flow.backward) > 0).take(DRAWN_FLOWS);
        let drawn = drawn.map(|flow| {
            let forward = payload(&flow.forward) >= payload(&flow.backward);
            let (from, to) = if forward { (flow.client, flow.server) } else { (flow.server, flow.client) };
            // Whole milliseconds, so that each column has as many.
            let first_ns = flow.first_ns.saturating_sub(flow.first_ns.rem_euclid(SHORTEST_COLUMN_NS));
            // Hostile stamps lie as far apart as numbers reach.
            let last_ns = flow.last_ns.clamp(first_ns, first_ns.saturating_add(i64::MAX / 2));
            let column_ns = ((last_ns - first_ns) / COLUMNS as i64 / SHORTEST_COLUMN_NS + 1) * SHORTEST_COLUMN_NS;
            let surface = || Surface(vec![Vec::new(); (COLUMNS + 1) * FINER as usize]);
            Drawn {
                flow: flow.flow,
                forward,
                name: format!("{} {from} to {to}", flow.protocol),
                first_ns,
                last_ns,
                column_ns,
                columns: vec![Column::default(); COLUMNS + 1],
                data: surface(),
                acks: surface(),
            }
        });
        Self { drawn: drawn.collect(), gaps }
    }

    fn find(&mut self, flow: u64) -> Option<&mut Drawn> {
        self.drawn.iter_mut().find(|drawn| drawn.flow == flow)
    }

    /// What the report draws.
    pub(crate) fn flows(self) -> Vec<Flow> {
        let gaps = self.gaps;
        self.drawn.into_iter().map(|drawn| drawn.figures(&gaps)).collect()
    }
}

fn payload(direction: &DirectionSummary) -> u64 {
    direction.payload_bytes
}

impl Sink for Figures {
    fn flow(&mut self, _: FlowSummary) {}

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        let Some(drawn) = self.find(flow).filter(|drawn| drawn.forward == forward) else { return };
        let at = (drawn.column(at_ns, drawn.column_ns)).min(COLUMNS);
        let column = &mut drawn.columns[at];
        column.bytes += row.payload_bytes;
        column.rows += 1;
        let float = |value: Option<u64>| value.map(|value| value as f64);
        column.of_milliseconds.add(Some(row.payload_bytes as f64));
        column.in_flight.add(float(row.in_flight_bytes));
        column.rtt.add(row.rtt_ns.map(|ns| ns as f64));
        column.sequence = Some(row.sequence).filter(|sequence| *sequence > 0).or(column.sequence);
        column.acknowledged = row.acknowledged.or(column.acknowledged);
    }

    fn interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let Some(drawn) = self.find(flow).filter(|drawn| drawn.forward == forward) else { return };
        let at = drawn.column(at_ns, drawn.fine_ns());
        drawn.data.add(at, interval_ns);
    }

    fn ack_interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let Some(drawn) = self.find(flow).filter(|drawn| drawn.forward != forward) else { return };
        let at = drawn.column(at_ns, drawn.fine_ns());
        drawn.acks.add(at, interval_ns);
    }
}

impl Drawn {
    fn column(&self, at_ns: i64, column_ns: i64) -> usize {
        (at_ns.saturating_sub(self.first_ns).max(0) / column_ns) as usize
    }

    fn fine_ns(&self) -> i64 {
        self.column_ns / FINER
    }

    fn figures(self, gaps: &Gaps) -> Flow {
        let column_s = self.column_ns as f64 / 1e9;
        let used = self.columns.iter().rposition(|column| column.rows > 0).map_or(0, |last| last + 1);
        let in_gap = |at: usize| {
            let from_ns = self.first_ns.saturating_add(at as i64 * self.column_ns);
            gaps.lie_between(from_ns, from_ns.saturating_add(self.column_ns))
        };
        // Columns of a second; of one that is longer, one.
        let second = ((1.0 / column_s) as usize).max(1);
        let (mut moving, mut captured) = (0, 0);
        let mut points = Vec::with_capacity(used);
        for (index, column) in self.columns[..used].iter().enumerate() {
            let is_in_gap = in_gap(index);
            (moving, captured) = (moving + column.bytes, captured + 1);
            if is_in_gap {
                (moving, captured) = (0, 0);
            } else if captured > second {
                moving -= self.columns[index - second].bytes;
                captured = second;
            }
            let float = |value: Option<u64>| value.map(|value| value as f64);
            let is_whole = column.rows >= self.column_ns / SHORTEST_COLUMN_NS;
            // A millisecond without a row is one in which nothing passed.
            let rate =
                column.of_milliseconds.0.map_or((0.0, 0.0), |(least, most)| (if is_whole { least } else { 0.0 }, most));
            points.push(Point {
                at_s: index as f64 * column_s,
                in_gap: is_in_gap,
                rate_1ms_bps: Some((rate.0 * 8e3, rate.1 * 8e3)),
                rate_1s_bps: (captured > 0).then(|| moving as f64 * 8.0 / (captured as f64 * column_s)),
                sequence: float(column.sequence),
                acknowledged: float(column.acknowledged),
                in_flight_bytes: column.in_flight.0,
                rtt_ns: column.rtt.0,
            });
        }
        let fine_s = self.fine_ns() as f64 / 1e9;
        let columns = ((self.last_ns - self.first_ns) / self.fine_ns() + 1) as usize;
        let mut not_captured: Vec<(usize, usize)> = Vec::new();
        for at in 0..columns {
            let from_ns = self.first_ns.saturating_add(at as i64 * self.fine_ns());
            if gaps.lie_between(from_ns, from_ns.saturating_add(self.fine_ns())) {
                match not_captured.last_mut() {
                    Some(last) if last.1 == at => last.1 += 1,
                    _ => not_captured.push((at, at + 1)),
                }
            }
        }
        let heat = |surface: Surface| surface.heat(columns, fine_s, not_captured.clone());
        Flow { name: self.name, column_s, points, heat: heat(self.data), ack_heat: heat(self.acks) }
    }
}

impl Surface {
    fn add(&mut self, column: usize, interval_ns: i64) {
        let last = self.0.len() - 1;
        let cells = &mut self.0[column.min(last)];
        let bin = Intervals::bin(interval_ns) as u8;
        match cells.iter_mut().find(|(known, _)| *known == bin) {
            Some((_, count)) => *count += 1,
            None => cells.push((bin, 1)),
        }
    }

    fn heat(self, columns: usize, column_s: f64, gaps: Vec<(usize, usize)>) -> Heat {
        let bins = || self.0.iter().flatten().map(|(bin, _)| usize::from(*bin));
        let (lowest, highest) = (bins().min().unwrap_or(0), bins().max().unwrap_or(0));
        let (mut cells, mut before) = (Vec::new(), 0);
        for (column, counts) in self.0.iter().enumerate() {
            for (bin, count) in counts {
                cells.extend([(column - before) as u32, u32::from(*bin), *count]);
                before = column;
            }
        }
        Heat { columns, column_s, lowest, highest, cells, gaps }
    }
}
