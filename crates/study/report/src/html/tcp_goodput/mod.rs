//! TCP goodput by congestion control and number of flows, compared with a response function and with flows that share the path:
//! DataTAG's and the NLR Rings paper's figures, for any experiment.

mod drawn;
mod lost;
pub mod packets;
pub mod rates;

use std::collections::BTreeMap;

use longhaul_tcp::{TcpParameters, TcpResult, TcpStreamResult};
use longhaul_terms::Amount;
use longhaul_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::html::about::spaced;
use crate::html::capture::heat_script;
use crate::html::over_time::runs::Detail;
use crate::html::over_time::tcp_runs::{TcpOverTime, figures};
use crate::html::page::{charts, page_with};
use crate::html::points::{self, Mean, Point, Problems, Quantity};
use crate::html::series::{NOTHING_TRUSTED, Report, Series};
use crate::html::table::Table;
use crate::html::udp_loss::scaled;

use packets::Packets;
use rates::{RateFigure, RatesOverTime};

/// Blue and orange of Okabe and Ito (`colour.rs`).
const OWN: &str = "#0072b2";
const BESIDE: &str = "#e69f00";
/// Rows of controls in turn that a page shows of each point; a schedule that people write has some ten.
const STEPS_MOST: usize = 100;

/// One test, with the flows that shared its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The flows that are measured.
    pub flows: Flows,
    /// What another program did in place of them; `None` for longhaul's own test.
    #[serde(default)]
    pub program: Option<ProgramRun>,
    /// What captures at both ends say; `None` where there were none.
    #[serde(default)]
    pub packets: Option<Packets>,
    /// What the first flow got with each control of a schedule; empty where it had one.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What it did over time. Of each point two runs have it at most: the first that counted, and the first that was rejected if it came earlier;
    /// `None` for the others, and without samples.
    #[serde(default)]
    pub over_time: Option<TcpOverTime>,
    /// Those at the same time; `None` for none.
    pub beside: Option<Flows>,
    /// Goodput that the response function of the control says for the path's loss; `None` where it says nothing.
    pub expected_bps: Option<u64>,
    /// The round trip that the path's file asks for, without queues, nanoseconds.
    pub path_rtt_ns: u64,
    /// What went wrong.
    #[serde(flatten)]
    pub problems: Problems,
}

/// A congestion control of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Its name.
    pub control: String,
    /// Payload that was acknowledged while it was in use, bits a second.
    pub goodput_bps: u64,
    /// Mean congestion window.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub mean_cwnd_packets: f64,
}

/// What a program did, by its own account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramRun {
    /// What ran at the client.
    pub command: String,
    /// Whose output it was read as.
    pub parser: String,
    /// Payload bytes.
    pub bytes: u64,
    /// How long they took.
    pub duration_ns: u64,
    /// Payload bits a second.
    pub goodput_bps: u64,
    /// Retransmitted packets; `None`: it does not say.
    pub retransmits: Option<u64>,
}

/// Flows of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flows {
    /// The host that sends.
    pub host: String,
    /// The command that makes the same test.
    pub command: String,
    /// How they were tested, as it was granted.
    pub parameters: TcpParameters,
    /// Its result; `None` if there is none.
    pub result: Option<TcpResult>,
}

/// Names of means.
pub(crate) const GOODPUT: &str = "goodput_bps";
pub(crate) const EXPECTED: &str = "expected_bps";
const OF_EXPECTED: &str = "share_of_expected";
pub(crate) const BESIDE_GOODPUT: &str = "beside_goodput_bps";
pub(crate) const RETRANSMITS: &str = "retransmits";
pub(crate) const WINDOW: &str = "mean_cwnd_packets";
pub(crate) const PATH_RTT: &str = "path_rtt_ns";
const LEAST_RTT: &str = "min_rtt_ns";
pub(crate) const RTT: &str = "mean_rtt_ns";
/// How long a transfer of a number of bytes took.
pub(crate) const TIME: &str = "duration_ns";
/// Goodput in parts of that of the flows beside it.
const OF_BESIDE: &str = "times_beside";
/// The same of the goodput of one of them.
const OF_ONE_BESIDE: &str = "times_one_beside";
const ACKS_LOST: &str = "ack_bytes_lost_at_sender";
const DATA_LOST: &str = "data_bytes_lost_at_receiver";
/// Of captures at both ends (`packets.rs`).
const PEAK: &str = "peak_1ms_bps";
const VARIATION: &str = "variation_1ms";
const VARIATION_10MS: &str = "variation_10ms";
const SILENT: &str = "silent_1ms_percent";
const ACKS_LEFT: &str = "acks_at_receiver_p50_ns";
const ACKS_CAME: &str = "acks_at_sender_p50_ns";
const BUNCHED_LEFT: &str = "acks_bunched_at_receiver_percent";
const BUNCHED_CAME: &str = "acks_bunched_at_sender_percent";
/// Packets that the captures lost themselves.
const NOT_CAPTURED: &str = "not_captured_packets";
/// Of the steps of a schedule: the later by the one before.
const SECOND_STEP: &str = "second_step_times_first";
const THIRD_STEP: &str = "third_step_times_first";

