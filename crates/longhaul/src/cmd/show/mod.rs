//! `longhaul show`.

mod alone;
mod captured;
mod read;
mod sampled;
mod udp;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_report::saved::{Content, Saved, on_one_line};

use crate::cmd::show::read::Read;
use crate::output::overwrite::Overwrite;
use crate::output::saved::{no_result, read_result};
use crate::output::{Failure, Outcome, OutputFile, print_caveats, print_json_text, print_text};

/// The longest page: a real one has 2 MB and what the command prints.
const PAGE_BYTES_MOST: usize = 64 << 20;

/// Show a saved result as the test printed it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul show monday
  longhaul show monday --html page.html    # the page that --html of the test would have written
  longhaul analyze --json monday.pcap > monday.json; longhaul show monday.json
  longhaul udp server --json > tuesday.json; longhaul show tuesday.json")]
pub(crate) struct Args {
    /// Show this folder, written by -o of `longhaul udp`, `tcp`, `watch`, `analyze`, `compare`, `diagnose`, `rtt` or `sweep`, or this file, printed by --json
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Draw the result in this HTML file, as --html of its command does
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    args.overwrite.file(args.html.as_deref())?;
    let (file, text) = read_result(&args.path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    shown(&file, &text, &saved, (args.html.as_ref(), args.overwrite), args.json)
}

/// Draws the result `saved`, which `text` in `file` is, and prints it.
pub(crate) fn shown(
    file: &Path,
    text: &str,
    saved: &Saved,
    (html, overwrite): (Option<&OutputFile>, Overwrite),
    json: bool,
) -> Outcome {
    if let Some(html) = html {
        html.write(&page(&Read { file, text, saved })?, overwrite)?;
    }
    if json {
        print_json_text(&on_one_line(text));
    } else {
        print_text(&saved.text());
    }
    print_caveats(&saved.caveats);
    Ok(ExitCode::SUCCESS)
}

/// The page that `--html` of the command writes, as far as the result and the tables beside it have what it draws.
///
/// # Errors
/// The command has none, or the result is longer than any.
fn page(read: &Read<'_>) -> Result<String, Failure> {
    let page = match &read.saved.content {
        Content::Udp(asked, results) => Ok(udp::page(read, asked, results)),
        Content::Tcp(asked, results) => Ok(sampled::tested(read, asked, results)),
        Content::Watch(result) => sampled::watched(read, result),
        Content::Analyze(result) => captured::analyzed(read, result),
        Content::Compare(result) => captured::compared(read, result),
        Content::Rtt(result) => alone::measured(read, result),
        Content::Sweep(result) => alone::swept(read, result),
        Content::Diagnose(asked, results) => Ok(alone::diagnosed(read, asked, results)),
        Content::WatchUdp(_) => Err(read.no_page("longhaul watch --udp")),
        Content::CompareUdp(_) => Err(read.no_page("longhaul compare of results of longhaul watch --udp")),
        Content::DiagnoseFlows(_) => Err(read.no_page("longhaul diagnose of connections without a test")),
        Content::LongPath(_) => Err(read.no_page("longhaul diagnose --rtt")),
        Content::Hops(_) => Err(read.no_page("longhaul rtt --to-each-hop")),
    }?;
    if page.len() > PAGE_BYTES_MOST { Err(read.too_long()) } else { Ok(page) }
}
