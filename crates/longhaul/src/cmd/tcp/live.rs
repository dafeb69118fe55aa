//! Reports while a TCP test runs.

use std::collections::BTreeMap;

use longhaul_peer::client::{Live as Progressed, SenderNow};
use longhaul_session::Progress;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Serialize;

use crate::output::live::{Lines, Stamp};
use longhaul_report::html::over_time::dropped::DroppedOverTime;
use longhaul_report::text::{rate, short};

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
    /// Start of the interval, nanoseconds since the first byte arrived.
    start_ns: u64,
    /// End of the interval, nanoseconds since the first byte arrived.
    end_ns: u64,
    /// Payload bytes that the receivers read, over all streams.
    payload_bytes: u64,
    /// Payload bits that the receivers read, per second of the interval.
    goodput_bps: u64,
    /// Packets with data that either host dropped in the interval, by location, as far as drop events tell so soon; what else was
    /// retransmitted was lost in the network, or the result says where.
    dropped_packets: BTreeMap<&'static str, u64>,
    /// The streams that this end sends, at the end of the interval; `None` if the other end sends.
    sender: Option<SenderInterval>,
}

/// The sending streams at the end of an interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SenderInterval {
    /// Packets retransmitted in the interval.
    retransmits: u64,
    /// Sum of the congestion windows of all streams, bytes.
    cwnd_bytes: u64,
    /// Smoothed round-trip time, mean over the streams, nanoseconds.
    rtt_ns: u64,
}

impl Interval {
    fn between(live: &Progressed, before: &Progress, sender: &SenderNow) -> Self {
        let now = &live.progress;
        let payload_bytes = now.payload_bytes.saturating_sub(before.payload_bytes);
        let span = Nanos(now.elapsed_ns.saturating_sub(before.elapsed_ns));
        Self {
            schema: "longhaul.tcp.interval/1",
            stamp: Stamp::now(),
            direction: if live.own { "backward" } else { "forward" },
            start_ns: before.elapsed_ns,
            end_ns: now.elapsed_ns,
            payload_bytes,
            goodput_bps: BitRate::of(payload_bytes, span).0,
            dropped_packets: dropped(before, sender, now, live.sender.as_ref()),
            sender: live.sender.map(|now| SenderInterval {
                retransmits: now.retransmits.saturating_sub(sender.retransmits),
                cwnd_bytes: now.cwnd_bytes,
                rtt_ns: now.rtt_ns,
            }),
        }
    }

    /// Fits a line of 80 characters, where no location is known.
    fn line(&self) -> String {
        let seconds = self.end_ns as f64 / 1e9;
        let mut line = format!("{:<8}{seconds:>7.1} s {:>12}/s", self.direction, rate(BitRate(self.goodput_bps)));
        if let Some(now) = &self.sender {
            let (cwnd, rtt) = (Bytes(now.cwnd_bytes).rounded(), short(now.rtt_ns));
            line += &format!(" {:>11}   {cwnd:>8}  {rtt:>7}", now.retransmits);
        }
        let places: Vec<String> =
            self.dropped_packets.iter().map(|(place, packets)| format!("{place} {packets}")).collect();
        if !places.is_empty() {
            line += &format!("  {}", places.join(", "));
        }
        line
    }
}

/// What both ends dropped since `before`.
fn dropped(
    before: &Progress,
    sender_before: &SenderNow,
    now: &Progress,
    sender: Option<&SenderNow>,
) -> BTreeMap<&'static str, u64> {
    let sent =
        sender.map_or(0, |now| now.dropped_data.snd_txloss.saturating_sub(sender_before.dropped_data.snd_txloss));
    let (was, is) = (&before.dropped_data, &now.dropped_data);
    let all = [
        ("snd_txloss", sent),
        ("rcv_rxloss", is.rcv_rxloss.saturating_sub(was.rcv_rxloss)),
        ("tcp_pruning", is.tcp_pruning.saturating_sub(was.tcp_pruning)),
    ];
    all.into_iter().filter(|(_, packets)| *packets > 0).collect()
}

/// The columns of [`Interval::line`].
/// Those that this end knows if the other one sends.
const HEADER_OF_RECEIVER: &str = "              end        goodput  dropped where";
const HEADER: &str = "              end        goodput retransmits       cwnd      rtt  dropped where";

/// Reports what arrives in each interval.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The last progress of the server, which receives forward, and of this end.
    before: [Progress; 2],
    sender: SenderNow,
    sends: bool,
    /// What both hosts dropped, forward and backward.
    pub(super) dropped: [DroppedOverTime; 2],
}

impl Live {
    /// Of a test in which this end `sends`, or does not.
    pub(crate) fn new(sends: bool) -> Self {
        Self { sends, ..Self::default() }
    }

    pub(crate) fn take(&mut self, live: &Progressed, lines: &mut Lines) {
        let direction = usize::from(live.own);
        let (of_receiver, of_sender) = (&live.progress.dropped_data, live.sender.map(|now| now.dropped_data));
        let left = of_sender.map_or(0, |dropped| dropped.snd_txloss);
        self.dropped[direction].push(live.progress.elapsed_ns, [left, of_receiver.rcv_rxloss, of_receiver.tcp_pruning]);
        let before = &mut self.before[direction];
        let interval = Interval::between(live, before, &self.sender);
        *before = live.progress;
        self.sender = live.sender.unwrap_or(self.sender);
        lines.head(if self.sends { HEADER } else { HEADER_OF_RECEIVER });
        lines.print(&interval.line(), &interval);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_session::PacketsByLocation;

    use super::*;

    #[test]
    fn a_line_has_what_changed() {
        let before = Progress { elapsed_ns: 1_000_000_000, payload_bytes: 1_000_000, ..Progress::default() };
        let progress = Progress { elapsed_ns: 2_000_000_000, payload_bytes: 3_000_000, ..Progress::default() };
        let sender = SenderNow { retransmits: 12, cwnd_bytes: 26 << 20, rtt_ns: 74_600_000, ..SenderNow::default() };
        let live =
            Progressed { own: false, progress, sender: Some(sender), dropped_of_sent: PacketsByLocation::default() };
        let interval = Interval::between(&live, &before, &SenderNow { retransmits: 5, ..sender });
        assert_eq!(
            (interval.start_ns, interval.payload_bytes, interval.goodput_bps),
            (1_000_000_000, 2_000_000, 16_000_000)
        );
        let line = interval.line();
        assert_eq!(line, "forward     2.0 s    16.0 Mbit/s           7    26.0MiB   74.6ms");
        for (column, value) in [("goodput", "/s"), ("retransmits", " 7"), ("cwnd", "MiB"), ("rtt", "ms")] {
            let ends = |text: &str, what: &str| text.find(what).map(|at| at + what.len());
            assert_eq!(ends(HEADER, column), ends(&line, value), "{column}");
        }
    }
}