/// Each mean that a point can have.
pub const QUANTITIES: &[&str] = &[
    GOODPUT,
    EXPECTED,
    OF_EXPECTED,
    BESIDE_GOODPUT,
    OF_BESIDE,
    OF_ONE_BESIDE,
    RETRANSMITS,
    WINDOW,
    PATH_RTT,
    LEAST_RTT,
    RTT,
    TIME,
    ACKS_LOST,
    DATA_LOST,
    PEAK,
    VARIATION,
    VARIATION_10MS,
    SILENT,
    ACKS_LEFT,
    ACKS_CAME,
    BUNCHED_LEFT,
    BUNCHED_CAME,
    NOT_CAPTURED,
    SECOND_STEP,
    THIRD_STEP,
    lost::QUANTITIES[0],
    lost::QUANTITIES[1],
    lost::QUANTITIES[2],
    lost::QUANTITIES[3],
    lost::QUANTITIES[4],
];

impl points::Run for Run {
    const MAIN: Quantity = Quantity { name: GOODPUT, title: "goodput, Mb/s", unit: 1e6, decimals: 1 };

    fn has_result(&self) -> bool {
        self.flows.result.is_some() || self.program.is_some()
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }

    fn problems_mut(&mut self) -> &mut Problems {
        &mut self.problems
    }

    fn quantities(&self) -> Vec<(&'static str, f64)> {
        if let Some(program) = &self.program {
            let mut all = vec![
                (GOODPUT, program.goodput_bps as f64),
                (TIME, program.duration_ns as f64),
                (PATH_RTT, self.path_rtt_ns as f64),
            ];
            all.extend(program.retransmits.map(|packets| (RETRANSMITS, packets as f64)));
            return all;
        }
        let Some(result) = &self.flows.result else { return Vec::new() };
        let mean = |of: &dyn Fn(&TcpStreamResult) -> Option<f64>| {
            let values: Vec<f64> = result.streams.iter().filter_map(of).collect();
            Some(Mean::of(&values)?.mean)
        };
        let goodput = result.goodput_bps as f64;
        let expected = self.expected_bps.filter(|bps| *bps > 0).map(|bps| bps as f64);
        let beside = self.beside.as_ref().and_then(|beside| beside.result.as_ref());
        let beside_bps = beside.map(|result| result.goodput_bps as f64);
        let times_beside = beside_bps.filter(|bps| *bps > 0.0).map(|bps| goodput / bps);
        let others = beside.map_or(1, |result| result.streams.len().max(1)) as f64;
        let is_transfer = matches!(self.flows.parameters.amount, Amount::Bytes(_));
        let lost = &result.loss_bytes_by_location;
        let all = [
            (GOODPUT, Some(goodput)),
            (EXPECTED, expected),
            (OF_EXPECTED, expected.map(|expected| goodput / expected)),
            (BESIDE_GOODPUT, beside_bps),
            (OF_BESIDE, times_beside),
            (OF_ONE_BESIDE, times_beside.map(|times| times * others)),
            (TIME, is_transfer.then_some(result.duration_ns as f64)),
            (ACKS_LOST, Some(lost.snd_rxloss as f64)),
            (DATA_LOST, Some(lost.rcv_rxloss as f64)),
            (RETRANSMITS, Some(result.retransmits as f64)),
            (WINDOW, mean(&|stream| Some(stream.mean_cwnd_bytes? as f64 / stream.mss_bytes.max(1) as f64))),
            (PATH_RTT, Some(self.path_rtt_ns as f64)),
            (LEAST_RTT, mean(&|stream| Some(stream.min_rtt_ns? as f64))),
            (RTT, mean(&|stream| Some(stream.mean_rtt_ns? as f64))),
        ];
        let mut all: Vec<(&str, f64)> = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        all.extend(lost::quantities(result));
        let times_first = |number: usize| {
            let (first, step) = (self.steps.first()?, self.steps.get(number)?);
            (first.goodput_bps > 0).then(|| step.goodput_bps as f64 / first.goodput_bps as f64)
        };
        all.extend(times_first(1).map(|times| (SECOND_STEP, times)));
        all.extend(times_first(2).map(|times| (THIRD_STEP, times)));
        if let Some(Packets { sent, sent_10ms, acks_at_receiver, acks_at_sender, not_captured, .. }) = &self.packets {
            all.extend([
                (PEAK, sent.peak_bps),
                (VARIATION, sent.variation),
                (VARIATION_10MS, sent_10ms.variation),
                (SILENT, sent.silent_percent),
                (ACKS_LEFT, acks_at_receiver.p50_ns as f64),
                (ACKS_CAME, acks_at_sender.p50_ns as f64),
                (BUNCHED_LEFT, acks_at_receiver.bunched_percent),
                (BUNCHED_CAME, acks_at_sender.bunched_percent),
                (NOT_CAPTURED, *not_captured as f64),
            ]);
        }
        all
    }

