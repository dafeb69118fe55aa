//! `longhaul diagnose --watch PID` and `longhaul diagnose -- COMMAND`: connections of other programs.

use std::process::ExitCode;

use longhaul_diagnosis::{
    Diagnosed, DiagnosedFlow, DiagnosedFlows, Evidence, HostFacts, Run, diagnose, watched_facts, with_counters,
};
use longhaul_kernel::signals::Stop;
use longhaul_kernel::stderr_text;
use longhaul_report::saved::{DIAGNOSE_FLOWS_SCHEMA, DiagnoseFlowsAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_tcp::{Flow, WatchedConnection};
use longhaul_terms::ChangedCounters;
use longhaul_units::{BitRate, Nanos};
use longhaul_watch::{Selection, Watch, WatchOptions};

use super::Args;
use super::counted::Counted;
use crate::args::interval::DEFAULT_INTERVAL;
use crate::cmd::watch::following::{Times, code_of, follow, namespace_of, not_watched, start};
use crate::cmd::watch::live::Live;
use crate::output::live::Show;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, exit_code, plain, print_caveats, print_json, print_text};

/// Between two samples of all connections.
const SAMPLE: Nanos = Nanos::from_millis(10);

pub(super) fn run(args: &Args) -> Outcome {
    if args.html.is_some() {
        return Err(Failure::usage("--html draws the answer of tests: give a HOST"));
    }
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let own = args.command.is_empty();
    let namespace = args.watch.map(|pid| namespace_of("--watch", pid)).transpose()?;
    let counted = Counted::take(args.watch, args.watch.map(|pid| namespace_of("--watch", pid)).transpose()?)
        .map_err(|error| Failure::new("no_namespace", error))?;
    let host = super::host(&serde_json::to_value(&counted.host).unwrap_or_default());
    let selection = args.watch.map_or(Selection::Descendants, Selection::Process);
    let options = WatchOptions { selection, namespace, sample: SAMPLE, keep_samples: false };
    let mut watch = Watch::open(options).map_err(not_watched)?;
    let child = (!own).then(|| start(&args.command, args.json)).transpose()?;
    let times = Times { whole: args.time, sample: SAMPLE, interval: DEFAULT_INTERVAL };
    let mut live = Live::new(if own { Show::choose(None, args.json, false) } else { Show::Nothing }, None);
    let ended = follow(&times, &mut watch, child, stop, &mut live).map_err(|error| Failure::new("watch", error))?;
    live.end();
    let watched = watch.finish();
    let connections = &watched.result.connections;
    let changes = counted.changes();
    let flows = connections.iter().filter_map(|seen| diagnosed(seen, &host, &changes, args.rate)).collect();
    let result = DiagnosedFlows::of(connections.len() as u64, flows);
    let exit = ended.map(code_of);
    let asked = DiagnoseFlowsAsked {
        pid: args.watch,
        command: (!own).then(|| args.command.clone()),
        exit_code: exit,
        files: Vec::new(),
        rate_bps: args.rate.map(|rate| rate.0),
    };
    let caveats = Caveat::unique(watched.caveats.into_iter().chain(counted.caveat()).collect());
    let envelope = Envelope::new(DIAGNOSE_FLOWS_SCHEMA, started_at, asked, result, caveats);
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    // Whoever reads what follows may be slow.
    Stop::release();
    let report = || text::diagnose::flows(&envelope.result);
    match (args.json, own) {
        (true, _) => print_json(&envelope),
        (false, true) => print_text(&report()),
        (false, false) => stderr_text!("{}", plain(&report())),
    }
    print_caveats(&envelope.caveats);
    if let Err(failure) = saved {
        return Ok(failure.report_beside());
    }
    Ok(match (stop.requested(), exit) {
        (Some(signal), _) => ExitCode::from(exit_code(signal)),
        (None, Some(code)) => ExitCode::from(code),
        (None, None) => ExitCode::SUCCESS,
    })
}

/// The diagnosis of a connection whose one end is on this host; `None` if too little moved.
fn diagnosed(
    seen: &WatchedConnection,
    host: &HostFacts,
    changes: &ChangedCounters,
    rate: Option<BitRate>,
) -> Option<DiagnosedFlow> {
    let facts = with_counters(watched_facts(seen)?, changes);
    let payload_bytes = facts.observed.as_ref()?.payload_bytes;
    let (sender, receiver) = match seen.flow {
        Flow::Sending => (seen.local, seen.remote),
        Flow::Receiving => (seen.remote, seen.local),
    };
    let mut evidence = Evidence {
        named_target_bps: rate.map(|rate| rate.0),
        ipv6: seen.remote.ip().to_canonical().is_ipv6(),
        runs: vec![Run::Tcp(facts)],
        ..Evidence::default()
    };
    match seen.flow {
        Flow::Sending => evidence.sender = host.clone(),
        Flow::Receiving => evidence.receiver = host.clone(),
    }
    let diagnosis = diagnose(&evidence);
    let diagnosed = Diagnosed { diagnosis, before: None, evidence };
    let number = seen.number.into();
    Some(DiagnosedFlow { number, sender, receiver, program: seen.program.clone(), payload_bytes, diagnosed })
}
