//! An experiment as text: a line for each run while it runs, a table for each series at its end.

use std::fmt::Write;

use longhaul_result::Location;
use longhaul_units::Nanos;

use crate::html::mix;
use crate::html::points::{NONE, PAPER_COLUMNS, Point, Run};
use crate::html::series::Series;
use crate::html::tcp_goodput::{
    self, BESIDE_GOODPUT, EXPECTED, GOODPUT, PATH_RTT, RETRANSMITS, RTT, TIME, WINDOW, limit,
};
use crate::html::udp_loss::exactness::MISCOUNTED;
use crate::html::udp_loss::{self, EXACT, LOST, RECEIVED, SENT, scaled};
use crate::text::column_width;

/// Places that have a column of their own in the table: those of the NLR Rings paper.
const COLUMNS: [(Location, &str); 3] = [
    (Location::Network, "network"),
    (Location::ReceiverRing, "receive ring"),
    (Location::ReceiverSocketBuffer, "socket buffer"),
];

/// What one run of a UDP test has, in a few words.
pub fn udp_line(run: &udp_loss::Run) -> String {
    match &run.result {
        None => not_measured(run.problems.error.as_ref().map(|error| error.message.as_str())),
        Some(result) => {
            format!("{:.3} % lost", result.lost_packets as f64 * 100.0 / result.sent_packets.max(1) as f64)
        }
    }
}

/// What one run of a TCP test has, in a few words.
pub fn tcp_line(run: &tcp_goodput::Run) -> String {
    let mut line = match &run.flows.result {
        None if run.program.is_some() => {
            let program =
                run.program.as_ref().map(|program| (program.goodput_bps as f64 / 1e6, Nanos(program.duration_ns)));
            program.map_or_else(String::new, |(mbit, time)| format!("{mbit:.1} Mb/s, {:.3} s", time.as_secs_f64()))
        }
        None => return not_measured(run.problems.error.as_ref().map(|error| error.message.as_str())),
        Some(result) => format!("{:.1} Mb/s", result.goodput_bps as f64 / 1e6),
    };
    if let Some(result) = run.beside.as_ref().and_then(|beside| beside.result.as_ref()) {
        // Writing to a string cannot fail.
        let _ = write!(line, ", beside it {:.1} Mb/s", result.goodput_bps as f64 / 1e6);
    }
    if let Some(error) = &run.problems.error {
        let _ = write!(line, "; other flow: {}", error.message);
    }
    line
}

/// What one run of a mix has, in a few words.
pub fn mix_line(run: &mix::Run) -> String {
    match (&run.at_rate, &run.most) {
        (Some(run), _) => format!(
            "{:.0} frames/s, {:.2} Gb/s of TCP beside them",
            run.sent_packets_per_second,
            run.tcp_goodput_bps as f64 / 1e9
        ),
        (None, Some(run)) => {
            format!("{:.0} frames/s, {:.0} per CPU second", run.sent_packets_per_second, run.packets_per_cpu_second())
        }
        (None, None) => not_measured(run.problems.error.as_ref().map(|error| error.message.as_str())),
    }
}

fn not_measured(why: Option<&str>) -> String {
    format!("not measured: {}", why.unwrap_or_default())
}

/// A series of UDP tests: means over the runs of each point. Rates are Mb/s of payload; each place has the percent of the packets that it lost.
pub fn udp_table(series: &Series<udp_loss::Run>) -> String {
    let exact = series.points.iter().any(|point| point.mean(MISCOUNTED).is_some());
    let mut columns: String = COLUMNS.iter().map(|(_, title)| format!(" {title:>14}")).collect();
    columns.extend(EXACT.iter().filter(|_| exact).map(|(_, title, _)| format!(" {title:>16}")));
    let has_paper = series.points.iter().any(|point| point.paper_value.is_some());
    columns.extend(PAPER_COLUMNS.iter().filter(|_| has_paper).map(|title| format!(" {title:>16}")));
    let wide = label_width(series).max(9);
    let mut table = format!(
        "{}\n{:>wide$} {:>16} {:>16} {:>17}{columns}  runs\n",
        series.name, "offered", "sent", "received", "lost, %"
    );
    for point in &series.points {
        let Some(lost) = point.mean(LOST) else {
            let _ = writeln!(table, "{:>wide$}  {}", point.label, why(point));
            continue;
        };
        let places = point.means_of(udp_loss::Run::percent);
        let at = |location: &Location| places.get(location).map_or(0.0, |mean| mean.mean);
        let mut columns: String = COLUMNS.iter().map(|(location, _)| format!(" {:>14.3}", at(location))).collect();
        for (name, _, unit) in EXACT.iter().filter(|_| exact) {
            let mean = point.mean(name).map_or_else(|| NONE.to_owned(), |_| scaled(point, name, 1.0 / unit).text(1));
            let _ = write!(columns, " {mean:>16}");
        }
        columns.extend(point.paper_cells().iter().filter(|_| has_paper).map(|cell| format!(" {cell:>16}")));
        let others: String = (places.iter())
            .filter(|(location, mean)| COLUMNS.iter().all(|(known, _)| known != *location) && mean.mean > 0.0)
            .map(|(location, mean)| format!("  {location} {:.3}", mean.mean))
            .collect();
        let _ = writeln!(
            table,
            "{:>wide$} {:>16} {:>16} {:>17}{columns}  {}{others}",
            point.label,
            scaled(point, SENT, 1e-6).text(1),
            scaled(point, RECEIVED, 1e-6).text(1),
            lost.text(3),
            runs(point),
        );
    }
    table
}