    fn setting(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let parameters = &self.flows.parameters;
        if let Some(program) = &self.program {
            return vec![format!("by {}", program.parser)];
        }
        match parameters.amount {
            Amount::DurationNs(ns) => parts.push(format!("{} per test", spaced(Nanos(ns)))),
            Amount::Bytes(bytes) => parts.push(format!("{} in all per test", spaced(Bytes(bytes)))),
            Amount::Packets(_) => {}
        }
        if parameters.omit_ns > 0 {
            parts.push(format!("the first {} omitted", spaced(Nanos(parameters.omit_ns))));
        }
        parts.extend(parameters.window_bytes.map(|bytes| format!("socket buffers of {}", spaced(Bytes(bytes)))));
        parts.extend(parameters.mss_bytes.map(|bytes| format!("segments of {bytes} bytes")));
        if let Some(beside) = &self.beside {
            let mss = beside.parameters.mss_bytes;
            let mss = mss.map_or(String::new(), |bytes| format!(" in segments of {bytes} bytes"));
            let control: Vec<&str> = beside.parameters.congestion.iter().map(|step| step.name.as_str()).collect();
            let flows = match beside.parameters.streams {
                1 => format!("a flow of {}", control.join(",")),
                several => format!("{several} flows of {}", control.join(",")),
            };
            parts.push(format!("{} sends; {} sends {flows}{mss} at the same time", self.flows.host, beside.host));
        }
        parts
    }

    fn commands(&self) -> Vec<String> {
        if let Some(program) = &self.program {
            return vec![format!("{}: {}", self.flows.host, program.command)];
        }
        let flows = [Some(&self.flows), self.beside.as_ref()].into_iter().flatten();
        flows.map(|flows| format!("{}: {}", flows.host, flows.command)).collect()
    }

    fn has_over_time(&self) -> bool {
        self.over_time.is_some() || self.packets.as_ref().is_some_and(|packets| !packets.rates.is_empty())
    }

    fn forget_over_time(&mut self) {
        self.over_time = None;
        if let Some(packets) = &mut self.packets {
            packets.rates = RatesOverTime::default();
        }
    }

    fn over_time(runs: &[(&str, &Self)], detail: Detail) -> String {
        let sampled: Vec<(&str, &TcpOverTime)> =
            runs.iter().filter_map(|(label, run)| Some((*label, run.over_time.as_ref()?))).collect();
        let captured = runs.iter().filter(|_| detail.has_own).filter_map(|(label, run)| {
            let rates = &run.packets.as_ref()?.rates;
            let omit = Nanos(run.flows.parameters.omit_ns);
            (!rates.is_empty()).then(|| RateFigure::of(label, rates, omit, detail))
        });
        let captured: Vec<RateFigure> = captured.collect();
        figures(&sampled, captured.iter().map(RateFigure::panel).collect(), detail)
    }

