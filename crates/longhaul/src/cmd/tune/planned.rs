//! `longhaul tune --rate … --rtt …`: the plan, and with `--apply` what comes of it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::ValueEnum;
use longhaul_kernel::address::{is_link_local, zone_of};
use longhaul_kernel::link::holds_default_route;
use longhaul_kernel::signals::Stop;
use longhaul_path::spec::Direction;
use longhaul_result::Caveat;
use longhaul_tune::{
    Cause, Diagnosis, DiagnosisError, HostState, Plan, Role, Target, Unread, doubts_about_lasting, doubts_about_others,
};
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::cmd::tune::changing::{self, Applied};
use crate::cmd::tune::{StateArgs, text};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text, saved};

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Take rate, round trip and causes from this result of `longhaul diagnose`, a file or a folder
    #[arg(value_name = "DIAGNOSIS")]
    diagnosis: Option<PathBuf>,
    /// Use this direction of a diagnosis of both directions: from client to server, or from server to client
    #[arg(long, value_enum, requires = "diagnosis")]
    direction: Option<DirectionArg>,
    /// Tune for this rate of one connection
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Tune for this round trip
    #[arg(long, value_name = "TIME")]
    rtt: Option<Nanos>,
    /// Tune for sending, receiving, or both
    #[arg(long, value_enum, default_value_t = RoleArg::Both)]
    role: RoleArg,
    /// Tune this interface [default: all hardware interfaces that are up]
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// Set initcwnd and congctl on the route to this host, not for all connections (not on a route that another program manages)
    #[arg(long, value_name = "HOST")]
    to: Option<String>,
    /// Change the settings
    #[arg(long)]
    apply: bool,
    /// Restore the settings after this time unless somebody confirms them
    #[arg(long = "for", value_name = "TIME", requires = "apply")]
    time: Option<Nanos>,
    /// Also apply the settings at boot
    #[arg(long, requires = "apply")]
    persist: bool,
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleArg {
    Sender,
    Receiver,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DirectionArg {
    Forward,
    Backward,
}

impl From<DirectionArg> for Direction {
    fn from(direction: DirectionArg) -> Self {
        match direction {
            DirectionArg::Forward => Self::Forward,
            DirectionArg::Backward => Self::Backward,
        }
    }
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Sender => Self::Sender,
            RoleArg::Receiver => Self::Receiver,
            RoleArg::Both => Self::Both,
        }
    }
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The target.
    #[serde(flatten)]
    target: Target,
    /// The one interface that was asked for; `None` for all.
    interface: Option<String>,
    /// The other end of the path, whose route is looked at; `None` where none was named.
    to: Option<String>,
    /// Settings were to be changed.
    apply: bool,
    /// They were to be put back after this time; `None`: never.
    for_ns: Option<u64>,
    /// They were to be applied after a reboot, too.
    persist: bool,
}

/// What `tune` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tuned {
    /// What to change.
    #[serde(flatten)]
    plan: Plan,
    /// What could not be read, so that the plan says nothing of it.
    unread: Vec<Unread>,
    /// What the changes brought; `None` if nothing was to be changed.
    applied: Option<Applied>,
}

