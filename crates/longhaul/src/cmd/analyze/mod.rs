//! `longhaul analyze`.

pub(crate) mod figures;

use crate::caveats;
use crate::output::overwrite::Overwrite;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_flows::{AnalyzeResult, DirectionSummary, FlowOptions, FlowSummary, Flows, Millisecond, Sink};
use longhaul_report::html::capture::Report;
use longhaul_report::parquet::SeriesFile;
use longhaul_report::saved::ANALYZE_SCHEMA;
use longhaul_result::{Caveat, CaveatCode};
use serde::Serialize;

use crate::captures::largest::{Largest, Room};
use crate::captures::progress::pass_to;
use crate::captures::selected::Selected;
use crate::captures::source::{End, Length, Trace};
use crate::captures::time_steps_back;
use crate::cmd::analyze::figures::Figures;
use crate::output::saved::{Folder, SERIES};
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_result};

const EXAMPLES: &str = "\
Example:
  longhaul analyze monday.pcapng
  longhaul analyze --port 443 --top 5 captures/     # all captures in a folder, merged by time
  longhaul analyze --worst monday.pcapng            # which flow suffers?
  longhaul analyze --sort rtt --from 10:15 --to 10:20 monday.pcapng
  longhaul analyze --flow 10.0.0.1 --json monday.pcap.zst
  longhaul analyze --html monday.html monday.pcap   # drawn over time
  longhaul analyze -o series monday.pcap            # every millisecond of every flow, as Parquet

Reads what `longhaul capture` and `longhaul convert` write, pcap and pcapng, also compressed by gzip or zstd. \
`longhaul docs analyze-results` explains each number.";

/// Show what each flow of a capture did, and what limits it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Read these captures, or folders of captures
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Show this many flows, the first in the order of --sort (0: all)
    #[arg(long, value_name = "FLOWS", default_value_t = 20)]
    top: usize,
    /// Put first the flows with most of this
    #[arg(long, value_name = "WHAT", default_value = "bytes")]
    sort: Sort,
    /// Print a line for each flow that lost packets, the flow with the most losses first
    #[arg(long, conflicts_with = "sort")]
    worst: bool,
    #[command(flatten)]
    selected: Selected,
    /// Write the result and a row for each millisecond of each flow into this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Draw the largest flows over time as an HTML page into this file; reads the captures twice
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnalyzeParameters {
    /// The captures that were read.
    files: Vec<String>,
    /// Ends that were named; none is any.
    flow: Vec<String>,
    /// The port that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1)))]
    port: Option<u16>,
    /// How many flows were asked for; 0 is all.
    top: usize,
    /// What the first flows have most of.
    sort: Sort,
    /// The first time that counts, nanoseconds since 1970; `null` for the first packet.
    from_ns: Option<i64>,
    /// The first time that does not count any more; `null` for none.
    to_ns: Option<i64>,
}

/// The order of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Sort {
    /// Bytes of frames, in both directions
    Bytes,
    /// Retransmitted packets, on the wire
    Retransmits,
    /// Lost packets: retransmitted because the receiver lacked them, or missing probes of a test
    Loss,
    /// The mean round-trip time
    Rtt,
    /// The time from first to last packet
    Duration,
}

impl Sort {
    fn key(self, flow: &FlowSummary) -> u64 {
        let both = |of: &dyn Fn(&DirectionSummary) -> u64| of(&flow.forward).saturating_add(of(&flow.backward));
        match self {
            Self::Bytes => both(&|direction| direction.frame_bytes),
            Self::Retransmits => {
                both(&|direction| direction.tcp.as_ref().map_or(0, |tcp| tcp.retransmitted_wire_packets))
            }
            Self::Loss => both(&DirectionSummary::lost_packets),
            Self::Rtt => flow.mean_rtt_ns().unwrap_or(0),
            Self::Duration => u64::try_from(flow.last_ns.saturating_sub(flow.first_ns)).unwrap_or(0),
        }
    }
}

/// Each packet of real captures takes more bytes.
const ROOM: Room = Room { sure: 1 << 16, bytes_a_flow: 64 };

/// Keeps the first flows in an order, and writes series.
struct Kept {
    sort: Sort,
    flows_total: u64,
    largest: Largest,
    series: Option<SeriesFile<File>>,
}

