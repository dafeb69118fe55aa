//! `longhaul man`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::output::{Failure, Outcome};

/// Write man pages
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Write one page per command into this folder
    folder: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        Failure::new("not_written", format!("{}: {error}", args.folder.display())).remedy("name an existing folder")
    })?;
    Ok(ExitCode::SUCCESS)
}
