//! `longhaul show`.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_report::saved::{Saved, on_one_line};

use crate::output::saved::{no_result, read_result};
use crate::output::{Outcome, print_caveats, print_json_text, print_text};

/// Show a saved result as the test printed it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul show monday\n  longhaul analyze --json monday.pcap > monday.json; longhaul show monday.json\n  longhaul udp server --json > tuesday.json; longhaul show tuesday.json"
)]
pub(crate) struct Args {
    /// Show this folder, written by -o of `longhaul udp`, `tcp`, `watch`, `analyze`, `compare`, `diagnose`, `rtt` or `sweep`, or this file, printed by --json
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let (file, text) = read_result(&args.path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    if args.json {
        print_json_text(&on_one_line(&text));
    } else {
        print_text(&saved.text());
    }
    print_caveats(&saved.caveats);
    Ok(ExitCode::SUCCESS)
}
