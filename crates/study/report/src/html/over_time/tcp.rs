//! A TCP test as a page: goodput, what limits, congestion window, round trips and retransmissions over time, from the sender's samples.

use std::fmt::Write;

use longhaul_tcp::{FlowSummary, LimitedBy, LimitedTimes, LossBytes, Sample, TcpResult, fields};
use longhaul_terms::Directions;
use longhaul_units::Bytes;

use crate::html::axis::{RATES, TIMES};
use crate::html::lines::{Line, Panel, Part, Stack};
use crate::html::over_time::tested::{BACKWARD, FORWARD, Tested, rate, short, tiles, window};
use crate::html::over_time::timeline;
use crate::html::page::escape;
use crate::html::table::Table;
use crate::parquet::{End, FlowSamples};

/// Flows that are drawn one by one.
const FLOWS: usize = 8;
/// ACKs come in trains, so over less time goodput is noise.
const SHORTEST_WINDOW_S: f64 = 0.1;
/// `TCP_CA_Recovery`: a loss was seen. Only `TCP_CA_Loss`, after a timeout, is greater.
const CA_RECOVERY: u64 = 3;

const SIZES: [(f64, &str); 4] = [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];
const SHARE: [(f64, &str); 1] = [(1.0, "%")];
const PACKETS: [(f64, &str); 1] = [(1.0, "packets")];
const COLOURS: [&str; FLOWS] = ["--blue", "--orange", "--green", "--purple", "--amber", "--pale", "--lost", "--quiet"];

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The test.
    pub tested: Tested<'a>,
    /// What came of it.
    pub results: &'a Directions<TcpResult>,
    /// Whether the client is the sender where there is one direction.
    pub client_sends: bool,
    /// The samples of both ends.
    pub ends: &'a [End<'a>],
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let found = match self.results {
            Directions::One(result) => vec![(None, sentences(result), self.direction(result, self.client_sends))],
            Directions::Both { forward, backward } => vec![
                (Some(FORWARD), sentences(forward), self.direction(forward, true)),
                (Some(BACKWARD), sentences(backward), self.direction(backward, false)),
            ],
        };
        self.tested.page(&found)
    }

    fn direction(&self, result: &TcpResult, forward: bool) -> String {
        let round_trip = |ns: Option<u64>| ns.map_or_else(|| "not known".into(), short);
        let mut body = tiles(&[
            ("Goodput", rate(result.goodput_bps)),
            ("Received", Bytes(result.bytes).rounded()),
            ("Time", short(result.duration_ns)),
            ("Retransmitted packets", result.retransmits.to_string()),
            ("Least round trip", round_trip(result.streams.iter().filter_map(|stream| stream.min_rtt_ns).min())),
            ("Greatest round trip", round_trip(result.streams.iter().filter_map(|stream| stream.max_rtt_ns).max())),
        ]);
        let direction = if forward { "forward" } else { "backward" };
        let flows = self.ends.iter().flat_map(|end| &end.flows);
        let mut flows: Vec<&FlowSamples<'_>> =
            flows.filter(|flow| flow.end == "sender" && flow.direction == direction).collect();
        flows.sort_by_key(|flow| flow.stream);
        match Sampled::of(&flows) {
            Some(sampled) => body += &sampled.figures(),
            None => body += "<p class=\"quiet\">The sender reported no samples: nothing to draw over time.</p>\n",
        }
        body += &flow_table(result);
        body += &losses(&result.loss_bytes_by_location);
        body
    }
}

/// What was found, in words.
fn sentences(result: &TcpResult) -> String {
    let flows = match result.streams.len() {
        1 => "one flow".to_owned(),
        many => format!("{many} flows"),
    };
    let rate = rate(result.goodput_bps);
    let mut sentences = vec![format!("{rate} of goodput over {flows}, for {}.", short(result.duration_ns))];
    sentences.extend(result.limited_by.foremost().map(|(name, share)| {
        let (what, share) = (name.replace('_', " "), share * 100.0);
        format!("For {share:.0} % of the time the {what} was the limit.")
    }));
    let mss = result.streams.iter().map(|stream| stream.mss_bytes).max().unwrap_or(0);
    let packets = result.bytes.checked_div(mss).unwrap_or(0);
    sentences.push(match result.retransmits {
        0 => "Nothing was retransmitted.".into(),
        packets_again if packets > 0 => format!(
            "{packets_again} packets were retransmitted, {:.3} % of those sent.",
            packets_again as f64 * 100.0 / packets as f64
        ),
        packets_again => format!("{packets_again} packets were retransmitted."),
    });
    let places = result.loss_bytes_by_location.places();
    // `snd_tcploss` is no place: it is what all of them come to.
    let most = places.iter().filter(|(name, _)| *name != "snd_tcploss").max_by_key(|(_, bytes)| *bytes);
    sentences.extend(
        most.filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("Most was lost {}: {}.", meaning(name), Bytes(*bytes).rounded())),
    );
    sentences.join(" ")
}

