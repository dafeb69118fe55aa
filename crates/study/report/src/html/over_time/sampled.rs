//! What samples of `TCP_INFO` show over time: goodput, what limits, windows, round trips, retransmissions.

use longhaul_tcp::{FlowSummary, LimitedBy, LimitedTimes, Sample, fields};

use crate::html::axis::{RATES, TIMES};
use crate::html::lines::{Line, Panel, Part, Stack};
use crate::html::over_time::tested::{rate, short, window};
use crate::html::over_time::timeline;
use crate::html::page::escape;
use crate::parquet::FlowSamples;

/// Flows that are drawn one by one.
pub(super) const FLOWS: usize = 8;
/// ACKs come in trains, so over less time goodput is noise.
const SHORTEST_WINDOW_S: f64 = 0.1;
/// `TCP_CA_Recovery`: a loss was seen. Only `TCP_CA_Loss`, after a timeout, is greater.
const CA_RECOVERY: u64 = 3;
pub(super) const SIZES: [(f64, &str); 4] =
    [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];
/// From when on time counts.
pub(super) const SINCE: &str = "the first sample";
pub(super) const SHARE: [(f64, &str); 1] = [(1.0, "%")];
pub(super) const PACKETS: [(f64, &str); 1] = [(1.0, "packets")];
pub(super) const COLOURS: [&str; FLOWS] =
    ["--blue", "--orange", "--green", "--purple", "--amber", "--pale", "--lost", "--quiet"];

/// What is said of drops.
const DROPPED: &str = "Packets with data that drop events reported by the end of each interval (-i), from the first byte's arrival on. The table \
                       below has all losses by location.";

/// `packets` of a flow in bytes.
fn in_bytes(sample: &Sample, packets: u64) -> u64 {
    packets.saturating_mul(sample.info.value(fields::SND_MSS))
}

pub(super) fn cwnd(sample: &Sample) -> u64 {
    in_bytes(sample, sample.info.value(fields::SND_CWND))
}

/// Nanoseconds.
pub(super) fn rtt(sample: &Sample) -> u64 {
    sample.info.value(fields::RTT) * 1_000
}

/// Payload bytes that the receiver acknowledged; `None` before Linux 4.1.
fn acked(sample: &Sample) -> Option<u64> {
    sample.info.get(fields::BYTES_ACKED)
}

/// When the first and the last sample of `flows` were taken, nanoseconds; `None` without any.
pub(super) fn span(flows: &[&FlowSamples<'_>]) -> Option<(u64, u64)> {
    let all = || flows.iter().flat_map(|flow| flow.series.samples()).map(|sample| sample.at_ns);
    Some((all().min()?, all().max()?))
}

/// Some flows on one axis of time.
pub(super) struct Sampled<'a> {
    flows: &'a [&'a FlowSamples<'a>],
    /// When the first sample was taken.
    start_ns: u64,
    pub(super) end_s: f64,
    pub(super) window_s: f64,
    /// Of each that is drawn.
    names: Vec<String>,
}

impl<'a> Sampled<'a> {
    /// `names` are those of the flows. `None` without two samples of a flow.
    pub(super) fn of(flows: &'a [&'a FlowSamples<'a>], names: Vec<String>) -> Option<Self> {
        Self::within(flows, names, span(flows)?)
    }