impl Kept {
    fn of(top: usize, length: Length, sort: Sort) -> Self {
        Self { sort, flows_total: 0, largest: Largest::new(top, ROOM, length), series: None }
    }
}

impl Sink for Kept {
    fn flow(&mut self, summary: FlowSummary) {
        self.flows_total += 1;
        self.largest.push(self.sort.key(&summary), summary);
    }

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        if let Some(series) = &mut self.series {
            series.push(flow, forward, at_ns, row);
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let filter = args.selected.filter();
    if args.html.is_some() {
        Trace::can_be_read_again(&args.paths, "--html")?;
    }
    let mut trace = Trace::open(&args.paths, filter)?;
    args.overwrite.file(args.html.as_deref())?;
    let beside = |folder| Folder::prepare_beside(folder, args.overwrite, &args.paths, |name| name == SERIES);
    let folder = args.output.clone().map(beside).transpose()?;
    let table = folder.as_ref().map(|folder| folder.table(SERIES)).transpose()?;
    let series = match &table {
        Some(table) => Some(SeriesFile::new(table.file()?).map_err(|error| table.unwritable(error))?),
        None => None,
    };
    let sort = if args.worst { Sort::Loss } else { args.sort };
    // Whoever draws reads twice: all flows of very many are kept in the second pass, so that they are not in memory beside its own.
    let all_later = args.html.is_some() && !(1..=PAGE_FLOWS).contains(&args.top);
    let kept = Kept { series, ..Kept::of(if all_later { PAGE_FLOWS } else { args.top }, trace.length(), sort) };
    let mut flows = Flows::with_gaps(trace.flow_options(), kept, trace.gaps());
    pass_to(&mut trace, &mut flows)?;
    trace.was_readable()?;
    let (mut kept, totals) = flows.finish();
    if let (Some(series), Some(table)) = (kept.series.take(), &table) {
        series.finish().map_err(|error| table.unwritable(error))?;
    }
    let mut result = AnalyzeResult { totals, flows_total: kept.flows_total, flows: kept.largest.into_flows() };
    let mut page = None;
    if args.html.is_some() {
        let all = all_later.then(|| Kept::of(args.top, trace.length(), sort));
        let (drawn, all) = draw(&args, &started_at, &result, all)?;
        page = Some(drawn);
        result.flows = all.map_or(result.flows, |all| all.largest.into_flows());
    }
    let caveats = caveats(&trace, &result, args.top);
    let parameters = AnalyzeParameters {
        files: trace.paths(),
        flow: args.selected.flow.iter().map(End::to_string).collect(),
        port: Some(args.selected.port).filter(|port| *port > 0),
        top: args.top,
        sort,
        from_ns: trace.span().map(|span| span.start).filter(|ns| *ns > i64::MIN),
        to_ns: trace.span().map(|span| span.end).filter(|ns| *ns < i64::MAX),
    };
    let envelope = Envelope::new(ANALYZE_SCHEMA, started_at, parameters, result, caveats);
    if let (Some(folder), Some(table)) = (folder, table) {
        table.finish()?;
        folder.save(&envelope)?;
    }
    if let (Some(file), Some(page)) = (&args.html, page) {
        file.write(&Report { caveats: envelope.caveats.clone(), ..page }.html(), args.overwrite)?;
    }
    print_result(&envelope, args.json, |result| text(result, args.worst));
    Ok(ExitCode::SUCCESS)
}

fn text(result: &AnalyzeResult, worst: bool) -> String {
    if worst { longhaul_report::text::analyze::worst(result) } else { longhaul_report::text::analyze::report(result) }
}

/// Reads the captures again: the page of the largest flows, still without caveats, and all flows where they are wanted only now.
fn draw(args: &Args, at: &str, result: &AnalyzeResult, all: Option<Kept>) -> Result<(Report, Option<Kept>), Failure> {
    let filter = args.selected.filter();
    let mut trace = Trace::open(&args.paths, filter)?;
    let second = Second { figures: Figures::of(&result.flows, trace.gaps()), all };
    let mut flows = Flows::with_gaps(trace.flow_options(), second, trace.gaps());
    pass_to(&mut trace, &mut flows)?;
    let Second { figures, all } = flows.finish().0;
    let report = Report {
        title: trace.paths().join(", "),
        started_at: at.to_owned(),
        longhaul: env!("CARGO_PKG_VERSION").to_owned(),
        verdict: longhaul_report::text::analyze::verdict(result),
        caveats: Vec::new(),
        flows: figures.flows(),
        flows_total: result.flows_total,
        text: text(result, args.worst),
        left_out: Vec::new(),
    };
    Ok((report, all))
}

/// What a second pass is for.
struct Second {
    figures: Figures,
    all: Option<Kept>,
}

impl Sink for Second {
    fn flow(&mut self, summary: FlowSummary) {
        if let Some(all) = &mut self.all {
            all.flow(summary);
        }
    }

    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        self.figures.millisecond(flow, forward, at_ns, row);
    }