/// Where a loss was.
fn meaning(place: &str) -> &'static str {
    match place {
        "snd_txloss" => "while leaving the sender",
        "network" => "between the hosts",
        "rcv_rxloss" => "while entering the receiver",
        "tcp_pruning" => "in the receiver's TCP for lack of memory",
        "rcv_txloss" => "of ACKs, while leaving the receiver",
        "snd_rxloss" => "of ACKs, while entering the sender",
        _ => "as the sender's TCP saw it, and retransmitted",
    }
}

/// Bytes at each place, as bars.
fn losses(losses: &LossBytes) -> String {
    let places = losses.places();
    let most = places.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut table = Table::new("Bytes lost, by place", "numbers", &["place", "bytes of IP packets", "where"]);
    for (place, bytes) in places.into_iter().filter(|(_, bytes)| *bytes > 0) {
        table.row(place, [bytes.to_string(), meaning(place).to_owned()]);
    }
    table.finish()
}

/// Each flow in numbers.
fn flow_table(result: &TcpResult) -> String {
    let columns =
        ["flow", "goodput, Mbit/s", "retransmitted", "timeouts", "mean RTT", "greatest cwnd", "control", "limited by"];
    let mut table = Table::new("Each flow", "numbers", &columns);
    for stream in &result.streams {
        let unknown = || "–".to_owned();
        table.row(
            &format!("flow {}", stream.stream),
            [
                format!("{:.3}", stream.goodput_bps as f64 / 1e6),
                stream.retransmits.to_string(),
                stream.timeouts.map_or_else(unknown, |timeouts| timeouts.to_string()),
                stream.mean_rtt_ns.map_or_else(unknown, short),
                stream.max_cwnd_bytes.map_or_else(unknown, |bytes| Bytes(bytes).rounded()),
                stream.congestion_control.clone(),
                stream
                    .limited_by
                    .foremost()
                    .map_or_else(unknown, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0)),
            ],
        );
    }
    table.finish()
}

/// The flows of a direction, on one axis of time.
struct Sampled<'a> {
    flows: &'a [&'a FlowSamples<'a>],
    /// When the first sample was taken.
    start_ns: u64,
    end_s: f64,
    window_s: f64,
    /// Of each that is drawn.
    names: Vec<String>,
}

impl<'a> Sampled<'a> {
    /// `None` without two samples of a flow.
    fn of(flows: &'a [&'a FlowSamples<'a>]) -> Option<Self> {
        let all = || flows.iter().flat_map(|flow| flow.series.samples());
        if flows.iter().all(|flow| flow.series.samples().len() < 2) {
            return None;
        }
        let (start_ns, end_ns) = (all().map(|sample| sample.at_ns).min()?, all().map(|sample| sample.at_ns).max()?);
        let end_s = end_ns.saturating_sub(start_ns) as f64 / 1e9;
        let names = flows.iter().take(FLOWS).map(|flow| format!("flow {}", flow.stream)).collect();
        Some(Self { flows, start_ns, end_s, window_s: window(end_s, SHORTEST_WINDOW_S), names })
    }

