//! `longhaul filter attach` and `longhaul filter follow`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::ValueEnum;
use longhaul_bpf::filter::{Allow, Filter, FilterOptions, Mode};
use longhaul_filter::{Following, obstacles, too_many_addresses};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Link, Netlink};
use longhaul_kernel::signals::Stop;
use longhaul_units::Nanos;

use crate::args::quantity::seconds;
use crate::cmd::filter::sample::SampleFile;
use crate::cmd::filter::status::{mode_in_words, not_read, report};
use crate::cmd::filter::{failure, interface, no_link, not_followed, prometheus};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::{PrometheusArgs, Textfile};
use crate::output::{Failure, Outcome, print_caveats, say};

/// How often `--prometheus` is written.
const METRICS_INTERVAL: Nanos = Nanos::from_secs(1);
/// For so long the filter goes on sampling without a look of this process: so long a disk may keep it.
const SAMPLED_FOR: Nanos = Nanos::from_secs(5);

/// Attach the filter to an interface, and replace an attached one; it counts, and drops only with --enforce or --for
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul filter attach eth0                       # counts until Ctrl-C
  longhaul filter attach eth0 --pin --for 60s       # drops for a minute alone
  longhaul filter confirm eth0                      # keeps dropping
  longhaul filter attach eth0 --enforce --ports listening --allow 10.0.0.0/8 --allow 5353")]
pub(crate) struct AttachArgs {
    /// Attach to this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Drop rejected frames
    #[arg(long)]
    enforce: bool,
    /// Drop rejected frames for this time, then only count, unless `longhaul filter confirm` runs before; needs no process
    #[arg(long = "for", value_name = "TIME")]
    enforce_for: Option<Nanos>,
    /// Keep the filter until `longhaul filter detach`, and end this process at once
    #[arg(long, conflicts_with_all = ["time", "sample", "json", "prometheus"])]
    pin: bool,
    /// Run in the driver (native) or in the stack (generic, works with any driver) [default: native where the driver can]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Reject packets to TCP and UDP ports of this host that have no listening socket and no connection
    #[arg(long, value_enum)]
    ports: Option<PortsArg>,
    /// Never reject by IP address or port: packets from this network, or to this port
    #[arg(long, value_name = "CIDR|PORT")]
    allow: Vec<AllowArg>,
    /// Drop even if the interface is part of a bridge or bond, is shared, forwards, or is being captured; also replace existing files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    staying: Staying,
}

/// Keep a pinned filter up to date with this host's addresses; without it, the filter accepts all frames that a change of addresses may affect
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul filter follow eth0")]
pub(crate) struct FollowArgs {
    /// Follow the filter at this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    staying: Staying,
}

/// Options of a process that stays with its filter.
#[derive(Debug, clap::Args)]
struct Staying {
    /// Run for this time [default: until Ctrl-C]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    time: Option<Nanos>,
    /// Write header snippets of rejected frames to this file (pcapng)
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Write one in N rejected frames
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sample", value_parser = clap::value_parser!(u64).range(1..))]
    sample_every: u64,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    /// Print the counters as JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    Native,
    Generic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PortsArg {
    Listening,
}

#[derive(Debug, Clone, Copy)]
struct AllowArg(Allow);

impl FromStr for AllowArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a network (10.0.0.0/8, fd00::/8), address or port (1 to 65535)");
        if let Ok(port) = text.parse::<u16>() {
            return if port > 0 { Ok(Self(Allow::Port(port))) } else { Err(wrong()) };
        }
        let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u8>).ok().filter(|bits| *bits <= most).ok_or_else(wrong)?;
        Ok(Self(Allow::Network(ip, bits)))
    }
}

pub(crate) fn attach(args: AttachArgs) -> Outcome {
    let name = &args.interface;
    let enforce = args.enforce || args.enforce_for.is_some();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let (mut netlink, link) = interface(name)?;
    if enforce && !args.force {
        let found = obstacles(&mut netlink, &link).map_err(|error| no_link(name, &error))?;
        if let Some(obstacle) = found.first() {
            return Err(obstacle.caveat(name).into());
        }
    }
    if !args.pin && Filter::open(link.index).is_ok_and(|filter| filter.is_kept()) {
        let failure =
            Failure::new("stays", format!("{name} has a pinned filter, which this command would replace for good"));
        return Err(failure.remedy("give --pin, or detach it first (longhaul filter detach)"));
    }
    // A file that cannot be written must fail before anything is dropped.
    let sample = args.staying.sample.as_deref().map(|file| SampleFile::create(file, name, args.force)).transpose()?;
    let metrics = args.staying.prometheus.open(Overwrite::by(args.force))?;
    let mut following = Following::begin(name).map_err(|error| not_followed(name, &error))?;
    let options = FilterOptions {
        mode: args.mode.map(|mode| match mode {
            ModeArg::Native => Mode::Native,
            ModeArg::Generic => Mode::Generic,
        }),
        enforce,
        enforce_until: args.enforce_for.map(|time| monotonic().saturating_add(time)),
        judge_ports: args.ports.is_some(),
        allow: args.allow.iter().map(|allow| allow.0).collect(),
        force: args.force,
    };
    let filter = Filter::attach(link.index, &options).map_err(|error| failure(name, &error))?;
    following.tell(&filter).map_err(|error| not_followed(name, &error))?;
    if sample.is_some() {
        go_on_sampling(&filter, name, &args.staying)?;
    }
    if args.pin {
        filter.keep().map_err(|error| failure(name, &error))?;
    }
    let does = match (enforce, args.enforce_for) {
        (false, _) => "counts".to_owned(),
        (true, None) => "drops what it rejects".into(),
        (true, Some(time)) => format!("drops what it rejects for {time}, then only counts unless confirmed"),
    };
    say(format_args!("{name}: {}; {does}", mode_in_words(&filter)));
    print_caveats(&too_many_addresses(&mut netlink, &link, &filter).map_err(|error| not_read(name, error))?);
    if args.pin {
        return Ok(ExitCode::SUCCESS);
    }
    stay((name, netlink, link), filter, following, stop, &args.staying, (sample, metrics))
}

