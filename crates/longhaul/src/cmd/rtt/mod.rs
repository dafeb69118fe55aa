//! `longhaul rtt`.

mod hops;
mod live;
mod log;
mod measured;
mod resume;
mod sessions;
mod sizes;

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_host::HostSnapshot;
use longhaul_kernel::signals::Stop;
use longhaul_peer::client::{Target, serve_or_echo};
use longhaul_peer::rtt::{clock_state, probe_by_closed_port, probe_by_echo, probe_by_tcp};
use longhaul_report::html::AboutHost;
use longhaul_report::html::round_trips::measured::Report;
use longhaul_report::saved::{RTT_SCHEMA, RttAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_rtt::probe_log::ProbeKind;
use longhaul_rtt::{
    ClockState, Clocks, EndsStamps, LEAST_ROUND, RttParameters, RttResult, caveats_of, caveats_of_gaps,
    caveats_of_path_changes,
};
use longhaul_session::{SessionError, TestEnd};
use longhaul_terms::Amount;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;
use serde_json::Value;

use crate::args::quantity::{count, length, seconds};
use crate::caveats;
use crate::cmd::rtt::live::Live;
use crate::cmd::rtt::log::SegmentLog;
use crate::cmd::rtt::measured::Measured;
use crate::cmd::rtt::sessions::Ends;
pub(crate) use crate::cmd::rtt::sizes::Sizes;
use crate::cmd::test::Reach;
use crate::output::live::{Lines, Show};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, OutputFile, exit_code, print_result, report_unwritten};

/// What jitter shows well at, and what a host hardly notices.
const SERVER_INTERVAL: Nanos = Nanos::from_millis(10);
/// As ping(8): other people's hosts answer.
pub(crate) const STRANGER_INTERVAL: Nanos = Nanos::from_secs(1);
/// Why ICMP echoes leave from no port.
const ICMP_HAS_NO_PORTS: &str = "ICMP echoes have no ports";
/// A thread waits for each connection.
const TCP_INTERVAL_LEAST: Nanos = Nanos::from_millis(10);

const EXAMPLES: &str = "\
Example:
  longhaul rtt server -t 1h -o monday             # probes every 10 ms; a log with each
  longhaul rtt server -t 1d --resume monday       # continues; the pause does not count as loss
  longhaul rtt server --poisson -i 20ms -l 1472
  longhaul rtt server --sizes 64-1472 -t 1m       # what each byte of a message adds
  longhaul rtt server -t 1h --html page.html      # over time, and their distribution
  longhaul rtt example.org --icmp -c 100          # without a server
  longhaul rtt example.org --tcp 443 -i 500ms
  longhaul rtt example.org --to-each-hop          # each router on the path

Time stamps come from the kernel, or from the program if the kernel has none. With --timestamps nic they come from the NICs.

`longhaul docs rtt-results` explains each number of the result.";

/// Measure round trips to a host: how they vary, what is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Send a probe every TIME [default: 10ms; 1s without a server]
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
    /// Take time stamps from the kernel, or from the NIC at each end whose NIC can stamp packets (as root; with a server or --icmp)
    #[arg(long, value_name = "WHERE", default_value = "kernel", conflicts_with_all = ["tcp", "udp", "to_each_hop"])]
    timestamps: Timestamps,
    /// Count a probe as lost if no answer comes within this time
    #[arg(long, value_name = "TIME", default_value = "3s")]
    timeout: Nanos,
    /// Probe by ICMP echo, which needs no server: as root, or where net.ipv4.ping_group_range allows it
    #[arg(long, conflicts_with_all = ["tcp", "udp", "key", "no_auth", "port"])]
    icmp: bool,
    /// Probe by connecting to this TCP port, which needs no server
    #[arg(long, value_name = "PORT", conflicts_with_all = ["udp", "key", "no_auth", "port", "length"])]
    tcp: Option<u16>,
    /// Probe by datagrams to this closed UDP port: the host answers "port unreachable", at most once a second. Needs no server
    #[arg(long, value_name = "PORT", conflicts_with_all = ["key", "no_auth", "port"])]
    udp: Option<u16>,
    /// Probe every router on the path, as traceroute does, by ICMP echo, --udp or --tcp (SYNs, as root): one round per -i (at least 1s); -c
    /// limits rounds
    #[arg(long, conflicts_with_all = ["key", "no_auth", "port", "poisson", "sizes", "html", "prometheus"])]
    to_each_hop: bool,
    /// Stop after N hops
    #[arg(long, value_name = "N", default_value_t = 30, requires = "to_each_hop")]
    max_hops: u8,
    /// Save in this folder: result.json, and a log of each probe in probes-*.parquet
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    /// Continue the measurement that -o saved in this folder, with the same probes, for another -t or -c
    #[arg(long, value_name = "DIR", conflicts_with_all = ["interval", "poisson", "length", "sizes", "timeout", "icmp", "tcp", "udp", "to_each_hop", "output"])]
    resume: Option<PathBuf>,
    /// Draw round trips over time, their distribution, and how they depend on size, in this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Timestamps {
    Kernel,
    Nic,
}