    fn circumstances(point: &Point<Self>) -> String {
        let limit = limit(point);
        if limit.is_empty() { limit } else { format!("limited by {limit}") }
    }
}

const COLUMNS: [&str; 12] = [
    "test",
    "goodput, Mb/s",
    "time taken, s",
    "expected, Mb/s",
    "other flows, Mb/s",
    "packets retransmitted",
    "mean window, packets",
    "RTT of the path, ms",
    "least RTT, ms",
    "mean RTT, ms",
    "limited by",
    "lost, bytes",
];

impl Report<Run> {
    /// The page.
    pub fn to_html(&self) -> String {
        let mut body = String::new();
        self.head(&mut body, &self.found());
        let drawn = self.drawn(&mut body);
        drawn.legend(&mut body);
        let highest = drawn.points().map(|(_, point)| highest(point)).fold(0.0, f64::max);
        drawn.panels(&mut body, |series| drawn::panel(series, highest));
        let is_over_time = self.over_time(&mut body);
        self.about.note(&mut body);
        drawn.table(&mut body, &COLUMNS, |_, point| cells(point));
        drawn.lost(&mut body);
        drawn.steps(&mut body);
        drawn.packets(&mut body);
        let has_surfaces = drawn.surfaces(&mut body);
        body += "<h2>How this was measured</h2>\n\
                 <p>Goodput is the payload that the receivers read, over the time from the first counted byte to the last. The sending kernel's \
                 clocks (busy, receive window, send buffer) say what limited a flow. The expected goodput is the mean window that the response \
                 function of the congestion control gives at the path's loss rate (<code>longhaul cc table</code>), sent once per round trip.</p>\n\
                 <p>The hosts are network namespaces on one machine, and longhaul emulates the path between them, so hosts and path share \
                 its CPUs. Each run has its own path and hosts.</p>\n";
        self.about.hosts(&mut body);
        drawn.commands(&mut body, "longhaul serve --sessions 2");
        let heat = has_surfaces.then(heat_script);
        page_with(&self.about.title, &body, heat.as_ref().into_iter().chain(charts().filter(|_| is_over_time)))
    }

    /// What each control of a schedule got, where there was one.
    fn steps(&self, body: &mut String) {
        if self.runs().all(|run| run.steps.is_empty()) {
            return;
        }
        let columns = ["step", "goodput, Mb/s", "mean window, packets"].map(str::to_owned);
        let mut table = Table::new("Congestion controls in turn", "numbers", &columns);
        for (series, point) in self.points().filter(|(_, point)| point.shown().any(|run| !run.steps.is_empty())) {
            table.group(&format!("{}, {}", series.name, point.label));
            let most = point.shown().map(|run| run.steps.len()).max().unwrap_or_default();
            for number in 0..most.min(STEPS_MOST) {
                let steps: Vec<&Step> = point.shown().filter_map(|run| run.steps.get(number)).collect();
                let of = |of: &dyn Fn(&Step) -> f64, decimals| {
                    let values: Vec<f64> = steps.iter().map(|step| of(step)).collect();
                    Mean::of(&values).map_or_else(String::new, |mean| mean.text(decimals))
                };
                let control = steps.first().map_or("", |step| step.control.as_str());
                let cells = [of(&|step| step.goodput_bps as f64 / 1e6, 1), of(&|step| step.mean_cwnd_packets, 0)];
                table.row(&format!("{}: {control}", number + 1), cells);
            }
            if most > STEPS_MOST {
                table.row(&format!("and {} more", most - STEPS_MOST), [String::new(), String::new()]);
            }
        }
        *body += &table.finish();
    }

