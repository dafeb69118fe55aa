//! An experiment as text: a line for each run while it runs, a table for each series at its end.

use std::fmt::Write;

use longhaul_result::Location;
use longhaul_units::Nanos;

use crate::html::points::{Point, Run};
use crate::html::series::Series;
use crate::html::tcp_goodput::{
    self, BESIDE_GOODPUT, EXPECTED, GOODPUT, PATH_RTT, RETRANSMITS, RTT, TIME, WINDOW, limit,
};
use crate::html::udp_loss::exactness::MISCOUNTED;
use crate::html::udp_loss::{self, EXACT, LOST, RECEIVED, SENT, scaled};

/// Places that have a column of their own in the table: those of the NLR Rings paper.
const COLUMNS: [(Location, &str); 3] = [
    (Location::Network, "network"),
    (Location::ReceiverRing, "receive ring"),
    (Location::ReceiverSocketBuffer, "socket buffer"),
];
const NONE: &str = "–";

/// What one run of a UDP test has, in a few words.
pub fn udp_line(run: &udp_loss::Run) -> String {
    match &run.result {
        None => not_measured(run.error.as_ref().map(|error| error.message.as_str())),
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
        None => return not_measured(run.error.as_ref().map(|error| error.message.as_str())),
        Some(result) => format!("{:.1} Mb/s", result.goodput_bps as f64 / 1e6),
    };
    if let Some(result) = run.beside.as_ref().and_then(|beside| beside.result.as_ref()) {
        // Writing to a string cannot fail.
        let _ = write!(line, ", beside it {:.1} Mb/s", result.goodput_bps as f64 / 1e6);
    }
    if let Some(error) = &run.error {
        let _ = write!(line, "; other flow: {}", error.message);
    }
    line
}

fn not_measured(why: Option<&str>) -> String {
    format!("not measured: {}", why.unwrap_or_default())
}

/// A series of UDP tests: means over the runs of each point. Rates are Mb/s of payload; each place has the percent of the packets that it lost.
pub fn udp_table(series: &Series<udp_loss::Run>) -> String {
    let exact = series.points.iter().any(|point| point.mean(MISCOUNTED).is_some());
    let mut columns: String = COLUMNS.iter().map(|(_, title)| format!(" {title:>14}")).collect();
    columns.extend(EXACT.iter().filter(|_| exact).map(|(_, title, _)| format!(" {title:>16}")));
    let wide = series.points.iter().map(|point| point.label.chars().count()).max().unwrap_or_default().max(9);
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

/// A series of TCP tests: means over the runs of each point. Rates are Mb/s of payload, windows packets.
pub fn tcp_table(series: &Series<tcp_goodput::Run>) -> String {
    let wide = series.points.iter().map(|point| point.label.chars().count()).max().unwrap_or_default().max(16);
    let mut table = format!(
        "{}\n{:<wide$} {:>16} {:>9} {:>10} {:>16} {:>9} {:>12} {:>9} {:>9}  {:<24} runs\n",
        series.name,
        "test",
        "goodput",
        "time, s",
        "expected",
        "other",
        "retrans.",
        "mean window",
        "RTT asked",
        "seen, ms",
        "limited by"
    );
    for point in &series.points {
        let Some(_) = point.mean(GOODPUT) else {
            let _ = writeln!(table, "{:<wide$} {}", point.label, why(point));
            continue;
        };
        let with_interval = |name: &str, factor: f64| {
            point.mean(name).map_or_else(|| NONE.to_owned(), |_| scaled(point, name, factor).text(1))
        };
        let alone = |name: &str, factor: f64, decimals: usize| {
            point.mean(name).map_or_else(|| NONE.to_owned(), |mean| format!("{:.decimals$}", mean.mean * factor))
        };
        let _ = writeln!(
            table,
            "{:<wide$} {:>16} {:>9} {:>10} {:>16} {:>9} {:>12} {:>9} {:>9}  {:<24} {}",
            point.label,
            with_interval(GOODPUT, 1e-6),
            alone(TIME, 1e-9, 2),
            alone(EXPECTED, 1e-6, 1),
            with_interval(BESIDE_GOODPUT, 1e-6),
            alone(RETRANSMITS, 1.0, 0),
            alone(WINDOW, 1.0, 0),
            alone(PATH_RTT, 1e-6, 1),
            alone(RTT, 1e-6, 1),
            limit(point),
            runs(point),
        );
    }
    table
}

fn runs<R: Run>(point: &Point<R>) -> String {
    point.runs_text() + if point.doubtful { ", doubtful" } else { "" }
}

fn why<R: Run>(point: &Point<R>) -> String {
    point.first_error().map_or_else(|| "not measured".into(), |error| not_measured(Some(&error.message)))
}