impl Args {
    fn kind(&self) -> ProbeKind {
        match (self.icmp, self.tcp, self.udp) {
            (true, ..) => ProbeKind::Icmp,
            (_, Some(_), _) => ProbeKind::Tcp,
            (.., Some(_)) => ProbeKind::ClosedPort,
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
        if kind == ProbeKind::ClosedPort && interval < LEAST_ROUND {
            return Err(Failure::usage(format!(
                "-i {interval}: with --udp at least {LEAST_ROUND}: hosts limit what they answer"
            )));
        }
        if let Some(Sizes(sizes)) = &self.sizes
            && sizes.len() < 2
        {
            return Err(Failure::usage(format!("--sizes {}: give two sizes or more, or -l", sizes[0])));
        }
        Ok(RttParameters {
            amount: self.amount(),
            interval_ns: interval.0,
            poisson: self.poisson,
            payload_bytes: self.sizes.as_ref().and_then(|sizes| sizes.0.last()).copied().unwrap_or(self.length),
            sizes: self.sizes.as_ref().map(|sizes| sizes.0.clone()).unwrap_or_default(),
            timeout_ns: self.timeout.0,
            nic_stamps: self.timestamps == Timestamps::Nic,
            first_sequence: 0,
        })
    }

    fn amount(&self) -> Amount {
        self.count.map_or(Amount::DurationNs(self.time.0), Amount::Packets)
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.to_each_hop {
        return hops::run(args);
    }
    args.overwrite.file(args.html.as_deref())?;
    let started_at = jiff::Timestamp::now().to_string();
    // From here on nobody else writes to it.
    let going_on = args.resume.clone().map(Folder::open).transpose()?;
    let resumed = args.resume.as_deref().map(|folder| resume::about(folder, &args.reach.host)).transpose()?;
    let kind = resumed.as_ref().map_or_else(|| args.kind(), |about| about.kind);
    let port = resumed.as_ref().map_or(args.tcp.or(args.udp), |about| about.port);
    let asked = match &resumed {
        Some(about) => {
            RttParameters { nic_stamps: args.timestamps == Timestamps::Nic, ..resume::parameters(about, args.amount()) }
        }
        None => args.parameters()?,
    };
    asked.validate()?;
    // A resolver may not answer: until it does, a signal ends the command.
    let target = target(&args, (kind, port))?;
    let folder = match going_on {
        Some(folder) => Some(folder),
        None => args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?,
    };
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let live =
        Live::new(Lines::with_metrics(Show::choose(None, args.json, false), args.prometheus.open(args.overwrite)?));
    let (mut measured, parameters) = match (args.resume.as_deref(), &folder, resumed) {
        (Some(name), Some(folder), Some(about)) => {
            resume::measured(name, folder, about, asked, live, || stop.requested())?
        }
        _ => {
            let log =
                folder.as_ref().map(|folder| SegmentLog::new(folder.clone(), &args.reach.host, (kind, port), &asked));
            (Measured::new(kind, &asked, log.transpose()?, live), asked)
        }
    };
    let probed = probe(&target, kind, &parameters, stop, &mut measured);
    measured.live.end();
    Stop::release();
    let ends = probed.map_err(|error| match (stop.requested(), Failure::from(error)) {
        (Some(signal), failure) => failure.exit(exit_code(signal)),
        (None, failure) => failure,
    })?;
    measured.flush();
    let Measured { statistics, counts, skipped, log, changes, .. } = measured;
    // How many lines were left out stands before the result.
    drop(changes);
    let mut all = caveats_of(&counts, skipped.0, ends.remote.as_ref());
    all.extend(log.and_then(SegmentLog::finish));
    if stop.requested().is_some() {
        let message = "the test was interrupted before its end";
        all.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
    }
    let server = (kind == ProbeKind::Udp).then(|| counts.responder());
    let clocks = Clocks {
        client: clock_state(),
        server: ends.remote.as_ref().and_then(|remote| remote.clock.clone()).map(ClockState::of_peer),
    };
    let hosts = ProbingHosts::of(ends.last);
    let mut result = statistics.finish(kind, EndsStamps { client: counts.client(), server }, clocks);
    all.extend(caveats_of_gaps(&result));
    all.extend(caveats_of_path_changes(&result));
    let asked = RttAsked { address: target.address, host: args.reach.host, kind, rtt: parameters };
    if let Some(by_size) = &mut result.by_size {
        by_size.explain(hosts.links());
    }
    let envelope = Envelope::new(RTT_SCHEMA, started_at, asked, result, Caveat::unique(all)).with_hosts(hosts);
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    let drawn = args.html.as_ref().map_or(Ok(()), |file| file.write(&page(&envelope), args.overwrite));
    print_result(&envelope, args.json, text::rtt::report);
    if let Some(failed) = report_unwritten([saved, drawn]) {
        return Ok(failed);
    }
    Ok(stop.requested().map_or(ExitCode::SUCCESS, |signal| ExitCode::from(exit_code(signal))))
}

/// Snapshots of both hosts at the end, as `longhaul host` shows them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProbingHosts {
    /// The host that sent probes.
    #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
    client: Value,
    /// The host that answered; `null` without longhaul's server.
    #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
    server: Option<Value>,
}

impl ProbingHosts {
    /// The rate of each host's link, where a host has only one with hardware, a carrier and a rate.
    fn links(&self) -> Vec<BitRate> {
        let link = |host: &Value| {
            let all = host["interfaces"].as_array()?.iter();
            let in_use = |link: &&Value| link["hardware"] == true && link["up"] == true && link["carrier"] == true;
            let mut rates = all.filter(in_use).map(|link| link["link_speed_bps"].as_u64());
            match (rates.next(), rates.next()) {
                (Some(rate), None) => rate.map(BitRate),
                _ => None,
            }
        };
        [Some(&self.client), self.server.as_ref()].into_iter().flatten().filter_map(link).collect()
    }

