//! `longhaul watch --udp`: the sockets while it runs, and the result.

use std::net::SocketAddr;

use longhaul_report::saved::WATCH_UDP_SCHEMA;
use longhaul_report::text;
use longhaul_report::text::rate;
use longhaul_result::{Caveat, Location};
use longhaul_units::{BitRate, Nanos};
use longhaul_watch::{UdpSocketNow, UdpWatch, UdpWatched};
use serde::Serialize;

use super::live::{Columns, Live, ROWS, Watching, address, fitted};
use super::{Asked, Watched};
use crate::output::Outcome;
use crate::output::live::Stamp;
use crate::output::saved::Folder;

/// The sockets in an interval, as `--json-stream` prints them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UdpWatchInterval<'a> {
    /// Name and version of this form.
    schema: &'static str,
    /// When and where it was.
    #[serde(flatten)]
    stamp: &'a Stamp,
    /// The end of the interval, from the start of the watch.
    elapsed_ns: u64,
    /// Each open socket, highest rate first.
    sockets: Vec<SocketRow<'a>>,
}

/// A socket in an interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SocketRow<'a> {
    /// Its number in the result.
    number: u32,
    /// Its address and port.
    local: SocketAddr,
    /// The peer that it is connected to; `None` if it is not connected.
    remote: Option<SocketAddr>,
    /// The name of the process that owns it; empty if unknown.
    program: &'a str,
    /// Datagrams sent in the interval.
    sent_packets: u64,
    /// Payload bits per second sent.
    sent_rate_bps: u64,
    /// Datagrams that entered its buffer in the interval.
    received_packets: u64,
    /// Payload bits per second received.
    received_rate_bps: u64,
    /// Datagrams that this host dropped in the interval.
    dropped_packets: u64,
    /// Where most of them were dropped; `None` if none were.
    dropped_at: Option<Location>,
}

impl<'a> SocketRow<'a> {
    fn of(now: &'a UdpSocketNow) -> Self {
        Self {
            number: now.number,
            local: now.local,
            remote: now.remote,
            program: &now.program,
            sent_packets: now.sent_packets,
            sent_rate_bps: now.sent_rate_bps,
            received_packets: now.received_packets,
            received_rate_bps: now.received_rate_bps,
            dropped_packets: now.dropped_packets,
            dropped_at: now.dropped_at,
        }
    }
}

impl Watching for UdpWatch {
    fn sample(&mut self) {
        UdpWatch::sample(self);
    }

    fn report(&mut self, live: &mut Live, elapsed: Nanos) {
        let (rows, stamp) = (self.now(), Stamp::now());
        let sockets = rows.iter().map(SocketRow::of).collect();
        let object =
            UdpWatchInterval { schema: "longhaul.watch.udp.interval/1", stamp: &stamp, elapsed_ns: elapsed.0, sockets };
        live.take(&table(elapsed, &rows, live.columns()), &object);
    }

    fn open(&self) -> usize {
        self.open_sockets()
    }

    fn is_over(&self) -> bool {
        UdpWatch::is_over(self)
    }
}

/// Prints and saves what was seen.
pub(super) fn end(asked: Asked, folder: Option<Folder>, watch: UdpWatch) -> Outcome {
    let UdpWatched { result, caveats } = watch.finish();
    let caveats = Caveat::unique(caveats);
    let watched = Watched { schema: WATCH_UDP_SCHEMA, result, caveats, text: text::watch_udp::report };
    // --html is not for UDP sockets: of those there are no samples.
    asked.end(folder, watched, |_, _| String::new())
}

fn table(elapsed: Nanos, rows: &[UdpSocketNow], columns: Columns) -> Vec<String> {
    let Columns { address: most, program, .. } = columns;
    let time = format!("{:.0} s", elapsed.0 as f64 / 1e9);
    let mut lines = vec![format!(
        "{time:<program$} {:<most$} {:>8} {:>8} {:>8}  where dropped",
        "socket", "sent", "received", "dropped"
    )];
    lines.extend(rows.iter().take(ROWS).map(|row| {
        let owner = if row.program.is_empty() { "?" } else { &row.program };
        let bits = |bps: u64| rate(BitRate(bps)).replace("bit", "");
        format!(
            "{owner:<program$.program$} {:<most$} {:>8} {:>8} {:>8}  {}",
            address(&row.local.to_string(), most),
            bits(row.sent_rate_bps),
            bits(row.received_rate_bps),
            row.dropped_packets,
            row.dropped_at.map_or("", Location::name)
        )
    }));
    fitted(lines, rows.len(), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_where_datagrams_were_dropped() {
        let row = UdpSocketNow {
            number: 0,
            local: "0.0.0.0:5000".parse().unwrap(),
            remote: None,
            program: "socat\x1b".into(),
            sent_rate_bps: 0,
            received_rate_bps: 12_300_000,
            sent_packets: 0,
            received_packets: 1_000,
            dropped_packets: 37,
            dropped_at: Some(Location::ReceiverSocketBuffer),
        };
        let lines = table(Nanos::from_secs(2), &[row], Columns::of(Some(80)));
        assert_eq!(lines[1], "socat   0.0.0.0:5000             0.0 k   12.3 M       37  receiver_socket_buffer");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }
}
