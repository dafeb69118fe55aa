//! `longhaul tcp`.

pub(crate) mod live;

use std::path::PathBuf;
use std::str::FromStr;

use longhaul_report::html::over_time::tcp::Report;
use longhaul_report::parquet::{End, write_samples};
use longhaul_report::saved::{TCP_SCHEMA, TcpAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_session::{TestEnd, kind};
use longhaul_tcp::{CongestionStep, MAX_SAMPLES, TcpParameters, WindowAuto};
use longhaul_terms::{Affinity, Amount};
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::args::listen::in_lab;
use crate::args::marks::Marks;
use crate::args::quantity::seconds;
use crate::caveats;
use crate::cmd::tcp::live::Live;
use crate::cmd::test::{TestArgs, no_report};
use crate::output::saved::Folder;
use crate::output::{Failure, Outcome};

/// The default duration of a test.
const DEFAULT_TIME: Nanos = Nanos::from_secs(10);
/// The file with the samples, next to the result.
const SAMPLES: &str = "samples.parquet";

const EXAMPLES: &str = "\
Example:
  longhaul tcp server -t 30s -P 4 -o monday            # keep the result and all samples
  longhaul tcp server -w auto --rate-goal 10G          # a window of the bandwidth-delay product
  longhaul tcp server -C reno:20s,cubic:20s -i 1s      # switch during the flow
  longhaul tcp server -t 30s --html page.html          # what limits it, over time
  longhaul show monday

`longhaul docs tcp-results` explains each number of the result.";

/// Send TCP to a host; say how fast it is, what limits it, where it loses bytes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Send for this time [default: 10s, or the sum of all times of -C]
    #[arg(short = 't', long, value_name = "TIME", conflicts_with = "bytes", value_parser = seconds)]
    time: Option<Nanos>,
    /// Send this many payload bytes, over all streams
    #[arg(short = 'n', long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Send this many streams in parallel, each with a thread of its own
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// Set the socket buffers at both ends (auto: --rate-goal × round-trip time)
    ///
    /// Without -w the kernel tunes the buffers, up to net.ipv4.tcp_wmem and tcp_rmem.
    #[arg(short = 'w', long, value_name = "SIZE|auto")]
    window: Option<Window>,
    /// Expect this rate of the path: payload bits per second of all streams, for -w auto and the RFC 6349 ratio
    #[arg(long, value_name = "RATE")]
    rate_goal: Option<BitRate>,
    /// Use this congestion control at the sender; with several, switch from one to the next after its TIME
    #[arg(short = 'C', long, value_name = "NAME[:TIME],…", value_delimiter = ',')]
    congestion: Vec<CongestionStep>,
    /// Send segments of at most this payload size
    #[arg(short = 'M', long, value_name = "BYTES")]
    mss: Option<u32>,
    /// Let the kernel pace each stream at this rate or less (SO_MAX_PACING_RATE)
    #[arg(long, value_name = "RATE")]
    pace: Option<BitRate>,
    #[command(flatten)]
    marks: Marks,
    /// Write at this rate in the sending application, for each stream
    #[arg(short = 'b', long, aliases = ["bandwidth", "bitrate"], value_name = "RATE")]
    rate: Option<BitRate>,
    /// Read at this rate in the receiving application, for each stream
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
    /// Take a sample of TCP_INFO every TIME
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: Nanos,
    /// Run sender and receiver on these CPUs, such as 0,1
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER]", value_delimiter = ',')]
    affinity: Vec<u16>,
    /// Save the result in this folder: result.json, and samples.parquet with all TCP_INFO fields over time
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    test: TestArgs,
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

impl Args {
    fn parameters(&self) -> Result<TcpParameters, Failure> {
        let congestion = self.congestion.clone();
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
            direction: self.test.direction()?,
            window_bytes: if let Some(Window::Size(size)) = self.window { Some(size.0) } else { None },
            window_auto,
            rate_goal_bps: self.rate_goal.map(|rate| rate.0),
            congestion,
            mss_bytes: self.mss,
            pace_bps: self.pace.map(|rate| rate.0),
            traffic_class: self.marks.traffic_class(),
            block_bytes: u32::try_from(self.length.0).unwrap_or(u32::MAX),
            zerocopy: self.zerocopy,
            mptcp: self.mptcp,
            no_sack: self.no_sack,
            no_timestamps: self.no_timestamps,
            omit_ns: self.omit.0,
            interval_ns: self.test.interval_ns(),
            sample_ns: self.sample.0,
            keep_samples: self.output.is_some() || self.test.html.is_some(),
            affinity: Affinity { sender_cpus: cpu(0), receiver_cpus: cpu(1), ..Affinity::default() },
            collect: self.test.collect,
            write_rate_bps: self.rate.map(|rate| rate.0),
            read_rate_bps: self.read_rate.map(|rate| rate.0),
            transfers: None,
        };
        parameters.validate()?;
        Ok(parameters)
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut live = Live::new(args.test.direction()?.client_sends());
    let tested = args.test.run(args.parameters()?, args.output, |progress, lines| live.take(progress, lines))?;
    let ipv6 = tested.address.ip().to_canonical().is_ipv6();
    let (mut results, mut caveats) = kind::tcp::results(&tested.end, ipv6).ok_or_else(|| no_report(&tested.end))?;
    results.each(|result| result.latency = tested.latency);
    if let Some(folder) = &tested.folder {
        match save_samples(folder, &tested.end) {
            Ok(()) => results.each(|result| result.samples_file = Some(SAMPLES.into())),
            Err(error) => caveats.push(Caveat::new(
                caveats::SAMPLES_NOT_SAVED,
                error,
                "free space on the disk, or give another folder, and run the test again",
            )),
        }
    }
    let tcp = tested.end.parameters.tcp().cloned().unwrap_or_default();
    let asked = TcpAsked { host: args.test.reach.host, address: tested.address, tcp };
    let title = format!("TCP to {}", asked.host);
    let client_sends = asked.tcp.direction.client_sends();
    let text = |asked: &TcpAsked, results: &_| text::tcp::report(&asked.tcp, results);
    tested.report(TCP_SCHEMA, (title, asked), results, caveats, text, |end, results, tested| {
        // Without samples, or with damaged ones, the page says that there are none.
        let ends = samples(end).unwrap_or_default();
        Report { tested, results, client_sends, ends: &ends, dropped: &live.dropped }.html()
    })
}

/// All samples of both ends: of the server no more than the test can have.
fn samples(end: &TestEnd) -> Result<Vec<End<'_>>, String> {
    let own = end.local.tcp.as_ref();
    let other = end.remote.as_ref().and_then(|remote| remote.tcp.as_ref());
    let most = own.map_or(MAX_SAMPLES, |own| own.sampling.most_of_other_end());
    let reports = [(own, MAX_SAMPLES), (other, most)];
    reports.into_iter().filter_map(|(report, most)| Some(End::of_test(report?, most))).collect()
}

fn save_samples(folder: &Folder, end: &TestEnd) -> Result<(), String> {
    let ends = samples(end)?;
    folder.write(SAMPLES, |file| write_samples(file, &ends))
}
