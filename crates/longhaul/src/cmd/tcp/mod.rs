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
use longhaul_session::{TestEnd, results};
use longhaul_tcp::{CongestionStep, TcpParameters, WindowAuto};
use longhaul_terms::{Affinity, Amount, Collect, TestDirection};
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::args::listen::in_lab;
use crate::cmd::serve::PORT;
use crate::cmd::tcp::live::Live;
use crate::cmd::udp::live::Show;
use crate::cmd::udp::{exit_code, failure, hosts, no_report, target, word};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Between live lines where none was asked for.
const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);
/// How long a test takes where nothing else says so.
const DEFAULT_TIME: Nanos = Nanos::from_secs(10);
/// The file with the samples, beside the result.
const SAMPLES: &str = "samples.parquet";

const EXAMPLES: &str = "\
Example:
  longhaul tcp server -t 30s -P 4 -o monday            # keep the result and all samples
  longhaul tcp server -w auto --rate-goal 10G          # a window as large as the path
  longhaul tcp server -C reno:20s,cubic:20s -i 1s      # switched in mid-flow
  longhaul show monday

docs/reference/tcp-results.md tells what each number of the result means.";

/// Measure TCP to a host: how fast, what limits it, where it loses bytes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where `longhaul serve` runs
    host: String,
    /// Port of the control connection
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Send for this time [default: 10s, or as long as all steps of -C take]
    #[arg(short = 't', long, value_name = "TIME", conflicts_with = "bytes")]
    time: Option<Nanos>,
    /// Send this many payload bytes, all flows together
    #[arg(short = 'n', long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Flows, a thread each
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// The server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Both send
    #[arg(long)]
    bidir: bool,
    /// Socket buffers at both ends; auto: as large as --rate-goal and the round-trip time make the path
    ///
    /// Without it the kernel's autotuning stays on, up to net.ipv4.tcp_wmem and tcp_rmem.
    #[arg(short = 'w', long, value_name = "SIZE|auto")]
    window: Option<Window>,
    /// The rate that the path should carry, payload bits a second of all flows
    #[arg(long, value_name = "RATE")]
    rate_goal: Option<BitRate>,
    /// Congestion control of the sender, or several one after the other, each with its time
    #[arg(short = 'C', long, value_name = "NAME[:TIME],…", value_delimiter = ',')]
    congestion: Vec<Step>,
    /// Largest segment
    #[arg(short = 'M', long, value_name = "BYTES")]
    mss: Option<u32>,
    /// A flow sends at most this fast, spaced by the kernel (SO_MAX_PACING_RATE)
    #[arg(long, value_name = "RATE")]
    pace: Option<BitRate>,
    /// The sending application writes at this rate, each flow
    #[arg(short = 'b', long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// The receiving application reads at this rate, each flow
    #[arg(long, value_name = "RATE")]
    read_rate: Option<BitRate>,
    /// Bytes of each write
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "512K")]
    length: Bytes,
    /// Send with sendfile(2), without a copy
    #[arg(long)]
    zerocopy: bool,
    /// Use MPTCP, where both kernels have it
    #[arg(long)]
    mptcp: bool,
    /// Without selective acknowledgements; on a host of a lab alone
    #[arg(long)]
    no_sack: bool,
    /// Without TCP's time stamps; on a host of a lab alone
    #[arg(long)]
    no_timestamps: bool,
    /// Do not count this time at the beginning
    #[arg(long, value_name = "TIME", default_value = "0s")]
    omit: Nanos,
    /// A line for each such time; 0: none
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Time between samples of TCP_INFO
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: Nanos,
    /// CPUs of sender and receiver, such as 0,1
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER]", value_delimiter = ',')]
    affinity: Vec<u16>,
    /// How losses are placed: by the kernel's drop events, by counters, by what can be had, or not
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = word::<Collect>(&["auto", "bpf", "counters", "off"])
    )]
    collect: Collect,
    /// IPv4 alone
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 alone
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// The key that the server has
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    key: Option<PathBuf>,
    /// Test unencrypted, with a server that does the same
    #[arg(long)]
    no_auth: bool,
    /// Save the result in this folder: result.json, and samples.parquet with every TCP_INFO field over time
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON: a line for each interval, then the result
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
            return Err(Failure::usage(format!("-A {given}: one CPU each for sender and receiver")));
        }
        let cpu = |place: usize| self.affinity.get(place).copied().into_iter().collect();
        let window_auto = match (self.window, self.rate_goal) {
            (Some(Window::Auto), None) => {
                return Err(Failure::usage("-w auto: --rate-goal RATE is needed, the rate that the window is for"));
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
                    "{flag}: it changes a sysctl of the whole host, so only a lab's hosts may"
                ))
                .remedy(format!("run it as longhaul lab exec client -- longhaul tcp server {flag}")));
            }
        }
        let parameters = TcpParameters {
            amount,
            streams: self.streams,
            direction: TestDirection::from_flags(self.reverse, self.bidir).map_err(Failure::usage)?,
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
        parameters.validate().map_err(Failure::usage)?;
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
        (Err(error), Some(signal)) => return Err(failure(error).exit(exit_code(signal))),
        (Err(error), None) => return Err(failure(error)),
    };

    let ipv6 = target.address.ip().to_canonical().is_ipv6();
    let (Some(tcp), Some((mut results, mut caveats))) = (end.parameters.tcp().cloned(), results::tcp(&end, ipv6))
    else {
        return Err(no_report());
    };
    if stop.requested().is_some() {
        caveats.push(Caveat::new(caveats::INTERRUPTED, "the test was ended before its time", "let it run to its end"));
    }
    if let Some(folder) = &folder {
        match save_samples(folder, &end) {
            Ok(()) => results.each(|result| result.samples_file = Some(SAMPLES.into())),
            Err(error) => caveats.push(Caveat::new(caveats::SAMPLES_NOT_SAVED, error, "make room, and run it again")),
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
        // The result is printed, and with --json it is the one object.
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