/// A column of TCP tests: its title, its width, and a point's cell.
type TcpColumn = (&'static str, usize, fn(&Point<tcp_goodput::Run>) -> String);

const TCP_COLUMNS: [TcpColumn; 10] = [
    ("goodput", 16, |point| with_interval(point, GOODPUT, 1e-6)),
    (PAPER_COLUMNS[0], 9, |point| point.paper_cells()[0].clone()),
    (PAPER_COLUMNS[1], 16, |point| point.paper_cells()[1].clone()),
    ("time, s", 9, |point| alone(point, TIME, 1e-9, 2)),
    ("expected", 10, |point| alone(point, EXPECTED, 1e-6, 1)),
    ("other", 16, |point| with_interval(point, BESIDE_GOODPUT, 1e-6)),
    ("retrans.", 9, |point| alone(point, RETRANSMITS, 1.0, 0)),
    ("mean window", 12, |point| alone(point, WINDOW, 1.0, 0)),
    ("RTT asked", 9, |point| alone(point, PATH_RTT, 1e-6, 1)),
    ("seen, ms", 9, |point| alone(point, RTT, 1e-6, 1)),
];

fn with_interval(point: &Point<tcp_goodput::Run>, name: &str, factor: f64) -> String {
    point.mean(name).map_or_else(|| NONE.to_owned(), |_| scaled(point, name, factor).text(1))
}

fn alone(point: &Point<tcp_goodput::Run>, name: &str, factor: f64, decimals: usize) -> String {
    point.mean(name).map_or_else(|| NONE.to_owned(), |mean| format!("{:.decimals$}", mean.mean * factor))
}

/// A series of TCP tests: means over the runs of each point. Rates are Mb/s of payload, windows packets. Columns in which no point has a value
/// are left out.
pub fn tcp_table(series: &Series<tcp_goodput::Run>) -> String {
    let wide = label_width(series).max(16);
    let measured = || series.points.iter().filter(|point| point.mean(GOODPUT).is_some());
    let used = |(.., cell): &&TcpColumn| measured().next().is_none() || measured().any(|point| cell(point) != NONE);
    let columns: Vec<&TcpColumn> = TCP_COLUMNS.iter().filter(used).collect();
    let titles: String = columns.iter().map(|(title, wide, _)| format!(" {title:>wide$}")).collect();
    let mut table = format!("{}\n{:<wide$}{titles}  {:<24} runs\n", series.name, "test", "limited by");
    for point in &series.points {
        if point.mean(GOODPUT).is_none() {
            let _ = writeln!(table, "{:<wide$} {}", point.label, why(point));
            continue;
        }
        let cells: String = columns.iter().map(|(_, wide, cell)| format!(" {:>wide$}", cell(point))).collect();
        let _ = writeln!(table, "{:<wide$}{cells}  {:<24} {}", point.label, limit(point), runs(point));
    }
    table
}

/// A series of receivers under a mix: means over the runs of each point. Rates are Mb/s on a wire (L1). Columns in which no point has a value
/// are left out.
pub fn mix_table(series: &Series<mix::Run>) -> String {
    let wide = label_width(series).max(9);
    let rows: Vec<Option<Vec<String>>> = series.points.iter().map(mix::cells).collect();
    let used = |(number, _): &(usize, _)| rows.iter().flatten().any(|cells| cells[*number] != NONE);
    let columns: Vec<(usize, usize, &str)> = (mix::COLUMNS.iter().enumerate().filter(used))
        .map(|(number, (title, ..))| {
            let cells = rows.iter().flatten().map(|cells| cells[number].as_str());
            (number, column_width(cells.chain([*title])), *title)
        })
        .collect();
    let titles: String = columns.iter().map(|(_, wide, title)| format!("  {title:>wide$}")).collect();
    let mut table = format!("{}\n{:>wide$}{titles}  runs\n", series.name, "Mb/s (L1)");
    for (point, cells) in series.points.iter().zip(&rows) {
        let Some(cells) = cells else {
            let _ = writeln!(table, "{:>wide$}  {}", point.label, why(point));
            continue;
        };
        let cells: String = columns.iter().map(|(number, wide, _)| format!("  {:>wide$}", cells[*number])).collect();
        let _ = writeln!(table, "{:>wide$}{cells}  {}", point.label, runs(point));
    }
    table
}

fn label_width<R>(series: &Series<R>) -> usize {
    column_width(series.points.iter().map(|point| point.label.as_str()))
}

fn runs<R: Run>(point: &Point<R>) -> String {
    point.runs_text() + if point.doubtful { ", doubtful" } else { "" }
}

fn why<R: Run>(point: &Point<R>) -> String {
    point.first_error().map_or_else(|| "not measured".into(), |error| not_measured(Some(&error.message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::series::tests::series;

    /// Such a label is none of an experiment; the table of one is printed all the same.
    #[test]
    fn a_long_label_stands_out_of_its_column() {
        fn labelled<R: Run>(label: &str) -> Series<R> {
            Series { points: vec![Point::new("short"), Point::new(label)], ..series("one", Vec::new()) }
        }
        let label = "x".repeat(70_000);
        let tables = [udp_table(&labelled(&label)), tcp_table(&labelled(&label)), mix_table(&labelled(&label))];
        for table in tables {
            let (long, others): (Vec<&str>, Vec<&str>) = table.lines().partition(|line| line.contains(&label));
            assert_eq!((long.len(), others.len()), (1, 3));
            assert!(others.iter().all(|line| line.len() < 2000), "{others:?}");
        }
    }
}
