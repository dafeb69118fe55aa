//! `longhaul paths`.

use std::process::ExitCode;

use clap::Subcommand;
use longhaul_path::preset;
use longhaul_path::spec::Direction;
use serde::Serialize;

use crate::output::{Envelope, Failure, NothingAsked, Outcome, print_json, print_text};

/// List the preset paths
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul paths show tokyo > mine.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a path as TOML
    #[command(after_help = "Example:\n  longhaul paths show nlr-small > mine.toml")]
    Show {
        /// Show this path: a name from the list, or a path file
        path: String,
    },
}

/// The paths that are known by name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KnownPaths<'a> {
    /// The paths of one paper together.
    #[cfg_attr(test, schemars(length(min = 1)))]
    paths: Vec<NamedPath<'a>>,
}

/// A path that is known by name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NamedPath<'a> {
    /// Its name.
    name: &'a str,
    /// Where its figures come from.
    source: &'a str,
    /// Delay from client to server, in nanoseconds.
    forward_delay_ns: u64,
    /// Delay from server to client, in nanoseconds.
    backward_delay_ns: u64,
    /// The lowest rate from client to server, in bits a second at the layer that its hop says; null where no hop has a rate.
    #[cfg_attr(test, schemars(range(min = 1)))]
    forward_rate_bps: Option<u64>,
    /// The same from server to client.
    #[cfg_attr(test, schemars(range(min = 1)))]
    backward_rate_bps: Option<u64>,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Some(Action::Show { path }) => show(&path),
        None => list(args.json),
    }
}

fn show(name: &str) -> Outcome {
    match preset::find(name) {
        // As it was written, with its comments.
        Some(preset) => print_text(preset.text),
        None => print_text(&preset::load(name).map_err(Failure::usage)?.to_toml()),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(as_json: bool) -> Outcome {
    let specs = preset::list()
        .iter()
        .map(|preset| preset.spec().map_err(|error| Failure::new("preset", error)))
        .collect::<Result<Vec<_>, _>>()?;
    let [forward, backward] = Direction::BOTH;
    if as_json {
        let paths = specs.iter().map(|path| NamedPath {
            name: &path.name,
            source: &path.source,
            forward_delay_ns: path.one_way_delay(forward).0,
            backward_delay_ns: path.one_way_delay(backward).0,
            forward_rate_bps: path.bottleneck(forward).map(|rate| rate.0),
            backward_rate_bps: path.bottleneck(backward).map(|rate| rate.0),
        });
        let now = jiff::Timestamp::now().to_string();
        let known = KnownPaths { paths: paths.collect() };
        print_json(&Envelope::new("longhaul.paths/1", now, NothingAsked {}, known, Vec::new()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{:<20} {:>15} {:>10}  {}\n", "path", "round trip", "rate", "source");
    for path in &specs {
        let rate = path.bottleneck(forward).map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        text += &format!("{:<20} {:>15} {:>10}  {}\n", path.name, path.round_trip(), rate, path.source);
    }
    print_text(&text);
    Ok(ExitCode::SUCCESS)
}
