//! What `longhaul analyze --html` draws: a second look at the capture, as only then is it known which flows are the largest and how
//! long they are.

use longhaul_report::capture::{Flow, Heat, Point};
use longhaul_trace::flow::{DirectionSummary, Intervals, Millisecond};
use longhaul_trace::{FlowSummary, Sink};

/// Flows that are drawn, the largest.
pub(crate) const DRAWN_FLOWS: usize = 4;
/// Points of a line, and columns of the surface: what a screen has room for.
const COLUMNS: usize = 800;
/// Columns are not shorter.
const SHORTEST_COLUMN_NS: i64 = 1_000_000;

/// Directions of flows that are drawn, as they are found again.
#[derive(Default)]
pub(crate) struct Figures {
    drawn: Vec<Drawn>,
}

struct Drawn {
    flow: u64,
    forward: bool,
    name: String,
    first_ns: i64,
    column_ns: i64,
    columns: Vec<Column>,
    /// Counts by column and bin.
    heat: Vec<Vec<(u8, u32)>>,
}

#[derive(Clone, Copy, Default)]
struct Column {
    bytes: u64,
    fullest_bytes: u64,
    row: Option<Millisecond>,
    in_flight_bytes: Option<u64>,
    acknowledged: Option<u64>,
    rtt_ns: Option<i64>,
}

impl Figures {
    /// For the direction of each flow that carries more.
    pub(crate) fn of(flows: &[FlowSummary]) -> Self {
        let drawn = flows.iter().filter(|flow| payload(&flow.forward) + payload(&flow.backward) > 0).take(DRAWN_FLOWS);
        let drawn = drawn.map(|flow| {
            let forward = payload(&flow.forward) >= payload(&flow.backward);
            let (from, to) = if forward { (flow.client, flow.server) } else { (flow.server, flow.client) };
            let column_ns = ((flow.last_ns - flow.first_ns) / COLUMNS as i64 + 1).max(SHORTEST_COLUMN_NS);
            Drawn {
                flow: flow.flow,
                forward,
                name: format!("{} {from} to {to}", flow.protocol),
                first_ns: flow.first_ns,
                column_ns,
                columns: vec![Column::default(); COLUMNS + 1],
                heat: vec![Vec::new(); COLUMNS + 1],
            }
        });
        Self { drawn: drawn.collect() }
    }

    fn find(&mut self, flow: u64, forward: bool) -> Option<&mut Drawn> {
        self.drawn.iter_mut().find(|drawn| drawn.flow == flow && drawn.forward == forward)
    }

    /// What the report draws.
    pub(crate) fn flows(self) -> Vec<Flow> {
        self.drawn.into_iter().map(Drawn::figures).collect()
    }
}

fn payload(direction: &DirectionSummary) -> u64 {
    direction.payload_bytes
}

impl Sink for Figures {
    fn flow(&mut self, _: FlowSummary) {}

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        let Some(drawn) = self.find(flow, forward) else { return };
        let at = drawn.column(at_ns);
        let column = &mut drawn.columns[at];
        column.bytes += row.payload_bytes;
        column.fullest_bytes = column.fullest_bytes.max(row.payload_bytes);
        column.in_flight_bytes = column.in_flight_bytes.max(row.in_flight_bytes);
        column.acknowledged = row.acknowledged.or(column.acknowledged);
        column.rtt_ns = row.rtt_ns.or(column.rtt_ns);
        column.row = Some(row);
    }

    fn interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let Some(drawn) = self.find(flow, forward) else { return };
        let at = drawn.column(at_ns);
        let bin = Intervals::bin(interval_ns) as u8;
        let cells = &mut drawn.heat[at];
        match cells.iter_mut().find(|(known, _)| *known == bin) {
            Some((_, count)) => *count += 1,
            None => cells.push((bin, 1)),
        }
    }
}

impl Drawn {
    fn column(&self, at_ns: i64) -> usize {
        ((at_ns - self.first_ns).max(0) / self.column_ns).min(COLUMNS as i64) as usize
    }

    fn figures(self) -> Flow {
        let column_s = self.column_ns as f64 / 1e9;
        let used = self.columns.iter().rposition(|column| column.row.is_some()).map_or(0, |last| last + 1);
        // Columns of a second; of one that is longer, one.
        let second = ((1.0 / column_s) as usize).max(1);
        let mut moving = 0;
        let points = self.columns[..used].iter().enumerate().map(|(index, column)| {
            moving += column.bytes;
            moving -= index.checked_sub(second).map_or(0, |old| self.columns[old].bytes);
            let span_s = second.min(index + 1) as f64 * column_s;
            let float = |value: Option<u64>| value.map(|value| value as f64);
            Point {
                at_s: index as f64 * column_s,
                rate_1ms_bps: column.fullest_bytes as f64 * 8e3,
                rate_1s_bps: moving as f64 * 8.0 / span_s,
                sequence: column.row.map(|row| row.sequence as f64).filter(|sequence| *sequence > 0.0),
                acknowledged: float(column.acknowledged),
                in_flight_bytes: float(column.in_flight_bytes),
                rtt_ns: column.rtt_ns.map(|ns| ns as f64),
            }
        });
        let points = points.collect();
        let cells = self
            .heat
            .iter()
            .enumerate()
            .flat_map(|(column, cells)| cells.iter().map(move |(bin, count)| (column, usize::from(*bin), *count)));
        let cells: Vec<(usize, usize, u32)> = cells.collect();
        let bins = || cells.iter().map(|(_, bin, _)| *bin);
        let (lowest, highest) = (bins().min().unwrap_or(0), bins().max().unwrap_or(0));
        Flow { name: self.name, points, heat: Heat { columns: used.max(1), column_s, lowest, highest, cells } }
    }
}