pub(crate) fn run(args: PlanArgs) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let target = target(&args)?;
    let to = args.to.as_deref().map(address).transpose()?;
    let host = HostState::take(args.interface.as_deref(), to);
    if let Some(name) = args.interface.as_ref().filter(|_| host.links.is_empty()) {
        return Err(Failure::new("no_interface", format!("there is no interface {name}")));
    }
    let plan = Plan::make(&host, &target);
    let mut caveats: Vec<Caveat> = plan.caveats.clone();
    caveats.extend(doubts_about_others());
    if args.persist {
        caveats.extend(doubts_about_lasting(&args.state.store()?, &plan));
    }
    if !args.json {
        print_text(&text::plan(&target, &plan, &host.unread, args.apply));
        print_caveats(&caveats);
    }
    let is_way_out = |link: &str| holds_default_route(link).unwrap_or(true);
    if let Some(place) = plan.cuts_off(is_way_out).filter(|_| args.apply && args.time.is_none()) {
        let why =
            format!("{place}: many drivers stop the link for some seconds, and this host's default route leaves by it");
        let remedy = "add --for 60s, and run `longhaul tune confirm` when you still reach the host";
        return Err(Failure::new("may_cut_off", why).remedy(remedy));
    }
    let applied = match args.apply {
        true => Some(changing::apply(&plan, &args.state.store()?, args.time, args.persist)?),
        false => None,
    };
    let exit = applied.as_ref().map_or(0, |applied| applied.exit);
    // What was to be put back is, and whoever reads this may be slow.
    Stop::release();
    if args.json {
        let parameters = Parameters {
            target,
            interface: args.interface,
            to: args.to,
            apply: args.apply,
            for_ns: args.time.map(|time| time.0),
            persist: args.persist,
        };
        let result = Tuned { plan, unread: host.unread, applied };
        print_json(&Envelope::new("longhaul.tune/1", started_at, parameters, result, caveats));
    }
    Ok(exit.into())
}

/// The first address of `host`, with the zone that it has there.
fn address(host: &str) -> Result<SocketAddr, Failure> {
    let found = (host, 0).to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) if is_link_local(address.ip()) && zone_of(address).is_none() => {
            let ip = address.ip();
            Err(Failure::usage(format!("--to {host}: a link-local address needs its interface, as in {ip}%eth0")))
        }
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::usage(format!("--to {host}: it has no address"))),
        Err(error) => Err(Failure::usage(format!("--to {host}: {error}"))),
    }
}

/// What to tune for: the diagnosis, and what the command line says instead.
fn target(args: &PlanArgs) -> Result<Target, Failure> {
    let diagnosis = match &args.diagnosis {
        None => None,
        Some(path) => {
            let (file, text) = saved::read_result(path)?;
            let parsed = Diagnosis::parse(&text, args.direction.map(Direction::from));
            Some(parsed.map_err(|error| match error {
                DiagnosisError::Directions => {
                    Failure::usage(error).remedy("--direction forward, or --direction backward")
                }
                error => saved::no_result(&file, error),
            })?)
        }
    };
    let rate_bps = args.rate.map(|rate| rate.0).or(diagnosis.as_ref().and_then(|found| found.target_bps));
    let rtt_ns = args.rtt.map(|rtt| rtt.0).or(diagnosis.as_ref().and_then(|found| found.base_rtt_ns));
    let missing = |flag: &str, what: &str| {
        let of = if diagnosis.is_some() { "the diagnosis does not say" } else { "say" };
        Failure::usage(format!("{of} {what}: {flag}"))
    };
    let rate_bps = rate_bps.ok_or_else(|| missing("--rate 10G", "the rate that one connection shall reach"))?;
    let rtt_ns = rtt_ns.ok_or_else(|| missing("--rtt 150ms", "the round trip of the path"))?;
    if rate_bps == 0 || rtt_ns == 0 {
        return Err(Failure::usage("--rate and --rtt are more than 0"));
    }
    let causes: Option<Vec<Cause>> = diagnosis.map(|found| found.causes);
    Ok(Target { rate_bps, rtt_ns, role: args.role.into(), causes })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;

    #[test]
    fn a_link_local_address_keeps_its_interface() {
        // Loopback is the first interface of each network namespace.
        let on_loopback = SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, 1);
        assert_eq!(address("fe80::1%lo").ok(), Some(on_loopback.into()));
        assert_eq!(address("192.0.2.1").ok(), Some(([192, 0, 2, 1], 0).into()));
        let refused = address("fe80::1").unwrap_err();
        assert!(refused.message().contains("needs its interface, as in fe80::1%eth0"), "{}", refused.message());
    }
}
