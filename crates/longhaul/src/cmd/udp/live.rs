//! Reports while a UDP test runs.

use longhaul_peer::client::Live as Progressed;
use longhaul_session::Progress;
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
}

impl Interval {
    fn between(direction: &'static str, before: &Progress, now: &Progress) -> Self {
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
        }
    }

    /// Fits a line of 80 characters.
    fn line(&self) -> String {
        format!(
            "{:<8}{:>7.1} s {:>12}/s {:>8} missing {:>5} duplicate {:>5} late",
            self.direction,
            self.end_ns as f64 / 1e9,
            rate(BitRate(self.received_rate_bps)),
            self.missing_packets,
            self.duplicate_packets,
            self.reordered_packets,
        )
    }
}

/// Reports what arrives in each interval.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The last progress of the server, which receives forward, and of this end.
    before: [Progress; 2],
}

impl Live {
    pub(crate) fn take(&mut self, live: &Progressed, lines: &mut Lines) {
        let before = &mut self.before[usize::from(live.own)];
        let direction = if live.own { "backward" } else { "forward" };
        let interval = Interval::between(direction, before, &live.progress);
        *before = live.progress;
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
        let now = Progress {
            elapsed_ns: 2_000_000_000,
            received_packets: 9,
            missing_packets: 3,
            duplicate_packets: 1,
            reordered_packets: 2,
            payload_bytes: 1_000_100,
        };
        let interval = Interval::between("forward", &before, &now);
        assert_eq!((interval.missing_packets, interval.received_rate_bps), (-2, 8_000_000));
        assert_eq!(interval.line(), "forward     2.0 s     8.0 Mbit/s       -2 missing     1 duplicate     2 late");
        assert!(interval.line().chars().count() <= 80);
    }
}
