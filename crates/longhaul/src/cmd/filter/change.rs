//! `longhaul filter confirm` and `longhaul filter detach`.

use std::process::ExitCode;

use longhaul_bpf::filter::Filter;
use longhaul_kernel::clock::monotonic;

use crate::cmd::filter::status::report;
use crate::cmd::filter::{failure, interface};
use crate::output::{Failure, Outcome, print_text};

/// Keep dropping rejected frames beyond the time of `attach --for`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul filter confirm eth0")]
pub(crate) struct ConfirmArgs {
    /// Confirm the filter at this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
}

/// Detach the filter from an interface, whoever attached it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul filter detach eth0")]
pub(crate) struct DetachArgs {
    /// Detach the filter at this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Print the counters as JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn confirm(args: ConfirmArgs) -> Outcome {
    let name = &args.interface;
    let (_, link) = interface(name)?;
    let filter = Filter::open(link.index).map_err(|error| failure(name, &error))?;
    let settings = filter.settings().map_err(|error| failure(name, &error))?;
    if !settings.enforce {
        return Err(Failure::new("not_enforced", format!("the filter at {name} only counts"))
            .remedy(format!("longhaul filter attach {name} --enforce")));
    }
    if !filter.confirm(monotonic()).map_err(|error| failure(name, &error))? {
        return Err(Failure::new("too_late", format!("the time is over: the filter at {name} only counts now"))
            .remedy(format!("longhaul filter attach {name} --for TIME")));
    }
    print_text(&format!("{name}: drops what it rejects, for good\n"));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn detach(args: DetachArgs) -> Outcome {
    let name = &args.interface;
    let (mut netlink, link) = interface(name)?;
    let filter = Filter::open(link.index).map_err(|error| failure(name, &error))?;
    // Read before it is detached.
    let last = args.json.then(|| report(&mut netlink, &link, &filter)).transpose()?;
    filter.detach().map_err(|error| failure(name, &error))?;
    match last {
        Some(last) => last.print_json(),
        None => print_text(&format!("{name}: no filter\n")),
    }
    Ok(ExitCode::SUCCESS)
}
