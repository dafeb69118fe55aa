//! `longhaul key`, and reading key files.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use longhaul_channel::{KEY_BYTES, Key};

use crate::output::{Failure, Outcome};

const KEY_REMEDY: &str = "make one with `longhaul key new FILE` at one end and copy it to the other";
/// Longest key file that is read.
const FILE_BYTES_MOST: u64 = 8192;

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

/// Reads a key file.
pub(crate) fn load(file: &Path) -> Result<Key, Failure> {
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MOST).read_to_string(&mut text))
        .map_err(|error| Failure::usage(format!("--key {}: {error}", file.display())).remedy(KEY_REMEDY))?;
    text.parse().map_err(|error| Failure::usage(format!("--key {}: {error}", file.display())))
}
