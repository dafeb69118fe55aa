//! `longhaul cc`: congestion controls.

pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod measured;
pub(crate) mod select;
pub(crate) mod show;
pub(crate) mod table;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::str::FromStr;

use clap::Subcommand;
use longhaul_bpf::BpfError;
use longhaul_bpf::congestion::CongestionError;
use longhaul_congestion::Algorithm;
use longhaul_congestion::algorithm::UnknownAlgorithm;

use crate::output::{Failure, Outcome};

/// Load congestion controls that the kernel lacks; show parameters and response functions
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:
  longhaul cc load scalable
  iperf3 -c server -C lh_scalable
  longhaul cc unload scalable")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::Args),
    Load(load::LoadArgs),
    Unload(load::UnloadArgs),
    Use(select::Args),
    Show(show::Args),
    Table(table::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Action::List(args) => list::run(args),
        Action::Load(args) => load::load(args),
        Action::Unload(args) => load::unload(args),
        Action::Use(args) => select::run(args),
        Action::Show(args) => show::run(args),
        Action::Table(args) => table::run(args),
    }
}

/// One of longhaul's controls, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    One(Algorithm),
}

impl FromStr for Choice {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// The failure, with its code.
pub(crate) fn failure(error: &CongestionError) -> Failure {
    let code = match error {
        CongestionError::Bpf(BpfError::NotBuilt { .. }) => "not_built",
        CongestionError::Bpf(BpfError::NoBtf { .. }) => "no_btf",
        CongestionError::Bpf(BpfError::Denied { .. }) => "denied",
        CongestionError::Bpf(_) => "bpf",
        CongestionError::Settings(error) => return Failure::usage(error),
        CongestionError::NoStructOps => "no_struct_ops",
        CongestionError::NoRates { .. } => "no_rates",
        CongestionError::AlreadyThere { .. } => "already_there",
        CongestionError::NoBpfFs => "no_bpf_fs",
        CongestionError::NotKept { .. } => "not_loaded",
        CongestionError::Keep { .. } => "not_kept",
    };
    Failure::new(code, error)
}

/// What the program of a command line ended with: its own exit code, or that which shells give for a signal.
pub(crate) fn exit_code(command: &[String], status: io::Result<ExitStatus>) -> Outcome {
    let failed = |error| Failure::new("no_command", format!("cannot run {}: {error}", command[0])).exit(127);
    let status = status.map_err(failed)?;
    let signal = status.signal().map(|signal| 128 + signal);
    Ok(ExitCode::from(status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// `value`, above zero, to so many significant digits.
pub(crate) fn significant(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powf(value.log10().floor() - f64::from(digits - 1));
    (value / scale).round() * scale
}

/// Whole packets, with commas; one decimal below ten.
pub(crate) fn packets(window: f64) -> String {
    if window < 10.0 {
        return format!("{window:.1}");
    }
    let digits = format!("{window:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
