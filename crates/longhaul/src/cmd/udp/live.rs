//! Reports while a UDP test runs.

use std::collections::BTreeMap;

use longhaul_peer::client::Live as Progressed;
use longhaul_result::Location;
use longhaul_session::{PacketsByLocation, Progress};
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::output::live::{Lines, Stamp};
use longhaul_report::text::rate;

/// What arrived in an interval, as `--json-stream` prints it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    /// Name and version of this form.
    schema: &'static str,
    /// When and where it was.
    #[serde(flatten)]
    stamp: Stamp,
    /// The direction; forward is client to server.
    #[cfg_attr(test, schemars(extend("enum" = ["forward", "backward"])))]
    direction: &'static str,
    /// Start of the interval, nanoseconds since the first packet arrived.
    start_ns: u64,
    /// End of the interval, nanoseconds since the first packet arrived.
    end_ns: u64,
    /// Packets received, without duplicates.
    received_packets: u64,
    /// Packets missing in the sequence; negative if late packets filled gaps of earlier intervals.
    missing_packets: i64,
    /// Duplicates of received packets.
    duplicate_packets: u64,
    /// Reordered packets (RFC 4737 §3).
    reordered_packets: u64,
    /// Payload bytes received, without duplicates.
    payload_bytes: u64,
    /// Payload bits received, per second of the interval.
    received_rate_bps: u64,
    /// Packets that either host dropped in the interval, by location, as far as drop events tell so soon; the other lost packets were
    /// lost in the network, or the result says where.
    dropped_packets: BTreeMap<Location, u64>,
}

impl Interval {
    fn between(direction: &'static str, before: &Seen, now: &Seen) -> Self {
        let dropped_packets = (Location::ALL.into_iter())
            .zip(now.dropped().into_iter().zip(before.dropped()))
            .map(|(location, (now, before))| (location, now.saturating_sub(before)))
            .filter(|(_, packets)| *packets > 0)
            .collect();
        let (before, now) = (&before.progress, &now.progress);
        let payload_bytes = now.payload_bytes.saturating_sub(before.payload_bytes);
        let span = Nanos(now.elapsed_ns.saturating_sub(before.elapsed_ns));
        Self {
            schema: "longhaul.udp.interval/1",
            stamp: Stamp::now(),
            direction,
            start_ns: before.elapsed_ns,
            end_ns: now.elapsed_ns,
            received_packets: now.received_packets.saturating_sub(before.received_packets),
            missing_packets: now.missing_packets.wrapping_sub(before.missing_packets) as i64,
            duplicate_packets: now.duplicate_packets.saturating_sub(before.duplicate_packets),
            reordered_packets: now.reordered_packets.saturating_sub(before.reordered_packets),
            payload_bytes,
            received_rate_bps: BitRate::of(payload_bytes, span).0,
            dropped_packets,
        }
    }

    /// Fits a line of 80 characters, where no place is known.
    fn line(&self) -> String {
        let mut places: Vec<_> = self.dropped_packets.iter().collect();
        places.sort_by_key(|(_, packets)| std::cmp::Reverse(**packets));
        let places: Vec<String> = places.iter().map(|(place, packets)| format!("{place} {packets}")).collect();
        let line = format!(
            "{:<8}{:>7.1} s {:>12}/s {:>9} {:>10} {:>10}  {}",
            self.direction,
            self.end_ns as f64 / 1e9,
            rate(BitRate(self.received_rate_bps)),
            self.missing_packets,
            self.duplicate_packets,
            self.reordered_packets,
            places.join(", "),
        );
        line.trim_end().to_owned()
    }
}

/// The columns of [`Interval::line`].
const HEADER: &str = "              end       received      lost duplicates  reordered  dropped where";

/// What is known at the end of an interval.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    progress: Progress,
    /// By this end, of what it sends.
    dropped_of_sent: PacketsByLocation,
}

impl Seen {
    /// By both ends. No location is of both.
    fn dropped(&self) -> PacketsByLocation {
        let (received, sent) = (&self.progress.dropped_packets, &self.dropped_of_sent);
        std::array::from_fn(|location| received[location].saturating_add(sent[location]))
    }
}

/// Reports what arrives in each interval.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// What was last known of the server, which receives forward, and of this end.
    before: [Seen; 2],
}

impl Live {
    pub(crate) fn take(&mut self, live: &Progressed, lines: &mut Lines) {
        let before = &mut self.before[usize::from(live.own)];
        let direction = if live.own { "backward" } else { "forward" };
        let now = Seen { progress: live.progress, dropped_of_sent: live.dropped_of_sent };
        let interval = Interval::between(direction, before, &now);
        *before = now;
        lines.head(HEADER);
        lines.print(&interval.line(), &interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_difference() {
        let before =
            Progress { elapsed_ns: 1_000_000_000, missing_packets: 5, payload_bytes: 100, ..Progress::default() };
        let mut now = Progress {
            elapsed_ns: 2_000_000_000,
            received_packets: 9,
            missing_packets: 3,
            duplicate_packets: 1,
            reordered_packets: 2,
            payload_bytes: 1_000_100,
            ..Progress::default()
        };
        let seen = |progress: Progress| Seen { progress, ..Seen::default() };
        let interval = Interval::between("forward", &seen(before), &seen(now));
        assert_eq!((interval.missing_packets, interval.received_rate_bps), (-2, 8_000_000));
        let line = "forward     2.0 s     8.0 Mbit/s        -2          1          2";
        assert_eq!(interval.line(), line);
        for (column, number) in [("received", "/s"), ("lost", "-2"), ("duplicates", " 1"), ("reordered", " 2")] {
            let ends = |text: &str, what: &str| text.rfind(what).map(|at| at + what.len());
            assert_eq!(ends(HEADER, column), ends(line, number), "{column}");
        }
        assert!(HEADER.len() <= 80);
        now.dropped_packets[Location::ReceiverSocketBuffer as usize] = 3;
        let mut now = seen(now);
        now.dropped_of_sent[Location::SenderQdisc as usize] = 7;
        let interval = Interval::between("forward", &seen(before), &now);
        assert!(interval.line().ends_with("  sender_qdisc 7, receiver_socket_buffer 3"), "{}", interval.line());
    }
}
