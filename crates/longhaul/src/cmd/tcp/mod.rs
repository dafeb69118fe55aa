//! `longhaul tcp`.

pub(crate) mod live;

use crate::caveats;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use longhaul_kernel::signals::Stop;
use longhaul_report::parquet::{End, write_samples};
use longhaul_report::saved::{TCP_SCHEMA, TcpAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_session::{TestEnd, kind};
use longhaul_tcp::{CongestionStep, TcpParameters, WindowAuto};
use longhaul_terms::{Affinity, Amount, Collect};
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::args::listen::in_lab;
use crate::cmd::serve::PORT;
use crate::cmd::tcp::live::Live;
use crate::cmd::udp::live::Show;
use crate::cmd::udp::{direction, exit_code, hosts, no_report, target, word};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// The default time between live lines.
const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);
/// The default duration of a test.
const DEFAULT_TIME: Nanos = Nanos::from_secs(10);
/// The file with the samples, next to the result.
const SAMPLES: &str = "samples.parquet";

const EXAMPLES: &str = "\
Example:
  longhaul tcp server -t 30s -P 4 -o monday            # keep the result and all samples
  longhaul tcp server -w auto --rate-goal 10G          # a window of the bandwidth-delay product
  longhaul tcp server -C reno:20s,cubic:20s -i 1s      # switch during the flow
  longhaul show monday

docs/reference/tcp-results.md explains each number of the result.";

/// Send TCP to a host; say how fast it is, what limits it, where it loses bytes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Test against this host, where `longhaul serve` runs
    host: String,
    /// Connect to this port of the server
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Send for this time [default: 10s, or the sum of all times of -C]
    #[arg(short = 't', long, value_name = "TIME", conflicts_with = "bytes")]
    time: Option<Nanos>,
    /// Send this many payload bytes, over all flows
    #[arg(short = 'n', long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Send this many flows in parallel, each with a thread of its own
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// Send from the server to the client
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Send in both directions at the same time
    #[arg(long)]
    bidir: bool,
    /// Set the socket buffers at both ends (auto: --rate-goal × round-trip time)
    ///
    /// Without -w the kernel tunes the buffers, up to net.ipv4.tcp_wmem and tcp_rmem.
    #[arg(short = 'w', long, value_name = "SIZE|auto")]
    window: Option<Window>,
    /// Expect this rate of the path: payload bits per second of all flows, for -w auto and the RFC 6349 ratio
    #[arg(long, value_name = "RATE")]
    rate_goal: Option<BitRate>,
    /// Use this congestion control at the sender; with several, switch from one to the next after its TIME
    #[arg(short = 'C', long, value_name = "NAME[:TIME],…", value_delimiter = ',')]
    congestion: Vec<Step>,
    /// Send segments of at most this payload size
    #[arg(short = 'M', long, value_name = "BYTES")]
    mss: Option<u32>,
    /// Let the kernel pace each flow at this rate or less (SO_MAX_PACING_RATE)
    #[arg(long, value_name = "RATE")]
    pace: Option<BitRate>,
    /// Write at this rate in the sending application, for each flow
    #[arg(short = 'b', long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Read at this rate in the receiving application, for each flow
    #[arg(long, value_name = "RATE")]
    read_rate: Option<BitRate>,
    /// Write this many bytes per system call
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "512K")]
    length: Bytes,
    /// Send with sendfile(2), without a copy
    #[arg(long)]
    zerocopy: bool,
    /// Use MPTCP, if both kernels support it
    #[arg(long)]
    mptcp: bool,
    /// Disable selective acknowledgements; only on a host of a lab
    #[arg(long)]
    no_sack: bool,
    /// Disable TCP time stamps; only on a host of a lab
    #[arg(long)]
    no_timestamps: bool,
    /// Leave this time at the beginning out of the result
    #[arg(long, value_name = "TIME", default_value = "0s")]
    omit: Nanos,
    /// Report every TIME (0: never) [default: 1s on a terminal or with --json-stream]
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Take a sample of TCP_INFO every TIME
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: Nanos,
    /// Run sender and receiver on these CPUs, such as 0,1
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER]", value_delimiter = ',')]
    affinity: Vec<u16>,
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
    /// Save the result in this folder: result.json, and samples.parquet with all TCP_INFO fields over time
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON lines: one per interval, then the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
}

/// What `-w` takes.
#[derive(Debug, Clone, Copy)]
enum Window {
    Auto,
    Size(Bytes),
}

impl FromStr for Window {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Size).map_err(|error| format!("auto, or a size: {error}")),
        }
    }
}

/// A step of `-C`.
#[derive(Debug, Clone)]
struct Step(CongestionStep);

impl FromStr for Step {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = match text.split_once(':') {
            None => (text, None),
            Some((name, time)) => {
                let time: Nanos = time.parse().map_err(|error| format!("{name}: {error}"))?;
                (name, Some(time.0))
            }
        };
        Ok(Self(CongestionStep { name: name.to_owned(), duration_ns: time }))
    }
}

