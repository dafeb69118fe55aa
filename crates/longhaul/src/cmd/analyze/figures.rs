//! What `longhaul analyze --html` draws: a second look at the capture, as only then is it known which flows are the largest and how
//! long they are.

use longhaul_flows::{DirectionSummary, Gaps, Intervals, Millisecond};
use longhaul_flows::{FlowSummary, Sink};
use longhaul_report::html::capture::{Flow, Heat, Point};

/// Flows that are drawn, the largest.
pub(crate) const DRAWN_FLOWS: usize = 4;
/// Points of a line: what a screen has room for.
const COLUMNS: usize = 800;
/// Points of a line of all flows together: at each are up to 15 numbers, some 170 characters. So all data of a page have less than 1 MB.
const ALL_COLUMNS: usize = 1_600;
/// Cells of all surfaces together, some 10 characters each.
const ALL_CELLS: usize = 60_000;
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
        let carries = |flow: &&FlowSummary| payload(&flow.forward).max(payload(&flow.backward)) > 0;
        let drawn: Vec<&FlowSummary> = flows.iter().filter(carries).take(DRAWN_FLOWS).collect();
        let most_columns = COLUMNS.min(ALL_COLUMNS / drawn.len().max(1));
        let drawn = drawn.into_iter().map(|flow| {
            let forward = payload(&flow.forward) >= payload(&flow.backward);
            let (from, to) = if forward { (flow.client, flow.server) } else { (flow.server, flow.client) };
            // Whole milliseconds, so that each column has as many.
            let first_ns = flow.first_ns.saturating_sub(flow.first_ns.rem_euclid(SHORTEST_COLUMN_NS));
            // Hostile stamps lie as far apart as numbers reach.
            let last_ns = flow.last_ns.clamp(first_ns, first_ns.saturating_add(i64::MAX / 2));
            let column_ns = ((last_ns - first_ns) / most_columns as i64 / SHORTEST_COLUMN_NS + 1) * SHORTEST_COLUMN_NS;
            let surface = || Surface(vec![Vec::new(); (most_columns + 1) * FINER as usize]);
            Drawn {
                flow: flow.flow,
                forward,
                name: format!("{} {from} to {to}", flow.protocol),
                first_ns,
                last_ns,
                column_ns,
                columns: vec![Column::default(); most_columns + 1],
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
        let (gaps, most_cells) = (self.gaps, ALL_CELLS / 2 / self.drawn.len().max(1));
        self.drawn.into_iter().map(|drawn| drawn.figures(&gaps, most_cells)).collect()
    }
}

fn payload(direction: &DirectionSummary) -> u64 {
    direction.payload_bytes
}

impl Sink for Figures {
    fn flow(&mut self, _: FlowSummary) {}

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        let Some(drawn) = self.find(flow).filter(|drawn| drawn.forward == forward) else { return };
        let at = (drawn.column(at_ns, drawn.column_ns)).min(drawn.columns.len() - 1);
        let column = &mut drawn.columns[at];
        // Rows of a table may have any number.
        column.bytes = column.bytes.saturating_add(row.payload_bytes);
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

    /// `most_cells` are those of each surface.
    fn figures(self, gaps: &Gaps, most_cells: usize) -> Flow {
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
            (moving, captured) = (column.bytes.saturating_add(moving), captured + 1);
            if is_in_gap {
                (moving, captured) = (0, 0);
            } else if captured > second {
                moving = moving.saturating_sub(self.columns[index - second].bytes);
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
        let (first_ns, span_ns, fine_ns) = (self.first_ns, self.last_ns - self.first_ns, self.fine_ns());
        let heat = |surface: Surface| {
            let (surface, together) = surface.thinned(most_cells);
            let step_ns = fine_ns.saturating_mul(together);
            let columns = (span_ns / step_ns + 1) as usize;
            surface.heat(columns, step_ns as f64 / 1e9, not_captured(gaps, first_ns, columns, step_ns))
        };
        Flow { name: self.name, column_s, points, heat: heat(self.data), ack_heat: heat(self.acks) }
    }
}

/// First and end of the columns of `step_ns` from `first_ns` on that the capture lost packets in.
fn not_captured(gaps: &Gaps, first_ns: i64, columns: usize, step_ns: i64) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for at in 0..columns {
        let from_ns = first_ns.saturating_add((at as i64).saturating_mul(step_ns));
        if gaps.lie_between(from_ns, from_ns.saturating_add(step_ns)) {
            match found.last_mut() {
                Some(last) if last.1 == at => last.1 += 1,
                _ => found.push((at, at + 1)),
            }
        }
    }
    found
}

/// Counts `more` in the cell of `bin`.
fn count(cells: &mut Vec<(u8, u32)>, bin: u8, more: u32) {
    match cells.iter_mut().find(|(known, _)| *known == bin) {
        Some((_, count)) => *count = count.saturating_add(more),
        None => cells.push((bin, more)),
    }
}

impl Surface {
    fn add(&mut self, column: usize, interval_ns: i64) {
        let last = self.0.len() - 1;
        count(&mut self.0[column.min(last)], Intervals::bin(interval_ns) as u8, 1);
    }

    /// Joins neighbouring columns until there are at most `most` cells, with how many of those of before a column is.
    fn thinned(mut self, most: usize) -> (Self, i64) {
        let mut together = 1;
        while self.0.len() > 1 && self.0.iter().map(Vec::len).sum::<usize>() > most {
            let joined = self.0.chunks(2).map(|pair| {
                let mut cells = pair[0].clone();
                pair[1..].iter().flatten().for_each(|(bin, more)| count(&mut cells, *bin, *more));
                cells
            });
            self.0 = joined.collect();
            together *= 2;
        }
        (self, together)
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

#[cfg(test)]
mod tests {
    use longhaul_flows::Protocol;
    use longhaul_report::html::capture::Report;

    use super::*;

    const FLOWS: u16 = 4;
    const MINUTE_NS: i64 = 60_000_000_000;

    /// Something passes in each millisecond of a minute, at intervals of any length.
    fn dense(flows: u16) -> Report {
        let way = || DirectionSummary { payload_bytes: 1 << 40, ..DirectionSummary::default() };
        let summaries: Vec<FlowSummary> = (0..flows)
            .map(|flow| FlowSummary {
                flow: flow.into(),
                protocol: Protocol::Tcp,
                client: ([10, 0, 0, 1], flow).into(),
                server: ([10, 0, 0, 2], 80).into(),
                first_ns: 0,
                last_ns: MINUTE_NS,
                connection: None,
                forward: way(),
                backward: DirectionSummary::default(),
            })
            .collect();
        let mut figures = Figures::of(&summaries, Gaps::default());
        for flow in 0..u64::from(flows) {
            for at_ns in (0..MINUTE_NS).step_by(1_000_000) {
                let some = (at_ns as u64 / 7 + flow) % 123_456_789;
                let row = Millisecond {
                    payload_bytes: some,
                    in_flight_bytes: Some(some),
                    sequence: at_ns as u64 * 3 + 1,
                    acknowledged: Some(at_ns as u64 * 3),
                    rtt_ns: Some(some as i64),
                    ..Millisecond::default()
                };
                figures.millisecond(flow, true, at_ns, row);
                let interval_ns = 1_i64 << (at_ns / 1_000_000 * 17 % 39);
                figures.interval(flow, true, at_ns, interval_ns);
                figures.ack_interval(flow, false, at_ns, interval_ns);
            }
        }
        Report {
            title: "dense".into(),
            started_at: "now".into(),
            longhaul: "1".into(),
            verdict: ["a flow".into(), String::new()],
            caveats: Vec::new(),
            flows: figures.flows(),
            flows_total: flows.into(),
            text: String::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_page_has_less_than_a_megabyte_of_data_however_much_passed() {
        for flows in [1, FLOWS] {
            let report = dense(flows);
            let html = report.html();
            let parts = html.split("<script type=\"application/json\"").skip(1);
            let data: usize = parts.map(|part| part.split("</script>").next().unwrap().len()).sum();
            assert!((100_000..1_000_000).contains(&data) && html.len() < 2_000_000, "{flows}: {data} {}", html.len());
            for heat in report.flows.iter().flat_map(|flow| [&flow.heat, &flow.ack_heat]) {
                let counted: u64 = heat.cells.chunks(3).map(|cell| u64::from(cell[2])).sum();
                assert_eq!(counted, 60_000, "joined columns lose nothing");
                assert!(heat.cells.len() / 3 <= ALL_CELLS / 2 / usize::from(flows), "{}", heat.cells.len());
                let last: u32 = heat.cells.chunks(3).map(|cell| cell[0]).sum();
                assert!((last as usize) < heat.columns, "{last} of {}", heat.columns);
            }
        }
    }
}
