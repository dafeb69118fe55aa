//! `longhaul key`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use longhaul_channel::{KEY_BYTES, Key};

use crate::output::{Failure, Outcome};

/// Make keys for tests beyond this machine
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:\n  longhaul key new longhaul.key")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key; give the file to both ends
    #[command(after_help = "Example:\n  longhaul key new longhaul.key")]
    New {
        /// The file, which must not exist
        file: PathBuf,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    let Action::New { file } = args.action;
    let failed = |error: std::io::Error| {
        Failure::new("not_written", format!("{}: {error}", file.display())).remedy("name a file that does not exist")
    };
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new("random", format!("no random numbers from the system: {error}")))?;
    let key = Key::from_random(bytes).map_err(|error| Failure::new("random", error))?;
    // Nobody else may read it, from the first moment on.
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
    out.write_all(key.to_text().as_bytes()).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
