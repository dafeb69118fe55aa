//! TCP goodput by congestion control and number of flows, compared with a response function and with flows that share the path:
//! DataTAG's and the NLR Rings paper's figures, for any experiment.

use std::fmt::Write;

use longhaul_result::Caveat;
use longhaul_tcp::{LimitedBy, TcpParameters, TcpResult};
use longhaul_terms::Amount;
use longhaul_units::{Bytes, Nanos};
use serde::Serialize;

use crate::html::about::{caveats, spaced};
use crate::html::axis::{grid, height, short, step};
use crate::html::page::{escape, page};
use crate::html::series::{self, Report, Series};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
/// Of the bars' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [60.0, 22.0, 396.0, 212.0];
/// Blue and orange of Okabe and Ito (`colour.rs`).
const OWN: &str = "#0072b2";
const BESIDE: &str = "#e69f00";

/// One test, with the flows that shared its path.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Congestion control, and the number of flows where it varies.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub label: String,
    /// The flows that are measured.
    pub flows: Flows,
    /// Those at the same time; `None` for none.
    pub beside: Option<Flows>,
    /// Goodput that the response function of the control says for the path's loss; `None` where it says nothing.
    pub expected_bps: Option<u64>,
    /// The round trip that the path's file asks for, without queues, nanoseconds.
    pub path_rtt_ns: u64,
    /// Why there is no result, with what to do; `None` where there is.
    pub error: Option<Caveat>,
    /// What speaks against trusting this test.
    pub caveats: Vec<Caveat>,
}

/// Flows of one host.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flows {
    /// The host that sends.
    pub host: String,
    /// The command that makes the same test.
    pub command: String,
    /// How they were tested, as it was granted.
    pub parameters: TcpParameters,
    /// What came of it; `None` where nothing did.
    pub result: Option<TcpResult>,
}

impl Flows {
    fn mbit(&self) -> Option<f64> {
        self.result.as_ref().map(|result| result.goodput_bps as f64 / 1e6)
    }
}

impl Run {
    fn highest(&self) -> f64 {
        let rates = [self.flows.mbit(), self.beside.as_ref().and_then(Flows::mbit), self.expected_mbit()];
        rates.into_iter().flatten().fold(0.0, f64::max)
    }

    fn expected_mbit(&self) -> Option<f64> {
        self.expected_bps.map(|bps| bps as f64 / 1e6)
    }
}

impl series::Run for Run {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn has_result(&self) -> bool {
        self.flows.result.is_some()
    }

    fn error(&self) -> Option<&Caveat> {
        self.error.as_ref()
    }

    fn caveats(&self) -> &[Caveat] {
        &self.caveats
    }

    fn setting(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let parameters = &self.flows.parameters;
        if let Amount::DurationNs(ns) = parameters.amount {
            parts.push(format!("{} per test", spaced(Nanos(ns))));
        }
        if parameters.omit_ns > 0 {
            parts.push(format!("the first {} omitted", spaced(Nanos(parameters.omit_ns))));
        }
        parts.extend(parameters.window_bytes.map(|bytes| format!("socket buffers of {}", spaced(Bytes(bytes)))));
        parts.extend(parameters.mss_bytes.map(|bytes| format!("segments of {bytes} bytes")));
        if let Some(beside) = &self.beside {
            let mss = beside.parameters.mss_bytes;
            let mss = mss.map_or(String::new(), |bytes| format!(" in segments of {bytes} bytes"));
            parts.push(format!("{} sends; {} sends at the same time{mss}", self.flows.host, beside.host));
        }
        parts
    }

    fn commands(&self) -> Vec<String> {
        let flows = [Some(&self.flows), self.beside.as_ref()].into_iter().flatten();
        flows.map(|flows| format!("{}: {}", flows.host, flows.command)).collect()
    }
}

const COLUMNS: [&str; 11] = [
    "test",
    "goodput, Mb/s",
    "expected, Mb/s",
    "other flow, Mb/s",
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
        self.about.head(&mut body, self.placed_caveats().count());
        self.legend(&mut body);
        let highest = self.runs().map(Run::highest).fold(0.0, f64::max);
        self.panels(&mut body, |series| panel(series, highest));
        self.about.note(&mut body);
        self.table(&mut body, &COLUMNS, cells);
        caveats(&mut body, self.placed_caveats());
        body += "<h2>How this was measured</h2>\n\
                 <p>Goodput is the payload that the receivers read, over the time from the first counted byte to the last. The sending kernel's \
                 clocks (busy, receive window, send buffer) say what limited a flow. The expected goodput is the mean window that the response \
                 function of the congestion control gives at the path's loss rate (<code>longhaul cc table</code>), sent once per round trip.</p>\n\
                 <p>The hosts are network namespaces on one machine, and longhaul emulates the path between them, so hosts and path share \
                 its CPUs. Each series has its own path and hosts.</p>\n";
        self.about.hosts(&mut body);
        self.commands(&mut body, "longhaul serve --sessions 2");
        page(&self.about.title, &body)
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
            *body += &key(BESIDE, "the flow that shares the path");
        }
        if self.runs().any(|run| run.expected_bps.is_some()) {
            *body += "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><path d=\"M0 6h12\" class=\"axis\"/></svg>expected by the response function</li>\n";
        }
        *body += "</ul>\n";
    }
}

