//! `longhaul tune`: plan settings, change them, keep them, put them back.

pub(crate) mod changing;
pub(crate) mod keeping;
pub(crate) mod planned;
mod text;

use std::path::PathBuf;

use clap::Subcommand;
use longhaul_tune::{STATE_FOLDER, Store, TuneError};

use crate::output::{Failure, Outcome};

/// Choose settings of this host for a rate and a round trip; apply, keep or undo them
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:
  longhaul tune --rate 10G --rtt 150ms --role receiver      # the plan; needs no root
  longhaul tune --rate 10G --rtt 150ms --apply --for 60s    # changes settings for a minute
  longhaul tune confirm                                     # keeps them
  longhaul tune --rate 10G --rtt 150ms --apply --persist    # also when the machine starts again
  longhaul tune monday --role sender --to far.example.net   # from `longhaul diagnose -o monday`
  longhaul tune undo"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    plan: planned::PlanArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    Status(keeping::StatusArgs),
    Confirm(keeping::ConfirmArgs),
    Undo(keeping::UndoArgs),
    /// Wait for the end of the command that changed settings, and put back what nobody confirmed
    #[command(hide = true)]
    Hold(changing::HoldArgs),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        None => planned::run(args.plan),
        Some(Action::Status(args)) => keeping::status(args),
        Some(Action::Confirm(args)) => keeping::confirm(args),
        Some(Action::Undo(args)) => keeping::undo(args),
        Some(Action::Hold(args)) => changing::hold(args),
    }
}

/// Where it is remembered what was before.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StateArgs {
    /// Keep the old values in this folder; use the same folder for all commands on a host
    #[arg(long, value_name = "FOLDER", default_value = STATE_FOLDER)]
    state: PathBuf,
}

impl StateArgs {
    fn store(&self) -> Result<Store, Failure> {
        // Whoever puts settings back has another working folder.
        let folder = std::path::absolute(&self.state).unwrap_or_else(|_| self.state.clone());
        Store::open(&folder).map_err(|error| failure(&error))
    }
}

/// The failure, with its code and what to do.
fn failure(error: &TuneError) -> Failure {
    let (code, remedy) = match error {
        TuneError::Namespace(_) => ("no_namespace", ""),
        TuneError::Boot(_) => ("no_boot", ""),
        TuneError::Store { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ("denied", "run as root")
        }
        TuneError::Store { .. } => ("no_state", "--state FOLDER names another folder"),
        TuneError::LeftChanged { .. } => {
            ("no_state", "`longhaul tune undo` puts them back, `longhaul tune status` shows them; use the same --state")
        }
        TuneError::Broken { .. } => ("no_state", "look into the file, put back what it says, and remove it"),
        TuneError::Busy { .. } => ("busy", "try it again, or look what that process waits for"),
        TuneError::Pending => {
            ("not_confirmed", "run `longhaul tune confirm` or `longhaul tune undo`; `longhaul tune status` shows them")
        }
        TuneError::Earlier => ("kept_before", "run `longhaul tune undo` first, or leave --for out"),
        TuneError::Nothing => ("nothing_changed", ""),
        TuneError::Refused { .. } => {
            ("refused", "run as root or in a network namespace of your own, and not during a test")
        }
        TuneError::NotFirst => ("not_first", "leave --persist out, or run it on the host itself"),
        TuneError::DropIn { .. } => ("not_written", "`longhaul tune status` shows what is changed"),
    };
    Failure::new(code, error).remedy(remedy)
}
