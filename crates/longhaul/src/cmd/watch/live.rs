//! The live table of `longhaul watch`.

use longhaul_units::{BitRate, Bytes, Nanos};
use longhaul_watch::ConnectionNow;

use crate::output::live::Show;
use crate::output::{plain, print_text};
use longhaul_report::text::{rate, short};

/// Rows of the table: the connections with the highest rates.
const ROWS: usize = 15;
/// Characters per line.
const WIDTH: usize = 80;
/// Characters for the address and port of the other end: any IPv4 address fits.
const ADDRESS: usize = 21;

/// Prints a table every interval.
#[derive(Debug)]
pub(crate) struct Live {
    show: Show,
    /// Lines on the terminal that the next table overwrites.
    written: usize,
}

impl Live {
    pub(crate) fn new(show: Show) -> Self {
        Self { show, written: 0 }
    }

    /// Whether tables are shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.show != Show::Nothing
    }

    pub(crate) fn take(&mut self, elapsed: Nanos, rows: &[ConnectionNow]) {
        let lines = table(elapsed, rows);
        match self.show {
            Show::Nothing | Show::Objects => {}
            Show::Lines => print_text(&(lines.join("\n") + "\n")),
            Show::LinesBeside => eprintln!("{}", plain(&lines.join("\n"))),
            Show::Terminal => {
                self.end();
                eprintln!("{}", plain(&lines.join("\n")));
                self.written = lines.len();
            }
        }
    }

    /// Erases the last table, so that the next output takes its place.
    pub(crate) fn end(&mut self) {
        if self.written > 0 {
            // ECMA-48: cursor up, erase below.
            eprint!("\x1b[{}A\x1b[J", self.written);
            self.written = 0;
        }
    }
}

fn table(elapsed: Nanos, rows: &[ConnectionNow]) -> Vec<String> {
    let head = format!(
        "{:>7.1} s  {:<21} {:>13} {:>6} {:>7} {:>5}  limited by",
        elapsed.0 as f64 / 1e9,
        "other end",
        "rate",
        "rtt",
        "cwnd",
        "retr"
    );
    let mut lines = vec![head];
    lines.extend(rows.iter().take(ROWS).map(row));
    if rows.len() > ROWS {
        lines.push(format!("{:>9}  and {} more", "", rows.len() - ROWS));
    }
    lines.iter().map(|line| line.replace(char::is_control, " ").chars().take(WIDTH).collect()).collect()
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

/// Cuts a long address: its end says more than its beginning.
fn address(text: &str) -> String {
    let surplus = text.chars().count().saturating_sub(ADDRESS);
    if surplus == 0 { text.to_owned() } else { "…".chars().chain(text.chars().skip(surplus + 1)).collect() }
}

fn row(now: &ConnectionNow) -> String {
    let (arrow, bps) = if now.received_rate_bps > now.sent_rate_bps {
        ("in", now.received_rate_bps)
    } else {
        ("out", now.sent_rate_bps)
    };
    // Show the state instead of a limit if the connection is not established.
    let limit = match &now.limit {
        _ if now.state != "ESTABLISHED" => now.state.to_owned(),
        Some(limit) if bps > 0 => format!("{} {:.0}%", in_short(&limit.by, arrow == "in"), limit.share * 100.0),
        _ => "idle".into(),
    };
    let program: String = if now.program.is_empty() { "?" } else { &now.program }.chars().take(9).collect();
    let rtt = if now.rtt_ns == 0 { "?".into() } else { short(now.rtt_ns) };
    format!(
        "{program:<9}  {:<21} {:>9} {arrow:<3} {rtt:>6} {:>7} {:>5}  {limit}",
        address(&now.remote.to_string()),
        rate(BitRate(bps)).replace("bit", ""),
        Bytes(now.cwnd_bytes).rounded(),
        now.retransmits,
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
            sent_rate_bps: 0,
            received_rate_bps: 12_300_000,
            rtt_ns: 50_100_000,
            cwnd_bytes: 14_480,
            retransmits: 3,
            limit: Some(limit),
        };
        let lines = table(Nanos::from_millis(1_500), &[now.clone(), ConnectionNow { state: "SYN-SENT", ..now }]);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH && !line.contains('\x1b')), "{lines:?}");
        assert_eq!(lines[1], "curl       10.77.2.1:80             12.3 M in  50.1ms 14.1KiB     3  window 97%");
        assert!(lines[2].ends_with("SYN-SENT"), "{}", lines[2]);
        assert!(lines[0].contains("1.5 s"));
        let long = address("[2001:db8:1234:5678:9abc:def0:1234:5678]:443");
        assert!(
            long.starts_with('…') && long.ends_with(":1234:5678]:443") && long.chars().count() == ADDRESS,
            "{long}"
        );
    }
}
