//! `longhaul diagnose trace FILES`: connections of captures.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_diagnosis::{
    Diagnosed, DiagnosedFlow, DiagnosedFlows, Evidence, Run, captured_facts, diagnose, flow_goes_forward,
};
use longhaul_flows::{FlowSummary, Flows, Millisecond, Protocol, Sink};
use longhaul_report::saved::{DIAGNOSE_FLOWS_SCHEMA, DiagnoseFlowsAsked};
use longhaul_report::text;
use longhaul_units::BitRate;

use crate::captures::progress::pass_to;
use crate::captures::selected::Selected;
use crate::captures::source::Trace;
use crate::captures::time_steps_back;
use crate::output::overwrite::Overwrite;
use crate::output::saved::Folder;
use crate::output::{Envelope, Outcome, print_result};

const EXAMPLES: &str = "\
Example:
  longhaul diagnose trace monday.pcapng
  longhaul diagnose trace --rate 10G --port 443 captures/   # of a folder, by time

`longhaul docs diagnosis` says what packets tell, and what they do not.";

/// Find what limits the TCP connections of a capture
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Read these captures, or folders of captures
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Expect this rate of the path, on the wire
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Diagnose this many connections, those with the most payload (0: all)
    #[arg(long, value_name = "FLOWS", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    selected: Selected,
    /// Save the answer with all its evidence in this folder
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// Keeps the diagnoses of the largest connections.
struct Kept {
    rate: Option<BitRate>,
    top: usize,
    connections: u64,
    flows: Vec<DiagnosedFlow>,
}

impl Sink for Kept {
    fn flow(&mut self, flow: FlowSummary) {
        self.connections += u64::from(flow.protocol == Protocol::Tcp);
        self.flows.extend(diagnosed(&flow, self.rate));
        // Now and then, so that a long capture with many connections needs no more memory than a short one.
        if self.top > 0 && self.flows.len() >= self.top.saturating_mul(2).max(1_000) {
            let flows = std::mem::take(&mut self.flows);
            self.flows = DiagnosedFlows::of(self.connections, flows, self.top).flows;
        }
    }

    fn millisecond(&mut self, _: u64, _: bool, _: i64, _: Millisecond) {}
}

pub(super) fn run(args: &Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let mut trace = Trace::open(&args.paths, args.selected.filter())?;
    let beside = |folder| Folder::prepare_beside(folder, args.overwrite, &args.paths, &[]);
    let folder = args.output.clone().map(beside).transpose()?;
    let kept = Kept { rate: args.rate, top: args.top, connections: 0, flows: Vec::new() };
    let mut flows = Flows::with_gaps(trace.flow_options(), kept, trace.gaps());
    pass_to(&mut trace, &mut flows)?;
    trace.was_readable()?;
    let (kept, totals) = flows.finish();
    let result = DiagnosedFlows::of(kept.connections, kept.flows, args.top);
    let mut caveats = trace.caveats(if totals.gaps > 0 { "that time is left out" } else { "they look like holes" });
    caveats.extend(time_steps_back(&totals));
    let asked = DiagnoseFlowsAsked {
        pid: None,
        command: None,
        exit_code: None,
        files: trace.paths(),
        rate_bps: args.rate.map(|rate| rate.0),
    };
    let envelope = Envelope::new(DIAGNOSE_FLOWS_SCHEMA, started_at, asked, result, caveats);
    if let Some(folder) = folder {
        folder.save(&envelope)?;
    }
    print_result(&envelope, args.json, text::diagnose::flows);
    Ok(ExitCode::SUCCESS)
}

fn diagnosed(flow: &FlowSummary, rate: Option<BitRate>) -> Option<DiagnosedFlow> {
    let facts = captured_facts(flow)?;
    let payload_bytes = facts.observed.as_ref()?.payload_bytes;
    let (sender, receiver) =
        if flow_goes_forward(flow) { (flow.client, flow.server) } else { (flow.server, flow.client) };
    let evidence = Evidence {
        named_target_bps: rate.map(|rate| rate.0),
        ipv6: flow.client.ip().to_canonical().is_ipv6(),
        runs: vec![Run::Tcp(facts)],
        ..Evidence::default()
    };
    let diagnosed = Diagnosed { diagnosis: diagnose(&evidence), before: None, evidence };
    Some(DiagnosedFlow { number: flow.flow, sender, receiver, program: None, payload_bytes, diagnosed })
}
