//! `longhaul mix`.

pub(crate) mod text;

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use longhaul_kernel::capability;
use longhaul_kernel::link::{Link, Netlink, holds_default_route};
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_mix::{EngineKind, MixAmount, MixResult, Mixer};
use longhaul_mix::{MixSpec, Plan, Sizes, Target};
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::ethernet;
use longhaul_wire::probe::Cookie;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cmd::udp::exit_code;
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Frames a second where no rate is asked for: enough to see, and no harm to a network.
const DEFAULT_RATE: u64 = 1_000;
/// The port of the target where none is given, that of longhaul's own tests.
const DEFAULT_PORT: u16 = 5210;
/// Between lines on a terminal.
const DEFAULT_INTERVAL: Nanos = Nanos::from_secs(1);
/// No link has shorter ones.
const LEAST_INTERVAL: Nanos = Nanos::from_millis(100);
/// What a seed sets apart from the cookie that comes of it.
const COOKIE_SALT: u64 = 0x6d69_7800;

const EXAMPLES: &str = "\
Example:
  longhaul mix -i lab0 --target 10.0.0.2:5210 --pps 20000 -t 10s   # NIMA's mix; 5 % of it is a numbered stream for the target
  longhaul mix -i lab0 --target 10.0.0.2 --size 64 --pps 0 -t 5s   # as fast as it goes
  longhaul mix -i eth1 --target 10.0.0.2 --pps 0 --cpu 2,3,4,5     # from four CPUs
  longhaul mix -i lab0 --mix junk.toml -b 100M -k 100000 --seed 7

Frames go out by the interface that is named and by no other. On a veth they arrive at its far end as from a NIC's driver, where the kernel
has XDP live frames and the far end has `gro on` or an XDP program. docs/reference/mix.md tells what a mix file has and what the numbers mean.";

/// Send what a network carries: frames of many kinds, most of them for others
///
/// Real frames of each class by its weight, and a numbered stream for a target among them. It takes root.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface to send by
    #[arg(short = 'i', long, value_name = "IF")]
    interface: String,
    /// A mix that comes with longhaul (nima), or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "nima")]
    mix: String,
    /// All frames of this many bytes, FCS included, 64 to 1518 [default: as the mix says]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=1518))]
    size: Option<u16>,
    /// Who gets the numbered stream of the mix: an IP address, and a UDP port if it is not 5210
    #[arg(long, value_name = "IP[:PORT]")]
    target: Option<String>,
    /// The target's MAC address, or that of the router before it [default: as the neighbour table has it]
    #[arg(long, value_name = "MAC", requires = "target")]
    target_mac: Option<String>,
    /// Frames a second; 0: as fast as it goes [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pps: Option<u64>,
    /// Bits a second of frames with their FCS; 0: as fast as it goes
    #[arg(short = 'b', long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Send for this time [default: until Ctrl-C]
    #[arg(short = 't', long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Send this many frames
    #[arg(short = 'k', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The same seed makes the same frames in the same order [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How to send: xdp (as from a driver), packet (by a socket), or auto: xdp where it works
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "xdp", "packet"])]
    engine: String,
    /// CPUs to send on, a thread on each, such as 2 or 2,3 [default: one thread, on any]
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    cpu: Vec<usize>,
    /// Send even where the default route leaves by the interface
    #[arg(long)]
    force: bool,
    /// A line each such time; 0: none [default: 1s on a terminal]
    #[arg(long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
struct Parameters {
    interface: String,
    mix: Value,
    seed: u64,
    packets_per_second: Option<f64>,
    time_ns: Option<u64>,
    packets: Option<u64>,
    target: Option<Value>,
    engine: String,
    cpus: Vec<usize>,
}

