//! `longhaul show`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::udp_saved::Saved;
use super::udp_text;
use crate::output::{Outcome, print_text, print_warnings};

/// Show a saved result as the test printed it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul show monday\n  longhaul udp server --json > tuesday.json; longhaul show tuesday.json"
)]
pub(crate) struct Args {
    /// A folder that `longhaul udp -o` wrote, or a file with what --json printed
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let saved = Saved::read(&args.path)?;
    if args.json {
        print_text(&(saved.json + "\n"));
    } else {
        print_text(&udp_text::report(&saved.parameters, &saved.results));
    }
    print_warnings(&saved.warnings);
    Ok(ExitCode::SUCCESS)
}
