//! `longhaul man`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::output::saved::folder_at;
use crate::output::{Failure, Outcome};

/// Write man pages
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Write one page per command into this folder; create it if it is missing
    folder: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    let unwritable = |error: std::io::Error| Failure::unwritable(&args.folder, error);
    folder_at(&args.folder).map_err(unwritable)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(unwritable)?;
    Ok(ExitCode::SUCCESS)
}