    fn at(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// The windows that have a whole or the last part of the time.
    fn windows(&self) -> usize {
        ((self.end_s / self.window_s - 1e-6).ceil() as usize).max(1)
    }

    fn window_of(&self, ns: u64) -> usize {
        ((self.at(ns) / self.window_s) as usize).min(self.windows() - 1)
    }

    /// How long a window is: the last one ends with the test.
    fn length(&self, window: usize) -> f64 {
        (self.end_s - window as f64 * self.window_s).clamp(1e-3, self.window_s)
    }

    /// The figures, and what they are.
    fn figures(&self) -> String {
        let since = "the first sample";
        let panel = |title, what, units| Panel { title, what, units, end_s: self.end_s, since, ..Panel::default() };
        let goodput =
            Panel { steps: true, lines: self.goodput(), events: self.switches(), ..panel("Goodput", "", &RATES[..]) };
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
        let every = short((self.window_s * 1e9) as u64);
        let mut html = timeline([
            (goodput, "What the receiver acknowledged, by the sender's samples."),
            (limits, "By the kernel's clocks. The command longhaul docs tcp-results explains each."),
            (
                cwnd,
                "Marks show where TCP went into recovery or had a timeout. The receive window is drawn if it came near.",
            ),
            (round_trips, "As TCP smooths it (RFC 6298)."),
            (again, "Packets sent once more. Spurious: the receiver had them already (RFC 2883)."),
        ]);
        let more = if self.flows.len() > FLOWS {
            format!(" The first {FLOWS} of {} flows are drawn one by one.", self.flows.len())
        } else {
            String::new()
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<p class=\"quiet\">Time counts from {since}. Rates, limits and retransmissions are sums over {}; lines of samples keep each \
             lowest and highest value.{}</p>",
            escape(&every),
            escape(&more)
        );
        html
    }

    /// How much `value`, a counter, rose in each window. `None` where the kernel does not count it.
    fn rises(&self, flow: &FlowSamples<'_>, value: impl Fn(&Sample) -> Option<u64>) -> Option<Vec<f64>> {
        let mut rises = vec![0.0; self.windows()];
        for pair in flow.series.samples().windows(2) {
            let rise = value(&pair[1])?.saturating_sub(value(&pair[0])?);
            rises[self.window_of(pair[0].at_ns)] += rise as f64;
        }
        Some(rises)
    }

    fn goodput(&self) -> Vec<Line<'_>> {
        let acked = |sample: &Sample| sample.info.get(fields::BYTES_ACKED);
        let line = |name, colour, bytes: &[f64]| Line {
            name,
            colour,
            points: (bytes.iter().enumerate())
                .map(|(window, bytes)| Some((window as f64 * self.window_s, bytes * 8.0 / self.length(window))))
                .chain([Some((self.end_s, bytes.last().unwrap_or(&0.0) * 8.0 / self.length(self.windows() - 1)))])
                .collect(),
        };
        let each: Vec<Vec<f64>> = self.flows.iter().filter_map(|flow| self.rises(flow, acked)).collect();
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

    /// The share of each limit in each window, over all flows.
    fn limits(&self) -> Stack<'static> {
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
    fn line<'n>(
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
        let bytes = |sample: &Sample, packets: u64| packets.saturating_mul(sample.info.value(fields::SND_MSS));
        let cwnd = |sample: &Sample| bytes(sample, sample.info.value(fields::SND_CWND));
        let window = |sample: &Sample| sample.info.value(fields::SND_WND);
        // A window that is far away would leave no room for the other.
        let near =
            self.flows.iter().flat_map(|flow| flow.series.samples()).any(|sample| window(sample) < 2 * cwnd(sample));
        match self.flows {
            [flow] => vec![
                self.line(flow, "in flight", "--pale", |sample| bytes(sample, sample.info.value(fields::UNACKED))),
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
        let rtt = |sample: &Sample| sample.info.value(fields::RTT) * 1_000;
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

    /// Packets that were sent once more, those apart that were not needed.
    fn retransmissions(&self) -> Stack<'static> {
        let sum = |value: fn(&Sample) -> u64| {
            let mut sum = vec![0.0; self.windows()];
            for flow in self.flows {
                let rises = self.rises(flow, |sample| Some(value(sample))).unwrap_or_default();
                sum.iter_mut().zip(rises).for_each(|(sum, rise)| *sum += rise);
            }
            sum
        };
        let all = sum(|sample| sample.info.value(fields::TOTAL_RETRANS));
        // A duplicate may be told of later than it was sent.
        let spurious = sum(|sample| sample.info.value(fields::DSACK_DUPS));
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
    fn switches(&self) -> Vec<(f64, String)> {
        let first = self.flows.first().map_or(&[][..], |flow| flow.congestion);
        first.iter().skip(1).map(|since| (self.at(since.at_ns), since.name.clone())).collect()
    }
}
