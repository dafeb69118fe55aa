//! `longhaul filter`: counts, or drops in XDP, frames that are not addressed to this host.

pub(crate) mod attach;
pub(crate) mod change;
pub(crate) mod prometheus;
pub(crate) mod sample;
pub(crate) mod status;
pub(crate) mod text;

use clap::Subcommand;
use longhaul_bpf::BpfError;
use longhaul_bpf::filter::{Filter, FilterError};
use longhaul_filter::FollowError;
use longhaul_kernel::link::{Link, LinkError, Netlink};

use crate::output::{Failure, Outcome};

/// Count, or drop in XDP, frames not addressed to this host
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:
  longhaul filter attach eth0                     # counts until Ctrl-C
  longhaul filter status eth0                     # in another terminal
  longhaul filter attach eth0 --pin --for 60s     # drops rejected frames for a minute
  longhaul filter confirm eth0                    # keeps dropping: this session still works
  longhaul filter detach eth0

`longhaul docs filter` lists what is accepted, what is rejected, and why.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Attach(attach::AttachArgs),
    Follow(attach::FollowArgs),
    Confirm(change::ConfirmArgs),
    Status(status::Args),
    Detach(change::DetachArgs),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Action::Attach(args) => attach::attach(args),
        Action::Follow(args) => attach::follow(args),
        Action::Confirm(args) => change::confirm(args),
        Action::Status(args) => status::run(args),
        Action::Detach(args) => change::detach(args),
    }
}

/// The interface, and a netlink socket of its network namespace.
pub(crate) fn interface(name: &str) -> Result<(Netlink, Link), Failure> {
    // Also where this one is gone.
    Filter::forget_gone();
    let mut netlink = Netlink::open().map_err(|error| no_link(name, &error))?;
    let link = netlink.link_by_name(name).map_err(|error| no_link(name, &error))?;
    if link.mac.is_none() {
        let message = format!("{name} has no Ethernet header, which the filter judges by");
        return Err(
            Failure::new("no_ethernet", message).remedy("filter the interface that the tunnel's packets arrive at")
        );
    }
    Ok((netlink, link))
}

pub(crate) fn no_link(name: &str, error: &LinkError) -> Failure {
    match error {
        LinkError::NoSuchLink { .. } => {
            Failure::new("no_interface", format!("there is no interface {name}")).remedy("`ip link` lists them")
        }
        _ => Failure::new("netlink", error),
    }
}

/// The failure, with its code.
pub(crate) fn failure(name: &str, error: &FilterError) -> Failure {
    let code = match error {
        FilterError::Bpf(BpfError::NotBuilt { .. }) => "not_built",
        FilterError::Bpf(BpfError::NoBtf { .. }) => "no_btf",
        FilterError::Bpf(BpfError::Denied { .. }) => "denied",
        FilterError::Bpf(_) => "bpf",
        FilterError::NoKernelContext => "no_kernel_context",
        FilterError::OtherProgram { id, name: program, .. } => {
            let message = format!("{name} already has another XDP program, `{program}` with id {id}; it is left there");
            return Failure::new("other_program", message)
                .remedy(format!("end the process that attached it, or `ip link set dev {name} xdp off`"));
        }
        FilterError::NotThere { .. } => {
            return Failure::new("no_filter", format!("{name} has no filter"))
                .remedy(format!("longhaul filter attach {name}"));
        }
        FilterError::Refused { native, generic, .. } => {
            return Failure::new(
                "not_attached",
                format!("{name} takes no XDP program: native: {native}; generic: {generic}"),
            )
            .remedy("a smaller MTU, or LRO off (`ethtool -K … lro off`), may let it");
        }
        FilterError::NoBpfFs => "no_bpf_fs",
        FilterError::Keep { .. } => "not_kept",
    };
    Failure::new(code, error)
}

pub(crate) fn not_followed(name: &str, error: &FollowError) -> Failure {
    match error {
        FollowError::Filter(error) => failure(name, error),
        FollowError::Link(_) | FollowError::Changes(_) => Failure::new("not_followed", error),
    }
}
