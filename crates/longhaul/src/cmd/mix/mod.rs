//! `longhaul mix`.

pub(crate) mod live;
pub(crate) mod text;

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use longhaul_kernel::capability;
use longhaul_kernel::link::{Link, Netlink, holds_default_route};
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_kernel::stderr_line;
use longhaul_mix::{EngineError, EngineKind, MixAmount, MixResult, MixSpec, Mixer, Plan, Sizes, Target};
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::ethernet;
use longhaul_wire::probe::Cookie;
use serde::Serialize;

use crate::args::quantity::{count, seconds};
use crate::cmd::mix::live::Live;
use crate::output::live::{Lines, Show};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::{Envelope, Failure, Outcome, exit_code, plain, print_result};

/// Frames a second without --pps or --rate: visible, and harmless to a network.
const DEFAULT_RATE: u64 = 1_000;
/// The UDP port of a target without one: the port of longhaul's own tests.
const DEFAULT_PORT: u16 = 5210;
/// The interval of reports on a terminal.
const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);
/// The shortest interval.
const LEAST_INTERVAL: Nanos = Nanos::from_millis(100);
/// Keeps the cookie different from the seed that it is made of.
const COOKIE_SALT: u64 = 0x6d69_7800;

const EXAMPLES: &str = "\
Example:
  longhaul mix lab0 --target 10.0.0.2:5210 --pps 20000 -t 10s   # NIMA's mix
  longhaul mix lab0 --target 10.0.0.2 --size 64 --pps 0 -t 5s   # as fast as possible
  longhaul mix eth1 --target 10.0.0.2 --pps 0 --cpu 2,3,4,5     # from four CPUs
  longhaul mix lab0 --mix junk.toml -b 100M -k 100000 --seed 7

Frames leave through INTERFACE only. At the far end of a veth they arrive as from a NIC's driver if the kernel has XDP live frames and the \
far end has `gro on` or an XDP program. `longhaul docs mix` describes mix files and results.";

/// Generate background traffic: many kinds of frames, mostly addressed to other hosts
///
/// Sends well-formed frames; the weight of a class is its share. The class `stream` sends numbered packets to a target. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Send through this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Send this mix: nima, which comes with longhaul, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "nima")]
    mix: String,
    /// Make all frames this long, FCS included, 64 to 1518 [default: as in the mix]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=1518))]
    size: Option<u16>,
    /// Send the numbered stream of the mix to this IP address and UDP port [default port: 5210]
    #[arg(long, value_name = "IP[:PORT]")]
    target: Option<String>,
    /// Use this MAC address for the target, or for the router before it [default: from the neighbour table]
    #[arg(long, value_name = "MAC", requires = "target")]
    target_mac: Option<String>,
    /// Send N frames a second (0: as fast as possible) [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pps: Option<u64>,
    /// Send at this bit rate, counting frames with their FCS (0: as fast as possible)
    #[arg(short = 'b', long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Send for this time [default: until Ctrl-C]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    time: Option<Nanos>,
    /// Send this many frames
    #[arg(short = 'k', long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// Make the frames from this seed: the same seed makes the same frames in the same order [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Send by XDP (as a driver does), by a packet socket, or by XDP where it works (auto)
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "xdp", "packet"])]
    engine: String,
    /// Send from a thread on each of these CPUs, such as 2,3 [default: one thread on any CPU]
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    cpu: Vec<usize>,
    /// Send even if the default route uses the interface
    #[arg(long)]
    on_default_route: bool,
    /// Report every TIME (0: never) [default: 1s on a terminal]
    #[arg(short, long, value_name = "TIME", value_parser = crate::args::interval::interval)]
    interval: Option<Nanos>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON lines: one per interval, then the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The interface through which it was sent.
    interface: String,
    /// The mix.
    mix: DescribedMix,
    /// The seed of all random choices.
    seed: u64,
    /// Frames a second; `None`: as fast as possible.
    #[cfg_attr(test, schemars(range(min = 0)))]
    packets_per_second: Option<f64>,
    /// How long; `None`: no bound.
    time_ns: Option<u64>,
    /// How many frames; `None`: no bound.
    packets: Option<u64>,
    /// The receiver of the numbered stream; `None` where none was named.
    target: Option<DescribedTarget>,
    /// The requested engine.
    #[cfg_attr(test, schemars(extend("enum" = ["auto", "xdp", "packet"])))]
    engine: String,
    /// CPUs with a sending thread each; empty: one thread on any CPU.
    cpus: Vec<usize>,
}

/// A mix.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DescribedMix {
    /// Its name.
    name: String,
    /// The source of its figures.
    source: String,
    /// Sizes of frames that carry data, FCS included.
    #[cfg_attr(test, schemars(length(min = 1)))]
    sizes: Vec<DescribedSizes>,
}

/// A range of sizes with equal probability, FCS included.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DescribedSizes {
    /// The shortest.
    #[cfg_attr(test, schemars(range(min = 64, max = 1518)))]
    from_bytes: u16,
    /// The longest.
    #[cfg_attr(test, schemars(range(min = 64, max = 1518)))]
    to_bytes: u16,
    /// Share of the frames that have one of these sizes, 0 to 1.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    share: f64,
}

