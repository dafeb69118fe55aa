//! Reports while a capture runs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use longhaul_capture::Counters;
use longhaul_captures::ledger::DroppedAt;
use longhaul_kernel::clock::monotonic;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::output::live::{Lines, Stamp};

/// What was captured in an interval, as `--json-stream` prints it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    /// Name and version of this form.
    schema: &'static str,
    /// When and where it was.
    #[serde(flatten)]
    stamp: Stamp,
    /// Start of the interval, nanoseconds since the capture began.
    start_ns: u64,
    /// End of the interval, nanoseconds since the capture began.
    end_ns: u64,
    /// Packets read from the rings; a super-packet counts as one.
    packets: u64,
    /// Bytes of their frames on the wire, without FCS.
    frame_bytes: u64,
    /// Bits of frames per second of the interval.
    l2_rate_bps: u64,
    /// Packets that the capture dropped in the interval, by place.
    dropped_packets: BTreeMap<&'static str, u64>,
    /// Whether nothing can be written now.
    disk_full: bool,
}

/// What the counters said.
#[derive(Debug, Default)]
struct Seen {
    packets: u64,
    frame_bytes: u64,
    dropped: [u64; DroppedAt::ALL.len()],
}

/// Reports rates at intervals.
pub(super) struct Live {
    began: Nanos,
    every: Nanos,
    lines: Lines,
    reported: Nanos,
    before: Seen,
}

impl Live {
    pub(super) fn new(began: Nanos, every: Nanos, lines: Lines) -> Self {
        Self { began, every, lines, reported: began, before: Seen::default() }
    }

    pub(super) fn report_if_due(&mut self, counters: &Counters) {
        let now = monotonic();
        let span = now.saturating_sub(self.reported);
        if self.every == Nanos::ZERO || span < self.every {
            return;
        }
        let seen = Seen {
            packets: counters.read_packets.load(Ordering::Relaxed),
            frame_bytes: counters.frame_bytes.load(Ordering::Relaxed),
            dropped: std::array::from_fn(|place| counters.dropped[place].load(Ordering::Relaxed)),
        };
        let frame_bytes = seen.frame_bytes - self.before.frame_bytes;
        let dropped = DroppedAt::ALL.iter().zip(seen.dropped.iter().zip(&self.before.dropped));
        let interval = Interval {
            schema: "longhaul.capture.interval/1",
            stamp: Stamp::now(),
            start_ns: self.reported.saturating_sub(self.began).0,
            end_ns: now.saturating_sub(self.began).0,
            packets: seen.packets - self.before.packets,
            frame_bytes,
            l2_rate_bps: BitRate::of(frame_bytes, span).0,
            dropped_packets: dropped
                .map(|(place, (now, before))| (place.name(), now - before))
                .filter(|(_, packets)| *packets > 0)
                .collect(),
            disk_full: counters.disk_full.load(Ordering::Relaxed),
        };
        self.lines.print(&interval.line(), &interval);
        (self.reported, self.before) = (now, seen);
    }
}

impl Interval {
    fn line(&self) -> String {
        let span = Nanos(self.end_ns - self.start_ns).as_secs_f64().max(1e-9);
        let places: Vec<String> =
            self.dropped_packets.iter().map(|(place, packets)| format!("{packets} dropped at {place}")).collect();
        let dropped = if places.is_empty() { "0 dropped".into() } else { places.join(", ") };
        format!(
            "[{:>7.1}-{:<7.1} s] {:>10.0} packets/s  {:>13} L2  {dropped}{}",
            Nanos(self.start_ns).as_secs_f64(),
            Nanos(self.end_ns).as_secs_f64(),
            self.packets as f64 / span,
            BitRate(self.l2_rate_bps).rounded(),
            if self.disk_full { "  the disk is full" } else { "" },
        )
    }
}
