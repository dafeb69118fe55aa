//! `longhaul diagnose trace FILES`: connections of captures.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_diagnosis::{
    Diagnosed, DiagnosedFlow, DiagnosedFlows, Evidence, Run, captured_facts, diagnose, flow_goes_forward,
};
use longhaul_flows::{FlowSummary, Flows, Millisecond, Protocol, Sink};
use longhaul_report::saved::{DIAGNOSE_FLOWS_SCHEMA, DiagnoseFlowsAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_units::BitRate;

use crate::captures::largest::{Largest, Room};
use crate::captures::progress::pass_to;
use crate::captures::selected::Selected;
use crate::captures::source::Trace;
use crate::captures::time_steps_back;
use crate::caveats;
use crate::output::overwrite::Overwrite;
use crate::output::saved::Folder;
use crate::output::{Envelope, Outcome, print_result};

const EXAMPLES: &str = "\
Example:
  longhaul diagnose trace monday.pcapng
  longhaul diagnose trace --rate 10G --port 443 captures/   # all captures in a folder

`longhaul docs diagnosis` says what packets can show, and what they cannot.";

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

/// Each connection of real captures that can be diagnosed takes more bytes.
const ROOM: Room = Room { sure: 1 << 14, bytes_a_flow: 256 };

/// Keeps the largest connections that can be diagnosed.
struct Kept {
    connections: u64,
    can_be_diagnosed: u64,
    largest: Largest,
}

impl Sink for Kept {
    fn flow(&mut self, flow: FlowSummary) {
        self.connections += u64::from(flow.protocol == Protocol::Tcp);
        if let Some(observed) = captured_facts(&flow).and_then(|facts| facts.observed) {
            self.can_be_diagnosed += 1;
            self.largest.push(observed.payload_bytes, flow);
        }
    }

    fn millisecond(&mut self, _: u64, _: bool, _: i64, _: Millisecond) {}
}

pub(super) fn run(args: &Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let mut trace = Trace::open(&args.paths, args.selected.filter())?;
    let beside = |folder| Folder::prepare_beside(folder, args.overwrite, &args.paths, |_| false);
    let folder = args.output.clone().map(beside).transpose()?;
    let kept = Kept { connections: 0, can_be_diagnosed: 0, largest: Largest::new(args.top, ROOM, trace.length()) };
    let mut flows = Flows::with_gaps(trace.flow_options(), kept, trace.gaps());
    pass_to(&mut trace, &mut flows)?;
    trace.was_readable()?;
    let (kept, totals) = flows.finish();
    let largest = kept.largest.into_flows();
    let diagnoses = largest.iter().filter_map(|flow| diagnosed(flow, args.rate)).collect();
    let result = DiagnosedFlows::of(kept.connections, diagnoses);
    let mut caveats = trace.caveats(if totals.gaps > 0 {
        "that time is left out"
    } else {
        "it does not say when, so they look lost on the path"
    });
    caveats.extend(time_steps_back(&totals));
    let asked = if args.top > 0 { kept.can_be_diagnosed.min(args.top as u64) } else { kept.can_be_diagnosed };
    let left_out = asked.saturating_sub(result.flows.len() as u64);
    if left_out > 0 {
        let message = format!(
            "{left_out} connections are left out, those with the least payload: captures of this length have room for {}",
            result.flows.len()
        );
        caveats.push(Caveat::new(caveats::FLOWS_LEFT_OUT, message, "diagnose a part: --flow or --port"));
    }
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