/// The receiver of the numbered stream.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DescribedTarget {
    /// The IPv4 or IPv6 address.
    address: IpAddr,
    /// The UDP port.
    port: u16,
    /// Its MAC address, or that of the router before it.
    #[cfg_attr(test, schemars(regex(pattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$")))]
    mac: String,
    /// The source address of the datagrams.
    source: IpAddr,
    /// The source port of the datagrams.
    source_port: u16,
    /// The cookie in the probe headers.
    cookie: u32,
}

/// What was sent, and whether a signal ended it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reported {
    /// A signal ended it.
    interrupted: bool,
    #[serde(flatten)]
    sent: MixResult,
}

pub(crate) fn run(args: Args) -> Outcome {
    let spec = MixSpec::load(&args.mix).map_err(Failure::usage)?;
    let spec = match args.size {
        Some(bytes) => spec.with_size(bytes).map_err(Failure::usage)?,
        None => spec,
    };
    let metrics = args.prometheus.open(args.overwrite)?;
    // Silent where nobody looks.
    let reports = args.interval.is_some() || args.json_stream || std::io::stderr().is_terminal();
    let interval = match args.interval {
        Some(Nanos::ZERO) => None,
        Some(interval) if interval < LEAST_INTERVAL => {
            return Err(Failure::usage(format!("--interval {interval}: 0, or {LEAST_INTERVAL} or more")));
        }
        None => (reports || metrics.is_some()).then_some(DEFAULT_INTERVAL),
        interval => interval,
    };
    let asked = match &*args.engine {
        "xdp" => Some(EngineKind::LiveFrames),
        "packet" => Some(EngineKind::PacketSocket),
        _ => None,
    };
    let named = args.target.as_deref().map(address).transpose()?;
    let mac = args.target_mac.as_deref().map(parse_mac).transpose()?;
    if spec.has_target() && named.is_none() {
        return Err(Failure::usage(format!(
            "mix {} has frames for a target: name it with --target IP[:PORT]",
            spec.name
        )));
    }

    let mut netlink = Netlink::open().map_err(|error| Failure::new("netlink", error))?;
    let link = usable(&mut netlink, &args)?;
    let seed = args.seed.map_or_else(random_seed, Ok)?;
    let target = named.map(|named| target(&mut netlink, &link, named, mac, seed)).transpose()?;
    let plan = Plan::new(spec.clone(), seed, target).map_err(Failure::usage)?;
    let room = link.mtu_bytes as usize + ethernet::HEADER_LEN;
    if plan.longest_bytes() > room {
        return Err(Failure::new(
            "too_long",
            format!(
                "frames of {} bytes ({} with FCS) are too long for {} with an MTU of {}",
                plan.longest_bytes(),
                plan.longest_bytes() + 4,
                link.name,
                link.mtu_bytes
            ),
        )
        .remedy(format!("ip link set {} mtu {}", link.name, plan.longest_bytes() - ethernet::HEADER_LEN)));
    }
    let amount = MixAmount {
        packets_per_second: match (args.pps, args.rate) {
            (Some(0), _) | (_, Some(BitRate(0))) => None,
            (Some(packets), _) => Some(packets as f64),
            (None, Some(rate)) => Some(rate.0 as f64 / (8.0 * plan.mean_bytes())),
            (None, None) => Some(DEFAULT_RATE as f64),
        },
        time: args.time,
        packets: args.count,
    };

    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let started_at = jiff::Timestamp::now().to_string();
    let mixer = Mixer::open(link.index, plan, asked, &args.cpu).map_err(not_sent)?;
    stderr_line!("{}", plain(&text::heading(&spec.name, &link.name, mixer.engine(), &amount, seed)));
    let show = if args.json_stream { Show::Objects } else { Show::LinesBeside };
    let mut live = Live::new(Lines::with_metrics(if reports { show } else { Show::Nothing }, metrics));
    let sent = mixer
        .run(&amount, Some(stop), interval, |progress| live.take(progress))
        .map_err(|error| Failure::new("not_sent", format!("sending through {}: {error}", link.name)))?;

    let interrupted = stop.requested().is_some();
    let parameters = Parameters {
        interface: link.name,
        mix: described(&spec),
        seed,
        packets_per_second: amount.packets_per_second,
        time_ns: amount.time.map(|time| time.0),
        packets: amount.packets,
        target: target.map(|target| DescribedTarget {
            address: target.address,
            port: target.port,
            mac: text::mac(target.mac),
            source: target.source,
            source_port: target.source_port,
            cookie: target.cookie.0,
        }),
        engine: args.engine,
        cpus: args.cpu,
    };
    let caveats = sent.caveats(&amount);
    let envelope = Envelope::new("longhaul.mix/1", started_at, parameters, Reported { interrupted, sent }, caveats);
    print_result(&envelope, args.json || args.json_stream, |result| text::report(&result.sent));
    Ok(match stop.requested() {
        Some(signal @ (StopSignal::Interrupt | StopSignal::Terminate | StopSignal::HangUp)) => {
            ExitCode::from(exit_code(signal))
        }
        None => ExitCode::SUCCESS,
    })
}