    fn of(end: Option<TestEnd>) -> Self {
        match end {
            None => Self { client: serde_json::to_value(HostSnapshot::take()).unwrap_or_default(), server: None },
            Some(end) => Self { client: end.local.host, server: end.remote.map(|remote| remote.host) },
        }
    }
}

fn page<H>(envelope: &Envelope<RttAsked, RttResult, H>) -> String {
    let about = AboutHost::of(&envelope.parameters.host, envelope);
    Report { about, result: &envelope.result, text: text::rtt::report(&envelope.result) }.html()
}

/// Who is probed: the server, or any host.
fn target(args: &Args, (kind, port): (ProbeKind, Option<u16>)) -> Result<Target, Failure> {
    let no_port = match kind {
        ProbeKind::Tcp => {
            Some("each probe is a connection, which needs a port of its own (--to-each-hop sends SYNs from one)")
        }
        ProbeKind::Icmp => Some(ICMP_HAS_NO_PORTS),
        ProbeKind::ClosedPort => None,
        // Round trips have ways without a server.
        ProbeKind::Udp => return args.reach.target_or(serve_or_echo),
    };
    let (address, source) = args.reach.address(port.unwrap_or(0), no_port)?;
    Ok(Target { address, key: None, source })
}

/// Probes `target`. Returns what is known at the end.
fn probe(
    target: &Target,
    kind: ProbeKind,
    parameters: &RttParameters,
    stop: Stop,
    measured: &mut Measured,
) -> Result<Ends, SessionError> {
    let Target { address, source, .. } = *target;
    let stopped = Some(stop);
    match kind {
        ProbeKind::Udp => return sessions::probe(target, parameters, stop, measured),
        ProbeKind::Tcp => probe_by_tcp(address, source, parameters, stopped, |one| measured.take(one)),
        ProbeKind::ClosedPort => probe_by_closed_port(address, source, parameters, stopped, |one| measured.take(one)),
        ProbeKind::Icmp => probe_by_echo(address, source, parameters, stopped, |one| measured.take(one)),
    }?;
    Ok(Ends::default())
}
