//! `longhaul pace`: a highest rate for each connection of any program.

use std::process::Command;

use longhaul_bpf::BpfError;
use longhaul_bpf::pacing::{MOST_BYTES_PER_S, Pacing};
use longhaul_kernel::cgroup::OwnGroup;
use longhaul_units::BitRate;

use crate::cmd::cc::exit_code;
use crate::output::{Failure, Outcome, say};

/// Run a program with each of its TCP connections paced to a rate
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul pace 9Gbit -- rsync -a data/ far:data/
  longhaul pace 200M -- curl -T file https://far.example.net/")]
pub(crate) struct Args {
    /// Send each connection at this rate at most, such as 9Gbit
    rate: BitRate,
    /// Run this program; longhaul paces its connections and those of its child processes
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What every cgroup of ours begins with.
const GROUP: &str = "longhaul-pace-";

pub(crate) fn run(args: Args) -> Outcome {
    let most = u64::from(MOST_BYTES_PER_S);
    let bytes_per_s = u32::try_from(args.rate.0 / 8).ok().filter(|rate| (1..=most).contains(&u64::from(*rate)));
    let bytes_per_s = bytes_per_s.ok_or_else(|| {
        Failure::usage(format!("{} cannot be paced: 8 bit/s to {}", args.rate, BitRate(most * 8).rounded()))
    })?;
    let no_group = |error| Failure::new("no_cgroup", format!("cannot use a control group: {error}"));
    let group = OwnGroup::enter(GROUP).map_err(no_group)?;
    let attached = Pacing::attach(&group.open().map_err(no_group)?, bytes_per_s);
    let pacing = attached.map_err(|error| {
        let code = match error {
            BpfError::NotBuilt { .. } => "not_built",
            BpfError::NoBtf { .. } => "no_btf",
            BpfError::Denied { .. } => "denied",
            _ => "bpf",
        };
        Failure::new(code, error)
    })?;
    let ended = exit_code(&args.command, Command::new(&args.command[0]).args(&args.command[1..]).status());
    if let Ok((_, refused @ 1..)) = pacing.connections() {
        say(format_args!("{refused} connections were not paced: the kernel refused"));
    }
    ended
}