    fn interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        self.figures.interval(flow, forward, at_ns, interval_ns);
    }

    fn ack_interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        self.figures.ack_interval(flow, forward, at_ns, interval_ns);
    }
}

/// Flows that a page has in words, however many were asked for: up to 1 kB each, and with its figures the page is to have less than 2 MB.
pub(crate) const PAGE_FLOWS: usize = 300;

fn caveats(trace: &Trace, result: &AnalyzeResult, top: usize) -> Vec<Caveat> {
    let mut caveats = trace.caveats(if result.totals.gaps > 0 {
        "that time is left out"
    } else {
        "it does not say when, so they look lost on the path"
    });
    caveats.extend(time_steps_back(&result.totals));
    let mut warn = |code: CaveatCode, message: String, remedy: &str| {
        caveats.push(Caveat::new(code, message, remedy));
    };
    let evicted = result.totals.evicted_flows;
    if evicted > 0 {
        let FlowOptions { most_flows, most_bytes, .. } = trace.flow_options();
        let memory = if most_bytes == u64::MAX {
            String::new()
        } else {
            format!(", or took more than {} MiB", most_bytes >> 20)
        };
        let message = format!(
            "{evicted} flows were closed before their end, those silent for longest first: more than {most_flows} were open at once{memory}"
        );
        warn(caveats::FLOWS_EVICTED, message, "analyse a part: --flow or --port");
    }
    let unread = result.totals.probes_left_out;
    if unread > 0 {
        let message = format!(
            "at least {unread} packets with longhaul's probe header were not counted: the numbers before them skip more than a capture of this size can explain"
        );
        warn(caveats::PROBES_LEFT_OUT, message, "analyse a part: --flow or --port");
    }
    let asked = if top > 0 { result.flows_total.min(top as u64) } else { result.flows_total };
    let left_out = asked.saturating_sub(result.flows.len() as u64);
    if left_out > 0 {
        let message = format!(
            "{left_out} flows are left out, the last in the order that was asked for: captures of this length have room for {}",
            result.flows.len()
        );
        warn(caveats::FLOWS_LEFT_OUT, message, "analyse a part: --flow or --port");
    }
    let directions = result.flows.iter().flat_map(|flow| [&flow.forward, &flow.backward]);
    let clipped = directions.clone().filter_map(|direction| direction.tcp.as_ref()).filter(|tcp| tcp.clipped_acks > 0);
    let unknown: u64 = clipped.map(|tcp| tcp.retransmissions_of_unknown_cause).sum();
    if unknown > 0 {
        let message = format!("TCP's options were clipped: what caused {unknown} retransmissions is not known");
        warn(
            caveats::OPTIONS_CLIPPED,
            message,
            "capture longer snippets: 94 bytes hold all options of IPv4, 114 of IPv6",
        );
    }
    let tcp = directions.clone().filter_map(|direction| direction.tcp.as_ref());
    let untold: u64 = tcp.map(|tcp| tcp.late_packets_judged_without_rtt).sum();
    if untold > 0 {
        let message = format!(
            "no round trip of the whole path was captured: it is uncertain whether {untold} packets were retransmitted, reordered or duplicated"
        );
        let remedy = "capture both directions from the handshake on, or longer snippets: 94 bytes hold all options of IPv4, 114 of IPv6";
        warn(caveats::NO_PATH_RTT, message, remedy);
    }
    if directions.clone().any(|direction| direction.wire_packets > direction.packets) {
        let message = "some packets are super-packets: each is several packets on the wire, with one time stamp".into();
        warn(
            caveats::SUPER_PACKETS,
            message,
            "capture outside of the hosts, or with ethtool -K IF tso off gso off gro off",
        );
    }
    caveats
}
