//! `longhaul rtt`.

mod live;
mod log;
mod sizes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_kernel::signals::Stop;
use longhaul_peer::client;
use longhaul_peer::rtt::{probe_by_echo, probe_by_tcp};
use longhaul_report::html::round_trips::measured::Report;
use longhaul_report::saved::{RTT_SCHEMA, RttAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_rtt::probe_log::ProbeKind;
use longhaul_rtt::{Counts, Ended, Observed, RttEndReport, RttParameters, RttResult, Statistics, caveats_of};
use longhaul_session::SessionError;
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use crate::args::quantity::{count, length, seconds};
use crate::caveats;
use crate::cmd::rtt::live::Live;
use crate::cmd::rtt::log::SegmentLog;
pub(crate) use crate::cmd::rtt::sizes::Sizes;
use crate::cmd::test::Reach;
use crate::output::live::{Lines, Show};
use crate::output::overwrite::Overwrite;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, exit_code, print_result, write_named};

/// What jitter shows well at, and what a host hardly notices.
const SERVER_INTERVAL: Nanos = Nanos::from_millis(10);
/// As ping(8): other people's hosts answer.
const STRANGER_INTERVAL: Nanos = Nanos::from_secs(1);
/// A thread waits for each connection.
const TCP_INTERVAL_LEAST: Nanos = Nanos::from_millis(10);

const EXAMPLES: &str = "\
Example:
  longhaul rtt server -t 1h -o monday             # probes every 10 ms; a log with each
  longhaul rtt server --poisson -i 20ms -l 1472
  longhaul rtt server --sizes 64-1472 -t 1m       # what each byte of a message adds
  longhaul rtt server -t 1h --html page.html      # over time, and how long the rare ones are
  longhaul rtt example.org --icmp -c 100          # without a server
  longhaul rtt example.org --tcp 443 -i 500ms

`longhaul docs rtt-results` explains each number of the result.";

/// Measure round trips to a host: how they vary, what is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Send a probe every TIME [default: 10ms; 1s with --icmp or --tcp]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = seconds)]
    interval: Option<Nanos>,
    /// Send probes by a Poisson process, whose mean interval is that of -i (RFC 2330)
    #[arg(long)]
    poisson: bool,
    /// Send probes for this time
    #[arg(short = 't', long, value_name = "TIME", default_value = "10s", conflicts_with = "count", value_parser = seconds)]
    time: Nanos,
    /// Send this many probes
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = count)]
    count: Option<u64>,
    /// Send this many payload bytes in a probe
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = 64, value_parser = length)]
    length: u32,
    /// Send payloads of these sizes in turn: 64,512,1472, or 32 sizes from one to the other: 64-1472
    #[arg(long, value_name = "SIZES", conflicts_with_all = ["length", "tcp"])]
    sizes: Option<Sizes>,
    /// Count a probe as lost if no answer comes within this time
    #[arg(long, value_name = "TIME", default_value = "3s")]
    timeout: Nanos,
    /// Probe by ICMP echo, which needs no server: as root, or where net.ipv4.ping_group_range allows it
    #[arg(long, conflicts_with_all = ["tcp", "key", "no_auth", "port"])]
    icmp: bool,
    /// Probe by connecting to this TCP port, which needs no server
    #[arg(long, value_name = "PORT", conflicts_with_all = ["key", "no_auth", "port", "length"])]
    tcp: Option<u16>,
    /// Save in this folder: result.json, and a log of each probe in probes-*.parquet
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Draw round trips over time, by how rare they are and by size in this HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

impl Args {
    fn kind(&self) -> ProbeKind {
        match (self.icmp, self.tcp) {
            (true, _) => ProbeKind::Icmp,
            (_, Some(_)) => ProbeKind::Tcp,
            _ => ProbeKind::Udp,
        }
    }

    fn parameters(&self) -> Result<RttParameters, Failure> {
        let kind = self.kind();
        let default = if kind == ProbeKind::Udp { SERVER_INTERVAL } else { STRANGER_INTERVAL };
        let interval = self.interval.unwrap_or(default);
        if kind == ProbeKind::Tcp && interval < TCP_INTERVAL_LEAST {
            return Err(Failure::usage(format!("-i {interval}: with --tcp at least {TCP_INTERVAL_LEAST}")));
        }
        if let Some(Sizes(sizes)) = &self.sizes
            && sizes.len() < 2
        {
            return Err(Failure::usage(format!("--sizes {}: give two sizes or more, or -l", sizes[0])));
        }
        let parameters = RttParameters {
            amount: self.count.map_or(Amount::DurationNs(self.time.0), Amount::Packets),
            interval_ns: interval.0,
            poisson: self.poisson,
            payload_bytes: self.sizes.as_ref().and_then(|sizes| sizes.0.last()).copied().unwrap_or(self.length),
            sizes: self.sizes.as_ref().map(|sizes| sizes.0.clone()).unwrap_or_default(),
            timeout_ns: self.timeout.0,
        };
        parameters.validate()?;
        Ok(parameters)
    }
}

