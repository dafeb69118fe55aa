//! The live table of `longhaul watch`.

use std::net::SocketAddr;

use longhaul_kernel::{stderr_line, stderr_text};
use longhaul_units::{BitRate, Bytes, Nanos};
use longhaul_watch::{ConnectionNow, Watch};
use serde::Serialize;

use crate::output::live::{Show, Stamp};
use crate::output::prometheus::Textfile;
use crate::output::{plain, print_json, print_text};
use longhaul_report::text::{rate, short};

/// Rows of the table: the connections with the highest rates.
pub(super) const ROWS: usize = 15;

/// Characters of the columns that may be cut. Elsewhere than on a narrow terminal they have room for all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// The line.
    pub(super) line: usize,
    /// An address and port.
    pub(super) address: usize,
    /// A program.
    pub(super) program: usize,
    /// A congestion control.
    control: usize,
}

impl Columns {
    /// For lines of so many characters; `None` for as long as they are.
    pub(super) fn of(width: Option<usize>) -> Self {
        // In 80 characters any IPv4 address fits; the longest IPv6 address with its port has 47, names have 15.
        let mut more = width.map_or(usize::MAX, |width| width.saturating_sub(80));
        let mut grow = |least: usize, most: usize| {
            let by = more.min(most - least);
            more -= by;
            least + by
        };
        let (address, program, control) = (grow(21, 47), grow(7, 15), grow(6, 15));
        Self { line: width.unwrap_or(usize::MAX), address, program, control }
    }
}

/// What is sampled until the end.
pub(crate) trait Watching {
    /// Takes a sample.
    fn sample(&mut self);
    /// Reports what happened since the last call.
    fn report(&mut self, live: &mut Live, elapsed: Nanos);
    /// What is followed and still open.
    fn open(&self) -> usize;
    /// Whether the chosen processes have ended.
    fn is_over(&self) -> bool;
}

/// The connections in an interval, as `--json-stream` prints them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct WatchInterval<'a> {
    /// Name and version of this form.
    schema: &'static str,
    /// When and where it was.
    #[serde(flatten)]
    stamp: &'a Stamp,
    /// The end of the interval, from the start of the watch.
    elapsed_ns: u64,
    /// Each open connection, highest rate first.
    connections: Vec<ConnectionRow<'a>>,
}

/// A connection in an interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConnectionRow<'a> {
    /// Its number in the result.
    number: u32,
    /// This end.
    local: SocketAddr,
    /// The other end.
    remote: SocketAddr,
    /// The name of the process that owns it; empty if unknown.
    program: &'a str,
    /// State, as in RFC 9293 §3.3.2.
    state: &'static str,
    /// Its congestion control; empty if unknown.
    congestion_control: &'a str,
    /// Payload bits per second sent.
    sent_rate_bps: u64,
    /// Payload bits per second received.
    received_rate_bps: u64,
    /// Smoothed round-trip time; 0 if unknown.
    rtt_ns: u64,
    /// Congestion window, bytes.
    cwnd_bytes: u64,
    /// Retransmitted packets.
    retransmits: u64,
    /// What limits it; `None` if no data moved.
    limited_by: Option<&'a str>,
}

impl<'a> ConnectionRow<'a> {
    fn of(now: &'a ConnectionNow) -> Self {
        Self {
            number: now.number,
            local: now.local,
            remote: now.remote,
            program: &now.program,
            state: now.state,
            congestion_control: &now.congestion_control,
            sent_rate_bps: now.sent_rate_bps,
            received_rate_bps: now.received_rate_bps,
            rtt_ns: now.rtt_ns,
            cwnd_bytes: now.cwnd_bytes,
            retransmits: now.retransmits,
            limited_by: now.limit.as_ref().map(|limit| limit.by.as_str()),
        }
    }
}

impl Watching for Watch {
    fn sample(&mut self) {
        Watch::sample(self);
    }

    fn report(&mut self, live: &mut Live, elapsed: Nanos) {
        let columns = live.columns();
        let (rows, stamp) = (self.now(), Stamp::now());
        let connections = rows.iter().map(ConnectionRow::of).collect();
        let object =
            WatchInterval { schema: "longhaul.watch.interval/1", stamp: &stamp, elapsed_ns: elapsed.0, connections };
        live.take(&table(elapsed, &rows, columns), &object);
    }

    fn open(&self) -> usize {
        self.open_connections()
    }

    fn is_over(&self) -> bool {
        Watch::is_over(self)
    }
}

/// Prints a table every interval.
#[derive(Debug)]
pub(crate) struct Live {
    show: Show,
    /// Lines on the terminal that the next table overwrites.
    written: usize,
    metrics: Option<Textfile>,
}

impl Live {
    pub(crate) fn new(show: Show, metrics: Option<Textfile>) -> Self {
        Self { show, written: 0, metrics }
    }

    /// The columns that fit where tables go.
    pub(super) fn columns(&self) -> Columns {
        let size = match self.show {
            Show::Lines => terminal_size::terminal_size_of(std::io::stdout()),
            _ => terminal_size::terminal_size_of(std::io::stderr()),
        };
        Columns::of(size.map(|(width, _)| usize::from(width.0)))
    }

    /// Whether tables are shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.show != Show::Nothing || self.metrics.is_some()
    }

    /// Prints `lines`, or `object`.
    pub(crate) fn take(&mut self, lines: &[String], object: &impl Serialize) {
        if let Some(metrics) = &mut self.metrics {
            metrics.write(object);
        }
        match self.show {
            Show::Nothing => {}
            Show::Objects => print_json(object),
            Show::Lines => print_text(&(lines.join("\n") + "\n")),
            Show::LinesBeside => stderr_line!("{}", plain(&lines.join("\n"))),
            Show::Terminal => {
                self.end();
                stderr_line!("{}", plain(&lines.join("\n")));
                self.written = lines.len();
            }
        }
    }

    /// Erases the last table, so that the next output takes its place.
    pub(crate) fn end(&mut self) {
        if self.written > 0 {
            // ECMA-48: cursor up, erase below.
            stderr_text!("\x1b[{}A\x1b[J", self.written);
            self.written = 0;
        }
    }
}