fn not_sent(error: EngineError) -> Failure {
    let remedy = error.remedy().to_owned();
    let failure = Failure::new("no_engine", error);
    failure.remedy(if capability::is_root_in_namespace() { &remedy } else { "run as root" })
}

/// The interface, if sending through it does not harm the machine's own network.
fn usable(netlink: &mut Netlink, args: &Args) -> Result<Link, Failure> {
    let name = &args.interface;
    let link = netlink.link_by_name(name).map_err(|error| Failure::new("no_interface", error))?;
    let holds =
        holds_default_route(name).map_err(|error| Failure::new("routes", format!("/proc/net/route: {error}")))?;
    if holds && !args.on_default_route {
        return Err(Failure::new(
            "default_route",
            format!("the default route uses {name}: the mix would go into this machine's own network"),
        )
        .remedy("name an interface of a test network, or use --on-default-route"));
    }
    if !link.up || !link.carrier {
        let why = if link.up { "has no carrier" } else { "is down" };
        return Err(Failure::new("link_down", format!("{name} {why}"))
            .remedy(format!("ip link set {name} up, and its far end")));
    }
    Ok(link)
}

/// `10.0.0.2`, `10.0.0.2:5210`, `fd00::2` or `[fd00::2]:5210`.
fn address(text: &str) -> Result<SocketAddr, Failure> {
    let with_port = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, DEFAULT_PORT)));
    let good =
        with_port.ok().filter(|a: &SocketAddr| a.port() > 0 && !a.ip().is_unspecified() && !a.ip().is_multicast());
    good.ok_or_else(|| {
        Failure::usage(format!(
            "--target {text}: give the IP address of a host, with or without a port, such as 10.0.0.2:5210 or [fd00::2]:5210"
        ))
    })
}

fn parse_mac(text: &str) -> Result<[u8; 6], Failure> {
    let bytes: Vec<u8> =
        text.split(':').filter_map(|byte| (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok())?).collect();
    let good = bytes.try_into().ok().filter(|mac: &[u8; 6]| text.len() == 17 && mac[0] & 1 == 0);
    good.ok_or_else(|| {
        Failure::usage(format!("--target-mac {text}: give a unicast MAC address, such as 02:00:00:00:00:02"))
    })
}

/// The target of the stream, and the source of its datagrams.
fn target(
    netlink: &mut Netlink,
    link: &Link,
    named: SocketAddr,
    mac: Option<[u8; 6]>,
    seed: u64,
) -> Result<Target, Failure> {
    let mac = match mac {
        Some(mac) => mac,
        None => {
            let known = netlink.neighbours().map_err(|error| Failure::new("neighbours", error))?;
            let one = known.iter().find(|n| n.ifindex == link.index && n.ip == named.ip());
            one.and_then(|neighbour| neighbour.mac).ok_or_else(|| {
                Failure::new(
                    "no_mac",
                    format!("the neighbour table of {} has no MAC address for {}", link.name, named.ip()),
                )
                .remedy("give --target-mac, or ping the target first")
            })?
        }
    };
    let addresses = netlink.addresses().map_err(|error| Failure::new("addresses", error))?;
    // Routers drop packets with a link-local source that go elsewhere.
    let fits = |ip: &IpAddr| match (ip, named.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(own), IpAddr::V6(other)) => own.is_unicast_link_local() == other.is_unicast_link_local(),
        _ => false,
    };
    let own = addresses.iter().filter(|address| address.ifindex == link.index).map(|address| address.ip).find(fits);
    // An interface without a fitting address uses one that is reserved for benchmarks (RFC 2544, RFC 5180).
    let none: IpAddr = match named.ip() {
        IpAddr::V4(_) => Ipv4Addr::new(198, 18, 0, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
    };
    Ok(Target {
        mac,
        address: named.ip(),
        port: named.port(),
        source: own.unwrap_or(none),
        source_port: DEFAULT_PORT,
        cookie: Cookie::new(((seed ^ COOKIE_SALT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32, false, 0),
    })
}

fn random_seed() -> Result<u64, Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new("random", error))?;
    // Short enough to type.
    Ok(u32::from_ne_bytes(bytes).into())
}

/// A mix as the result has it.
fn described(spec: &MixSpec) -> DescribedMix {
    let sizes = match &spec.sizes {
        Sizes::One(bytes) => vec![DescribedSizes { from_bytes: *bytes, to_bytes: *bytes, share: 1.0 }],
        Sizes::Spread(spans) => {
            let sum: f64 = spans.iter().map(|span| span.weight).sum();
            let shares = spans.iter().map(|span| span.weight / sum);
            let sizes = spans.iter().zip(shares);
            sizes.map(|(span, share)| DescribedSizes { from_bytes: span.from, to_bytes: span.to, share }).collect()
        }
    };
    DescribedMix { name: spec.name.clone(), source: spec.source.clone(), sizes }
}
