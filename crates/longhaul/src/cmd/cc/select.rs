//! `longhaul cc use`: a congestion control for connections to certain destinations, or for those of one program.

use std::fs::File;
use std::process::{Command, ExitCode};

use longhaul_bpf::congestion::Control;
use longhaul_bpf::congestion::selection::{Destination, MOST_DESTINATIONS, Selection};
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_kernel::cgroup::{self, OwnGroup};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::congestion_control::CongestionControls;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

use crate::cmd::cc::{exit_code, failure};
use crate::output::{Failure, Outcome, print_text, say};

/// Use a congestion control for connections to certain destinations, or for one program, until this command ends
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul cc use htcp -- iperf3 -c server                     # all connections of iperf3
  longhaul cc use htcp --to 203.0.113.0/24 -- rsync -a data server:
  longhaul cc use lh_scalable --to 2001:db8::/32               # of every program, until Ctrl-C")]
pub(crate) struct Args {
    /// Use this control: one that the kernel has, or one that longhaul loads for that time
    name: String,
    /// Use it only for connections to these addresses; may be repeated
    #[arg(long, value_name = "PREFIX")]
    to: Vec<Destination>,
    /// Use it only for the connections of this program and its children
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What every cgroup of ours begins with.
const GROUP: &str = "longhaul-cc-";

pub(crate) fn run(args: Args) -> Outcome {
    if args.to.is_empty() && args.command.is_empty() {
        return Err(Failure::usage("say for which destinations (--to PREFIX) or for which program (-- COMMAND)")
            .remedy(format!("for all of this host: sysctl net.ipv4.tcp_congestion_control={}", args.name)));
    }
    if args.to.len() > MOST_DESTINATIONS {
        return Err(Failure::usage(format!("--to: at most {MOST_DESTINATIONS} destinations")));
    }
    let (name, _loaded) = resolve(&args.name)?;
    let attach = |group: &File| Selection::attach(group, &name, &args.to).map_err(|error| failure(&error.into()));
    let no_group = |error| Failure::new("no_cgroup", format!("cannot use a control group: {error}"));
    if !args.command.is_empty() {
        if name != args.name && asks_for(&args.command, &args.name) {
            say(format_args!(
                "{} is in the kernel as {name}, and all connections use it: leave `{}` out of the command if it fails",
                args.name, args.name
            ));
        }
        let group = OwnGroup::enter(GROUP).map_err(no_group)?;
        let _selection = attach(&group.open().map_err(no_group)?)?;
        return exit_code(&args.command, Command::new(&args.command[0]).args(&args.command[1..]).status());
    }
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let selection = attach(&cgroup::root().and_then(File::open).map_err(no_group)?)?;
    let to = args.to.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    print_text(&format!("{name} for new connections to {to}, of every program, until this command is stopped\n"));
    while stop.requested().is_none() {
        let look = monotonic().saturating_add(Nanos::from_millis(200));
        readable_until(stop, Some(look)).map_err(|error| Failure::new("wait", error))?;
    }
    let (selected, refused) = selection.connections().map_err(|error| Failure::new("bpf", error))?;
    // Whoever reads this may be slow; no connection is given the control any more once the process has ended.
    Stop::release();
    print_text(&format!("{selected} connections used {name}\n"));
    if refused > 0 {
        print_text(&format!("the kernel refused it for {refused} connections\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a command has `name` among its words, or at the end of an option (`-Chtcp`, `--congestion=htcp`).
fn asks_for(command: &[String], name: &str) -> bool {
    command.iter().skip(1).any(|word| word == name || word.starts_with('-') && word.ends_with(name))
}

/// The control's name in the kernel, and the control where it was loaded for this command.
fn resolve(name: &str) -> Result<(String, Option<Control>), Failure> {
    let known = CongestionControls::read().map_err(|error| Failure::new("no_controls", error))?.available;
    if known.iter().any(|one| one == name) {
        return Ok((name.into(), None));
    }
    let algorithm: Algorithm = name.parse().map_err(|_| {
        Failure::usage(format!("no congestion control `{name}`: the kernel has {}", known.join(", ")))
            .remedy("longhaul cc list shows those that can be loaded")
    })?;
    let own = algorithm.kernel_name(Variant::Paper);
    if known.contains(&own) {
        return Ok((own, None));
    }
    let settings = Settings::new(algorithm, Variant::Paper).map_err(Failure::usage)?;
    Ok((own, Some(Control::load(&settings).map_err(|error| failure(&error))?)))
}
