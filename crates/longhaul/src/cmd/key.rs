//! `longhaul key`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use longhaul_channel::{KEY_BYTES, Key};
use longhaul_kernel::new_file::{NewFile, PRIVATE};

use crate::output::overwrite::Overwrite;
use crate::output::{Failure, Outcome};

/// Make keys for tests between hosts
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:\n  longhaul key new longhaul.key")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key file; copy it to both ends
    #[command(after_help = "Example:\n  longhaul key new longhaul.key")]
    New {
        /// Write the key to this file
        file: PathBuf,
        #[command(flatten)]
        overwrite: Overwrite,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    let Action::New { file, overwrite } = args.action;
    overwrite.file(Some(&file))?;
    let failed = |error: std::io::Error| {
        Failure::new("not_written", format!("{}: {error}", file.display())).remedy("give the name of a new file")
    };
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new("random", format!("the system gave no random numbers: {error}")))?;
    let key = Key::from_random(bytes).map_err(|error| Failure::new("random", error))?;
    // Created with its final mode, so nobody else can ever read it.
    let out = NewFile::create(&file, PRIVATE).map_err(failed)?;
    out.file().write_all(key.to_text().as_bytes()).map_err(failed)?;
    let finished = if overwrite.allowed() { out.finish() } else { out.finish_new() };
    finished.map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
