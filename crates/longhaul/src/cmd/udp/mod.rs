//! `longhaul udp`.

pub(crate) mod live;

use crate::caveats;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_peer::client::{Family, Target, resolve};
use longhaul_report::parquet::write_losses;
use longhaul_report::saved::{UDP_SCHEMA, UdpAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_session::kind::udp::SaveLosses;
use longhaul_session::{TestEnd, kind};
use longhaul_terms::{Affinity, Amount, Collect, Directions, SoftirqPlacement, TestDirection};
use longhaul_udp::locate::Loss;
use longhaul_udp::{Pace, Timestamps, UdpParameters, UdpResult};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde_json::{Value, json};

use crate::args::key;
use crate::args::listen::in_lab;
use crate::cmd::serve::PORT;
use crate::cmd::udp::live::{Live, Show};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, print_caveats, print_json, print_text};

/// Payload of a packet of at most 1500 bytes on IPv4 or IPv6, with room for a tunnel's header.
const DEFAULT_PAYLOAD: u32 = 1448;
/// The default time between live lines.
const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);

const EXAMPLES: &str = "\
Example:
  longhaul udp server -b 2400M -w 1M --wire -t 10s
  longhaul udp server -b 2400M -w 2M --softirq same    # receiver and its softirq on one CPU
  longhaul udp server -R -b 1G -i 1s -o monday      # the server sends; keep the result
  longhaul show monday

docs/reference/udp-results.md explains each number of the result.";

/// Send UDP to a host; say where each lost packet was lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Test against this host, where `longhaul serve` runs
    host: String,
    /// Connect to this port of the server
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Send this many payload bits per second and stream (0: as fast as possible)
    #[arg(short = 'b', long, value_name = "RATE", default_value = "1M", conflicts_with = "spacing")]
    rate: BitRate,
    /// Send one packet every TIME, instead of at a rate
    #[arg(long, value_name = "TIME")]
    spacing: Option<Nanos>,
    /// Send this many payload bytes per packet, including 18 bytes of probe header
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = DEFAULT_PAYLOAD)]
    length: u32,
    /// Send for this time
    #[arg(short = 't', long, value_name = "TIME", default_value = "10s", conflicts_with_all = ["bytes", "packets"])]
    time: Nanos,
    /// Send this many payload bytes, over all streams
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "packets")]
    bytes: Option<Bytes>,
    /// Send this many packets, over all streams
    #[arg(short = 'k', long, value_name = "COUNT")]
    packets: Option<u64>,
    /// Send from the server to the client
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Send in both directions at the same time
    #[arg(long)]
    bidir: bool,
    /// Send this many streams in parallel
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// Set the socket buffers at both ends
    #[arg(short = 'w', long, value_name = "SIZE")]
    sockbuf: Option<Bytes>,
    /// Send and receive each packet alone, without UDP_SEGMENT and UDP_GRO
    #[arg(long)]
    wire: bool,
    /// Send this many packets back to back
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    burst: u32,
    /// Report every TIME (0: never) [default: 1s on a terminal or with --json-stream]
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Run sender, receiver and the receiver's softirq on these CPUs, such as 0,1,0
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER[,SOFTIRQ]]", value_delimiter = ',')]
    affinity: Vec<u16>,
    /// Run the receiver and its softirq on the same CPU, or on two (split), by RPS
    ///
    /// The receiving host sets rps_cpus of its interface, so longhaul must run as root there. The NIC's interrupts stay on the CPUs of
    /// their affinity (see `longhaul host`); RPS moves the work of the stack that follows them.
    #[arg(long, value_name = "HOW", value_parser = word::<SoftirqPlacement>(&["same", "split"]))]
    softirq: Option<SoftirqPlacement>,
    /// Take arrival times in the application, in the kernel, or from the NIC
    #[arg(long, value_name = "WHERE", default_value = "app", value_parser = word::<Timestamps>(&["app", "kernel", "nic"]))]
    timestamps: Timestamps,
    /// Locate losses by the kernel's drop events (bpf), by counters, by the best that each host allows (auto), or not at all
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = word::<Collect>(&["auto", "bpf", "counters", "off"])
    )]
    collect: Collect,
    /// Use only IPv4
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Authenticate and encrypt with this key; the server needs the same one
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    key: Option<PathBuf>,
    /// Test without encryption, with a server that does the same
    #[arg(long)]
    no_auth: bool,
    /// Save the result in this folder: result.json, and losses.parquet if it has more than 10,000 runs of losses
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON lines: one per interval, then the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
}

/// A parser of the values that a parameter has in JSON.
pub(crate) fn word<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(Value::String(word)))
}