/// What came out.
#[derive(Debug, Serialize)]
struct Reported {
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
    let interval = match args.interval {
        Some(Nanos::ZERO) => None,
        Some(interval) if interval < LEAST_INTERVAL => {
            return Err(Failure::usage(format!("--interval {interval}: 0, or {LEAST_INTERVAL} or more")));
        }
        None => std::io::stderr().is_terminal().then_some(DEFAULT_INTERVAL),
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
            "mix {} has frames for a target: --target IP[:PORT] says for whom",
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
                "frames of {} bytes and {} with their FCS do not pass {}, whose MTU is {}",
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
    eprintln!("{}", text::heading(&spec.name, &link.name, mixer.engine(), &amount, seed));
    let mut live = text::Live::default();
    let sent = mixer
        .run(&amount, Some(stop), interval, |progress| eprintln!("{}", live.line(progress)))
        .map_err(|error| Failure::new("not_sent", format!("sending by {}: {error}", link.name)))?;

    let interrupted = stop.requested().is_some();
    let parameters = Parameters {
        interface: link.name,
        mix: described(&spec),
        seed,
        packets_per_second: amount.packets_per_second,
        time_ns: amount.time.map(|time| time.0),
        packets: amount.packets,
        target: target.map(|target| {
            json!({
                "address": target.address,
                "port": target.port,
                "mac": text::mac(target.mac),
                "source": target.source,
                "source_port": target.source_port,
                "cookie": target.cookie.0,
            })
        }),
        engine: args.engine,
        cpus: args.cpu,
    };
    let caveats = sent.caveats(&amount);
    let envelope = Envelope::new("longhaul.mix/1", started_at, parameters, Reported { interrupted, sent }, caveats);
    if args.json {
        print_json(&envelope);
    } else {
        print_text(&text::report(&envelope.result.sent));
    }
    print_caveats(&envelope.caveats);
    Ok(match stop.requested() {
        Some(signal @ (StopSignal::Interrupt | StopSignal::Terminate | StopSignal::HangUp)) => {
            ExitCode::from(exit_code(signal))
        }
        None => ExitCode::SUCCESS,
    })
}

fn not_sent(error: longhaul_mix::EngineError) -> Failure {
    let remedy = error.remedy().to_owned();
    let failure = Failure::new("no_engine", error);
    failure.remedy(if capability::is_root_in_namespace() { &remedy } else { "run as root" })
}

/// The interface, if nobody loses his network by it.
fn usable(netlink: &mut Netlink, args: &Args) -> Result<Link, Failure> {
    let name = &args.interface;
    let link = netlink.link_by_name(name).map_err(|error| Failure::new("no_interface", error))?;
    let holds =
        holds_default_route(name).map_err(|error| Failure::new("routes", format!("/proc/net/route: {error}")))?;
    if holds && !args.force {
        return Err(Failure::new(
            "default_route",
            format!("the default route leaves by {name}: this machine's network would get the mix"),
        )
        .remedy("name an interface of a test network, or give --force"));
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
            "--target {text}: an IP address of a host, and a port if wanted, such as 10.0.0.2:5210 or [fd00::2]:5210"
        ))
    })
}

fn parse_mac(text: &str) -> Result<[u8; 6], Failure> {
    let bytes: Vec<u8> =
        text.split(':').filter_map(|byte| (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok())?).collect();
    let good = bytes.try_into().ok().filter(|mac: &[u8; 6]| text.len() == 17 && mac[0] & 1 == 0);
    good.ok_or_else(|| Failure::usage(format!("--target-mac {text}: a unicast address, such as 02:00:00:00:00:02")))
}

/// Who gets the stream, from whom.
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
                Failure::new("no_mac", format!("the MAC address of {} by {} is not known", named.ip(), link.name))
                    .remedy("give --target-mac, or ping it first")
            })?
        }
    };
    let addresses = netlink.addresses().map_err(|error| Failure::new("addresses", error))?;
    // A link-local address would have routers drop what it sends elsewhere.
    let fits = |ip: &IpAddr| match (ip, named.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(own), IpAddr::V6(other)) => own.is_unicast_link_local() == other.is_unicast_link_local(),
        _ => false,
    };
    let own = addresses.iter().filter(|address| address.ifindex == link.index).map(|address| address.ip).find(fits);
    // Without one of its own it is an address that is set aside for measuring (RFC 2544, RFC 5180).
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
    // Short enough to type again.
    Ok(u32::from_ne_bytes(bytes).into())
}

/// A mix as the result has it.
fn described(spec: &MixSpec) -> Value {
    let sizes = match &spec.sizes {
        Sizes::One(bytes) => json!([{ "from_bytes": bytes, "to_bytes": bytes, "share": 1.0 }]),
        Sizes::Spread(spans) => {
            let sum: f64 = spans.iter().map(|span| span.weight).sum();
            let shown = |span: &longhaul_mix::Span| json!({ "from_bytes": span.from, "to_bytes": span.to, "share": span.weight / sum });
            spans.iter().map(shown).collect()
        }
    };
    json!({ "name": spec.name, "source": spec.source, "sizes": sizes })
}