    /// The same where time counts from the first to the second of `span`, which others share.
    pub(super) fn within(
        flows: &'a [&'a FlowSamples<'a>],
        mut names: Vec<String>,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<Self> {
        if flows.iter().all(|flow| flow.series.samples().len() < 2) {
            return None;
        }
        let end_s = end_ns.saturating_sub(start_ns) as f64 / 1e9;
        names.truncate(FLOWS);
        Some(Self { flows, start_ns, end_s, window_s: window(end_s, SHORTEST_WINDOW_S), names })
    }

    fn at(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// The windows that have a whole or the last part of the time.
    pub(super) fn windows(&self) -> usize {
        ((self.end_s / self.window_s - 1e-6).ceil() as usize).max(1)
    }

    fn window_of(&self, ns: u64) -> usize {
        ((self.at(ns) / self.window_s) as usize).min(self.windows() - 1)
    }

    /// How long a window is: the last one ends with the test.
    fn length(&self, window: usize) -> f64 {
        (self.end_s - window as f64 * self.window_s).clamp(1e-3, self.window_s)
    }

    /// The figures of flows that send, that of what both hosts `dropped` of their data, and what the figures are.
    pub(super) fn figures(&self, dropped: Option<Panel<'static>>) -> String {
        let dropped = dropped.map(|panel| (panel, DROPPED));
        timeline(self.sending().into_iter().chain(dropped)) + &self.note("Rates, limits and retransmissions")
    }

    /// What flows that send did, each figure with what is to be said of it.
    pub(super) fn sending(&self) -> Vec<(Panel<'_>, &'static str)> {
        let panel = |title, what, units| self.panel(title, what, units);
        let goodput = Panel {
            steps: true,
            lines: self.rates(acked),
            events: self.switches(),
            ..panel("Goodput", "", &RATES[..])
        };
        let limits = Panel { stack: Some(self.limits()), ..panel("What limits the sender", "time, ", &SHARE) };
        let cwnd = Panel {
            lines: self.windows_in_bytes(),
            marks: ("loss seen", self.loss_events()),
            events: self.switches(),
            ..panel(
                if self.flows.len() == 1 { "Congestion window and data in flight" } else { "Congestion window" },
                "",
                &SIZES,
            )
        };
        let round_trips = Panel { lines: self.round_trips(), ..panel("Round trip", "smoothed, ", &TIMES) };
        let again = Panel {
            stack: Some(self.retransmissions()),
            marks: ("timeout", self.timeouts()),
            ..panel("Retransmissions", "", &PACKETS)
        };
        vec![
            (goodput, "What the receiver acknowledged, by the sender's samples."),
            (limits, "By the kernel's clocks. The command longhaul docs tcp-results explains each."),
            (
                cwnd,
                "Marks show where TCP went into recovery or had a timeout. The receive window is drawn if it came near.",
            ),
            (round_trips, "As TCP smooths it (RFC 6298)."),
            (again, "Retransmitted packets. Spurious: the receiver had them already (RFC 2883)."),
        ]
    }

    /// The same of flows that receive.
    pub(super) fn receiving(&self) -> Vec<(Panel<'_>, &'static str)> {
        let received = |sample: &Sample| sample.info.get(fields::BYTES_RECEIVED);
        let lines = |of: fn(&Sample) -> u64| -> Vec<Line<'_>> {
            (self.flows.iter().zip(&self.names).zip(COLOURS))
                .map(|((flow, name), colour)| self.line(flow, name, colour, of))
                .collect()
        };
        let rate = Panel { steps: true, lines: self.rates(received), ..self.panel("Received", "", &RATES) };
        let window = Panel {
            lines: lines(|sample| sample.info.value(fields::RCV_WND)),
            ..self.panel("Window that this host offers", "", &SIZES)
        };
        let round_trips = Panel {
            lines: lines(|sample| sample.info.value(fields::RCV_RTT) * 1_000),
            ..self.panel("Round trip as the receiver sees it", "", &TIMES)
        };
        let out_of_order = Panel {
            stack: Some(Stack {
                step_s: self.window_s,
                parts: vec![Part {
                    name: "out of order",
                    colour: "--amber".into(),
                    values: self.sum(|sample| sample.info.value(fields::RCV_OOOPACK)),
                    ..Part::default()
                }],
            }),
            ..self.panel("Packets out of order", "", &PACKETS)
        };
        vec![
            (rate, "Bytes that arrived in order."),
            (window, "Kernels before Linux 6.2 do not report it."),
            (round_trips, "From window to window, or by time stamps."),
            (out_of_order, "Reordered, or behind one that was lost."),
        ]
    }

    /// The same in at most `most` windows.
    pub(super) fn in_windows(self, most: usize) -> Self {
        Self { window_s: window(self.end_s, (self.end_s / most as f64).max(SHORTEST_WINDOW_S)), ..self }
    }

    fn panel(&self, title: &'static str, what: &'static str, units: &'static [(f64, &'static str)]) -> Panel<'a> {
        Panel { title, what, units, end_s: self.end_s, since: SINCE, ..Panel::default() }
    }

    /// What the figures are of; `sums` are sums over a window of time.
    pub(super) fn note(&self, sums: &str) -> String {
        let every = short((self.window_s * 1e9) as u64);
        let more = if self.flows.len() > FLOWS {
            format!(" The first {FLOWS} of {} flows are drawn one by one.", self.flows.len())
        } else {
            String::new()
        };
        format!(
            "<p class=\"quiet\">Time counts from {SINCE}. {sums} are sums over {}; lines of samples keep each lowest and highest \
             value.{}</p>\n",
            escape(&every),
            escape(&more)
        )
    }

    /// How much `value`, a counter, rose in each window. `None` where the kernel does not count it.
    pub(super) fn rises(&self, flow: &FlowSamples<'_>, value: impl Fn(&Sample) -> Option<u64>) -> Option<Vec<f64>> {
        let mut rises = vec![0.0; self.windows()];
        for pair in flow.series.samples().windows(2) {
            let rise = value(&pair[1])?.saturating_sub(value(&pair[0])?);
            rises[self.window_of(pair[0].at_ns)] += rise as f64;
        }
        Some(rises)
    }

    /// The rate at which `counter` of bytes rises, of all flows and of each.
    fn rates(&self, counter: impl Fn(&Sample) -> Option<u64> + Copy) -> Vec<Line<'_>> {
        let line = |name, colour, bytes: &[f64]| Line {
            name,
            colour,
            points: (bytes.iter().enumerate())
                .map(|(window, bytes)| Some((window as f64 * self.window_s, bytes * 8.0 / self.length(window))))
                .chain([Some((self.end_s, bytes.last().unwrap_or(&0.0) * 8.0 / self.length(self.windows() - 1)))])
                .collect(),
        };
        let each: Vec<Vec<f64>> = self.flows.iter().filter_map(|flow| self.rises(flow, counter)).collect();
        let mut lines = Vec::new();
        if each.len() > 1 {
            let mut all = vec![0.0; self.windows()];
            each.iter().for_each(|flow| all.iter_mut().zip(flow).for_each(|(sum, bytes)| *sum += bytes));
            lines.push(line("all flows", "--text", &all));
        }
        if each.len() == self.flows.len() {
            let drawn = self.names.iter().zip(COLOURS).zip(&each);
            lines.extend(drawn.map(|((name, colour), bytes)| line(name, colour, bytes)));
        }
        lines
    }

    /// How much the goodput of all flows varied, in a sentence: over the windows that are whole. `None` of fewer than three, or where it is not
    /// known. Neighbours depend on each other, so this is no interval of the mean.
    pub(super) fn steadiness(&self) -> Option<String> {
        let each: Vec<Vec<f64>> = self.flows.iter().map(|flow| self.rises(flow, acked)).collect::<Option<_>>()?;
        let whole = ((self.end_s / self.window_s + 1e-6) as usize).min(self.windows());
        let rates: Vec<f64> = (0..whole)
            .map(|window| each.iter().map(|bytes| bytes[window]).sum::<f64>() * 8.0 / self.window_s)
            .collect();
        let mean = rates.iter().sum::<f64>() / whole as f64;
        if whole < 3 || mean <= 0.0 {
            return None;
        }
        let deviation = (rates.iter().map(|bps| (bps - mean).powi(2)).sum::<f64>() / (whole - 1) as f64).sqrt();
        let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        Some(format!(
            "Over its {whole} intervals of {} goodput was from {} to {}, with a standard deviation of {:.0} % of the mean.",
            short((self.window_s * 1e9) as u64),
            rate(least as u64),
            rate(most as u64),
            deviation * 100.0 / mean
        ))
    }

    /// The share of each limit in each window, over all flows.
    pub(super) fn limits(&self) -> Stack<'static> {
        let mut times = vec![LimitedTimes::default(); self.windows()];
        for flow in self.flows {
            let mut summary = FlowSummary::default();
            for pair in flow.series.samples().windows(2) {
                if summary.samples == 0 {
                    summary.take(pair[0].at_ns, &pair[0].info);
                }
                let before = summary.limited;
                summary.take(pair[1].at_ns, &pair[1].info);
                times[self.window_of(pair[0].at_ns)].merge(&summary.limited.since(&before));
            }
        }
        let shares: Vec<_> = times.iter().map(LimitedTimes::shares).collect();
        let part = |name, colour: &'static str, of: fn(&LimitedBy) -> f64| Part {
            name,
            colour: colour.into(),
            values: shares.iter().map(|shares| of(shares) * 100.0).collect(),
            ..Part::default()
        };
        let parts = vec![
            part("congestion window", "--blue", |shares| shares.congestion_window),
            part("receive window", "--orange", |shares| shares.receive_window),
            part("send buffer", "--amber", |shares| shares.send_buffer),
            part("application", "--line", |shares| shares.application),
        ];
        Stack { step_s: self.window_s, parts }
    }

    /// A line of what each sample has.
    pub(super) fn line<'n>(
        &self,
        flow: &FlowSamples<'_>,
        name: &'n str,
        colour: &'static str,
        of: impl Fn(&Sample) -> u64,
    ) -> Line<'n> {
        let point = |sample: &Sample| Some((self.at(sample.at_ns), of(sample) as f64)).filter(|point| point.1 > 0.0);
        Line { name, colour, points: flow.series.samples().iter().filter_map(point).map(Some).collect() }
    }

    fn windows_in_bytes(&self) -> Vec<Line<'_>> {
        let window = |sample: &Sample| sample.info.value(fields::SND_WND);
        // A window that is far away would leave no room for the other.
        let is_near = |sample: &Sample| window(sample) < cwnd(sample).saturating_mul(2);
        let near = self.flows.iter().flat_map(|flow| flow.series.samples()).any(is_near);
        match self.flows {
            [flow] => vec![
                self.line(flow, "in flight", "--pale", |sample| in_bytes(sample, sample.info.value(fields::UNACKED))),
                self.line(flow, "congestion window", "--blue", cwnd),
            ]
            .into_iter()
            .chain(near.then(|| self.line(flow, "receive window", "--orange", window)))
            .collect(),
            flows => (flows.iter().zip(&self.names).zip(COLOURS))
                .map(|((flow, name), colour)| self.line(flow, name, colour, cwnd))
                .collect(),
        }
    }

    fn round_trips(&self) -> Vec<Line<'_>> {
        // The kernel reports ~0 until there is a value.
        let least = |sample: &Sample| {
            let us = sample.info.value(fields::MIN_RTT);
            if us < u64::from(u32::MAX) { us * 1_000 } else { 0 }
        };
        match self.flows {
            [flow] => {
                vec![self.line(flow, "least so far", "--green", least), self.line(flow, "round trip", "--purple", rtt)]
            }
            flows => (flows.iter().zip(&self.names).zip(COLOURS))
                .map(|((flow, name), colour)| self.line(flow, name, colour, rtt))
                .collect(),
        }
    }

    /// How much `value`, a counter, rose in each window in all flows.
    pub(super) fn sum(&self, value: impl Fn(&Sample) -> u64) -> Vec<f64> {
        let mut sum = vec![0.0; self.windows()];
        for flow in self.flows {
            let rises = self.rises(flow, |sample| Some(value(sample))).unwrap_or_default();
            sum.iter_mut().zip(rises).for_each(|(sum, rise)| *sum += rise);
        }
        sum
    }

    /// Retransmitted packets; those that were not needed apart.
    fn retransmissions(&self) -> Stack<'static> {
        let all = self.sum(|sample| sample.info.value(fields::TOTAL_RETRANS));
        // A duplicate may be told of later than it was sent.
        let spurious = self.sum(|sample| sample.info.value(fields::DSACK_DUPS));
        let needed = all.iter().zip(&spurious).map(|(all, spurious)| (all - spurious).max(0.0)).collect();
        let spurious = all.iter().zip(spurious).map(|(all, spurious)| spurious.min(*all)).collect();
        let part = |name, colour: &'static str, values| Part { name, colour: colour.into(), values, ..Part::default() };
        Stack {
            step_s: self.window_s,
            parts: vec![part("lost", "--lost", needed), part("spurious", "--amber", spurious)],
        }
    }

    /// Moments between two samples of which `told` says that something happened.
    fn moments(&self, told: impl Fn(&Sample, &Sample) -> bool) -> Vec<f64> {
        let pairs = self.flows.iter().flat_map(|flow| flow.series.samples().windows(2));
        let mut moments: Vec<f64> =
            pairs.filter(|pair| told(&pair[0], &pair[1])).map(|pair| self.at(pair[1].at_ns)).collect();
        moments.sort_by(f64::total_cmp);
        moments
    }

    fn loss_events(&self) -> Vec<f64> {
        let state = |sample: &Sample| sample.info.value(fields::CA_STATE);
        self.moments(|before, after| state(after) >= CA_RECOVERY && state(after) > state(before))
    }

    fn timeouts(&self) -> Vec<f64> {
        let timeouts = |sample: &Sample| sample.info.value(fields::TOTAL_RTO);
        self.moments(|before, after| timeouts(after) > timeouts(before))
    }

    /// When the first flow changed its congestion control.
    pub(super) fn switches(&self) -> Vec<(f64, String)> {
        let first = self.flows.first().map_or(&[][..], |flow| flow.congestion);
        first.iter().skip(1).map(|since| (self.at(since.at_ns), since.name.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_tcp::{Series, TcpInfo};

    use super::*;

    /// The other end of a test says what its samples are.
    #[test]
    fn windows_at_the_end_of_numbers_are_drawn() {
        let mut series = Series::new(2);
        for at_ns in [0, 1_000_000_000] {
            series.push(Sample { at_ns, congestion: 0, info: TcpInfo::parse(&[0xff; 512]) });
        }
        let flow = FlowSamples { end: "sender", direction: "forward", stream: 0, congestion: &[], series };
        let flows = [&flow];
        let sampled = Sampled::of(&flows, vec!["flow".into()]).unwrap();
        assert_eq!(sampled.windows_in_bytes().len(), 3);
        assert_eq!(sampled.steadiness(), None, "nothing was acknowledged between the samples");
    }

    /// Disorder (1) is no loss. A recovery (3) that lasts is one loss, and the timeout (4) that ends it another.
    #[test]
    fn losses_and_timeouts_are_marked_at_their_time() {
        let mut series = Series::new(10);
        for (number, (ca_state, timeouts)) in (0..).zip([(0, 0), (1, 0), (3, 0), (3, 0), (4, 1), (0, 1), (4, 2)]) {
            let mut info = [0; 512];
            info[1] = ca_state;
            info[240..242].copy_from_slice(&u16::to_ne_bytes(timeouts));
            let at_ns = 5_000_000_000 + number * 100_000_000_u64;
            series.push(Sample { at_ns, congestion: 0, info: TcpInfo::parse(&info) });
        }
        let flow = FlowSamples { end: "sender", direction: "forward", stream: 0, congestion: &[], series };
        let flows = [&flow];
        let sampled = Sampled::of(&flows, vec!["flow".into()]).unwrap();
        let marked: Vec<_> = sampled.sending().into_iter().map(|(panel, _)| (panel.title, panel.marks)).collect();
        let of = |title: &str| marked.iter().find(|(name, _)| *name == title).map(|(_, marks)| marks.clone());
        let [losses, timeouts] = ["Congestion window and data in flight", "Retransmissions"].map(of);
        assert_eq!(losses, Some(("loss seen", vec![0.2, 0.4, 0.6])));
        assert_eq!(timeouts, Some(("timeout", vec![0.4, 0.6])));
    }

    /// 100 kB and 300 kB in turn in 100 ms: 8 and 24 Mbit/s, so a mean of 16 and a standard deviation of 8 times the root of 10/9.
    #[test]
    fn how_goodput_varied_is_told() {
        let mut series = Series::new(20);
        for number in 0..=10_u64 {
            let mut info = [0; 512];
            let acked = number * 200_000 - number % 2 * 100_000;
            info[120..128].copy_from_slice(&acked.to_ne_bytes());
            // A little later than a window begins.
            let at_ns = number * 100_000_000 + number.min(1) * 1_000;
            series.push(Sample { at_ns, congestion: 0, info: TcpInfo::parse(&info) });
        }
        let flow = FlowSamples { end: "sender", direction: "forward", stream: 0, congestion: &[], series };
        let flows = [&flow];
        let said = Sampled::of(&flows, vec!["flow".into()]).unwrap().steadiness().unwrap();
        let expected = "Over its 10 intervals of 100ms goodput was from 8 Mbit/s to 24 Mbit/s, with a standard deviation of 53 % of the mean.";
        assert_eq!(said, expected);
    }
}