    /// What captures at both ends say, where there were any.
    fn packets(&self, body: &mut String) {
        const OF_PACKETS: [(&str, &str, f64, usize); 9] = [
            (PEAK, "highest rate in 1 ms, Mb/s", 1e-6, 1),
            (VARIATION, "deviation of rates in 1 ms by their mean", 1.0, 3),
            (VARIATION_10MS, "of rates in 10 ms", 1.0, 3),
            (SILENT, "milliseconds without data, %", 1.0, 1),
            (ACKS_LEFT, "ACKs leave the receiver every, us (median)", 1e-3, 2),
            (ACKS_CAME, "ACKs reach the sender every, us (median)", 1e-3, 2),
            (BUNCHED_LEFT, "bunched where they leave, %", 1.0, 1),
            (BUNCHED_CAME, "bunched where they arrive, %", 1.0, 1),
            (NOT_CAPTURED, "packets that the captures missed", 1.0, 0),
        ];
        if !self.runs().any(|run| run.packets.is_some()) {
            return;
        }
        let columns: Vec<String> =
            std::iter::once("test").chain(OF_PACKETS.iter().map(|(_, title, ..)| *title)).map(str::to_owned).collect();
        let mut table = Table::new("Single packets, by captures at both ends", "numbers", &columns);
        for series in self.series.iter().filter(|series| series.points.iter().any(|point| point.mean(PEAK).is_some())) {
            table.group(&series.name);
            for point in &series.points {
                let cell = |(name, _, factor, decimals): &(&str, &str, f64, usize)| {
                    point.mean(name).map_or_else(|| "–".to_owned(), |_| scaled(point, name, *factor).text(*decimals))
                };
                table.row(&point.label, OF_PACKETS.iter().map(cell));
            }
        }
        *body += &table.finish();
        *body += "<p class=\"quiet\">An interval is bunched if it is shorter than a quarter of their mean. Stamps are the kernel's.</p>\n";
    }

    /// What was found, in words: the ends of the goodputs, and how near the response functions are.
    fn found(&self) -> Vec<String> {
        let goodput = |point: &Point<Run>| point.mean(GOODPUT).map_or(0.0, |mean| mean.mean);
        let measured = || self.points().filter(|(_, point)| !point.doubtful && point.mean(GOODPUT).is_some());
        let by_goodput = |(_, a): &(&Series<Run>, &Point<Run>), (_, b): &(&Series<Run>, &Point<Run>)| {
            goodput(a).total_cmp(&goodput(b))
        };
        let Some((most, least)) = measured().max_by(by_goodput).zip(measured().min_by(by_goodput)) else {
            return vec![NOTHING_TRUSTED.into()];
        };
        let name = |(series, point): (&Series<Run>, &Point<Run>)| {
            let named = if self.series.len() > 1 { format!(" in “{}”", series.name) } else { String::new() };
            format!("{}{named} ({} Mb/s)", point.label, scaled(point, GOODPUT, 1e-6).text(1))
        };
        let mut found = Vec::new();
        if measured().count() > 1 {
            found.push(format!("{} has the highest goodput, {} the lowest.", name(most), name(least)));
        } else {
            found.push(format!("One point was measured: {}.", name(most)));
        }
        let beside_function: Vec<String> = measured()
            .filter_map(|(_, point)| Some(format!("{} {} times", point.label, point.mean(OF_EXPECTED)?.text(2))))
            .collect();
        if !beside_function.is_empty() {
            found.push(format!(
                "Goodput compared with the response function of each control: {}.",
                beside_function.join(", ")
            ));
        }
        found
    }

    fn legend(&self, body: &mut String) {
        let key = |fill: &str, text: &str| {
            format!(
                "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" fill=\"{fill}\"/></svg>{text}</li>\n"
            )
        };
        *body += "<ul class=\"legend\">\n";
        if self.runs().any(|run| run.beside.is_some()) {
            *body += &key(OWN, "the measured flow");
            *body += &key(BESIDE, "the flows that share the path");
        }
        if self.runs().any(|run| run.expected_bps.is_some()) {
            *body += "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><path d=\"M0 6h12\" class=\"axis\"/></svg>expected by the response function</li>\n";
        }
        *body += "</ul>\n";
    }
}