pub(crate) fn follow(args: FollowArgs) -> Outcome {
    let name = &args.interface;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let (netlink, link) = interface(name)?;
    let filter = Filter::open(link.index).map_err(|error| failure(name, &error))?;
    let force = args.overwrite.allowed();
    let sample = args.staying.sample.as_deref().map(|file| SampleFile::create(file, name, force)).transpose()?;
    let metrics = args.staying.prometheus.open(args.overwrite)?;
    let following = Following::begin(name).map_err(|error| not_followed(name, &error))?;
    stay((name, netlink, link), filter, following, stop, &args.staying, (sample, metrics))
}

/// Has the filter sample for as long as this process may be kept from its next look.
fn go_on_sampling(filter: &Filter, name: &str, staying: &Staying) -> Result<(), Failure> {
    let until = monotonic().saturating_add(SAMPLED_FOR);
    filter.sample(staying.sample_every, until).map_err(|error| failure(name, &error))
}

/// Follows the host until the end, then prints the counters.
fn stay(
    (name, mut netlink, link): (&str, Netlink, Link),
    filter: Filter,
    mut following: Following,
    stop: Stop,
    staying: &Staying,
    (sample, mut metrics): (Option<SampleFile>, Option<Textfile>),
) -> Outcome {
    let samples = sample.as_ref().map(|_| filter.samples()).transpose().map_err(|error| failure(name, &error))?;
    let mut sampling = sample.zip(samples);
    let end = staying.time.map_or(Nanos::MAX, |time| monotonic().saturating_add(time));
    let mut due = monotonic();
    while stop.requested().is_none() && monotonic() < end {
        if !filter.is_attached() {
            if !interface(name).is_ok_and(|(_, now)| now.index == link.index) {
                return Err(Failure::new("interface_gone", format!("{name} was removed, and its filter with it"))
                    .remedy("attach it again when the interface is back"));
            }
            say(format_args!("{name}: another process detached or replaced the filter"));
            break;
        }
        following.tell(&filter).map_err(|error| not_followed(name, &error))?;
        if let Some((file, samples)) = &mut sampling {
            go_on_sampling(&filter, name, staying)?;
            file.take(samples)
                .map_err(|error| error.remedy("make room on the disk; the filter ends with this process"))?;
        }
        let now = monotonic();
        if let Some(metrics) = metrics.as_mut().filter(|_| now >= due) {
            // Where it cannot be read, the interface is going: the next look says so.
            if let Ok(report) = report(&mut netlink, &link, &filter) {
                metrics.write_text(&prometheus::text(&report.status));
            }
            due = now.saturating_add(METRICS_INTERVAL);
        }
        // Short: a signal does not interrupt a wait that begins after it.
        following.wait(end.min(now.saturating_add(Following::LOOK))).map_err(|error| Failure::new("wait", error))?;
    }
    if let Some((mut file, mut samples)) = sampling {
        filter.sample(staying.sample_every, Nanos::ZERO).map_err(|error| failure(name, &error))?;
        file.take(&mut samples)?;
        file.finish()?;
    }
    let last = report(&mut netlink, &link, &filter)?;
    // Whoever reads this may be slow; the filter goes with the process.
    Stop::release();
    if staying.json {
        last.print_json()
    } else {
        last.print_text()
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_ports_are_told_apart() {
        let parse = |text: &str| text.parse::<AllowArg>().map(|allow| allow.0);
        assert_eq!(parse("443"), Ok(Allow::Port(443)));
        assert_eq!(parse("10.0.0.0/8"), Ok(Allow::Network([10, 0, 0, 0].into(), 8)));
        assert_eq!(parse("10.0.0.1"), Ok(Allow::Network([10, 0, 0, 1].into(), 32)));
        assert_eq!(parse("fd00::/8"), Ok(Allow::Network("fd00::".parse().unwrap(), 8)));
        for wrong in ["0", "65536", "10.0.0.0/33", "fd00::/129", "x", "10.0.0.0/", ""] {
            assert!(parse(wrong).unwrap_err().contains("not a network"), "{wrong}");
        }
    }
}
