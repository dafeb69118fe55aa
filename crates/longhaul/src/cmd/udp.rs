//! `longhaul udp`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_emulator::Warning as PrintedWarning;
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_measure::client::{Family, Target, resolve};
use longhaul_session::control::{
    Affinity, Amount, Collect, Direction, Pace, Progress, SessionError, TestEnd, Timestamps, UdpParameters,
};
use longhaul_session::locate::Granularity;
use longhaul_session::result::{Setting, UdpResult, Warning};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde_json::json;

use super::serve::{PORT, in_lab};
use super::{key, udp_text};
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, print_json, print_text, print_warnings};

/// Payload that fills a packet of 1500 bytes on IPv4 or IPv6, and leaves room for a tunnel's header.
const DEFAULT_PAYLOAD: u32 = 1448;

/// Measure UDP to a host, and where each lost packet was lost
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul udp server -b 2400M -w 1M --wire -t 10")]
pub(crate) struct Args {
    /// Where `longhaul serve` runs
    host: String,
    /// Port of the control connection
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Payload bits a second of each stream; 0: as fast as it goes
    #[arg(short = 'b', long, value_name = "RATE", default_value = "1M", conflicts_with = "spacing")]
    rate: BitRate,
    /// Time from packet to packet instead of a rate
    #[arg(long, value_name = "TIME")]
    spacing: Option<Nanos>,
    /// Payload of each packet in bytes, 18 of which are the probe header
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = DEFAULT_PAYLOAD)]
    length: u32,
    /// Send for this time
    #[arg(short = 't', long, value_name = "TIME", default_value = "10s", conflicts_with_all = ["bytes", "packets"])]
    time: Nanos,
    /// Send this many payload bytes, all streams together
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "packets")]
    bytes: Option<Bytes>,
    /// Send this many packets, all streams together
    #[arg(short = 'k', long, value_name = "COUNT")]
    packets: Option<u64>,
    /// The server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Both send
    #[arg(long)]
    bidir: bool,
    /// Streams
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// Socket buffers at both ends
    #[arg(short = 'w', long, value_name = "SIZE")]
    sockbuf: Option<Bytes>,
    /// Neither UDP_SEGMENT nor UDP_GRO: each packet travels alone
    #[arg(long)]
    wire: bool,
    /// Packets that are sent back to back
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    burst: u32,
    /// Live lines this often
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// CPUs of sender and receiver, such as 0,1
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER]", value_delimiter = ',')]
    affinity: Vec<u16>,
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
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

impl Args {
    fn parameters(&self) -> Result<UdpParameters, Failure> {
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
        let parameters = UdpParameters {
            amount,
            pace,
            payload_bytes: self.length,
            streams: self.streams,
            direction: Direction::from_flags(self.reverse, self.bidir).map_err(Failure::usage)?,
            sockbuf_bytes: self.sockbuf.map(|size| size.0),
            wire: self.wire,
            burst_packets: self.burst,
            interval_ns: self.interval.map(|every| every.0),
            timestamps: Timestamps::App,
            affinity: Affinity {
                sender_cpus: self.affinity.first().copied().into_iter().collect(),
                receiver_cpus: self.affinity.get(1).copied().into_iter().collect(),
                ..Affinity::default()
            },
            collect: Collect::Auto,
        };
        parameters.validate().map_err(Failure::usage)?;
        Ok(parameters)
    }

    fn target(&self) -> Result<Target, Failure> {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        let address = resolve(&self.host, self.port, family).map_err(failure)?;
        let key = self.key.as_deref().map(key::load).transpose()?;
        if key.is_none() && !self.no_auth && !address.ip().is_loopback() && !in_lab() {
            return Err(Failure::usage(format!("{}: beyond this machine --key FILE is needed", self.host))
                .remedy("make one with `longhaul key new FILE`, or say --no-auth at both ends"));
        }
        Ok(Target { address, key })
    }
}

fn failure(error: SessionError) -> Failure {
    Failure::from_peer(error.code, error.message).remedy(error.remedy)
}

pub(crate) fn run(args: Args) -> Outcome {
    let parameters = args.parameters()?;
    let target = args.target()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let interval = args.interval.is_some();
    let mut before = Progress::default();
    let end = longhaul_measure::client::run(&target, parameters, Some(stop), |progress| {
        if interval || std::io::stderr().is_terminal() {
            eprintln!("{}", udp_text::live(&before, progress));
        }
        before = *progress;
    })
    .map_err(failure)?;

    let (results, warnings) = results(&end);
    if args.json {
        let parameters = json!({ "host": args.host, "address": target.address, "udp": end.parameters });
        let mut result = json!({});
        for (name, direction) in &results {
            result[*name] = serde_json::to_value(direction).map_err(|error| Failure::new("json", error))?;
        }
        // One direction is the result itself.
        let result = match &results[..] {
            [(_, only)] => serde_json::to_value(only).map_err(|error| Failure::new("json", error))?,
            _ => result,
        };
        let server = end.remote.as_ref().map(|remote| &remote.host);
        let hosts = json!({ "client": end.local.host, "server": server });
        print_json(&Envelope::new("longhaul.udp/1", started_at, parameters, result, warnings).with_hosts(hosts));
    } else {
        for (name, result) in &results {
            print_text(&udp_text::result(name, &end.parameters, result));
        }
        print_warnings(&warnings);
    }
    Ok(match stop.requested() {
        Some(StopSignal::Interrupt) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

/// The result of each direction that was tested, and all doubts.
fn results(end: &TestEnd) -> (Vec<(&'static str, UdpResult)>, Vec<PrintedWarning>) {
    let mut warnings: Vec<Warning> = end.warnings.clone();
    warnings.extend(end.local.warnings.iter().cloned());
    warnings.extend(end.remote.iter().flat_map(|remote| remote.warnings.iter().cloned()));
    let mut results = Vec::new();
    for (name, backward) in [("forward", false), ("backward", true)] {
        let Some((sender, receiver)) = end.direction(backward) else { continue };
        let granularity = if end.parameters.wire { Granularity::Wire } else { Granularity::Superpacket };
        let setting = Setting { payload_bytes: end.parameters.payload_bytes, granularity };
        let assembled = UdpResult::assemble(setting, sender, receiver);
        warnings.extend(assembled.warnings);
        results.push((name, assembled.result));
    }
    let printed =
        |warning: Warning| PrintedWarning { code: warning.code, message: warning.message, remedy: warning.remedy };
    (results, warnings.into_iter().map(printed).collect())
}