/// The cells of a row of the table but for the first; `None` without a result.
fn cells(run: &Run) -> Option<Vec<String>> {
    let result = run.flows.result.as_ref()?;
    let none = || "–".to_owned();
    let mbit = |rate: Option<f64>| rate.map_or_else(none, |rate| format!("{rate:.1}"));
    let mean = |of: &dyn Fn(&longhaul_tcp::TcpStreamResult) -> Option<f64>| {
        let values: Vec<f64> = result.streams.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let window = mean(&|stream| Some(stream.mean_cwnd_bytes? as f64 / stream.mss_bytes.max(1) as f64));
    let rtt = mean(&|stream| Some(stream.mean_rtt_ns? as f64 / 1e6));
    let least = mean(&|stream| Some(stream.min_rtt_ns? as f64 / 1e6));
    let lost = result.loss_bytes_by_location.places().into_iter().filter(|(_, bytes)| *bytes > 0);
    let lost: Vec<String> = lost.map(|(place, bytes)| format!("{place} {bytes}")).collect();
    Some(vec![
        mbit(run.flows.mbit()),
        mbit(run.expected_mbit()),
        mbit(run.beside.as_ref().and_then(Flows::mbit)),
        result.retransmits.to_string(),
        window.map_or_else(none, |packets| format!("{packets:.0}")),
        format!("{:.3}", run.path_rtt_ns as f64 / 1e6),
        least.map_or_else(none, |ms| format!("{ms:.3}")),
        rtt.map_or_else(none, |ms| format!("{ms:.3}")),
        limit(&result.limited_by),
        if lost.is_empty() { "0".into() } else { lost.join(", ") },
    ])
}

fn limit(limited_by: &LimitedBy) -> String {
    limited_by
        .foremost()
        .map_or_else(String::new, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0))
}

/// One or two bars per test, with an axis from 0 to at least `highest` Mb/s.
fn panel(series: &Series<Run>, highest: f64) -> String {
    let [left, top, right, bottom] = EDGES;
    // The values are above the bars and below the highest grid line.
    let highest = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let step = step(highest);
    let steps = (highest / step).ceil();
    let y = |mbit: f64| height(EDGES, step, steps, mbit);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{}</title>\n",
        escape(&series.name)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let room = (right - left) / series.runs.len().max(1) as f64;
    for (number, run) in series.runs.iter().enumerate() {
        let middle = left + room * (number as f64 + 0.5);
        let _ = write!(svg, "<g class=\"bar\" data-test=\"{0}\"><title>{0}</title>", escape(&run.label));
        let bars = [Some((&run.flows, OWN)), run.beside.as_ref().map(|beside| (beside, BESIDE))];
        let bars: Vec<_> = bars.into_iter().flatten().collect();
        let wide = room * 0.62 / bars.len() as f64;
        for (place, (flows, fill)) in bars.iter().enumerate() {
            let x = middle + wide * (place as f64 - bars.len() as f64 / 2.0);
            let (high, text) = flows.mbit().map_or((bottom, "–".into()), |mbit| (y(mbit), short(mbit)));
            let _ = write!(
                svg,
                "<rect class=\"piece\" x=\"{x:.1}\" y=\"{high:.2}\" width=\"{wide:.1}\" height=\"{:.2}\" fill=\"{fill}\"/>\
                 <text class=\"total\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom - high,
                x + wide / 2.0,
                high - 5.0,
            );
        }
        if let Some(mbit) = run.expected_mbit() {
            let _ = write!(
                svg,
                "<line class=\"axis\" stroke-width=\"2\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2:.2}\" y2=\"{2:.2}\"/>",
                middle - room * 0.42,
                middle + room * 0.42,
                y(mbit)
            );
        }
        // Labels that would overlap are in two rows.
        let below = bottom + 15.0 + if room < 70.0 && number % 2 == 1 { 14.0 } else { 0.0 };
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text></g>",
            escape(&run.label)
        );
    }
    let _ = writeln!(
        svg,
        "<text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">goodput, Mb/s</text>\n</svg>",
        (top + bottom) / 2.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn report(runs: Vec<Run>) -> Report<Run> {
        crate::html::series::tests::report(vec![crate::html::series::tests::series("one <flow>", runs)])
    }

    fn run(label: &str, goodput_mbit: Option<u64>) -> Run {
        let flows = flows(goodput_mbit);
        Run {
            label: label.into(),
            flows,
            beside: None,
            expected_bps: None,
            path_rtt_ns: 40_000_000,
            error: None,
            caveats: Vec::new(),
        }
    }

    /// Bars of up to 1850 Mb/s have an axis to 2000, 190 units high.
    #[test]
    fn figure_and_table_say_the_same() {
        let expected = Run { expected_bps: Some(1_000_000_000), ..run("reno", Some(500)) };
        let html = report(vec![expected, run("scalable", Some(1850))]).to_html();
        assert!(html.contains("height=\"47.50\"") && html.contains("y1=\"117.00\" y2=\"117.00\""), "{html}");
        for cell in [">500.0<", ">1000.0<", ">1850.0<", "expected by the response function", "one &lt;flow&gt;"] {
            assert!(html.contains(cell), "{cell}: {html}");
        }
        assert!(!html.contains("the flow that shares the path"));
    }

    #[test]
    fn what_was_not_measured_is_said_and_two_flows_have_two_bars() {
        let error = Some(Caveat::of_error("refused", "nobody <there>", ""));
        let failed = Run { error, ..run("vegas", None) };
        let shared = Run { beside: Some(flows(Some(20))), ..run("reno", Some(70)) };
        let html = report(vec![failed, shared]).to_html();
        for said in ["nobody &lt;there&gt;", "1 caveat</a> applies", "the flow that shares the path", ">20.0<"] {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert_eq!(html.matches("class=\"piece\"").count(), 3);
    }
}