impl Args {
    fn parameters(&self, show: Show) -> Result<TcpParameters, Failure> {
        let congestion: Vec<CongestionStep> = self.congestion.iter().map(|step| step.0.clone()).collect();
        let scheduled: Option<u64> = congestion
            .iter()
            .try_fold(0_u64, |sum, step| Some(sum.saturating_add(step.duration_ns?)))
            .filter(|sum| *sum > 0);
        let amount = match (self.bytes, self.time) {
            (Some(bytes), _) => Amount::Bytes(bytes.0),
            (None, Some(time)) => Amount::DurationNs(time.0),
            (None, None) => Amount::DurationNs(scheduled.unwrap_or(DEFAULT_TIME.0)),
        };
        if self.affinity.len() > 2 {
            let given = self.affinity.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            return Err(Failure::usage(format!("-A {given}: give one CPU each for sender and receiver")));
        }
        let cpu = |place: usize| self.affinity.get(place).copied().into_iter().collect();
        let window_auto = match (self.window, self.rate_goal) {
            (Some(Window::Auto), None) => {
                return Err(Failure::usage("-w auto needs --rate-goal RATE, the rate to compute the window for"));
            }
            // Flows share the path.
            (Some(Window::Auto), Some(goal)) => {
                Some(WindowAuto { rtt_ns: 0, rate_goal_bps: goal.0 / u64::from(self.streams.max(1)) })
            }
            _ => None,
        };
        for (flag, given) in [("--no-sack", self.no_sack), ("--no-timestamps", self.no_timestamps)] {
            if given && !in_lab() {
                return Err(Failure::usage(format!(
                    "{flag} changes a sysctl of the whole host, so it works only on a host of a lab"
                ))
                .remedy(format!("run it as longhaul lab exec client -- longhaul tcp server {flag}")));
            }
        }
        let parameters = TcpParameters {
            amount,
            streams: self.streams,
            direction: direction(self.reverse, self.bidir)?,
            window_bytes: if let Some(Window::Size(size)) = self.window { Some(size.0) } else { None },
            window_auto,
            rate_goal_bps: self.rate_goal.map(|rate| rate.0),
            congestion,
            mss_bytes: self.mss,
            pace_bps: self.pace.map(|rate| rate.0),
            block_bytes: u32::try_from(self.length.0).unwrap_or(u32::MAX),
            zerocopy: self.zerocopy,
            mptcp: self.mptcp,
            no_sack: self.no_sack,
            no_timestamps: self.no_timestamps,
            omit_ns: self.omit.0,
            interval_ns: match self.interval {
                Some(Nanos(0)) => None,
                None if show == Show::Nothing => None,
                every => Some(every.unwrap_or(DEFAULT_INTERVAL).0),
            },
            sample_ns: self.sample.0,
            keep_samples: self.output.is_some(),
            affinity: Affinity { sender_cpus: cpu(0), receiver_cpus: cpu(1), ..Affinity::default() },
            collect: self.collect,
            write_rate_bps: self.rate.map(|rate| rate.0),
            read_rate_bps: self.read_rate.map(|rate| rate.0),
        };
        parameters.validate()?;
        Ok(parameters)
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

    let ipv6 = target.address.ip().to_canonical().is_ipv6();
    let (Some(tcp), Some((mut results, mut caveats))) = (end.parameters.tcp().cloned(), kind::tcp::results(&end, ipv6))
    else {
        return Err(no_report());
    };
    if stop.requested().is_some() {
        caveats.push(Caveat::new(
            caveats::INTERRUPTED,
            "the test was interrupted before its end",
            "let it run to its end",
        ));
    }
    if let Some(folder) = &folder {
        match save_samples(folder, &end) {
            Ok(()) => results.each(|result| result.samples_file = Some(SAMPLES.into())),
            Err(error) => caveats.push(Caveat::new(
                caveats::SAMPLES_NOT_SAVED,
                error,
                "free space on the disk, and run the test again",
            )),
        }
    }
    let parameters = TcpAsked { host: args.host, address: target.address, tcp };
    let envelope =
        Envelope::new(TCP_SCHEMA, started_at, parameters, results, Caveat::unique(caveats)).with_hosts(hosts(&end));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    if args.json || args.json_stream {
        print_json(&envelope);
    } else {
        print_text(&text::tcp::report(&envelope.parameters.tcp, &envelope.result));
    }
    print_caveats(&envelope.caveats);
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    Ok(stop.requested().map_or(ExitCode::SUCCESS, |signal| ExitCode::from(exit_code(signal))))
}

/// All samples of both ends.
fn save_samples(folder: &Folder, end: &TestEnd) -> Result<(), String> {
    let reports = [Some(&end.local), end.remote.as_ref()];
    let streams = reports.iter().flatten().filter_map(|report| report.tcp.as_ref()).map(|tcp| &tcp.streams);
    let ends: Vec<End<'_>> = streams.map(|streams| End::of_test(streams)).collect::<Result<_, _>>()?;
    folder.write(SAMPLES, |file| write_samples(file, &ends))
}