fn table(elapsed: Nanos, rows: &[ConnectionNow], columns: Columns) -> Vec<String> {
    let time = format!("{:.0} s", elapsed.0 as f64 / 1e9);
    let Columns { address, program, control, .. } = columns;
    let head = format!(
        "{time:<program$} {:>5} {:<address$} {:>8} {:>6} {:>5} {:>4} {:<control$} limit",
        "port", "other end", "rate", "rtt", "cwnd", "retr", "cc"
    );
    let mut lines = vec![head];
    lines.extend(rows.iter().take(ROWS).map(|now| row(now, columns)));
    fitted(lines, rows.len(), columns)
}

/// `lines` of a table of `rows` rows, each in the width, with the number of rows that are not shown.
pub(super) fn fitted(mut lines: Vec<String>, rows: usize, columns: Columns) -> Vec<String> {
    if rows > ROWS {
        lines.push(format!("{:>9}  and {} more", "", rows - ROWS));
    }
    lines.iter().map(|line| line.replace(char::is_control, " ").chars().take(columns.line).collect()).collect()
}

/// A short word for a limit.
fn in_short(limit: &str, receives: bool) -> &'static str {
    match (limit, receives) {
        ("congestion_window", _) => "cwnd",
        ("receive_window", _) => "window",
        ("send_buffer", _) => "sndbuf",
        ("application", true) => "reader",
        ("application", false) => "writer",
        _ => "sender",
    }
}

/// Cuts an address of more than `most` characters: its end says more than its beginning.
pub(super) fn address(text: &str, most: usize) -> String {
    let surplus = text.chars().count().saturating_sub(most);
    if surplus == 0 { text.to_owned() } else { "…".chars().chain(text.chars().skip(surplus + 1)).collect() }
}

fn row(now: &ConnectionNow, columns: Columns) -> String {
    let receives = now.received_rate_bps > now.sent_rate_bps;
    let (arrow, bps) = if receives { ('<', now.received_rate_bps) } else { ('>', now.sent_rate_bps) };
    // Show the state instead of a limit if the connection is not established.
    let limit = match &now.limit {
        _ if now.state != "ESTABLISHED" => now.state.to_owned(),
        Some(limit) if bps > 0 => format!("{} {:.0}%", in_short(&limit.by, receives), limit.share * 100.0),
        _ => "idle".into(),
    };
    let owner = if now.program.is_empty() { "?" } else { &now.program };
    let Columns { address: most, program, control, .. } = columns;
    let rtt = if now.rtt_ns == 0 { "?".into() } else { short(now.rtt_ns) };
    format!(
        "{owner:<program$.program$} {:>5} {:<most$} {:>7}{arrow} {rtt:>6} {:>5} {:>4} {:<control$.control$} {limit}",
        now.local.port(),
        address(&now.remote.to_string(), most),
        rate(BitRate(bps)).replace("bit", ""),
        Bytes(now.cwnd_bytes).rounded().replace("iB", ""),
        now.retransmits,
        now.congestion_control,
    )
}

#[cfg(test)]
mod tests {
    use longhaul_tcp::Limit;

    use super::*;

    #[test]
    fn a_row_fits_and_says_what_limits() {
        let limit = Limit { by: "receive_window".into(), share: 0.97, evidence: String::new() };
        let now = ConnectionNow {
            number: 0,
            local: "10.77.1.1:51234".parse().unwrap(),
            remote: "10.77.2.1:80".parse().unwrap(),
            program: "curl\x1b".into(),
            state: "ESTABLISHED",
            congestion_control: "lh_highspeed".into(),
            sent_rate_bps: 0,
            received_rate_bps: 12_300_000,
            rtt_ns: 50_100_000,
            cwnd_bytes: 14_480,
            retransmits: 3,
            limit: Some(limit),
        };
        let rows = [now.clone(), ConnectionNow { state: "SYN-SENT", ..now }];
        let lines = table(Nanos::from_millis(1_500), &rows, Columns::of(Some(80)));
        assert!(lines.iter().all(|line| line.chars().count() <= 80 && !line.contains('\x1b')), "{lines:?}");
        assert_eq!(lines[1], "curl    51234 10.77.2.1:80           12.3 M< 50.1ms 14.1K    3 lh_hig window 97%");
        assert!(lines[2].ends_with("SYN-SENT"), "{}", lines[2]);
        assert!(lines[0].starts_with("2 s "));
        let text = "[2001:db8:1234:5678:9abc:def0:1234:5678]:443";
        let long = address(text, 21);
        assert!(long.starts_with('…') && long.ends_with(":1234:5678]:443") && long.chars().count() == 21, "{long}");
        // A wide terminal and a pipe have room.
        for width in [Some(130), None] {
            let now = ConnectionNow { remote: text.parse().unwrap(), ..rows[0].clone() };
            let lines = table(Nanos::from_millis(1_500), &[now], Columns::of(width));
            assert!(lines[1].contains(text) && lines[1].contains("lh_highspeed"), "{lines:?}");
            assert_eq!(lines[0].find("other end"), lines[1].find('['));
        }
        let narrow = table(Nanos::from_millis(1_500), &rows, Columns::of(Some(60)));
        assert!(narrow.iter().all(|line| line.chars().count() <= 60), "{narrow:?}");
    }
}