impl Args {
    fn parameters(&self, show: Show) -> Result<UdpParameters, Failure> {
        let amount = match (self.bytes, self.packets) {
            (Some(bytes), _) => Amount::Bytes(bytes.0),
            (None, Some(packets)) => Amount::Packets(packets),
            (None, None) => Amount::DurationNs(self.time.0),
        };
        let pace = match (self.spacing, self.rate) {
            (Some(gap), _) => Pace::SpacingNs(gap.0),
            (None, BitRate(0)) => Pace::Unlimited,
            (None, rate) => Pace::RateBps(rate.0),
        };
        if self.affinity.len() > 3 {
            let given = self.affinity.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            return Err(Failure::usage(format!("-A {given}: give one CPU each for sender, receiver and softirq")));
        }
        let cpu = |place: usize| self.affinity.get(place).copied().into_iter().collect();
        let parameters = UdpParameters {
            amount,
            pace,
            payload_bytes: self.length,
            streams: self.streams,
            direction: direction(self.reverse, self.bidir)?,
            sockbuf_bytes: self.sockbuf.map(|size| size.0),
            wire: self.wire,
            burst_packets: self.burst,
            interval_ns: match self.interval {
                Some(Nanos(0)) => None,
                None if show == Show::Nothing => None,
                every => Some(every.unwrap_or(DEFAULT_INTERVAL).0),
            },
            timestamps: self.timestamps,
            affinity: Affinity {
                sender_cpus: cpu(0),
                receiver_cpus: cpu(1),
                softirq_cpus: cpu(2),
                softirq: self.softirq,
            },
            collect: self.collect,
        };
        parameters.validate()?;
        Ok(parameters)
    }
}

/// The server's address, and the key for it.
pub(crate) fn target(
    host: &str,
    port: u16,
    (ipv4, ipv6): (bool, bool),
    key: Option<&Path>,
    no_auth: bool,
) -> Result<Target, Failure> {
    let family = match (ipv4, ipv6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => None,
    };
    let address = resolve(host, port, family)?;
    let key = key.map(key::load).transpose()?;
    if key.is_none() && !no_auth && !address.ip().is_loopback() && !in_lab() {
        return Err(Failure::usage(format!("{host} is another machine: a test needs --key FILE"))
            .remedy("make a key with `longhaul key new FILE` and copy it to both hosts, or use --no-auth at both"));
    }
    Ok(Target { address, key })
}

/// The direction for `-R` and `--bidir`.
pub(crate) fn direction(reverse: bool, bidir: bool) -> Result<TestDirection, Failure> {
    match (reverse, bidir) {
        (false, false) => Ok(TestDirection::Forward),
        (true, false) => Ok(TestDirection::Reverse),
        (false, true) => Ok(TestDirection::Bidirectional),
        (true, true) => Err(Failure::usage("-R with --bidir: use only one of them: --bidir sends in both directions")),
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let show = Show::choose(args.interval, args.json, args.json_stream);
    let parameters = args.parameters(show)?;
    let target = target(&args.host, args.port, (args.ipv4, args.ipv6), args.key.as_deref(), args.no_auth)?;
    let folder = args.output.clone().map(Folder::prepare).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let mut live = Live::new(show);
    let end = longhaul_peer::client::run(&target, parameters, Some(stop), |progress| live.take(progress));
    live.end();
    let end = match (end, stop.requested()) {
        (Ok(end), _) => end,
        (Err(error), Some(signal)) => return Err(Failure::from(error).exit(exit_code(signal))),
        (Err(error), None) => return Err(error.into()),
    };

    let (udp, results, mut caveats) = results(&end, folder.as_ref()).ok_or_else(no_report)?;
    if stop.requested().is_some() {
        caveats.push(Caveat::new(
            caveats::INTERRUPTED,
            "the test was interrupted before its end",
            "let it run to its end",
        ));
    }
    let parameters = UdpAsked { host: args.host, address: target.address, udp };
    let hosts = hosts(&end);
    let envelope = Envelope::new(UDP_SCHEMA, started_at, parameters, results, caveats).with_hosts(hosts);
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    if args.json || args.json_stream {
        print_json(&envelope);
    } else {
        print_text(&text::udp::report(&envelope.parameters.udp, &envelope.result));
    }
    print_caveats(&envelope.caveats);
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    Ok(stop.requested().map_or(ExitCode::SUCCESS, |signal| ExitCode::from(exit_code(signal))))
}

/// The parameters, the result of each direction and all caveats. If the losses are too many to list, a file of `folder` has them.
fn results(end: &TestEnd, folder: Option<&Folder>) -> Option<(UdpParameters, Directions<UdpResult>, Vec<Caveat>)> {
    let mut save = folder.map(|folder| {
        move |ending: &str, all: &mut dyn Iterator<Item = Loss>| {
            let name = format!("losses{ending}.parquet");
            folder.write(&name, |file| write_losses(file, all)).map(|()| name)
        }
    });
    let save = save.as_mut().map(|save| save as &mut SaveLosses<'_>);
    let (results, caveats) = kind::udp::results(end, save)?;
    Some((end.parameters.udp()?.clone(), results, caveats))
}

/// The server's report lacks the data that a result needs.
pub(crate) fn no_report() -> Failure {
    Failure::new("no_report", "the server's report has no result")
        .remedy("use the same version of longhaul at both ends")
}

/// The exit code that a shell reports for a program ended by a signal: 128 plus the signal's number.
pub(crate) fn exit_code(signal: StopSignal) -> u8 {
    match signal {
        StopSignal::Interrupt => INTERRUPTED,
        StopSignal::Terminate => 128 + 15,
        StopSignal::HangUp => 128 + 1,
    }
}

/// Snapshots of both hosts, by role: sender and receiver, or client and server if both sent.
pub(crate) fn hosts(end: &TestEnd) -> Value {
    let client = &end.local.host;
    let server = end.remote.as_ref().map(|remote| &remote.host);
    match end.parameters.kind().direction() {
        TestDirection::Forward => json!({ "sender": client, "receiver": server }),
        TestDirection::Reverse => json!({ "sender": server, "receiver": client }),
        TestDirection::Bidirectional => json!({ "client": client, "server": server }),
    }
}