/// The cells of a row of the table but for label and runs; `None` without a result.
fn cells(point: &Point<Run>) -> Option<Vec<String>> {
    point.mean(GOODPUT)?;
    let mean = |name: &str, factor: f64, decimals: usize| {
        point.mean(name).map_or_else(|| "–".to_owned(), |_| scaled(point, name, factor).text(decimals))
    };
    let lost = point.means_of(|run| {
        let result = run.flows.result.as_ref();
        result
            .map(|result| result.loss_bytes_by_location.places())
            .into_iter()
            .flatten()
            .map(|(place, bytes)| (place.to_string(), bytes as f64))
    });
    let lost: Vec<String> = lost
        .iter()
        .filter(|(_, bytes)| bytes.mean > 0.0)
        .map(|(place, bytes)| format!("{place} {}", bytes.text(0)))
        .collect();
    Some(vec![
        mean(GOODPUT, 1e-6, 1),
        mean(TIME, 1e-9, 3),
        mean(EXPECTED, 1e-6, 1),
        mean(BESIDE_GOODPUT, 1e-6, 1),
        mean(RETRANSMITS, 1.0, 0),
        mean(WINDOW, 1.0, 0),
        format!("{:.3}", scaled(point, PATH_RTT, 1e-6).mean),
        mean(LEAST_RTT, 1e-6, 3),
        mean(RTT, 1e-6, 3),
        limit(point),
        if lost.is_empty() { "0".into() } else { lost.join(", ") },
    ])
}

/// What limited most runs of a point, and for how much of their time.
pub(crate) fn limit(point: &Point<Run>) -> String {
    let limits = |run: &Run| run.flows.result.as_ref().and_then(|result| result.limited_by.foremost());
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, share) in point.shown().filter_map(limits) {
        shares.entry(name).or_default().push(share);
    }
    let foremost = shares.into_iter().max_by_key(|(_, shares)| shares.len());
    foremost
        .and_then(|(name, shares)| Some((name, Mean::of(&shares)?)))
        .map_or_else(String::new, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share.mean * 100.0))
}

