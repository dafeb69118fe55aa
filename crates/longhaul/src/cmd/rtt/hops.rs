//! `longhaul rtt --to-each-hop`.

use std::process::ExitCode;

use longhaul_kernel::signals::Stop;
use longhaul_peer::rtt::probe_hops;
use longhaul_report::saved::{HOPS_SCHEMA, HopsAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_rtt::HopsParameters;
use longhaul_rtt::probe_log::ProbeKind;

use crate::caveats;
use crate::cmd::rtt::{Args, ICMP_HAS_NO_PORTS, STRANGER_INTERVAL};
use crate::output::live::{Lines, Show};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, exit_code, print_result};

pub(crate) fn run(args: Args) -> Outcome {
    let (kind, port) = match (args.tcp, args.udp) {
        (Some(port), _) => (ProbeKind::Tcp, port),
        (None, Some(port)) => (ProbeKind::ClosedPort, port),
        (None, None) => (ProbeKind::Icmp, 0),
    };
    let hops = HopsParameters {
        amount: args.amount(),
        interval_ns: args.interval.unwrap_or(STRANGER_INTERVAL).0,
        most_hops: args.max_hops,
        // A SYN has none.
        payload_bytes: if kind == ProbeKind::Tcp { 0 } else { args.length },
        timeout_ns: args.timeout.0,
    };
    hops.validate()?;
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let no_port = (kind == ProbeKind::Icmp).then_some(ICMP_HAS_NO_PORTS);
    let (address, source) = args.reach.address(port, no_port)?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let mut lines = Lines::new(Show::choose(None, args.json, false));
    let probed = probe_hops(address, source, kind, &hops, stop, |round, reach| {
        lines.print(&format!("round {round}, hops 1 to {reach}"), &());
    });
    lines.end();
    Stop::release();
    let result = probed.map_err(|error| match stop.requested() {
        Some(signal) => Failure::from(error).exit(exit_code(signal)),
        None => error.into(),
    })?;
    let mut all = Vec::new();
    if stop.requested().is_some() {
        let message = "the test was interrupted before its end";
        all.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
    }
    let asked = HopsAsked { address, host: args.reach.host, kind, hops };
    let envelope = Envelope::new(HOPS_SCHEMA, started_at, asked, result, all);
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    print_result(&envelope, args.json, text::hops::report);
    if let Err(failure) = saved {
        return Ok(failure.report_beside());
    }
    Ok(stop.requested().map_or(ExitCode::SUCCESS, |signal| ExitCode::from(exit_code(signal))))
}
