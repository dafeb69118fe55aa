//! `longhaul show`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::saved::{NO_RESULT_REMEDY, SavedText};
use super::tcp_saved::{SavedTcp, TCP_SCHEMA};
use super::tcp_text;
use super::udp_saved::{Saved, UDP_SCHEMA};
use super::udp_text;
use super::watch_saved::{SavedWatch, WATCH_SCHEMA};
use super::watch_text;
use crate::output::{Failure, Outcome, print_text, print_warnings};

/// Show a saved result as the test printed it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul show monday\n  longhaul udp server --json > tuesday.json; longhaul show tuesday.json"
)]
pub(crate) struct Args {
    /// A folder that -o of `longhaul udp`, `tcp` or `watch` wrote, or a file with what --json printed
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let saved = SavedText::read(&args.path)?;
    let not =
        |why: String| Failure::new("no_result", format!("{}: {why}", saved.file.display())).remedy(NO_RESULT_REMEDY);
    let (text, warnings) = match saved.schema() {
        Some(UDP_SCHEMA) => {
            let udp = Saved::parse(&saved.json).map_err(not)?;
            (udp_text::report(&udp.parameters, &udp.results), udp.warnings)
        }
        Some(TCP_SCHEMA) => {
            let tcp = SavedTcp::parse(&saved.json).map_err(not)?;
            (tcp_text::report(&tcp.parameters, &tcp.results), tcp.warnings)
        }
        Some(WATCH_SCHEMA) => {
            let watched = SavedWatch::parse(&saved.json).map_err(not)?;
            (watch_text::report(&watched.result), watched.warnings)
        }
        Some(other) => {
            let other = other.escape_debug();
            return Err(not(format!("a {other}, not a {UDP_SCHEMA}, {TCP_SCHEMA} or {WATCH_SCHEMA}")));
        }
        None => return Err(not(format!("not a {UDP_SCHEMA}, {TCP_SCHEMA} or {WATCH_SCHEMA}"))),
    };
    print_text(&if args.json { saved.line() + "\n" } else { text });
    print_warnings(&warnings);
    Ok(ExitCode::SUCCESS)
}