/// The highest value of a figure's bars, Mb/s.
fn highest(point: &Point<Run>) -> f64 {
    let top = |name| {
        let mean = scaled(point, name, 1e-6);
        mean.mean + mean.half_width.unwrap_or_default()
    };
    [GOODPUT, EXPECTED, BESIDE_GOODPUT].map(top).into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
pub(super) mod tests {
    use longhaul_result::Caveat;
    use longhaul_tcp::LimitedBy;

    use super::*;
    use crate::html::over_time::tcp_runs;

    fn flows(goodput_mbit: Option<u64>) -> Flows {
        let empty = longhaul_tcp::TcpEndReport::default();
        let parameters = TcpParameters::default();
        let stream = longhaul_tcp::TcpStreamReport { sends: true, ..Default::default() };
        let sender = longhaul_tcp::TcpEndReport { streams: vec![stream.clone()], ..empty.clone() };
        let received = longhaul_tcp::TcpStreamReport { sends: false, ..stream };
        let receiver = longhaul_tcp::TcpEndReport { streams: vec![received], ..empty };
        let result = goodput_mbit.map(|mbit| {
            let assembled = TcpResult::assemble(&parameters, false, false, &sender, &receiver).unwrap();
            TcpResult { goodput_bps: mbit * 1_000_000, ..assembled.result }
        });
        Flows { host: "client".into(), command: "longhaul tcp server -C reno".into(), parameters, result }
    }

    pub(super) fn report(runs: Vec<(&str, Run)>) -> Report<Run> {
        crate::html::series::tests::report(vec![crate::html::series::tests::series("one <flow>", runs)])
    }

    pub(super) fn run(goodput_mbit: Option<u64>) -> Run {
        let flows = flows(goodput_mbit);
        Run {
            flows,
            program: None,
            packets: None,
            steps: Vec::new(),
            over_time: None,
            beside: None,
            expected_bps: None,
            path_rtt_ns: 40_000_000,
            problems: Problems::default(),
        }
    }

    /// Bars of up to 1850 Mb/s have an axis to 2000, 190 units high.
    #[test]
    fn figure_and_table_say_the_same() {
        let expected = Run { expected_bps: Some(1_000_000_000), ..run(Some(500)) };
        let html = report(vec![("reno", expected), ("scalable", run(Some(1850)))]).to_html();
        assert!(html.contains("height=\"47.50\"") && html.contains("y1=\"117.00\" y2=\"117.00\""), "{html}");
        for cell in [
            ">500.0<",
            ">1000.0<",
            ">1850.0<",
            "expected by the response function",
            "one &lt;flow&gt;",
            "reno 0.50 times",
        ] {
            assert!(html.contains(cell), "{cell}: {html}");
        }
        assert!(!html.contains("the flows that share the path"));
    }

    /// As many points as `nlr-tcp` has, each with as much as a result keeps of a run.
    #[test]
    fn a_page_of_many_points_over_time_has_less_than_two_megabytes() {
        let kept = TcpOverTime::of(
            &tcp_runs::tests::report(2_001),
            Some(&tcp_runs::tests::report(2_001)),
            &tcp_runs::tests::dropped(),
        );
        let one = |number: u32| {
            let runs = (0..22).map(|_| ("some", Run { over_time: kept.clone(), ..run(Some(70)) })).collect();
            crate::html::series::tests::series(&format!("series {number}"), runs)
        };
        let html = crate::html::series::tests::report((0..6).map(one).collect::<Vec<_>>()).to_html();
        assert!(html.len() < 2_000_000, "{}", html.len());
        let numbers: usize =
            html.split("application/json\">").skip(1).map(|part| part.split("</script>").next().unwrap().len()).sum();
        assert!((100_000..1_000_000).contains(&numbers), "{numbers}");
        assert_eq!(html.matches("data-figure=\"Goodput\"").count(), 18, "eight points of 22 at once");
        assert_eq!(html.matches("<details class=\"folded\" open>").count(), 1);
    }

    /// Of 50 and 90 Mb/s the first is 0.56 times the second.
    #[test]
    fn a_finding_that_did_not_reappear_says_what_limited_the_flows() {
        use crate::html::findings::{Asked, Relation};
        let limited = |mbit, receive_window| {
            let mut run = run(Some(mbit));
            let limited_by = LimitedBy { receive_window, application: 1.0 - receive_window, ..LimitedBy::default() };
            run.flows.result.as_mut().unwrap().limited_by = limited_by;
            run
        };
        let runs = vec![("reno", limited(50, 0.75)), ("cubic", limited(90, 0.4))];
        let series = crate::html::series::tests::series("one", runs);
        let judge = |least| {
            let points = [("one, reno", 0), ("one, cubic", 1)];
            let asked = Asked {
                says: "Reno gets more".into(),
                quantity: GOODPUT.into(),
                relation: Relation::FallsBy(least),
                points: points.map(|(name, point)| (name.to_owned(), Some((0, point)))).into(),
            };
            asked.judge(|(_, point)| series.points.get(point)).why
        };
        let why = "one: reno 50 Mb/s (limited by receive window 75 %); \
                   cubic 90 (limited by application 60 %); ratio 0.56, at least 1.2 asked; \
                   the intervals leave it open";
        assert_eq!(judge(1.2), why);
        assert!(!judge(0.5).contains("limited by"), "one that reappeared needs no reason: {}", judge(0.5));
    }

    #[test]
    fn of_a_schedule_without_end_the_first_hundred_have_rows() {
        let step = Step { control: "reno".into(), goodput_bps: 1_000_000, mean_cwnd_packets: 1.0 };
        let page = |count| report(vec![("turns", Run { steps: vec![step.clone(); count], ..run(Some(70)) })]).to_html();
        let (whole, cut) = (page(STEPS_MOST), page(300_000));
        assert!(whole.contains("100: reno") && !whole.contains("more</th>"));
        assert!(cut.contains("and 299900 more") && !cut.contains("101: reno") && cut.len() < whole.len() + 200);
    }

    #[test]
    fn what_was_not_measured_is_said_and_two_flows_have_two_bars() {
        let problems = Problems::of_error(Caveat::of_error("refused", "nobody <there>", ""));
        let failed = Run { problems, ..run(None) };
        let shared = Run { beside: Some(flows(Some(20))), ..run(Some(70)) };
        let html = report(vec![("vegas", failed), ("reno", shared)]).to_html();
        for said in ["nobody &lt;there&gt;", "1 caveat applies", "the flows that share the path", ">20.0<"] {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert_eq!(html.matches("class=\"piece\"").count(), 3);
    }
}
