//! Reports while a mix is sent.

use longhaul_mix::MixProgress;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::output::live::{Lines, Stamp};

/// What was sent in an interval, as `--json-stream` prints it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    /// Name and version of this form.
    schema: &'static str,
    /// When and where it was.
    #[serde(flatten)]
    stamp: Stamp,
    /// Start of the interval, nanoseconds since the first frame.
    start_ns: u64,
    /// End of the interval, nanoseconds since the first frame.
    end_ns: u64,
    /// Frames that the interface took.
    sent_packets: u64,
    /// Their bytes, FCS included.
    sent_bytes: u64,
    /// Bits of frames per second of the interval.
    l2_rate_bps: u64,
    /// Frames that the interface did not take.
    refused_packets: u64,
}

/// Reports each interval.
#[derive(Debug)]
pub(crate) struct Live {
    lines: Lines,
    before: MixProgress,
}

impl Live {
    pub(crate) fn new(lines: Lines) -> Self {
        Self { lines, before: MixProgress::default() }
    }

    pub(crate) fn take(&mut self, now: &MixProgress) {
        let before = std::mem::replace(&mut self.before, *now);
        let sent_bytes = now.sent_bytes - before.sent_bytes;
        let interval = Interval {
            schema: "longhaul.mix.interval/1",
            stamp: Stamp::now(),
            start_ns: before.elapsed_ns,
            end_ns: now.elapsed_ns,
            sent_packets: now.sent_packets - before.sent_packets,
            sent_bytes,
            l2_rate_bps: BitRate::of(sent_bytes, Nanos(now.elapsed_ns.saturating_sub(before.elapsed_ns))).0,
            refused_packets: now.refused_packets - before.refused_packets,
        };
        self.lines.print(&interval.line(now.refused_packets), &interval);
    }
}

impl Interval {
    fn line(&self, refused_so_far: u64) -> String {
        let span = Nanos(self.end_ns.saturating_sub(self.start_ns)).as_secs_f64().max(1e-9);
        let refused = if refused_so_far > 0 { format!(", {refused_so_far} refused so far") } else { String::new() };
        format!(
            "{:>7.1} s {:>10.0} frames/s {:>9.1} Mb/s{refused}",
            self.end_ns as f64 / 1e9,
            self.sent_packets as f64 / span,
            self.l2_rate_bps as f64 / 1e6
        )
    }
}