/// What is known of a measurement, from what is observed on its way.
struct Measured {
    kind: ProbeKind,
    statistics: Statistics,
    counts: Counts,
    ended: Ended,
    log: Option<SegmentLog>,
    live: Live,
}

impl Measured {
    fn take(&mut self, observed: Observed) {
        self.counts = observed.counts;
        observed.rows.iter().for_each(|row| self.statistics.take(row));
        self.live.take(&observed.recent);
        if let Some(log) = &mut self.log {
            let server = (self.kind == ProbeKind::Udp).then(|| self.counts.responder());
            log.say(self.counts.client(), server);
            log.take(&observed.rows);
        }
        self.ended = observed.ended.unwrap_or_default();
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let (parameters, kind) = (args.parameters()?, args.kind());
    args.overwrite.file(args.html.as_deref())?;
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let log = folder.as_ref().map(|folder| SegmentLog::new(folder.clone(), &args.reach.host, kind, &parameters));
    let log = log.transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let live = Live::new(Lines::new(Show::choose(None, args.json, false)));
    let (statistics, counts, ended) = (Statistics::by_sizes(&parameters.sizes), Counts::default(), Ended::default());
    let mut measured = Measured { kind, statistics, counts, ended, log, live };
    let probed = probe(&args, kind, &parameters, stop, &mut measured);
    measured.live.end();
    Stop::release();
    let Probed { address, responder, cut } = probed.map_err(|failure| match stop.requested() {
        Some(signal) => failure.exit(exit_code(signal)),
        None => failure,
    })?;
    let Measured { statistics, counts, ended, log, .. } = measured;
    let mut all = caveats_of(&counts, ended.skipped.0, responder.as_ref());
    all.extend(cut.as_ref().map(|failure| failure.as_caveat(caveats::CUT_SHORT)));
    all.extend(ended.stepped);
    all.extend(log.and_then(SegmentLog::finish));
    if stop.requested().is_some() {
        let message = "the test was interrupted before its end";
        all.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
    }
    let server = (kind == ProbeKind::Udp).then(|| counts.responder());
    let result = statistics.finish(kind, counts.client(), server);
    if result.sent == 0
        && let Some(failure) = cut
    {
        return Err(failure);
    }
    let asked = RttAsked { address, host: args.reach.host, kind, rtt: parameters };
    let envelope = Envelope::new(RTT_SCHEMA, started_at, asked, result, Caveat::unique(all));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    let drawn = args.html.as_deref().map_or(Ok(()), |file| write_named(file, &page(&envelope)));
    print_result(&envelope, args.json, text::rtt::report);
    if let Err(failure) = saved.and(drawn) {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    let otherwise = if cut.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    Ok(stop.requested().map_or(otherwise, |signal| ExitCode::from(exit_code(signal))))
}

fn page(envelope: &Envelope<RttAsked, RttResult>) -> String {
    Report {
        host: envelope.parameters.host.clone(),
        longhaul: envelope.longhaul.into(),
        started_at: envelope.started_at.clone(),
        result: &envelope.result,
        caveats: &envelope.caveats,
        text: text::rtt::report(&envelope.result),
    }
    .html()
}

/// A host that was probed.
struct Probed {
    address: SocketAddr,
    /// What the responder reports; `None` without one.
    responder: Option<RttEndReport>,
    /// How the server was lost; `None` if it was not.
    cut: Option<Failure>,
}

/// Probes the host.
fn probe(
    args: &Args,
    kind: ProbeKind,
    parameters: &RttParameters,
    stop: Stop,
    measured: &mut Measured,
) -> Result<Probed, Failure> {
    let observe = |observed| measured.take(observed);
    let failed = |error: SessionError| Failure::from(error);
    match (kind, args.tcp) {
        (ProbeKind::Icmp, _) => {
            let address = args.reach.address(0)?;
            probe_by_echo(address.ip(), parameters, Some(stop), observe).map_err(failed)?;
            Ok(Probed { address, responder: None, cut: None })
        }
        (ProbeKind::Tcp, Some(port)) => {
            let address = args.reach.address(port)?;
            probe_by_tcp(address, parameters, Some(stop), observe).map_err(failed)?;
            Ok(Probed { address, responder: None, cut: None })
        }
        _ => {
            let target = args.reach.target()?;
            let end = client::probe(&target, parameters.clone(), Some(stop), observe).map_err(failed)?;
            let responder = end.responder().copied();
            Ok(Probed { address: target.address, responder, cut: end.cut.map(|cut| cut.error.into()) })
        }
    }
}
